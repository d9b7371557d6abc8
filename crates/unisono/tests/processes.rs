//! Members that are processes, and what becomes of the others when one is killed.
//!
//! The processes are this test again, told by their environment to be a member instead.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use unisono::{Ended, Event, Group, GroupConfig, LeaveFailure, Options, Phase, SendError, SendFailure, Uid};

const PATIENCE: Duration = Duration::from_secs(20);
const GROUP: &str = "UNISONO_TEST_GROUP";

/// A member process: sends for ever, until it is killed.
#[test]
fn member() {
    let Ok(name) = std::env::var(GROUP) else { return };
    let group = Group::join_or_create(&name, GroupConfig::default(), "", &Options::default()).unwrap();
    group.ignore_events();
    for count in 0u64.. {
        if group.send(count.to_string()).is_err() {
            return;
        }
    }
}

/// A child that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(name: &str) -> Killed {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "member", "--nocapture"])
        .env(GROUP, name)
        .stdout(Stdio::null())
        .spawn();
    Killed(child.unwrap())
}

/// Events until one of them is what is looked for, all of them kept.
fn until<T>(group: &Group, log: &mut Vec<Event>, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(event) = group.receive_timeout(PATIENCE).unwrap() {
            let found = wanted(&event);
            log.push(event);
            if let Some(found) = found {
                return found;
            }
        }
    }
    panic!("what was waited for did not happen; {:?}", group.info());
}

#[test]
fn a_killed_member_is_excluded_and_the_others_go_on_alike() {
    let name = format!("killed-{}", std::process::id());
    let groups: Vec<Group> = (0..3)
        .map(|_| Group::join_or_create(&name, GroupConfig::default(), "", &Options::default()).unwrap())
        .collect();
    let mut child = spawn(&name);
    let mut logs = vec![Vec::new(); 3];
    let mut victim: Option<Uid> = None;
    for (group, log) in groups.iter().zip(&mut logs) {
        let sender = until(group, log, |event| match event {
            Event::Message { sender, payload, .. } if payload == "100" => Some(*sender),
            _ => None,
        });
        assert!(victim.is_none_or(|victim| victim == sender));
        victim = Some(sender);
    }
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    for (group, log) in groups.iter().zip(&mut logs) {
        let (excluded, degraded, members) = until(group, log, |event| match event {
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
        until(group, log, |event| {
            matches!(event, Event::Message { payload, .. } if payload == "we go on").then_some(())
        });
    }
    // All have the same events from where the last of them came in.
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
fn the_orderer_killed_is_survived_too() {
    let name = format!("orderer-{}", std::process::id());
    let founder = Group::create(&name, GroupConfig::default(), &Options::default()).unwrap();
    let second = Group::join(&name, "", &Options::default()).unwrap();
    let mut child = spawn(&name);
    let mut log = Vec::new();
    let victim = until(&founder, &mut log, |event| match event {
        Event::Message { sender, .. } => Some(*sender),
        _ => None,
    });
    second.ignore_events();
    founder.hand_over(victim).unwrap();
    let named = until(&founder, &mut log, |event| match event {
        Event::HandedOver { orderer, .. } => Some(*orderer),
        _ => None,
    });
    assert_eq!(named, victim);
    // It orders: only then is it killed.
    second.send("by the new orderer").unwrap();
    child.0.kill().unwrap();
    let begin = Instant::now();
    let place = loop {
        match second.send("after the crash") {
            Ok(place) => break place,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
    };
    let (degraded, orderer) = until(&founder, &mut log, |event| match event {
        Event::Reset { degraded, view, .. } => Some((*degraded, view.orderer)),
        _ => None,
    });
    assert!(!degraded && orderer != victim);
    let survivor = until(&founder, &mut log, |event| match event {
        Event::Message { seqno, payload, .. } if *seqno == place => Some(payload.clone()),
        _ => None,
    });
    assert_eq!(survivor, "after the crash");
}

#[test]
fn whoever_cannot_be_let_go_is_out_all_the_same() {
    let name = format!("alone-{}", std::process::id());
    let mut founder = spawn(&name);
    let group = Group::join(&name, "", &Options::default()).unwrap();
    assert_eq!(group.members().len(), 2);
    // A group of two does not outlive its first member.
    founder.0.kill().unwrap();
    founder.0.wait().unwrap();
    let begin = Instant::now();
    while group.info().phase != Phase::Resetting {
        group.receive_timeout(Duration::from_millis(5)).unwrap();
        assert!(begin.elapsed() < PATIENCE, "{:?}", group.info());
    }
    let before = group.info();
    assert_eq!(group.try_submit("in the middle of a reset").map(drop), Err(SendError::Resetting));
    assert_eq!(group.info(), before);
    // Who can wait does: until the reset is over, or the member is.
    let waiting = group.clone();
    let sender = std::thread::spawn(move || waiting.send("afterwards"));
    let begin = Instant::now();
    assert_eq!(group.leave("nobody hears this"), Err(LeaveFailure::Unconfirmed));
    assert!(begin.elapsed() < PATIENCE);
    let end = loop {
        match group.receive() {
            Ok(_) => {}
            Err(ended) => break ended,
        }
    };
    assert_eq!(end, Ended::Left);
    assert_eq!(sender.join().unwrap(), Err(SendFailure::Refused(SendError::Left)));
}
