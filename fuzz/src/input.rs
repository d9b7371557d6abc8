//! Takes an input apart, and puts one together.

/// What is left of an input. What is missing reads as nothing.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from(self.byte()) << 8 | u16::from(self.byte())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// Takes a length in two bytes, and as many bytes.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let length = self.u16();
        self.take(length.into())
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// Writes what [`Input::piece`] takes.
pub(crate) fn put_piece(out: &mut Vec<u8>, piece: &[u8]) {
    let length = u16::try_from(piece.len()).expect("seeds are short");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(piece);
}
