//! A replica with a disk: it recovers or creates the service with others, joins an open one, and has everything written
//! that others are to count on.

use super::backlog::Backlog;
use super::disk::{Block, Created, DiskDurability, Heard};
use super::durable::{
    After, DiskStart, Durable, Foreign, JobNumber, Mark, Place, Plan, Round, RoundWord, Stage, Verdict,
};
use super::fetch::Fetch;
use super::replicated::{Applied, NotReplaced, Replicated, server_id};
use super::word::Word;
use super::{Arriving, NotRestored, Output, Replica, ReplicaSettings, StateMachine, StopReason};
use crate::event::{Event, View};
use crate::identity::{Seqno, Uid};
use crate::planted::Planted;
use crate::time::{Time, earlier};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;

/// Time after which a server that finds no donor in a group begins anew with entering one.
const SEEKS_DONOR_MAX: Duration = Duration::from_secs(3);

impl<S: StateMachine> Replica<S> {
    /// Returns the copy of a server with a disk, closed, with the state that the disk has. `machine` is the state with
    /// which a service begins.
    ///
    /// # Errors
    /// What the disk has is no state that this version of the program can restore.
    pub fn with_disk(
        me: Uid,
        machine: S,
        settings: ReplicaSettings,
        start: &DiskStart,
    ) -> Result<Replica<S>, NotRestored> {
        let (place, parts, entries, heard) = match &start.loaded {
            Some(loaded) => {
                (loaded.snapshot_at, &loaded.parts[..], loaded.entries.clone(), loaded.heard.clone())
            }
            None => (0, &[][..], Vec::new(), BTreeMap::new()),
        };
        // What the service was created with counts, whatever this process was started with.
        let durability = start.loaded.as_ref().map_or(start.durability, |loaded| loaded.block.durability);
        let service = (start.servers, durability);
        let mut closed = Replicated::of_disk(machine, (place, parts), entries, (service, &settings))?;
        closed.set_heard(heard);
        let durable = Durable::new(start, closed.ledger().map_or(0, |ledger| ledger.end()));
        let mut replica = Replica::empty(me, settings);
        replica.closed = Some(closed);
        replica.durable = Some(durable);
        Ok(replica)
    }

    /// Handles the end of a job: the disk has it, or the reason why it has not.
    pub fn handle_stored(&mut self, now: Time, job: JobNumber, result: Result<(), String>) {
        if let Err(reason) = result {
            return self.stop(StopReason::DiskFailed(reason));
        }
        let after = self.durable.as_mut().and_then(|durable| durable.done(now, job));
        match after {
            Some(After::Synced(place)) => self.announce(place),
            Some(After::View(..)) => self.announce_view(),
            Some(After::Joined) => {
                if let Some(durable) = &self.durable
                    && durable.stage == Stage::Open
                {
                    let disk = durable.as_heard();
                    self.say(Word::OnDisk(disk));
                    self.say_mark();
                    if self.serves() {
                        self.outputs.push_back(Output::Informed);
                        self.claim_handlers();
                    }
                }
            }
            Some(After::Round(key, word)) => self.say_in_round(key, word),
            Some(After::Nothing | After::SnapshotBegun) | None => {}
        }
        self.work(now);
    }

    /// Handles the end of writing the parts of a snapshot, which followed this job ([`Job::Snapshot`](super::Job::Snapshot)): the
    /// disk has them, or the reason why it has not.
    pub fn handle_snapshot_written(&mut self, now: Time, job: JobNumber, result: Result<(), String>) {
        if let Err(reason) = result {
            return self.stop(StopReason::DiskFailed(reason));
        }
        if let Some(durable) = &mut self.durable {
            durable.snapshot_written(job);
        }
        self.work(now);
    }

    /// Handles the news that the disk gets on with a job that takes long, or with the parts of a snapshot. A disk that does not get on for 10 s counts as hung.
    pub fn handle_progress(&mut self, now: Time, job: JobNumber) {
        if let Some(durable) = &mut self.durable {
            durable.note_progress(now, job, self.watched);
        }
    }

    /// Returns the ids of the servers that this one waits for; empty if it waits for none.
    pub fn waits_for(&self) -> Vec<u8> {
        let Some(durable) = &self.durable else { return Vec::new() };
        let is_in = self.view.is_some() && !self.is_stopped;
        match durable.stage {
            Stage::Closed if is_in => durable.round.missing().to_vec(),
            Stage::Open | Stage::Joining if is_in && self.is_halted() => self.servers_outside(),
            Stage::Open | Stage::Joining if is_in => Vec::new(),
            // In no group, it knows of no other server.
            _ => (1..=durable.block.servers).filter(|id| *id != durable.block.server).collect(),
        }
    }

    /// True if this process took part in creating the service: it began with nothing.
    pub fn has_created(&self) -> bool {
        self.durable.as_ref().is_some_and(|durable| durable.has_created)
    }

    /// Returns the ids of the servers that are in the group of this one with a disk that does not count, because it is empty
    /// or older than another server knows it to have been; only while this server waits for a good one.
    pub fn useless_disks(&self) -> Vec<u8> {
        let waits = self.durable.as_ref().filter(|durable| durable.stage == Stage::Closed);
        let round = waits.filter(|_| self.view.is_some() && !self.is_stopped).map(|durable| &durable.round);
        round.map_or_else(Vec::new, |round| round.useless().to_vec())
    }

    /// Returns the ids of the servers that are not in the group.
    fn servers_outside(&self) -> Vec<u8> {
        let members = || self.view.iter().flat_map(|view| &view.members);
        let is_in = |id: u8| members().any(|member| server_id(&member.name) == Some(id));
        let servers = self.durable.as_ref().map_or(0, |durable| durable.block.servers);
        (1..=servers).filter(|id| !is_in(*id)).collect()
    }

    /// Returns the identity of this server's disk; 0 without one.
    pub fn disk_identity(&self) -> u64 {
        self.durable.as_ref().map_or(0, |durable| durable.block.disk)
    }

    /// Returns what makes this server's disk count, as it is once everything is written; `None` without a disk.
    pub fn block(&self) -> Option<&Block> {
        self.durable.as_ref().map(|durable| &durable.block)
    }

    /// Returns the state of a serving server with a disk, in the parts that a disk keeps, and the last place that it
    /// contains: for a backup. `None` unless it serves.
    pub fn applied_state(&self) -> Option<(Place, Vec<Bytes>)> {
        let state = self.replicated.as_ref().filter(|_| !self.is_stopped)?;
        Some((state.ledger()?.applied(), state.state_parts(self.watched)))
    }

    /// Returns the instance of the service on this server's disk; 0 before its creation.
    pub fn service(&self) -> u128 {
        self.durable.as_ref().map_or(0, |durable| durable.block.service)
    }

    /// Returns the generation of the log on this server's disk; 0 without a disk.
    pub fn generation(&self) -> u64 {
        self.durable.as_ref().map_or(0, |durable| durable.block.generation)
    }

    /// Returns the id of this server, if it has a disk.
    pub fn server_id(&self) -> Option<u8> {
        self.durable.as_ref().map(|durable| durable.block.server)
    }

    /// True while this server is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.durable.as_ref().is_some_and(|durable| durable.stage == Stage::Closed)
    }

    /// True if other servers are to take over the state of this one, which is closed.
    pub(super) fn gives_closed(&self) -> bool {
        self.is_closed()
            && self.durable.as_ref().is_some_and(|durable| durable.round.donor() == Some(self.me))
    }

    // --- a closed server ---

    pub(super) fn enter_closed(&mut self, now: Time, seqno: Seqno, view: View) {
        if let Some(state) = self.replicated.take() {
            self.closed = Some(state);
        }
        self.arriving = None;
        self.view = Some(view);
        if let Some(durable) = &mut self.durable {
            durable.begin_life();
        }
        self.begin_round(now, Round::new(seqno));
    }

    fn begin_round(&mut self, now: Time, round: Round) {
        let Some(durable) = &mut self.durable else { return };
        let key = round.key;
        (durable.stage, durable.round, durable.has_to_say) = (Stage::Closed, round, true);
        self.unseen.retain(|word| !matches!(word, Word::Round { .. }));
        self.arriving = None;
        if let (Some(closed), Some(view)) = (&mut self.closed, &self.view) {
            closed.stand_at(key, view);
        }
        self.work(now);
    }

    /// Follows an event that has a seqno, while this server is closed or fetches the state.
    pub(super) fn follow_closed(&mut self, now: Time, event: &Event) {
        let Some(seqno) = event.seqno() else { return };
        match event {
            Event::Joined { .. } | Event::Left { .. } | Event::Reset { .. } => {
                self.begin_round(now, Round::new(seqno));
            }
            Event::Message { sender, payload, .. } => match Word::read(payload.clone()) {
                Some(Word::Round { key, word }) => self.hear_round(now, (*sender, seqno), key, word),
                Some(Word::IsOpen) => self.begin_joining(now, seqno),
                _ => {}
            },
            _ => {}
        }
    }

    fn hear_round(&mut self, now: Time, (from, seqno): (Uid, Seqno), key: Seqno, word: RoundWord) {
        let (Some(durable), Some(view)) = (&mut self.durable, &self.view) else { return };
        if from == self.me
            && matches!(self.unseen.front(), Some(Word::Round { key: said, word: mine })
            if *said == key && *mine == word)
        {
            self.unseen.pop_front();
        }
        if durable.round.key != key || durable.stage != Stage::Closed {
            return;
        }
        let members: Vec<Uid> = view.members.iter().map(|member| member.uid).collect();
        match durable.round.hear(from, word, &members, self.watched) {
            Verdict::Nothing => {}
            Verdict::Half(root) => {
                durable.block.created = Created::Half(root);
                durable.commit(After::Round(key, RoundWord::Half));
            }
            Verdict::Done(root) => {
                durable.block.created = Created::Done(root);
                durable.block.service = root;
                durable.has_created = true;
                durable.commit(After::Round(key, RoundWord::Done));
            }
            Verdict::Again => {
                let round = durable.round.again(seqno);
                return self.begin_round(now, round);
            }
            Verdict::Promise(plan) if plan.good.contains_key(&self.me) => {
                durable.block.promised = plan.generation;
                match self.watched.broken(Planted::PromiseUnsynced) {
                    true => self.say_in_round(key, RoundWord::Promised),
                    false => durable.commit(After::Round(key, RoundWord::Promised)),
                }
            }
            Verdict::Adopt(plan) if plan.good.contains_key(&self.me) => self.adopt(now, &plan),
            Verdict::Open(plan) if plan.good.contains_key(&self.me) => self.open(now, seqno, &plan),
            Verdict::Open(_) => self.begin_joining(now, seqno),
            Verdict::Foreign(foreign) => match foreign.get(&self.me) {
                Some(Foreign::GivenUp) => self.stop(StopReason::DiskGivenUp),
                Some(Foreign::OtherService) => self.stop(StopReason::DiskOfOther),
                Some(Foreign::OtherServers) => self.stop(StopReason::OtherServers),
                Some(Foreign::OtherDurability) => self.stop(StopReason::OtherDurability),
                Some(Foreign::NothingLost) => self.stop(StopReason::NothingLost),
                None => {}
            },
            Verdict::Promise(_) | Verdict::Adopt(_) => {}
        }
        self.work(now);
    }

    fn say_in_round(&mut self, key: Seqno, word: RoundWord) {
        if self.durable.as_ref().is_some_and(|durable| durable.round.key == key) {
            self.say(Word::Round { key, word });
        }
    }

    /// Takes over the chosen state: at once if it is on this server's disk, else from the donor.
    fn adopt(&mut self, now: Time, plan: &Plan) {
        let (Some(durable), Some(view)) = (&mut self.durable, &self.view) else { return };
        let end = self.closed.as_ref().and_then(Replicated::ledger).map_or(0, |ledger| ledger.end());
        let had = (durable.block.generation, end);
        durable.block.service = plan.service;
        durable.block.created = Created::Done(plan.service);
        // With durability one, logs of one length may end with different entries, of which no caller has an answer.
        if plan.donor == self.me || had == plan.chosen && plan.view.is_none() {
            let key = durable.round.key;
            durable.take_chosen(plan);
            durable.commit(After::Round(key, RoundWord::Adopted));
            if self.watched.broken(Planted::BaseUnsynced) {
                self.say_in_round(key, RoundWord::Adopted);
            }
            return;
        }
        let donor = View {
            members: view
                .members
                .iter()
                .filter(|m| m.uid == plan.donor || m.uid == self.me)
                .cloned()
                .collect(),
            ..view.clone()
        };
        self.adopting = Some((plan.clone(), donor));
        let backlog = Backlog::since(durable.round.key, view.clone());
        self.begin_fetch(backlog, None);
        self.fetch_more(now);
    }

    /// Begins to fetch a state: at once, or after a pause if it was asked for before.
    fn begin_fetch(&mut self, backlog: Backlog, asked: Option<Time>) {
        let mut fetch = Fetch::insisting(asked);
        if let Some(closed) = &self.closed {
            fetch.keep(self.settings.digest, &closed.state_parts(self.watched));
        }
        self.arriving = Some(Arriving { machine: None, backlog, fetch });
    }

    /// Opens the service: all servers of the plan have the same state on disk.
    fn open(&mut self, now: Time, seqno: Seqno, plan: &Plan) {
        let (Some(durable), Some(view)) = (&mut self.durable, &self.view) else { return };
        let Some(mut state) = self.closed.take() else { return };
        durable.stage = Stage::Open;
        let opened = state.open((seqno, view.clone()), plan, durable.block.anew.clone());
        durable.first = state.ledger().map(|ledger| ledger.end());
        self.begin_with(now, state);
        self.note_applied(opened);
        self.durable.iter_mut().for_each(Durable::note_awaited);
        self.begin_marks();
        self.apply_durable(false);
        self.work(now);
    }

    // --- a server that joins ---

    fn begin_joining(&mut self, now: Time, seqno: Seqno) {
        let (Some(durable), Some(view)) = (&mut self.durable, &self.view) else { return };
        if durable.stage != Stage::Closed {
            return;
        }
        durable.begin_joining(now);
        self.adopting = None;
        let backlog = Backlog::since(seqno, view.clone());
        self.begin_fetch(backlog, None);
        self.fetch_more(now);
    }

    /// Takes the state that has arrived, in place of the one on disk, and has it written.
    pub(super) fn take_state_to_disk(
        &mut self,
        now: Time,
        (at, parts): (Seqno, Vec<bytes::Bytes>),
        (backlog, mut fetch, donor): (Backlog, Fetch, Option<Uid>),
    ) {
        let Some(durable) = &mut self.durable else { return };
        // A member that has opened the service may ask one that has not yet, and a donor may be further than its round.
        if Replicated::<S>::is_open(&parts) == self.adopting.is_some() {
            self.begin_fetch(backlog, Some(now));
            return self.fetch_more(now);
        }
        let Some(closed) = self.closed.take() else { return };
        let (state, replaced) = closed.replaced((at, &parts), backlog.view_at(at), &self.settings);
        match replaced {
            Ok(()) => {}
            Err(NotReplaced::AsBefore(reason)) => {
                self.closed = Some(state);
                fetch.give_up(donor, reason);
                self.arriving = Some(Arriving { machine: None, backlog, fetch });
                return;
            }
            Err(NotReplaced::Spoiled(reason)) => {
                let machine = Some(state.into_machine());
                let (backlog, fetch) = (Backlog::default(), Fetch::new());
                self.arriving = Some(Arriving { machine, backlog, fetch });
                return self.stop(StopReason::NotRestored(reason));
            }
        }
        let Some(ledger) = state.ledger() else { return };
        let (servers, durability) = ledger.options();
        let own = (durable.block.servers, durable.block.durability);
        if (servers, durability) != own {
            self.closed = Some(state);
            return self.stop(match servers == own.0 {
                true => StopReason::OtherDurability,
                false => StopReason::OtherServers,
            });
        }
        let known = ledger.heard().get(&durable.block.server).copied().unwrap_or_default();
        let (service, anew) = ledger.service();
        // What a recovery chose is of this service.
        if self.adopting.is_none()
            && let Created::Done(own) = durable.block.created
            && own != service
        {
            let reason = match anew.iter().any(|escape| escape.service == own) {
                true => StopReason::DiskGivenUp,
                false if durable.is_alone => StopReason::NothingLost,
                false => StopReason::DiskOfOther,
            };
            self.closed = Some(state);
            return self.stop(reason);
        }
        if durable.is_blank()
            && !durable.replaces
            && known != Heard::default()
            && known.disk != durable.block.disk
        {
            self.closed = Some(state);
            return self.stop(StopReason::ReplaceNeeded);
        }
        let snapshot =
            (ledger.applied() > 0).then(|| (ledger.applied(), parts.get(1..).unwrap_or_default().to_vec()));
        let entries = ledger.pending().cloned().collect();
        let heard = ledger.heard().clone();
        match self.adopting.take() {
            Some((plan, _)) => {
                let key = durable.round.key;
                durable.take_chosen(&plan);
                let after = After::Round(key, RoundWord::Adopted);
                durable.adopt(snapshot, entries, heard, after, self.watched);
                self.closed = Some(state);
                if self.watched.broken(Planted::BaseUnsynced) {
                    self.say_in_round(key, RoundWord::Adopted);
                }
            }
            None => {
                durable.stage = Stage::Open;
                durable.block.generation = ledger.generation();
                durable.block.promised = durable.block.promised.max(ledger.generation());
                let (service, anew) = ledger.service();
                (durable.block.service, durable.block.anew) = (service, anew.to_vec());
                durable.block.created = Created::Done(service);
                durable.block.view = ledger.view();
                if known != Heard::default() && known.disk != durable.block.disk {
                    durable.block.starts = known.starts_of_replacement();
                }
                durable.adopt(snapshot, entries, heard, After::Joined, self.watched);
                self.begin_with(now, state);
                for event in backlog.after(at) {
                    self.apply(&event);
                }
                self.begin_marks();
            }
        }
        self.work(now);
    }

    // --- an open server ---

    /// Tells newcomers that the service is open, and has the others count this server's disk again after a reset.
    pub(super) fn after_change(&mut self, event: &Event) {
        let is_open = self.durable.as_ref().is_some_and(|durable| durable.stage == Stage::Open);
        match event {
            Event::Joined { .. } if is_open => self.say(Word::IsOpen),
            // The reset may have dropped the last announcement, and readers would wait for it for ever (H82).
            Event::Reset { .. } if is_open => {
                let synced = self.durable.as_ref().map_or(0, Durable::synced);
                self.announce(synced);
                self.announce_view();
            }
            _ => {}
        }
    }

    /// With durability one: has the present view written, if it is another than the last one that was written here.
    pub(super) fn write_view(&mut self) {
        let (Some(durable), Some(state)) = (&mut self.durable, &self.replicated) else { return };
        let Some(ledger) = state.ledger().filter(|_| durable.stage == Stage::Open) else { return };
        let Some(view) = ledger.view().filter(|(_, members)| members.contains(&durable.block.server)) else {
            return;
        };
        if durable.block.view.as_ref() != Some(&view) && !self.watched.broken(Planted::ViewUnwritten) {
            durable.write_view(view, ledger.heard(), self.watched);
        }
    }

    /// Has written down what was heard of a disk that joined: it may replace another one, which must not count any more.
    pub(super) fn write_heard(&mut self) {
        let (Some(durable), Some(state)) = (&mut self.durable, &self.replicated) else { return };
        if let Some(ledger) = state.ledger().filter(|_| durable.stage == Stage::Open) {
            durable.write_heard(ledger.heard());
        }
    }

    fn announce_view(&mut self) {
        if let Some(durable) = self.durable.as_ref().filter(|durable| durable.stage == Stage::Open)
            && let Some((generation, number)) = durable.view_on_disk()
        {
            self.submit(Word::ViewWritten { generation, number });
        }
    }

    /// Logs an event that this life held when it ended. With durability one, others may have answered it.
    pub(super) fn keep(&mut self, now: Time, event: &Event) {
        let keeps = self.durable.as_ref().is_some_and(Durable::keeps_what_it_held);
        if !keeps || self.watched.broken(Planted::SurvivorForgets) {
            return;
        }
        let Some(state) = &mut self.replicated else { return };
        if let Applied::Logged(entry) = state.apply(event, self.me, self.watched) {
            self.write_entry(entry, true);
            self.work(now);
        }
    }

    /// Says how far the disk is: with durability *one* in the order, since there it matters in which view an entry was
    /// written; otherwise by a mark.
    fn announce(&mut self, place: super::Place) {
        let Some(durable) = self.durable.as_ref().filter(|durable| durable.stage == Stage::Open) else {
            return;
        };
        if durable.block.durability == DiskDurability::Majority {
            return self.say_mark();
        }
        if place > 0 {
            let generation = durable.block.generation;
            self.submit(Word::Synced { generation, place });
        }
    }

    // --- marks ---

    /// Says the present mark, which counts at once here.
    fn say_mark(&mut self) {
        let Some(durable) = &mut self.durable else { return };
        let Some(mark) = durable.mark(self.watched) else { return };
        let at_once = durable.say_mark(mark);
        self.outputs.push_back(Output::Note { note: mark.write(), at_once });
        self.count_marks(&[(self.me, mark)]);
    }

    /// Handles the note of another member.
    pub(super) fn hear_mark(&mut self, now: Time, member: Uid, note: Bytes) {
        let Some(durable) = &mut self.durable else { return };
        let Some(mark) = Mark::read(note) else {
            durable.bad_marks += 1;
            return;
        };
        durable.marks.keep(member, mark);
        self.count_marks(&[(member, mark)]);
        self.work(now);
    }

    /// Counts marks if this server is open, and applies what has become durable.
    fn count_marks(&mut self, marks: &[(Uid, Mark)]) {
        let Some(state) = &mut self.replicated else { return };
        for (member, mark) in marks {
            let is_bad = !state.note_mark(*member, *mark);
            self.durable.iter_mut().for_each(|durable| durable.bad_marks += u64::from(is_bad));
        }
        self.apply_durable(false);
        self.serve_reads();
        self.answer_parked();
    }

    /// Counts the marks that came before this server was open, and says its own.
    fn begin_marks(&mut self) {
        let theirs = self.durable.as_ref().map_or_else(Vec::new, |durable| durable.marks.theirs());
        self.count_marks(&theirs);
        self.say_mark();
    }

    /// Applies the entries that have become durable. `reads` is true if a read asks for it.
    pub(super) fn apply_durable(&mut self, reads: bool) {
        let me = self.durable.as_ref().map_or(0, |durable| durable.block.server);
        let mut has_prepared = false;
        while let Some(state) = &mut self.replicated
            && !self.is_stopped
            && let Some((applied, is_due)) = state.apply_durable(me, reads, self.watched)
        {
            if let Some(durable) = self.durable.as_mut().filter(|_| is_due) {
                durable.note_snapshot_due();
            }
            // Commands wait for what is prepared: once for all that are applied now.
            let place = state.ledger().map_or(0, |ledger| ledger.applied());
            if let Some(durable) = self.durable.as_mut().filter(|durable| durable.is_snapshot_due(place))
                && !core::mem::replace(&mut has_prepared, true)
                && durable.note_prepared(state.prepare())
                && let Some(ledger) = state.ledger()
            {
                let parts = state.state_parts(self.watched);
                let place = match self.watched.broken(Planted::SnapshotBeyondApplied) {
                    true => ledger.end(),
                    false => ledger.applied(),
                };
                let after = ledger.pending().skip((place - ledger.applied()) as usize);
                durable.write_snapshot(place, parts, after.cloned().collect(), ledger.heard());
            }
            self.note_applied(applied);
        }
        self.serve_once_durable();
    }

    /// Serves callers from when the generation that this server opened has begun: its first entry is durable, and so is
    /// everything before it. Until then the administrator's word counts, since a later round may have to begin anew.
    fn serve_once_durable(&mut self) {
        let (Some(durable), Some(state)) = (&mut self.durable, &self.replicated) else { return };
        let applied = state.ledger().map_or(0, |ledger| ledger.applied());
        if durable.first.is_some_and(|first| first <= applied) {
            (durable.first, durable.is_alone) = (None, false);
            self.outputs.push_back(Output::Informed);
            self.claim_handlers();
        }
    }

    /// True if this server's disk is one of those for which the caller of a command waits, that `receiver` received: with
    /// durability *majority*, those of the receiver and of the next in rank order, as many as make a majority of the servers.
    /// The others write it with what comes next, or a little later.
    pub(super) fn writes_at_once(&self, receiver: Uid) -> bool {
        let (Some(durable), Some(view)) = (&self.durable, &self.view) else { return true };
        if durable.block.durability != DiskDurability::Majority {
            return true;
        }
        let rank = |uid| view.members.iter().position(|member| member.uid == uid);
        let (Some(receiver), Some(me)) = (rank(receiver), rank(self.me)) else { return true };
        let behind = (me + view.members.len() - receiver) % view.members.len();
        behind <= usize::from(durable.block.servers) / 2
    }

    /// Has an entry of the log written, at once or with what comes next.
    pub(super) fn write_entry(&mut self, entry: bytes::Bytes, at_once: bool) {
        let Some(durable) = &mut self.durable else { return };
        durable.append(entry, at_once);
        if self.watched.broken(Planted::AnnouncedUnsynced)
            && let Some(end) =
                self.replicated.as_ref().and_then(Replicated::ledger).map(|ledger| ledger.end())
        {
            self.announce(end);
        }
    }

    /// Begins the next job, and says what this server has as soon as its disk has all of it.
    pub(super) fn work(&mut self, now: Time) {
        let Some(durable) = &mut self.durable else { return };
        let state = self.replicated.as_ref().or(self.closed.as_ref());
        let empty = BTreeMap::new();
        let heard = state.and_then(Replicated::ledger).map_or(&empty, |ledger| ledger.heard());
        if let Some((number, job)) = durable.next_job(now, heard) {
            self.outputs.push_back(Output::Store(number, Box::new(job)));
        }
        if durable.has_to_say && durable.is_idle() && durable.stage == Stage::Closed && !self.is_stopped {
            durable.has_to_say = false;
            let (key, said) = (durable.round.key, durable.said(heard.clone(), self.watched));
            self.say(Word::Round { key, word: RoundWord::Said(said) });
        }
    }

    /// Ends this life if the disk hangs or no donor is found. Writes what has waited for long enough.
    pub(super) fn check_disk(&mut self, now: Time) {
        if self.durable.as_ref().and_then(Durable::writes_at).is_some_and(|at| at <= now) {
            self.work(now);
        }
        let has_donor = self.fetching().is_some_and(|progress| progress.bytes_total > 0);
        let Some(durable) = &mut self.durable else { return };
        if durable.hangs(now) {
            return self.stop(StopReason::DiskHangs);
        }
        if self.view.is_some() && !self.is_stopped && durable.begins_to_stall(now) {
            let key = durable.round.key;
            return self.say_in_round(key, RoundWord::Stalls);
        }
        let seeks = durable.joining_since.filter(|_| durable.stage == Stage::Joining);
        if let Some(since) = seeks
            && since + SEEKS_DONOR_MAX <= now
        {
            match has_donor {
                true => durable.joining_since = Some(now),
                false => self.reenter(),
            }
        }
    }

    pub(super) fn disk_wakes_at(&self) -> Option<Time> {
        let durable = self.durable.as_ref()?;
        let seeks = durable.joining_since.filter(|_| durable.stage == Stage::Joining);
        let stalls = durable.stalls_at().filter(|_| self.view.is_some());
        let wakes = earlier(durable.looks_at(), durable.writes_at());
        earlier(earlier(wakes, stalls), seeks.map(|since| since + SEEKS_DONOR_MAX))
    }

    /// Ends this life; the next one enters a group, or forms one with other servers.
    pub(super) fn reenter(&mut self) {
        if !self.is_stopped {
            self.end();
            self.outputs.push_back(Output::Reenter);
        }
    }
}
