//! From options to an endpoint, for clients and services.

use super::agreement::LifeKey;
use super::port::Signatures;
use crate::engine::{Access, Calls, Engine, Entrance, Shared};
use crate::error::OpenError;
use crate::opening::{Handle, protection, random};
use crate::options::Options;
use crate::reach::{Purpose, Wish, datagram_bytes_max};
use crate::seeds::Seeds;
use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::rpc::Endpoint;
use unisono_core::{ConfigError, Random, Time};

/// Returns an endpoint of a service for these options: the one that exists, or a new one. Waits for addresses of the seeds.
pub(super) fn for_service(options: &Options) -> Result<Shared<Calls>, OpenError> {
    open(options, options.seeds_timeout, Purpose::IsFound)
}

/// The same of a client, which does not wait.
pub(super) fn for_client(options: &Options) -> Result<Shared<Calls>, OpenError> {
    open(options, Duration::ZERO, Purpose::OnlyAsks)
}

fn open(options: &Options, seeds_timeout: Duration, purpose: Purpose) -> Result<Shared<Calls>, OpenError> {
    let seeds = Seeds::new(options)?;
    let wish = Wish::of(options);
    let place = wish.place_for(purpose, &seeds.resolve_within(seeds_timeout, "calls")?)?;
    // Without seeds and multicast, an endpoint has no address to ask.
    if seeds.is_empty() && place.interface.is_none() && !place.is_nowhere {
        return Err(OpenError::NoMulticast { address: place.bind, cause: crate::engine::no_multicast() });
    }
    let make = maker(options)?;
    Engine::call_from((wish, purpose), place, entrance(options, seeds), make)
}

/// Returns an endpoint at the address of a member.
pub(super) fn beside(member: &impl Handle) -> Result<Shared<Calls>, OpenError> {
    let owner = member.owner();
    let options = &owner.options;
    let make = maker(options)?;
    owner.shared.call_beside(entrance(options, Seeds::new(options)?), make)
}

fn entrance(options: &Options, seeds: Seeds) -> Entrance {
    let (key, settings, hops) = (options.key.clone(), options.calls.clone(), options.settings.hops);
    let access = Access { key, seeds, settings, hops };
    Entrance { access, spin: options.spin }
}

fn maker(
    options: &Options,
) -> Result<impl FnOnce(Time, SocketAddr) -> Result<Endpoint, ConfigError>, OpenError> {
    let agreement = Box::new(LifeKey::new()?);
    let random = Random::from_seed(random()?);
    let protection = protection(options);
    let mut settings = options.calls.clone();
    Ok(move |now, address: SocketAddr| {
        settings.datagram_bytes_max = datagram_bytes_max(settings.datagram_bytes_max, address.ip());
        Endpoint::new(now, address, settings, protection, (Box::new(Signatures), agreement), random)
    })
}
