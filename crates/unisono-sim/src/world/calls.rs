//! The endpoints of a world: the state of each life's calls, the commands of its application, and the records of its
//! calls.

use super::{BirthContext, Happening, Side, Trigger, World};
use crate::bugs::Planted;
use crate::network::Path;
use crate::record::{self, CallOutcome, End, Life, What};
use crate::seal::{CheapKeys, CheapProof, Seal, Work};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::rpc::{
    CallAccount, CallDestination, CallFailure, CallNumber, CallSettings, Endpoint, KeyAgreement, PortProof,
    PrivatePort, RequestId, ServeOptions,
};
use unisono_core::{ConfigError, Destination, Port, Time, Uid};

/// A service: its port and the options of its servers.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) private: PrivatePort,
    pub(crate) port: Port,
    pub(crate) options: ServeOptions,
}

impl Service {
    pub(crate) fn new(private: PrivatePort, options: ServeOptions) -> Service {
        Service { port: CheapProof::honest().public(&private), private, options }
    }
}

/// An application's response to a call. A service that recognises repeats remembers it at all its servers.
#[derive(Clone, Debug)]
pub(crate) enum Response {
    Reply(Bytes),
    Refusal(Bytes),
}

/// Data that all endpoints of a world share.
pub(crate) struct CallCommon {
    pub(crate) services: Vec<Service>,
    /// An address without a process, from which some datagrams seem to come.
    pub(crate) stray: Option<SocketAddr>,
    /// True if services are located by multicast, false if by one copy for each process.
    pub(crate) multicast: bool,
    /// The remembered responses, by service, instance, client and call.
    pub(crate) responses: BTreeMap<(u16, u64, Uid, CallNumber), Response>,
}

impl CallCommon {
    fn service(&self, port: Port) -> Option<u16> {
        self.services.iter().position(|service| service.port == port).map(|index| index as u16)
    }
}

/// Parameters of a new endpoint.
pub(crate) struct CallBirth {
    pub(crate) settings: CallSettings,
    /// Number of requests on which its application works at a time.
    pub(crate) workers: usize,
    /// True if it claims to serve ports that are not its own.
    pub(crate) forges: bool,
}

/// A request on which an application works.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: RequestId,
    pub(crate) client: Uid,
    pub(crate) call: CallNumber,
    pub(crate) service: u16,
    /// Instance of the service that took it.
    pub(crate) instance: u64,
    pub(crate) hops: u8,
    /// The response, once the application has decided on it.
    pub(crate) response: Option<Response>,
    /// A call of the application itself whose outcome it awaits first.
    pub(crate) awaits: Option<CallNumber>,
}

impl Job {
    /// Returns the key under which the response is remembered.
    pub(crate) fn name(&self) -> (u16, u64, Uid, CallNumber) {
        (self.service, self.instance, self.client, self.call)
    }
}

/// One life's side of all its calls.
pub(crate) struct CallSide {
    pub(crate) endpoint: Endpoint,
    /// Requests on which the application works, by the index that triggers contain.
    pub(crate) jobs: BTreeMap<u32, Job>,
    jobs_begun: u32,
    workers: usize,
    forges: bool,
    /// Counts the signatures of this life.
    work: Work,
    /// Signatures made and checked, as last recorded.
    worked: (u64, u64),
    serves: Vec<u16>,
    /// The last instance of each service that it serves or served before.
    instances: BTreeMap<u16, u64>,
    /// Services that it serves or served before; it may still be working on their requests.
    served: Vec<u16>,
    /// Total capacity of the queues of these services.
    queues_max: usize,
    /// Calls of its application that have not ended, and their services.
    under_way: BTreeMap<CallNumber, u16>,
    /// The highest amounts held so far.
    held: CallAccount,
    stray: Option<SocketAddr>,
    /// Bytes received from the stray address, bytes sent to it, and both as last recorded.
    came: u64,
    left: u64,
    noted: (u64, u64),
    multicast: bool,
}

impl Side for CallSide {
    type Common = CallCommon;
    type Birth = CallBirth;

    fn begin(common: &CallCommon, context: BirthContext, birth: CallBirth) -> Result<CallSide, ConfigError> {
        let CallBirth { settings, workers, forges } = birth;
        let work = Work::default();
        let proof = Box::new(CheapProof { forges, work: work.clone() });
        let keys: (Box<dyn PortProof>, Box<dyn KeyAgreement>) = (proof, Box::new(CheapKeys(context.uid)));
        let BirthContext { now, address, random, .. } = context;
        let endpoint = Endpoint::new(now, address, settings, Box::new(Seal), keys, random)?;
        Ok(CallSide {
            endpoint,
            jobs: BTreeMap::new(),
            jobs_begun: 0,
            workers,
            forges,
            work,
            worked: (0, 0),
            serves: Vec::new(),
            instances: BTreeMap::new(),
            served: Vec::new(),
            queues_max: 0,
            under_way: BTreeMap::new(),
            held: CallAccount::default(),
            stray: common.stray,
            came: 0,
            left: 0,
            noted: (0, 0),
            multicast: common.multicast,
        })
    }

    fn plant(&mut self, bug: Planted) {
        bug.of_core().into_iter().for_each(|bug| self.endpoint.plant(bug));
    }

    fn probes(&self) -> u128 {
        self.endpoint.probes()
    }

    fn handle(&mut self, now: Time, from: SocketAddr, datagram: BytesMut, path: Path) {
        if Some(from) == self.stray {
            self.came += datagram.len() as u64;
        }
        match path {
            Path::Unicast => self.endpoint.handle_datagram(now, from, datagram),
            Path::Multicast => self.endpoint.handle_multicast(now, from, datagram),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<(Time, impl fmt::Debug)> {
        self.endpoint.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Time, datagram: &mut Vec<u8>) -> Option<Destination> {
        Some(match self.endpoint.poll_transmit(now, datagram)? {
            CallDestination::Address(address) | CallDestination::Unproved(address) => {
                if Some(address) == self.stray {
                    self.left += datagram.len() as u64;
                }
                Destination::Address(address)
            }
            CallDestination::Rendezvous(_) if self.multicast => Destination::Multicast,
            CallDestination::Rendezvous(_) => Destination::Rendezvous,
        })
    }

    fn note(world: &mut World<CallSide>, process: usize) {
        world.take_outcomes(process);
        world.note_holdings(process);
    }

    fn hand_out(world: &mut World<CallSide>, process: usize) {
        world.take_requests(process);
    }

    fn may_have_more_output(&self) -> bool {
        true
    }
}

/// Returns the outcome of a call in the form of a record.
fn outcome(result: &Result<Bytes, CallFailure>) -> CallOutcome {
    match result {
        Ok(reply) => CallOutcome::Replied { hash: record::hash(reply) },
        Err(CallFailure::Refused(reason)) => CallOutcome::Refused { hash: record::hash(reason) },
        Err(CallFailure::NotFound) => CallOutcome::NotFound,
        Err(CallFailure::Failed) => CallOutcome::Failed,
        Err(CallFailure::OtherInstance) => CallOutcome::OtherInstance,
        Err(CallFailure::Busy) => CallOutcome::Busy,
        Err(CallFailure::Unknown) => CallOutcome::Unknown,
    }
}

impl World<CallSide> {
    // --- commands of clients ---

    /// Lets the application call a service with a request of `bytes` bytes.
    pub(crate) fn call(
        &mut self,
        process: usize,
        service: u16,
        bytes: usize,
        limit: Duration,
    ) -> Option<CallNumber> {
        let request = self.arena.fill(bytes, self.random.next_u64()).freeze();
        self.call_with(process, service, request, limit)
    }

    /// Lets the application call a service with this request.
    pub(crate) fn call_with(
        &mut self,
        process: usize,
        service: u16,
        request: Bytes,
        limit: Duration,
    ) -> Option<CallNumber> {
        let (now, port) = (self.now, self.common.services[service as usize].port);
        let resident = self.active(process)?;
        let (life, local, hash) = (resident.life, resident.clock.read(now), record::hash(&request));
        let call = resident.side.endpoint.call(local, port, request, limit).ok();
        if let Some(call) = call {
            resident.side.under_way.insert(call, service);
            let limit_us = limit.as_micros() as u32;
            self.recorder.note(now, process, life, What::Called { call, port: service, limit_us, hash });
        }
        self.drain(process);
        call
    }

    /// Lets the application cancel a call.
    pub(crate) fn cancel(&mut self, process: usize, call: CallNumber) {
        let now = self.now;
        let Some(resident) = self.active(process) else { return };
        let life = resident.life;
        if resident.side.under_way.remove(&call).is_none() {
            return;
        }
        resident.side.endpoint.cancel(resident.clock.read(now), call);
        self.recorder.note(now, process, life, What::CallCancelled { call });
        self.drain(process);
    }

    // --- commands of servers ---

    /// Returns random bytes for a reply.
    pub(crate) fn fill(&mut self, bytes: usize) -> Bytes {
        self.arena.fill(bytes, self.random.next_u64()).freeze()
    }

    /// Lets the application serve this instance of a service from now on.
    pub(crate) fn serve(&mut self, process: usize, service: u16, instance: u64) {
        let (now, Service { private, port, options }) =
            (self.now, self.common.services[service as usize].clone());
        let options = ServeOptions { instance, ..options };
        let Some(resident) = self.active(process) else { return };
        let (life, owns) = (resident.life, !resident.side.forges);
        // An impostor does not have the private port; it uses the public one.
        let private = if owns { private } else { PrivatePort(port.0) };
        if resident.side.endpoint.serve(private, options).is_ok() {
            resident.side.serves.push(service);
            resident.side.instances.insert(service, instance);
            if !resident.side.served.contains(&service) {
                resident.side.served.push(service);
                resident.side.queues_max += options.places();
            }
            let repeats = options.repeats;
            let what = What::Serving { port: service, owns, repeats, instance };
            self.recorder.note(now, process, life, what);
        }
        self.drain(process);
    }

    /// Lets the application withdraw a service.
    pub(crate) fn withdraw(&mut self, process: usize, service: u16) {
        let (now, port) = (self.now, self.common.services[service as usize].port);
        let Some(resident) = self.active(process) else { return };
        let life = resident.life;
        if !resident.side.serves.contains(&service) {
            return;
        }
        resident.side.serves.retain(|one| *one != service);
        resident.side.endpoint.withdraw(port);
        self.recorder.note(now, process, life, What::Withdrawn { port: service });
        self.drain(process);
    }

    /// Records that the application has executed a request.
    pub(crate) fn execute(&mut self, process: usize, job: &Job) {
        self.note_job(process, job, |client, call| What::Executed { client, call });
    }

    /// Lets the application answer a request.
    pub(crate) fn answer(&mut self, process: usize, job: &Job, response: &Response) {
        let now = self.now;
        let Some(resident) = self.active(process) else { return };
        let (local, endpoint) = (resident.clock.read(now), &mut resident.side.endpoint);
        match response {
            Response::Reply(reply) => {
                if endpoint.reply(local, job.id, reply.clone()).is_ok() {
                    let hash = record::hash(reply);
                    self.note_job(process, job, |client, call| What::Replied { client, call, hash });
                }
            }
            Response::Refusal(reason) => {
                if endpoint.refuse(local, job.id, reason.clone()).is_ok() {
                    let hash = record::hash(reason);
                    self.note_job(process, job, |client, call| What::RefusedCall { client, call, hash });
                }
            }
        }
        self.drain(process);
    }

    /// Lets the application forward a request. Returns false if the request has been forwarded too often.
    pub(crate) fn pass_on(&mut self, process: usize, job: &Job, to: SocketAddr) -> bool {
        let Some(resident) = self.active(process) else { return true };
        let passed = resident.side.endpoint.forward(job.id, to);
        if passed.is_ok() {
            let hops = job.hops;
            self.note_job(process, job, |client, call| What::PassedOn { client, call, hops });
        }
        self.drain(process);
        !matches!(passed, Err(unisono_core::rpc::ForwardError::TooFar { .. }))
    }

    fn note_job(&mut self, process: usize, job: &Job, what: impl FnOnce(Life, CallNumber) -> What) {
        let Some(resident) = &self.processes[process].resident else { return };
        let what = what(self.recorder.names.life(job.client), job.call);
        self.recorder.note(self.now, process, resident.life, what);
    }

    /// Schedules the next step of a request.
    pub(crate) fn trigger_job(&mut self, delay: u64, process: usize, life: Life, job: u32) {
        self.trigger(delay, Trigger::Work { process: process as u16, life, job });
    }

    /// Stores the application's decision about a request. Returns false if the application no longer works on it.
    pub(crate) fn keep_job(&mut self, process: usize, index: u32, job: Job) -> bool {
        let resident = self.processes[process].resident.as_mut();
        let kept = resident.and_then(|resident| resident.side.jobs.get_mut(&index));
        kept.map(|kept| *kept = job).is_some()
    }

    /// Ends the application's work on a request, so that it can take another.
    pub(crate) fn finish(&mut self, process: usize, job: u32) {
        let resident = self.processes[process].resident.as_mut();
        if resident.is_some_and(|resident| resident.side.jobs.remove(&job).is_some())
            && !self.is_paused(process)
        {
            self.drain(process);
        }
    }

    // --- outputs of endpoints ---

    fn take_outcomes(&mut self, process: usize) {
        while let Some(resident) = &mut self.processes[process].resident
            && let Some((call, result)) = resident.side.endpoint.poll_outcome()
        {
            let life = resident.life;
            let service = resident.side.under_way.remove(&call);
            let outcome = outcome(&result);
            if let Some(service) = service.filter(|_| outcome == CallOutcome::OtherInstance)
                && self.random.chance(0.5)
            {
                let port = self.common.services[service as usize].port;
                resident.side.endpoint.forget_instance(resident.clock.read(self.now), port);
            }
            let waiting = resident.side.jobs.iter().find(|(_, job)| job.awaits == Some(call));
            if let Some((job, _)) = waiting {
                let trigger = Trigger::Work { process: process as u16, life, job: *job };
                self.queue.push(self.now, Happening::Trigger(trigger));
            }
            if let Some(event_log) = &mut self.event_log {
                event_log.call_ended(process, &result);
            }
            self.recorder.note(self.now, process, life, What::CallEnded { call, outcome });
        }
    }

    fn take_requests(&mut self, process: usize) {
        while let Some(resident) = &mut self.processes[process].resident
            && resident.takes_events_from <= self.now
            && resident.side.jobs.len() < resident.side.workers
            && let local = resident.clock.read(self.now)
            && let Some(request) = resident.side.endpoint.poll_request(local)
        {
            let (life, side) = (resident.life, &mut resident.side);
            let service = self.common.service(request.port).unwrap_or(u16::MAX);
            let client = self.recorder.names.life(request.client);
            let (call, hops, is_late) = (request.call, request.hops, request.deadline <= local);
            let hash = record::hash(&request.payload);
            if let Some(event_log) = &mut self.event_log {
                event_log.request(process, &request);
            }
            self.recorder.note(
                self.now,
                process,
                life,
                What::Handed { client, call, port: service, hops, is_late, hash },
            );
            let job = side.jobs_begun;
            side.jobs_begun += 1;
            side.jobs.insert(
                job,
                Job {
                    id: request.id,
                    client: request.client,
                    call,
                    service,
                    instance: side.instances.get(&service).copied().unwrap_or_default(),
                    hops,
                    response: None,
                    awaits: None,
                },
            );
            self.queue
                .push(self.now, Happening::Trigger(Trigger::Work { process: process as u16, life, job }));
        }
    }

    /// Ends the run: collects the probes and runs the checkers on the end.
    pub(crate) fn finish_calls(&mut self) {
        for place in 0..self.processes.len() {
            if let Some(resident) = &self.processes[place].resident {
                self.probes |= resident.side.probes();
            }
        }
        self.recorder.finish(&End { at: Time::from_nanos(self.now), ..End::default() });
    }

    fn note_holdings(&mut self, process: usize) {
        let Some(resident) = &mut self.processes[process].resident else { return };
        let (life, side) = (resident.life, &mut resident.side);
        if (side.came, side.left) != side.noted {
            side.noted = (side.came, side.left);
            let what = What::Strayed { came: side.came, left: side.left };
            self.recorder.note(self.now, process, life, what);
        }
        if side.work.done() != side.worked {
            side.worked = side.work.done();
            let (made, checked) = side.worked;
            self.recorder.note(self.now, process, life, What::Worked { made, checked });
        }
        let held = side.endpoint.account();
        let most = &mut side.held;
        for (what, used, known, max) in [
            ("requests", held.pending, &mut most.pending, side.queues_max),
            ("calls", held.calls, &mut most.calls, side.under_way.len()),
            ("sessions", held.sessions, &mut most.sessions, self.recorder.names.lives()),
        ] {
            if used > *known {
                *known = used;
                let (used, max) = (used as u32, max as u32);
                self.recorder.note(self.now, process, life, What::Held { what, used, max });
            }
        }
    }
}
