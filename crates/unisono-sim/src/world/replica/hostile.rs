//! A hostile client: a process with several lives at one address, each an endpoint that takes what it can get.

use super::ReplicaSide;
use super::context::{Context, outcome_of_call};
use super::programs::Question;
use crate::directory;
use crate::record::{Mode, OpId, ReplicaRecord};
use crate::replica::Copy;
use crate::seal::{CheapKeys, CheapProof, Seal};
use crate::world::World;
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::replica::StateMachine;
use unisono_core::rpc::{
    CallDestination, CallFailure, CallNumber, CallSettings, Endpoint, KeyAgreement, PortProof, Wishes,
};
use unisono_core::wire::{Decoder, Frame, HEADER_BYTES};
use unisono_core::{ConfigError, Random, Time, Uid};

/// The lives of a hostile client.
pub(crate) struct Hostile {
    lives: Vec<HostileLife>,
    address: SocketAddr,
    settings: CallSettings,
    random: Random,
    /// The life that sends next.
    turn: usize,
    is_noted: bool,
}

struct HostileLife {
    endpoint: Endpoint,
    /// Its calls that have not ended.
    calls: BTreeMap<CallNumber, OpId>,
    /// Its watches that have not ended. What they are answered is not looked at.
    watches: BTreeSet<CallNumber>,
}

impl Hostile {
    pub(super) fn begin(
        now: Time,
        address: SocketAddr,
        (lives, settings): (usize, CallSettings),
        random: Random,
    ) -> Result<Hostile, ConfigError> {
        let mut hostile = Hostile { lives: Vec::new(), address, settings, random, turn: 0, is_noted: false };
        for _ in 0..lives {
            let life = hostile.new_life(now)?;
            hostile.lives.push(life);
        }
        Ok(hostile)
    }

    fn new_life(&mut self, now: Time) -> Result<HostileLife, ConfigError> {
        let uid = Uid(self.random.next_u64());
        let random = Random::from_u64(self.random.next_u64());
        let proof: Box<dyn PortProof> = Box::new(CheapProof::honest());
        let keys: (_, Box<dyn KeyAgreement>) = (proof, Box::new(CheapKeys(uid)));
        let (address, settings) = (self.address, self.settings.clone());
        let mut endpoint = Endpoint::new(now, address, settings, Box::new(Seal), keys, random)?;
        endpoint.misbehave();
        Ok(HostileLife { endpoint, calls: BTreeMap::new(), watches: BTreeSet::new() })
    }

    /// Hands a datagram to the life that it is for, or to all.
    pub(super) fn handle(&mut self, now: Time, from: SocketAddr, datagram: &BytesMut) {
        let frames = datagram.get(HEADER_BYTES..).unwrap_or_default();
        let to = match Decoder::new(Bytes::copy_from_slice(frames)).next() {
            Some(Ok(Frame::Envelope(envelope))) => Some(envelope.head.to),
            Some(Ok(Frame::PortHere(_) | Frame::Unopened(_))) => None,
            _ => return,
        };
        let is_for = |life: &&mut HostileLife| to.is_none_or(|to| to == life.endpoint.uid());
        for life in self.lives.iter_mut().filter(is_for) {
            life.endpoint.handle_datagram(now, from, BytesMut::from(&datagram[..]));
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.lives.iter_mut().for_each(|life| life.endpoint.handle_timeout(now));
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.lives.iter().filter_map(|life| life.endpoint.poll_timeout()).map(|(at, _)| at).min()
    }

    pub(super) fn poll_transmit(&mut self, now: Time, datagram: &mut Vec<u8>) -> Option<CallDestination> {
        for _ in 0..self.lives.len() {
            self.turn = (self.turn + 1) % self.lives.len();
            let destination = self.lives[self.turn].endpoint.poll_transmit(now, datagram);
            if destination.is_some() {
                return destination;
            }
        }
        None
    }

    /// Takes the outcomes of all calls.
    pub(super) fn take_outcomes(&mut self, cx: &mut Context<'_>) -> bool {
        if !std::mem::replace(&mut self.is_noted, true) {
            cx.note(ReplicaRecord::Hostile);
        }
        let mut moved = false;
        for life in &mut self.lives {
            while let Some((call, result)) = life.endpoint.poll_outcome() {
                moved = true;
                let is_watch = life.watches.remove(&call);
                if result == Err(CallFailure::OtherInstance) {
                    let watches = cx.common.watches.as_ref().filter(|_| is_watch);
                    let port = watches.map_or(cx.common.service.port, |watches| watches.port);
                    life.endpoint.forget_instance(cx.local, port);
                }
                if let Some(id) = life.calls.remove(&call) {
                    result.iter().for_each(|answer| cx.note_answer(id, answer));
                    cx.end_op(id, outcome_of_call(&result));
                }
            }
        }
        moved
    }
}

impl World<ReplicaSide> {
    /// Returns how many calls this life of a hostile client has under way, and how many watches.
    pub(crate) fn hostile_calls(&self, process: usize, index: usize) -> (usize, usize) {
        let hostile = self.resident(process).and_then(|resident| resident.side.hostile.as_ref());
        let life = hostile.map(|hostile| &hostile.lives[index]);
        life.map_or((0, 0), |life| (life.calls.len(), life.watches.len()))
    }

    /// Lets a life of a hostile client watch a directory.
    pub(crate) fn watch_hostile(&mut self, process: usize, index: usize, watch: &Bytes, limit: Duration) {
        if self.is_paused(process) {
            return;
        }
        self.with(process, |side, cx| {
            let life = &mut side.hostile.as_mut()?.lives[index];
            let port = cx.common.watches.as_ref()?.port;
            let call = life.endpoint.call(cx.local, port, directory::payload(watch), limit).ok()?;
            life.watches.insert(call).then_some(())
        });
        self.drain(process);
    }

    /// Lets a life of a hostile client call the service.
    pub(crate) fn call_hostile(
        &mut self,
        process: usize,
        index: usize,
        question: &Question,
        limit: Duration,
    ) -> Option<OpId> {
        if self.is_paused(process) {
            return None;
        }
        let id = self.with(process, |side, cx| {
            let life = &mut side.hostile.as_mut()?.lives[index];
            let (port, wishes): (_, Wishes) = (cx.common.service.port, question.wishes());
            let call = life.endpoint.call_with(cx.local, port, question.payload(), limit, wishes).ok()?;
            let id = Self::begin_question(cx, (life.endpoint.uid(), call), question);
            life.calls.insert(call, id);
            if question.mode() == Mode::Command && limit > Copy::COMMAND_WAITS_MAX {
                let name = (cx.recorder.names.life(life.endpoint.uid()), call);
                cx.note(ReplicaRecord::WaitsTooLong { name });
            }
            Some(id)
        });
        self.drain(process);
        id.flatten()
    }

    /// Begins a new life of a hostile client in the place of another one. Nothing is heard any more of the calls of that one.
    pub(crate) fn renew_hostile(&mut self, process: usize, index: usize) {
        if self.is_paused(process) {
            return;
        }
        self.with(process, |side, cx| {
            let hostile = side.hostile.as_mut()?;
            let life = hostile.new_life(cx.local).ok()?;
            hostile.lives[index] = life;
            Some(())
        });
        self.drain(process);
    }
}
