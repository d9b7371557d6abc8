//! Sealing datagrams with the group key.
//!
//! Every sender has a key of its own, derived from the group key (HKDF-SHA256), the group's instance and the sender's
//! uid. So no two members use one key with one nonce. The nonce is the packet number, which its sender never uses
//! twice. The seal is AES-256-GCM; it also authenticates the header.

use crate::key::Key;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use std::collections::{HashMap, VecDeque};
use unisono_core::wire::{KeyContext, Protection, ProtectionKind, parts};

/// Binds derived keys to this use of the group key.
const SALT: &[u8] = b"unisono datagrams 1";
/// Maximum number of senders' keys that are kept; deriving one again costs a few microseconds.
const KEYS_MAX: usize = 8192;

/// [`Protection`] under a group key.
pub(crate) struct Sealed {
    root: Prk,
    keys: HashMap<KeyContext, LessSafeKey>,
    /// Contexts of the keys, in the order in which they were stored.
    remembered: VecDeque<KeyContext>,
}

impl Sealed {
    pub(crate) fn new(key: &Key) -> Sealed {
        let root = Salt::new(HKDF_SHA256, SALT).extract(key.bytes());
        Sealed { root, keys: HashMap::new(), remembered: VecDeque::new() }
    }

    fn derive(&self, context: &KeyContext) -> LessSafeKey {
        let (instance, sender) = (context.instance.0.to_be_bytes(), context.sender.0.to_be_bytes());
        let info = [&instance[..], &sender[..]];
        // Fails only for keys longer than 255 hashes.
        let key = self.root.expand(&info, &AES_256_GCM).map(UnboundKey::from);
        LessSafeKey::new(key.unwrap_or_else(|_| unreachable!("a key is one hash long")))
    }

    fn remember(&mut self, context: &KeyContext, key: LessSafeKey) {
        if self.remembered.len() == KEYS_MAX
            && let Some(oldest) = self.remembered.pop_front()
        {
            self.keys.remove(&oldest);
        }
        self.keys.insert(*context, key);
        self.remembered.push_back(*context);
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

impl Protection for Sealed {
    fn kind(&self) -> ProtectionKind {
        ProtectionKind::Sealed
    }

    fn seal(&mut self, context: &KeyContext, number: u64, datagram: &mut [u8]) {
        let Some(parts) = parts(datagram) else { return };
        if !self.keys.contains_key(context) {
            let key = self.derive(context);
            self.remember(context, key);
        }
        let associated = Aad::from(parts.header);
        // Fails only for payloads of gigabytes.
        if let Ok(tag) =
            self.keys[context].seal_in_place_separate_tag(nonce(number), associated, parts.payload)
        {
            parts.tag.copy_from_slice(tag.as_ref());
        }
    }

    fn open(&mut self, context: &KeyContext, number: u64, datagram: &mut [u8]) -> bool {
        let Some(parts) = parts(datagram) else { return false };
        let (associated, tag) = (Aad::from(parts.header), Tag::from(*parts.tag));
        let mut opens = |key: &LessSafeKey| {
            key.open_in_place_separate_tag(nonce(number), associated, tag, parts.payload, 0..).is_ok()
        };
        if let Some(key) = self.keys.get(context) {
            return opens(key);
        }
        let key = self.derive(context);
        let genuine = opens(&key);
        // A sender without the group key cannot fill the memory.
        if genuine {
            self.remember(context, key);
        }
        genuine
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::wire::HEADER_BYTES;
    use unisono_core::{Instance, Uid};

    fn context(instance: u128, sender: u64) -> KeyContext {
        KeyContext { instance: Instance(instance), sender: Uid(sender) }
    }

    fn sealed(byte: u8) -> Sealed {
        Sealed::new(&Key::from_bytes([byte; 32]))
    }

    /// A datagram with this payload, and nothing in its header.
    fn datagram(payload: &[u8]) -> Vec<u8> {
        [&[0; HEADER_BYTES], payload].concat()
    }

    #[test]
    fn what_is_sealed_opens_unchanged_and_is_unreadable_in_between() {
        let (mut left, mut right) = (sealed(1), sealed(1));
        let mut datagram = datagram(b"the quick brown fox");
        left.seal(&context(7, 9), 1, &mut datagram);
        assert_ne!(&datagram[HEADER_BYTES..], b"the quick brown fox");
        assert!(right.open(&context(7, 9), 1, &mut datagram));
        assert_eq!(&datagram[HEADER_BYTES..], b"the quick brown fox");
    }

    #[test]
    fn nothing_else_opens_it() {
        let mut datagram = datagram(b"payload");
        sealed(1).seal(&context(7, 9), 5, &mut datagram);
        let opens = |key, context, number, changed: Option<usize>| {
            let (mut protection, mut datagram) = (sealed(key), datagram.clone());
            changed.into_iter().for_each(|place| datagram[place] ^= 1);
            let opens = protection.open(&context, number, &mut datagram);
            assert_eq!(protection.keys.len(), usize::from(opens));
            opens
        };
        assert!(opens(1, context(7, 9), 5, None));
        assert!(!opens(2, context(7, 9), 5, None));
        assert!(!opens(1, context(8, 9), 5, None));
        assert!(!opens(1, context(7, 8), 5, None));
        assert!(!opens(1, context(7, 9), 6, None));
        for place in 0..datagram.len() {
            assert!(!opens(1, context(7, 9), 5, Some(place)), "byte {place}");
        }
    }

    #[test]
    fn senders_and_instances_have_keys_of_their_own() {
        let mut protection = sealed(1);
        let mut seen = Vec::new();
        for (instance, sender) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
            let mut datagram = datagram(&[0; 32]);
            protection.seal(&context(instance, sender), 1, &mut datagram);
            let payload = datagram.split_off(HEADER_BYTES);
            assert!(!seen.contains(&payload));
            seen.push(payload);
        }
    }

    #[test]
    fn the_memory_for_keys_has_an_end() {
        let mut protection = sealed(1);
        for sender in 0..KEYS_MAX as u64 + 10 {
            protection.seal(&context(1, sender), 1, &mut datagram(b""));
        }
        assert_eq!((protection.keys.len(), protection.remembered.len()), (KEYS_MAX, KEYS_MAX));
        assert!(!protection.keys.contains_key(&context(1, 9)));
        assert!(protection.keys.contains_key(&context(1, 10)));
    }
}
