//! Members that ask for a floor: the smallest view that they let a reset go on with.

use crate::network::*;
use bytes::Bytes;
use std::time::Duration;
use unisono_core::wire::Checksum;
use unisono_core::*;

fn asking(floor: Floor) -> Settings {
    Settings { floor, ..unicast() }
}

/// A group whose members ask for these floors, and joined in this order.
fn group_asking(config: &GroupConfig, floors: &[Floor]) -> Net {
    let mut net = Net::new();
    for (index, floor) in floors.iter().enumerate() {
        let entry = if index == 0 { EntryMode::Found(config.clone()) } else { EntryMode::Join };
        net.add(entry, asking(*floor));
        assert!(net.run_until(MS, 5_000 * MS, |net| net.phase(index) == Phase::Member), "m{index} joins");
    }
    net.run(500 * MS);
    net
}

fn is_halted(net: &Net, index: usize) -> bool {
    net.group(index).standing() == Standing::Halted
}

fn goes_on_with(net: &mut Net, members: usize, index: usize) -> bool {
    net.run_until(MS, 5_000 * MS, |net| {
        net.size(index) == members && net.group(index).standing() == Standing::Primary
    })
}

const NONE: Floor = Floor::None;

#[test]
fn a_group_goes_on_with_as_many_as_one_member_asks_for() {
    let mut net = group_asking(&GroupConfig::default(), &[NONE, Floor::AtLeast(4), NONE, NONE, NONE]);
    net.crash(4);
    assert!(goes_on_with(&mut net, 4, 0), "four of five are as many as were asked for");
    net.cut_off(3);
    assert!(net.run_until(MS, 5_000 * MS, |net| (0..3).all(|index| is_halted(net, index))), "they are told");
    let missing: Vec<Uid> = net.group(0).missing().iter().map(|member| member.uid).collect();
    assert_eq!(missing, [uid(3)]);
    net.run(20_000 * MS);
    assert_eq!(net.epoch(0), 1, "no reset ends below the floor");
    let now = Time::from_nanos(net.now);
    assert_eq!(net.group_mut(2).reset(now, 1), Err(ResetError::Halted { missing: 1 }));
    net.calm();
    assert!(goes_on_with(&mut net, 4, 0), "the fourth is back");
    // The floor goes with its member.
    net.leave(1);
    assert!(goes_on_with(&mut net, 3, 0));
    net.crash(3);
    assert!(goes_on_with(&mut net, 2, 0), "two of three are a quorum, and none asks for more");
}

#[test]
fn a_halted_group_lacks_no_member_that_answers_again() {
    let mut net = group_asking(&GroupConfig::default(), &[Floor::AtLeast(3), NONE, NONE]);
    net.crash(2);
    net.cut_off(1);
    assert!(net.run_until(MS, 5_000 * MS, |net| is_halted(net, 0)), "it is told");
    let missing = |net: &Net| net.group(0).missing().iter().map(|member| member.uid).collect::<Vec<_>>();
    assert_eq!(missing(&net), [uid(1), uid(2)]);
    net.calm();
    assert!(net.run_until(MS, 10_000 * MS, |net| missing(net) == [uid(2)]), "{:?}", missing(&net));
}

// The floor of a member that does not answer holds too: otherwise a member could be left out against what it asked for.
#[test]
fn the_floor_of_a_missing_member_holds() {
    let mut net = group_asking(&GroupConfig::default(), &[NONE, NONE, Floor::All]);
    net.crash(2);
    net.run(20_000 * MS);
    assert!(is_halted(&net, 0) && is_halted(&net, 1));
    assert_eq!((net.epoch(0), net.epoch(1)), (0, 0));
}

// The coordinator may be a member that asks for nothing, and a reset must not forget what the others ask for.
#[test]
fn a_floor_holds_after_a_reset_and_for_later_joiners() {
    let mut net = group_asking(&GroupConfig::default(), &[NONE, NONE, Floor::AtLeast(3), NONE]);
    net.crash(0);
    assert!(goes_on_with(&mut net, 3, 1));
    net.add(EntryMode::Join, unicast());
    assert!(goes_on_with(&mut net, 4, 4));
    let told: Vec<Floor> = net.group(4).info().members.iter().map(|member| member.floor).collect();
    assert_eq!(told, [NONE, Floor::AtLeast(3), NONE, NONE]);
    net.crash(1);
    assert!(goes_on_with(&mut net, 3, 4));
    net.crash(3);
    net.run(10_000 * MS);
    assert!(is_halted(&net, 4), "two of three are a quorum, and fewer than one asks for");
}

#[test]
fn a_number_above_the_view_stands_for_all_of_it() {
    let mut net = group_asking(&GroupConfig::default(), &[Floor::AtLeast(3), NONE]);
    net.crash(1);
    net.run(5_000 * MS);
    assert!(is_halted(&net, 0));
    let mut net = group_asking(&GroupConfig::default(), &[Floor::AtLeast(3), NONE, NONE, NONE]);
    net.crash(3);
    assert!(goes_on_with(&mut net, 3, 0));
}

// Half of a view with its first member is a quorum, and no majority.
#[test]
fn a_majority_is_more_than_half() {
    for (floor, goes_on) in [(NONE, true), (Floor::Majority, false)] {
        let mut net = group_asking(&GroupConfig::default(), &[NONE, floor, NONE, NONE]);
        net.crash(2);
        net.crash(3);
        assert_eq!(goes_on_with(&mut net, 2, 0), goes_on, "{floor}");
    }
}

#[test]
fn a_formation_carries_floors() {
    let mut net = Net::new();
    let participants: Vec<Name> = ["m0", "m1", "m2"].iter().map(|text| name(text)).collect();
    for floor in [NONE, Floor::All, NONE] {
        let formation = Formation { at_least: 3, ..Formation::majority_of(participants.clone()) };
        net.add(EntryMode::Form(formation, GroupConfig::default()), asking(floor));
    }
    assert!(net.run_until(MS, 5_000 * MS, |net| (0..3).all(|index| net.phase(index) == Phase::Member)));
    net.run(500 * MS);
    net.crash(2);
    net.run(5_000 * MS);
    assert!(is_halted(&net, 0) && is_halted(&net, 1));
}

#[test]
fn an_operator_overrides_a_floor() {
    let mut net = group_asking(&GroupConfig::default(), &[NONE, Floor::All, NONE]);
    net.crash(2);
    net.run(5_000 * MS);
    let now = Time::from_nanos(net.now);
    net.group_mut(0).force(now, &[uid(2)]).unwrap();
    net.drain(0);
    assert!(goes_on_with(&mut net, 2, 0));
    let forced = |event: &Event| matches!(event, Event::Reset { forced: true, degraded: true, .. });
    assert!(net.events[0].iter().any(forced));
}

// A member that answers and does not get on is left out only if as many as one asks for go on without it. Otherwise one
// reset would follow the other.
#[test]
fn a_slow_member_stays_while_a_floor_needs_it() {
    for (floor, members) in [(NONE, 3), (Floor::All, 4)] {
        let slow_member = SlowMember::ExcludeAfter(Duration::from_millis(500));
        let config = GroupConfig { history_messages: 32, slow_member, ..GroupConfig::default() };
        let mut net = group_asking(&config, &[NONE, NONE, floor, NONE]);
        net.asleep[3] = true;
        for n in 0..100_u32 {
            net.send(1, &n.to_be_bytes()).ok();
            net.run(MS);
        }
        net.run(5_000 * MS);
        assert_eq!((net.size(1), net.epoch(1)), (members, u64::from(members == 3)), "{floor}");
    }
}

#[test]
fn a_floor_that_the_group_cannot_have_is_refused_at_the_join() {
    let config = GroupConfig { members_max: 3, ..GroupConfig::default() };
    let mut net = group_asking(&config, &[NONE]);
    let joiner = net.add(EntryMode::Join, asking(Floor::AtLeast(4)));
    net.run(1_000 * MS);
    let reason = JoinFailure::FloorTooHigh { by: address(0) };
    assert_eq!(net.events[joiner], [Event::JoinFailed { reason }]);
    let joiner = net.add(EntryMode::Join, asking(Floor::AtLeast(3)));
    net.run(1_000 * MS);
    assert_eq!(net.phase(joiner), Phase::Member);
}

#[test]
fn a_member_without_a_vote_asks_for_no_floor() {
    let config =
        GroupConfig { quorum: Quorum::MajorityOfNamed([name("m0")].into()), ..GroupConfig::default() };
    let mut net = group_asking(&config, &[Floor::All]);
    let joiner = net.add(EntryMode::Join, asking(Floor::Majority));
    net.run(1_000 * MS);
    let reason = JoinFailure::FloorWithoutVote { by: address(0) };
    assert_eq!(net.events[joiner], [Event::JoinFailed { reason }]);
    // Members without a vote do not count either.
    let joiner = net.add(EntryMode::Join, unicast());
    net.run(1_000 * MS);
    assert_eq!(net.size(joiner), 2);
    net.crash(joiner);
    assert!(goes_on_with(&mut net, 1, 0));
}

#[test]
fn bad_floors_are_refused_at_once() {
    let refused = |floor, config: GroupConfig, joins: bool| {
        let me = Member { uid: uid(0), name: name("m0"), address: address(0), floor: NONE, hops: 1 };
        let entry = if joins { EntryMode::Join } else { EntryMode::Found(config) };
        let (port, random) = (Port::from_name("x"), Random::from_u64(1));
        let protection = Box::new(Checksum);
        Group::new(Time::from_nanos(1), me, port, entry, Bytes::new(), asking(floor), protection, random)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let small = GroupConfig { members_max: 3, ..GroupConfig::default() };
    let of_others = GroupConfig { quorum: Quorum::MajorityOfNamed([name("b")].into()), ..small.clone() };
    assert_eq!(refused(Floor::AtLeast(0), small.clone(), true), "floor is 0; it must be 1 to 4,096 members");
    assert_eq!(
        refused(Floor::AtLeast(5000), small.clone(), true),
        "floor is 5000; it must be 1 to 4,096 members"
    );
    let above = "floor is 4; it must be 1 to the maximum number of members";
    assert_eq!(refused(Floor::AtLeast(4), small, false), above);
    let without = "the floor of a member without a vote is 3; it must be none";
    assert_eq!(refused(Floor::All, of_others, false), without);
    for text in ["0", "4097", "-1", "half", "", "1 "] {
        assert!(text.parse::<Floor>().is_err(), "{text}");
    }
}
