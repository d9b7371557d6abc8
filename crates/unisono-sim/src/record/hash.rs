//! Hashes that distinguish payloads, and runs.

/// Returns a hash of a payload: fast (eight bytes at a time), and not safe against deliberate collisions.
pub fn hash(payload: &[u8]) -> u64 {
    let mut hash = payload.len() as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = payload.as_chunks::<8>();
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    if rest.is_empty() {
        return hash;
    }
    let last = match payload.last_chunk() {
        // The shift removes the bytes that were hashed already.
        Some(word) => u64::from_le_bytes(*word) >> (64 - 8 * rest.len()),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    mix(hash, last)
}

/// Returns the next value of a rolling hash.
#[inline]
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ 0xa076_1d64_78bd_642f) * 0xe703_7ed1_a0b4_28db_u128;
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_distinguish_payloads() {
        assert_ne!(hash(b""), hash(b"\0"));
        assert_ne!(hash(b"ab"), hash(b"ba"));
        assert_ne!(hash(b"12345678a"), hash(b"12345678b"));
    }
}
