//! Reading ends whatever arrives: with frames that keep their rules, or with an error that says what is wrong.

use crate::strategies::{any_frame, any_report};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;
use unisono_core::wire::*;
use unisono_core::*;

fn written(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(Writer::new(&mut out, 1 << 17).frame(frame), "{frame}");
    out
}

fn fault(bytes: Vec<u8>) -> Fault {
    let mut decoder = Decoder::new(bytes.into());
    let error = decoder.next().expect("a frame").expect_err("a bad frame");
    assert_eq!(decoder.next(), None, "nothing is read after an error");
    assert!(!error.to_string().is_empty());
    error.fault
}

/// Reads everything. Each valid frame must be the same after it is written and read again.
fn devour(bytes: Bytes) {
    for frame in Decoder::new(bytes.clone()).flatten() {
        let again = Decoder::new(written(&frame).into()).next().unwrap();
        assert_eq!(again, Ok(frame));
    }
    let _ = Frame::decode_alone(&bytes);
    let _ = decode_report(&bytes);
    let mut datagram = Vec::new();
    let header = Header {
        protection: ProtectionKind::Checksum,
        group: GroupTag(1),
        epoch: EpochTag(2),
        sender: Uid(3),
        number: 4,
        salt: 5,
    };
    header.write(&mut datagram);
    datagram.extend_from_slice(&bytes);
    let words = explain(&datagram);
    assert!(words.chars().all(|c| c == '\n' || !c.is_control()), "{words:?}");
    explain(&bytes);
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_survived(bytes in vec(any::<u8>(), 0..2000)) {
        devour(bytes.into());
    }

    /// Random bytes rarely get past the first field. These begin like a frame of a known kind and length.
    #[test]
    fn arbitrary_bodies_are_survived(
        kind in proptest::sample::select(FrameKind::ALL),
        mut body in vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..2000),
    ) {
        let mut bytes = vec![kind as u8];
        bytes.extend_from_slice(&(body.len() as u16).to_be_bytes());
        bytes.append(&mut body);
        devour(bytes.into());
    }

    #[test]
    fn truncated_frames_are_refused(frame in any_frame(), cut in any::<usize>()) {
        let whole = written(&frame);
        let cut = cut % whole.len();
        let mut bytes = whole[..cut].to_vec();
        prop_assert_eq!(Decoder::new(bytes.clone().into()).flatten().next(), None);
        // The same, with a length field that agrees with what is left.
        if cut >= FRAME_HEAD_BYTES {
            let body = cut - FRAME_HEAD_BYTES;
            bytes[1..3].copy_from_slice(&(body as u16).to_be_bytes());
            if body < frame.kind().body_bytes_min() {
                prop_assert_eq!(Decoder::new(bytes.clone().into()).flatten().next(), None);
            }
        }
        devour(bytes.into());
    }

    #[test]
    fn changed_frames_are_survived(
        frames in vec(any_frame(), 1..4),
        changes in vec((any::<usize>(), any::<u8>()), 1..6),
    ) {
        let mut bytes: Vec<u8> = frames.iter().flat_map(written).collect();
        for (place, value) in changes {
            let place = place % bytes.len();
            bytes[place] = value;
        }
        devour(bytes.into());
    }

    #[test]
    fn changed_reports_are_survived(
        report in any_report(),
        changes in vec((any::<usize>(), any::<u8>()), 1..6),
        cut in any::<usize>(),
    ) {
        let mut bytes = Vec::new();
        encode_report(&report, &mut bytes, 5000);
        for (place, value) in changes {
            let place = place % bytes.len();
            bytes[place] = value;
        }
        bytes.truncate(cut % (bytes.len() + 1));
        let _ = decode_report(&bytes.into());
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let uid = Uid(5);
    let ballot = Ballot { round: 1, coordinator: uid };
    let pieces = Pieces::from_pieces(&vec![Piece { more: false, bytes: Bytes::from_static(b"x") }; 3]);
    let ordered = |seqno, first| {
        Frame::Ordered(Ordered {
            seqno,
            sender: uid,
            first,
            quality: Quality::ORDERED,
            pieces: pieces.clone(),
        })
    };
    let numbers = |seqno, first, count| {
        Frame::Numbers(Numbers { seqno, sender: uid, first, quality: Quality::ORDERED, count })
    };
    let data = |first, base| {
        let (method, quality, pieces) = (Method::Pb, Quality::ORDERED, pieces.clone());
        Frame::Data(Data { sender: uid, first, base, method, quality, pieces })
    };
    let heartbeat = |end| {
        let (term, acting, accepted, stable, stamp, multicast, asks) = (0, true, 0, 0, 0, false, true);
        Frame::Heartbeat(Heartbeat {
            term,
            acting,
            end,
            accepted,
            stable,
            stamp,
            multicast,
            asks,
            late_ms: 0,
        })
    };
    let proposal = |start, members: &[Uid]| Proposal {
        epoch: EpochId::default(),
        start,
        members: members.to_vec(),
        degraded: false,
        forced: false,
        tail: Vec::new(),
    };
    let early = |names: &[(u64, u64)]| {
        let quality = Quality::UNORDERED;
        let message = |(sender, number): &(u64, u64)| EarlyMessage {
            sender: Uid(*sender),
            number: *number,
            quality,
            bytes: Bytes::new(),
        };
        names.iter().map(message).collect()
    };
    let vote = |names: &[(u64, u64)]| {
        let (end, accepted, lacks_state, prepared, early) = (1, 1, false, None, early(names));
        Frame::Vote(Box::new(Vote { ballot, end, accepted, lacks_state, prepared, early }))
    };
    let prepare = |proposal, before: &[Uid], after: &[Uid]| {
        let (before, after) = (before.to_vec(), after.to_vec());
        Frame::Prepare(Prepare { ballot, members_min: 0, proposal, before, after }.into())
    };
    let nack = |ranges: &[(u64, u64)]| Frame::Nack { ranges: ranges.to_vec() };
    for (frame, field, value) in [
        (ordered(0, 1), "seqno", 0),
        (ordered(1, 0), "first", 0),
        (ordered(NUMBER_MAX + 1, 1), "seqno", NUMBER_MAX + 1),
        (ordered(NUMBER_MAX - 1, 1), "count", 3),
        (ordered(1, NUMBER_MAX - 1), "count", 3),
        (numbers(0, 1, 1), "seqno", 0),
        (numbers(1, 1, 0), "count", 0),
        (numbers(NUMBER_MAX, 1, 2), "count", 2),
        (numbers(1, NUMBER_MAX, 2), "count", 2),
        (data(0, 1), "first", 0),
        (data(1, 0), "base", 0),
        (data(1, 2), "base", 2),
        (data(NUMBER_MAX, 2), "count", 3),
        (Frame::Change { seqno: 0, change: Change::Role { sequencer: uid } }, "seqno", 0),
        (heartbeat(u64::MAX), "end", u64::MAX),
        (nack(&[]), "range count", 0),
        (nack(&[(0, 4)]), "from", 0),
        (nack(&[(5, 4)]), "to", 4),
        (nack(&[(1, 4), (4, 6)]), "from", 4),
        (Frame::Want { from: 0, to: 1 }, "from", 0),
        (Frame::Want { from: 3, to: 2 }, "to", 2),
        (Frame::Gone { through: 0 }, "through", 0),
        (Frame::Unreliable { number: 0, payload: Bytes::new() }, "number", 0),
        (Frame::Note { member: uid, number: 0, note: Bytes::new() }, "number", 0),
        (Frame::Note { member: uid, number: 1, note: vec![0; 65].into() }, "note length", 65),
        (Frame::Farewell { uid: Uid(1), seqno: 0 }, "seqno", 0),
        (Frame::Pull { ballot, from: 0, to: 1 }, "from", 0),
        (Frame::Pull { ballot, from: 2, to: 1 }, "to", 1),
        (Frame::Decided { proposal: proposal(0, &[uid]), entered: false }, "start", 0),
        (vote(&[(1, 5), (1, 5)]), "number", 5),
        (vote(&[(2, 1), (1, 9)]), "number", 9),
        (vote(&[(1, 0)]), "number", 0),
        (Frame::Decided { proposal: proposal(1, &[]), entered: false }, "member count", 0),
        (prepare(proposal(1, &[uid]), &[], &[uid]), "member count", 0),
        (prepare(proposal(1, &[uid]), &[uid], &[]), "member count", 0),
        (Frame::Parcel { id: 1, index: 0, count: 0, bytes: Bytes::new() }, "count", 0),
        (Frame::Parcel { id: 1, index: 2, count: 2, bytes: Bytes::new() }, "index", 2),
    ] {
        assert_eq!(fault(written(&frame)), Fault::Range { field, value }, "{frame}");
    }
    assert!(
        Decoder::new(written(&ordered(NUMBER_MAX - 2, NUMBER_MAX - 2)).into()).all(|frame| frame.is_ok())
    );
    assert!(Decoder::new(written(&nack(&[(1, 4), (5, NUMBER_MAX)])).into()).all(|frame| frame.is_ok()));
}

#[test]
fn values_of_calls_out_of_range_are_refused() {
    let (attempt, grant) =
        (Attempt { to: Uid(1), slot: 1023, number: 1 }, Grant { slots: 1024, load: 65535 });
    let cancel = |slot, number| Frame::Cancel { attempt: Attempt { slot, number, ..attempt } };
    let working = |slots| Frame::Working { attempt, grant: Grant { slots, ..grant } };
    let announced = |total, part| {
        let payload = Payload::Parts { total, part };
        Frame::Reply(Reply { attempt, grant, refused: false, payload })
    };
    let request = |call, finished_below, hops| {
        let (port, left_ms, payload) = (Port(1), 1, Payload::Omitted);
        let (instance, again) = (0, false);
        Frame::Request(Request {
            attempt,
            call,
            finished_below,
            port,
            instance,
            hops,
            again,
            left_ms,
            wishes: None,
            payload,
        })
    };
    let done =
        |attempts: &[(u16, u64)]| Frame::Done { to: Uid(1), finished_below: 1, attempts: attempts.to_vec() };
    for (frame, field, value) in [
        (cancel(1024, 1), "slot", 1024),
        (cancel(0, 0), "number", 0),
        (working(1025), "slots", 1025),
        (announced(0, 256), "total", 0),
        (announced((16 << 20) + 1, 256), "total", (16 << 20) + 1),
        (announced(1, 255), "part bytes", 255),
        (request(0, 1, 0), "call", 0),
        (request(1, 0, 0), "finished below", 0),
        (request(1, 1, 9), "hops", 9),
        (done(&[(1024, 1)]), "slot", 1024),
    ] {
        assert_eq!(fault(written(&frame)), Fault::Range { field, value }, "{frame}");
    }
    for frame in [cancel(1023, 1), working(1024), announced(16 << 20, 256), request(1, 1, 8)] {
        assert!(Decoder::new(written(&frame).into()).all(|frame| frame.is_ok()), "{frame}");
    }
}

#[test]
fn questions_that_are_too_short_are_neither_written_nor_read() {
    let form = |room| Frame::Form { formation: 1, ballot: Ballot::default(), heard: 1, room };
    let least = PADDED_BYTES_MIN as u32;
    assert!(!Writer::new(&mut Vec::new(), 1472).frame(&form(least - 1)));
    let mut bytes = written(&form(least));
    assert_eq!(Decoder::new(bytes.clone().into()).collect::<Vec<_>>(), [Ok(form(least))]);
    bytes.pop();
    let body = (bytes.len() - FRAME_HEAD_BYTES) as u16;
    bytes[1..3].copy_from_slice(&body.to_be_bytes());
    assert_eq!(fault(bytes), Fault::Padding(PADDED_BYTES_MIN - 1));
}

#[test]
fn configurations_out_of_range_are_refused() {
    let welcome = |change: fn(&mut GroupConfig)| {
        let mut config = GroupConfig::default();
        change(&mut config);
        let member = Member {
            uid: Uid(1),
            name: Name::default(),
            address: "127.0.0.1:9".parse().unwrap(),
            floor: Default::default(),
            hops: 1,
        };
        let welcome = Welcome {
            cookie: 1,
            instance: Instance(1),
            epoch: EpochId::default(),
            epoch_start: 0,
            config,
            base: LogBase {
                seqno: 0,
                members: vec![member],
                term: (0, Uid(1)),
                order: (0, Order::Token),
                last_numbers: vec![],
            },
        };
        written(&Frame::Welcome(welcome.into()))
    };
    let good: [fn(&mut GroupConfig); 3] = [
        |_| (),
        |config| config.quorum = Quorum::MajorityOf(vec![Name::default(); 4096]),
        |config| config.slow_member = SlowMember::ExcludeAfter(Duration::from_nanos(7)),
    ];
    for change in good {
        assert!(Decoder::new(welcome(change).into()).all(|frame| frame.is_ok()));
    }
    let bad: [(fn(&mut GroupConfig), _, _); 13] = [
        (|config| config.members_min = 0, "members_min", 0),
        (|config| config.members_min = 257, "members_min", 257),
        (|config| config.members_max = 0, "members_max", 0),
        (|config| config.members_max = 4097, "members_max", 4097),
        (|config| config.history_messages = 15, "history_messages", 15),
        (|config| config.history_messages = (1 << 20) + 1, "history_messages", (1 << 20) + 1),
        (|config| config.history_bytes = 65_535, "history_bytes", 65_535),
        (|config| config.history_bytes = u64::MAX, "history_bytes", u64::MAX),
        (|config| config.message_bytes_max = (16 << 20) + 1, "message_bytes_max", (16 << 20) + 1),
        (|config| config.window = 0, "window", 0),
        (|config| config.window = 65_537, "window", 65_537),
        (|config| config.quorum = Quorum::AtLeast(0), "quorum number", 0),
        (|config| config.quorum = Quorum::MajorityOf(vec![]), "quorum number", 0),
    ];
    for (change, field, value) in bad {
        assert_eq!(fault(welcome(change)), Fault::Range { field, value });
    }
    // A duration for slow members, and a flag that says that the group waits for them.
    let mut bytes = welcome(good[2]);
    bytes[FRAME_HEAD_BYTES + 8 + 16 + 24 + 8 + 31] = 0;
    assert_eq!(fault(bytes), Fault::Range { field: "slow member", value: 7 });
    for value in [0, 5, 255] {
        let mut bytes = welcome(good[0]);
        bytes[FRAME_HEAD_BYTES + 8 + 16 + 24 + 8 + 40] = value;
        assert_eq!(fault(bytes), Fault::Range { field: "order", value: value.into() });
    }
}

#[test]
fn lists_and_texts_longer_than_allowed_are_not_written() {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 1 << 20);
    let long = Bytes::from(vec![b'a'; GREETING_BYTES_MAX + 1]);
    assert!(!writer.frame(&Frame::LeaveRequest { unnumbered_through: 0, goodbye: long }));
    assert!(!writer.frame(&Frame::Nack { ranges: (0..33).map(|i| (2 * i + 1, 2 * i + 1)).collect() }));
    let members = vec![Uid(1); MEMBERS_MAX + 1];
    let proposal = Proposal {
        epoch: EpochId::default(),
        start: 1,
        members,
        degraded: false,
        forced: false,
        tail: Vec::new(),
    };
    assert!(!writer.frame(&Frame::Decided { proposal, entered: true }));
    assert!(out.is_empty());
}

/// Bytes that no writer produces: each a valid frame with one byte changed.
#[test]
fn bytes_that_mean_nothing_are_refused() {
    let changed = |frame: &Frame, offset: usize, value: u8| {
        let mut bytes = written(frame);
        bytes[FRAME_HEAD_BYTES + offset] = value;
        bytes
    };
    let request = Frame::JoinRequest {
        cookie: 1,
        name: Name::new("é").unwrap(),
        floor: Floor::None,
        hops: 1,
        hello: Bytes::from_static(b"hello"),
    };
    assert_eq!(fault(changed(&request, 9, b'a')), Fault::Text);
    assert_eq!(fault(changed(&request, 8, 65)), Fault::Range { field: "name length", value: 65 });
    assert_eq!(fault(changed(&request, 8, 20)), Fault::Short("name"));
    assert_eq!(fault(changed(&request, 11, 0x20)), Fault::Range { field: "floor", value: 8192 });
    assert_eq!(fault(changed(&request, 13, 0)), Fault::Range { field: "hops", value: 0 });
    assert_eq!(fault(changed(&request, 14, 2)), Fault::Range { field: "greeting length", value: 517 });
    assert_eq!(fault(changed(&request, 15, 6)), Fault::Short("greeting length"));
    assert_eq!(fault(changed(&request, 15, 4)), Fault::Trailing(1));

    let run = Frame::Ordered(Ordered {
        seqno: 1,
        sender: Uid(1),
        first: 1,
        quality: Quality::ORDERED,
        pieces: Pieces::from_pieces(&[Piece { more: true, bytes: Bytes::from_static(b"x") }]),
    });
    assert_eq!(fault(changed(&run, 26, 0)), Fault::Range { field: "count", value: 0 });
    assert_eq!(fault(changed(&run, 26, 2)), Fault::Short("piece length"));
    assert_eq!(fault(changed(&run, 28, 2)), Fault::Short("piece"));
    assert_eq!(fault(changed(&run, 28, 0)), Fault::Trailing(1));
    let too_long = Fault::Range { field: "piece length", value: 0x4001 };
    assert_eq!(fault(changed(&run, 27, 0xc0)), too_long);

    let role = Frame::Change { seqno: 1, change: Change::Role { sequencer: Uid(1) } };
    assert_eq!(fault(changed(&role, 8, 5)), Fault::Range { field: "change", value: 5 });
    let refused = Frame::Refused { cookie: 0, reason: Refusal::Cookie };
    assert_eq!(fault(changed(&refused, 8, 0)), Fault::Range { field: "reason", value: 0 });
    assert_eq!(fault(changed(&refused, 8, 7)), Fault::Range { field: "reason", value: 7 });

    let mut unknown = written(&refused);
    unknown[0] = 0x99;
    assert_eq!(fault(unknown), Fault::Kind(0x99));
    let mut long = written(&refused);
    long[2] += 1;
    assert_eq!(fault(long), Fault::Short("body"));
    let parcel = Frame::Parcel { id: 1, index: 0, count: 1, bytes: Bytes::new() };
    let alone = Bytes::from(parcel.encode_alone().unwrap());
    assert_eq!(Frame::decode_alone(&alone).unwrap_err().fault, Fault::Kind(0x50));
}

#[test]
fn an_error_says_which_frame_and_where() {
    let mut bytes = written(&Frame::Gone { through: 4 });
    bytes.extend(written(&Frame::Farewell { uid: Uid(1), seqno: 0 }));
    let error = Decoder::new(bytes.into()).nth(1).unwrap().unwrap_err();
    assert_eq!((error.kind, error.offset), (Some(FrameKind::Farewell), 22));
    assert_eq!(error.to_string(), "Farewell frame, byte 22: seqno is 0, which is out of range");
}
