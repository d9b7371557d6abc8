//! Groups that lose their quorum, and what their applications receive.

use crate::network::*;
use std::time::Duration;
use unisono_core::wire::*;
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

/// A founder and two newcomers of a group that keeps a state; those in `fetched` have it.
fn with_state(fetched: &[usize]) -> Net {
    let mut net = group_with(3, GroupConfig { keeps_state: true, ..GroupConfig::default() }, unicast());
    fetched.iter().for_each(|index| net.group_mut(*index).note_state());
    net
}

#[test]
fn newcomers_halt_until_the_only_member_with_the_state_is_back() {
    let mut net = with_state(&[]);
    net.cut_off(0);
    let are_told = |net: &Net| [1, 2].iter().all(|index| !halts(net, *index).is_empty());
    assert!(net.run_until(MS, 5_000 * MS, are_told), "they were not told");
    assert_eq!(names_missing(&halts(&net, 1)[0]), [uid(0)]);
    net.run(20_000 * MS);
    assert_eq!((net.epoch(1), net.epoch(2)), (0, 0));
    let now = Time::from_nanos(net.now);
    let asked = net.group_mut(1).reset(now, 2);
    assert_eq!(asked, Err(ResetError::Halted { missing: 1 }));
    net.calm();
    net.run(5_000 * MS);
    for index in 0..3 {
        assert_eq!(net.group(index).info().members.len(), 3, "m{index}");
        assert_eq!(net.group(index).standing(), Standing::Primary, "m{index}");
    }
}

#[test]
fn a_newcomer_that_has_fetched_the_state_goes_on_without_the_founder() {
    let mut net = with_state(&[2]);
    net.crash(0);
    let goes_on = |net: &Net| [1, 2].iter().all(|index| net.epoch(*index) == 1);
    assert!(net.run_until(MS, 5_000 * MS, goes_on), "they do not go on");
}

// A member that is too slow votes, but is left out of the next view only if the others have the state too (hazard H29).
#[test]
fn a_slow_member_stays_if_it_alone_has_the_state() {
    for others_have_it in [false, true] {
        let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(500));
        let config =
            GroupConfig { history_messages: 32, slow_member, keeps_state: true, ..GroupConfig::default() };
        let mut net = group_with(4, config, unicast());
        let fetched = if others_have_it { &[2, 3][..] } else { &[2] };
        fetched.iter().for_each(|index| net.group_mut(*index).note_state());
        net.crash(0);
        net.run(3_000 * MS);
        net.asleep[2] = true;
        for n in 0..100_u32 {
            net.send(1, &n.to_be_bytes()).ok();
            net.run(MS);
        }
        net.run(3_000 * MS);
        assert_eq!(net.size(1), if others_have_it { 2 } else { 3 });
        assert!(net.epoch(1) > 1, "there was no other reset");
    }
}

#[test]
fn newcomers_without_the_state_go_on_if_an_operator_vouches_for_the_crash_of_the_rest() {
    let mut net = with_state(&[]);
    net.crash(0);
    let is_halted = |net: &Net| [1, 2].iter().all(|index| net.group(*index).standing() == Standing::Halted);
    assert!(net.run_until(MS, 5_000 * MS, is_halted), "the case was not reached");
    net.run(2_000 * MS);
    force(&mut net, 1, &[0]).unwrap();
    net.run(2_000 * MS);
    assert_eq!((net.epoch(1), net.epoch(2)), (1, 1));
}

fn force(net: &mut Net, index: usize, without: &[usize]) -> Result<(), ForceError> {
    let now = Time::from_nanos(net.now);
    let without: Vec<Uid> = without.iter().map(|index| uid(*index)).collect();
    let forced = net.group_mut(index).force(now, &without);
    net.drain(index);
    forced
}

/// Five members of which the first three crashed; the other two are halted.
fn lost() -> Net {
    let mut net = group_of(5, 1);
    (0..3).for_each(|index| net.crash(index));
    let is_halted = |net: &Net| (3..5).all(|index| net.group(index).standing() == Standing::Halted);
    assert!(net.run_until(MS, 3_000 * MS, is_halted), "the case was not reached");
    net.run(2_000 * MS);
    net
}

#[test]
fn a_forced_reset_goes_on_without_the_named_and_says_so() {
    let mut net = lost();
    force(&mut net, 4, &[0, 1, 2]).unwrap();
    net.run(2_000 * MS);
    for index in 3..5 {
        let forced = net.events[index].iter().find_map(|event| match event {
            Event::Reset { view, excluded, degraded, forced, .. } => {
                Some((view.members.len(), excluded.len(), *degraded, *forced))
            }
            _ => None,
        });
        assert_eq!(forced, Some((2, 3, true, true)), "m{index}");
        assert!(matches!(net.events[index].last(), Some(Event::Resumed)));
    }
    net.send(4, b"on").unwrap();
    net.run(500 * MS);
    assert_eq!((net.delivered(3), net.delivered(4)), (1, 1));
}

#[test]
fn a_force_is_refused_while_a_named_member_answers() {
    let mut net = lost();
    assert_eq!(force(&mut net, 4, &[0, 1, 2, 3]), Err(ForceError::Answers(uid(3))));
    assert_eq!(force(&mut net, 4, &[0, 4]), Err(ForceError::Answers(uid(4))));
    assert_eq!(force(&mut net, 4, &[9]), Err(ForceError::NoSuchMember(uid(9))));
    assert_eq!(force(&mut net, 4, &[]), Err(ForceError::NotHalted));
    net.run(3_000 * MS);
    assert_eq!((net.epoch(3), net.epoch(4)), (0, 0));
}

#[test]
fn a_group_with_a_quorum_is_not_forced() {
    let mut net = group_of(3, 1);
    assert_eq!(force(&mut net, 0, &[2]), Err(ForceError::Answers(uid(2))));
    net.crash(2);
    net.run(3_000 * MS);
    assert_eq!(force(&mut net, 0, &[2]), Err(ForceError::NoSuchMember(uid(2))));
}

#[test]
fn a_member_that_is_neither_named_nor_votes_prevents_a_force() {
    let mut net = lost();
    force(&mut net, 4, &[0, 1]).unwrap();
    net.run(5_000 * MS);
    assert_eq!(net.epoch(4), 0);
    force(&mut net, 4, &[0, 1, 2]).unwrap();
    net.run(2_000 * MS);
    assert_eq!((net.epoch(3), net.epoch(4)), (1, 1));
}

// m0 was only cut off. It hears the forced group again, and learns that it is excluded.
#[test]
fn a_member_that_was_named_and_lives_learns_of_the_forced_reset() {
    let mut net = group_of(3, 1);
    net.cut_off(0);
    net.crash(1);
    assert!(net.run_until(MS, 3_000 * MS, |net| net.group(2).standing() == Standing::Halted));
    net.run(2_000 * MS);
    force(&mut net, 2, &[0, 1]).unwrap();
    assert!(net.run_until(MS, 2_000 * MS, |net| net.epoch(2) == 1), "the force had no effect");
    net.calm();
    net.run(5_000 * MS);
    assert!(matches!(net.phase(0), Phase::Excluded | Phase::Gone), "{:?}", net.phase(0));
}

/// Lets all members of a group crash but the last two. The last one is more patient with coordinators than any reset
/// lasts, so the other one coordinates all ballots. Returns the indices of both.
fn with_a_patient_voter(members: usize, config: GroupConfig) -> (Net, usize, usize) {
    let mut net = group_with(members - 1, config, unicast());
    let patient = net.add(EntryMode::Join, Settings { patience: Duration::from_secs(3), ..unicast() });
    net.run(300 * MS);
    assert_eq!(net.size(patient), members);
    (net, patient - 1, patient)
}

// Each of the coordinator's ballots puts off the voter's own. So the voter counts the members that it heard with each
// promise.
#[test]
fn a_voter_whose_ballot_never_comes_is_told() {
    let (mut net, coordinator, patient) = with_a_patient_voter(5, GroupConfig::default());
    (0..coordinator).for_each(|index| net.crash(index));
    net.run(5_000 * MS);
    for index in [coordinator, patient] {
        assert_eq!(names_missing(&halts(&net, index)[0]), [uid(0), uid(1), uid(2)], "m{index}");
    }
}

// The last join is in the coordinator's log and not in the voter's, which counts the members of a smaller view. It has
// more patience than the coordinator.
#[test]
fn a_voter_that_knows_fewer_members_than_the_coordinator_is_told() {
    let (mut net, coordinator, patient) = with_a_patient_voter(3, GroupConfig::default());
    net.filter(move |seen| if seen.to == patient && seen.has_join() { LOST } else { PROMPT });
    let joiner = net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS, 2_000 * MS, |net| net.size(coordinator) == 4), "the case was not reached");
    [0, joiner].into_iter().for_each(|index| net.crash(index));
    net.run(6_000 * MS);
    assert_eq!(net.size(patient), 3);
    assert_eq!(names_missing(&halts(&net, coordinator)[0]), [uid(0), uid(joiner)]);
    assert_eq!(names_missing(&halts(&net, patient)[0]), [uid(0)]);
    let now = Time::from_nanos(net.now);
    assert_eq!(net.group_mut(patient).reset(now, 2), Err(ResetError::Halted { missing: 1 }));
}

/// *At least 2*. The last three of four members have prepared a proposal that names them all, and m1 dies before any of
/// them learns that.
fn bound_to_a_dead_member() -> (Net, usize, usize) {
    let config = GroupConfig { quorum: Quorum::AtLeast(2), ..GroupConfig::default() };
    let (mut net, coordinator, patient) = with_a_patient_voter(4, config);
    net.filter(|seen| if seen.has(|frame| matches!(frame, Frame::Prepared { .. })) { LOST } else { PROMPT });
    net.crash(0);
    let prepared = |net: &Net| (1..4).all(|index| net.group(index).marks().prepared.is_some());
    assert!(net.run_until(MS, 2_000 * MS, prepared), "the case was not reached");
    net.crash(1);
    net.calm();
    (net, coordinator, patient)
}

// The survivors are as many as the policy asks for, and still cannot go on: every ballot adopts the proposal.
#[test]
fn a_voter_is_told_that_its_proposal_names_a_dead_member() {
    let (mut net, coordinator, patient) = bound_to_a_dead_member();
    net.run(5_000 * MS);
    for index in [coordinator, patient] {
        assert_eq!(names_missing(&halts(&net, index)[0]), [uid(0), uid(1)], "m{index}");
        assert_eq!(net.epoch(index), 0, "m{index}");
        let now = Time::from_nanos(net.now);
        assert_eq!(net.group_mut(index).reset(now, 2), Err(ResetError::Halted { missing: 2 }), "m{index}");
    }
}

// The patient member is the one that is asked. The other one's ballots must not keep it from its own.
#[test]
fn a_patient_member_forces_although_others_outbid_it() {
    let (mut net, coordinator, patient) = bound_to_a_dead_member();
    net.run(5_000 * MS);
    force(&mut net, patient, &[0, 1]).unwrap();
    net.run(8_000 * MS);
    assert_eq!((net.size(coordinator), net.size(patient)), (2, 2));
}

// A named member is heard again before the reset is decided, which drops the request.
#[test]
fn a_named_member_that_is_heard_again_ends_the_request() {
    let mut net = group_of(3, 1);
    net.cut_off(0);
    net.crash(1);
    net.run(5_000 * MS);
    net.calm();
    net.run(100 * MS);
    let _ = force(&mut net, 2, &[0, 1]);
    net.run(2_000 * MS);
    assert_eq!((net.epoch(0), net.size(0), net.size(2)), (1, 2, 2));
    assert!(net.events[2].iter().all(|event| !matches!(event, Event::Reset { forced: true, .. })));
}

// A process outside of the group asks. A recorded request begins nothing when it comes again.
#[test]
fn a_request_to_force_is_taken_once_and_only_with_a_fresh_challenge() {
    let mut net = lost();
    let tag = net.group(4).tag();
    let (nonce, without) = (7, vec![uid(0), uid(1), uid(2)]);
    let ask = |challenge, number| {
        let frame = Frame::Force { nonce, challenge, without: without.clone() };
        forge(tag, EpochTag::OUTSIDE, Uid(99), number, &[frame])
    };
    let request = asks_from_outside(&mut net, 4, |frame| match frame {
        Frame::Forcing { answer, .. } => Some(*answer),
        _ => None,
    });
    let Some(Forcing::Challenge(first)) = request(&mut net, &ask(0, 1)) else { panic!("no challenge") };
    // Another challenge was drawn since, or none, or it is too late.
    assert!(matches!(request(&mut net, &ask(first ^ 2, 2)), Some(Forcing::Challenge(_))));
    assert!(matches!(request(&mut net, &ask(first, 3)), Some(Forcing::Challenge(_))));
    let Some(Forcing::Challenge(late)) = request(&mut net, &ask(0, 4)) else { panic!("no challenge") };
    net.run(6_000 * MS);
    assert!(matches!(request(&mut net, &ask(late, 5)), Some(Forcing::Challenge(_))));
    let Some(Forcing::Challenge(fresh)) = request(&mut net, &ask(0, 6)) else { panic!("no challenge") };
    let good = ask(fresh, 7);
    assert_eq!(request(&mut net, &good), Some(Forcing::Begun));
    assert!(matches!(request(&mut net, &good), Some(Forcing::Challenge(_))));
    net.run(2_000 * MS);
    assert_eq!((net.epoch(3), net.epoch(4)), (1, 1));
}
