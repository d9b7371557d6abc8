//! The asynchronous handle, driven by the smallest executor there is.

mod common;

use common::{PATIENCE, block_on, fresh_name, options};
use futures_core::Stream;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;
use unisono::{AsyncGroup, BatchOutcome, Bytes, Ended, Event, Group, GroupConfig, SendError};

/// Reports each call of its waker.
struct Call(Sender<()>);

impl Call {
    fn waker() -> (Waker, Receiver<()>) {
        let (call, calls) = mpsc::channel();
        (Waker::from(Arc::new(Call(call))), calls)
    }
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

/// Polls a future once and drops it.
fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

async fn pair(name: &str) -> (AsyncGroup, AsyncGroup) {
    let options = options();
    let first = AsyncGroup::create(name, GroupConfig::default(), &options).await.unwrap();
    let second = AsyncGroup::join(name, "hello", &options).await.unwrap();
    (first, second)
}

async fn message(group: &AsyncGroup) -> Bytes {
    loop {
        if let Event::Message { payload, .. } = group.receive().await.unwrap() {
            return payload;
        }
    }
}

#[test]
fn what_one_task_sends_the_other_receives() {
    block_on(async {
        let (first, second) = pair(&fresh_name("send")).await;
        for count in 0..50 {
            let seqno = second.send(format!("{count}")).await.unwrap();
            assert_eq!(message(&first).await, format!("{count}"));
            assert_eq!(first.info().expected, seqno + 1);
        }
        let tickets = [first.submit("a").await.unwrap(), first.submit("b").await.unwrap()];
        let [a, b] = tickets;
        assert!(a.await.unwrap() < b.await.unwrap());
        let outcome = first.submit_all(["c", "d", "e"]).await.unwrap().await;
        assert!(matches!(outcome, BatchOutcome { accepted: 3, failure: None, .. }));
    });
}

#[test]
fn the_stream_of_events_ends_with_the_leave() {
    block_on(async {
        let (first, second) = pair(&fresh_name("stream")).await;
        let mut events = pin!(second.events());
        second.send("last words").await.unwrap();
        second.leave("bye").await.unwrap();
        let mut seen = Vec::new();
        while let Some(event) = poll_fn(|context| events.as_mut().poll_next(context)).await {
            seen.push(event);
        }
        assert!(matches!(seen[0], Event::Entered { .. }));
        assert!(matches!(&seen[1], Event::Message { payload, .. } if payload == "last words"));
        assert!(matches!(&seen[2], Event::Left { goodbye, members: 1, .. } if goodbye == "bye"));
        assert_eq!(seen.len(), 3);
        assert_eq!(second.receive().await, Err(Ended::Left));
        drop(first);
    });
}

#[test]
fn a_future_that_is_dropped_loses_nothing() {
    block_on(async {
        let (first, second) = pair(&fresh_name("cancel")).await;
        while !matches!(first.receive().await.unwrap(), Event::Joined { .. }) {}
        for count in 0..20 {
            assert_eq!(poll_once(first.receive()), None);
            second.send(format!("{count}")).await.unwrap();
            assert_eq!(message(&first).await, format!("{count}"));
        }
        // Once it was taken it is sent, whether or not it had its seqno when the future was dropped.
        let _ = poll_once(second.send("orphan"));
        assert_eq!(message(&first).await, "orphan");
    });
}

#[test]
fn a_try_returns_at_once_and_names_the_obstacle() {
    block_on(async {
        let config = GroupConfig { window: 2, history_messages: 16, ..GroupConfig::default() };
        let first = AsyncGroup::create(&fresh_name("try"), config, &options()).await.unwrap();
        assert!(matches!(first.try_receive(), Ok(Some(Event::Entered { .. }))));
        assert_eq!(first.try_receive(), Ok(None));
        let ticket = first.try_submit("one").unwrap();
        let seqno = ticket.await.unwrap();
        let Ok(Some(Event::Message { seqno: received, payload, .. })) = first.try_receive() else {
            panic!("a message that has its seqno is ready");
        };
        assert_eq!((received, &payload[..]), (seqno, &b"one"[..]));
        // Unreceived events fill the history, and then messages without a seqno fill the window.
        let refused = loop {
            match first.try_submit("more") {
                Ok(_) => {}
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, SendError::WindowFull | SendError::NotReceiving), "{refused:?}");
        let mut room = false;
        while let Ok(Some(_)) = first.try_receive() {
            room = true;
        }
        assert!(room);
        first.send("there is room again").await.unwrap();
        first.leave("").await.unwrap();
        assert_eq!(first.try_submit("late").map(drop), Err(SendError::Left));
        while let Ok(event) = first.try_receive() {
            assert!(event.is_some());
        }
        assert_eq!(first.try_receive(), Err(Ended::Left));
    });
}

#[test]
fn many_events_are_received_at_once() {
    block_on(async {
        let (first, second) = pair(&fresh_name("receive-many")).await;
        let mut events = Vec::new();
        while !events.iter().any(|event| matches!(event, Event::Joined { .. })) {
            let (before, count) = (events.len(), first.receive_many(&mut events).await.unwrap());
            assert!(count > 0 && events.len() == before + count);
        }
        // It waits for an event, and takes none if it is dropped.
        assert_eq!(poll_once(first.receive_many(&mut events)), None);
        let sent = second.submit_all((0..100).map(|count| format!("{count}"))).await.unwrap().await;
        events.clear();
        while first.info().expected <= sent.last {
            first.receive_many(&mut events).await.unwrap();
        }
        let numbers = events.iter().map(|event| match event {
            Event::Message { payload, .. } => String::from_utf8_lossy(payload).parse::<u32>().unwrap(),
            other => panic!("{other:?}"),
        });
        assert!(numbers.eq(0..100));
        second.leave("").await.unwrap();
        drop(first);
        events.clear();
        let ended = loop {
            if let Err(ended) = second.receive_many(&mut events).await {
                break ended;
            }
        };
        assert_eq!(ended, Ended::Left);
        assert!(matches!(events.last(), Some(Event::Left { .. })));
    });
}

#[test]
fn nothing_is_kept_of_tasks_that_wait_no_longer() {
    block_on(async {
        let (first, _second) = pair(&fresh_name("many-tasks")).await;
        while !matches!(first.receive().await.unwrap(), Event::Joined { .. }) {}
        let (calls, _) = mpsc::channel();
        let tasks: Vec<_> = (0..10).map(|_| Arc::new(Call(calls.clone()))).collect();
        let mut events = pin!(first.events());
        for task in &tasks {
            let waker = Waker::from(task.clone());
            let context = &mut Context::from_waker(&waker);
            assert!(pin!(first.receive()).poll(context).is_pending());
            assert!(events.as_mut().poll_next(context).is_pending());
        }
        // The last one still waits, with the stream.
        let kept: Vec<_> = tasks.iter().map(|task| Arc::strong_count(task) > 1).collect();
        assert_eq!(kept, [[false; 9].as_slice(), &[true]].concat());
    });
}

#[test]
fn a_leave_whose_future_is_dropped_is_a_leave_all_the_same() {
    block_on(async {
        let (first, second) = pair(&fresh_name("cancelled-leave")).await;
        let me = second.info().me;
        let _ = poll_once(second.leave("farewell"));
        loop {
            if let Event::Left { member, goodbye, .. } = first.receive().await.unwrap() {
                assert_eq!((member.uid, goodbye), (me, Bytes::from("farewell")));
                break;
            }
        }
        assert_eq!(first.counters().suspicions, 0);
    });
}

#[test]
fn dropping_the_last_handle_leaves_in_the_background() {
    block_on(async {
        let (first, second) = pair(&fresh_name("drop")).await;
        let me = second.info().me;
        drop(second);
        loop {
            if let Event::Left { member, .. } = first.receive().await.unwrap() {
                assert_eq!(member.uid, me);
                break;
            }
        }
    });
}

#[test]
fn dropping_a_join_that_is_under_way_leaves_no_member_behind() {
    let name = fresh_name("abort");
    let first = Group::create(&name, GroupConfig::default(), &options()).unwrap();
    let _ = poll_once(AsyncGroup::join(&name, "", &options()));
    let second = Group::join(&name, "", &options()).unwrap();
    second.send("us two").unwrap();
    assert!(first.members().len() <= 3);
    // Whatever the third one became, it is gone without having been suspected.
    while first.members().len() != 2 {
        first.receive().unwrap();
    }
    assert_eq!(first.counters().suspicions, 0);
}

#[test]
fn a_full_window_makes_a_task_wait_and_not_a_thread() {
    const HISTORY: u32 = 16;
    const WINDOW: u32 = 4;
    block_on(async {
        let name = fresh_name("window");
        let config = GroupConfig { history_messages: HISTORY, window: WINDOW, ..GroupConfig::default() };
        let first = AsyncGroup::create(&name, config, &options()).await.unwrap();
        let second = AsyncGroup::join(&name, "", &options()).await.unwrap();
        second.ignore_events();
        // While the first member takes no events, the order ends where its history is full; the join counts too. Once
        // this number of messages is taken, the window is full of messages that cannot get a seqno.
        let mut under_way = Vec::new();
        for _ in 0..HISTORY - 1 + WINDOW {
            under_way.push(second.submit("more").await.unwrap());
        }
        assert!(poll_once(second.submit("too many")).is_none());
        let (waker, calls) = Call::waker();
        let mut waiting = pin!(second.submit("at last"));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(calls.try_recv(), Err(TryRecvError::Empty));
        for _ in &under_way {
            assert_eq!(message(&first).await, "more");
        }
        calls.recv_timeout(PATIENCE).expect("a waiting task is woken when the window opens");
        under_way.push(waiting.await.unwrap());
        // A message that was dropped while it waited for the window was not sent.
        assert_eq!(message(&first).await, "at last");
        for ticket in under_way {
            ticket.await.unwrap();
        }
        second.leave("").await.unwrap();
        assert_eq!(second.submit("late").await.map(drop), Err(SendError::Left));
    });
}

#[test]
fn all_kinds_of_waiting_at_once_lose_nothing_and_stall_no_task() {
    const EACH: usize = 300;
    let name = fresh_name("mixed");
    let options = options();
    let group = Group::create(&name, GroupConfig::default(), &options).unwrap();
    let (other, tasks) = block_on(async {
        let first = AsyncGroup::join(&name, "", &options).await.unwrap();
        (first.clone(), first)
    });
    let total = 5 * EACH;
    let (here, there) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // The last message of all tells the receivers to stop; the count shows whether it came too early.
    let take = |count: &AtomicUsize, event: &Event| {
        matches!(event, Event::Message { .. }) && count.fetch_add(1, Ordering::Relaxed) + 1 == total
    };
    thread::scope(|scope| {
        for patience in [Duration::from_micros(50), Duration::from_millis(30)] {
            let (group, here) = (&group, &here);
            scope.spawn(move || {
                while here.load(Ordering::Relaxed) < total {
                    if let Some(event) = group.receive_timeout(patience).unwrap() {
                        take(here, &event);
                    }
                }
            });
        }
        scope.spawn(|| block_on(async { while !take(&there, &other.receive().await.unwrap()) {} }));
        for _ in 0..2 {
            scope.spawn(|| (0..EACH).for_each(|_| assert!(group.send("blocking").is_ok())));
        }
        scope.spawn(|| {
            let tickets: Vec<_> = (0..EACH).map(|_| group.submit("ticket").unwrap()).collect();
            assert!(tickets.into_iter().all(|ticket| ticket.wait().is_ok()));
        });
        scope.spawn(|| {
            for _ in 0..EACH / 100 {
                let batch = group.submit_all((0..100).map(|_| "batch")).unwrap();
                assert_eq!(batch.wait().accepted, 100);
            }
        });
        scope.spawn(|| {
            block_on(async {
                for _ in 0..EACH {
                    tasks.send("task").await.unwrap();
                }
            })
        });
    });
    assert_eq!((here.into_inner(), there.into_inner()), (total, total));
}
