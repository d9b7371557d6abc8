//! The simulated world: processes, the network between them, and one queue of future events.
//!
//! Each life in a process has a [`Side`] of a protocol: a member's side of a group (`group`), or a process's side of
//! all its calls (`calls`), or a process of a replicated service (`replica`). The world drives the sides and moves the datagrams. Decisions of applications, faults and
//! scripts are [`Trigger`]s: [`World::advance`] runs up to the next trigger and returns it to the director or script
//! that runs the world. After each input of a side the world takes its output, as the library's engine would, and
//! records what changed (`output`).

mod calls;
mod disk;
mod group;
mod output;
mod replica;

pub(crate) use calls::{CallBirth, CallCommon, CallSide, Job, Response, Service as CallService};
pub(crate) use disk::{Disk, DiskInUse, Image, JobFaults, JobKind};
pub(crate) use group::{GroupBirth, GroupCommon, GroupSide};
pub(crate) use replica::{
    AIMED, Aim, DiskBirth, Effect, EffectKind, Former, Heard, Over, Question, ReplicaBirth, ReplicaCommon,
    ReplicaSide, Seen, ServerBirth, WATCH, digest,
};

use crate::bugs::Planted;
use crate::clock::Clock;
use crate::event_log::EventLog;
use crate::frame_faults::FrameFaults;
use crate::network::{DatagramId, Network, Path};
use crate::outside::Step;
use crate::plan::Part;
use crate::process::{Arena, Process, Resident, SOCKET_DATAGRAMS_MAX, ScheduledCrash};
use crate::properties::Violation;
use crate::queue::Queue;
use crate::record::{Life, What};
use crate::recorder::Recorder;
use crate::words;
use bytes::BytesMut;
use std::fmt;
use std::net::SocketAddr;
use unisono_core::{ConfigError, Destination, Name, Random, Time, Uid};

/// One life's side of a protocol, driven according to the contract of the core.
pub(crate) trait Side: Sized {
    /// Data that all sides of a world share.
    type Common;
    /// Parameters of a new side.
    type Birth;

    fn begin(common: &Self::Common, context: BirthContext, birth: Self::Birth) -> Result<Self, ConfigError>;
    fn plant(&mut self, bug: Planted);
    fn probes(&self) -> u128;

    /// Returns how often it has passed a token on.
    fn passes(&self) -> u64 {
        0
    }

    fn handle(&mut self, now: Time, from: SocketAddr, datagram: BytesMut, path: Path);
    fn handle_timeout(&mut self, now: Time);
    fn poll_timeout(&self) -> Option<(Time, impl fmt::Debug)>;
    fn poll_transmit(&mut self, now: Time, datagram: &mut Vec<u8>) -> Option<Destination>;

    /// Returns what [`Destination::Everyone`] stands for: whether it includes the multicast address, and the unicast
    /// addresses.
    fn audience(&self) -> (bool, &[SocketAddr]) {
        (false, &[])
    }

    /// True if other members may still need this side.
    fn is_needed(&self) -> bool {
        true
    }

    /// Records what an input or sending changed.
    fn note(world: &mut World<Self>, process: usize);
    /// Records what changed when a datagram was made.
    fn note_datagram(_world: &mut World<Self>, _process: usize) {}
    /// Records a multicast that is sent now.
    fn note_multicast(_world: &mut World<Self>, _process: usize) {}
    /// Hands the application its events or requests.
    fn hand_out(world: &mut World<Self>, process: usize);
    /// True if taking events may have produced output to send.
    fn may_have_more_output(&self) -> bool;
}

/// Data of a new life for its side; times are by its own clock.
pub(crate) struct BirthContext {
    pub(crate) now: Time,
    pub(crate) uid: Uid,
    pub(crate) name: Name,
    pub(crate) address: SocketAddr,
    pub(crate) random: Random,
}

/// An entry of the world's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happening {
    /// A copy of a datagram reaches the end of its link.
    Arrival { datagram: DatagramId, to: u16, path: Path },
    /// A side's deadline has come, unless the side has changed it since.
    Timer { process: u16 },
    /// An application begins to take events again.
    Awake { process: u16 },
    /// A paused process resumes.
    Resume { process: u16 },
    /// A decision of the director or script is due.
    Trigger(Trigger),
}

/// A decision that the director or script has to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// An application may act.
    Act { process: u16, life: Life },
    /// A new life may begin on a process.
    Start { process: u16 },
    /// An application received an event to which it may react.
    Notice { process: u16, life: Life, notice: Notice },
    /// An application may continue with a request that it received.
    Work { process: u16, life: Life, job: u32 },
    /// A client cancels a call.
    Cancel { process: u16, life: Life, index: u32 },
    /// A server withdraws its services, or serves them again.
    Withdraw { process: u16, life: Life },
    /// Manual policy: an application that received a suspicion may request a reset.
    ResetAgain { process: u16, life: Life },
    /// A step of a client outside of the group.
    Outside(Step),
    /// A fault begins, continues or ends; the number is the fault injector's.
    Fault(u32),
    /// A member has entered another epoch.
    EpochBegun,
    /// The run enters its next part.
    Part(Part),
    /// A step of a script is due.
    Line(u32),
}

/// An event to which an application may react.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Entered,
    Suspected,
    /// There is another group, and the application's own group has to give way.
    GivesWay,
    /// The stream of events has ended.
    Over,
}

/// Parameters of a new life.
pub(crate) struct Birth<B> {
    pub(crate) name: Name,
    /// Parameters of its side.
    pub(crate) side: B,
    /// Nanoseconds that its clock gains per 2^20, if it gets one of its own.
    pub(crate) gain: i64,
    /// The clock of its process, if that has been running before this life.
    pub(crate) clock: Option<Clock>,
    pub(crate) events_first: bool,
    pub(crate) planted: Option<Planted>,
}

pub(crate) struct World<S: Side> {
    pub(crate) now: u64,
    pub(crate) queue: Queue<Happening>,
    pub(crate) network: Network,
    pub(crate) processes: Vec<Process<S>>,
    pub(crate) recorder: Recorder,
    pub(crate) frame_faults: FrameFaults,
    /// Events that applications received, if they are to be compared or shown.
    pub(crate) event_log: Option<EventLog>,
    /// The probes (rare states) that any life hit, as bits.
    pub(crate) probes: u128,
    pub(crate) common: S::Common,
    random: Random,
    arena: Arena,
    /// Buffer for the datagram that is being sent.
    outgoing: Vec<u8>,
    /// Number of timeouts at the present moment.
    spins: u32,
}

/// Most timeouts at one moment; more show that a side asks for timeouts without end.
const SPINS_MAX: u32 = 10_000;

impl<S: Side> World<S> {
    /// Returns a world of `size` processes.
    pub(crate) fn new(
        size: usize,
        common: S::Common,
        network: Network,
        recorder: Recorder,
        random: Random,
    ) -> World<S> {
        World {
            now: 0,
            queue: Queue::new(),
            network,
            processes: (0..size).map(|_| Process::default()).collect(),
            recorder,
            frame_faults: FrameFaults::default(),
            event_log: None,
            probes: 0,
            common,
            random,
            arena: Arena::default(),
            outgoing: Vec::new(),
            spins: 0,
        }
    }

    /// Runs to the next trigger and returns it. Returns `None` at `until`, or when a violation has been reported.
    pub(crate) fn advance(&mut self, until: u64) -> Option<Trigger> {
        while self.recorder.violation().is_none() {
            let Some((time, happening)) = self.queue.pop_by(until) else {
                self.now = until;
                return None;
            };
            if time > self.now {
                (self.now, self.spins) = (time, 0);
            }
            match happening {
                Happening::Arrival { datagram, to, path } => self.arrive(datagram, to as usize, path),
                Happening::Timer { process } => self.timer(process as usize),
                Happening::Awake { process } => self.wake(process as usize),
                Happening::Resume { process } => {
                    // If the pause was extended, this is an older entry.
                    if self.processes[process as usize].resumes_at == self.now {
                        self.resume(process as usize);
                    }
                }
                Happening::Trigger(trigger) => return Some(trigger),
            }
        }
        None
    }

    /// Schedules a trigger `delay` nanoseconds from now.
    pub(crate) fn trigger(&mut self, delay: u64, trigger: Trigger) {
        self.queue.push(self.now + delay, Happening::Trigger(trigger));
    }

    // --- lives ---

    /// Starts a new life on a process. A life that is running there crashes.
    pub(crate) fn start(&mut self, process: usize, birth: Birth<S::Birth>) -> Result<Life, ConfigError> {
        self.crash(process);
        let uid = Uid(self.random.next_u64());
        let own_clock = Clock::new(self.now, self.random.below(1 << 50), birth.gain);
        let clock = birth.clock.unwrap_or(own_clock);
        let context = BirthContext {
            now: clock.read(self.now),
            uid,
            name: birth.name.clone(),
            address: Network::address(process),
            random: Random::from_u64(self.random.next_u64()),
        };
        let mut side = S::begin(&self.common, context, birth.side)?;
        if let Some(bug) = birth.planted {
            side.plant(bug);
        }
        if let Some(event_log) = &mut self.event_log {
            event_log.add_life(uid, process);
        }
        let life = self.recorder.names.life(uid);
        self.recorder.note(self.now, process, life, What::Started { name: birth.name });
        self.processes[process].resident = Some(Resident {
            life,
            uid,
            side,
            clock,
            takes_events_from: 0,
            events_first: birth.events_first,
            scheduled_crash: None,
            sealed: [0; 2],
            is_over: false,
        });
        self.drain(process);
        Ok(life)
    }

    /// Crashes the life on a process, if there is one.
    pub(crate) fn crash(&mut self, process: usize) {
        if let Some(resident) = &self.processes[process].resident {
            if resident.side.is_needed() {
                // Other members may need data that only an excluded member holds; if it ends too early, they lose it.
                self.recorder.crashed.push(resident.uid);
            }
            if !resident.is_over {
                self.recorder.totals.crashes += 1;
                self.recorder.note(self.now, process, resident.life, What::Crashed);
            }
            self.retire(process);
        }
    }

    /// Removes the life from a process.
    fn retire(&mut self, process: usize) {
        let place = &mut self.processes[process];
        if let Some(resident) = place.resident.take() {
            self.probes |= resident.side.probes();
            self.recorder.totals.passes += resident.side.passes();
        }
        for (datagram, _) in place.socket.drain(..) {
            self.network.release(datagram);
        }
        (place.is_paused, place.timer) = (false, None);
    }

    /// Pauses a process for `duration` nanoseconds from now, or extends its pause.
    pub(crate) fn pause(&mut self, process: usize, duration: u64) {
        let place = &mut self.processes[process];
        let Some(resident) = &place.resident else { return };
        let until = self.now + duration;
        if !place.is_paused {
            place.is_paused = true;
            place.resumes_at = 0;
            self.recorder.note(self.now, process, resident.life, What::Paused);
        }
        if until > place.resumes_at {
            place.resumes_at = until;
            self.queue.push(until, Happening::Resume { process: process as u16 });
        }
    }

    /// Resumes a process. It handles the datagrams in its socket and its overdue timers at once.
    pub(crate) fn resume(&mut self, process: usize) {
        let place = &mut self.processes[process];
        let Some(resident) = &place.resident else { return };
        if !std::mem::replace(&mut place.is_paused, false) {
            return;
        }
        let life = resident.life;
        self.recorder.note(self.now, process, life, What::Resumed);
        if self.random.chance(0.5) {
            self.timeout(process);
        }
        let mut waiting = std::mem::take(&mut self.processes[process].socket);
        for (datagram, path) in waiting.drain(..) {
            self.read(datagram, process, path);
        }
        self.processes[process].socket = waiting;
        self.schedule(process);
    }

    /// Lets the application on a process take no events for `duration` nanoseconds.
    pub(crate) fn doze(&mut self, process: usize, duration: u64) {
        if let Some(resident) = &mut self.processes[process].resident {
            resident.takes_events_from = self.now + duration;
            self.queue.push(resident.takes_events_from, Happening::Awake { process: process as u16 });
        }
    }

    /// Lets the application on a process take events again at once.
    pub(crate) fn end_doze(&mut self, process: usize) {
        if let Some(resident) = &mut self.processes[process].resident {
            resident.takes_events_from = 0;
            self.wake(process);
        }
    }

    pub(crate) fn schedule_crash(&mut self, process: usize, scheduled_crash: Option<ScheduledCrash>) {
        if let Some(resident) = &mut self.processes[process].resident {
            resident.scheduled_crash = scheduled_crash;
        }
    }

    /// Returns the life on a process, if there is one; it may be paused.
    pub(crate) fn resident(&self, process: usize) -> Option<&Resident<S>> {
        self.processes[process].resident.as_ref()
    }

    /// Returns the life on a process if it is not paused, so that its application can act.
    fn active(&mut self, process: usize) -> Option<&mut Resident<S>> {
        let place = &mut self.processes[process];
        if place.is_paused { None } else { place.resident.as_mut() }
    }

    /// True if the process is paused.
    pub(crate) fn is_paused(&self, process: usize) -> bool {
        self.processes[process].is_paused
    }

    // --- inputs ---

    fn arrive(&mut self, datagram: DatagramId, to: usize, path: Path) {
        self.network.arrived(datagram, to);
        let place = &mut self.processes[to];
        if place.resident.is_none() || (place.is_paused && place.socket.len() >= SOCKET_DATAGRAMS_MAX) {
            self.network.release(datagram);
        } else if place.is_paused {
            place.socket.push((datagram, path));
        } else {
            self.read(datagram, to, path);
        }
    }

    /// Reads a datagram from the socket of a process and handles it.
    fn read(&mut self, datagram: DatagramId, at: usize, path: Path) {
        let (bytes, from) = self.network.read(datagram);
        let members = self.frame_faults.withheld_from(at).filter_map(|from| self.resident(from));
        let members: Vec<Uid> = members.map(|resident| resident.uid).collect();
        let remains = if members.is_empty() { None } else { words::without_notes(bytes, &members) };
        let bytes = self.arena.copy(remains.as_deref().unwrap_or(bytes));
        self.network.release(datagram);
        let from = Network::address(from);
        let Some(resident) = &mut self.processes[at].resident else { return };
        let local = resident.clock.read(self.now);
        resident.side.handle(local, from, bytes, path);
        self.drain(at);
    }

    fn timer(&mut self, process: usize) {
        let place = &mut self.processes[process];
        // An older entry: the deadline has been moved.
        if place.timer != Some(self.now) {
            return;
        }
        place.timer = None;
        if !place.is_paused {
            self.timeout(process);
        }
    }

    fn timeout(&mut self, process: usize) {
        let Some(resident) = &mut self.processes[process].resident else { return };
        let local = resident.clock.read(self.now);
        if resident.side.poll_timeout().is_some_and(|(deadline, _)| deadline <= local) {
            if self.recorder.is_traced() {
                let reason = resident.side.poll_timeout().map(|(_, reason)| reason);
                let who = format!("m{process}/{}", resident.life.0);
                self.recorder.trace(self.now, &who, format_args!("timeout {reason:?}"));
            }
            let Some(resident) = &mut self.processes[process].resident else { return };
            resident.side.handle_timeout(local);
            self.spins += 1;
            if self.spins > SPINS_MAX {
                self.report_violation(
                    "timers_advance",
                    format!("m{process}: {SPINS_MAX} timeouts at one moment"),
                );
                return;
            }
            self.drain(process);
        } else {
            self.schedule(process);
        }
    }

    fn wake(&mut self, process: usize) {
        let is_due = |resident: &mut Resident<S>| resident.takes_events_from <= self.now;
        if self.processes[process].resident.as_mut().is_some_and(is_due) && !self.processes[process].is_paused
        {
            self.drain(process);
        }
    }

    // --- queries ---

    pub(crate) fn report_violation(&mut self, property: &'static str, what: String) {
        self.recorder.report_violation(Violation { property, at: Time::from_nanos(self.now), what });
    }
}
