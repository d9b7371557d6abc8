//! One life of a replica: a member of the group, and what this process offers beside it.

use super::options::durability_of;
use super::transfer;
use crate::commands::Message;
use crate::engine::Listed;
use crate::error::OpenError;
use crate::group::Group;
use crate::rpc::{Client, ServeOptions, Server, ServiceError};
use bytes::Bytes;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use unisono_core::replica::{ReplicaSettings, instance_of};
use unisono_core::{SendError, Uid};

/// A life. See the module.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) group: Group,
    pub(super) me: Uid,
    /// Asks other members for the state.
    pub(super) client: Client,
    /// Answers other members that ask for it.
    pub(super) transfer: Server,
    /// The services that callers use.
    services: Mutex<Services>,
}

#[derive(Debug, Default)]
struct Services {
    servers: Vec<Server>,
    is_over: bool,
}

impl Life {
    /// Begins to answer questions beside a member that has entered.
    pub(super) fn new(name: &str, group: Group) -> Result<Life, OpenError> {
        let me = group.info().me;
        let open = |error| match error {
            ServiceError::Open(error) => error,
            ServiceError::Refused(reason) => OpenError::Socket {
                what: "serve the transfer of the state",
                cause: std::io::Error::other(reason),
            },
        };
        let client = Client::beside(&group)?;
        let port = transfer::port(name);
        let transfer = Server::beside(&group, &port, ServeOptions::default()).map_err(open)?;
        Ok(Life { me, client, transfer, services: Mutex::default(), group })
    }

    /// Returns the settings of this life's copy.
    pub(super) fn settings(&self, client: Uid, digest: fn(&[u8]) -> [u8; 32]) -> ReplicaSettings {
        let config = self.group.shared().with(|member, _| member.group.config().clone());
        ReplicaSettings {
            client,
            durability: durability_of(&config),
            message_bytes_max: config.message_bytes_max as usize,
            digest,
        }
    }

    /// Returns the identity of the service, which callers stay with.
    pub(super) fn instance(&self) -> u64 {
        instance_of(self.group.info().instance)
    }

    /// Sends a message to the group, unless that has to wait: then the message comes back.
    pub(super) fn submit_now(&self, payload: Bytes) -> Option<Bytes> {
        let (message, mut obstacle) = (Message { payload, resilience: None }, SendError::WindowFull);
        let submitted = self
            .group
            .shared()
            .block(Some(Duration::ZERO), |member, now| message.submit_unwatched(member, now, &mut obstacle));
        match submitted {
            // An error is the end of this life, which takes care of what waits.
            Some(_) => None,
            None => Some(message.payload),
        }
    }

    /// Sends a message to the group as soon as there is room. Ready with false if it has to be tried later.
    pub(super) fn poll_submit(
        &self,
        context: &mut Context<'_>,
        listed: &mut Listed,
        payload: &Bytes,
    ) -> Poll<bool> {
        let message = Message { payload: payload.clone(), resilience: None };
        let submitted = self.group.shared().poll(context, listed, |member, now| {
            message.submit_unwatched(member, now, &mut SendError::WindowFull)
        });
        submitted.map(|submitted| submitted != Err(SendError::NotReceiving))
    }

    /// Notes a server that belongs to this life. Returns false, and withdraws it, if the life is over.
    pub(super) fn add(&self, server: &Server) -> bool {
        let mut services = self.services();
        match services.is_over {
            true => server.withdraw(),
            false => services.servers.push(server.clone()),
        }
        !services.is_over
    }

    /// Takes no more requests of callers, and waits at most for `timeout` until those that were taken are answered.
    pub(super) fn drain(&self, timeout: Duration) {
        let begun = std::time::Instant::now();
        let servers = self.services().servers.clone();
        servers.iter().for_each(Server::withdraw);
        for server in servers {
            // A caller that gets no answer learns from its own library whether its call may have happened.
            let _ = server.drain(timeout.saturating_sub(begun.elapsed()));
        }
    }

    /// Takes no more requests, because this life is over.
    pub(super) fn withdraw(&self) {
        let mut services = self.services();
        services.is_over = true;
        services.servers.drain(..).for_each(|server| server.withdraw());
        self.transfer.withdraw();
    }

    fn services(&self) -> MutexGuard<'_, Services> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the group within `timeout`, or else ends this life at once.
    pub(super) fn leave(&self, timeout: Duration) {
        let mut begun = false;
        let left = self.group.shared().block(Some(timeout), |member, now| {
            crate::commands::leave(member, now, &Bytes::new(), &mut begun)
        });
        if left.is_none() {
            self.group.end();
        }
    }
}
