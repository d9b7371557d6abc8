//! A forked child that uses its parent's handles and exits gets errors, and no member notices.

mod common;

use common::{PATIENCE, block_on, fresh_name, options, until};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use unisono::rpc::{CallFailure, Client, NotSent, Port, PrivatePort, ServeOptions, Server};
use unisono::{
    AsyncGroup, Ended, Event, Group, GroupConfig, HandOverError, LeaveFailure, OpenError, ResetError,
    SendError, SendFailure,
};

const REFUSED: SendFailure = SendFailure::Refused(SendError::Forked);

/// Runs these checks in a child that exits without running destructors. Returns the number of the first check that
/// fails, counted from 1, or 0.
fn in_child(checks: &[&dyn Fn() -> bool]) -> i32 {
    copied().unwrap_or_else(|| {
        let failed = checks.iter().position(|check| !check());
        // SAFETY: `_exit` has no preconditions; it ends this process at once.
        unsafe { nix::libc::_exit(failed.map_or(0, |place| place as i32 + 1)) }
    })
}

/// Runs a check as in [`in_child`], in a child that is number 1 of a PID namespace of its own. Returns `None` without the right
/// to make one.
fn in_namespace(check: &dyn Fn() -> bool) -> Option<i32> {
    let flags = nix::libc::c_long::from(nix::libc::CLONE_NEWPID | nix::libc::SIGCHLD);
    // SAFETY: without CLONE_VM this makes a copy of the process, as `fork` does. The child takes no lock that another thread of
    // the parent may hold.
    match unsafe { nix::libc::syscall(nix::libc::SYS_clone, flags, 0, 0, 0, 0) } {
        -1 => None,
        // SAFETY: `_exit` has no preconditions.
        0 => unsafe { nix::libc::_exit(i32::from(!check())) },
        child => match waitpid(nix::unistd::Pid::from_raw(child as i32), None).unwrap() {
            WaitStatus::Exited(_, status) => Some(status),
            other => panic!("{other:?}"),
        },
    }
}

/// Forks. In the parent it waits for the child and returns its exit status; in the child it returns `None`.
fn copied() -> Option<i32> {
    // SAFETY: the child takes no lock that another thread of the parent may hold, except those that this test is about.
    let ForkResult::Parent { child } = unsafe { fork() }.unwrap() else { return None };
    let begin = Instant::now();
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap() {
            WaitStatus::Exited(_, status) => return Some(status),
            WaitStatus::StillAlive if begin.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(1)),
            other => {
                // SAFETY: the pid is of a child of this test that was not reaped yet.
                unsafe { nix::libc::kill(child.as_raw(), nix::libc::SIGKILL) };
                panic!("the child does not end: {other:?}");
            }
        }
    }
}

// One test only, so that no other test's threads hold a lock at the fork.
#[test]
fn a_forked_child_gets_errors_and_changes_nothing() {
    let name = fresh_name("fork");
    let first = Group::create(&name, GroupConfig::default(), &options()).unwrap();
    let second = Group::join(&name, "", &options()).unwrap();
    let third = block_on(AsyncGroup::join(&name, "", &options())).unwrap();
    third.ignore_events();
    // At the fork an event is ready at each member.
    let ticket = first.submit("before").unwrap();
    second.send("before, too").unwrap();
    let private = PrivatePort::from_name(&name);
    let server = Server::new(&private, ServeOptions::default(), &options()).unwrap();
    let client = Client::new(&options()).unwrap();
    let me = first.info().me;
    let ticket = std::cell::Cell::new(Some(ticket));
    let failed = in_child(&[
        &|| first.send("child") == Err(REFUSED),
        &|| second.send("child") == Err(REFUSED),
        &|| second.submit("child").map(drop) == Err(SendError::Forked),
        &|| second.try_submit("child").map(drop) == Err(SendError::Forked),
        &|| second.submit_all(["child"]).map(drop).map_err(|(_, error)| error) == Err(SendError::Forked),
        &|| first.receive() == Err(Ended::Forked),
        &|| second.try_receive() == Err(Ended::Forked),
        &|| second.receive_many(&mut Vec::new()) == Err(Ended::Forked),
        &|| first.reset(1) == Err(ResetError::Forked),
        &|| first.hand_over(me) == Err(HandOverError::Forked),
        &|| second.leave("child") == Err(LeaveFailure::Forked),
        &|| ticket.take().unwrap().wait() == Err(SendFailure::Unknown),
        &|| first.info().members.len() == 3,
        &|| block_on(third.send("child")) == Err(REFUSED),
        &|| third.try_submit("child").map(drop) == Err(SendError::Forked),
        &|| third.try_receive() == Err(Ended::Forked),
        &|| block_on(third.receive_many(&mut Vec::new())) == Err(Ended::Forked),
        &|| client.call(Port::from_name(&name), "child") == Err(CallFailure::NotSent(NotSent::Forked)),
        &|| server.get_request().is_err(),
        &|| matches!(Client::beside(&first), Err(OpenError::Forked)),
        &|| matches!(Client::beside(&third), Err(OpenError::Forked)),
        // A group that the child founds itself works.
        &|| {
            let own = Group::create(&fresh_name("child"), GroupConfig::default(), &options()).unwrap();
            own.send("mine").is_ok()
        },
    ]);
    assert_eq!(failed, 0, "number of the failed check");
    // The child's exit is no leave, even if it drops the handles.
    let Some(status) = copied() else {
        drop((first, second, third, server, client));
        std::process::exit(7);
    };
    assert_eq!(status, 7);
    // At the fork another thread of the parent may hold the lock; the child does not have that thread to release it.
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                second.info();
            }
        });
        for _ in 0..30 {
            let failed = in_child(&[&|| second.send("child") == Err(REFUSED), &|| {
                second.try_receive() == Err(Ended::Forked)
            }]);
            assert_eq!(failed, 0);
        }
        over.store(true, Ordering::Relaxed);
    });
    // At the fork another thread of the parent may be opening a group.
    let over = AtomicBool::new(false);
    let open = |what| Group::create(&fresh_name(what), GroupConfig::default(), &options());
    thread::scope(|scope| {
        scope.spawn(|| {
            // It ends too if a child hangs.
            let begin = Instant::now();
            while !over.load(Ordering::Relaxed) && begin.elapsed() < PATIENCE {
                drop(open("parent").unwrap());
            }
        });
        for _ in 0..30 {
            let failed = in_child(&[&|| open("child").is_ok_and(|own| own.send("mine").is_ok())]);
            assert_eq!(failed, 0);
        }
        over.store(true, Ordering::Relaxed);
    });
    // A child may have the number of its parent: here both are number 1 of their PID namespaces.
    let nested = in_namespace(&|| {
        let own = Group::create(&fresh_name("nested"), GroupConfig::default(), &options()).unwrap();
        own.send("mine").unwrap();
        let refused = in_namespace(&|| std::process::id() == 1 && own.send("child") == Err(REFUSED));
        std::process::id() == 1 && refused == Some(0) && own.send("mine, too").is_ok()
    });
    match nested {
        Some(status) => assert_eq!(status, 0),
        None => {
            let _ = writeln!(std::io::stderr(), "skipped: no right to make PID namespaces");
        }
    }
    // No member has noticed: all are members, and no packet number was used twice.
    second.send("after").unwrap();
    for group in [&first, &second] {
        let mut messages = Vec::new();
        until(group, |event| {
            match event {
                Event::Message { payload, .. } => messages.push(payload.clone()),
                Event::Joined { .. } | Event::Entered { .. } => {}
                other => panic!("{other:?}"),
            }
            messages.last().is_some_and(|last| last == "after").then_some(())
        });
        assert_eq!(messages, ["before", "before, too", "after"]);
        assert_eq!(group.members().len(), 3);
        let counters = group.counters();
        assert_eq!((counters.replayed, counters.suspicions), (0, 0));
    }
    assert_eq!(third.counters().replayed, 0);
}
