//! Allowances: limits on the bytes sent in answer to datagrams that may be copies of old ones.
//!
//! A query may be a copy of an old datagram. Where no replay window detects copies, each byte of an answer is paid from
//! an allowance, and each byte of a query refills it. So a few answers are free, and in the long run no address is sent
//! more bytes than arrived in its name.

/// A budget of `left` bytes, which never exceeds `most`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    left: usize,
    most: usize,
}

impl Allowance {
    pub(crate) const fn of(most: usize) -> Allowance {
        Allowance { left: most, most }
    }

    pub(crate) fn earn(&mut self, bytes: usize) {
        self.left = self.left.saturating_add(bytes).min(self.most);
    }

    /// Spends `bytes` and returns true; returns false, and spends nothing, if fewer are left.
    pub(crate) fn pay(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}
