//! Random valid frames, for property tests.

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use unisono_core::look::*;
use unisono_core::wire::*;
use unisono_core::*;

const CONDITIONS: [Condition; 3] = [Condition::Open, Condition::Pristine, Condition::Halted];

/// Returns any frame of any kind.
pub(crate) fn any_frame() -> impl Strategy<Value = Frame> {
    select(FrameKind::ALL).prop_flat_map(frame_of)
}

/// Returns any frame of this kind.
pub(crate) fn frame_of(kind: FrameKind) -> BoxedStrategy<Frame> {
    match kind {
        FrameKind::Data => data().prop_map(Frame::Data).boxed(),
        FrameKind::Ordered => (place(), uid(), place(), quality(), pieces())
            .prop_map(|(seqno, sender, first, quality, pieces)| {
                Frame::Ordered(Ordered { seqno, sender, first, quality, pieces })
            })
            .boxed(),
        FrameKind::Numbers => (place(), uid(), place(), quality(), 1..=u16::MAX)
            .prop_map(|(seqno, sender, first, quality, count)| {
                Frame::Numbers(Numbers { seqno, sender, first, quality, count })
            })
            .boxed(),
        FrameKind::Change => {
            (place(), change()).prop_map(|(seqno, change)| Frame::Change { seqno, change }).boxed()
        }
        FrameKind::Heartbeat => {
            (mark(), any::<bool>(), mark(), mark(), mark(), any::<u32>(), any::<[bool; 2]>(), any::<u8>())
                .prop_map(|(term, acting, end, accepted, stable, stamp, [multicast, asks], late_ms)| {
                    Frame::Heartbeat(Heartbeat {
                        term,
                        acting,
                        end,
                        accepted,
                        stable,
                        stamp,
                        multicast,
                        asks,
                        late_ms,
                    })
                })
                .boxed()
        }
        FrameKind::Watermarks => (mark(), mark(), mark(), any::<u32>(), any::<bool>(), any::<u8>())
            .prop_map(|(received, accepted, delivered, stamp, hears_multicast, late_ms)| {
                Frame::Watermarks(Watermarks {
                    received,
                    accepted,
                    delivered,
                    stamp,
                    hears_multicast,
                    late_ms,
                })
            })
            .boxed(),
        FrameKind::Nack => btree_set(1..=NUMBER_MAX, 2..=2 * NACK_RANGES_MAX)
            .prop_map(|places| {
                let places: Vec<_> = places.into_iter().collect();
                Frame::Nack { ranges: places.chunks_exact(2).map(|ends| (ends[0], ends[1])).collect() }
            })
            .boxed(),
        FrameKind::Want => range().prop_map(|(from, to)| Frame::Want { from, to }).boxed(),
        FrameKind::Gone => place().prop_map(|through| Frame::Gone { through }).boxed(),
        FrameKind::Unreliable => {
            (place(), bytes(40)).prop_map(|(number, payload)| Frame::Unreliable { number, payload }).boxed()
        }
        FrameKind::Note => (any::<u64>(), place(), bytes(NOTE_BYTES_MAX))
            .prop_map(|(member, number, note)| Frame::Note { member: Uid(member), number, note })
            .boxed(),

        FrameKind::Probe => any::<u64>().prop_map(|nonce| Frame::Probe { nonce }).boxed(),
        FrameKind::Alive => any::<u64>().prop_map(|nonce| Frame::Alive { nonce }).boxed(),
        FrameKind::Confirm => any::<u64>().prop_map(|nonce| Frame::Confirm { nonce }).boxed(),
        FrameKind::Confirmed => {
            (any::<u64>(), mark()).prop_map(|(nonce, end)| Frame::Confirmed { nonce, end }).boxed()
        }

        FrameKind::Locate => any::<u64>().prop_map(|nonce| Frame::Locate { nonce }).boxed(),
        FrameKind::HereIs => {
            let counts = (mark(), mark());
            (any::<[u64; 2]>(), any::<u128>(), counts, address(), any::<u16>(), select(&CONDITIONS[..]))
                .prop_map(|([nonce, cookie], instance, counts, sequencer, members, condition)| {
                    let (epoch_counter, ordered) = counts;
                    let instance = Instance(instance);
                    Frame::HereIs(HereIs {
                        nonce,
                        cookie,
                        instance,
                        epoch_counter,
                        sequencer,
                        members,
                        condition,
                        ordered,
                    })
                })
                .boxed()
        }
        FrameKind::Met => (any::<u64>(), any::<u128>(), mark(), mark(), any::<[bool; 2]>(), address())
            .prop_map(|(cookie, instance, ordered, ordered_here, [gives_way, from_other], address)| {
                let instance = Instance(instance);
                Frame::Met(Met { cookie, instance, ordered, ordered_here, gives_way, from_other, address })
            })
            .boxed(),
        FrameKind::JoinRequest => (any::<u64>(), name(), floor(), hops(), greeting())
            .prop_map(|(cookie, name, floor, hops, hello)| Frame::JoinRequest {
                cookie,
                name,
                floor,
                hops,
                hello,
            })
            .boxed(),
        FrameKind::Welcome => (any::<u64>(), any::<u128>(), epoch(), mark(), config(), log_base())
            .prop_map(|(cookie, instance, epoch, epoch_start, config, base)| {
                let instance = Instance(instance);
                let welcome = Welcome { cookie, instance, epoch, epoch_start, config, base };
                Frame::Welcome(welcome.into())
            })
            .boxed(),
        FrameKind::Refused => {
            let reasons = [
                Refusal::Full,
                Refusal::Name,
                Refusal::NotNow,
                Refusal::Cookie,
                Refusal::Floor,
                Refusal::FloorWithoutVote,
            ];
            let reasons = select(reasons.to_vec());
            (any::<u64>(), reasons).prop_map(|(cookie, reason)| Frame::Refused { cookie, reason }).boxed()
        }
        FrameKind::LeaveRequest => (prop_oneof![Just(0), place()], greeting())
            .prop_map(|(unnumbered_through, goodbye)| Frame::LeaveRequest { unnumbered_through, goodbye })
            .boxed(),
        FrameKind::Farewell => {
            (uid(), place()).prop_map(|(uid, seqno)| Frame::Farewell { uid, seqno }).boxed()
        }

        FrameKind::Invite => (ballot(), any::<u16>())
            .prop_map(|(ballot, members_min)| Frame::Invite { ballot, members_min })
            .boxed(),
        FrameKind::Vote => {
            (ballot(), mark(), mark(), any::<bool>(), option::of((ballot(), proposal())), early())
                .prop_map(|(ballot, end, accepted, lacks_state, prepared, early)| {
                    Frame::Vote(Box::new(Vote { ballot, end, accepted, lacks_state, prepared, early }))
                })
                .boxed()
        }
        FrameKind::Outbid => ballot().prop_map(|promised| Frame::Outbid { promised }).boxed(),
        FrameKind::Pull => {
            (ballot(), range()).prop_map(|(ballot, (from, to))| Frame::Pull { ballot, from, to }).boxed()
        }
        FrameKind::Level => ballot().prop_map(|ballot| Frame::Level { ballot }).boxed(),
        FrameKind::Prepare => (ballot(), any::<u16>(), proposal(), uids(), uids())
            .prop_map(|(ballot, members_min, proposal, before, after)| {
                Frame::Prepare(Prepare { ballot, members_min, proposal, before, after }.into())
            })
            .boxed(),
        FrameKind::Prepared => ballot().prop_map(|ballot| Frame::Prepared { ballot }).boxed(),
        FrameKind::Decided => (proposal(), any::<bool>())
            .prop_map(|(proposal, entered)| Frame::Decided { proposal, entered })
            .boxed(),
        FrameKind::Inquiry => Just(Frame::Inquiry).boxed(),
        FrameKind::Excluded => {
            let names = (uid(), any::<u128>().prop_map(Instance), epoch());
            names.prop_map(|(uid, instance, epoch)| Frame::Excluded { uid, instance, epoch }).boxed()
        }

        FrameKind::Ask => (any::<u64>(), PADDED_BYTES_MIN as u32..3000)
            .prop_map(|(nonce, room)| Frame::Ask { nonce, room })
            .boxed(),
        FrameKind::Tell => {
            (any::<u64>(), bytes(300)).prop_map(|(nonce, report)| Frame::Tell { nonce, report }).boxed()
        }
        FrameKind::Force => (any::<u64>(), any::<u64>(), vec(uid(), 1..=FORCE_MAX))
            .prop_map(|(nonce, challenge, without)| Frame::Force { nonce, challenge, without })
            .boxed(),
        FrameKind::Forcing => {
            let answer = prop_oneof![
                any::<u64>().prop_map(Forcing::Challenge),
                Just(Forcing::Begun),
                Just(Forcing::NotHalted),
                uid().prop_map(Forcing::NoSuchMember),
                uid().prop_map(Forcing::Answers),
            ];
            (any::<u64>(), answer).prop_map(|(nonce, answer)| Frame::Forcing { nonce, answer }).boxed()
        }
        FrameKind::SwitchRequest => (order(), prop_oneof![Just(0), place()])
            .prop_map(|(order, since)| Frame::SwitchRequest { order, since })
            .boxed(),
        FrameKind::Switch => (any::<u64>(), any::<u64>(), order())
            .prop_map(|(nonce, challenge, order)| Frame::Switch { nonce, challenge, order })
            .boxed(),
        FrameKind::Switching => {
            let answer = prop_oneof![
                any::<u64>().prop_map(Switching::Challenge),
                Just(Switching::Begun),
                Just(Switching::InForce),
                Just(Switching::UnderWay),
                Just(Switching::Resetting),
                Just(Switching::NotMember),
            ];
            (any::<u64>(), answer).prop_map(|(nonce, answer)| Frame::Switching { nonce, answer }).boxed()
        }
        FrameKind::Parcel => (any::<u32>(), 1..=PARCELS_MAX as u16, any::<u16>(), bytes(300))
            .prop_map(|(id, count, index, bytes)| Frame::Parcel { id, index: index % count, count, bytes })
            .boxed(),

        FrameKind::Form => (any::<u64>(), ballot(), any::<u16>(), PADDED_BYTES_MIN as u32..3000)
            .prop_map(|(formation, ballot, heard, room)| Frame::Form { formation, ballot, heard, room })
            .boxed(),
        FrameKind::FormPromise => {
            let prepared = option::of((ballot(), founding()));
            (any::<u64>(), ballot(), name(), address(), floor(), hops(), any::<u64>(), prepared)
                .prop_map(|(formation, ballot, name, address, floor, hops, nonce, prepared)| {
                    let promise =
                        FormPromise { formation, ballot, name, address, floor, hops, nonce, prepared };
                    Frame::FormPromise(promise.into())
                })
                .boxed()
        }
        FrameKind::FormRefused => (any::<u64>(), ballot(), ballot(), any::<u64>())
            .prop_map(|(formation, ballot, promised, nonce)| Frame::FormRefused {
                formation,
                ballot,
                promised,
                nonce,
            })
            .boxed(),
        FrameKind::FormEcho => (any::<u64>(), ballot(), any::<u16>(), any::<u64>())
            .prop_map(|(formation, ballot, heard, nonce)| Frame::FormEcho { formation, ballot, heard, nonce })
            .boxed(),
        FrameKind::FormPrepare => (any::<u64>(), ballot(), any::<u64>(), founding())
            .prop_map(|(formation, ballot, nonce, founding)| Frame::FormPrepare {
                formation,
                ballot,
                nonce,
                founding: founding.into(),
            })
            .boxed(),
        FrameKind::FormPrepared => (any::<u64>(), ballot())
            .prop_map(|(formation, ballot)| Frame::FormPrepared { formation, ballot })
            .boxed(),
        FrameKind::Formed => (any::<u64>(), ballot(), founding())
            .prop_map(|(formation, ballot, founding)| Frame::Formed {
                formation,
                ballot,
                founding: founding.into(),
            })
            .boxed(),

        FrameKind::LocatePort => (any::<u64>(), port(), key())
            .prop_map(|(nonce, port, key)| Frame::LocatePort { nonce, port, key })
            .boxed(),
        FrameKind::PortHere => {
            ([any::<u64>(); 2], port(), cookie(), grant(), any::<bool>(), any::<[u8; 32]>(), key())
                .prop_map(|([nonce, instance], port, cookie, grant, repeats, proof, key)| {
                    let mut whole = [0; 96];
                    whole[..32].copy_from_slice(&proof);
                    whole[64..].copy_from_slice(&proof);
                    let proof = Proof(whole);
                    let here = PortHere { nonce, port, cookie, grant, repeats, instance, key, proof };
                    Frame::PortHere(here.into())
                })
                .boxed()
        }
        FrameKind::PortNotHere => (any::<u64>(), port(), address())
            .prop_map(|(nonce, port, address)| Frame::PortNotHere { nonce, port, address })
            .boxed(),
        FrameKind::Request => {
            let passed = (0..=HOPS_MAX, any::<bool>(), wishes());
            (attempt(), [place(), place()], (port(), any::<u64>()), passed, any::<u32>(), payload())
                .prop_map(
                    |(
                        attempt,
                        [call, finished_below],
                        (port, instance),
                        (hops, again, wishes),
                        left_ms,
                        payload,
                    )| {
                        Frame::Request(Request {
                            attempt,
                            call,
                            finished_below,
                            port,
                            instance,
                            hops,
                            again,
                            left_ms,
                            wishes,
                            payload,
                        })
                    },
                )
                .boxed()
        }
        FrameKind::Reply => (attempt(), grant(), any::<bool>(), payload())
            .prop_map(|(attempt, grant, refused, payload)| {
                Frame::Reply(Reply { attempt, grant, refused, payload })
            })
            .boxed(),
        FrameKind::Reject => (attempt(), grant(), rejection())
            .prop_map(|(attempt, grant, reason)| Frame::Reject { attempt, grant, reason })
            .boxed(),
        FrameKind::Forward => (attempt(), grant(), address())
            .prop_map(|(attempt, grant, to)| Frame::Forward { attempt, grant, to })
            .boxed(),
        FrameKind::Working => {
            (attempt(), grant()).prop_map(|(attempt, grant)| Frame::Working { attempt, grant }).boxed()
        }
        FrameKind::Part => (attempt(), any::<bool>(), any::<u16>(), vec(any::<u8>(), 1..300))
            .prop_map(|(attempt, reply, index, bytes)| {
                Frame::Part(Part { attempt, reply, index, bytes: bytes.into() })
            })
            .boxed(),
        FrameKind::Got => (attempt(), any::<bool>(), any::<u32>(), any::<[u64; GOT_PARTS / 64]>())
            .prop_map(|(attempt, reply, through, beyond)| Frame::Got(Got { attempt, reply, through, beyond }))
            .boxed(),
        FrameKind::Done => (uid(), any::<u64>(), vec((slot(), place()), 0..=DONE_MAX))
            .prop_map(|(to, finished_below, attempts)| Frame::Done { to, finished_below, attempts })
            .boxed(),
        FrameKind::Cancel => attempt().prop_map(|attempt| Frame::Cancel { attempt }).boxed(),
        FrameKind::Envelope => {
            let opening = (cookie(), key()).prop_map(|(cookie, key)| Opening { cookie, key });
            (uid(), any::<u64>(), any::<bool>(), option::of(opening), vec(any::<u8>(), TAG_BYTES..300))
                .prop_map(|(to, salt, from_server, opening, sealed)| {
                    let head = EnvelopeHead { to, salt, from_server, opening };
                    Frame::Envelope(Envelope { head, sealed: sealed.into() }.into())
                })
                .boxed()
        }
        FrameKind::Unopened => {
            let age = any::<u64>().prop_map(|age_ms| Unreadable::OtherLife { age_ms });
            let reason = prop_oneof![cookie().prop_map(Unreadable::ShowCookie), age, Just(Unreadable::Busy)];
            (any::<u64>(), any::<u64>(), reason)
                .prop_map(|(binding, number, reason)| Frame::Unopened(Unopened { binding, number, reason }))
                .boxed()
        }
    }
}

/// Returns any report.
pub(crate) fn any_report() -> impl Strategy<Value = Report> {
    let head = (epoch(), any::<bool>(), uid(), uid(), mark(), any::<u8>(), mark(), mark(), mark());
    let state = (any::<[u32; 3]>(), duration(), option::of(last_reset()));
    (head, state, vec(member_report(), 0..40), vec(waiting(), 0..40), counters()).prop_map(
        |(head, state, members, waiting, counters)| {
            let mut report = Report::default();
            let resilience;
            (report.epoch, report.primary, report.reporter, report.sequencer, report.term, resilience, ..) =
                head;
            (.., report.end, report.accepted, report.stable) = head;
            let most = u8::try_from(members.len().saturating_sub(1)).unwrap();
            (report.resilience, report.resilience_founded) = (resilience.min(most), resilience);
            ([report.buffered, report.window, report.under_way], report.in_epoch, report.last_reset) = state;
            (report.members, report.waiting, report.counters) = (members, waiting, counters);
            report
        },
    )
}

fn key() -> impl Strategy<Value = PublicKey> {
    any::<[u8; 32]>().prop_map(PublicKey)
}

fn counters() -> impl Strategy<Value = Counters> {
    any::<[u64; 18]>().prop_map(|values| {
        let mut counters = Counters::default();
        [
            counters.datagrams_sent,
            counters.datagrams_received,
            counters.malformed,
            counters.foreign,
            counters.replayed,
            counters.stale,
            counters.messages_sent,
            counters.messages_delivered,
            counters.early,
            counters.unreliable,
            counters.nacks_sent,
            counters.repairs_sent,
            counters.resends,
            counters.resets,
            counters.suspicions,
            counters.passes,
            counters.null_passes,
            counters.rests,
        ] = values;
        counters
    })
}

fn last_reset() -> impl Strategy<Value = LastReset> {
    use Suspicion::*;
    let reason = option::of(select(&[Silent, Deaf, Replaced, Slow][..]));
    (mark(), any::<u16>(), loss(), reason).prop_map(|fields| {
        let mut reset = LastReset::default();
        (reset.seqno, reset.excluded, (reset.degraded, reset.forced), reset.reason) = fields;
        reset
    })
}

fn member_report() -> impl Strategy<Value = MemberReport> {
    (member(), mark(), mark(), any::<bool>(), any::<bool>(), duration()).prop_map(
        |(member, received, delivered, suspected, multicast, silent)| {
            let mut report = MemberReport::new(member);
            (report.received, report.delivered, report.silent) = (received, delivered, silent);
            (report.suspected, report.multicast) = (suspected, multicast);
            report
        },
    )
}

fn waiting() -> impl Strategy<Value = Waiting> {
    use WaitReason::*;
    (uid(), select(&[Ack, Window, Token, Flush, Reset, Minimum][..]), option::of(uid()), mark(), duration())
        .prop_map(|(who, reason, member, seqno, since)| {
            let mut waiting = Waiting::new(who, reason);
            (waiting.member, waiting.seqno, waiting.since) = (member, seqno, since);
            waiting
        })
}

fn data() -> impl Strategy<Value = Data> {
    (
        uid(),
        place(),
        any::<u64>(),
        select(&[Method::Pb, Method::Bb, Method::BbStream][..]),
        quality(),
        pieces(),
    )
        .prop_map(|(sender, first, base, method, quality, pieces)| Data {
            sender,
            first,
            base: base % first + 1,
            method,
            quality,
            pieces,
        })
}

fn quality() -> impl Strategy<Value = Quality> {
    prop_oneof![any::<u8>().prop_map(Quality::resilient), select(&[Quality::MAJORITY, Quality::TOTAL][..]),]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (member(), greeting()).prop_map(|(member, hello)| Change::Join { member, hello }),
        (uid(), uid(), greeting()).prop_map(|(uid, sequencer, goodbye)| Change::Leave {
            uid,
            sequencer,
            goodbye
        }),
        uid().prop_map(|sequencer| Change::Role { sequencer }),
        (order(), uid()).prop_map(|(order, sequencer)| Change::Order { order, sequencer }),
    ]
}

fn pieces() -> impl Strategy<Value = Pieces> {
    let piece = (any::<bool>(), bytes(60)).prop_map(|(more, bytes)| Piece { more, bytes });
    vec(piece, 1..20).prop_map(|pieces| Pieces::from_pieces(&pieces))
}

fn config() -> impl Strategy<Value = GroupConfig> {
    let slow = prop_oneof![Just(SlowMember::Wait), duration().prop_map(SlowMember::ExcludeAfter)];
    let quorum = prop_oneof![
        Just(Quorum::MajorityOfView),
        vec(name(), 1..10).prop_map(Quorum::MajorityOf),
        vec(name(), 1..10).prop_map(Quorum::MajorityOfNamed),
        Just(Quorum::All),
        (1..=u16::MAX).prop_map(Quorum::AtLeast),
    ];
    let numbers = (any::<u8>(), 1..=4096_u16, 16..=1_048_576_u32, 65_536..=NUMBER_MAX);
    let sizes = (0..=16_u32 << 20, 1..=65_536_u32, any::<u32>());
    let flags = (any::<bool>(), any::<bool>());
    (numbers, sizes, quorum, flags, slow, order()).prop_map(
        |(numbers, sizes, quorum, (keeps_state, automatic), slow_member, order)| GroupConfig {
            resilience: numbers.0,
            members_min: (numbers.0 as u16 % numbers.1) + 1,
            members_max: numbers.1,
            keeps_state,
            history_messages: numbers.2,
            history_bytes: numbers.3,
            message_bytes_max: sizes.0,
            window: sizes.1,
            broadcast_above_bytes: sizes.2,
            quorum,
            automatic,
            slow_member,
            order,
        },
    )
}

fn order() -> impl Strategy<Value = Order> {
    let migration = prop_oneof![Just(Migration::Never), Just(Migration::OnRequest), Just(Migration::ByLoad)];
    prop_oneof![migration.prop_map(Order::Sequencer), Just(Order::Token)]
}

fn log_base() -> impl Strategy<Value = LogBase> {
    (mark(), vec(member(), 1..10), (mark(), uid()), (mark(), order()), vec((uid(), place()), 0..10)).prop_map(
        |(seqno, members, term, order, last_numbers)| LogBase { seqno, members, term, order, last_numbers },
    )
}

fn founding() -> impl Strategy<Value = Founding> {
    (any::<u128>(), epoch(), config(), vec(member(), 1..10)).prop_map(|(instance, epoch, config, members)| {
        Founding { instance: Instance(instance), epoch, config, members }
    })
}

fn proposal() -> impl Strategy<Value = Proposal> {
    (epoch(), 10..=NUMBER_MAX, uids(), loss(), early()).prop_map(
        |(epoch, start, members, (degraded, forced), tail)| Proposal {
            epoch,
            start,
            members,
            degraded,
            forced,
            tail,
        },
    )
}

/// Messages that were delivered early, by sender and number.
fn early() -> impl Strategy<Value = Vec<EarlyMessage>> {
    let quality = select(&[Quality::UNORDERED, Quality::SOURCE_ORDERED][..]);
    btree_map((uid(), place()), (quality, bytes(40)), 0..9).prop_map(|messages| {
        let message = |((sender, number), (quality, bytes))| EarlyMessage { sender, number, quality, bytes };
        messages.into_iter().map(message).collect()
    })
}

/// Degraded, and forced; a forced reset is degraded too.
fn loss() -> impl Strategy<Value = (bool, bool)> {
    select(&[(false, false), (true, false), (true, true)][..])
}

fn epoch() -> impl Strategy<Value = EpochId> {
    (mark(), uid(), any::<u64>()).prop_map(|(counter, coordinator, nonce)| EpochId {
        counter,
        coordinator,
        nonce,
    })
}

fn ballot() -> impl Strategy<Value = Ballot> {
    (any::<u32>(), uid()).prop_map(|(round, coordinator)| Ballot { round, coordinator })
}

fn member() -> impl Strategy<Value = Member> {
    (uid(), name(), address(), floor(), hops()).prop_map(|(uid, name, address, floor, hops)| Member {
        uid,
        name,
        address,
        floor,
        hops,
    })
}

fn hops() -> impl Strategy<Value = u8> {
    1..=u8::MAX
}

fn floor() -> impl Strategy<Value = Floor> {
    let others = select(vec![Floor::None, Floor::Majority, Floor::All]);
    prop_oneof![others, (1..=4096_u16).prop_map(Floor::AtLeast)]
}

fn name() -> impl Strategy<Value = Name> {
    // At most 16 characters of at most four bytes.
    let visible = any::<char>().prop_filter("visible", |c| !c.is_control());
    vec(visible, 0..=16).prop_map(|text| Name::new(&text.iter().collect::<String>()).unwrap_or_default())
}

fn greeting() -> impl Strategy<Value = bytes::Bytes> {
    bytes(GREETING_BYTES_MAX)
}

fn bytes(max: usize) -> impl Strategy<Value = bytes::Bytes> {
    vec(any::<u8>(), 0..=max).prop_map(bytes::Bytes::from)
}

fn address() -> impl Strategy<Value = SocketAddr> {
    let ip = prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)];
    (ip, any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn duration() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_nanos)
}

fn uids() -> impl Strategy<Value = Vec<Uid>> {
    vec(uid(), 1..10)
}

fn uid() -> impl Strategy<Value = Uid> {
    any::<u64>().prop_map(Uid)
}

/// Returns a seqno or message number with room for the longest run behind it.
fn place() -> impl Strategy<Value = u64> {
    1..=NUMBER_MAX - u64::from(u16::MAX)
}

fn mark() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(NUMBER_MAX), 0..=NUMBER_MAX]
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    (place(), place()).prop_map(|(a, b)| (a.min(b), a.max(b)))
}

fn port() -> impl Strategy<Value = Port> {
    any::<u128>().prop_map(Port)
}

fn slot() -> impl Strategy<Value = u16> {
    0..SLOTS_MAX as u16
}

fn attempt() -> impl Strategy<Value = Attempt> {
    (uid(), slot(), place()).prop_map(|(to, slot, number)| Attempt { to, slot, number })
}

fn cookie() -> impl Strategy<Value = Cookie> {
    any::<[u64; 2]>().prop_map(|[issued, seal]| Cookie { issued, seal })
}

fn grant() -> impl Strategy<Value = Grant> {
    (0..=SLOTS_MAX as u16, any::<u16>()).prop_map(|(slots, load)| Grant { slots, load })
}

fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        bytes(300).prop_map(Payload::Whole),
        (1..=CALL_BYTES_MAX as u32, PART_BYTES_MIN as u16..)
            .prop_map(|(total, part)| Payload::Parts { total, part }),
        Just(Payload::Omitted),
    ]
}

fn rejection() -> impl Strategy<Value = Rejection> {
    use Rejection::*;
    prop_oneof![select(&[NotServed, Busy, Expired, Cancelled, Lost][..]), cookie().prop_map(ShowCookie),]
}

fn wishes() -> impl Strategy<Value = Option<Box<Wishes>>> {
    let handler = option::of("[a-zäö ]{1,127}");
    (handler, quality()).prop_map(|(handler, quality)| {
        let wishes = Wishes { handler: handler.map(Into::into), quality };
        (wishes != Wishes::default()).then(|| wishes.into())
    })
}
