//! Groups that lose their quorum, and what their applications receive.

use crate::network::*;
use std::time::Duration;
use unisono_core::*;

fn halts(net: &Net, index: usize) -> Vec<Event> {
    let is_halt = |event: &&Event| matches!(event, Event::Halted { .. } | Event::Resumed);
    net.events[index].iter().filter(is_halt).cloned().collect()
}

fn names_missing(event: &Event) -> Vec<Uid> {
    let Event::Halted { missing } = event else { panic!("{event:?}") };
    missing.iter().map(|member| member.uid).collect()
}

#[test]
fn a_survivor_without_a_quorum_is_told_once_who_is_missing() {
    let mut net = group_of(3, 1);
    net.crash(0);
    net.crash(2);
    assert!(net.run_until(MS, 1_500 * MS, |net| !halts(net, 1).is_empty()), "it was not told");
    assert_eq!(names_missing(&halts(&net, 1)[0]), [uid(0), uid(2)]);
    assert_eq!(net.group(1).standing(), Standing::Halted);
    net.run(60_000 * MS);
    assert_eq!(halts(&net, 1).len(), 1);
    let now = Time::from_nanos(net.now);
    let asked = net.members[1].as_mut().unwrap().reset(now, 1);
    assert_eq!(asked, Err(ResetError::Halted { missing: 2 }));
}

#[test]
fn two_halves_are_told_and_go_on_after_the_reset() {
    let mut net = group_with(4, GroupConfig { quorum: Quorum::All, ..GroupConfig::default() }, unicast());
    net.filter(|seen| if (seen.from < 2) == (seen.to < 2) { PROMPT } else { LOST });
    let is_told = |net: &Net| (0..4).all(|index| halts(net, index).len() == 1);
    assert!(net.run_until(MS, 2_000 * MS, is_told), "not all were told");
    net.calm();
    net.run(3_000 * MS);
    for index in 0..4 {
        let tail: Vec<&Event> = net.events[index].iter().rev().take(2).collect();
        assert!(matches!(tail[..], [Event::Resumed, Event::Reset { .. }]), "m{index}: {tail:?}");
        assert_eq!(net.group(index).standing(), Standing::Primary);
        assert_eq!(halts(&net, index).len(), 2);
    }
}

#[test]
fn with_the_manual_policy_it_is_told_when_a_reset_was_asked_for() {
    let config = GroupConfig { automatic: false, ..GroupConfig::default() };
    let mut net = group_with(3, config, Settings { silence: Duration::from_millis(100), ..unicast() });
    net.crash(0);
    net.crash(2);
    net.run(3_000 * MS);
    assert!(net.events[1].iter().any(|event| matches!(event, Event::Suspected { .. })));
    assert_eq!(halts(&net, 1), []);
    let now = Time::from_nanos(net.now);
    let _ = net.members[1].as_mut().unwrap().reset(now, 1);
    net.run(2_000 * MS);
    assert_eq!(halts(&net, 1).len(), 1);
}
