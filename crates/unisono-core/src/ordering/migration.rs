//! The migrating sequencer: the role moves to the member that sends nearly everything (KT96 §5).
//!
//! The sequencer needs one datagram for a message of its own; any other member needs two. The sequencer numbers
//! everything, so it knows how much each member sends, and decides itself: no member asks for the role, and no
//! sequencer can be talked out of it. It looks back over a window of what it numbered. The member that sent nearly all
//! of it gets the role as soon as it is known to hold the log, unless the role has moved too recently. The role moves
//! as `role` describes: by an ordered event like any other.

use crate::config::{Migration, Order};
use crate::group::Group;
use crate::identity::{MessageNumber, Seqno, Uid};
use crate::log::Entry;
use crate::planted::{Planted, Probe};
use crate::time::Time;
use alloc::vec::Vec;
use core::time::Duration;

/// Minimum number of seqnos in a window: fewer would save fewer datagrams than a move costs.
const WINDOW_MESSAGES: u64 = 64;
/// Minimum number of seqnos for each member, since each answers a new sequencer.
const WINDOW_MESSAGES_PER_MEMBER: u64 = 2;
/// Minimum duration of a window: senders take turns that are longer than a few messages.
const WINDOW: Duration = Duration::from_millis(20);
/// Maximum duration of a window: a longer one is no burst.
const LOAD_WINDOW_MAX: Duration = Duration::from_millis(1000);
/// Minimum time that a sequencer keeps the role. It doubles each time that the role soon comes back.
const TENURE_FIRST: Duration = Duration::from_millis(100);
/// Maximum of that time.
const TENURE_MAX: Duration = Duration::from_secs(30);
/// The role comes back soon if it does within this multiple of the minimum time of the last tenure.
const SOON: u32 = 10;

/// What a sequencer knows of the members' load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    window: Option<Window>,
    candidate: Option<Candidate>,
    took_at: Time,
    /// Time when it last gave the role away because of the load.
    gave_at: Option<Time>,
    tenure: Duration,
}

/// The seqno and time from which messages are counted.
#[derive(Clone, Debug)]
struct Window {
    since: Time,
    end: Seqno,
    /// Every member's last message number there.
    numbers: Vec<(Uid, MessageNumber)>,
}

/// The member that sent nearly all of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    uid: Uid,
    /// End of the window: a member that holds this keeps up.
    end: Seqno,
}

impl Load {
    /// Notes that this member has the role from now on.
    pub(crate) fn begin_term(&mut self, now: Time) {
        let came_back = self.gave_at.is_some_and(|gave_at| now.since(gave_at) < self.tenure * SOON);
        self.tenure = if came_back { (self.tenure * 2).min(TENURE_MAX) } else { TENURE_FIRST };
        self.took_at = now;
        (self.window, self.candidate) = (None, None);
    }

    /// True if the role was kept long enough.
    fn is_due(&self, now: Time) -> bool {
        now.since(self.took_at) >= self.tenure
    }

    /// Evaluates the window if it is full. `end` is the end of the log, and `numbers` every member's last message
    /// number there.
    fn measure(
        &mut self,
        now: Time,
        end: Seqno,
        numbers: impl ExactSizeIterator<Item = (Uid, MessageNumber)>,
    ) {
        let Some(window) = &mut self.window else {
            self.window = Some(Window { since: now, end, numbers: numbers.collect() });
            return;
        };
        let (age, messages) = (now.since(window.since), end - window.end);
        let enough = WINDOW_MESSAGES.max(WINDOW_MESSAGES_PER_MEMBER * numbers.len() as u64);
        let is_full = messages >= enough && age >= WINDOW;
        if !is_full && age <= LOAD_WINDOW_MAX {
            return;
        }
        let numbers: Vec<(Uid, MessageNumber)> = numbers.collect();
        let most =
            if is_full && age <= LOAD_WINDOW_MAX { sent_most(&window.numbers, &numbers) } else { None };
        self.candidate = most.map(|uid| Candidate { uid, end });
        (window.since, window.end, window.numbers) = (now, end, numbers);
    }
}

/// Returns the member that sent at least three quarters of the messages between two seqnos, by every member's last
/// message number at each.
fn sent_most(before: &[(Uid, MessageNumber)], after: &[(Uid, MessageNumber)]) -> Option<Uid> {
    let sent = |&(uid, number): &(Uid, MessageNumber)| {
        // A member that was not there at the first has sent nothing that would count.
        let known = before.iter().find(|(known, _)| *known == uid);
        known.map_or(0, |(_, known)| number.saturating_sub(*known))
    };
    let total: u64 = after.iter().map(sent).sum();
    let most = after.iter().max_by_key(|entry| sent(entry))?;
    (total > 0 && sent(most) * 4 >= total * 3).then_some(most.0)
}

impl Group {
    /// Returns the member that is to get the role because it sends nearly everything, if the role may move now.
    pub(crate) fn successor_by_load(&mut self, now: Time) -> Option<Uid> {
        if self.log.history().order() != Order::Sequencer(Migration::ByLoad) {
            return None;
        }
        let history = self.log.history();
        let numbers =
            history.view().iter().map(|member| (member.uid, history.sender_mark(member.uid).number));
        self.order.load.measure(now, self.log.received(), numbers);
        if self.broken(Planted::RoleFlaps) {
            return self.last_sender();
        }
        let candidate = self.order.load.candidate.filter(|candidate| candidate.uid != self.me.uid)?;
        let is_leaving = self.departures.requests().any(|request| request.from == candidate.uid);
        if is_leaving || !self.order.load.is_due(now) || !self.is_settled() {
            return None;
        }
        if !self.holds(candidate.uid, candidate.end) {
            // It reports that when a heartbeat asks.
            self.repeat_to(now, candidate.uid);
            return None;
        }
        self.probe(Probe::RoleMigrated);
        self.order.load.gave_at = Some(now);
        Some(candidate.uid)
    }

    /// Planted bugs only: returns the sender of the last message, if it is another member.
    fn last_sender(&self) -> Option<Uid> {
        match self.log.history().get(self.log.received()) {
            Some(Entry::Message(message)) if message.sender != self.me.uid => Some(message.sender),
            _ => None,
        }
    }

    /// True if nothing is under way that a move would disturb: the last move is accepted, no member joins, leaves or is
    /// suspected, and no member is waited for. (The caller has seen that the last join or leave is accepted.)
    fn is_settled(&self) -> bool {
        self.term() <= self.log.accepted()
            && self.leaving.is_none()
            && self.window_shut_by().is_none()
            && self.peers.iter().all(|peer| peer.is_member() && !peer.is_suspected())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const A: Uid = Uid(1);
    const B: Uid = Uid(2);

    /// A sequencer's count of what two members send.
    struct Counted {
        load: Load,
        now: Time,
        numbers: [(Uid, MessageNumber); 2],
    }

    impl Counted {
        fn new() -> Counted {
            let mut counted = Counted { load: Load::default(), now: Time::ZERO, numbers: [(A, 0), (B, 0)] };
            counted.load.begin_term(counted.now);
            counted.measure();
            counted
        }

        fn measure(&mut self) {
            let end = self.numbers.iter().map(|(_, number)| number).sum();
            self.load.measure(self.now, end, self.numbers.into_iter());
        }

        /// Sends `messages`, each `every` after the one before; `sender` returns the index of its sender.
        fn send(&mut self, messages: u64, every: Duration, sender: impl Fn(u64) -> usize) {
            for index in 0..messages {
                self.now = self.now + every;
                self.numbers[sender(index)].1 += 1;
                self.measure();
            }
        }

        fn candidate(&self) -> Option<Uid> {
            self.load.candidate.map(|candidate| candidate.uid)
        }
    }

    #[test]
    fn the_sender_of_three_quarters_of_a_window_is_the_candidate() {
        let mut counted = Counted::new();
        counted.send(63, MS, |_| 1);
        assert_eq!(counted.candidate(), None);
        counted.send(1, MS, |_| 1);
        assert_eq!(counted.candidate(), Some(B));
        counted.send(64, MS, |index| usize::from(index % 4 != 0));
        assert_eq!(counted.candidate(), Some(B));
        counted.send(64, MS, |index| usize::from(index % 3 != 0));
        assert_eq!(counted.candidate(), None, "two thirds are not enough");
        counted.send(64, MS, |index| usize::from(index % 2 != 0));
        assert_eq!(counted.candidate(), None);
    }

    #[test]
    fn a_window_is_long_enough_for_all_to_have_their_turn_and_not_endless() {
        let mut counted = Counted::new();
        counted.send(1_000, MS / 100, |_| 1);
        assert_eq!(counted.candidate(), None, "10 ms are too short, however many messages there are");
        counted.send(1_000, MS / 100, |_| 0);
        assert_eq!(counted.candidate(), None, "both sent the same number");
        counted.send(2_000, MS / 100, |_| 1);
        assert_eq!(counted.candidate(), Some(B));
        counted.send(60, 17 * MS, |_| 1);
        assert_eq!(counted.candidate(), None, "64 messages in more than a second are no burst");
    }

    #[test]
    fn larger_groups_want_larger_windows() {
        let mut load = Load::default();
        let numbers =
            |sent: u64| (0..100_u32).map(move |uid| (Uid(uid.into()), if uid == 7 { sent } else { 0 }));
        load.measure(Time::ZERO, 0, numbers(0));
        load.measure(Time::ZERO + 100 * MS, 199, numbers(199));
        assert_eq!(load.candidate, None);
        load.measure(Time::ZERO + 101 * MS, 200, numbers(200));
        assert_eq!(load.candidate, Some(Candidate { uid: Uid(7), end: 200 }));
    }

    #[test]
    fn a_member_that_joined_during_the_window_is_no_candidate() {
        assert_eq!(sent_most(&[(A, 10)], &[(A, 11), (B, 500)]), Some(A));
        assert_eq!(sent_most(&[(A, 10)], &[(A, 10), (B, 500)]), None);
    }

    #[test]
    fn a_sequencer_that_gets_the_role_back_soon_keeps_it_longer() {
        let mut load = Load::default();
        let mut now = Time::ZERO;
        let mut tenures = Vec::new();
        for _ in 0..12 {
            load.begin_term(now);
            assert!(!load.is_due(now));
            while !load.is_due(now) {
                now = now + 10 * MS;
            }
            tenures.push(now.since(load.took_at).as_millis());
            load.gave_at = Some(now);
            now = now + 100 * MS;
        }
        assert_eq!(tenures[..4], [100, 200, 400, 800]);
        assert_eq!(tenures[10..], [30_000, 30_000]);
        now = now + 301 * Duration::from_secs(1);
        load.begin_term(now);
        assert!(load.is_due(now + TENURE_FIRST), "it comes back late");
    }
}
