//! The ports of a service. Its own port is random, and its secret is part of the state: a client that knows the port cannot
//! serve it. The ports for watches and backups follow from the secret; the service tells them.
//!
//! The ports for status have names, because a server answers there before it has the state. What they carry is no secret.

use bytes::{BufMut, Bytes};
use unisono::rpc::{Port, PrivatePort};
use unisono_table::VERSION;

/// The question for the ports of watches and backups: a local read of the service.
pub(crate) const PORTS_QUESTION: [u8; 2] = [VERSION, 0xf0];
const PORT_BYTES: usize = 16;

/// Binds derived ports to this use.
const DERIVED: &str = "unisono directory 1 ports";

/// What a server serves besides status.
#[derive(Clone)]
pub(crate) struct Ports {
    /// For commands and queries.
    pub(crate) service: PrivatePort,
    pub(crate) watch: PrivatePort,
    pub(crate) backup: PrivatePort,
}

impl Ports {
    /// Returns the ports of a service with this secret, which are the bytes of its private port.
    pub(crate) fn of_secret(secret: &[u8]) -> Option<Ports> {
        let secret: &[u8; PORT_BYTES] = secret.try_into().ok()?;
        let derived = |what: &str| {
            let key = blake3::derive_key(DERIVED, secret);
            let hash = blake3::keyed_hash(&key, what.as_bytes());
            hash.as_bytes().first_chunk().and_then(port)
        };
        Some(Ports { service: port(secret)?, watch: derived("watch")?, backup: derived("backup")? })
    }

    /// Returns the answer to the question for ports.
    pub(crate) fn answer(&self) -> Bytes {
        let mut out = Vec::with_capacity(1 + 2 * PORT_BYTES);
        out.put_u8(VERSION);
        out.put_u128(number(self.watch.public()));
        out.put_u128(number(self.backup.public()));
        out.into()
    }
}

/// Returns the ports for watches and backups that an answer contains.
pub(crate) fn read_answer(answer: &[u8]) -> Option<(Port, Port)> {
    let (version, ports) = answer.split_first()?;
    if *version != VERSION || ports.len() != 2 * PORT_BYTES {
        return None;
    }
    let read = |bytes: &[u8]| Some(public(u128::from_be_bytes(bytes.try_into().ok()?)));
    Some((read(&ports[..PORT_BYTES])?, read(&ports[PORT_BYTES..])?))
}

fn port(secret: &[u8; PORT_BYTES]) -> Option<PrivatePort> {
    PrivatePort::parse(&format!("{:032x}", u128::from_be_bytes(*secret))).ok()
}

/// Returns the public port with this number.
pub(crate) fn public(number: u128) -> Port {
    // 32 hexadecimal digits are a port.
    format!("{number:032x}").parse().unwrap_or_else(|_| Port::from_name(""))
}

/// Returns the number of a public port.
pub(crate) fn number(port: Port) -> u128 {
    u128::from_str_radix(&port.to_string(), 16).unwrap_or_default()
}

/// Returns the port where this server answers for its status, to clients that have a capability.
pub(crate) fn status_by_port(service: unisono_table::Port, server: u8) -> PrivatePort {
    PrivatePort::from_name(&format!("status of server {server} of directory port {:032x}", service.0))
}

/// Returns the port where this server answers for its status, to clients that know the name of the service.
pub(crate) fn status_by_name(service: &str, server: u8) -> PrivatePort {
    PrivatePort::from_name(&format!("status of server {server} of directory {service}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_learns_the_ports_and_no_secret() {
        let secret = [7; PORT_BYTES];
        let ports = Ports::of_secret(&secret).unwrap();
        let answer = ports.answer();
        assert_eq!(read_answer(&answer), Some((ports.watch.public(), ports.backup.public())));
        assert!(!answer.windows(PORT_BYTES).any(|window| window == secret));
        let all = [ports.service.public(), ports.watch.public(), ports.backup.public()];
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
        assert_eq!(public(number(all[0])), all[0]);
        assert!(Ports::of_secret(b"short").is_none());
        assert_eq!(read_answer(&answer[1..]), None);
    }
}
