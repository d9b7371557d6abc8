//! The key pair of an endpoint's life, and what it agrees on with other lives (X25519, HKDF-SHA256, AES-256-GCM).
//!
//! The two lives of a session compute one secret from their key pairs. From it they derive a key for each direction and
//! each salt; the nonce is the packet number of the datagram. The key pair is in memory only, and ends with the life. So
//! a process that learns the group key or a private port later cannot read what was said.

use crate::error::OpenError;
use crate::opening::random;
use crate::salt::Salt;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::digest;
use ring::hkdf::{HKDF_SHA256, Prk, Salt as HkdfSalt};
use unisono_core::Uid;
use unisono_core::rpc::{KeyAgreement, Pair, PublicKey};
use unisono_core::wire::TAG_BYTES;
use x25519_dalek::StaticSecret;

/// Binds the derived keys to this use of the secret.
const SALT: &[u8] = b"unisono calls 2";
/// Binds the hash of a public key to its use as a uid.
const LIFE: &[u8] = b"unisono life 2: ";

/// A key pair of one life. `StaticSecret` wipes itself.
pub(crate) struct LifeKey {
    secret: StaticSecret,
    public: PublicKey,
    salt: Salt,
}

impl LifeKey {
    /// Returns a new key pair, from the operating system's random numbers.
    pub(super) fn new() -> Result<LifeKey, OpenError> {
        Ok(LifeKey::from_secret(random()?))
    }

    pub(crate) fn from_secret(secret: [u8; 32]) -> LifeKey {
        let secret = StaticSecret::from(secret);
        let public = PublicKey(x25519_dalek::PublicKey::from(&secret).to_bytes());
        LifeKey { secret, public, salt: Salt::new() }
    }
}

impl KeyAgreement for LifeKey {
    fn public_key(&self) -> PublicKey {
        self.public
    }

    fn uid_of(&self, key: &PublicKey) -> Uid {
        let mut hash = digest::Context::new(&digest::SHA256);
        hash.update(LIFE);
        hash.update(&key.0);
        let mut uid = [0; 8];
        uid.copy_from_slice(&hash.finish().as_ref()[..8]);
        Uid(u64::from_be_bytes(uid))
    }

    fn salt(&mut self) -> u64 {
        self.salt.next()
    }

    fn agree(&self, key: &PublicKey) -> Option<Box<dyn Pair>> {
        let shared = self.secret.diffie_hellman(&x25519_dalek::PublicKey::from(key.0));
        // Of a few keys nothing comes that only the two lives know.
        shared.was_contributory().then(|| {
            let root = HkdfSalt::new(HKDF_SHA256, SALT).extract(shared.as_bytes());
            let pair =
                Agreed { root, mine: self.public, other: *key, seals: None, opens: None, opened: None };
            Box::new(pair) as Box<dyn Pair>
        })
    }
}

/// What two lives have agreed on, as one of them sees it.
struct Agreed {
    root: Prk,
    mine: PublicKey,
    other: PublicKey,
    /// The key of the last salt with which this life sealed.
    seals: Option<Box<Derived>>,
    /// The key of the last salt with which the other life sealed, and the one before it: datagrams may be under way.
    opens: Option<Box<Derived>>,
    opened: Option<Box<Derived>>,
}

struct Derived {
    salt: u64,
    key: LessSafeKey,
}

impl Agreed {
    fn derive(&self, sender: &PublicKey, receiver: &PublicKey, salt: u64) -> Box<Derived> {
        let salt_bytes = salt.to_be_bytes();
        let info = [&sender.0[..], &receiver.0[..], &salt_bytes[..]];
        // Fails only for keys longer than 255 hashes.
        let key = self.root.expand(&info, &AES_256_GCM).map(UnboundKey::from);
        let key = LessSafeKey::new(key.unwrap_or_else(|_| unreachable!("a key is one hash long")));
        Box::new(Derived { salt, key })
    }
}

impl Pair for Agreed {
    fn seal(
        &mut self,
        salt: u64,
        number: u64,
        covered: &[u8],
        contents: &mut [u8],
    ) -> Option<[u8; TAG_BYTES]> {
        if self.seals.as_ref().is_none_or(|derived| derived.salt != salt) {
            self.seals = Some(self.derive(&self.mine, &self.other, salt));
        }
        let key = &self.seals.as_ref()?.key;
        let tag = key.seal_in_place_separate_tag(nonce(number), Aad::from(covered), contents).ok()?;
        tag.as_ref().try_into().ok()
    }

    fn open(
        &mut self,
        salt: u64,
        number: u64,
        covered: &[u8],
        contents: &mut [u8],
        tag: [u8; TAG_BYTES],
    ) -> bool {
        let opens = |derived: &Derived, contents: &mut [u8]| {
            let (covered, tag) = (Aad::from(covered), Tag::from(tag));
            derived.key.open_in_place_separate_tag(nonce(number), covered, tag, contents, 0..).is_ok()
        };
        let known = [&self.opens, &self.opened].into_iter().flatten().find(|derived| derived.salt == salt);
        if let Some(derived) = known {
            return opens(derived, contents);
        }
        let derived = self.derive(&self.other, &self.mine, salt);
        let fits = opens(&derived, contents);
        if fits {
            self.opened = self.opens.replace(derived);
        }
        fits
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(byte: u8) -> LifeKey {
        LifeKey::from_secret([byte; 32])
    }

    fn pair(mine: &LifeKey, other: &LifeKey) -> Box<dyn Pair> {
        mine.agree(&other.public_key()).unwrap()
    }

    /// Returns true if the datagram opens to what was sealed.
    fn opens(pair: &mut dyn Pair, sealed: &(u64, u64, Vec<u8>, [u8; 16]), changed: Option<usize>) -> bool {
        let (salt, number, mut contents, mut tag) = sealed.clone();
        let mut covered = b"head".to_vec();
        let all = covered.iter_mut().chain(&mut contents).chain(&mut tag);
        changed.into_iter().zip(all.skip(changed.unwrap_or(0))).for_each(|(_, byte)| *byte ^= 1);
        let opens = pair.open(salt, number, &covered, &mut contents, tag);
        assert!(!opens || contents == b"contents");
        opens
    }

    fn seal(pair: &mut dyn Pair, salt: u64, number: u64) -> (u64, u64, Vec<u8>, [u8; 16]) {
        let mut contents = b"contents".to_vec();
        let tag = pair.seal(salt, number, b"head", &mut contents).unwrap();
        assert_ne!(contents, b"contents");
        (salt, number, contents, tag)
    }

    #[test]
    fn only_the_two_lives_read_and_write_what_they_say_to_each_other() {
        let (client, server, other) = (life(1), life(2), life(3));
        let (mut from, mut to) = (pair(&client, &server), pair(&server, &client));
        let sealed = seal(&mut *from, 5, 6);
        assert!(opens(&mut *to, &sealed, None));
        for place in 0..4 + 8 + 16 {
            assert!(!opens(&mut *to, &sealed, Some(place)), "byte {place}");
        }
        assert!(!opens(&mut *from, &sealed, None), "reflected");
        for mut stranger in
            [pair(&other, &client), pair(&other, &server), pair(&client, &other), pair(&server, &other)]
        {
            assert!(!opens(&mut *stranger, &sealed, None));
        }
        let (salt, number, contents, tag) = sealed;
        assert!(!opens(&mut *to, &(salt + 1, number, contents.clone(), tag), None));
        assert!(!opens(&mut *to, &(salt, number + 1, contents, tag), None));
    }

    #[test]
    fn every_salt_and_direction_has_a_key_of_its_own_and_the_last_two_of_the_other_life_are_kept() {
        let (client, server) = (life(1), life(2));
        let (mut from, mut to) = (pair(&client, &server), pair(&server, &client));
        let said: Vec<_> = [1, 2, 1, 3].map(|salt| seal(&mut *from, salt, 9)).into();
        assert_eq!(said[0], said[2]);
        assert!(said[0].2 != said[1].2 && said[1].2 != said[3].2);
        assert_ne!(seal(&mut *to, 1, 9).2, said[0].2);
        for index in [0, 1, 0, 3, 1, 0] {
            assert!(opens(&mut *to, &said[index], None));
        }
    }

    #[test]
    fn a_uid_follows_from_the_key_and_a_key_of_which_nothing_comes_is_refused() {
        let (client, server) = (life(1), life(2));
        assert_eq!(client.uid_of(&server.public_key()), server.uid_of(&server.public_key()));
        assert_ne!(client.uid_of(&server.public_key()), client.uid_of(&client.public_key()));
        for weak in [0, 1] {
            let mut key = [0; 32];
            key[0] = weak;
            assert!(client.agree(&PublicKey(key)).is_none());
        }
    }
}
