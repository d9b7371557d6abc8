//! Members that are processes, and what becomes of the others when one is killed.
//!
//! The processes are this test program again. Their environment makes them members.

mod common;

use common::{PATIENCE, fresh_name, until, until_so, watchful};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use unisono::{Ended, Event, Group, GroupConfig, LeaveFailure, Phase, Quorum, SendError, SendFailure, Uid};

const GROUP: &str = "UNISONO_TEST_GROUP";
const FOUNDS: &str = "UNISONO_TEST_FOUNDS";

/// A member process: sends until it is killed.
#[test]
fn member() {
    let Ok(name) = std::env::var(GROUP) else { return };
    let group = match std::env::var_os(FOUNDS) {
        Some(_) => Group::create(&name, GroupConfig::default(), &watchful()).unwrap(),
        None => Group::join(&name, "", &watchful()).unwrap(),
    };
    group.ignore_events();
    for count in 0u64.. {
        if group.send(count.to_string()).is_err() {
            return;
        }
    }
}

/// A child process that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Killed {
    /// Starts a member process that joins the group.
    fn joining(name: &str) -> Killed {
        Killed::spawn(Killed::member(name))
    }

    /// Starts a member process that founds it.
    fn founding(name: &str) -> Killed {
        let mut member = Killed::member(name);
        member.env(FOUNDS, "1");
        Killed::spawn(member)
    }

    fn member(name: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "member", "--nocapture"]).env(GROUP, name).stdout(Stdio::null());
        command
    }

    fn spawn(mut command: Command) -> Killed {
        Killed(command.spawn().unwrap())
    }

    /// Kills the process, and waits until it is dead.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Receives events until `wanted` finds its own, and keeps all of them.
fn logged<T>(group: &Group, log: &mut Vec<Event>, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
    until(group, |event| {
        log.push(event.clone());
        wanted(event)
    })
}

#[test]
fn a_killed_member_is_excluded_and_the_others_go_on_alike() {
    let name = fresh_name("killed");
    // None of the three survivors is left out because it is late.
    let config = GroupConfig { quorum: Quorum::AtLeast(3), ..GroupConfig::default() };
    let first = Group::create(&name, config, &watchful()).unwrap();
    let rest = (0..2).map(|_| Group::join(&name, "", &watchful()).unwrap());
    let groups: Vec<Group> = std::iter::once(first).chain(rest).collect();
    let mut child = Killed::joining(&name);
    let mut logs = vec![Vec::new(); 3];
    let mut victim: Option<Uid> = None;
    for (group, log) in groups.iter().zip(&mut logs) {
        let sender = logged(group, log, |event| match event {
            Event::Message { sender, payload, .. } if payload == "100" => Some(*sender),
            _ => None,
        });
        assert!(victim.is_none_or(|victim| victim == sender));
        victim = Some(sender);
    }
    child.kill();
    for (group, log) in groups.iter().zip(&mut logs) {
        let (excluded, degraded, members) = logged(group, log, |event| match event {
            Event::Reset { excluded, degraded, view, .. } => {
                Some((excluded.clone(), *degraded, view.members.len()))
            }
            _ => None,
        });
        assert_eq!(excluded.iter().map(|member| Some(member.uid)).collect::<Vec<_>>(), [victim]);
        assert_eq!((degraded, members), (false, 3));
    }
    groups[1].send("we go on").unwrap();
    for (group, log) in groups.iter().zip(&mut logs) {
        logged(group, log, |event| {
            matches!(event, Event::Message { payload, .. } if payload == "we go on").then_some(())
        });
    }
    // All have the same events after the last of them entered.
    let tails: Vec<_> = logs
        .iter()
        .map(|log| {
            let from = log.iter().position(|event| matches!(event, Event::Message { .. })).unwrap();
            &log[from..]
        })
        .collect();
    assert_eq!(tails[0], tails[1]);
    assert_eq!(tails[0], tails[2]);
}

#[test]
fn the_sequencer_killed_is_survived_too() {
    let name = fresh_name("sequencer");
    let founder = Group::create(&name, GroupConfig::default(), &watchful()).unwrap();
    let second = Group::join(&name, "", &watchful()).unwrap();
    let mut child = Killed::joining(&name);
    let victim = until(&founder, |event| match event {
        Event::Message { sender, .. } => Some(*sender),
        _ => None,
    });
    second.ignore_events();
    founder.hand_over(victim).unwrap();
    let named = until(&founder, |event| match event {
        Event::HandedOver { sequencer, .. } => Some(*sequencer),
        _ => None,
    });
    assert_eq!(named, victim);
    // It is killed only after it has ordered a message.
    second.send("by the new sequencer").unwrap();
    child.kill();
    let begin = Instant::now();
    let expected = loop {
        match second.send("after the crash") {
            Ok(seqno) => break seqno,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
    };
    let (degraded, sequencer) = until(&founder, |event| match event {
        Event::Reset { degraded, view, .. } => Some((*degraded, view.sequencer)),
        _ => None,
    });
    assert!(!degraded && sequencer != victim);
    let survivor = until(&founder, |event| match event {
        Event::Message { seqno, payload, .. } if *seqno == expected => Some(payload.clone()),
        _ => None,
    });
    assert_eq!(survivor, "after the crash");
}

#[test]
fn a_leaver_that_no_member_can_confirm_is_out_all_the_same() {
    let name = fresh_name("alone");
    let mut founder = Killed::founding(&name);
    let group = Group::join(&name, "", &watchful()).unwrap();
    assert_eq!(group.members().len(), 2);
    // A group of two does not outlive its first member.
    founder.kill();
    until_so(&group, |group| group.info().phase == Phase::Resetting);
    let before = group.info();
    assert_eq!(group.try_submit("in the middle of a reset").map(drop), Err(SendError::Resetting));
    assert_eq!(group.info(), before);
    // A blocking send waits until the reset is over, or until the member has left.
    let waiting = group.clone();
    let sender = std::thread::spawn(move || waiting.send("afterwards"));
    assert_eq!(group.leave("no member receives this"), Err(LeaveFailure::Unconfirmed));
    let end = loop {
        match group.receive() {
            Ok(_) => {}
            Err(ended) => break ended,
        }
    };
    assert_eq!(end, Ended::Left);
    assert_eq!(sender.join().unwrap(), Err(SendFailure::Refused(SendError::Left)));
}
