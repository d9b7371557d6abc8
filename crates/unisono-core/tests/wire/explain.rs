//! How datagrams are explained, good ones and bad ones.

use bytes::Bytes;
use unisono_core::wire::*;
use unisono_core::*;

/// XORs bytes with a key made from the context: not secret, but it needs the right context to open.
struct Toy(u8);

impl Toy {
    fn key(&self, context: &KeyContext) -> u8 {
        self.0 ^ context.instance.0 as u8 ^ context.sender.0 as u8 ^ context.salt as u8
    }
}

impl Protection for Toy {
    fn kind(&self) -> ProtectionKind {
        ProtectionKind::Sealed
    }

    fn salt(&mut self) -> u64 {
        5
    }

    fn seal(&mut self, context: &KeyContext, number: u64, datagram: &mut [u8]) -> bool {
        let (key, parts) = (self.key(context), parts(datagram).unwrap());
        parts.payload.iter_mut().for_each(|byte| *byte ^= key);
        *parts.tag = [key ^ number as u8; TAG_BYTES];
        true
    }

    fn open(&mut self, context: &KeyContext, number: u64, datagram: &mut [u8]) -> bool {
        let tag = *parts(datagram).unwrap().tag;
        assert!(self.seal(context, number, datagram));
        tag == *parts(datagram).unwrap().tag
    }
}

fn datagram(frames: &[Frame], instance: Instance, protection: &mut dyn Protection) -> Vec<u8> {
    let header = Header {
        protection: protection.kind(),
        group: GroupTag(1),
        epoch: EpochTag::OUTSIDE,
        sender: Uid(2),
        number: 3,
        salt: protection.salt(),
    };
    let mut out = Vec::new();
    header.write(&mut out);
    let mut writer = Writer::new(&mut out, 1472);
    frames.iter().for_each(|frame| assert!(writer.frame(frame)));
    assert!(seal(
        &mut out,
        &header,
        &KeyContext { instance, sender: header.sender, salt: header.salt },
        protection
    ));
    out
}

fn gone() -> Frame {
    Frame::Gone { through: 4 }
}

const HEAD: &str = "header: group 0000000000000001, outside of any epoch, from 0000000000000002, number 3";

#[test]
fn a_sealed_datagram_needs_the_key() {
    let sealed = datagram(&[gone()], Instance(0), &mut Toy(9));
    assert_eq!(
        explain(&sealed),
        format!("datagram of 71 bytes\n{HEAD}\ntag: sealed; 11 bytes cannot be read without the key\n")
    );
    assert_eq!(
        Explainer::with_key(Box::new(Toy(9))).explain(&sealed),
        format!(
            "datagram of 71 bytes\n{HEAD}\ntag: sealed, and genuine\n\
             byte 60: Gone: every member held everything through seqno 4; it is not kept any more\n"
        )
    );
    assert_eq!(
        Explainer::with_key(Box::new(Toy(8))).explain(&sealed),
        format!(
            "datagram of 71 bytes\n{HEAD}\ntag: sealed; 11 bytes do not open: another key, a founding that no \
             earlier datagram named, or changed on the way\n"
        )
    );
}

#[test]
fn foundings_are_learnt_from_the_datagrams_that_tell_of_them() {
    let instance = Instance(0x77);
    let here = Frame::HereIs(HereIs {
        nonce: 1,
        cookie: 2,
        instance,
        epoch_counter: 0,
        sequencer: "127.0.0.1:9".parse().unwrap(),
        members: 1,
        condition: Condition::Pristine,
        ordered: 0,
    });
    let outside = datagram(&[here], Instance(0), &mut Toy(9));
    let inside = datagram(&[gone()], instance, &mut Toy(9));
    let mut explainer = Explainer::with_key(Box::new(Toy(9)));
    assert!(explainer.explain(&inside).contains("do not open"));
    assert!(explainer.explain(&outside).contains("genuine"));
    assert!(explainer.explain(&inside).contains("Gone: "));

    let mut explainer = Explainer::with_key(Box::new(Toy(9)));
    explainer.add_instance(instance);
    assert!(explainer.explain(&inside).contains("Gone: "));
}

#[test]
fn bad_datagrams_come_with_the_reason() {
    assert_eq!(
        explain(b"hello"),
        "datagram of 5 bytes\ncannot be read: shorter than the 60 bytes of a header\n"
    );
    let good = datagram(&[gone(), gone()], Instance(0), &mut Checksum);
    let mut other = good.clone();
    other[2] = 7;
    assert_eq!(
        explain(&other),
        "datagram of 82 bytes\n\
         cannot be read: it is of version 7 of the wire format; this is version 6\n"
    );
    let mut changed = good;
    changed[60 + 11] = 0xf7;
    let words = explain(&changed);
    let lines: Vec<_> = words.lines().skip(2).collect();
    assert_eq!(
        lines,
        [
            "tag: a checksum, which does not fit: changed on the way, or cut off",
            "byte 60: Gone: every member held everything through seqno 4; it is not kept any more",
            "byte 71: bad frame (unknown): byte 71: no frame has the number 0xf7",
        ]
    );
}

#[test]
fn what_is_shown_is_escaped_and_cut() {
    let goodbye = Bytes::from([b"\x1b[31m\xff ", &[b'x'; 100][..]].concat());
    let words = Frame::LeaveRequest { unnumbered_through: 0, goodbye }.to_string();
    assert_eq!(
        words,
        format!("LeaveRequest: asks to leave, saying \"\\u{{1b}}[31m\\xff {}\"…", "x".repeat(57))
    );
}
