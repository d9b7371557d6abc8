//! A world's endpoints: what each life's side of its calls keeps, what its application does, and what it is told.

use super::{BirthContext, Happening, Side, Trigger, World};
use crate::network::Path;
use crate::record::{self, CallOutcome, End, Life, What};
use crate::seal::{CheapProof, Seal};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::rpc::{
    CallAccount, CallDestination, CallFailure, CallNumber, CallSettings, Endpoint, PortProof, PrivatePort,
    RequestId, ServeOptions,
};
use unisono_core::{ConfigError, Destination, Planted, Port, Time, Uid};

/// A service: its port, and what all who serve it do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    pub(crate) private: PrivatePort,
    pub(crate) port: Port,
    pub(crate) options: ServeOptions,
}

impl Service {
    pub(crate) fn new(private: PrivatePort, options: ServeOptions) -> Service {
        Service { private, port: CheapProof::HONEST.public(&private), options }
    }
}

/// What a service that recognises repeats remembers of a call, at all its servers alike.
#[derive(Clone, Debug)]
pub(crate) enum Response {
    Reply(Bytes),
    Refusal(Bytes),
}

/// What the endpoints of a world have in common.
pub(crate) struct CallCommon {
    pub(crate) services: Vec<Service>,
    /// A place where nobody lives, and from which some datagrams seem to come.
    pub(crate) stray: Option<SocketAddr>,
    /// Services are looked for by multicast; otherwise everybody is asked alone.
    pub(crate) multicast: bool,
    /// By service, client and call.
    pub(crate) responses: BTreeMap<(u16, Uid, CallNumber), Response>,
}

impl CallCommon {
    fn service(&self, port: Port) -> Option<u16> {
        self.services.iter().position(|service| service.port == port).map(|index| index as u16)
    }
}

/// How an endpoint begins.
pub(crate) struct CallBirth {
    pub(crate) settings: CallSettings,
    /// Its application works on so many requests at a time.
    pub(crate) workers: usize,
    /// It says that it serves what it does not.
    pub(crate) forges: bool,
}

/// A request that an application works on.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: RequestId,
    pub(crate) client: Uid,
    pub(crate) call: CallNumber,
    pub(crate) service: u16,
    pub(crate) hops: u8,
    /// What it is going to answer, once it has made up its mind.
    pub(crate) response: Option<Response>,
    /// A call of its own that it waits for.
    pub(crate) awaits: Option<CallNumber>,
}

impl Job {
    /// What a service that recognises repeats knows the call by.
    pub(crate) fn name(&self) -> (u16, Uid, CallNumber) {
        (self.service, self.client, self.call)
    }
}

/// One life's side of all its calls.
pub(crate) struct CallSide {
    pub(crate) endpoint: Endpoint,
    /// By index, as triggers name them.
    pub(crate) jobs: BTreeMap<u32, Job>,
    jobs_begun: u32,
    workers: usize,
    forges: bool,
    serves: Vec<u16>,
    /// The same, and what it has served before, which it may still be working on.
    served: Vec<u16>,
    /// What all these may take.
    queues_max: usize,
    /// Calls of its application that have not ended.
    under_way: BTreeSet<CallNumber>,
    /// The most of everything so far.
    held: CallAccount,
    stray: Option<SocketAddr>,
    /// Bytes that seemed to come from nobody, and that went there; and what of it was noted.
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
        let (protection, proof) = (Box::new(Seal), Box::new(CheapProof { forges }));
        let endpoint = Endpoint::new(context.now, context.uid, settings, protection, proof, context.random)?;
        Ok(CallSide {
            endpoint,
            jobs: BTreeMap::new(),
            jobs_begun: 0,
            workers,
            forges,
            serves: Vec::new(),
            served: Vec::new(),
            queues_max: 0,
            under_way: BTreeSet::new(),
            held: CallAccount::default(),
            stray: common.stray,
            came: 0,
            left: 0,
            noted: (0, 0),
            multicast: common.multicast,
        })
    }

    fn plant(&mut self, bug: Planted) {
        self.endpoint.plant(bug);
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
            CallDestination::Address(address) => {
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

/// What the application was told of a call, as a record says it.
fn outcome(result: &Result<Bytes, CallFailure>) -> CallOutcome {
    match result {
        Ok(reply) => CallOutcome::Replied { hash: record::hash(reply) },
        Err(CallFailure::Refused(reason)) => CallOutcome::Refused { hash: record::hash(reason) },
        Err(CallFailure::NotFound) => CallOutcome::NotFound,
        Err(CallFailure::Failed) => CallOutcome::Failed,
        Err(CallFailure::Busy) => CallOutcome::Busy,
        Err(CallFailure::Unknown) => CallOutcome::Unknown,
    }
}

impl World<CallSide> {
    // --- what clients do ---

    /// The application calls a service with so many bytes.
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

    /// The same with this request.
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
            resident.side.under_way.insert(call);
            let limit_us = limit.as_micros() as u32;
            self.recorder.note(now, process, life, What::Called { call, port: service, limit_us, hash });
        }
        self.drain(process);
        call
    }

    /// The application does not wait for a call any longer.
    pub(crate) fn cancel(&mut self, process: usize, call: CallNumber) {
        let now = self.now;
        let Some(resident) = self.active(process) else { return };
        let life = resident.life;
        if !resident.side.under_way.remove(&call) {
            return;
        }
        resident.side.endpoint.cancel(resident.clock.read(now), call);
        self.recorder.note(now, process, life, What::CallCancelled { call });
        self.drain(process);
    }

    // --- what servers do ---

    /// Bytes for a reply.
    pub(crate) fn fill(&mut self, bytes: usize) -> Bytes {
        self.arena.fill(bytes, self.random.next_u64()).freeze()
    }

    /// The application serves a port from now on.
    pub(crate) fn serve(&mut self, process: usize, service: u16) {
        let (now, Service { private, port, options }) = (self.now, self.common.services[service as usize]);
        let Some(resident) = self.active(process) else { return };
        let (life, owns) = (resident.life, !resident.side.forges);
        // A forger's proof is made of what everybody knows.
        let private = if owns { private } else { PrivatePort(port.0) };
        if resident.side.endpoint.serve(private, options).is_ok() {
            resident.side.serves.push(service);
            if !resident.side.served.contains(&service) {
                resident.side.served.push(service);
                resident.side.queues_max += usize::from(options.queue_max);
            }
            let repeats = options.repeats;
            self.recorder.note(now, process, life, What::Serving { port: service, owns, repeats });
        }
        self.drain(process);
    }

    /// The application serves a port no more.
    pub(crate) fn withdraw(&mut self, process: usize, service: u16) {
        let (now, Service { port, .. }) = (self.now, self.common.services[service as usize]);
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

    /// The application has done what a request asks for.
    pub(crate) fn execute(&mut self, process: usize, job: &Job) {
        self.note_job(process, job, |client, call| What::Executed { client, call });
    }

    /// The application answers a request.
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

    /// The application passes a request on; false if it was passed on too often.
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

    /// Something is to be done about a request now.
    pub(crate) fn trigger_job(&mut self, delay: u64, process: usize, life: Life, job: u32) {
        self.trigger(delay, Trigger::Work { process: process as u16, life, job });
    }

    /// The application has made up its mind about a request; false if it does not work on it any more.
    pub(crate) fn keep_job(&mut self, process: usize, index: u32, job: Job) -> bool {
        let resident = self.processes[process].resident.as_mut();
        let kept = resident.and_then(|resident| resident.side.jobs.get_mut(&index));
        kept.map(|kept| *kept = job).is_some()
    }

    /// The request is off the application's hands: there is room for another.
    pub(crate) fn finish(&mut self, process: usize, job: u32) {
        let resident = self.processes[process].resident.as_mut();
        if resident.is_some_and(|resident| resident.side.jobs.remove(&job).is_some())
            && !self.is_paused(process)
        {
            self.drain(process);
        }
    }

    // --- what endpoints have to say ---

    fn take_outcomes(&mut self, process: usize) {
        while let Some(resident) = &mut self.processes[process].resident
            && let Some((call, result)) = resident.side.endpoint.poll_outcome()
        {
            let life = resident.life;
            resident.side.under_way.remove(&call);
            let outcome = outcome(&result);
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
                    hops,
                    response: None,
                    awaits: None,
                },
            );
            self.queue
                .push(self.now, Happening::Trigger(Trigger::Work { process: process as u16, life, job }));
        }
    }

    /// The run is over.
    pub(crate) fn finish_calls(&mut self) {
        for place in 0..self.processes.len() {
            if let Some(resident) = &self.processes[place].resident {
                self.probes |= resident.side.probes();
            }
        }
        self.recorder.finish(&End { at: Time::from_nanos(self.now), standings: Vec::new() });
    }

    fn note_holdings(&mut self, process: usize) {
        let Some(resident) = &mut self.processes[process].resident else { return };
        let (life, side) = (resident.life, &mut resident.side);
        if (side.came, side.left) != side.noted {
            side.noted = (side.came, side.left);
            let what = What::Strayed { came: side.came, left: side.left };
            self.recorder.note(self.now, process, life, what);
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
