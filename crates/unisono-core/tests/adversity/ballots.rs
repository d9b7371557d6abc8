//! How a coordinator uses its votes, one ballot at a time.

use crate::network::*;
use bytes::Bytes;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::wire::*;
use unisono_core::*;

/// m0 of five, in a ballot of its own. Nothing that it sends arrives, and the other members' votes are forged.
struct Coordinator {
    net: Net,
    ballot: Ballot,
    packet: u64,
    /// The last proposal that it sent.
    proposed: Option<Proposal>,
}

impl Coordinator {
    fn inviting() -> Coordinator {
        let mut net = group_of(5, 1);
        let ballot = Rc::new(Cell::new(None));
        let invited = ballot.clone();
        net.filter(move |seen| {
            let of_m0 = seen.frames.iter().filter(|_| seen.from == 0);
            for frame in of_m0 {
                if let Frame::Invite { ballot, .. } = frame {
                    invited.set(Some(*ballot));
                }
            }
            LOST
        });
        assert!(net.run_until(MS, 5_000 * MS, |_| ballot.get().is_some()), "the case was not reached");
        Coordinator { net, ballot: ballot.get().unwrap(), packet: 1_000_000, proposed: None }
    }

    /// Returns a reset to these members, as another coordinator proposed it.
    fn proposal_of(&self, coordinator: usize, members: &[usize]) -> Proposal {
        let epoch = EpochId { counter: 1, coordinator: uid(coordinator), nonce: 7 };
        let start = self.net.group(0).marks().received + 1;
        Proposal {
            epoch,
            start,
            members: members.iter().copied().map(uid).collect(),
            degraded: false,
            forced: false,
            tail: Vec::new(),
        }
    }

    /// m0 receives a vote of this member, with the proposal that the member has prepared and the round of that
    /// proposal.
    fn hear_vote(&mut self, from: usize, prepared: Option<(u32, Proposal)>) {
        let Marks { epoch, received, accepted, .. } = self.net.group(0).marks();
        let prepared = prepared.map(|(round, proposal)| {
            let ballot = Ballot { round, coordinator: proposal.epoch.coordinator };
            (ballot, proposal)
        });
        let vote = Frame::Vote(Box::new(Vote {
            ballot: self.ballot,
            end: received,
            accepted,
            lacks_state: false,
            prepared,
            early: Vec::new(),
        }));
        self.packet += 1;
        let said = forge(self.net.group(0).tag(), epoch, uid(from), self.packet, &[vote]);
        self.net.inject(0, address(from), &said);
        self.note_what_is_said();
    }

    /// m0 repeats its request to the members that have not answered.
    fn repeat(&mut self) {
        self.net.now += 20 * MS;
        let now = Time::from_nanos(self.net.now);
        self.net.group_mut(0).handle_timeout(now);
        self.note_what_is_said();
    }

    fn note_what_is_said(&mut self) {
        let now = Time::from_nanos(self.net.now);
        let mut out = Vec::new();
        while self.net.group_mut(0).poll_transmit(now, &mut out).is_some() {
            for frame in Decoder::new(Bytes::copy_from_slice(&out[HEADER_BYTES..])).flatten() {
                if let Frame::Prepare(prepare) = frame {
                    assert_eq!(prepare.ballot, self.ballot);
                    self.proposed = Some(prepare.proposal);
                }
            }
        }
    }
}

// Two ballots came before this one, and under each of them a member prepared another proposal. The proposal of the
// later ballot may have been decided. That of the earlier ballot cannot have been, or the later coordinator would have
// found it.
#[test]
fn of_two_prepared_proposals_that_of_the_higher_ballot_is_taken_over() {
    for (earlier, later) in [(1, 2), (2, 1)] {
        for later_votes_first in [false, true] {
            let mut coordinator = Coordinator::inviting();
            // The higher ballot has neither the higher uid nor the longer list.
            let first = coordinator.proposal_of(4, &[0, 1, 2, 4]);
            let second = coordinator.proposal_of(3, &[1, 2, 3]);
            let mut votes = [(earlier, (1, first)), (later, (2, second.clone()))];
            if later_votes_first {
                votes.reverse();
            }
            for (voter, prepared) in votes {
                assert_eq!(coordinator.proposed, None, "two of five are no quorum");
                coordinator.hear_vote(voter, Some(prepared));
            }
            let case = format!("m{later} prepared last, and its vote came first: {later_votes_first}");
            assert_eq!(coordinator.proposed, Some(second), "{case}");
        }
    }
}

// Three of five have voted, and one of them may have prepared the proposal. A fourth vote must not change the proposal,
// whatever it carries: two proposals of one ballot could both be decided.
#[test]
fn a_later_vote_does_not_change_a_proposal() {
    for has_prepared in [false, true] {
        let mut coordinator = Coordinator::inviting();
        for voter in [1, 2] {
            coordinator.hear_vote(voter, None);
        }
        let proposed = coordinator.proposed.take();
        let members = proposed.as_ref().map(|proposal| &*proposal.members);
        assert_eq!(members, Some(&[0, 1, 2].map(uid)[..]), "the case was not reached");
        let prepared = has_prepared.then(|| (1, coordinator.proposal_of(4, &[0, 3, 4])));
        coordinator.hear_vote(3, prepared);
        coordinator.repeat();
        assert_eq!(coordinator.proposed, proposed);
    }
}

/// Returns a group of m0 and m1, with m1 as sequencer, which m2 joins from here on. Of the view before the join m0
/// alone is a quorum; of the view after it m1 and m2 are.
fn at_a_join(filter: impl FnMut(&Seen) -> Option<u64> + 'static) -> Net {
    let mut net = group_of(2, 0);
    net.hand_over(0, 1);
    let acts = |net: &Net| net.group(1).marks().acting;
    assert!(net.run_until(MS, 100 * MS, acts), "the case was not reached");
    net.run(50 * MS);
    net.filter(filter);
    net.add(EntryMode::Join, unicast());
    net
}

fn asks_to_prepare(seen: &Seen) -> bool {
    seen.has(|frame| matches!(frame, Frame::Prepare(_)))
}

// m0 does not receive the join and goes on alone, a quorum of the view that it knows. m1 and m2 cannot know whether the
// join counts. So they need m0's vote and its `Prepared`; otherwise there would be two groups.
#[test]
fn while_a_join_is_open_its_holders_need_a_quorum_of_the_view_before_it() {
    for m0_votes in [false, true] {
        let asks = Rc::new(Cell::new(false));
        let asked = asks.clone();
        let mut net = at_a_join(move |seen| {
            asked.set(asked.get() || seen.from == 1 && asks_to_prepare(seen));
            let votes = seen.has(|frame| matches!(frame, Frame::Vote(_)));
            let passes = match (seen.from, seen.to) {
                (0, _) => m0_votes && votes,
                (1, 0) => m0_votes && !asked.get() && !seen.has_change(),
                (_, to) => to != 0,
            };
            if passes { PROMPT } else { LOST }
        });
        net.run(50 * MS);
        assert_eq!((net.size(0), net.size(2)), (2, 3), "the case was not reached");
        net.run(5_000 * MS);
        net.show("five seconds later");
        assert_eq!((net.epoch(0), net.size(0)), (1, 1), "the case was not reached");
        assert_eq!((net.epoch(1), net.epoch(2)), (0, 0), "there are two groups");
        assert_eq!(asks.get(), m0_votes, "the proposal needs a quorum of both views");
    }
}

// m0 holds the join, and does not know its outcome. m1 and m2 may know it accepted, and may have gone on without m0.
#[test]
fn while_a_join_is_open_a_quorum_of_the_view_before_it_does_not_go_on_alone() {
    for others_vote in [false, true] {
        let (asks, holds) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let (asked, held) = (asks.clone(), holds.clone());
        let mut net = at_a_join(move |seen| {
            let asks = seen.has(|frame| matches!(frame, Frame::Invite { .. } | Frame::Alive { .. }));
            asked.set(asked.get() || seen.from == 0 && asks_to_prepare(seen));
            let answers = seen.has(|frame| matches!(frame, Frame::Vote(_) | Frame::Probe { .. }));
            let passes = match seen.to {
                0 => !held.get() || others_vote && answers,
                _ if seen.from == 0 => asks == others_vote,
                _ => true,
            };
            held.set(held.get() || seen.to == 0 && seen.has_join());
            if passes { PROMPT } else { LOST }
        });
        net.run(50 * MS);
        let marks = net.group(0).marks();
        assert_eq!((net.size(0), marks.received), (3, marks.accepted + 1), "the case was not reached");
        net.run(5_000 * MS);
        net.show("five seconds later");
        assert_eq!(net.epoch(0), 0, "m0 went on alone");
        assert_eq!(asks.get(), others_vote, "the proposal needs a quorum of both views");
        assert_eq!(net.epoch(1), u64::from(!others_vote), "the case was not reached");
    }
}

// m1 lacks m4's join until it has pulled the longest log. The others are a quorum of the five without m4. That is no
// reason to leave m4 behind.
#[test]
fn a_member_that_turns_up_in_the_longest_log_is_invited_too() {
    let mut net = group_of(4, 0);
    let misses = |seen: &Seen| {
        let is_level = seen.has(|frame| matches!(frame, Frame::Level { .. }));
        seen.to == 1 && seen.has_join() && !is_level
    };
    net.filter(move |seen| if misses(seen) { LOST } else { PROMPT });
    let joiner = net.add(EntryMode::Join, unicast());
    assert!(net.run_until(MS, 200 * MS, |net| net.phase(joiner) == Phase::Member));
    net.crash(0);
    net.filter(move |seen| {
        let invites = seen.has(|frame| matches!(frame, Frame::Invite { .. }));
        if misses(seen) || seen.from != 1 && invites { LOST } else { PROMPT }
    });
    assert_eq!((net.size(1), net.size(2)), (4, 5), "the case was not reached");
    assert!(net.run_until(MS, 5_000 * MS, |net| net.epoch(1) == 1), "the case was not reached");
    assert_eq!(net.size(1), 4, "m4 was left behind");
}

/// True if another member than m1 invites. Notes the round of m1's invitations.
fn is_invited_by_another(seen: &Seen, round: &Cell<u32>) -> bool {
    let invites = |frame: &Frame| match frame {
        Frame::Invite { ballot, .. } => Some(ballot.round),
        _ => None,
    };
    let invited = seen.frames.iter().find_map(invites);
    if let (1, Some(invited)) = (seen.from, invited) {
        round.set(invited);
    }
    seen.from != 1 && invited.is_some()
}

// m1 lacks two entries. The members that vote in time lack the second one too. While m1 pulls the first one, the vote
// of m3 arrives, which has both.
#[test]
fn a_longer_log_that_turns_up_while_another_is_pulled_is_pulled_too() {
    let mut net = group_of(5, 0);
    net.filter(|seen| if matches!(seen.to, 2 | 3) { PROMPT } else { LOST });
    net.send(0, b"what m2 has").unwrap();
    net.filter(|seen| if seen.to == 3 { PROMPT } else { LOST });
    net.send(0, b"what m3 has").unwrap();
    net.run(MS);
    let logs = [1, 2, 3].map(|index| net.group(index).marks().received - net.group(1).marks().received);
    assert_eq!(logs, [0, 1, 2], "the case was not reached");
    net.crash(0);
    let round = Rc::new(Cell::new(0));
    let invited = round.clone();
    net.filter(move |seen| {
        if is_invited_by_another(seen, &invited) {
            return LOST;
        }
        match (seen.from, seen.to) {
            (3, 1) if seen.has(|frame| matches!(frame, Frame::Vote(_))) => Some(120 * MS),
            (2, 1) if seen.has(|frame| matches!(frame, Frame::Level { .. })) => Some(50 * MS),
            _ => PROMPT,
        }
    });
    assert!(net.run_until(MS, 5_000 * MS, |net| net.epoch(1) == 1), "the case was not reached");
    assert_eq!((round.get(), net.delivered(1), net.size(1)), (1, 2, 4));
}

// m1 invites, and is stopped before m4's vote arrives. When m1 runs again, the vote waits in its socket, and the
// ballot's time is over. It must read the vote first, and not begin another ballot.
#[test]
fn a_coordinator_that_slept_hears_the_votes_that_wait_for_it() {
    let mut net = group_with(5, GroupConfig::default(), unicast());
    net.run(50 * MS);
    net.crash(0);
    let round = Rc::new(Cell::new(0));
    let invited = round.clone();
    net.filter(move |seen| {
        let is_late = seen.from == 4 && seen.has(|frame| matches!(frame, Frame::Vote(_)));
        if is_invited_by_another(seen, &invited) {
            return LOST;
        }
        if is_late { Some(20 * MS) } else { PROMPT }
    });
    let invites = |_: &Net| round.get() > 0;
    assert!(net.run_until(MS, 5_000 * MS, invites), "the case was not reached");
    net.run(5 * MS);
    net.stops[1].push((net.now, net.now + 400 * MS));
    assert!(net.run_until(MS, 5_000 * MS, |net| net.epoch(1) == 1), "the case was not reached");
    assert_eq!((round.get(), net.size(1)), (1, 4));
}

// m2 has voted, and is stopped until it would begin a ballot of its own. The decision waits in its socket.
#[test]
fn a_voter_that_slept_hears_what_was_decided_before_it_begins_a_ballot() {
    let settings = Settings { silence: Duration::from_secs(1), ..unicast() };
    let mut net = group_with(5, GroupConfig::default(), settings);
    net.run(50 * MS);
    net.crash(0);
    let (voted, invites) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let (has_voted, has_invited) = (voted.clone(), invites.clone());
    net.filter(move |seen| {
        if seen.from == 2 {
            has_voted.set(has_voted.get() || seen.has(|frame| matches!(frame, Frame::Vote(_))));
            has_invited.set(has_invited.get() || seen.has(|frame| matches!(frame, Frame::Invite { .. })));
        }
        PROMPT
    });
    assert!(net.run_until(LATENCY / 5, 5_000 * MS, |_| voted.get()), "the case was not reached");
    net.stops[2].push((net.now, net.now + 400 * MS));
    net.run(399 * MS);
    assert_eq!((net.epoch(1), net.epoch(2)), (1, 0), "the case was not reached");
    net.run(10 * MS);
    assert_eq!((net.epoch(2), net.size(2)), (1, 4));
    assert!(!invites.get(), "it began a ballot of its own");
}

// No vote for m1's first ballot arrives, so m1 waits less long for the votes of the next one. It is stopped before m5's
// vote arrives. The others are a quorum, but m5's vote waits in m1's socket.
#[test]
fn a_coordinator_that_slept_hears_members_that_left_an_invitation_unanswered() {
    let mut net = group_with(6, GroupConfig::default(), unicast());
    net.run(50 * MS);
    net.crash(0);
    let votes = Rc::new(Cell::new(0));
    let voted = votes.clone();
    net.filter(move |seen| {
        let is_lost = |frame: &Frame| match frame {
            Frame::Vote(vote) => vote.ballot.round == 1,
            Frame::Invite { .. } => seen.from != 1,
            _ => false,
        };
        let is_vote = seen.has(|frame| matches!(frame, Frame::Vote(_)));
        match seen.from {
            _ if seen.has(is_lost) => LOST,
            5 if is_vote => Some(10 * MS),
            _ => {
                voted.set(voted.get() + u32::from(is_vote));
                PROMPT
            }
        }
    });
    assert!(net.run_until(MS, 5_000 * MS, |_| votes.get() == 3), "the case was not reached");
    net.run(MS);
    net.stops[1].push((net.now, net.now + 100 * MS));
    assert!(net.run_until(MS, 5_000 * MS, |net| net.epoch(1) == 1), "the case was not reached");
    assert_eq!(net.size(1), 5, "m5 was left behind");
}

/// Counts the invitations that m0 sends to m3.
fn count_invitations(seen: &Seen, count: &Cell<u32>) {
    let is_invitation = |frame: &&Frame| matches!(frame, Frame::Invite { .. });
    let to_m3 = seen.frames.iter().filter(|_| (seen.from, seen.to) == (0, 3));
    count.set(count.get() + to_m3.filter(is_invitation).count() as u32);
}

// A cable is cut for hours. A member alone behind it must not fill its side of the network with invitations. When it
// hears one of the others again, it invites at full pace, because the rest may hear it too.
#[test]
fn silent_members_are_invited_ever_more_rarely_until_one_is_heard() {
    let config = GroupConfig { quorum: Quorum::All, ..GroupConfig::default() };
    let mut net = group_with(5, config, unicast());
    let (count, m2_is_heard) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let (counted, heard) = (count.clone(), m2_is_heard.clone());
    net.filter(move |seen| {
        count_invitations(seen, &counted);
        let passes = !seen.concerns(0) || (seen.from, seen.to) == (2, 0) && heard.get();
        if passes { PROMPT } else { LOST }
    });
    net.run(1_000 * MS);
    assert!(count.take() >= 10, "members that may only be late are invited at full pace");
    net.run(90_000 * MS);
    count.set(0);
    net.run(10_000 * MS);
    let invitations = count.take();
    assert!((5..=10).contains(&invitations), "{invitations} in ten seconds");
    m2_is_heard.set(true);
    net.run(2_000 * MS);
    count.set(0);
    net.run(1_000 * MS);
    let invitations = count.take();
    assert!(invitations >= 10, "{invitations} in a second in which m2 was heard");
}

// Two parts of a group that cannot go on without each other have been cut off from each other for two minutes. When
// they hear each other again, the reset takes at most a second longer than if they had invited each other at full pace.
#[test]
fn parts_of_a_group_that_hear_each_other_again_soon_go_on() {
    let config = GroupConfig { quorum: Quorum::All, ..GroupConfig::default() };
    for alone in [1, 2] {
        let mut net = group_with(5, config.clone(), unicast());
        net.filter(move |seen| if (seen.from < alone) == (seen.to < alone) { PROMPT } else { LOST });
        net.run(120_000 * MS);
        assert!((0..5).all(|index| net.epoch(index) == 0), "the case was not reached");
        net.calm();
        let goes_on = |net: &Net| (0..5).all(|index| net.epoch(index) == 1 && net.size(index) == 5);
        assert!(net.run_until(10 * MS, 2_000 * MS, goes_on), "{alone} of five were cut off");
    }
}
