//! Scenes: bugs that only an attacker with recordings can use, or that need one answer at one moment, each shown by a few
//! datagrams that are sent by hand.
//!
//! The director of a simulated world replays what it has recorded of the same run. It knows nothing of an earlier start
//! of the same processes.

mod ring;

use crate::seal::Seal;
use bytes::{Bytes, BytesMut};
use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::wire::{
    Condition, Decoder, Founding, Frame, HEADER_BYTES, Header, HereIs, KeyContext, PADDED_BYTES, Protection,
    ProtectionKind, Writer,
};
use unisono_core::{
    Ballot, EntryMode, EpochId, EpochTag, Formation, Group, GroupConfig, Instance, Member, Name, Phase,
    Planted, Port, Random, Settings, Time, Transport, Uid,
};

/// Plays a scene, with a bug planted or without one. Returns the name of the property that is violated.
type Scene = fn(Option<Planted>) -> Option<&'static str>;

/// Returns the scene that shows a bug, if it is not left to the seeds.
pub(crate) fn of(bug: Planted) -> Option<Scene> {
    match bug {
        Planted::PrepareUnechoed => Some(recorded_proposal),
        Planted::PromiseUnechoed => Some(recorded_questions),
        Planted::ReplayTaken => Some(copied_datagram),
        Planted::WindowBeforeOpening => Some(forged_number),
        Planted::JoinCookieUnchecked => Some(guessed_cookie),
        Planted::HaltedAnswerKept => Some(answer_of_the_dead),
        Planted::SwitchKeptOverCut => Some(ring::switch_cut_off),
        Planted::StuckSiteKeepsToken => Some(ring::stuck_site),
        Planted::PassedWhileUnsettled | Planted::JoinerForgottenAtPass => Some(ring::joiners),
        Planted::AskedAtRestNamesItself => Some(ring::joiners_at_rest),
        Planted::WaitingDroppedAtPass => Some(ring::lossless_load),
        Planted::PassToldByGiverAlone => Some(ring::pass_told_by_others),
        Planted::DeafMemberUnnoticed => Some(ring::deaf_to_one),
        Planted::OwnHoldingCounted => Some(ring::passes_alone),
        Planted::OwnBytesAloneCounted => Some(ring::a_socket_holds_it),
        _ => None,
    }
}

fn address(place: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, place], 7195))
}

fn member(place: u8) -> Member {
    let name = Name::new(&format!("m{place}")).unwrap_or_default();
    Member {
        uid: Uid(100 + u64::from(place)),
        name,
        address: address(place),
        floor: Default::default(),
        hops: 1,
    }
}

/// Returns a participant of a formation of three that has begun its first ballot, what the formation is called, and the
/// time.
fn participant(bug: Option<Planted>) -> Option<(Group, u64, Time)> {
    const NOW: Time = Time::from_nanos(1_000_000_000);
    let participants = (0..3).map(|place| member(place).name).collect();
    let formation = Formation { participants, at_least: 2, within: Duration::from_secs(5) };
    let entry = EntryMode::Form(formation, GroupConfig::default());
    let (port, random) = (Port::from_name("scene"), Random::from_u64(1));
    let me = member(0);
    let group = Group::new(NOW, me, port, entry, Bytes::new(), Settings::default(), Box::new(Seal), random);
    let mut group = group.ok()?;
    bug.into_iter().for_each(|bug| group.plant(bug));
    let at = NOW + Duration::from_millis(10);
    group.handle_timeout(at);
    let formation = said(&mut group, at).into_iter().find_map(|frame| match frame {
        Frame::Form { formation, .. } => Some(formation),
        _ => None,
    })?;
    Some((group, formation, at))
}

/// A participant of a formation hears the questions of an earlier start, one after the other.
fn recorded_questions(bug: Option<Planted>) -> Option<&'static str> {
    let (mut group, formation, at) = participant(bug)?;
    for round in 2..9 {
        let at = at + Duration::from_millis(u64::from(round));
        let old = Ballot { round, coordinator: member(1).uid };
        let question = Frame::Form { formation, ballot: old, heard: 3, room: PADDED_BYTES as u32 };
        let datagram = sealed(&group, old.coordinator, round.into(), &question)?;
        group.handle_datagram(at, address(1), datagram);
        said(&mut group, at);
    }
    // Its first ballot goes on: it repeats the question.
    let at = at + Duration::from_millis(30);
    group.handle_timeout(at);
    let is_first = |frame: &Frame| matches!(frame, Frame::Form { ballot: Ballot { round: 1, .. }, .. });
    let goes_on = said(&mut group, at).iter().any(is_first);
    (!goes_on).then_some("recordings_delay_nothing")
}

/// A participant of a formation hears what was recorded at an earlier start: a question, and the proposal that followed.
fn recorded_proposal(bug: Option<Planted>) -> Option<&'static str> {
    let (mut group, formation, at) = participant(bug)?;
    let old = Ballot { round: 9, coordinator: member(1).uid };
    let founding = Founding {
        instance: Instance(5),
        epoch: EpochId { counter: 0, coordinator: old.coordinator, nonce: 5 },
        config: GroupConfig::default(),
        members: vec![member(1), member(2)],
    };
    let recordings = [
        Frame::Form { formation, ballot: old, heard: 3, room: PADDED_BYTES as u32 },
        Frame::FormPrepare { formation, ballot: old, nonce: 5, founding: founding.into() },
    ];
    let mut answers = Vec::new();
    for (number, frame) in (1..).zip(&recordings) {
        let datagram = sealed(&group, old.coordinator, number, frame)?;
        group.handle_datagram(at, address(1), datagram);
        answers.extend(said(&mut group, at));
    }
    answers
        .iter()
        .any(|frame| matches!(frame, Frame::FormPrepared { .. }))
        .then_some("recordings_prepare_nothing")
}

/// The last member of a halted group answers a participant of a formation, and dies. The formation has time for more.
fn answer_of_the_dead(bug: Option<Planted>) -> Option<&'static str> {
    let participants: Vec<Name> = (0..3).map(|place| member(place).name).collect();
    let formation = Formation { participants, at_least: 2, within: Duration::from_secs(30) };
    let entry = || EntryMode::JoinOrForm(formation.clone(), GroupConfig::default());
    let mut couple = Couple::entering([entry(), entry()], bug)?;
    let question = said(&mut couple.groups[0], couple.now).into_iter().find_map(|frame| match frame {
        Frame::Locate { nonce } => Some(nonce),
        _ => None,
    })?;
    let dead = member(2);
    let here = HereIs {
        nonce: question,
        cookie: 1,
        instance: Instance(7),
        epoch_counter: 0,
        sequencer: dead.address,
        members: 3,
        condition: Condition::Halted,
        ordered: 9,
    };
    let datagram = sealed(&couple.groups[0], dead.uid, 1, &Frame::HereIs(here))?;
    couple.groups[0].handle_datagram(couple.now, dead.address, datagram);
    couple.run(Duration::from_secs(10));
    let have_formed = couple.groups.iter().all(|group| group.phase() == Phase::Member);
    (!have_formed).then_some("answers_age")
}

/// Two processes of one group, and the last datagram of the first to the second.
struct Couple {
    now: Time,
    groups: [Group; 2],
    last: Vec<u8>,
}

impl Couple {
    /// Returns a founder and a member that has joined it.
    fn new(bug: Option<Planted>) -> Option<Couple> {
        let entries = [EntryMode::Found(GroupConfig::default()), EntryMode::Join];
        let mut couple = Couple::entering(entries, bug)?;
        couple.run(Duration::from_millis(500));
        couple.groups.iter().all(|group| group.phase() == Phase::Member).then_some(couple)
    }

    /// Returns two processes that begin to enter.
    fn entering(entries: [EntryMode; 2], bug: Option<Planted>) -> Option<Couple> {
        let now = Time::from_nanos(1_000_000_000);
        let mut groups = Vec::new();
        for (place, entry) in (0..).zip(entries) {
            let (port, random) = (Port::from_name("scene"), Random::from_u64(place.into()));
            let settings = Settings { transport: Transport::Unicast, ..Settings::default() };
            let seal = Box::new(Seal);
            let group = Group::new(now, member(place), port, entry, Bytes::new(), settings, seal, random);
            groups.push(group.ok()?);
        }
        let mut couple = Couple { now, groups: groups.try_into().ok()?, last: Vec::new() };
        couple.groups.iter_mut().for_each(|group| bug.into_iter().for_each(|bug| group.plant(bug)));
        Some(couple)
    }

    /// Lets time pass. Datagrams arrive at once.
    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            for place in 0..2 {
                self.groups[place].handle_timeout(self.now);
                while self.groups[place].poll_event().is_some() {}
                let mut out = Vec::new();
                while self.groups[place].poll_transmit(self.now, &mut out).is_some() {
                    if place == 0 {
                        self.last.clone_from(&out);
                    }
                    let from = address(place as u8);
                    self.groups[1 - place].handle_datagram(self.now, from, BytesMut::from(&out[..]));
                }
            }
            self.now = self.now + Duration::from_millis(1);
        }
    }

    /// Lets the member hear a datagram in the founder's place. Returns true if it took it.
    fn takes(&mut self, datagram: &[u8]) -> bool {
        let before = self.groups[1].counters().datagrams_received;
        self.groups[1].handle_datagram(self.now, address(0), BytesMut::from(datagram));
        self.groups[1].counters().datagrams_received > before
    }
}

/// A member hears a datagram of its epoch a second time.
fn copied_datagram(bug: Option<Planted>) -> Option<&'static str> {
    let mut couple = Couple::new(bug)?;
    let copy = couple.last.clone();
    couple.takes(&copy).then_some("datagrams_are_taken_once")
}

/// A member hears a forgery with a number that its sender has not reached, and then the sender.
fn forged_number(bug: Option<Planted>) -> Option<&'static str> {
    const NUMBER_AT: usize = 28;
    let mut couple = Couple::new(bug)?;
    let mut forged = couple.last.clone();
    forged[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&(1_u64 << 62).to_be_bytes());
    Seal::invalidate(&mut forged);
    couple.takes(&forged);
    let before = couple.groups[1].counters().datagrams_received;
    couple.run(Duration::from_millis(400));
    (couple.groups[1].counters().datagrams_received == before).then_some("forgeries_move_no_window")
}

/// A process asks to join with a cookie that it never got.
fn guessed_cookie(bug: Option<Planted>) -> Option<&'static str> {
    let mut couple = Couple::new(bug)?;
    let stranger = member(5);
    let request = Frame::JoinRequest {
        cookie: 5,
        name: stranger.name,
        floor: stranger.floor,
        hops: 1,
        hello: Bytes::new(),
    };
    let datagram = sealed(&couple.groups[0], stranger.uid, 1, &request)?;
    couple.groups[0].handle_datagram(couple.now, stranger.address, datagram);
    let said = said(&mut couple.groups[0], couple.now);
    said.iter().any(|frame| matches!(frame, Frame::Welcome(_))).then_some("joiners_prove_their_address")
}

/// Returns a datagram outside of any epoch.
fn sealed(group: &Group, sender: Uid, number: u64, frame: &Frame) -> Option<BytesMut> {
    let header = Header {
        protection: ProtectionKind::Checksum,
        group: group.tag(),
        epoch: EpochTag::OUTSIDE,
        sender,
        number,
        salt: 0,
    };
    written(&header, frame)
}

/// Returns a datagram of one frame.
fn written(header: &Header, frame: &Frame) -> Option<BytesMut> {
    let mut datagram = Vec::new();
    header.write(&mut datagram);
    Writer::new(&mut datagram, 9000).frame(frame);
    let context = KeyContext { instance: Instance(0), sender: header.sender, salt: 0 };
    Seal.seal(&context, header.number, &mut datagram).then(|| BytesMut::from(&datagram[..]))
}

/// Returns the frames that a member sends now.
fn said(group: &mut Group, now: Time) -> Vec<Frame> {
    let (mut out, mut frames) = (Vec::new(), Vec::new());
    while group.poll_transmit(now, &mut out).is_some() {
        frames.extend(Decoder::new(Bytes::copy_from_slice(&out[HEADER_BYTES..])).flatten());
    }
    frames
}
