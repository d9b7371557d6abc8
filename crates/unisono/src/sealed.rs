//! Sealing datagrams with the group key.
//!
//! Every sender has keys of its own, derived from the group key (HKDF-SHA256), the group's instance, the sender's uid and
//! its present salt ([`salt`](crate::salt)). So no two members use one key with one nonce. The nonce is the packet number,
//! which its sender never uses twice. The seal is AES-256-GCM; it also authenticates the header.
//!
//! While a group changes from one group key to the next, a datagram is opened with each in turn. The first one seals,
//! until another process is heard to seal with the second.

use crate::key::{Key, Keyring, Secret};
use crate::salt::Salt;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt as HkdfSalt};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_core::wire::{KeyContext, Protection, ProtectionKind, parts};
use unisono_core::{Instance, Uid};

/// Binds derived keys to this use of the group key.
const SALT: &[u8] = b"unisono datagrams 2";
/// Maximum number of senders whose keys are kept; deriving one again costs a few microseconds.
const SENDERS_MAX: usize = 8192;
/// Maximum number of keys of this process's own that are kept: one outside of any epoch, one for each founding.
const OWN_MAX: usize = 4;
/// How long a key that was dropped from the key file still opens datagrams: until all members have the changed file.
const RETIRING: Duration = Duration::from_secs(300);

/// [`Protection`] under a group key.
pub(crate) struct Sealed {
    keyring: Arc<Keyring>,
    /// State of the key ring from which the roots come.
    changes: u64,
    /// What the group keys' secrets lead to: those in use, in their order, then those that were dropped.
    roots: Vec<Root>,
    /// Number of roots so far.
    roots_made: u64,
    /// The root that seals in place of the first, because another process seals with it.
    follows: Option<u64>,
    salt: Salt,
    /// The keys with which this process seals.
    own: VecDeque<(KeyContext, LessSafeKey)>,
    /// The keys with which other processes seal.
    senders: HashMap<Sender, SenderKeys>,
    /// The senders, in the order in which they were stored.
    remembered: VecDeque<Sender>,
}

/// What the keys under one secret are derived from.
struct Root {
    number: u64,
    secret: Arc<Secret>,
    prk: Prk,
    /// When it ends, if its secret was dropped.
    until: Option<Instant>,
}

/// A sender, in a founding or outside of any.
type Sender = (Instance, Uid);

/// The keys with which another process seals: that of its last salt, and that of the salt before, whose datagrams may
/// still be under way.
struct SenderKeys {
    last: SenderKey,
    former: Option<SenderKey>,
}

struct SenderKey {
    root: u64,
    salt: u64,
    key: LessSafeKey,
}

impl Root {
    fn derive(&self, context: &KeyContext) -> LessSafeKey {
        let (instance, sender) = (context.instance.0.to_be_bytes(), context.sender.0.to_be_bytes());
        let salt = context.salt.to_be_bytes();
        let info = [&instance[..], &sender[..], &salt[..]];
        // Fails only for keys longer than 255 hashes.
        let key = self.prk.expand(&info, &AES_256_GCM).map(UnboundKey::from);
        LessSafeKey::new(key.unwrap_or_else(|_| unreachable!("a key is one hash long")))
    }
}

impl SenderKeys {
    fn of_salt(&self, salt: u64) -> Option<&SenderKey> {
        [Some(&self.last), self.former.as_ref()].into_iter().flatten().find(|kept| kept.salt == salt)
    }

    /// Takes a key that has opened a datagram. One of another group key supersedes all before it.
    fn take(&mut self, key: SenderKey) {
        let is_other = self.last.salt != key.salt;
        let before = std::mem::replace(&mut self.last, key);
        if is_other {
            self.former = Some(before);
        }
        let (root, salt) = (self.last.root, self.last.salt);
        self.former = self.former.take().filter(|former| former.root == root && former.salt != salt);
    }
}

fn sender(context: &KeyContext) -> Sender {
    (context.instance, context.sender)
}

impl Sealed {
    pub(crate) fn new(key: &Key) -> Sealed {
        let keyring = key.keyring();
        let mut sealed = Sealed {
            changes: keyring.changes(),
            keyring,
            roots: Vec::new(),
            roots_made: 0,
            follows: None,
            salt: Salt::new(),
            own: VecDeque::new(),
            senders: HashMap::new(),
            remembered: VecDeque::new(),
        };
        sealed.take_secrets(None);
        sealed
    }

    /// Takes the present secrets of the key ring. Those that are gone end at `until`.
    fn take_secrets(&mut self, until: Option<Instant>) {
        // Read first: a change that comes in between is noticed the next time.
        self.changes = self.keyring.changes();
        let mut former = std::mem::take(&mut self.roots);
        for secret in self.keyring.secrets() {
            let root = match former.iter().position(|root| root.secret == secret) {
                Some(index) => Root { until: None, ..former.swap_remove(index) },
                None => {
                    self.roots_made += 1;
                    let prk = HkdfSalt::new(HKDF_SHA256, SALT).extract(secret.bytes());
                    Root { number: self.roots_made, secret, prk, until: None }
                }
            };
            self.roots.push(root);
        }
        let retired = former.into_iter().map(|root| Root { until: root.until.or(until), ..root });
        self.roots.extend(retired);
        self.own.clear();
    }

    /// Notes what changed: other secrets, or the end of one that was dropped.
    #[inline]
    fn follow(&mut self) {
        if self.keyring.changes() != self.changes {
            self.take_secrets(Instant::now().checked_add(RETIRING));
        }
        if self.roots.len() > 1 {
            self.end_retired(Instant::now());
        }
    }

    /// Forgets the secrets that were dropped long enough ago.
    fn end_retired(&mut self, now: Instant) {
        let before = self.roots.len();
        self.roots.retain(|root| root.until.is_none_or(|until| now < until));
        if self.roots.len() < before {
            let roots = &self.roots;
            self.senders.retain(|_, kept| roots.iter().any(|root| root.number == kept.last.root));
            self.remembered.retain(|sender| self.senders.contains_key(sender));
        }
    }

    /// Returns the root that seals.
    fn sealing_root(&self) -> Option<&Root> {
        let is_followed = |root: &&Root| Some(root.number) == self.follows && root.until.is_none();
        self.roots.iter().find(is_followed).or(self.roots.first())
    }

    /// Seals with the second key from now on if another process does so. Its key file does not have the first key any
    /// more, or never had it: it could not hear this process. All members have the second one by then.
    fn follow_sender(&mut self, root: u64) {
        let is_second =
            self.roots.get(1).is_some_and(|second| second.number == root && second.until.is_none());
        if is_second && self.follows != Some(root) {
            self.follows = Some(root);
            self.own.clear();
        }
    }

    /// Returns the key with which this process seals.
    fn own_key(&mut self, context: &KeyContext) -> Option<&LessSafeKey> {
        if let Some(index) = self.own.iter().position(|(known, _)| known == context) {
            return self.own.get(index).map(|(_, key)| key);
        }
        let key = self.sealing_root()?.derive(context);
        self.own.truncate(OWN_MAX - 1);
        self.own.push_front((*context, key));
        self.own.front().map(|(_, key)| key)
    }

    fn remember(&mut self, context: &KeyContext, key: SenderKey) {
        self.follow_sender(key.root);
        let sender = sender(context);
        if let Some(known) = self.senders.get_mut(&sender) {
            return known.take(key);
        }
        if self.remembered.len() == SENDERS_MAX
            && let Some(oldest) = self.remembered.pop_front()
        {
            self.senders.remove(&oldest);
        }
        self.senders.insert(sender, SenderKeys { last: key, former: None });
        self.remembered.push_back(sender);
    }

    /// Opens a datagram with keys that its sender is not known to use.
    #[cold]
    fn open_anew(&mut self, context: &KeyContext, number: u64, datagram: &mut [u8]) -> bool {
        let known = self.senders.get(&sender(context)).and_then(|kept| kept.of_salt(context.salt));
        let known = known.map(|kept| kept.root);
        let untried = self.roots.iter().filter(|root| Some(root.number) != known);
        let mut untried: Vec<&Root> = untried.collect();
        let Some(last) = untried.pop() else { return false };
        let salt = context.salt;
        let mut opened = None;
        for root in untried {
            // A key that does not fit destroys what it was to open.
            let mut copy = datagram.to_vec();
            let key = root.derive(context);
            if opens(&key, number, &mut copy) {
                datagram.copy_from_slice(&copy);
                opened = Some(SenderKey { root: root.number, salt, key });
                break;
            }
        }
        if opened.is_none() {
            let key = last.derive(context);
            opened = opens(&key, number, datagram).then_some(SenderKey { root: last.number, salt, key });
        }
        // A sender without a group key cannot fill the memory.
        opened.map(|key| self.remember(context, key)).is_some()
    }

    /// Returns the position of the group key with which a sender was last heard to seal, from 1.
    pub(crate) fn key_of(&self, context: &KeyContext) -> Option<usize> {
        let root = self.senders.get(&sender(context))?.last.root;
        self.roots.iter().position(|known| known.number == root).map(|index| index + 1)
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Opens a datagram in place with this key. If it does not fit, the payload is lost.
fn opens(key: &LessSafeKey, number: u64, datagram: &mut [u8]) -> bool {
    let Some(parts) = parts(datagram) else { return false };
    let (associated, tag) = (Aad::from(parts.header), Tag::from(*parts.tag));
    key.open_in_place_separate_tag(nonce(number), associated, tag, parts.payload, 0..).is_ok()
}

impl Protection for Sealed {
    fn kind(&self) -> ProtectionKind {
        ProtectionKind::Sealed
    }

    fn salt(&mut self) -> u64 {
        self.salt.next()
    }

    fn seal(&mut self, context: &KeyContext, number: u64, datagram: &mut [u8]) -> bool {
        self.follow();
        let Some(parts) = parts(datagram) else { return false };
        let Some(key) = self.own_key(context) else { return false };
        let associated = Aad::from(parts.header);
        match key.seal_in_place_separate_tag(nonce(number), associated, parts.payload) {
            Ok(tag) => {
                parts.tag.copy_from_slice(tag.as_ref());
                true
            }
            // Payloads of gigabytes.
            Err(_) => false,
        }
    }

    fn open(&mut self, context: &KeyContext, number: u64, datagram: &mut [u8]) -> bool {
        self.follow();
        let kept = self.senders.get(&sender(context)).and_then(|kept| kept.of_salt(context.salt));
        let Some(kept) = kept else { return self.open_anew(context, number, datagram) };
        if self.roots.len() == 1 {
            return opens(&kept.key, number, datagram);
        }
        let mut copy = datagram.to_vec();
        if opens(&kept.key, number, &mut copy) {
            datagram.copy_from_slice(&copy);
            return true;
        }
        self.open_anew(context, number, datagram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::wire::HEADER_BYTES;

    const SALT_OF_TESTS: u64 = 77;

    fn context(instance: u128, sender: u64) -> KeyContext {
        KeyContext { instance: Instance(instance), sender: Uid(sender), salt: SALT_OF_TESTS }
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
        assert!(left.seal(&context(7, 9), 1, &mut datagram));
        assert_ne!(&datagram[HEADER_BYTES..], b"the quick brown fox");
        assert!(right.open(&context(7, 9), 1, &mut datagram));
        assert_eq!(&datagram[HEADER_BYTES..], b"the quick brown fox");
    }

    #[test]
    fn nothing_else_opens_it() {
        let mut datagram = datagram(b"payload");
        assert!(sealed(1).seal(&context(7, 9), 5, &mut datagram));
        let opens = |key, context, number, changed: Option<usize>| {
            let (mut protection, mut datagram) = (sealed(key), datagram.clone());
            changed.into_iter().for_each(|place| datagram[place] ^= 1);
            let opens = protection.open(&context, number, &mut datagram);
            assert_eq!(protection.senders.len(), usize::from(opens));
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
            assert!(protection.seal(&context(instance, sender), 1, &mut datagram));
            let payload = datagram.split_off(HEADER_BYTES);
            assert!(!seen.contains(&payload));
            seen.push(payload);
        }
    }

    #[test]
    fn what_is_too_short_is_not_sealed() {
        assert!(!sealed(1).seal(&context(1, 1), 1, &mut [0; HEADER_BYTES - 1]));
        assert!(sealed(1).seal(&context(1, 1), 1, &mut [0; HEADER_BYTES]));
    }

    #[test]
    fn the_memory_for_keys_has_an_end() {
        let (mut sender, mut receiver) = (sealed(1), sealed(1));
        let mut hears = |uid| {
            let mut datagram = datagram(b"");
            assert!(sender.seal(&context(1, uid), 1, &mut datagram));
            assert!(receiver.open(&context(1, uid), 1, &mut datagram));
        };
        (0..SENDERS_MAX as u64 + 10).for_each(&mut hears);
        assert!(sender.own.len() <= OWN_MAX);
        assert_eq!((receiver.senders.len(), receiver.remembered.len()), (SENDERS_MAX, SENDERS_MAX));
        assert!(!receiver.senders.contains_key(&(Instance(1), Uid(9))));
        assert!(receiver.senders.contains_key(&(Instance(1), Uid(10))));
    }

    #[test]
    fn every_salt_has_a_key_of_its_own_and_the_last_two_of_a_sender_are_kept() {
        let (mut sender, mut receiver) = (sealed(1), sealed(1));
        let salted = |salt| KeyContext { salt, ..context(1, 1) };
        let mut said = Vec::new();
        for salt in [1, 2, 3] {
            let mut datagram = datagram(&[0; 32]);
            assert!(sender.seal(&salted(salt), 9, &mut datagram));
            assert!(said.iter().all(|(_, known)| *known != datagram));
            said.push((salt, datagram));
        }
        // Also late datagrams of former salts.
        for (index, kept) in [(0, [1].as_slice()), (1, &[2, 1]), (0, &[2, 1]), (2, &[3, 2]), (0, &[1, 3])] {
            let (salt, mut datagram) = said[index].clone();
            assert!(receiver.open(&salted(salt), 9, &mut datagram));
            let known = &receiver.senders[&(Instance(1), Uid(1))];
            let salts = [Some(&known.last), known.former.as_ref()].into_iter().flatten().map(|key| key.salt);
            assert_eq!(salts.collect::<Vec<_>>(), kept);
        }
        // A salt that no process with the key has used.
        assert!(!receiver.open(&salted(4), 9, &mut said[0].1.clone()));
        assert_eq!(receiver.senders[&(Instance(1), Uid(1))].last.salt, 1);
    }

    // A member with both keys was restarted with the second key alone: the others have to answer under that one.
    #[test]
    fn members_seal_with_the_second_key_as_soon_as_another_process_does() {
        let (mut member, mut newcomer) = (Changing::new(&[1, 2]), Changing::new(&[2]));
        let before = member.says(0);
        assert!(!newcomer.hears(&before), "it has the second key only");
        let asked = newcomer.says(9);
        assert!(member.hears(&asked));
        let answer = member.says(0);
        assert!(newcomer.hears(&answer));
        // What is retired does not come back.
        member.reads(&[2]);
        member.reads(&[2, 3]);
        let said = member.says(0);
        assert!(newcomer.hears(&said));
        // Without another process that does so, the first key seals.
        let (mut left, mut right) = (Changing::new(&[1, 2]), Changing::new(&[1, 2]));
        let said = left.says(1);
        assert!(right.hears(&said) && Changing::new(&[1]).hears(&right.says(2)));
    }

    /// A member of a group whose key changes, and the file that it reads.
    struct Changing {
        sealed: Sealed,
        key: Key,
        number: u64,
    }

    impl Changing {
        fn new(bytes: &[u8]) -> Changing {
            let key = Key::from_bytes_of(bytes);
            Changing { sealed: Sealed::new(&key), key, number: 0 }
        }

        /// Reads another file.
        fn reads(&mut self, bytes: &[u8]) {
            self.key.change_to(bytes);
        }

        fn says(&mut self, uid: u64) -> (KeyContext, u64, Vec<u8>) {
            self.number += 1;
            let mut datagram = datagram(b"payload");
            assert!(self.sealed.seal(&context(1, uid), self.number, &mut datagram));
            (context(1, uid), self.number, datagram)
        }

        fn hears(&mut self, (context, number, datagram): &(KeyContext, u64, Vec<u8>)) -> bool {
            let mut datagram = datagram.clone();
            let hears = self.sealed.open(context, *number, &mut datagram);
            assert!(!hears || datagram.ends_with(b"payload"));
            hears
        }
    }

    #[test]
    fn members_go_from_key_to_key_one_after_the_other_and_always_hear_each_other() {
        let mut members = [Changing::new(&[1]), Changing::new(&[1]), Changing::new(&[1])];
        let hear_each_other = |members: &mut [Changing; 3]| {
            for speaker in 0..3 {
                let said = members[speaker].says(speaker as u64);
                for listener in (0..3).filter(|listener| *listener != speaker) {
                    assert!(members[listener].hears(&said), "{listener} does not hear {speaker}");
                }
            }
        };
        hear_each_other(&mut members);
        for file in [&[1, 2][..], &[2]] {
            for changing in 0..3 {
                members[changing].reads(file);
                hear_each_other(&mut members);
                hear_each_other(&mut members);
            }
        }
        // All seal under the second key now, which is the only one in the file.
        assert_eq!(members[0].sealed.key_of(&context(1, 1)), Some(1));
        let mut asker = Changing::new(&[1, 2]);
        let said = members[0].says(0);
        assert!(asker.hears(&said));
        assert_eq!(asker.sealed.key_of(&context(1, 0)), Some(2));
    }

    #[test]
    fn a_key_that_was_dropped_is_foreign_after_a_while_also_for_a_thief() {
        let (mut thief, mut member) = (Changing::new(&[1]), Changing::new(&[1, 2]));
        assert!(member.hears(&thief.says(9)));
        member.reads(&[2]);
        assert!(member.hears(&thief.says(9)), "it still opens what others seal under it");
        assert!(!thief.hears(&member.says(1)), "and seals nothing under it");
        let now = Instant::now();
        member.sealed.end_retired(now + RETIRING / 2);
        assert!(member.hears(&thief.says(9)));
        member.sealed.end_retired(now + RETIRING + Duration::from_secs(1));
        assert!(!member.hears(&thief.says(9)) && !member.hears(&thief.says(10)));
        assert_eq!((member.sealed.roots.len(), member.sealed.senders.len()), (1, 0));
        // A key that comes back to the file is as good as before.
        member.reads(&[2, 1]);
        assert!(member.hears(&thief.says(9)));
    }
}
