//! Takes the output of sides and passes it on, as the library's engine would.
//!
//! After each input of a side the world records what changed, sends the side's datagrams, and hands its events to the
//! application, before or after the datagrams. A crash may occur in between.

use super::{Happening, Side, World};
use crate::frame_faults::{FaultAction, FrameSet};
use crate::network::{DatagramId, Fate, Path};
use crate::record::Life;
use crate::words;
use unisono_core::rpc::CALLS_TAG;
use unisono_core::wire::Header;
use unisono_core::{Destination, Uid};

/// State of a life after its output was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drained {
    Alive,
    Crashed,
}

/// Returns the packet number of a new datagram if its life may have sealed another one under it: numbers rise. `sealed`
/// contains the last numbers of the life's group and endpoint, which have keys of their own.
fn reused_number(uid: Uid, sealed: &mut [u64; 2], datagram: &[u8]) -> Option<u64> {
    // A hostile client has several lives at its address.
    let header = Header::parse(datagram).ok().filter(|header| header.sender == uid)?;
    let last = &mut sealed[usize::from(header.group == CALLS_TAG)];
    let is_reused = header.number <= std::mem::replace(last, header.number);
    is_reused.then_some(header.number)
}

/// Most datagrams after one input; more show that a side sends without end.
const FLOOD_DATAGRAMS: u32 = 20_000;

impl<S: Side> World<S> {
    /// Takes the output of a side after an input. Then crashes the life or schedules its next deadline.
    pub(super) fn drain(&mut self, process: usize) {
        if self.take_output(process) == Drained::Crashed {
            self.crash(process);
        } else {
            self.schedule(process);
        }
    }

    fn take_output(&mut self, process: usize) -> Drained {
        let Some(resident) = &mut self.processes[process].resident else { return Drained::Alive };
        let events_first = resident.events_first;
        let copies_max = match &mut resident.scheduled_crash {
            Some(scheduled_crash) if scheduled_crash.inputs > 0 => {
                scheduled_crash.inputs -= 1;
                u32::MAX
            }
            Some(scheduled_crash) => scheduled_crash.copies,
            None => u32::MAX,
        };
        S::note(self, process);
        if events_first {
            S::hand_out(self, process);
        }
        let mut drained = self.transmit(process, copies_max);
        S::note(self, process);
        if drained == Drained::Alive && !events_first {
            S::hand_out(self, process);
        }
        if drained == Drained::Alive && self.may_have_more_output(process) {
            // Taking events may move a watermark, for example, which may have to be reported.
            drained = self.transmit(process, copies_max);
            S::note(self, process);
        }
        if copies_max == u32::MAX { drained } else { Drained::Crashed }
    }

    fn may_have_more_output(&self, process: usize) -> bool {
        self.processes[process].resident.as_ref().is_some_and(|resident| resident.side.may_have_more_output())
    }

    /// Sends the datagrams of a side, at most `copies_max` copies.
    fn transmit(&mut self, from: usize, copies_max: u32) -> Drained {
        let (mut datagrams, mut copies_left) = (0, copies_max);
        loop {
            let Some(resident) = &mut self.processes[from].resident else { return Drained::Crashed };
            let local = resident.clock.read(self.now);
            let Some(destination) = resident.side.poll_transmit(local, &mut self.outgoing) else {
                return Drained::Alive;
            };
            if let Some(number) = reused_number(resident.uid, &mut resident.sealed, &self.outgoing) {
                self.report_violation("nonce", format!("m{from}: number {number} was sealed before"));
                return Drained::Alive;
            }
            let id = self.network.store(from, &mut self.outgoing);
            S::note_datagram(self, from);
            self.recorder.note_datagram(self.now, from, destination, self.network.read(id).0);
            datagrams += 1;
            let drained = self.dispatch(id, from, destination, &mut copies_left);
            self.network.release(id);
            if drained == Drained::Crashed {
                return drained;
            }
            if datagrams > FLOOD_DATAGRAMS {
                self.report_violation(
                    "output_ends",
                    format!("m{from}: {datagrams} datagrams after one input"),
                );
                return Drained::Alive;
            }
        }
    }

    /// Sends all copies of one datagram.
    fn dispatch(
        &mut self,
        id: DatagramId,
        from: usize,
        destination: Destination,
        copies_left: &mut u32,
    ) -> Drained {
        let frames = if self.frame_faults.is_empty() { FrameSet::default() } else { self.frames(id) };
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
                let (is_multicast, addresses) = resident.side.audience();
                let count = addresses.len();
                if is_multicast && self.multicast(id, frames, from, copies_left) == Drained::Crashed {
                    return Drained::Crashed;
                }
                for i in 0..count {
                    let Some(resident) = &self.processes[from].resident else { return Drained::Crashed };
                    let Some(to) = self.network.process_at(resident.side.audience().1[i]) else {
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
        S::note_multicast(self, from);
        self.network.count_datagram(id);
        if self.network.lost_at_sender(from) {
            return Drained::Alive;
        }
        let mut drained = Drained::Alive;
        for to in 0..self.processes.len() {
            let receives =
                if to == from { self.network.conditions.echo } else { self.processes[to].resident.is_some() };
            if !receives {
                continue;
            }
            // All copies of a multicast are sent at once: a crash comes before or after all of them.
            match self.frame_faults.strike(frames, from, to) {
                Some(FaultAction::Drop) => continue,
                Some(FaultAction::CrashBefore) => return Drained::Crashed,
                Some(FaultAction::CrashAfter) => drained = Drained::Crashed,
                Some(FaultAction::Pause(duration)) => self.pause(from, duration),
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
        self.network.count_datagram(id);
        let action = self.frame_faults.strike(frames, from, to);
        match action {
            Some(FaultAction::Drop) => {
                self.recorder.trace(self.now, "fault", format_args!("drops a copy from m{from} to m{to}"));
                return Drained::Alive;
            }
            Some(FaultAction::CrashBefore) => return Drained::Crashed,
            Some(FaultAction::Pause(duration)) => self.pause(from, duration),
            Some(FaultAction::CrashAfter) | None => {}
        }
        self.post(id, from, to, Path::Unicast);
        if action == Some(FaultAction::CrashAfter) { Drained::Crashed } else { Drained::Alive }
    }

    fn post(&mut self, id: DatagramId, from: usize, to: usize, path: Path) {
        if self.processes[to].resident.is_none() {
            return;
        }
        let fate = self.network.post(&mut self.queue, self.now, id, to, path);
        if self.recorder.is_traced() && fate != Fate::Sent {
            self.recorder.trace(self.now, "network", format_args!("{fate:?}: a copy from m{from} to m{to}"));
        }
    }

    /// Puts a side's next deadline into the queue, unless it is there already.
    pub(super) fn schedule(&mut self, process: usize) {
        let place = &mut self.processes[process];
        let Some(resident) = &place.resident else { return };
        let Some((deadline, _)) = resident.side.poll_timeout() else { return };
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
        let text = words::datagram(self.network.read(id).0, &self.recorder.names);
        let life = self.processes[from].resident.as_ref().map_or(Life::WORLD, |resident| resident.life);
        self.recorder.trace(self.now, &format!("m{from}/{}", life.0), format_args!("-> {to}: {text}"));
    }
}
