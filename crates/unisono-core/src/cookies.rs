//! Cookies: a keyed hash (SipHash-2-4) binds a time to a process's life and address.
//!
//! A cookie is sent to an address, and a process that returns it has shown that it receives there. What a process knows
//! of other cookies tells it nothing about the cookie of another address.

use crate::identity::Uid;
use crate::random::Random;
use core::fmt;
use core::net::{IpAddr, SocketAddr};

/// Length of what a cookie binds in bytes: time, uid, family, address, port.
const BOUND_BYTES: usize = 8 + 8 + ADDRESS_BYTES;
/// Length of an address of either family in a hash: family, address, port.
const ADDRESS_BYTES: usize = 1 + 16 + 2;

/// The secret of one life, with which it makes cookies.
#[derive(Clone, Default)]
pub(crate) struct CookieKey([u64; 2]);

impl CookieKey {
    pub(crate) fn new(random: &mut Random) -> CookieKey {
        CookieKey([random.next_u64(), random.next_u64()])
    }

    /// Returns the seal of a cookie for `uid` at `address`; `time` says when it was issued.
    pub(crate) fn seal(&self, time: u64, uid: Uid, address: SocketAddr) -> u64 {
        let mut bound = [0; BOUND_BYTES];
        bound[..8].copy_from_slice(&time.to_be_bytes());
        bound[8..16].copy_from_slice(&uid.0.to_be_bytes());
        bound[16..].copy_from_slice(&address_bytes(address));
        siphash(self.0, &bound)
    }
}

impl fmt::Debug for CookieKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieKey(secret)")
    }
}

/// Returns an address in as many bytes as any other one has.
pub(crate) fn address_bytes(address: SocketAddr) -> [u8; ADDRESS_BYTES] {
    let (family, ip) = match address.ip() {
        IpAddr::V4(ip) => (4, u128::from(u32::from(ip))),
        IpAddr::V6(ip) => (6, u128::from(ip)),
    };
    let mut bytes = [family; ADDRESS_BYTES];
    bytes[1..17].copy_from_slice(&ip.to_be_bytes());
    bytes[17..].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

/// Returns the SipHash-2-4 of `bytes`: a hash of 64 bits that cannot be guessed without the key.
pub(crate) fn siphash(key: [u64; 2], bytes: &[u8]) -> u64 {
    let mut state = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len() as u8;
    for word in words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word)) {
        state[3] ^= word;
        round(&mut state);
        round(&mut state);
        state[0] ^= word;
    }
    state[2] ^= 0xff;
    (0..4).for_each(|_| round(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32).wrapping_add(*d);
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *d = d.rotate_left(21) ^ *a;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::mix;

    /// The vectors published with SipHash: key 00 01 .. 0f, messages 00 01 .. of each length.
    #[test]
    fn the_published_vectors_come_out() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let message: [u8; 16] = core::array::from_fn(|index| index as u8);
        let expected = [
            (0, 0x726f_db47_dd0e_0e31),
            (1, 0x74f8_39c5_93dc_67fd),
            (2, 0x0d6c_8009_d9a9_4f5a),
            (3, 0x8567_6696_d7fb_7e2d),
            (4, 0xcf27_94e0_2771_87b7),
            (7, 0xab02_00f5_8b01_d137),
            (8, 0x93f5_f579_9a93_2462),
            (15, 0xa129_ca61_49be_45e5),
        ];
        for (length, hash) in expected {
            assert_eq!(siphash(key, &message[..length]), hash, "{length} bytes");
        }
    }

    fn at(ip: [u8; 4], port: u16) -> SocketAddr {
        (ip, port).into()
    }

    #[test]
    fn one_bit_of_anything_bound_turns_about_half_of_a_cookie() {
        let key = CookieKey::new(&mut Random::from_u64(1));
        let cookie = key.seal(7, Uid(1), at([10, 0, 0, 1], 40_000));
        let mut others = alloc::vec::Vec::new();
        others.extend((0..16).map(|bit| key.seal(7, Uid(1), at([10, 0, 0, 1], 40_000 ^ 1 << bit))));
        others.extend((0..8).map(|bit| key.seal(7, Uid(1), at([10, 0, 0, 1 ^ 1 << bit], 40_000))));
        others.extend((0..64).map(|bit| key.seal(7, Uid(1 ^ 1 << bit), at([10, 0, 0, 1], 40_000))));
        others.extend((0..64).map(|bit| key.seal(7 ^ 1 << bit, Uid(1), at([10, 0, 0, 1], 40_000))));
        others.push(key.seal(7, Uid(1), "[::a00:1]:40000".parse().unwrap()));
        for other in others {
            assert!((12..=52).contains(&(cookie ^ other).count_ones()), "{cookie:x} {other:x}");
        }
        let other_life = CookieKey::new(&mut Random::from_u64(2));
        assert_ne!(other_life.seal(7, Uid(1), at([10, 0, 0, 1], 40_000)), cookie);
    }

    /// Returns the number of which `mix` makes this one.
    fn unmix(mut x: u64) -> u64 {
        x ^= x >> 31 ^ x >> 62;
        x = x.wrapping_mul(0x3196_42b2_d24d_8ec3);
        x ^= x >> 27 ^ x >> 54;
        x = x.wrapping_mul(0x96de_1b17_3f11_9089);
        x ^ x >> 30 ^ x >> 60
    }

    #[test]
    fn the_cookie_of_one_port_is_not_computed_from_that_of_another() {
        assert_eq!(unmix(mix(0x1234_5678_9abc_def0)), 0x1234_5678_9abc_def0);
        let key = CookieKey::new(&mut Random::from_u64(3));
        let seal = |port| key.seal(7, Uid(1), at([127, 0, 0, 1], port));
        let computed = mix(unmix(seal(40_000)) ^ 40_000 ^ 7195);
        assert_ne!(computed, seal(7195));
    }

    #[test]
    fn the_secret_is_not_shown() {
        assert_eq!(alloc::format!("{:?}", CookieKey::new(&mut Random::from_u64(1))), "CookieKey(secret)");
    }
}
