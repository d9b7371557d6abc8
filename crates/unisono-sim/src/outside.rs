//! Clients outside of the group, which send to it by members that are open.
//!
//! Only some seeds have them. They have a random stream of their own, so that the other seeds are as they are without. Calls
//! are not simulated here: a request or an answer is late or lost, and the requests of a client arrive at a member at most once
//! and in their order. Clients reach all processes, also those that are cut off from each other. They fall silent with the applications.

use crate::bugs::{Planted, ServiceBug};
use crate::director::Director;
use crate::draw::{Draw, MILLISECOND, SECOND};
use crate::network::exponential;
use crate::plan::{Beginning, Plan, Profile};
use crate::record::{self, Beside, Life, What};
use crate::world::Trigger;
use bytes::{BufMut, Bytes};
use std::collections::BTreeMap;
use unisono_core::outside::{Call, Fate, Position, Sender, SenderError};
use unisono_core::rpc::CallFailure;
use unisono_core::{Phase, Quality, Random, Uid};

/// Separates the random stream of these choices from others.
const OUTSIDE: u64 = 0x6f75_7473_6964_6521;
/// Mean delay of a request or an answer, in nanoseconds.
const DELAY_MEAN: u64 = MILLISECOND;
/// Maximum delay of a late request or answer, in nanoseconds.
const LATE_MAX: u64 = 3 * SECOND;
/// Time after which a client that found no open member looks again or begins anew, in nanoseconds.
const LOOKS_AGAIN: u64 = 200 * MILLISECOND;
/// Qualities of messages from outside.
const QUALITIES: [Quality; 5] =
    [Quality::ORDERED, Quality::ORDERED, Quality::SOURCE_ORDERED, Quality::UNORDERED, Quality::MAJORITY];

/// A step of a client or of a call that it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The program at an address has messages to send, or starts anew.
    Act { host: u16 },
    /// A request arrives.
    Arrive { call: u64 },
    /// A member answers a request.
    Answer { call: u64 },
    /// The answer arrives.
    Answered { call: u64 },
    /// The client no longer waits.
    Deadline { call: u64 },
}

/// The clients of one run, and their calls.
pub(crate) struct Outsiders {
    random: Random,
    /// Mean time between two actions of a client in nanoseconds.
    every: u64,
    /// Fraction of requests and answers that are lost, and the same of those that are late.
    loss: f64,
    /// How long clients wait for an answer, in nanoseconds.
    patience: u64,
    /// The client that runs at each address; none in most runs.
    hosts: Vec<Client>,
    /// Number of clients so far.
    clients: u32,
    calls: BTreeMap<u64, Calling>,
    /// The last call of each client that arrived at a process: an earlier one is superseded.
    arrived: BTreeMap<(u32, usize), u64>,
    last_call: u64,
    /// A planted bug.
    by_address: bool,
}

struct Client {
    number: u32,
    uid: Uid,
    quality: Quality,
    is_confirmed: bool,
    sender: Sender,
    messages: u64,
    /// Its call under way.
    call: Option<u64>,
    is_over: bool,
}

/// A call under way.
struct Calling {
    host: u16,
    to: Option<usize>,
    /// Number of the client, and its uid as the member knows it.
    client: (u32, Uid),
    request: Bytes,
    /// It asks a member to be the client's relay.
    begins: bool,
    answer: Option<(Life, Bytes)>,
}

impl Outsiders {
    /// Draws the choices for a seed.
    pub(crate) fn draw(seed: u64, profile: Profile, plan: &Plan, planted: Option<Planted>) -> Outsiders {
        let mut random = Random::from_u64(OUTSIDE ^ seed ^ (profile as u64 + 1) << 56);
        // A client that goes from one group to another of the same name sends twice what the other lacks. There may be two if
        // quorums do not intersect, and where two groups form apart before one of them gives way.
        let takes_part = profile != Profile::Perf
            && random.chance(0.125)
            && plan.config.quorums_intersect()
            && !matches!(plan.beginning, Beginning::Apart { .. });
        let hosts = if takes_part { random.between(1, 3) } else { 0 };
        let mut outsiders = Outsiders {
            every: random.pick(&[20, 50, 200]) * MILLISECOND,
            loss: random.pick(&[0.0, 0.02, 0.1]),
            patience: random.pick(&[300, 1_000, 3_000]) * MILLISECOND,
            random,
            hosts: Vec::new(),
            clients: 0,
            calls: BTreeMap::new(),
            arrived: BTreeMap::new(),
            last_call: 0,
            by_address: planted == Some(Planted::Service(ServiceBug::ClientKnownByAddress)),
        };
        for _ in 0..hosts {
            let client = outsiders.new_client();
            outsiders.hosts.push(client);
        }
        outsiders
    }

    /// True if this run has clients outside.
    pub(crate) fn take_part(&self) -> bool {
        !self.hosts.is_empty()
    }

    fn new_client(&mut self) -> Client {
        self.clients += 1;
        let is_confirmed = self.random.chance(0.75);
        Client {
            number: self.clients,
            uid: Uid(self.random.next_u64()),
            quality: self.random.pick(&QUALITIES),
            is_confirmed,
            sender: Sender::new(!is_confirmed, Position::default()),
            messages: 0,
            call: None,
            is_over: false,
        }
    }

    /// Draws how long a request or an answer travels; `None`: it is lost.
    fn delay(&mut self) -> Option<u64> {
        if self.loss > 0.0 && self.random.chance(self.loss) {
            return None;
        }
        let is_late = self.loss > 0.0 && self.random.chance(self.loss);
        Some(if is_late {
            self.random.between(MILLISECOND, LATE_MAX)
        } else {
            exponential(&mut self.random, DELAY_MEAN)
        })
    }
}

impl Director {
    /// Lets the clients outside begin.
    pub(super) fn begin_outside(&mut self) {
        for host in 0..self.outsiders.hosts.len() as u16 {
            self.act_later(host);
        }
    }

    fn act_later(&mut self, host: u16) {
        let delay = exponential(&mut self.outsiders.random, self.outsiders.every);
        self.step_later(delay, Step::Act { host });
    }

    fn step_later(&mut self, delay: u64, step: Step) {
        self.world.trigger(delay, Trigger::Outside(step));
    }

    pub(super) fn step_outside(&mut self, step: Step) {
        match step {
            Step::Act { host } => self.act_outside(host),
            Step::Arrive { call } => self.arrive_outside(call),
            Step::Answer { call } => self.answer_outside(call),
            Step::Answered { call } => {
                if let Some(calling) = self.outsiders.calls.get_mut(&call)
                    && let Some((by, answer)) = calling.answer.take()
                {
                    self.end_call(call, Some(by), Ok(answer));
                }
            }
            Step::Deadline { call } => {
                if let Some(calling) = self.outsiders.calls.get(&call) {
                    let failure =
                        if calling.to.is_some() { CallFailure::Unknown } else { CallFailure::NotFound };
                    self.end_call(call, None, Err(failure));
                }
            }
        }
    }

    /// Gives the client at an address messages to send. At times another client starts there instead.
    fn act_outside(&mut self, host: u16) {
        if !self.is_busy {
            return;
        }
        let outsiders = &mut self.outsiders;
        if outsiders.hosts[usize::from(host)].is_over || outsiders.random.chance(0.02) {
            outsiders.hosts[usize::from(host)] = outsiders.new_client();
        }
        let count = if outsiders.random.chance(0.1) { outsiders.random.between(2, 80) } else { 1 };
        let client = &mut outsiders.hosts[usize::from(host)];
        if outsiders.random.chance(0.05) {
            client.quality = outsiders.random.pick(&QUALITIES);
        }
        for _ in 0..count {
            let mut payload = Vec::new();
            payload.put_slice(b"from outside");
            payload.put_u32(client.number);
            payload.put_u64(client.messages);
            let (number, index, quality) = (client.number, client.messages, client.quality);
            let (is_confirmed, hash) = (client.is_confirmed, record::hash(&payload));
            let beside = Beside::FromOutside { client: number, index, quality, is_confirmed, hash };
            client.messages += 1;
            client.sender.push(payload.into(), quality);
            self.world.recorder.note(self.world.now, 0, Life::WORLD, What::Beside(beside.into()));
        }
        self.poll_outside(host, None);
        self.act_later(host);
    }

    /// Takes what the client at an address learned, and makes its next call. `by`: the member that took it over just now.
    fn poll_outside(&mut self, host: u16, by: Option<Life>) {
        let now = self.world.now;
        let client = &mut self.outsiders.hosts[usize::from(host)];
        let fates: Vec<(u64, Fate)> = std::iter::from_fn(|| client.sender.poll_fate()).collect();
        let first = fates.iter().map(|(index, _)| *index).min().unwrap_or_default();
        let number = client.number;
        // A client that gives up learns nothing from a member.
        let taken_over = by.filter(|_| client.sender.error().is_none()).map(|by| (by, first));
        let mut besides: Vec<Beside> = fates
            .into_iter()
            .map(|(index, fate)| Beside::ToldOutside { client: number, index, fate, taken_over })
            .collect();
        if let Some(error) = client.sender.error()
            && !std::mem::replace(&mut client.is_over, true)
        {
            let was_refused = !matches!(error, SenderError::NotFound | SenderError::NoAnswer);
            besides.push(Beside::GaveUpOutside { client: number, was_refused });
        }
        for beside in besides {
            self.world.recorder.note(now, 0, Life::WORLD, What::Beside(beside.into()));
        }
        let client = &mut self.outsiders.hosts[usize::from(host)];
        if self.is_busy
            && let Some(call) = client.sender.poll_call()
        {
            self.call_outside(host, call);
        }
    }

    fn call_outside(&mut self, host: u16, call: Call) {
        let to = match call.to {
            Some(address) => self.world.network.process_at(address),
            None => self.find_open(),
        };
        let outsiders = &mut self.outsiders;
        outsiders.last_call += 1;
        let number = outsiders.last_call;
        let client = &mut outsiders.hosts[usize::from(host)];
        client.call = Some(number);
        let uid = if outsiders.by_address { uid_of(host) } else { client.uid };
        let (begins, request) = (call.to.is_none(), call.request);
        let calling = Calling { host, to, client: (client.number, uid), request, begins, answer: None };
        outsiders.calls.insert(number, calling);
        let pause = if call.pause { 20 * MILLISECOND } else { 0 };
        let delay = outsiders.delay();
        let patience = if to.is_some() { outsiders.patience } else { LOOKS_AGAIN };
        if let Some(delay) = delay.filter(|_| to.is_some()) {
            self.step_later(pause + delay, Step::Arrive { call: number });
        }
        self.step_later(pause + patience, Step::Deadline { call: number });
    }

    /// Returns an open member that runs now.
    fn find_open(&mut self) -> Option<usize> {
        let is_open = |place: &usize| {
            !self.world.is_paused(*place)
                && self.world.resident(*place).is_some_and(|resident| {
                    let is_member = matches!(resident.side.group.phase(), Phase::Member | Phase::Resetting);
                    is_member && resident.side.is_open()
                })
        };
        let open: Vec<usize> = (0..self.plan.places).filter(is_open).collect();
        (!open.is_empty()).then(|| self.outsiders.random.pick(&open))
    }

    /// A request arrives, also if its client no longer waits.
    fn arrive_outside(&mut self, call: u64) {
        let Some(calling) = self.outsiders.calls.get(&call) else { return };
        let Some(place) = calling.to.filter(|_| self.is_busy) else { return };
        if self.world.is_paused(place) {
            // It waits in the socket.
            return self.step_later(10 * MILLISECOND, Step::Arrive { call });
        }
        let ((number, client), request) = (calling.client, calling.request.clone());
        let last = self.outsiders.arrived.entry((number, place)).or_default();
        if *last < call {
            *last = call;
            self.world.ask_relay(place, call, client, request);
        }
    }

    /// Takes an answer that a member gives.
    fn answer_outside(&mut self, call: u64) {
        let Some((by, answer)) = self.world.take_answer(call) else { return };
        let Some(calling) = self.outsiders.calls.get_mut(&call) else { return };
        calling.answer = Some((by, answer));
        if let Some(delay) = self.outsiders.delay() {
            self.step_later(delay, Step::Answered { call });
        }
    }

    fn end_call(&mut self, call: u64, by: Option<Life>, outcome: Result<Bytes, CallFailure>) {
        let Some(calling) = self.outsiders.calls.get(&call) else { return };
        let (host, begins) = (calling.host, calling.begins);
        let client = &mut self.outsiders.hosts[usize::from(host)];
        // Its client may be over, or have given it up. Then the request may still be on its way.
        if client.call != Some(call) {
            return;
        }
        client.call = None;
        client.sender.answered(outcome);
        self.poll_outside(host, by.filter(|_| begins));
    }
}

/// Returns the uid that a member that knows clients by their addresses takes for that of the client at an address.
fn uid_of(host: u16) -> Uid {
    Uid(u64::from(host) + 1)
}
