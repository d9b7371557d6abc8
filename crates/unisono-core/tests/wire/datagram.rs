//! Datagrams as a member writes and reads them: header, runs of messages, limits, seal.

use bytes::{Bytes, BytesMut};
use unisono_core::wire::*;
use unisono_core::{EpochTag, GroupTag, Instance, Port, Quality, Uid};

const HEADER: Header = Header {
    protection: ProtectionKind::Checksum,
    group: GroupTag(0x0102030405060708),
    epoch: EpochTag(9),
    sender: Uid(10),
    number: 11,
    salt: 12,
};
const CONTEXT: KeyContext = KeyContext { instance: Instance(12), sender: Uid(10), salt: 12 };
const ORDERED: RunHead =
    RunHead::Ordered { seqno: 5, sender: Uid(10), first: 3, quality: Quality::resilient(1) };
const DATA: RunHead =
    RunHead::Data { sender: Uid(10), first: 3, base: 1, method: Method::Bb, quality: Quality::resilient(1) };

fn frames(payload: &[u8]) -> Vec<Frame> {
    Decoder::new(Bytes::copy_from_slice(payload)).map(|frame| frame.unwrap()).collect()
}

fn piece(more: bool, bytes: &'static [u8]) -> Piece {
    Piece { more, bytes: Bytes::from_static(bytes) }
}

#[test]
fn a_sealed_datagram_opens_to_its_frames_without_a_copy() {
    let mut out = Vec::new();
    HEADER.write(&mut out);
    assert_eq!(out.len(), HEADER_BYTES);
    let heard = Frame::Gone { through: 7 };
    assert!(Writer::new(&mut out, 100).frame(&heard));
    assert!(seal(&mut out, &HEADER, &CONTEXT, &mut Checksum));

    assert_eq!(group_tag(&out), Some(HEADER.group));
    let header = Header::parse(&out).unwrap();
    assert_eq!(header, HEADER);
    let datagram = BytesMut::from(&out[..]);
    let place = datagram.as_ptr() as usize;
    let payload = open(datagram, &header, &CONTEXT, &mut Checksum).unwrap();
    assert_eq!(payload.as_ptr() as usize, place + HEADER_BYTES);
    assert_eq!(Decoder::new(payload).collect::<Vec<_>>(), [Ok(heard)]);
}

#[test]
fn any_changed_byte_is_noticed() {
    let mut out = Vec::new();
    HEADER.write(&mut out);
    assert!(Writer::new(&mut out, 100).frame(&Frame::Gone { through: 7 }));
    assert!(seal(&mut out, &HEADER, &CONTEXT, &mut Checksum));
    for offset in 0..out.len() {
        let mut changed = BytesMut::from(&out[..]);
        changed[offset] ^= 0x10;
        if let Ok(header) = Header::parse(&changed) {
            assert_eq!(open(changed, &header, &CONTEXT, &mut Checksum), None, "byte {offset}");
        }
    }
}

#[test]
fn headers_of_others_are_refused() {
    let mut out = Vec::new();
    HEADER.write(&mut out);
    assert_eq!(Header::parse(&out[..HEADER_BYTES - 1]), Err(HeaderError::TooShort));
    // What is the same in all versions suffices to tell a version from others.
    assert_eq!(group_tag(&out[..12]), Some(HEADER.group));
    assert_eq!(group_tag(&out[..11]), None);
    let with = |offset: usize, value: u8| {
        let mut changed = out.clone();
        changed[offset] = value;
        changed
    };
    assert_eq!(Header::parse(&with(1, b'M')), Err(HeaderError::Magic));
    assert_eq!(group_tag(&with(1, b'M')), None);
    assert_eq!(Header::parse(&with(2, 9)), Err(HeaderError::Version(9)));
    assert_eq!(
        Header::parse(&with(2, 1)[..52]),
        Err(HeaderError::Version(1)),
        "version 1 had shorter headers"
    );
    assert_eq!(Header::parse(&with(3, 2)), Err(HeaderError::Protection(2)));
}

#[test]
fn a_datagram_protected_otherwise_does_not_open() {
    let mut out = Vec::new();
    Header { protection: ProtectionKind::Sealed, ..HEADER }.write(&mut out);
    let header = Header::parse(&out).unwrap();
    // The tag fits a checksum. Only the kind of protection in the header differs.
    assert!(Checksum.seal(&CONTEXT, 0, &mut out));
    assert_eq!(open(BytesMut::from(&out[..]), &header, &CONTEXT, &mut Checksum), None);
}

#[test]
fn runs_are_read_as_they_were_written() {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 1000);
    assert!(writer.begin(&ORDERED));
    assert!(writer.piece(false, b"one"));
    assert!(writer.piece(true, b""));
    assert_eq!(writer.end(), 2);
    assert!(writer.begin(&DATA));
    assert!(writer.piece(false, b"two"));
    // Another frame ends the run.
    assert!(writer.frame(&Frame::Gone { through: 1 }));
    assert!(!writer.piece(false, b"no run"));
    let expected = [
        Frame::Ordered(Ordered {
            seqno: 5,
            sender: Uid(10),
            first: 3,
            quality: Quality::resilient(1),
            pieces: Pieces::from_pieces(&[piece(false, b"one"), piece(true, b"")]),
        }),
        Frame::Data(Data {
            sender: Uid(10),
            first: 3,
            base: 1,
            method: Method::Bb,
            quality: Quality::resilient(1),
            pieces: Pieces::from_pieces(&[piece(false, b"two")]),
        }),
        Frame::Gone { through: 1 },
    ];
    assert_eq!(frames(&out), expected);
    let Frame::Ordered(ordered) = &frames(&out)[0] else { panic!() };
    assert_eq!(ordered.pieces.iter().collect::<Vec<_>>(), [piece(false, b"one"), piece(true, b"")]);
    let mut pieces = ordered.pieces.iter();
    assert_eq!((ordered.pieces.len(), pieces.len()), (2, 2));
    pieces.next();
    assert_eq!(pieces.len(), 1);
}

#[test]
fn a_run_without_pieces_leaves_nothing_behind() {
    let mut out = vec![0; HEADER_BYTES];
    let mut writer = Writer::new(&mut out, 1000);
    assert!(writer.begin(&ORDERED));
    assert_eq!(writer.end(), 0);
    assert!(writer.begin(&ORDERED));
    assert_eq!(out.len(), HEADER_BYTES);
}

#[test]
fn a_writer_fills_its_limit_and_never_exceeds_it() {
    for head in [ORDERED, DATA] {
        for limit in HEADER_BYTES..200 {
            let mut out = vec![0; HEADER_BYTES];
            let mut writer = Writer::new(&mut out, limit);
            let mut pieces = 0;
            if writer.begin(&head) {
                assert!(writer.piece_room().is_some());
                while writer.piece(false, b"seven b") {
                    pieces += 1;
                }
                if let Some(room) = writer.piece_room() {
                    assert!(room < 7);
                    assert!(!writer.piece(false, &vec![1; room + 1]));
                    assert!(writer.piece(false, &vec![1; room]));
                    pieces += 1;
                    assert!(writer.room() < PIECE_HEAD_BYTES + 1);
                }
                assert_eq!(writer.end(), pieces);
            } else {
                assert!(limit - HEADER_BYTES < FRAME_HEAD_BYTES + 27 + PIECE_HEAD_BYTES + 1);
            }
            assert!(out.len() <= limit);
            assert_eq!(frames(&out[HEADER_BYTES..]).len(), usize::from(pieces > 0));
        }
    }
}

#[test]
fn a_frame_that_does_not_fit_leaves_no_trace() {
    let frame = Frame::Nack { ranges: vec![(1, 2), (5, 5)] };
    let bytes = FRAME_HEAD_BYTES + 2 + 2 * 16;
    let mut out = Vec::new();
    assert!(!Writer::new(&mut out, bytes - 1).frame(&frame));
    assert!(out.is_empty());
    assert!(Writer::new(&mut out, bytes).frame(&frame));
    assert_eq!(frames(&out), [frame]);
}

#[test]
fn the_largest_piece_fits_even_behind_a_level() {
    for datagram_bytes_max in [576, 1472, 16_000] {
        let largest = piece_bytes_max(datagram_bytes_max);
        assert!(largest > datagram_bytes_max - 120);
        let mut out = vec![0; HEADER_BYTES];
        let mut writer = Writer::new(&mut out, datagram_bytes_max);
        assert!(writer.frame(&Frame::Level { ballot: Default::default() }));
        assert!(writer.begin(&DATA));
        assert!(writer.piece(false, &vec![1; largest]));
        assert_eq!(out.len(), datagram_bytes_max);
    }
    assert_eq!(piece_bytes_max(40_000), PIECE_BYTES_MAX);
    assert_eq!(piece_bytes_max(10), 0);
}

#[test]
fn no_run_outgrows_the_length_of_its_frame() {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 1 << 20);
    assert!(writer.begin(&ORDERED));
    let mut pieces = 0;
    while writer.piece(false, &[7; 1000]) {
        pieces += 1;
    }
    assert_eq!((pieces, writer.end()), (65, 65));
    assert!(writer.begin(&ORDERED));
    let mut empty = 0_u32;
    while writer.piece(false, b"") {
        empty += 1;
    }
    assert_eq!(frames(&out).len(), 2);
    assert_eq!(empty, (65_535 - 27) / 2);
    assert!(!Writer::new(&mut out, 1 << 20).frame(&Frame::Tell { nonce: 1, report: vec![0; 65_528].into() }));
    assert!(Writer::new(&mut out, 1 << 20).frame(&Frame::Tell { nonce: 1, report: vec![0; 65_527].into() }));
}

#[test]
fn questions_are_padded_and_short_ones_refused() {
    let locate_port = Frame::LocatePort { nonce: 4, port: Port(5), key: PublicKey([6; 32]) };
    for question in [Frame::Locate { nonce: 4 }, Frame::Inquiry, locate_port] {
        let mut out = vec![0; HEADER_BYTES];
        assert!(Writer::new(&mut out, 1472).frame(&question));
        assert_eq!(out.len() - HEADER_BYTES, PADDED_BYTES);
        assert_eq!(frames(&out[HEADER_BYTES..]), std::slice::from_ref(&question));

        let mut small = vec![0; HEADER_BYTES];
        assert!(Writer::new(&mut small, 576).frame(&question));
        assert_eq!(small.len(), 576);
        assert_eq!(frames(&small[HEADER_BYTES..]), std::slice::from_ref(&question));
        assert!(!Writer::new(&mut Vec::new(), PADDED_BYTES_MIN - 1).frame(&question));

        // The padding is one byte too short.
        let body = question.kind().body_bytes_min() - 1;
        let mut short = out[HEADER_BYTES..][..FRAME_HEAD_BYTES + body].to_vec();
        short[1..3].copy_from_slice(&(body as u16).to_be_bytes());
        let error = Decoder::new(short.into()).next().unwrap().unwrap_err();
        assert_eq!(error.fault, Fault::Padding(FRAME_HEAD_BYTES + body));
    }
}
