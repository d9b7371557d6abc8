//! How lives of servers end, what their disks and memories suffer, and what is recorded of the whole run.

use super::server::Over;
use super::{Former, ReplicaSide};
use crate::record::{self, DirectoryRecord, Life, ReplicaRecord, What};
use crate::world::{Side, World};
use bytes::Bytes;
use unisono_core::{Event, Migration, Order, Phase, Time};

impl World<ReplicaSide> {
    /// Lets a server's program end its copy: at once, or by a leave if `leaves` and the state does not go with it.
    pub(crate) fn end_server(&mut self, process: usize, leaves: bool) {
        if self.is_paused(process) {
            return;
        }
        self.with(process, |side, cx| {
            let Some(server) = side.server.as_deref_mut().filter(|server| server.over.is_none()) else {
                return;
            };
            if !server.replica.may_leave() {
                return;
            }
            server.replica.end();
            cx.note(ReplicaRecord::Out);
            server.take_outputs(cx, &mut side.endpoint);
            let has_left = leaves && server.group.leave(cx.local, Bytes::new()).is_ok();
            if !has_left {
                server.leave_service(cx, &mut side.endpoint);
            }
        });
        self.drain(process);
    }

    /// Lets a server's program, whose leave has not ended in time, end its copy at once.
    pub(crate) fn stop_leaving(&mut self, process: usize) {
        let mut is_leaving = false;
        self.with(process, |side, cx| {
            if let Some(server) = side.server.as_deref_mut()
                && server.group.phase() == Phase::Leaving
            {
                server.leave_service(cx, &mut side.endpoint);
                is_leaving = true;
            }
        });
        if is_leaving {
            self.drain(process);
        }
    }

    /// Lets a server that has not entered its group give up.
    pub(crate) fn give_up_entering(&mut self, process: usize) {
        self.with_copy(process, |server, cx| {
            if matches!(server.group.phase(), Phase::Locating | Phase::Joining) {
                // Its join may be in the order.
                cx.recorder.crashed.push(server.group.info().me);
                server.group.end(cx.local);
                server.end_part(cx, Over::JoinFailed);
            }
        });
    }

    /// Lets an operator ask a server for the other order: a token if the group has a sequencer, and otherwise a sequencer.
    pub(crate) fn switch(&mut self, process: usize) {
        self.with_copy(process, |server, cx| {
            let is_ring = server.group.info().order == Order::Token;
            let order = if is_ring { Order::Sequencer(Migration::OnRequest) } else { Order::Token };
            // The member refuses during a reset, or while another switch is under way; then nothing happens.
            let _ = server.group.change_order(cx.local, order);
        });
    }

    /// True if this operation did not happen.
    pub(crate) fn did_not_happen(&self, id: u32) -> bool {
        self.common.not_happened.contains(&id)
    }

    /// Makes the memory of a copy bad.
    pub(crate) fn corrupt(&mut self, process: usize) {
        self.with(process, |side, cx| {
            if let Some(server) = &side.server {
                server.watch.is_bad.set(true);
                cx.note(ReplicaRecord::Corrupted);
            }
        });
    }

    /// Takes what the next life of a server needs, and removes the life. `None` if it was no server.
    pub(crate) fn take_former(&mut self, process: usize) -> Option<Former> {
        self.keep_what_it_held(process);
        let resident = self.processes[process].resident.as_ref()?;
        resident.side.server.as_ref()?;
        self.probes |= resident.side.probes();
        self.recorder.totals.passes += resident.side.passes();
        if resident.side.is_needed() {
            self.recorder.crashed.push(resident.uid);
        }
        let resident = self.processes[process].resident.take()?;
        let (clock, side) = (resident.clock, resident.side);
        // The rest of the place is left as after a crash.
        self.retire(process);
        let server = *side.server?;
        Some(Former {
            clock,
            replica: server.replica,
            watch: server.watch,
            client: server.client,
            own: server.own,
            disk: server.disk,
        })
    }

    /// Hands a copy the events that its life held when it ended.
    fn keep_what_it_held(&mut self, process: usize) {
        self.with(process, |side, cx| {
            let Some(server) = side.server.as_deref_mut().filter(|server| server.disk.is_some()) else {
                return;
            };
            let mut held: Vec<Event> = std::iter::from_fn(|| server.group.poll_event()).collect();
            held.extend(std::iter::from_fn(|| server.group.poll_undelivered()));
            held.into_iter().for_each(|event| server.replica.handle_event(cx.local, event));
            server.note_steps(cx);
            server.take_outputs(cx, &mut side.endpoint);
        });
    }

    /// Records a fact of the whole run.
    pub(crate) fn note_world(&mut self, record: ReplicaRecord) {
        self.recorder.note(self.now, 0, Life::WORLD, What::Replica(Box::new(record)));
    }

    /// Records that a disk was replaced by a backup with this number. `remembered` is the number of commands in the backup's
    /// memory of commands.
    pub(crate) fn note_restored(&mut self, number: u64, remembered: usize) {
        let record = DirectoryRecord::Restored { number, remembered };
        self.recorder.note(self.now, 0, Life::WORLD, What::Directory(Box::new(record)));
    }

    /// Writes a line to the trace, if there is one.
    pub(crate) fn note_trace(&mut self, process: usize, text: &str) {
        self.recorder.trace(self.now, &format!("m{process}"), format_args!("{text}"));
    }

    /// Records where all copies are at the end of the run, and collects the probes.
    pub(crate) fn finish_replicas(&mut self) {
        for process in 0..self.processes.len() {
            self.with(process, |side, cx| {
                if let Some(server) = &side.server {
                    let at = server.place(cx).filter(|_| server.is_copy());
                    cx.note(ReplicaRecord::Final { at });
                }
            });
            if let Some(resident) = &self.processes[process].resident {
                self.probes |= resident.side.probes();
                self.recorder.totals.passes += resident.side.passes();
            }
        }
        let end = record::End { at: Time::from_nanos(self.now), ..record::End::default() };
        self.recorder.finish(&end);
    }
}
