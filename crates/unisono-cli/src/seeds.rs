//! The members to ask, as people name them: which of them have addresses.

use crate::output::visible;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use unisono::DEFAULT_PORT;

/// The addresses that a seed stands for: an address or a name, with a port or without.
pub(crate) fn addresses(seed: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = seed.parse::<IpAddr>() {
        return Ok(vec![(address, DEFAULT_PORT).into()]);
    }
    let found = match seed.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => seed.to_socket_addrs(),
        _ => (seed, DEFAULT_PORT).to_socket_addrs(),
    };
    Ok(found?.collect())
}

/// What to type about a seed that has no address.
pub(crate) fn advice(seed: &str) -> String {
    let host = seed.rsplit_once(':').map_or(seed, |(host, _)| host);
    format!("type `getent hosts {host}`, and check the spelling")
}

/// Tells people which of several seeds will not be asked. If it is all of them, nothing can be: that is an error, and
/// not told here.
pub(crate) fn warn_of_unresolved(seeds: &[String]) {
    let without: Vec<(&String, io::Error)> =
        seeds.iter().filter_map(|seed| Some((seed, addresses(seed).err()?))).collect();
    if without.len() < seeds.len() {
        for (seed, error) in without {
            let (seed, advice) = (visible(seed), advice(seed));
            eprintln!("unisono: {seed} has no address ({error}) and is not asked: {}", visible(&advice));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_addresses_or_names_with_or_without_a_port() {
        for (seed, expected) in [
            ("127.0.0.1:9", "127.0.0.1:9"),
            ("127.0.0.2", "127.0.0.2:7195"),
            ("[::1]:9", "[::1]:9"),
            ("::1", "[::1]:7195"),
            ("localhost:9", "127.0.0.1:9"),
            ("localhost", "127.0.0.1:7195"),
        ] {
            assert!(addresses(seed).unwrap().contains(&expected.parse().unwrap()), "{seed}");
        }
        assert!(addresses("nowhere.invalid").is_err());
        assert_eq!(
            advice("nowhere.invalid:7"),
            "type `getent hosts nowhere.invalid`, and check the spelling"
        );
    }
}
