//! Servers with disks in a made-up group: every message gets its seqno at once, and a disk does its job when it is told.

mod snapshots;
mod who_goes_on;

use super::super::disk::{Created, DiskDurability, Loaded};
use super::super::*;
use super::{DISK_HANGS_AFTER, DISK_LOOK_AGAIN_AFTER, DiskStart, Job, JobNumber, WRITES_WITHIN};
use crate::identity::{EpochId, Member, Name, Port};
use crate::rpc::{RequestId, Source};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;

/// What no state has.
const FALSE: &[u8] = b"false";

/// All commands.
#[derive(Clone, Debug, Default, PartialEq)]
struct Words(Vec<String>);

impl StateMachine for Words {
    fn kind(request: &[u8]) -> Kind {
        if request == b"read" { Kind::Read } else { Kind::Command }
    }

    fn read(&self, _query: &Bytes) -> Outcome {
        Outcome::Reply(self.0.join(" ").into())
    }

    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        self.0.push(String::from_utf8_lossy(command.payload).into_owned());
        Outcome::Reply(format!("{}", self.0.len()).into())
    }

    fn snapshot(&self) -> Vec<Bytes> {
        self.0.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        self.0 = parts.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect();
        match parts.iter().any(|part| part == FALSE) {
            true => Err(NotRestored("a part is false")),
            false => Ok(()),
        }
    }
}

fn digest(bytes: &[u8]) -> Digest {
    let mut digest = Digest::default();
    let hash = bytes.iter().fold(7, |hash, byte| crate::identity::mix(hash ^ u64::from(*byte)));
    digest[..8].copy_from_slice(&hash.to_be_bytes());
    digest
}

const NOW: Time = Time::from_nanos(1_000_000_000);

struct Server {
    uid: u64,
    replica: Replica<Words>,
    donor: Donor,
    jobs: Vec<(JobNumber, Job)>,
    /// True while its disk does nothing.
    disk_waits: bool,
}

/// Three servers, by their ids. The uid of a life is 10 times its number, and the id.
#[derive(Default)]
struct Made {
    seqno: Seqno,
    lives: u64,
    view: Vec<u8>,
    servers: BTreeMap<u8, Server>,
    disks: BTreeMap<u8, Loaded>,
    durability: DiskDurability,
    /// The process runs.
    up: BTreeSet<u8>,
    seen: BTreeMap<u8, Vec<Output>>,
    requests: u32,
    /// Servers that get their events later, and these events.
    late: BTreeMap<u8, Vec<Event>>,
    /// Servers that give a newcomer a state that cannot be restored.
    false_donors: Vec<u8>,
    /// Servers that get the marks of others later, and these marks.
    late_marks: BTreeMap<u8, Vec<Event>>,
}

impl Made {
    fn member(&self, id: u8) -> Member {
        let uid = self.servers[&id].uid;
        let name = Name::new(&id.to_string()).unwrap();
        Member {
            uid: Uid(uid),
            name,
            address: ([127, 0, 0, 1], id.into()).into(),
            floor: Default::default(),
            hops: 1,
        }
    }

    fn present_view(&self) -> View {
        let members: Vec<Member> = self.view.iter().map(|id| self.member(*id)).collect();
        let first = members[0].uid;
        View::new(EpochId::default(), members, first, 1)
    }

    fn boot(&mut self, id: u8, replaces: bool) {
        self.boot_with(id, replaces, None);
    }

    fn boot_with(&mut self, id: u8, replaces: bool, begins_anew: Option<u64>) {
        self.lives += 1;
        let uid = 10 * self.lives + u64::from(id);
        let start = DiskStart {
            name: "service".into(),
            server: id,
            servers: 3,
            durability: self.durability,
            loaded: self.disks.get(&id).cloned(),
            disk: uid,
            nonce: u128::from(uid),
            replaces,
            begins_anew,
        };
        let settings = ReplicaSettings {
            client: Uid(1000 + uid),
            durability: Durability::OnDisk,
            message_bytes_max: 1 << 20,
            members_min: 1,
            names: Vec::new(),
            window: 1024,
            quorums_intersect: true,
            digest,
        };
        let Ok(replica) = Replica::with_disk(Uid(uid), Words::default(), settings, &start) else { panic!() };
        let server = Server { uid, replica, donor: Donor::new(digest), jobs: Vec::new(), disk_waits: false };
        self.servers.insert(id, server);
        self.up.insert(id);
    }

    /// Ends the life of a server whose process stays up.
    fn end_life(&mut self, id: u8) {
        self.lives += 1;
        let uid = 10 * self.lives + u64::from(id);
        let mut server = self.servers.remove(&id).unwrap();
        server.replica.reenter();
        while let Some(output) = server.replica.poll_output() {
            if let Output::Store(number, job) = output {
                server.jobs.push((number, *job));
            }
        }
        server.replica = server.replica.into_next(Uid(uid));
        (server.uid, server.disk_waits) = (uid, false);
        self.servers.insert(id, server);
    }

    /// Lets booted servers found a group of their own.
    fn form(&mut self, ids: &[u8]) {
        (self.view, self.seqno) = (ids.to_vec(), 0);
        let view = self.present_view();
        for id in ids {
            let replica = &mut self.servers.get_mut(id).unwrap().replica;
            replica.handle_event(NOW, Event::Entered { seqno: 0, view: view.clone() });
        }
        self.settle();
    }

    fn join(&mut self, id: u8) {
        self.view.push(id);
        self.seqno += 1;
        let (seqno, view, joined) = (self.seqno, self.present_view(), self.member(id));
        for other in self.view.clone() {
            let event = match other == id {
                true => Event::Entered { seqno, view: view.clone() },
                false => Event::Joined {
                    seqno,
                    member: joined.clone(),
                    hello: Bytes::new(),
                    members: self.view.len(),
                },
            };
            self.servers.get_mut(&other).unwrap().replica.handle_event(NOW, event);
        }
        self.settle();
    }

    fn reset_without(&mut self, id: u8) {
        let excluded = vec![self.member(id)];
        self.view.retain(|other| *other != id);
        let view = self.present_view();
        self.order(|seqno| Event::Reset {
            seqno,
            view: view.clone(),
            excluded: excluded.clone(),
            degraded: false,
            forced: false,
        });
        self.settle();
    }

    fn order(&mut self, event: impl Fn(Seqno) -> Event) {
        self.seqno += 1;
        let event = event(self.seqno);
        for id in self.view.clone() {
            match self.late.get_mut(&id) {
                Some(late) => late.push(event.clone()),
                None => self.servers.get_mut(&id).unwrap().replica.handle_event(NOW, event.clone()),
            }
        }
    }

    /// Hands a server the events that it gets late.
    fn catch_up(&mut self, id: u8) {
        for event in self.late.remove(&id).unwrap_or_default() {
            self.servers.get_mut(&id).unwrap().replica.handle_event(NOW, event);
        }
        self.settle();
    }

    /// Lets a disk that waits do one job.
    fn do_one_job(&mut self, id: u8) {
        let (number, job) = self.servers.get_mut(&id).unwrap().jobs.remove(0);
        self.store(id, job);
        self.servers.get_mut(&id).unwrap().replica.handle_stored(NOW, number, Ok(()));
        self.settle();
    }

    fn settle(&mut self) {
        for _ in 0..10_000 {
            let next = self.servers.iter_mut().find_map(|(id, server)| {
                let output = server.replica.poll_output()?;
                Some((*id, output))
            });
            if let Some((id, output)) = next {
                self.carry_out(id, output);
                continue;
            }
            let job = self.servers.iter_mut().find_map(|(id, server)| {
                (!server.disk_waits && !server.jobs.is_empty()).then(|| (*id, server.jobs.remove(0)))
            });
            if let Some((id, (number, job))) = job {
                self.store(id, job);
                self.servers.get_mut(&id).unwrap().replica.handle_stored(NOW, number, Ok(()));
                continue;
            }
            let soon = NOW + WRITES_WITHIN;
            let mut waiting = self.servers.values_mut().map(|server| &mut server.replica);
            let Some(waits) = waiting.find(|replica| replica.disk_wakes_at().is_some_and(|at| at <= soon))
            else {
                return;
            };
            waits.handle_timeout(soon);
        }
        panic!("outputs without end");
    }

    fn store(&mut self, id: u8, job: Job) {
        let disk = self.disks.entry(id);
        match job {
            Job::Append { first, entries, heard } => {
                let disk = disk.or_insert_with(|| panic!("a blank disk takes no entries"));
                assert_eq!(first, disk.snapshot_at + disk.entries.len() as Place + 1);
                disk.entries.extend(entries);
                disk.heard = heard;
            }
            Job::Commit(block) => {
                let blank = Loaded {
                    block: block.clone(),
                    parts: Vec::new(),
                    snapshot_at: 0,
                    entries: Vec::new(),
                    log_after: 0,
                    heard: BTreeMap::new(),
                    last_generation: 0,
                };
                disk.or_insert(blank).block = block;
            }
            Job::Adopt { block, snapshot, entries, heard } => {
                let (snapshot_at, parts) = snapshot.unwrap_or_default();
                let log_after = snapshot_at;
                let loaded =
                    Loaded { block, parts, snapshot_at, entries, log_after, heard, last_generation: 0 };
                self.disks.insert(id, loaded);
            }
            Job::Snapshot { .. } | Job::Name => unreachable!("these tests write little"),
        }
    }

    fn carry_out(&mut self, id: u8, output: Output) {
        let is_member = self.view.contains(&id);
        let sender = Uid(self.servers[&id].uid);
        match output {
            Output::Submit(..) if !is_member => {}
            Output::Submit(payload, _) => {
                self.order(|seqno| Event::Message {
                    seqno,
                    sender,
                    number: seqno,
                    outside: None,
                    payload: payload.clone(),
                });
            }
            Output::Confirm => {
                let end = self.seqno;
                self.servers.get_mut(&id).unwrap().replica.handle_confirmed(end);
            }
            Output::Fetch { call, to, request } => {
                let donor = self.servers.get_mut(&(to.port() as u8)).unwrap();
                let present = |newcomer| match donor.replica.present_for(newcomer) {
                    Present::State(mut snapshot) if self.false_donors.contains(&(to.port() as u8)) => {
                        snapshot.parts.push(Bytes::from_static(FALSE));
                        Present::State(snapshot)
                    }
                    present => present,
                };
                let reply = donor.donor.answer(NOW, &request, present);
                self.servers.get_mut(&id).unwrap().replica.handle_fetched(NOW, call, Ok(reply));
            }
            Output::Note { note, .. } => {
                for other in self.view.clone().into_iter().filter(|other| *other != id && is_member) {
                    let event = Event::Note { member: sender, note: note.clone() };
                    match self.late_marks.get_mut(&other) {
                        Some(late) => late.push(event),
                        None => self.servers.get_mut(&other).unwrap().replica.handle_event(NOW, event),
                    }
                }
            }
            Output::Store(number, job) => self.servers.get_mut(&id).unwrap().jobs.push((number, *job)),
            output => self.seen.entry(id).or_default().push(output),
        }
    }

    fn request(&mut self, id: u8, index: u32, word: &'static str) {
        self.hand_request(id, index, word);
        self.settle();
    }

    /// Hands a server a request, whose command is not ordered yet.
    fn hand_request(&mut self, id: u8, index: u32, word: &'static str) {
        let request = Request {
            id: RequestId::numbered(index),
            port: Port::default(),
            client: Uid(5),
            source: Source::of_host(1),
            is_stranger: false,
            call: index.into(),
            finished_below: 0,
            hops: 0,
            again: false,
            deadline: NOW + Duration::from_secs(60),
            wishes: None,
            whole_bytes: None,
            payload: Bytes::from_static(word.as_bytes()),
        };
        self.servers.get_mut(&id).unwrap().replica.handle_request(NOW, request);
    }

    fn answer(&self, index: u32) -> Option<String> {
        let asked = RequestId::numbered(index);
        self.seen.values().flatten().find_map(|output| match output {
            Output::Answer(id, Answer::Reply(reply)) if *id == asked => {
                Some(String::from_utf8_lossy(reply).into_owned())
            }
            _ => None,
        })
    }

    /// Asks a server for something new. Returns whether it was answered.
    fn serves(&mut self, id: u8) -> bool {
        self.requests += 1;
        let index = 1000 + self.requests;
        self.request(id, index, "new");
        self.answer(index).is_some()
    }

    fn words(&self, id: u8) -> Option<Vec<String>> {
        self.servers[&id].replica.machine().map(|words| words.0.clone())
    }
}

/// Returns three servers that have created their service.
fn created() -> Made {
    created_with(DiskDurability::Majority)
}

fn created_with(durability: DiskDurability) -> Made {
    let mut made = Made { durability, ..Made::default() };
    (1..=3).for_each(|id| made.boot(id, false));
    made.form(&[1, 2, 3]);
    made
}

#[test]
fn a_service_is_created_by_all_and_a_command_is_answered_when_two_disks_have_it() {
    let mut made = Made::default();
    (1..=3).for_each(|id| made.boot(id, false));
    made.form(&[1, 2]);
    assert_eq!((made.words(1), made.servers[&1].replica.waits_for()), (None, vec![3]));
    made.join(3);
    assert_eq!(made.words(3), Some(vec![]));
    let roots: Vec<Created> = made.disks.values().map(|disk| disk.block.created).collect();
    assert!(matches!(roots[..], [Created::Done(a), Created::Done(b), Created::Done(c)] if a == b && b == c));
    [1, 2].iter().for_each(|id| made.servers.get_mut(id).unwrap().disk_waits = true);
    made.request(1, 1, "a");
    assert_eq!(made.answer(1), None);
    made.servers.get_mut(&2).unwrap().disk_waits = false;
    made.settle();
    assert_eq!(made.answer(1).unwrap(), "1");
    assert_eq!(made.words(3), Some(vec!["a".into()]));
}

#[test]
fn the_disks_that_a_caller_waits_for_write_at_once() {
    let at_once = |made: &Made, receiver: u8| -> Vec<u8> {
        let uid = Uid(made.servers[&receiver].uid);
        let writes = |id: &u8| made.servers[id].replica.writes_at_once(uid);
        made.view.iter().copied().filter(writes).collect()
    };
    let mut made = created();
    assert_eq!([1, 2, 3].map(|receiver| at_once(&made, receiver)), [vec![1, 2], vec![2, 3], vec![1, 3]]);
    made.reset_without(2);
    assert_eq!([1, 3].map(|receiver| at_once(&made, receiver)), [vec![1, 3], vec![1, 3]]);
    assert_eq!(at_once(&created_with(DiskDurability::One), 1), [1, 2, 3]);
}

#[test]
fn a_confirmed_read_shows_what_this_server_held_once_it_is_durable() {
    let mut made = created();
    [2, 3].iter().for_each(|id| made.servers.get_mut(id).unwrap().disk_waits = true);
    made.request(1, 1, "a");
    made.request(2, 2, "read");
    // Another server may know that it is durable, and have answered it.
    assert_eq!((made.answer(1), made.answer(2)), (None, None));
    made.servers.get_mut(&3).unwrap().disk_waits = false;
    made.settle();
    assert_eq!((made.answer(1).unwrap(), made.answer(2).unwrap()), ("1".into(), "a".into()));
}

#[test]
fn after_all_have_crashed_any_majority_goes_on_with_what_was_answered() {
    for back in [[1, 2], [1, 3], [2, 3]] {
        let mut made = created();
        made.request(1, 1, "a");
        // Server 3 syncs no more.
        made.servers.get_mut(&3).unwrap().disk_waits = true;
        made.request(2, 2, "b");
        assert_eq!(made.answer(2).unwrap(), "2");
        back.iter().for_each(|id| made.boot(*id, false));
        made.form(&back);
        for id in back {
            assert_eq!(made.words(id), Some(vec!["a".into(), "b".into()]), "{back:?}");
        }
        // A repeat of what was answered has no other effect.
        made.seen.clear();
        made.request(back[0], 2, "b");
        assert_eq!(made.answer(2).unwrap(), "2");
    }
}

#[test]
fn a_server_that_comes_back_is_brought_up_to_date_and_its_disk_counts() {
    let mut made = created();
    made.reset_without(3);
    made.request(1, 1, "a");
    made.boot(3, false);
    made.join(3);
    assert_eq!(made.words(3), Some(vec!["a".into()]));
    made.servers.get_mut(&2).unwrap().disk_waits = true;
    made.request(1, 2, "b");
    assert_eq!(made.answer(2).unwrap(), "2");
    [2, 3].iter().for_each(|id| made.boot(*id, false));
    made.form(&[2, 3]);
    assert_eq!(made.words(2), Some(vec!["a".into(), "b".into()]));
}

#[test]
fn a_server_that_joins_serves_once_its_disk_has_the_state() {
    let mut made = created();
    made.reset_without(3);
    made.request(1, 1, "a");
    made.disks.remove(&3);
    made.boot(3, true);
    made.servers.get_mut(&3).unwrap().disk_waits = true;
    made.seen.clear();
    made.join(3);
    // It follows the order, and has nothing on its disk.
    made.request(1, 2, "b");
    assert_eq!(made.words(3), Some(vec!["a".into(), "b".into()]));
    let third = |made: &Made| {
        let replica = &made.servers[&3].replica;
        let is_told = made.seen.get(&3).is_some_and(|seen| seen.contains(&Output::Informed));
        (replica.serves(), replica.is_storing(), is_told)
    };
    assert_eq!(third(&made), (false, true, false));
    made.do_one_job(3);
    assert_eq!(third(&made), (true, false, true));
    assert!(made.serves(3));
}

/// Returns servers of which the first has a job under way, and the number of that job.
fn waiting_for_a_disk() -> (Made, JobNumber) {
    let mut made = created();
    made.servers.get_mut(&1).unwrap().disk_waits = true;
    made.request(1, 1, "a");
    let number = made.servers[&1].jobs[0].0;
    (made, number)
}

/// True if this server says at `at` that its disk hangs.
fn hangs_at(server: &mut Server, at: Time) -> bool {
    server.replica.handle_timeout(at);
    let mut outputs = core::iter::from_fn(|| server.replica.poll_output());
    outputs.any(|output| output == Output::Stop(StopReason::DiskHangs))
}

#[test]
fn a_disk_hangs_only_if_it_does_not_get_on() {
    let (mut made, number) = waiting_for_a_disk();
    let server = made.servers.get_mut(&1).unwrap();
    let second = |count| NOW + Duration::from_secs(count);
    for count in 1..=56 {
        if count % 4 == 0 {
            server.replica.handle_progress(second(count), number);
        }
        assert!(!hangs_at(server, second(count)), "{count}");
    }
    for count in 57..=65 {
        assert!(!hangs_at(server, second(count)), "{count}");
    }
    // Progress of another job is none.
    server.replica.handle_progress(second(65), number + 1);
    assert!(!hangs_at(server, second(66)));
    assert!(hangs_at(server, second(66) + DISK_LOOK_AGAIN_AFTER));
}

// A process that is stopped again and again finds the time over at the moment it goes on, and reads the answer next.
#[test]
fn one_look_does_not_decide_that_a_disk_hangs() {
    let (mut made, number) = waiting_for_a_disk();
    let server = made.servers.get_mut(&1).unwrap();
    let overdue = NOW + DISK_HANGS_AFTER;
    for ms in (1_400..10_000).step_by(1_400) {
        assert!(!hangs_at(server, NOW + Duration::from_millis(ms)));
    }
    assert!(!hangs_at(server, overdue));
    assert_eq!(server.replica.poll_timeout(), Some(overdue + DISK_LOOK_AGAIN_AFTER));
    // It is stopped once more.
    let goes_on = overdue + Duration::from_millis(800);
    assert!(!hangs_at(server, goes_on));
    assert_eq!(server.replica.poll_timeout(), Some(goes_on + DISK_LOOK_AGAIN_AFTER));
    server.replica.handle_stored(goes_on, number, Ok(()));
    assert!(!hangs_at(server, goes_on + DISK_LOOK_AGAIN_AFTER));
}

// The disk may have answered meanwhile. The process looks for that first when it goes on.
#[test]
fn a_disk_does_not_hang_while_the_process_is_stopped() {
    for stopped_ms in [2_000, 9_400, 10_020, 10_300, 12_000, 60_000] {
        let (mut made, _) = waiting_for_a_disk();
        let server = made.servers.get_mut(&1).unwrap();
        let mut hangs_at = |ms| hangs_at(server, NOW + Duration::from_millis(ms));
        assert!((0..=7).all(|count| !hangs_at(count * 1_000)));
        let goes_on = 7_000 + stopped_ms;
        assert!(!hangs_at(goes_on), "stopped for {stopped_ms} ms");
        // It was stopped for all but the second after which it would have looked.
        assert!(!hangs_at(goes_on + 900) && !hangs_at(goes_on + 1_800));
        assert!(!hangs_at(goes_on + 2_000));
        assert!(hangs_at(goes_on + 2_100), "stopped for {stopped_ms} ms");
    }
}

#[test]
fn a_server_leaves_a_donor_whose_state_cannot_be_restored_and_keeps_its_own_meanwhile() {
    for false_donors in [vec![2], vec![1, 2]] {
        let mut made = created();
        made.request(1, 1, "a");
        made.reset_without(3);
        made.request(1, 2, "b");
        made.boot(3, false);
        made.false_donors = false_donors.clone();
        // It asks server 2 first, since server 1 is the sequencer.
        made.join(3);
        assert!(made.servers[&2].donor.forgets_at().is_some());
        let replica = &made.servers[&3].replica;
        let stopped = made.seen[&3].iter().any(|output| matches!(output, Output::Stop(_)));
        match false_donors.len() {
            1 => assert_eq!((made.words(3), stopped), (Some(vec!["a".into(), "b".into()]), false)),
            _ => {
                assert!(stopped);
                assert_eq!(replica.machine_at_hand(), Some(&Words(vec![])), "its disk was not applied yet");
                assert_eq!(replica.held(), made.disks[&3].entries.len() as Place);
            }
        }
    }
}

#[test]
fn an_empty_disk_in_place_of_another_is_refused_unless_it_replaces_it() {
    let mut made = created();
    made.request(1, 1, "a");
    made.reset_without(3);
    made.disks.remove(&3);
    made.boot(3, false);
    made.join(3);
    assert!(made.seen[&3].contains(&Output::Stop(StopReason::ReplaceNeeded)));
    made.reset_without(3);
    made.boot(3, true);
    made.join(3);
    assert_eq!(made.words(3), Some(vec!["a".into()]));
    // Two servers, one of them blank, are not a majority of disks.
    made.disks.remove(&2);
    [1, 2].iter().for_each(|id| made.boot(*id, true));
    made.form(&[1, 2]);
    assert_eq!((made.words(1), made.servers[&1].replica.waits_for()), (None, vec![2, 3]));
}

#[test]
fn the_disk_of_a_service_that_was_given_up_is_refused_by_the_one_that_began_anew() {
    let mut made = created();
    made.request(1, 1, "a");
    made.disks.remove(&2);
    let old = made.disks[&3].clone();
    made.boot_with(1, false, Some(7));
    made.boot(2, true);
    made.form(&[1, 2]);
    assert_eq!(made.words(2), Some(vec!["a".into()]));
    assert_ne!(made.disks[&1].block.service, old.block.service);
    made.boot(3, false);
    made.join(3);
    assert!(made.seen[&3].contains(&Output::Stop(StopReason::DiskGivenUp)), "{:?}", made.seen.get(&3));
    assert_eq!(made.disks[&3].entries, old.entries);
}

#[test]
fn a_recovery_goes_on_without_a_disk_that_does_not_get_on() {
    let mut made = created();
    made.request(1, 1, "a");
    [1, 2, 3].iter().for_each(|id| made.boot(*id, false));
    made.servers.get_mut(&3).unwrap().disk_waits = true;
    made.form(&[1, 2, 3]);
    assert_eq!(made.words(1), None, "all are waited for at first");
    let server = made.servers.get_mut(&3).unwrap();
    let (job, replica) = (server.jobs[0].0, &mut server.replica);
    // Progress is not enough for a recovery that can go on without it.
    replica.handle_progress(NOW + Duration::from_millis(900), job);
    let at = replica.poll_timeout().unwrap();
    assert!(at.since(NOW) <= Duration::from_secs(1), "a stalled disk is told of early");
    replica.handle_timeout(at);
    made.settle();
    assert_eq!(made.words(1), Some(vec!["a".into()]));
    assert!(made.serves(2));
    // When the disk gets on, the server has the state like any newcomer.
    made.servers.get_mut(&3).unwrap().disk_waits = false;
    made.settle();
    assert_eq!(made.words(3), made.words(1));
}

#[test]
fn a_newcomer_to_a_recovery_knows_whose_disk_does_not_get_on() {
    let mut made = created();
    made.request(1, 1, "a");
    [1, 2, 3].iter().for_each(|id| made.boot(*id, false));
    made.servers.get_mut(&3).unwrap().disk_waits = true;
    let stalls = |made: &mut Made| {
        let replica = &mut made.servers.get_mut(&3).unwrap().replica;
        let at = replica.poll_timeout().unwrap();
        replica.handle_timeout(at);
        made.settle();
    };
    made.form(&[1, 3]);
    stalls(&mut made);
    made.join(2);
    assert_eq!((made.words(1), made.words(2)), (None, None));
    stalls(&mut made);
    assert_eq!((made.words(1), made.words(2)), (Some(vec!["a".into()]), Some(vec!["a".into()])));
}

#[test]
fn a_server_that_joins_takes_no_state_that_is_not_open_yet() {
    let mut made = created();
    made.request(1, 1, "a");
    [1, 3, 2].iter().for_each(|id| made.boot(*id, false));
    made.servers.get_mut(&3).unwrap().disk_waits = true;
    made.form(&[3, 2, 1]);
    made.servers.get_mut(&1).unwrap().disk_waits = true;
    let replica = &mut made.servers.get_mut(&3).unwrap().replica;
    let at = replica.poll_timeout().unwrap();
    replica.handle_timeout(at);
    made.settle();
    // Server 1 promises. What it adopts opens the service, and server 3 asks server 2, which does not know that yet.
    made.do_one_job(1);
    made.late.insert(2, Vec::new());
    made.do_one_job(1);
    assert_eq!((made.words(1), made.words(2)), (Some(vec!["a".into()]), None));
    made.catch_up(2);
    [1, 3].iter().for_each(|id| made.servers.get_mut(id).unwrap().disk_waits = false);
    made.settle();
    assert_eq!(made.words(3), made.words(1));
    assert!(!made.seen[&3].iter().any(|output| matches!(output, Output::Stop(_))), "{:?}", made.seen[&3]);
}

#[test]
fn a_disk_that_replaced_another_counts_also_for_one_that_has_not_written_it_down() {
    let mut made = created();
    made.reset_without(3);
    made.disks.remove(&3);
    made.boot(3, true);
    // Server 1 crashes before it has written down that another disk joined.
    made.servers.get_mut(&1).unwrap().disk_waits = true;
    made.join(3);
    made.reset_without(1);
    made.request(2, 1, "a");
    [1, 3].iter().for_each(|id| made.boot(*id, false));
    made.form(&[1, 3]);
    assert_eq!(made.words(1), Some(vec!["a".into()]));
}

#[test]
fn an_escape_is_refused_and_leaves_no_trace_where_nothing_is_lost() {
    let mut made = created();
    made.request(1, 1, "a");
    let before = made.disks[&1].block.clone();
    // Beside a majority of the disks, and at a service that is open.
    made.boot_with(1, false, Some(7));
    made.boot(2, false);
    made.form(&[1, 2]);
    assert!(made.seen[&1].contains(&Output::Stop(StopReason::NothingLost)), "{:?}", made.seen.get(&1));
    assert_eq!((&made.disks[&1].block.anew, made.disks[&1].block.service), (&before.anew, before.service));
    [1, 2, 3].iter().for_each(|id| made.boot(*id, false));
    made.form(&[2, 3]);
    made.request(2, 2, "b");
    made.boot_with(1, false, Some(7));
    made.join(1);
    assert!(made.seen[&1].contains(&Output::Stop(StopReason::NothingLost)), "{:?}", made.seen.get(&1));
    made.reset_without(1);
    made.boot(1, false);
    made.join(1);
    assert_eq!(made.words(1), Some(vec!["a".into(), "b".into()]));
}

#[test]
fn a_server_with_other_options_does_not_join() {
    let mut made = created();
    made.request(1, 1, "a");
    made.reset_without(3);
    made.disks.remove(&3);
    made.durability = DiskDurability::One;
    made.boot(3, true);
    made.join(3);
    assert!(made.seen[&3].contains(&Output::Stop(StopReason::OtherDurability)), "{:?}", made.seen.get(&3));
    assert!(!made.disks.contains_key(&3));
}

#[test]
fn a_state_written_for_an_earlier_life_does_not_stand_for_that_of_a_later_one() {
    let mut made = created();
    made.reset_without(3);
    made.request(1, 1, "a");
    made.boot(3, false);
    made.servers.get_mut(&3).unwrap().disk_waits = true;
    made.join(3);
    // The state of the first join is being written when the server is excluded.
    made.do_one_job(3);
    made.reset_without(3);
    made.servers.get_mut(&2).unwrap().disk_waits = true;
    made.request(1, 2, "b");
    made.end_life(3);
    made.servers.get_mut(&3).unwrap().disk_waits = true;
    made.join(3);
    made.do_one_job(3);
    assert_eq!(made.answer(2), None, "the disks of servers 2 and 3 do not have it");
    [2, 3].iter().for_each(|id| made.servers.get_mut(id).unwrap().disk_waits = false);
    made.settle();
    assert_eq!(made.answer(2), Some("2".into()));
}

#[test]
fn a_newcomer_takes_no_state_from_before_the_events_that_it_keeps() {
    let mut made = created();
    made.reset_without(3);
    made.boot(3, false);
    // Server 2 has heard of the join and of nothing after it. The command comes before the word that the service is open.
    made.late.insert(2, Vec::new());
    made.hand_request(1, 1, "a");
    made.join(3);
    assert!(made.words(3).is_none_or(|words| words == ["a"]), "{:?}", made.words(3));
    made.catch_up(2);
    let replica = &mut made.servers.get_mut(&3).unwrap().replica;
    if let Some(at) = replica.poll_timeout() {
        replica.handle_timeout(at);
    }
    made.settle();
    made.request(1, 2, "b");
    assert_eq!(made.words(3), Some(vec!["a".into(), "b".into()]));
}

#[test]
fn a_lost_mark_is_said_again_after_a_reset() {
    let mut made = created();
    [1, 2].iter().for_each(|id| made.servers.get_mut(id).unwrap().disk_waits = true);
    made.request(1, 1, "a");
    // The mark of server 2 is lost, and what is logged after it waits for its disk.
    let server = made.servers.get_mut(&2).unwrap();
    let (number, job) = server.jobs.remove(0);
    server.replica.handle_stored(NOW, number, Ok(()));
    while let Some(output) = server.replica.poll_output() {
        assert!(matches!(output, Output::Note { .. }), "{output:?}");
    }
    made.store(2, job);
    made.settle();
    assert_eq!(made.answer(1), None);
    made.reset_without(3);
    assert_eq!(made.answer(1), Some("1".into()), "the disks of servers 2 and 3 have it");
}

#[test]
fn each_server_applies_and_answers_on_the_marks_that_it_knows() {
    let mut made = created();
    made.late_marks.insert(1, Vec::new());
    made.request(1, 1, "a");
    assert_eq!((made.answer(1), made.words(1)), (None, Some(vec![])), "its own disk is one of three");
    assert_eq!(made.words(2), Some(vec!["a".into()]), "the disks of 1 and 2");
    made.request(1, 2, "read");
    assert_eq!(made.answer(2), None, "what it holds may have been answered");
    for mark in made.late_marks.remove(&1).unwrap() {
        made.servers.get_mut(&1).unwrap().replica.handle_event(NOW, mark);
    }
    made.settle();
    assert_eq!((made.answer(1).unwrap(), made.answer(2).unwrap()), ("1".into(), "a".into()));
    // One that has crashed still counts.
    made.servers.get_mut(&1).unwrap().disk_waits = true;
    made.late_marks.insert(2, Vec::new());
    made.request(2, 3, "b");
    assert_eq!(made.answer(3), None, "2 knows its own mark only");
    let marks = made.late_marks.remove(&2).unwrap();
    assert_eq!(marks.len(), 1, "that of 3");
    made.servers.get_mut(&2).unwrap().replica.handle_event(NOW, marks[0].clone());
    made.reset_without(3);
    assert_eq!(made.answer(3).unwrap(), "2");
}

#[test]
fn a_bad_mark_is_counted_and_changes_nothing() {
    let mut made = created();
    made.late_marks.insert(1, Vec::new());
    made.request(1, 1, "a");
    let marks = made.late_marks.remove(&1).unwrap();
    let Event::Note { member, note } = marks[0].clone() else { panic!("{:?}", marks[0]) };
    let (generation, place) = note.split_at(8);
    let another = u64::from_be_bytes(generation.try_into().unwrap()) + 1;
    let bad = [
        [generation, place, &[0]].concat(),
        place.to_vec(),
        vec![],
        [&another.to_be_bytes(), place].concat(),
    ];
    let server = made.servers.get_mut(&1).unwrap();
    let mut hear = |member, note: Vec<u8>| {
        server.replica.handle_event(NOW, Event::Note { member, note: note.into() });
        server.replica.account().bad_marks
    };
    for (count, note) in (1..).zip(bad) {
        assert_eq!(hear(member, note), count);
    }
    assert_eq!(hear(Uid(404), note.to_vec()), 5, "it is no member's");
    made.settle();
    assert_eq!(made.answer(1), None, "none of them counts");
    made.servers.get_mut(&1).unwrap().replica.handle_event(NOW, marks[0].clone());
    made.settle();
    assert_eq!((made.answer(1), made.servers[&1].replica.account().bad_marks), (Some("1".into()), 5));
}

#[test]
fn a_mark_that_comes_before_its_generation_is_open_here_counts_then() {
    let mut made = created();
    made.request(1, 1, "a");
    (1..=3).for_each(|id| made.boot(id, false));
    // Server 3 hears each word late, and the last one, with which the service is open, after the marks of the others.
    made.late.insert(3, Vec::new());
    made.form(&[1, 2, 3]);
    for _ in 0..20 {
        if made.words(1).is_some() {
            break;
        }
        for event in core::mem::take(made.late.get_mut(&3).unwrap()) {
            made.servers.get_mut(&3).unwrap().replica.handle_event(NOW, event);
        }
        made.settle();
    }
    assert!(made.servers[&1].replica.serves() && made.words(3).is_none());
    made.servers.get_mut(&3).unwrap().disk_waits = true;
    made.late_marks.insert(3, Vec::new());
    made.catch_up(3);
    assert!(made.servers[&3].replica.serves(), "the disks of 1 and 2 have everything");
    assert_eq!(made.words(3), Some(vec!["a".into()]));
}
