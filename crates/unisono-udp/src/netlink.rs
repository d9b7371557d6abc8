//! Messages of the kernel's tables of interfaces, addresses and neighbours (rtnetlink(7)).
//!
//! A message has a head of 16 bytes, of which the first 4 are its length with the head and the next 2 its type; a body whose
//! form the type tells; then attributes, each with its length and its type in 2 bytes each. Messages and attributes begin
//! at multiples of 4 bytes.

/// Length in bytes of a message's head.
const HEAD_BYTES: usize = 16;
const ATTRIBUTE_HEAD_BYTES: usize = 4;

/// Returns the type of each message, and what follows its head. Ends at one that is cut short or gives a wrong length.
pub(crate) fn messages(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(bytes_at(rest, 0)?) as usize;
        let message = (u16::from_ne_bytes(bytes_at(rest, 4)?), rest.get(HEAD_BYTES..length)?);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Returns the type and the value of each attribute.
pub(crate) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes_at(rest, 0)?));
        let attribute = (u16::from_ne_bytes(bytes_at(rest, 2)?), rest.get(ATTRIBUTE_HEAD_BYTES..length)?);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(attribute)
    })
}

/// Returns a message with this type, these flags and this body.
pub(crate) fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = (HEAD_BYTES + body.len()) as u32;
    let mut bytes =
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8], body].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Returns the bytes of a number in a message.
pub(crate) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns an attribute with this type and value.
    pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = (ATTRIBUTE_HEAD_BYTES + value.len()) as u16;
        let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn messages_and_attributes_end_at_the_first_with_a_wrong_length() {
        let (first, second) = (message(7, 0, &[1, 2, 3, 4, 5]), message(8, 0, &attribute(9, &[6])));
        let both = [first.clone(), second].concat();
        let found: Vec<_> = messages(&both).collect();
        assert_eq!((found[0], found[1].0), ((7, &[1, 2, 3, 4, 5][..]), 8));
        assert!(attributes(found[1].1).eq([(9, &[6][..])]));
        for length in [0, 15, first.len() as u32 + 1, u32::MAX] {
            let wrong = [&length.to_ne_bytes(), &first[4..]].concat();
            assert_eq!(messages(&wrong).count(), 0, "{length}");
        }
        for length in [0, 3, 6, u16::MAX] {
            let wrong = [&length.to_ne_bytes(), &attribute(9, &[6])[2..5]].concat();
            assert_eq!(attributes(&wrong).count(), 0, "{length}");
        }
        assert_eq!(messages(&first[..first.len() - 4]).count(), 0, "it is cut short");
        assert_eq!(messages(&first[..3]).count(), 0);
    }
}
