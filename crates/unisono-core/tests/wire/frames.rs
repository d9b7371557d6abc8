//! Every valid frame is read as it was written: in a datagram, alone, and in parcels.

use crate::strategies::{any_frame, frame_of};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use unisono_core::wire::*;

fn written(frames: &[Frame]) -> Bytes {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 1 << 20);
    frames.iter().for_each(|frame| assert!(writer.frame(frame)));
    out.into()
}

fn read(payload: Bytes) -> Vec<Frame> {
    Decoder::new(payload).map(|frame| frame.unwrap()).collect()
}

#[test]
fn a_frame_is_not_large() {
    assert!(size_of::<Frame>() <= 224, "every frame that is read or written is moved about");
}

#[test]
fn every_kind_is_read_as_it_was_written() {
    for &kind in FrameKind::ALL {
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&frame_of(kind), |frame| {
            prop_assert_eq!(frame.kind(), kind);
            let bytes = written(std::slice::from_ref(&frame));
            prop_assert_eq!(FrameKind::from_number(bytes[0]), Some(kind));
            prop_assert!(bytes.len() >= FRAME_HEAD_BYTES + kind.body_bytes_min());
            prop_assert_eq!(read(bytes), [frame]);
            Ok(())
        });
        if let Err(error) = outcome {
            panic!("{kind}: {error}");
        }
    }
}

proptest! {
    #[test]
    fn frames_follow_one_another(frames in vec(any_frame(), 0..8)) {
        prop_assert_eq!(read(written(&frames)), frames);
    }

    #[test]
    fn a_frame_never_exceeds_its_limit(frame in any_frame(), limit in 0_usize..2000) {
        let mut out = vec![7; 10];
        let fits = Writer::new(&mut out, limit).frame(&frame);
        prop_assert!(out.len() <= limit.max(10));
        prop_assert_eq!(out.len() > 10, fits);
        let bytes = written(std::slice::from_ref(&frame));
        // A question is padded to the room that is left.
        let needed = match frame {
            Frame::Locate { .. } | Frame::Inquiry | Frame::LocatePort { .. } | Frame::Switch { .. } => {
                PADDED_BYTES_MIN
            }
            Frame::Force { ref without, .. } => {
                PADDED_BYTES_MIN.max(FRAME_HEAD_BYTES + 8 + 8 + 2 + 8 * without.len())
            }
            _ => bytes.len(),
        };
        prop_assert_eq!(fits, 10 + needed <= limit);
        prop_assert_eq!(read(Bytes::from(out).slice(10..)).len(), usize::from(fits));
    }

    #[test]
    fn a_frame_cut_into_parcels_is_whole_again(
        frame in any_frame().prop_filter("parcels are not cut", |frame| frame.kind() != FrameKind::Parcel),
        datagram_bytes_max in 80_usize..2000,
        order in any::<u64>(),
    ) {
        let mut parcels = cut(&frame, 3, datagram_bytes_max).unwrap();
        let turn = (order % parcels.len() as u64) as usize;
        parcels.rotate_left(turn);
        let mut assembler = Assembler::new();
        let mut whole = Vec::new();
        for parcel in read(written(&parcels)) {
            let Frame::Parcel { id, index, count, bytes } = parcel else { panic!("not a parcel") };
            whole.extend(assembler.take(id, index, count, &bytes));
        }
        prop_assert_eq!(whole.len(), 1);
        prop_assert_eq!(Frame::decode_alone(&whole[0]), Ok(frame));
    }

    #[test]
    fn a_run_is_the_frame_that_it_stands_for(frame in prop_oneof![frame_of(FrameKind::Data), frame_of(FrameKind::Ordered)]) {
        let (head, pieces) = match &frame {
            Frame::Data(Data { sender, first, base, method, quality, pieces }) => (
                RunHead::Data {
                    sender: *sender, first: *first, base: *base, method: *method, quality: *quality,
                },
                pieces,
            ),
            Frame::Ordered(Ordered { seqno, sender, first, quality, pieces }) => {
                (RunHead::Ordered { seqno: *seqno, sender: *sender, first: *first, quality: *quality }, pieces)
            }
            other => panic!("{other}"),
        };
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, 1 << 20);
        prop_assert!(writer.begin(&head));
        for piece in pieces {
            prop_assert!(writer.piece(piece.more, &piece.bytes));
        }
        prop_assert_eq!(usize::from(writer.end()), pieces.len());
        prop_assert_eq!(Bytes::from(out), written(&[frame]));
    }
}
