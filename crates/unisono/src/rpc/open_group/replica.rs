//! One member's copy of a replicated service: what it does with each event of the group, apart from any thread.

use super::memory::{Known, Memory, Outcome};
use super::word::{Command, Word};
use super::{Asked, Service};
use bytes::{BufMut, Bytes};
use std::collections::BTreeSet;
use unisono_core::rpc::CallNumber;
use unisono_core::{Event, Member, Seqno, Uid, View};

/// What a client is told whose call could not be remembered.
const NO_ROOM: &str = "the service has too many clients or answers to remember; the call did not happen";

/// See the module.
pub(super) struct Replica<S> {
    me: Uid,
    service: S,
    memory: Memory,
    /// Nothing before this member is in.
    view: Option<View>,
    /// The last place that was applied.
    at: Seqno,
    /// Those who have the state.
    informed: BTreeSet<Uid>,
    /// Those to whom this member has given it, though it has not come back in the order yet.
    told: BTreeSet<Uid>,
    /// What was said since this member came in, for as long as it lacks the state.
    kept: Vec<(Seqno, Uid, Word)>,
}

/// What came of a call that this member applied.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) client: Uid,
    pub(super) call: CallNumber,
    /// Nothing if nobody can be waiting for it.
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
            told: BTreeSet::new(),
            kept: Vec::new(),
        }
    }

    pub(super) fn service(&self) -> &S {
        &self.service
    }

    /// This member has the state.
    pub(super) fn is_informed(&self) -> bool {
        self.informed.contains(&self.me)
    }

    /// This member has the state, as far as is known here.
    pub(super) fn has_state(&self, member: Uid) -> bool {
        self.informed.contains(&member)
    }

    /// The members, in rank order.
    pub(super) fn members(&self) -> &[Member] {
        self.view.as_ref().map_or(&[], |view| &view.members)
    }

    /// Takes the next event. Adds to `applied` what came of calls.
    pub(super) fn take(&mut self, event: Event, applied: &mut Vec<Applied>) {
        if let Event::Entered { seqno, view } = &event {
            // A founder begins with what it has; whoever joins waits to be told. It may give way and join after all.
            self.informed = view.members.iter().map(|member| member.uid).filter(|_| *seqno == 0).collect();
            self.view = Some(view.clone());
            self.at = *seqno;
            self.kept.clear();
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
                self.forget_who_is_gone();
            }
            Event::Reset { seqno, .. } => {
                self.at = seqno;
                // What was under way may have been dropped.
                self.told.clear();
                self.forget_who_is_gone();
            }
            _ => {}
        }
    }

    fn forget_who_is_gone(&mut self) {
        let there: BTreeSet<Uid> = self.members().iter().map(|member| member.uid).collect();
        self.informed.retain(|member| there.contains(member));
        self.told.retain(|member| there.contains(member));
        self.memory.retain_members(|member| there.contains(&member));
    }

    fn hear(&mut self, seqno: Seqno, sender: Uid, word: Word, applied: &mut Vec<Applied>) {
        match word {
            word if !self.is_informed() => match word {
                Word::State { to, through, bytes } if to == self.me => self.catch_up(through, bytes, applied),
                word => self.kept.push((seqno, sender, word)),
            },
            Word::Command(command) => applied.push(self.apply(seqno, sender, command)),
            Word::State { to, .. } => {
                self.informed.insert(to);
            }
        }
    }

    /// Begins with what another member gave, and goes on with what was said since.
    fn catch_up(&mut self, through: Seqno, mut bytes: Bytes, applied: &mut Vec<Applied>) {
        let Some((informed, memory)) = read_head(&mut bytes) else { return };
        (self.informed, self.memory) = (informed, memory);
        self.service.restore(&bytes);
        self.informed.insert(self.me);
        for (seqno, sender, word) in std::mem::take(&mut self.kept) {
            if seqno > through {
                self.hear(seqno, sender, word, applied);
            }
        }
        self.forget_who_is_gone();
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

    /// Whom this member is to give the state now, if it is the one to do it: the first by rank of those who have it.
    pub(super) fn newcomers(&self) -> Vec<Uid> {
        let donor = self.members().iter().find(|member| self.informed.contains(&member.uid));
        if donor.is_none_or(|donor| donor.uid != self.me) {
            return Vec::new();
        }
        let lacks = |uid: &Uid| !self.informed.contains(uid) && !self.told.contains(uid);
        self.members().iter().map(|member| member.uid).filter(lacks).collect()
    }

    /// The state as of now, for a newcomer.
    pub(super) fn state_for(&self, to: Uid) -> Word {
        let mut bytes = Vec::new();
        bytes.put_u32(self.informed.len() as u32);
        for member in &self.informed {
            bytes.put_u64(member.0);
        }
        self.memory.write(&mut bytes);
        bytes.put(self.service.snapshot());
        Word::State { to, through: self.at, bytes: bytes.into() }
    }

    /// The state is on its way to this one.
    pub(super) fn note_told(&mut self, newcomer: Uid) {
        self.told.insert(newcomer);
    }
}

fn read_head(from: &mut Bytes) -> Option<(BTreeSet<Uid>, Memory)> {
    use bytes::Buf;
    let mut informed = BTreeSet::new();
    for _ in 0..from.try_get_u32().ok()? {
        informed.insert(Uid(from.try_get_u64().ok()?));
    }
    Some((informed, Memory::read(from)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::{EpochId, Name};

    /// Everything that was asked.
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
        View { epoch: EpochId::default(), members, orderer: A, resilience: 1, resilience_founded: 1 }
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
        let state = old.state_for(B);
        old.note_told(B);
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
        let state = said(2, A, &a.state_for(B));
        let third = joined(3, C, 3);
        for replica in [&mut a, &mut b] {
            take(replica, state.clone());
            take(replica, third.clone());
        }
        assert_eq!((a.newcomers(), b.newcomers()), (vec![C], Vec::new()));
        let reset =
            Event::Reset { seqno: 4, view: view(&[B, C]), excluded: vec![member(A)], degraded: false };
        take(&mut b, reset.clone());
        assert_eq!(b.newcomers(), [C]);
        let mut c = joiner(C, 3, &[A, B, C]);
        take(&mut c, reset);
        take(&mut c, said(5, B, &command(1, "x")));
        assert!(!c.is_informed());
        take(&mut b, said(5, B, &command(1, "x")));
        take(&mut c, said(6, B, &b.state_for(C)));
        assert!(c.is_informed());
        assert_eq!(c.service().0, b"x");
    }

    #[test]
    fn a_founder_that_gives_way_waits_for_the_state_of_the_others() {
        let mut replica = founder(B);
        assert!(replica.is_informed());
        take(&mut replica, Event::Entered { seqno: 7, view: view(&[A, B]) });
        assert!(!replica.is_informed());
    }
}
