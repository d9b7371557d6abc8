//! What members have to say, taken and passed on as a driver would.
//!
//! After each input of a member its marks are noted, its datagrams sent, and the events that its application takes
//! handed out, before or after the datagrams. A crash may fall in between.

use super::{Cue, Happening, Tidings, World};
use crate::network::{DatagramId, Fate, Path};
use crate::process::Resident;
use crate::record::{Kind, Life, Listener, What, mark_changes};
use crate::recorder::Recorder;
use crate::trap::{Deed, FrameSet};
use crate::words;
use unisono_core::{Destination, EpochTag, Event, Marks, MessageNumber, Outcome};

/// What a member's driver found when it took what the member had to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drained {
    Alive,
    Crashed,
}

/// Notes what it is told of one life.
struct Witness<'a> {
    recorder: &'a mut Recorder,
    now: u64,
    process: usize,
    life: Life,
}

/// Marks that hardly ever move.
const RARE: u32 =
    Kind::EpochBegun.bit() | Kind::Promised.bit() | Kind::Prepared.bit() | Kind::HistoryUsed.bit();

impl Listener for Witness<'_> {
    #[inline(always)]
    fn tell(&mut self, what: What) {
        if what.kind().bit() & RARE == 0 {
            self.recorder.note(self.now, self.process, self.life, what);
        } else {
            self.tell_rare(what);
        }
    }
}

impl Witness<'_> {
    #[inline(never)]
    fn tell_rare(&mut self, what: What) {
        self.recorder.note(self.now, self.process, self.life, what);
    }
}

/// Notes an event that is no message. What its application may want to answer is returned.
#[inline(never)]
fn note_change(
    recorder: &mut Recorder,
    now: u64,
    process: usize,
    resident: &mut Resident,
    event: &Event,
) -> Option<Tidings> {
    recorder.latest_view.change(resident.counter, event);
    match event {
        Event::Entered { view, .. } | Event::Reset { view, .. } => {
            resident.view = view.members.iter().map(|member| member.uid).collect();
        }
        Event::Joined { member, .. } => resident.view.push(member.uid),
        Event::Left { member, .. } => resident.view.retain(|uid| *uid != member.uid),
        // Its join may be in the order: for those who wait for it, it is as good as dead.
        Event::JoinFailed { .. } => recorder.crashed.push(resident.uid),
        _ => {}
    }
    let what = recorder.names.event(event);
    recorder.note(now, process, resident.life, what);
    match event {
        Event::Entered { .. } => Some(Tidings::Entered),
        Event::Suspected { .. } => Some(Tidings::Suspected),
        Event::Excluded { .. } | Event::Gone | Event::JoinFailed { .. } | Event::Conflict { .. } => {
            resident.is_over = true;
            Some(Tidings::Over)
        }
        _ => None,
    }
}

/// More datagrams than this after one input, and something floods.
const FLOOD_DATAGRAMS: u32 = 20_000;

impl World {
    /// Takes what a member has to say after an input, as its driver would.
    pub(super) fn drain(&mut self, process: usize) {
        if self.speak(process) == Drained::Crashed {
            self.crash(process);
        } else {
            self.schedule(process);
        }
    }

    fn speak(&mut self, process: usize) -> Drained {
        let Some(resident) = &mut self.processes[process].resident else { return Drained::Alive };
        let events_first = resident.events_first;
        let copies_max = match &mut resident.doom {
            Some(doom) if doom.inputs > 0 => {
                doom.inputs -= 1;
                u32::MAX
            }
            Some(doom) => doom.copies,
            None => u32::MAX,
        };
        self.note_state(process);
        if events_first {
            self.take_events(process);
        }
        let mut drained = self.transmit(process, copies_max);
        self.note_state(process);
        if drained == Drained::Alive && !events_first {
            self.take_events(process);
        }
        if drained == Drained::Alive && self.events_matter(process) {
            // What the application took moves a watermark, which may be worth telling.
            drained = self.transmit(process, copies_max);
            self.note_state(process);
        }
        if copies_max == u32::MAX { drained } else { Drained::Crashed }
    }

    /// Whatever an input or sending moved is noted before anybody can see what came of it.
    #[inline(always)]
    fn note_state(&mut self, process: usize) {
        if self.processes[process].resident.as_ref().is_some_and(|resident| resident.group.has_news()) {
            self.note_marks(process);
            self.take_results(process);
        }
    }

    #[inline]
    fn note_marks(&mut self, process: usize) {
        if let Some(resident) = &mut self.processes[process].resident
            && resident.group.has_moved_from(&resident.marks)
        {
            self.note_moved_marks(process);
        }
    }

    #[inline(never)]
    fn note_moved_marks(&mut self, process: usize) {
        let Some(resident) = &mut self.processes[process].resident else { return };
        let marks = resident.group.marks();
        if marks.epoch != EpochTag::OUTSIDE {
            if marks.epoch != resident.marks.epoch {
                let info = resident.group.info();
                resident.epoch = self.recorder.names.epoch_of_tag(marks.epoch, || info.epoch);
                resident.counter = info.epoch.counter;
                self.recorder.latest_view.enter(&info);
            }
            let (life, epoch, now) = (resident.life, resident.epoch, self.now);
            let next = marks.prepared.map(|prepared| self.recorder.names.epoch(prepared.epoch));
            let recorder = &mut self.recorder;
            let mut witness = Witness { recorder, now, process, life };
            mark_changes(&resident.marks, &marks, epoch, next, &mut witness);
        }
        let history = marks.history.max(resident.marks.history.min(self.history_messages));
        resident.marks = Marks { history, ..marks };
    }

    #[inline]
    fn take_results(&mut self, process: usize) {
        while let Some(resident) = &mut self.processes[process].resident
            && let Some((number, outcome)) = resident.group.poll_sent()
        {
            self.take_result(process, number, outcome);
        }
    }

    #[inline(never)]
    fn take_result(&mut self, process: usize, number: MessageNumber, outcome: Outcome) {
        let Some(resident) = &self.processes[process].resident else { return };
        if let Some(diary) = &mut self.diary {
            diary.result(process, number, &outcome);
        }
        self.recorder.note(self.now, process, resident.life, What::SendResult { number, outcome });
    }

    fn events_matter(&self, process: usize) -> bool {
        self.processes[process].resident.as_ref().is_some_and(|resident| resident.group.events_matter())
    }

    fn take_events(&mut self, process: usize) {
        let Some(resident) = &mut self.processes[process].resident else { return };
        if resident.takes_events_from > self.now {
            return;
        }
        while let Some(event) = resident.group.poll_event() {
            if let Some(diary) = &mut self.diary {
                diary.event(process, &event);
            }
            if let Event::Message { seqno, sender, number, payload } = event {
                let what = self.recorder.names.delivered(seqno, sender, number, &payload);
                self.recorder.note(self.now, process, resident.life, what);
            } else if let Some(tidings) = note_change(&mut self.recorder, self.now, process, resident, &event)
            {
                let cue = Cue::Told { process: process as u16, life: resident.life, tidings };
                self.queue.push(self.now, Happening::Cue(cue));
            }
        }
    }

    /// Sends what a member has to send, at most so many copies.
    fn transmit(&mut self, from: usize, copies_max: u32) -> Drained {
        let (mut datagrams, mut copies_left) = (0, copies_max);
        loop {
            let Some(resident) = &mut self.processes[from].resident else { return Drained::Crashed };
            let local = resident.clock.read(self.now);
            let Some(destination) = resident.group.poll_transmit(local, &mut self.outgoing) else {
                return Drained::Alive;
            };
            let id = self.network.store(from, &mut self.outgoing);
            // What the application has just taken may have made room for more: then the marks move only here.
            self.note_marks(from);
            self.recorder.totals.datagrams += 1;
            datagrams += 1;
            let drained = self.dispatch(id, from, destination, &mut copies_left);
            self.network.release(id);
            if drained == Drained::Crashed {
                return drained;
            }
            if datagrams > FLOOD_DATAGRAMS {
                self.accuse("output_ends", format!("m{from}: {datagrams} datagrams after one input"));
                return Drained::Alive;
            }
        }
    }

    /// Sends the copies of one datagram.
    fn dispatch(
        &mut self,
        id: DatagramId,
        from: usize,
        destination: Destination,
        copies_left: &mut u32,
    ) -> Drained {
        let frames = if self.traps.is_empty() { FrameSet::default() } else { self.frames(id) };
        if self.recorder.is_traced() {
            self.trace_datagram(id, from, destination);
        }
        match destination {
            Destination::Address(address) => match self.network.process_at(address) {
                Some(to) => self.copy(id, frames, from, to, copies_left),
                None => Drained::Alive,
            },
            Destination::Multicast => self.multicast(id, frames, from, copies_left),
            Destination::Rendezvous => (0..self.processes.len())
                .filter(|to| *to != from)
                .map(|to| self.copy(id, frames, from, to, copies_left))
                .find(|drained| *drained == Drained::Crashed)
                .unwrap_or(Drained::Alive),
            Destination::Everyone => {
                let Some(resident) = &self.processes[from].resident else { return Drained::Crashed };
                let audience = resident.group.audience();
                let (is_multicast, count) = (audience.multicast, audience.addresses.len());
                if is_multicast && self.multicast(id, frames, from, copies_left) == Drained::Crashed {
                    return Drained::Crashed;
                }
                for i in 0..count {
                    let Some(resident) = &self.processes[from].resident else { return Drained::Crashed };
                    let Some(to) = self.network.process_at(resident.group.audience().addresses[i]) else {
                        continue;
                    };
                    if self.copy(id, frames, from, to, copies_left) == Drained::Crashed {
                        return Drained::Crashed;
                    }
                }
                Drained::Alive
            }
        }
    }

    fn multicast(&mut self, id: DatagramId, frames: FrameSet, from: usize, copies_left: &mut u32) -> Drained {
        if *copies_left == 0 {
            return Drained::Crashed;
        }
        *copies_left -= 1;
        self.network.leaves(id);
        if self.network.lost_at_sender(from) {
            return Drained::Alive;
        }
        let mut drained = Drained::Alive;
        for to in 0..self.processes.len() {
            let hears =
                if to == from { self.network.weather.echo } else { self.processes[to].resident.is_some() };
            if !hears {
                continue;
            }
            // All copies leave in one go: a crash comes before them or after them.
            match self.traps.spring(frames, from, to) {
                Some(Deed::Drop) => continue,
                Some(Deed::CrashBefore) => return Drained::Crashed,
                Some(Deed::CrashAfter) => drained = Drained::Crashed,
                Some(Deed::Pause(duration)) => self.pause(from, duration),
                None => {}
            }
            self.post(id, from, to, Path::Multicast);
        }
        drained
    }

    fn copy(
        &mut self,
        id: DatagramId,
        frames: FrameSet,
        from: usize,
        to: usize,
        copies_left: &mut u32,
    ) -> Drained {
        if *copies_left == 0 {
            return Drained::Crashed;
        }
        *copies_left -= 1;
        self.network.leaves(id);
        let deed = self.traps.spring(frames, from, to);
        match deed {
            Some(Deed::Drop) => {
                self.recorder.tell(self.now, "trap", format_args!("drops a copy from m{from} to m{to}"));
                return Drained::Alive;
            }
            Some(Deed::CrashBefore) => return Drained::Crashed,
            Some(Deed::Pause(duration)) => self.pause(from, duration),
            Some(Deed::CrashAfter) | None => {}
        }
        self.post(id, from, to, Path::Unicast);
        if deed == Some(Deed::CrashAfter) { Drained::Crashed } else { Drained::Alive }
    }

    fn post(&mut self, id: DatagramId, from: usize, to: usize, path: Path) {
        if self.processes[to].resident.is_none() {
            return;
        }
        let fate = self.network.post(&mut self.queue, self.now, id, to, path);
        if self.recorder.is_traced() && fate != Fate::Sent {
            self.recorder.tell(self.now, "network", format_args!("{fate:?}: a copy from m{from} to m{to}"));
        }
    }

    /// Sees to it that a member's next deadline is in the queue.
    pub(super) fn schedule(&mut self, process: usize) {
        let place = &mut self.processes[process];
        let Some(resident) = &place.resident else { return };
        let Some((deadline, _)) = resident.group.poll_timeout() else { return };
        if place.timer.is_some() && place.deadline == deadline {
            return;
        }
        place.deadline = deadline;
        let moment = resident.clock.moment(deadline).max(self.now);
        if place.timer.is_none_or(|timer| moment < timer) && moment != u64::MAX {
            place.timer = Some(moment);
            self.queue.push(moment, Happening::Timer { process: process as u16 });
        }
    }

    fn frames(&self, id: DatagramId) -> FrameSet {
        words::frames(self.network.read(id).0)
    }

    fn trace_datagram(&mut self, id: DatagramId, from: usize, destination: Destination) {
        let to = match destination {
            Destination::Address(address) => match self.network.process_at(address) {
                Some(to) => format!("m{to}"),
                None => address.to_string(),
            },
            other => format!("{other:?}"),
        };
        let words = words::datagram(self.network.read(id).0, &self.recorder.names);
        let life = self.processes[from].resident.as_ref().map_or(Life::NOBODY, |resident| resident.life);
        self.recorder.tell(self.now, &format!("m{from}/{}", life.0), format_args!("-> {to}: {words}"));
    }
}
