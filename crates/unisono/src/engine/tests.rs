//! Threads that wait, one of them in a pinned socket, and what wakes them.

use super::entering::engines;
use super::lease::LISTENERS;
use super::*;
use crate::rpc::{Client, PrivatePort, ServeOptions, Server};
use crate::{Event, Group, GroupConfig, Options, Settings};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Weak, mpsc};
use unisono_core::Phase;
use unisono_udp::Socket;

const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Longer than any working case takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Half of the time after which a wait in a receive ends without a datagram.
const HALF_A_WAIT: Duration = Duration::from_millis(10);
const ROUNDS: usize = 10;

/// Makes a member that is alone in its group. Returns it with its engine.
pub(super) fn alone(what: &str) -> (Group, Arc<Engine>) {
    alone_at(what, Options::default())
}

fn alone_at(what: &str, options: Options) -> (Group, Arc<Engine>) {
    let name = format!("{what}-{}", std::process::id());
    let group = Group::create(&name, GroupConfig::default(), &options).unwrap();
    let address = group.members()[0].address;
    let engine = engines()
        .engines
        .iter()
        .filter_map(Weak::upgrade)
        .find(|engine| engine.lock().own_address == address);
    (group, engine.unwrap())
}

#[test]
fn the_group_of_a_process_that_wants_multicasts_to_go_farthest_decides() {
    let (_near, engine) = alone("near");
    let settings = Settings { hops: 5, ..Settings::default() };
    let (far, same) = alone_at("far", Options { settings, ..Options::default() });
    assert!(Arc::ptr_eq(&engine, &same), "one socket for both");
    assert_eq!(engine.lock().hops(), 5);
    far.leave("").unwrap();
    drop(far);
    assert_eq!(engine.lock().hops(), 1);
}

/// Returns when a thread sleeps in a pinned socket, after meaningless datagrams to the unicast socket.
fn wait_until_pinned(engine: &Engine) {
    let address = engine.lock().own_address;
    pin_to(engine, address);
}

/// The same with the socket that is bound to this address.
fn pin_to(engine: &Engine, address: SocketAddr) {
    const A_MOMENT: Duration = Duration::from_millis(1);
    let (socket, begin) = (Socket::bind((LOOPBACK, 0).into()).unwrap(), Instant::now());
    socket.send_multicast_by(LOOPBACK, 1).unwrap();
    let is_pinned = || engine.lock().turn.sleeper().is_some_and(Sleeper::is_pinned);
    let lasts = |so: bool| {
        let begin = Instant::now();
        while begin.elapsed() < A_MOMENT && is_pinned() == so {
            std::thread::yield_now();
        }
        is_pinned() == so
    };
    while lasts(false) || !lasts(true) {
        assert!(begin.elapsed() < PATIENCE, "no thread waits in the pinned socket");
        socket.send(b"nothing", 7, &[address]);
    }
}

/// Returns when an application thread sleeps as the lease holder without a pinned socket.
fn unpinned_holder(engine: &Engine) -> MutexGuard<'_, State> {
    let begin = Instant::now();
    loop {
        let state = engine.lock();
        if state.turn.sleeper().is_some_and(|sleeper| sleeper.slot.is_some() && !sleeper.is_pinned()) {
            return state;
        }
        drop(state);
        assert!(begin.elapsed() < PATIENCE, "no application thread holds the lease");
        std::thread::yield_now();
    }
}

#[test]
fn an_abandoned_member_that_is_alone_is_out_at_once() {
    let (group, _engine) = alone("abandoned");
    group.shared().abandon();
    assert_eq!(group.shared().with(|member, _| member.phase()), Phase::Gone);
}

#[test]
fn an_engine_is_undisturbed_while_the_lease_is_free_and_nothing_waits() {
    // An engine that no other test uses.
    let options = Options { bind: Some("127.0.0.11:0".parse().unwrap()), ..Options::default() };
    let (group, engine) = alone_at("undisturbed", options);
    let begin = Instant::now();
    let (mut state, at) = loop {
        // A thread that waits takes the lease from the fallback thread.
        group.receive_timeout(HALF_A_WAIT).unwrap();
        let state = engine.lock();
        match state.undisturbed_since() {
            Some(at) => break (state, at),
            // The fallback thread was faster.
            None => assert!(begin.elapsed() < PATIENCE),
        }
    };
    assert!(at <= engine.now());
    state.touch(0);
    assert_eq!(state.undisturbed_since(), None);
    let now = engine.now();
    engine.settle(&mut state, now);
    assert_eq!(state.undisturbed_since(), Some(now));
    let (parker, _) = Parker::mine();
    state.turn.claim(parker.clone());
    assert_eq!(state.undisturbed_since(), None);
    state.turn.unclaim(&parker);
    let lease = state.turn.take(now, false).unwrap();
    assert_eq!(state.undisturbed_since(), None);
    state.turn.release(now, lease);
}

#[test]
fn events_are_lacking_when_there_is_none_and_more_may_come() {
    let (group, _engine) = alone("lacking");
    let lacks = || group.shared().with(|member, _| member.lacks_events());
    assert_eq!(lacks(), None, "opening the group has peeked at its first event");
    group.receive().unwrap();
    assert_eq!(lacks(), Some(Interest::Event));
    group.send("in the core").unwrap();
    assert_eq!(lacks(), None);
    group.receive().unwrap();
    assert_eq!(lacks(), Some(Interest::Event));
    group.leave("").unwrap();
    while group.receive().is_ok() {}
    assert_eq!(lacks(), None, "the events have ended");
}

#[test]
fn no_member_enters_an_engine_between_its_end_and_that_of_its_sockets() {
    let (group, engine) = alone("ending");
    let entrance = engines();
    drop(group);
    let begin = Instant::now();
    loop {
        let state = engine.lock();
        assert!(!state.closed, "others could enter and find its address taken");
        // The fallback thread is awake to end it.
        if state.is_empty() && state.turn.held_by_fallback() && state.turn.sleeper().is_none() {
            break;
        }
        drop(state);
        assert!(begin.elapsed() < PATIENCE, "it does not end");
        std::thread::yield_now();
    }
    drop(entrance);
}

#[test]
fn a_wakeup_that_another_thread_clears_is_signalled_again() {
    let (group, engine) = alone("wakeup-silenced");
    std::thread::scope(|scope| {
        let receiver = group.clone();
        scope.spawn(move || while receiver.receive().is_ok() {});
        let mut state = unpinned_holder(&engine);
        let now = engine.now();
        state.turn.request_wakeup();
        engine.wake_holder(&mut state, now);
        assert!(state.signalled);
        // As the fallback thread does if it looked while a socket was pinned, and is late.
        engine.note_woken(&mut state, Woken { signalled: true, alarmed: false });
        assert!(!state.signalled);
        engine.wake_holder(&mut state, now);
        assert!(state.signalled);
        drop(state);
        group.leave("").unwrap();
    });
}

/// Opens another group in the same engine. Returns it with the socket that listens for it alone: groups share
/// addresses.
fn beside(engine: &Arc<Engine>, what: &str, options: &Options) -> Option<(Group, Weak<Socket>)> {
    let listeners = || engine.lock().sockets.range(LISTENERS..).next_back().map(|(_, socket)| socket.clone());
    let Some(first) = listeners() else {
        let _ = writeln!(std::io::stderr(), "skipped: no multicast on loopback here");
        return None;
    };
    (0..).find_map(|count| {
        let (group, same) = alone_at(&format!("{what}-{count}"), options.clone());
        assert!(Arc::ptr_eq(engine, &same));
        let own = listeners().filter(|socket| !Arc::ptr_eq(socket, &first))?;
        Some((group, Arc::downgrade(&own)))
    })
}

#[test]
fn a_socket_is_closed_when_its_group_has_gone_although_another_thread_waits() {
    // An engine that no other test uses.
    let options = Options { bind: Some("127.0.0.9:0".parse().unwrap()), ..Options::default() };
    let (first, engine) = alone_at("closed-first", options.clone());
    let Some((second, listener)) = beside(&engine, "closed-second", &options) else { return };
    let closed = std::thread::scope(|scope| {
        let begin = Instant::now();
        // The fallback thread must have waited for the listener too.
        while !engine.lock().turn.held_by_fallback() && begin.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let receiver = first.clone();
        scope.spawn(move || while receiver.receive().is_ok() {});
        drop(unpinned_holder(&engine));
        drop(second);
        while listener.strong_count() > 0 && begin.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        let closed = listener.strong_count() == 0;
        first.leave("").unwrap();
        closed
    });
    assert!(closed);
}

#[test]
fn a_thread_in_a_pinned_socket_is_woken_when_the_socket_goes() {
    // An engine that no other test uses.
    let bind = Some("127.0.0.10:0".parse().unwrap());
    let options = Options { bind, multicast_interface: Some(LOOPBACK), ..Options::default() };
    let (group, engine) = alone_at("gone", options.clone());
    let shortest = std::thread::scope(|scope| {
        let receiver = group.clone();
        scope.spawn(move || while receiver.receive().is_ok() {});
        let waits = (0..ROUNDS).map(|round| {
            let (other, listener) = beside(&engine, &format!("gone-{round}"), &options)?;
            let address = listener.upgrade()?.address();
            pin_to(&engine, address);
            let begin = Instant::now();
            drop(other);
            while engine.lock().turn.sockets().values().any(|socket| socket.address() == address) {
                if begin.elapsed() > PATIENCE {
                    break;
                }
                std::thread::yield_now();
            }
            Some(begin.elapsed())
        });
        let shortest = waits.min();
        group.leave("").unwrap();
        shortest
    });
    assert!(shortest < Some(Some(HALF_A_WAIT)), "{shortest:?}");
}

#[test]
fn a_thread_in_a_pinned_socket_sees_what_another_thread_does() {
    let (group, engine) = alone("pinned-news");
    let (told, heard) = mpsc::channel();
    let shortest = std::thread::scope(|scope| {
        let receiver = group.clone();
        scope.spawn(move || {
            while let Ok(event) = receiver.receive() {
                if let Event::Message { .. } = event {
                    let _ = told.send(Instant::now());
                }
            }
        });
        let waits = (0..ROUNDS).map(|_| {
            wait_until_pinned(&engine);
            let begin = Instant::now();
            drop(group.submit("mine").unwrap());
            heard.recv_timeout(PATIENCE).unwrap().saturating_duration_since(begin)
        });
        let shortest = waits.min();
        group.leave("").unwrap();
        shortest
    });
    assert!(shortest < Some(HALF_A_WAIT), "{shortest:?}");
}

#[test]
fn a_thread_in_a_pinned_socket_keeps_to_its_timeout() {
    let (group, engine) = alone("pinned-while");
    group.receive_timeout(PATIENCE).unwrap().unwrap();
    let (told, heard) = mpsc::channel();
    let shortest = std::thread::scope(|scope| {
        let receiver = group.clone();
        scope.spawn(move || {
            let limit = Duration::from_millis(1);
            loop {
                let begin = Instant::now();
                match receiver.receive_timeout(limit) {
                    Ok(None) if told.send(begin.elapsed()).is_ok() => {}
                    _ => break,
                }
            }
        });
        let waits = (0..ROUNDS).map(|_| {
            wait_until_pinned(&engine);
            heard.try_iter().for_each(drop);
            heard.recv_timeout(PATIENCE).unwrap()
        });
        let shortest = waits.min();
        drop(heard);
        shortest
    });
    assert!(shortest < Some(HALF_A_WAIT), "{shortest:?}");
}

#[test]
fn a_thread_that_waits_aside_never_holds_the_lease_and_gets_its_requests() {
    let bind = Some("127.0.0.12:0".parse().unwrap());
    let port = PrivatePort::from_name(&format!("aside-{}", std::process::id()));
    let options = Options { bind, ..Options::default() };
    let server = Server::new(&port, ServeOptions::default(), &options).unwrap();
    let address = server.address();
    let engine = engines()
        .engines
        .iter()
        .filter_map(Weak::upgrade)
        .find(|engine| engine.lock().own_address == address)
        .unwrap();
    let index = server.shared().index;
    let waiting = server.clone();
    let answers = std::thread::spawn(move || {
        while let Ok(Some(request)) = waiting.get_request_aside(None) {
            request.reply("answered").unwrap();
        }
    });
    let client = Client::new(&Options::default()).unwrap();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        while !engine.lock().occupant::<Calls>(index).is_awaited() {
            assert!(begin.elapsed() < PATIENCE, "no thread is on the list of those that wait");
            std::thread::yield_now();
        }
        let state = engine.lock();
        assert!(!state.turn.claimed());
        assert!(state.turn.sleeper().is_none_or(|sleeper| sleeper.slot.is_none()));
        drop(state);
        assert_eq!(client.call_within(server.port(), "question", PATIENCE).unwrap(), "answered");
    }
    assert_eq!(server.get_request_aside(Some(Duration::ZERO)).unwrap().map(drop), None);
    server.withdraw();
    answers.join().unwrap();
}
