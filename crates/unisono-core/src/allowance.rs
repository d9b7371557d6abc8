//! What somebody may be sent who cannot be kept from asking again: each byte is paid for.
//!
//! A question may be a copy of an old one. Where no replay window tells, an answer is paid from an allowance, which
//! the questions themselves refill, byte for byte: a few answers are free, and in the long run nobody is sent more
//! than came in its name.

/// So many bytes are left, of so many at the most.
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

    /// Takes so many bytes, if so many are left.
    pub(crate) fn pay(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}
