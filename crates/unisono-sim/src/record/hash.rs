//! Hashes that tell payloads, and runs, apart.

/// Tells payloads apart: eight bytes at a time, no promise against malice.
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
        // With what came before, which leaves again.
        Some(word) => u64::from_le_bytes(*word) >> (64 - 8 * rest.len()),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    mix(hash, last)
}

/// One step of a rolling hash.
#[inline]
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ 0xa076_1d64_78bd_642f) * 0xe703_7ed1_a0b4_28db_u128;
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_tell_payloads_apart() {
        assert_ne!(hash(b""), hash(b"\0"));
        assert_ne!(hash(b"ab"), hash(b"ba"));
        assert_ne!(hash(b"12345678a"), hash(b"12345678b"));
    }
}
