//! One member's copy of a replicated service: what it does with each event of the group, without threads.

use super::memory::{Known, Memory, Outcome};
use super::word::{Command, StatePart, Word};
use super::{Asked, Service};
use bytes::{Buf, BufMut, Bytes};
use std::collections::{BTreeMap, BTreeSet};
use unisono_core::rpc::CallNumber;
use unisono_core::{Event, Member, Seqno, Uid, View};

/// Refusal that a client gets if its call could not be remembered.
const NO_ROOM: &str = "the service has too many clients or answers to remember; the call did not happen";

/// One member's copy. See the module.
pub(super) struct Replica<S> {
    me: Uid,
    service: S,
    memory: Memory,
    /// `None` before this member has entered.
    view: Option<View>,
    /// Last seqno that was applied.
    at: Seqno,
    /// Members that have the state.
    informed: BTreeSet<Uid>,
    /// Members that have the first parts of it.
    arriving: BTreeMap<Uid, Arriving>,
    /// Members to which this one sends the state, and the seqno that it is as of.
    told: BTreeMap<Uid, Seqno>,
    /// Calls and parts since this member entered, while it lacks the state.
    kept: Vec<(Seqno, Uid, Word)>,
    /// Parts of the state that this member has, while it lacks others.
    parts: Vec<Bytes>,
}

/// Parts of a state that have arrived in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arriving {
    by: Uid,
    through: Seqno,
    parts: u32,
}

/// The whole state, for a joiner.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) to: Uid,
    through: Seqno,
    bytes: Bytes,
}

impl State {
    /// Splits the state into parts of at most `part_bytes` bytes.
    pub(super) fn parts(&self, part_bytes: usize) -> impl Iterator<Item = StatePart> {
        let count = self.bytes.len().div_ceil(part_bytes).max(1);
        (0..count).map(move |index| {
            let begin = index * part_bytes;
            let end = self.bytes.len().min(begin + part_bytes);
            StatePart {
                to: self.to,
                through: self.through,
                index: index as u32,
                is_last: index + 1 == count,
                bytes: self.bytes.slice(begin..end),
            }
        })
    }
}

/// The outcome of a call that this member applied.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) client: Uid,
    pub(super) call: CallNumber,
    /// `None` if its client cannot be waiting for it.
    pub(super) outcome: Option<Outcome>,
}

impl<S: Service> Replica<S> {
    pub(super) fn new(me: Uid, service: S) -> Replica<S> {
        Replica {
            me,
            service,
            memory: Memory::default(),
            view: None,
            at: 0,
            informed: BTreeSet::new(),
            arriving: BTreeMap::new(),
            told: BTreeMap::new(),
            kept: Vec::new(),
            parts: Vec::new(),
        }
    }

    pub(super) fn service(&self) -> &S {
        &self.service
    }

    /// True if this member has the state.
    pub(super) fn is_informed(&self) -> bool {
        self.informed.contains(&self.me)
    }

    /// True if `member` has the state, as far as this member knows.
    pub(super) fn has_state(&self, member: Uid) -> bool {
        self.informed.contains(&member)
    }

    /// Returns the members, in rank order.
    pub(super) fn members(&self) -> &[Member] {
        self.view.as_ref().map_or(&[], |view| &view.members)
    }

    /// Takes the next event. Adds the outcomes of calls to `applied`.
    pub(super) fn take(&mut self, event: Event, applied: &mut Vec<Applied>) {
        if let Event::Entered { seqno, view } = &event {
            // A founder begins with its own state, a joiner waits for one. A founder may give way and join after all.
            self.informed = view.members.iter().map(|member| member.uid).filter(|_| *seqno == 0).collect();
            self.view = Some(view.clone());
            self.at = *seqno;
            self.arriving.clear();
            self.told.clear();
            self.kept.clear();
            self.parts.clear();
            return;
        }
        if let Some(view) = &mut self.view {
            view.follow(&event);
        }
        match event {
            Event::Message { seqno, sender, payload, .. } => {
                if let Some(word) = Word::read(payload) {
                    self.hear(seqno, sender, word, applied);
                }
                self.at = seqno;
            }
            Event::Left { seqno, .. } | Event::Joined { seqno, .. } => {
                self.at = seqno;
                self.forget_former_members();
            }
            Event::Reset { seqno, .. } => {
                self.at = seqno;
                // Parts that were under way may have been dropped.
                self.told.clear();
                self.forget_former_members();
            }
            _ => {}
        }
    }

    fn forget_former_members(&mut self) {
        let there: BTreeSet<Uid> = self.members().iter().map(|member| member.uid).collect();
        self.informed.retain(|member| there.contains(member));
        self.arriving.retain(|member, _| there.contains(member));
        self.told.retain(|member, _| there.contains(member));
        self.memory.retain_members(|member| there.contains(&member));
    }

    fn hear(&mut self, seqno: Seqno, sender: Uid, word: Word, applied: &mut Vec<Applied>) {
        match word {
            Word::State(part) if part.to == self.me => self.take_part(sender, part, applied),
            Word::Command(command) if self.is_informed() => applied.push(self.apply(seqno, sender, command)),
            Word::State(part) if self.is_informed() => {
                if self.note_part(sender, &part) && part.is_last {
                    self.informed.insert(part.to);
                }
            }
            Word::Command(command) => self.kept.push((seqno, sender, Word::Command(command))),
            // Only the arrival of the part matters.
            Word::State(part) => {
                self.kept.push((seqno, sender, Word::State(StatePart { bytes: Bytes::new(), ..part })));
            }
        }
    }

    /// Notes a part of the state for a joiner. Returns whether it continues what the joiner has, or begins again.
    fn note_part(&mut self, by: Uid, part: &StatePart) -> bool {
        let &StatePart { to, through, index, is_last, .. } = part;
        let expected = self.arriving.get(&to).copied().filter(|arriving| index == arriving.parts);
        let continues = expected.is_some_and(|arriving| (arriving.by, arriving.through) == (by, through));
        if self.informed.contains(&to) || index > 0 && !continues {
            return false;
        }
        match is_last {
            true => self.arriving.remove(&to),
            false => self.arriving.insert(to, Arriving { by, through, parts: index + 1 }),
        };
        true
    }

    /// Takes a part of the state that another member sends to this one.
    fn take_part(&mut self, by: Uid, part: StatePart, applied: &mut Vec<Applied>) {
        if !self.note_part(by, &part) {
            return;
        }
        if part.index == 0 {
            self.parts.clear();
        }
        self.parts.push(part.bytes);
        if part.is_last {
            let parts = std::mem::take(&mut self.parts);
            self.catch_up(part.through, parts.concat().into(), applied);
        }
    }

    /// Takes over the state of another member, and applies the calls since then.
    fn catch_up(&mut self, through: Seqno, mut bytes: Bytes, applied: &mut Vec<Applied>) {
        let Some(()) = self.read_head(&mut bytes) else { return };
        self.service.restore(&bytes);
        self.arriving.remove(&self.me);
        self.informed.insert(self.me);
        for (seqno, sender, word) in std::mem::take(&mut self.kept) {
            if seqno > through {
                self.hear(seqno, sender, word, applied);
            }
        }
        self.forget_former_members();
    }

    fn apply(&mut self, seqno: Seqno, sender: Uid, command: Command) -> Applied {
        let Command { client, call, finished_below, left_ms, stamp_ms, payload } = command;
        self.memory.tick(sender, stamp_ms);
        let outcome = match self.memory.look_up(client, call, finished_below, left_ms) {
            Known::Answered(outcome) => Some(outcome),
            Known::Finished => None,
            Known::NoRoom => Some(Outcome::Refuse(NO_ROOM.into())),
            Known::New => {
                let received_by = self.members().iter().find(|member| member.uid == sender).cloned();
                let asked =
                    Asked { payload: &payload, client, call, seqno, received_by: received_by.as_ref() };
                let outcome = self.service.apply(&asked);
                self.memory.remember(client, call, outcome.clone());
                Some(outcome)
            }
        };
        Applied { client, call, outcome }
    }

    /// Returns the members that need the state, if this member is the one to send it: the first by rank that has it.
    pub(super) fn newcomers(&self) -> Vec<Uid> {
        let donor = self.members().iter().find(|member| self.informed.contains(&member.uid));
        if donor.is_none_or(|donor| donor.uid != self.me) {
            return Vec::new();
        }
        let lacks = |uid: &Uid| !self.informed.contains(uid) && !self.told.contains_key(uid);
        self.members().iter().map(|member| member.uid).filter(lacks).collect()
    }

    /// Returns the present state for a joiner, and notes that it is on its way.
    pub(super) fn give(&mut self, to: Uid) -> State {
        let mut bytes = Vec::new();
        bytes.put_u32(self.informed.len() as u32);
        for member in &self.informed {
            bytes.put_u64(member.0);
        }
        bytes.put_u32(self.arriving.len() as u32);
        for (member, arriving) in &self.arriving {
            bytes.put_u64(member.0);
            bytes.put_u64(arriving.by.0);
            bytes.put_u64(arriving.through);
            bytes.put_u32(arriving.parts);
        }
        self.memory.write(&mut bytes);
        bytes.put(self.service.snapshot());
        self.told.insert(to, self.at);
        State { to, through: self.at, bytes: bytes.into() }
    }

    /// True if this state is still to be sent: no reset has come since.
    pub(super) fn gives(&self, state: &State) -> bool {
        self.told.get(&state.to) == Some(&state.through)
    }

    /// Notes that the state could not be sent.
    pub(super) fn take_back(&mut self, state: &State) {
        if self.gives(state) {
            self.told.remove(&state.to);
        }
    }

    /// Reads what precedes the snapshot; returns `None` and changes nothing if it is not valid.
    fn read_head(&mut self, from: &mut Bytes) -> Option<()> {
        let (mut informed, mut arriving) = (BTreeSet::new(), BTreeMap::new());
        for _ in 0..from.try_get_u32().ok()? {
            informed.insert(Uid(from.try_get_u64().ok()?));
        }
        for _ in 0..from.try_get_u32().ok()? {
            let member = Uid(from.try_get_u64().ok()?);
            let (by, through) = (Uid(from.try_get_u64().ok()?), from.try_get_u64().ok()?);
            arriving.insert(member, Arriving { by, through, parts: from.try_get_u32().ok()? });
        }
        self.memory = Memory::read(from)?;
        (self.informed, self.arriving) = (informed, arriving);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::{EpochId, Name};

    /// The payloads of all calls.
    #[derive(Default)]
    struct Log(Vec<u8>);

    impl Service for Log {
        fn apply(&mut self, asked: &Asked<'_>) -> Outcome {
            self.0.extend_from_slice(asked.payload);
            Outcome::Reply(Bytes::copy_from_slice(&self.0))
        }

        fn snapshot(&self) -> Bytes {
            Bytes::copy_from_slice(&self.0)
        }

        fn restore(&mut self, snapshot: &[u8]) {
            self.0 = snapshot.to_vec();
        }
    }

    const A: Uid = Uid(1);
    const B: Uid = Uid(2);
    const C: Uid = Uid(3);

    fn member(uid: Uid) -> Member {
        Member { uid, name: Name::default(), address: ([127, 0, 0, 1], uid.0 as u16).into() }
    }

    fn view(members: &[Uid]) -> View {
        let members = members.iter().copied().map(member).collect();
        View::new(EpochId::default(), members, A, 1)
    }

    fn founder(uid: Uid) -> Replica<Log> {
        let mut replica = Replica::new(uid, Log::default());
        replica.take(Event::Entered { seqno: 0, view: view(&[uid]) }, &mut Vec::new());
        replica
    }

    fn joiner(uid: Uid, seqno: Seqno, members: &[Uid]) -> Replica<Log> {
        let mut replica = Replica::new(uid, Log::default());
        replica.take(Event::Entered { seqno, view: view(members) }, &mut Vec::new());
        replica
    }

    fn joined(seqno: Seqno, uid: Uid, members: usize) -> Event {
        Event::Joined { seqno, member: member(uid), hello: Bytes::new(), members }
    }

    fn said(seqno: Seqno, sender: Uid, word: &Word) -> Event {
        Event::Message { seqno, sender, number: seqno, payload: word.write() }
    }

    fn command(call: CallNumber, text: &'static str) -> Word {
        Word::Command(Command {
            client: Uid(77),
            call,
            finished_below: 1,
            left_ms: 5000,
            stamp_ms: 10 * call,
            payload: text.into(),
        })
    }

    fn take(replica: &mut Replica<Log>, event: Event) -> Vec<Applied> {
        let mut applied = Vec::new();
        replica.take(event, &mut applied);
        applied
    }

    /// Returns the state that this member sends to another one, in one part.
    fn whole_state(of: &mut Replica<Log>, to: Uid) -> Word {
        Word::State(of.give(to).parts(1 << 20).next().unwrap())
    }

    /// Returns the state in parts of ten bytes.
    fn small_parts(of: &mut Replica<Log>, to: Uid) -> Vec<Word> {
        of.give(to).parts(10).map(Word::State).collect()
    }

    #[test]
    fn a_call_takes_effect_once_however_often_it_is_said() {
        let mut replica = founder(A);
        let first = take(&mut replica, said(1, A, &command(1, "x")));
        let again = take(&mut replica, said(2, A, &command(1, "x")));
        assert_eq!(first, again);
        assert_eq!(first[0].outcome, Some(Outcome::Reply("x".into())));
        assert_eq!(replica.service().0, b"x");
    }

    #[test]
    fn a_newcomer_gets_the_state_and_what_was_said_meanwhile_and_knows_old_calls() {
        let mut old = founder(A);
        take(&mut old, said(1, A, &command(1, "a")));
        take(&mut old, joined(2, B, 2));
        assert_eq!(old.newcomers(), [B]);
        let state = whole_state(&mut old, B);
        assert!(old.newcomers().is_empty());

        let mut new = joiner(B, 2, &[A, B]);
        assert!(!new.is_informed() && new.newcomers().is_empty());
        let events = [
            said(3, A, &command(2, "b")),
            said(4, A, &state),
            said(5, A, &command(1, "a")),
            said(6, B, &command(3, "c")),
        ];
        for event in events {
            take(&mut old, event.clone());
            take(&mut new, event);
        }
        assert_eq!((&old.service().0[..], &new.service().0[..]), (&b"abc"[..], &b"abc"[..]));
        assert_eq!(old.memory, new.memory);
        assert_eq!(old.informed, new.informed);
    }

    #[test]
    fn if_the_one_that_gives_the_state_dies_the_next_one_that_has_it_does() {
        let (mut a, mut b) = (founder(A), joiner(B, 1, &[A, B]));
        take(&mut a, joined(1, B, 2));
        let state = said(2, A, &whole_state(&mut a, B));
        let third = joined(3, C, 3);
        for replica in [&mut a, &mut b] {
            take(replica, state.clone());
            take(replica, third.clone());
        }
        assert_eq!((a.newcomers(), b.newcomers()), (vec![C], Vec::new()));
        let reset = Event::Reset {
            seqno: 4,
            view: view(&[B, C]),
            excluded: vec![member(A)],
            degraded: false,
            forced: false,
        };
        take(&mut b, reset.clone());
        assert_eq!(b.newcomers(), [C]);
        let mut c = joiner(C, 3, &[A, B, C]);
        take(&mut c, reset);
        take(&mut c, said(5, B, &command(1, "x")));
        assert!(!c.is_informed());
        take(&mut b, said(5, B, &command(1, "x")));
        take(&mut c, said(6, B, &whole_state(&mut b, C)));
        assert!(c.is_informed());
        assert_eq!(c.service().0, b"x");
    }

    #[test]
    fn a_state_in_parts_is_whole_with_its_last_and_a_later_joiner_knows_how_far_it_is() {
        let (mut a, mut b) = (founder(A), joiner(B, 2, &[A, B]));
        take(&mut a, said(1, A, &command(1, "a")));
        take(&mut a, joined(2, B, 2));
        let parts = small_parts(&mut a, B);
        assert!(parts.len() > 3);
        let (last, parts) = parts.split_last().unwrap();
        for (seqno, part) in (3..).zip(parts) {
            take(&mut a, said(seqno, A, part));
            take(&mut b, said(seqno, A, part));
        }
        let seqno = 3 + parts.len() as Seqno;
        take(&mut a, joined(seqno, C, 3));
        take(&mut b, joined(seqno, C, 3));
        let mut c = joiner(C, seqno, &[A, B, C]);
        assert_eq!((b.is_informed(), a.newcomers()), (false, vec![C]));
        let to_c = whole_state(&mut a, C);
        let words = [(A, last.clone()), (A, to_c), (B, command(2, "b"))];
        for (seqno, (sender, word)) in (seqno + 1..).zip(&words) {
            for replica in [&mut a, &mut b, &mut c] {
                take(replica, said(seqno, *sender, word));
            }
        }
        for replica in [&a, &b, &c] {
            assert_eq!(replica.service().0, b"ab");
            assert_eq!(replica.informed, BTreeSet::from([A, B, C]));
            assert_eq!((&replica.arriving, &replica.memory), (&BTreeMap::new(), &a.memory));
        }
    }

    #[test]
    fn a_state_of_which_a_reset_dropped_parts_is_given_anew() {
        let (mut a, mut b) = (founder(A), joiner(B, 2, &[A, B]));
        take(&mut a, said(1, A, &command(1, "a")));
        take(&mut a, joined(2, B, 2));
        let first = a.give(B);
        let parts: Vec<Word> = first.parts(10).map(Word::State).collect();
        let reset = Event::Reset {
            seqno: 4,
            view: view(&[A, B]),
            excluded: vec![member(C)],
            degraded: false,
            forced: false,
        };
        for event in [said(3, A, &parts[0]), reset, said(5, A, &parts[2])] {
            take(&mut a, event.clone());
            take(&mut b, event);
        }
        assert_eq!((a.gives(&first), a.newcomers()), (false, vec![B]));
        let mut words = small_parts(&mut a, B);
        // A part of the first state that was under way arrived after all.
        words.insert(1, parts.last().unwrap().clone());
        for (seqno, word) in (6..).zip(&words) {
            assert!(!a.has_state(B) && !b.is_informed());
            take(&mut a, said(seqno, A, word));
            take(&mut b, said(seqno, A, word));
        }
        assert!(a.has_state(B) && b.is_informed());
        assert_eq!(b.service().0, b"a");
    }

    #[test]
    fn a_founder_that_gives_way_waits_for_the_state_of_the_others() {
        let mut replica = founder(B);
        assert!(replica.is_informed());
        take(&mut replica, Event::Entered { seqno: 7, view: view(&[A, B]) });
        assert!(!replica.is_informed());
    }
}
