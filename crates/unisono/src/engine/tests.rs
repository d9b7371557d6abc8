//! Threads that wait, one of which is pinned, and what wakes them.

use super::entering::engines;
use super::lease::LISTENERS;
use super::*;
use crate::{Event, Group, GroupConfig, Options};
use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::{Weak, mpsc};
use unisono_core::Phase;
use unisono_udp::Socket;

const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(60);
/// Half of the time after which whoever waits in a receive is up by itself.
const HALF_A_WAIT: Duration = Duration::from_millis(10);
const ROUNDS: usize = 10;

/// A member alone in its group, and its engine.
pub(super) fn alone(what: &str) -> (Group, Arc<Engine>) {
    alone_at(what, Options::default())
}

fn alone_at(what: &str, options: Options) -> (Group, Arc<Engine>) {
    let name = format!("{what}-{}", std::process::id());
    let group = Group::create(&name, GroupConfig::default(), &options).unwrap();
    let address = group.members()[0].address;
    let engine = engines().iter().filter_map(Weak::upgrade).find(|engine| engine.address == address);
    (group, engine.unwrap())
}

/// Returns when a thread sleeps that is pinned: what comes, and means nothing, comes from one socket.
fn pinned(engine: &Engine) {
    pin_to(engine, engine.address);
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
        assert!(begin.elapsed() < PATIENCE, "it does not pinned");
        socket.send(b"nothing", 7, &[address]);
    }
}

/// Returns when a thread of the application sleeps on the I/O lease, and is not pinned.
fn sits(engine: &Engine) -> MutexGuard<'_, State> {
    let begin = Instant::now();
    loop {
        let state = engine.lock();
        if state.turn.sleeper().is_some_and(|sleeper| sleeper.slot.is_some() && !sleeper.is_pinned()) {
            return state;
        }
        drop(state);
        assert!(begin.elapsed() < PATIENCE, "nobody sits");
        std::thread::yield_now();
    }
}

#[test]
fn who_is_abandoned_and_alone_is_out_at_once() {
    let (group, _engine) = alone("abandoned");
    group.shared().abandon();
    assert_eq!(group.shared().with(|member, _| member.phase()), Phase::Gone);
}

#[test]
fn an_engine_is_undisturbed_while_nobody_sits_or_waits_or_has_to_be_served() {
    let (group, engine) = alone("undisturbed");
    let begin = Instant::now();
    let (mut state, at) = loop {
        group.try_receive().unwrap();
        let state = engine.lock();
        match state.undisturbed_since() {
            Some(at) => break (state, at),
            // The background thread was faster.
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
    state.turn.leave(now, lease);
}

#[test]
fn events_are_lacking_when_there_is_none_and_more_may_come() {
    let (group, _engine) = alone("lacking");
    let lacks = || group.shared().with(|member, _| member.lacks_events());
    assert_eq!(lacks(), None, "it was looked whether it has entered");
    group.receive().unwrap();
    assert_eq!(lacks(), Some(Interest::Event));
    group.send("in the core").unwrap();
    assert_eq!(lacks(), None);
    group.receive().unwrap();
    assert_eq!(lacks(), Some(Interest::Event));
    group.leave("").unwrap();
    while group.receive().is_ok() {}
    assert_eq!(lacks(), None, "that was the end of them");
}

#[test]
fn nobody_comes_to_an_engine_between_its_end_and_that_of_its_sockets() {
    let (group, engine) = alone("ending");
    let entrance = engines();
    drop(group);
    let begin = Instant::now();
    loop {
        let state = engine.lock();
        assert!(!state.closed, "others could come, and find its address taken");
        // The background thread is up to end it.
        if state.is_empty() && state.turn.background_sits() && state.turn.sleeper().is_none() {
            break;
        }
        drop(state);
        assert!(begin.elapsed() < PATIENCE, "it does not end");
        std::thread::yield_now();
    }
    drop(entrance);
}

#[test]
fn a_wakeup_that_another_thread_silences_is_rung_again() {
    let (group, engine) = alone("wakeup-silenced");
    std::thread::scope(|scope| {
        let receiver = group.clone();
        scope.spawn(move || while receiver.receive().is_ok() {});
        let mut state = sits(&engine);
        let now = engine.now();
        state.turn.call();
        engine.call(&mut state, now);
        assert!(state.rung);
        // As the background thread does if it looked while somebody else was pinned, and is late.
        engine.note_woken(&mut state, Woken { rang: true, alarmed: false });
        assert!(!state.rung);
        engine.call(&mut state, now);
        assert!(state.rung);
        drop(state);
        group.leave("").unwrap();
    });
}

/// Another group in the engine of a first one, and the socket that listens for it alone: groups share addresses.
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
        // The background thread is to have waited for it too.
        while !engine.lock().turn.background_sits() && begin.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let receiver = first.clone();
        scope.spawn(move || while receiver.receive().is_ok() {});
        drop(sits(&engine));
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
fn one_that_waits_in_a_socket_is_woken_when_that_goes() {
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
fn what_another_thread_does_is_seen_by_one_that_waits_in_a_socket() {
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
            pinned(&engine);
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
fn one_that_waits_in_a_socket_for_a_while_waits_no_longer() {
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
            pinned(&engine);
            heard.try_iter().for_each(drop);
            heard.recv_timeout(PATIENCE).unwrap()
        });
        let shortest = waits.min();
        drop(heard);
        shortest
    });
    assert!(shortest < Some(HALF_A_WAIT), "{shortest:?}");
}
