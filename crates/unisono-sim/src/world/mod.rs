//! The simulated world: processes, the network between them, and one queue of what happens next.
//!
//! The world moves members and datagrams by itself. Everything that somebody decides (an application, a fault, a
//! script) is a [`Cue`]: [`World::advance`] runs up to the next one and hands it to whoever directs the run. After
//! each input of a member the world takes what the member has to say, as its driver would, and records what changed (`output`).

mod output;

use crate::clock::Clock;
use crate::diary::Diary;
use crate::network::{DatagramId, Network, Path};
use crate::process::{Arena, Doom, Process, Resident, SOCKET_DATAGRAMS_MAX};
use crate::properties::Violation;
use crate::queue::Queue;
use crate::record::{self, End, Epoch, Life, Standing, What};
use crate::recorder::Recorder;
use crate::seal::Seal;
use crate::trap::Traps;
use bytes::Bytes;
use unisono_core::{
    ConfigError, Entry, EpochTag, Group, LeaveError, Marks, Member, Name, Phase, Planted, Port, Random,
    SendError, Settings, Time, Uid,
};

/// What waits in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happening {
    /// A copy of a datagram comes to the end of its link.
    Arrival { datagram: DatagramId, to: u16, path: Path },
    /// A member's deadline has come, unless it was put off.
    Timer { process: u16 },
    /// An application begins to take events again.
    Awake { process: u16 },
    /// A paused process goes on.
    Resume { process: u16 },
    /// Somebody has something to decide.
    Cue(Cue),
}

/// What whoever directs the run is asked to see to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cue {
    /// An application may do something.
    Act { process: u16, life: Life },
    /// A place is free for a new life.
    Start { process: u16 },
    /// An application was told something that it may answer.
    Told { process: u16, life: Life, tidings: Tidings },
    /// Manual policy: an application that was told of a suspicion may ask for a reset.
    ResetAgain { process: u16, life: Life },
    /// A fault begins or ends; the director knows which.
    Fault(u32),
    /// The run enters its next part.
    Part(u32),
    /// The next line of a script.
    Line(u32),
}

/// What an application was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tidings {
    Entered,
    Suspected,
    /// Its stream ended.
    Over,
}

/// How a life begins.
pub(crate) struct Birth {
    pub(crate) name: Name,
    pub(crate) entry: Entry,
    pub(crate) settings: Settings,
    /// Nanoseconds that its clock gains in 2^20.
    pub(crate) gain: i64,
    pub(crate) events_first: bool,
    pub(crate) planted: Option<Planted>,
}

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) queue: Queue<Happening>,
    pub(crate) network: Network,
    pub(crate) processes: Vec<Process>,
    pub(crate) recorder: Recorder,
    pub(crate) traps: Traps,
    /// What applications were told, if somebody wants to read it.
    pub(crate) diary: Option<Diary>,
    /// The rare states that any member met.
    pub(crate) probes: u128,
    port: Port,
    random: Random,
    arena: Arena,
    /// What a member has just given to be sent.
    outgoing: Vec<u8>,
    /// What messages may take of a history: no bound depends on whether it holds less.
    history_messages: usize,
    /// Timers that came due without time going on.
    spins: u32,
}

/// More timers than this at one moment, and something spins.
const SPINS_MAX: u32 = 10_000;

impl World {
    /// A world of `size` places for members of a group in which messages may take so much of a history.
    pub(crate) fn new(
        size: usize,
        history_messages: u32,
        network: Network,
        recorder: Recorder,
        random: Random,
    ) -> World {
        World {
            now: 0,
            queue: Queue::new(),
            network,
            processes: (0..size).map(|_| Process::default()).collect(),
            recorder,
            traps: Traps::default(),
            diary: None,
            probes: 0,
            port: Port::from_name("simulated"),
            random,
            arena: Arena::default(),
            outgoing: Vec::new(),
            history_messages: history_messages as usize,
            spins: 0,
        }
    }

    /// Runs to the next cue, or to `until` if none comes before; also stops where a promise is broken.
    pub(crate) fn advance(&mut self, until: u64) -> Option<Cue> {
        while self.recorder.violation().is_none() {
            match self.queue.next_time() {
                Some(time) if time <= until => {}
                _ => {
                    self.now = until;
                    return None;
                }
            }
            let (time, happening) = self.queue.pop()?;
            if time > self.now {
                (self.now, self.spins) = (time, 0);
            }
            match happening {
                Happening::Arrival { datagram, to, path } => self.arrive(datagram, to as usize, path),
                Happening::Timer { process } => self.timer(process as usize),
                Happening::Awake { process } => self.wake(process as usize),
                Happening::Resume { process } => {
                    // An older entry, if the pause was made longer.
                    if self.processes[process as usize].resumes_at == self.now {
                        self.resume(process as usize);
                    }
                }
                Happening::Cue(cue) => return Some(cue),
            }
        }
        None
    }

    /// Asks for a cue `delay` nanoseconds from now.
    pub(crate) fn cue(&mut self, delay: u64, cue: Cue) {
        self.queue.push(self.now + delay, Happening::Cue(cue));
    }

    // --- lives ---

    /// Lets a life begin at a place; whoever lived there ends.
    pub(crate) fn start(&mut self, process: usize, birth: Birth) -> Result<Life, ConfigError> {
        self.crash(process);
        let uid = Uid(self.random.next_u64());
        let clock = Clock::new(self.now, self.random.below(1 << 50), birth.gain);
        let me = Member { uid, name: birth.name.clone(), address: Network::address(process) };
        let mut group = Group::new(
            clock.read(self.now),
            me,
            self.port,
            birth.entry,
            Bytes::new(),
            birth.settings,
            Box::new(Seal),
            Random::from_u64(self.random.next_u64()),
        )?;
        if let Some(bug) = birth.planted {
            group.plant(bug);
        }
        if let Some(diary) = &mut self.diary {
            diary.born(uid, process);
        }
        let life = self.recorder.names.life(uid);
        self.recorder.note(self.now, process, life, What::Started { name: birth.name });
        self.processes[process].resident = Some(Resident {
            life,
            uid,
            group,
            clock,
            marks: Marks::default(),
            epoch: Epoch::default(),
            counter: 0,
            view: Vec::new(),
            takes_events_from: 0,
            events_first: birth.events_first,
            doom: None,
            is_over: false,
        });
        self.drain(process);
        Ok(life)
    }

    /// The life at a place ends without a word.
    pub(crate) fn crash(&mut self, process: usize) {
        if let Some(resident) = &self.processes[process].resident {
            if resident.group.phase() != Phase::Gone {
                // Somebody excluded that ends too early may take with it what the others still need.
                self.recorder.crashed.push(resident.uid);
            }
            if !resident.is_over {
                self.recorder.totals.crashes += 1;
                self.recorder.note(self.now, process, resident.life, What::Crashed);
            }
            self.retire(process);
        }
    }

    /// Empties a place.
    fn retire(&mut self, process: usize) {
        let place = &mut self.processes[process];
        if let Some(resident) = place.resident.take() {
            self.probes |= resident.group.probes();
        }
        for (datagram, _) in place.socket.drain(..) {
            self.network.release(datagram);
        }
        (place.is_paused, place.timer) = (false, None);
    }

    /// A place stands still for so long (nanoseconds) from now, or longer if it does already.
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

    /// A place goes on: what waited in its socket and its timers come in one go.
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

    /// The application at a place takes no events for so long (nanoseconds).
    pub(crate) fn doze(&mut self, process: usize, duration: u64) {
        if let Some(resident) = &mut self.processes[process].resident {
            resident.takes_events_from = self.now + duration;
            self.queue.push(resident.takes_events_from, Happening::Awake { process: process as u16 });
        }
    }

    /// The application at a place takes events again, at once.
    pub(crate) fn rouse(&mut self, process: usize) {
        if let Some(resident) = &mut self.processes[process].resident {
            resident.takes_events_from = 0;
            self.wake(process);
        }
    }

    pub(crate) fn doom(&mut self, process: usize, doom: Option<Doom>) {
        if let Some(resident) = &mut self.processes[process].resident {
            resident.doom = doom;
        }
    }

    /// The life at a place, if one goes on there: a paused one does too.
    pub(crate) fn resident(&self, process: usize) -> Option<&Resident> {
        self.processes[process].resident.as_ref()
    }

    /// The same, if its application can do something now.
    fn active(&mut self, process: usize) -> Option<&mut Resident> {
        let place = &mut self.processes[process];
        if place.is_paused { None } else { place.resident.as_mut() }
    }

    /// The process stands still.
    pub(crate) fn is_paused(&self, process: usize) -> bool {
        self.processes[process].is_paused
    }

    // --- what applications do ---

    /// The application sends `bytes` bytes; true if they were taken.
    pub(crate) fn send(&mut self, process: usize, bytes: usize, resilience: Option<u8>) -> bool {
        let payload = self.arena.fill(bytes, self.random.next_u64()).freeze();
        self.send_payload(process, payload, resilience).is_ok()
    }

    /// The application sends this.
    pub(crate) fn send_payload(
        &mut self,
        process: usize,
        payload: Bytes,
        resilience: Option<u8>,
    ) -> Result<(), SendError> {
        let now = self.now;
        let Some(resident) = self.active(process) else { return Err(SendError::Left) };
        let (life, local) = (resident.life, resident.clock.read(now));
        let (hash, bytes) = (record::hash(&payload), payload.len() as u32);
        let number = match resilience {
            Some(resilience) => resident.group.send_resilient(local, payload, resilience),
            None => resident.group.send(local, payload),
        };
        if let Ok(number) = number {
            let resilience = resilience.unwrap_or(0);
            self.recorder.note(now, process, life, What::Sent { number, resilience, hash, bytes });
        }
        self.drain(process);
        number.map(|_| ())
    }

    pub(crate) fn leave(&mut self, process: usize) -> Result<(), LeaveError> {
        let now = self.now;
        let Some(resident) = self.active(process) else { return Err(LeaveError::Left) };
        let life = resident.life;
        let result = resident.group.leave(resident.clock.read(now), Bytes::from_static(b"bye"));
        if result.is_ok() {
            self.recorder.note(now, process, life, What::LeaveAsked);
        }
        self.drain(process);
        result
    }

    pub(crate) fn reset(&mut self, process: usize, members_min: usize) {
        let now = self.now;
        let Some(resident) = self.active(process) else { return };
        let life = resident.life;
        if resident.group.reset(resident.clock.read(now), members_min).is_ok() {
            let members_min = members_min as u32;
            self.recorder.note(now, process, life, What::ResetAsked { members_min });
        }
        self.drain(process);
    }

    pub(crate) fn hand_over(&mut self, process: usize, to: Uid) {
        let now = self.now;
        let Some(resident) = self.active(process) else { return };
        let life = resident.life;
        // Refused if somebody else orders by now: nothing happens then.
        if resident.group.hand_over(resident.clock.read(now), to).is_ok() {
            let successor = self.recorder.names.life(to);
            self.recorder.note(now, process, life, What::HandOverAsked { successor });
        }
        self.drain(process);
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

    /// A place reads a datagram from its socket.
    fn read(&mut self, datagram: DatagramId, at: usize, path: Path) {
        let (bytes, from) = self.network.read(datagram);
        let bytes = self.arena.copy(bytes);
        self.network.release(datagram);
        let from = Network::address(from);
        let Some(resident) = &mut self.processes[at].resident else { return };
        let local = resident.clock.read(self.now);
        match path {
            Path::Unicast => resident.group.handle_datagram(local, from, bytes),
            Path::Multicast => resident.group.handle_multicast(local, from, bytes),
        }
        self.drain(at);
    }

    fn timer(&mut self, process: usize) {
        let place = &mut self.processes[process];
        // An older entry whose deadline was put off or came nearer.
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
        if resident.group.poll_timeout().is_some_and(|(deadline, _)| deadline <= local) {
            if self.recorder.is_traced() {
                let (life, reason) = (resident.life, resident.group.poll_timeout().map(|(_, reason)| reason));
                let who = format!("m{process}/{}", life.0);
                self.recorder.tell(self.now, &who, format_args!("timeout {reason:?}"));
            }
            let Some(resident) = &mut self.processes[process].resident else { return };
            resident.group.handle_timeout(local);
            self.spins += 1;
            if self.spins > SPINS_MAX {
                self.accuse("timers_advance", format!("m{process}: {SPINS_MAX} timeouts at one moment"));
                return;
            }
            self.drain(process);
        } else {
            self.schedule(process);
        }
    }

    fn wake(&mut self, process: usize) {
        let is_due = |resident: &mut Resident| resident.takes_events_from <= self.now;
        if self.processes[process].resident.as_mut().is_some_and(is_due) && !self.processes[process].is_paused
        {
            self.drain(process);
        }
    }

    // --- looking ---

    pub(crate) fn accuse(&mut self, property: &'static str, what: String) {
        self.recorder.accuse(Violation { property, at: Time::from_nanos(self.now), what });
    }

    /// What the world knows when the run is over.
    pub(crate) fn end(&mut self) -> End {
        let mut standings = Vec::new();
        for process in 0..self.processes.len() {
            let Some(resident) = &mut self.processes[process].resident else { continue };
            let info = resident.group.info();
            self.probes |= resident.group.probes();
            let is_outside = resident.marks.epoch == EpochTag::OUTSIDE;
            standings.push(Standing {
                life: resident.life,
                phase: info.phase,
                epoch: (!is_outside).then_some(resident.epoch),
                marks: resident.group.marks(),
                members: info.members.iter().map(|member| self.recorder.names.life(member.uid)).collect(),
                under_way: info.under_way,
                events: std::iter::from_fn(|| resident.group.poll_event()).count(),
            });
        }
        End { at: Time::from_nanos(self.now), standings }
    }
}
