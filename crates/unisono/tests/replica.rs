//! Replicas over sockets, several in one process.

mod common;

use common::{PATIENCE, block_on, fresh_name, watchful};
use std::thread;
use std::time::{Duration, Instant};
use unisono::replica::{
    Command, CommandFailure, Durability, Founding, Kind, NotRestored, Outcome, ReadFailure, Replica,
    ReplicaEnd, ReplicaError, ReplicaOptions, ReplicaState, Server, StateMachine, StopReason,
};
use unisono::rpc::{CallFailure, CallSettings, Client, PrivatePort};
use unisono::{Bytes, Formation, JoinFailure, Name, OpenError, Options};

/// A sum, and bytes that make the state large.
#[derive(Debug, Default)]
struct Sum {
    value: u64,
    bulk: Vec<Bytes>,
}

impl StateMachine for Sum {
    fn kind(request: &[u8]) -> Kind {
        match request {
            b"read" => Kind::Read,
            b"look" => Kind::LocalRead,
            _ => Kind::Command,
        }
    }

    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        let text = std::str::from_utf8(command.payload).unwrap_or_default();
        match text.split_once(' ') {
            Some(("add", number)) => match number.parse::<u64>() {
                Ok(number) => self.value += number,
                Err(_) => return Outcome::Refuse("no number".into()),
            },
            Some(("grow", mebibytes)) => {
                let count: u8 = mebibytes.parse().unwrap_or(0);
                self.bulk = (0..count).map(|index| Bytes::from(vec![index; 1 << 20])).collect();
            }
            _ if text == "panic" => panic!("the test wants it"),
            _ if text == "where" => {
                let by = command.received_by.map_or("none", |server| server.name.as_str());
                return Outcome::Pass(by.to_owned().into());
            }
            _ => return Outcome::Refuse("not understood".into()),
        }
        Outcome::Reply(self.value.to_string().into())
    }

    fn read(&self, _: &Bytes) -> Outcome {
        Outcome::Reply(self.value.to_string().into())
    }

    fn take_over(&self, word: &Bytes, me: &Server) -> Bytes {
        format!("{} {}", text(word), me.name).into()
    }

    fn snapshot(&self) -> Vec<Bytes> {
        let value = Bytes::copy_from_slice(&self.value.to_be_bytes());
        std::iter::once(value).chain(self.bulk.iter().cloned()).collect()
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        let (value, bulk) = parts.split_first().ok_or(NotRestored("no parts"))?;
        let value = value.as_ref().try_into().map_err(|_| NotRestored("not eight bytes"))?;
        (self.value, self.bulk) = (u64::from_be_bytes(value), bulk.to_vec());
        Ok(())
    }
}

fn named(name: &str) -> Options {
    let calls = CallSettings { silence: Duration::from_secs(5), ..CallSettings::default() };
    Options { name: Name::new(name).unwrap(), calls, ..watchful() }
}

fn patient() -> ReplicaOptions {
    ReplicaOptions { open_within: Some(PATIENCE), command_within: PATIENCE, ..ReplicaOptions::default() }
}

fn create(name: &str) -> Replica<Sum> {
    Replica::open(name, Founding::Create, Sum::default(), patient(), &named("first")).unwrap()
}

fn join(name: &str, me: &str) -> Replica<Sum> {
    Replica::open(name, Founding::Join, Sum::default(), patient(), &named(me)).unwrap()
}

fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn three_form_a_service_and_have_the_same_state() {
    let name = fresh_name("form");
    let participants: Vec<Name> = ["a", "b", "c"].map(|name| Name::new(name).unwrap()).into();
    let replicas: Vec<_> = ["a", "b", "c"]
        .map(|me| {
            let (name, formation) = (
                name.clone(),
                Formation { participants: participants.clone(), at_least: 3, within: PATIENCE },
            );
            thread::spawn(move || {
                let founding = Founding::JoinOrForm(formation);
                Replica::open(&name, founding, Sum::default(), patient(), &named(me)).unwrap()
            })
        })
        .into_iter()
        .map(|opening| opening.join().unwrap())
        .collect();
    let mut last = 0;
    for (index, replica) in replicas.iter().enumerate() {
        let done = replica.command(format!("add {}", index + 1)).unwrap();
        assert_eq!(done.position, index as u64 + 1);
        last = done.position;
    }
    for replica in &replicas {
        assert_eq!(replica.look_at(last, |sum| sum.value), Ok(6));
        assert_eq!(replica.read(|sum| sum.value), Ok(6));
        let status = replica.status();
        assert_eq!((status.state, status.members.len()), (ReplicaState::Serving, 3));
        assert_eq!((status.copies.len(), status.digest), (3, replicas[0].status().digest));
    }
    assert!(matches!(replicas[0].command("add x"), Err(CommandFailure::Refused(_))));
    assert!(matches!(replicas[0].command(vec![0; 17 << 20]), Err(CommandFailure::TooLarge { .. })));
}

#[test]
fn a_newcomer_gets_a_state_of_many_parts() {
    let name = fresh_name("large");
    let first = create(&name);
    first.command("add 7").unwrap();
    first.command("grow 8").unwrap();
    let second = join(&name, "second");
    assert_eq!(second.look(|sum| (sum.value, sum.bulk.len())), (7, 8));
    assert!(second.look(|sum| sum.bulk == first.look(|sum| sum.bulk.clone())));
    let done = second.command("add 1").unwrap();
    assert_eq!(text(&done.reply), "8");
    assert_eq!(first.look_at(done.position, |sum| sum.value), Ok(8));
}

#[test]
fn commands_and_waits_are_awaited_too() {
    let name = fresh_name("async");
    let replica =
        Replica::begin(&name, Founding::Create, Sum::default(), patient(), &named("first")).unwrap();
    // A command may begin before the replica has the state.
    let early = replica.start("add 1");
    block_on(async {
        replica.ready().await.unwrap();
        assert_eq!(early.await.unwrap().reply, "1");
        let done = replica.start("add 2").await.unwrap();
        replica.look_at_start(done.position).await.unwrap();
        replica.barrier_start().await.unwrap();
        assert_eq!(replica.look(|sum| sum.value), 3);
    });
    block_on(replica.end_async(Duration::from_secs(5)));
    assert_eq!(replica.status().state, ReplicaState::Ended);
    assert!(matches!(replica.wait(), ReplicaEnd::Closed));
    assert_eq!(replica.command("add 1").unwrap_err(), CommandFailure::Ended);
    assert_eq!(replica.barrier(), Err(ReadFailure::Ended));
    assert_eq!(replica.next_notice(), None);
}

#[test]
fn callers_are_answered_by_any_member_and_each_command_counts_once() {
    let name = fresh_name("serve");
    let (first, second) = (create(&name), join(&name, "second"));
    let port = PrivatePort::random().unwrap();
    first.serve(&port).unwrap();
    second.serve(&port).unwrap();
    let client = Client::new(&named("client")).unwrap();
    let calls: Vec<_> = (0..200).map(|_| client.start(port.public(), "add 1", PATIENCE).unwrap()).collect();
    let mut sums: Vec<u64> =
        calls.into_iter().map(|call| text(&call.wait().unwrap()).parse().unwrap()).collect();
    sums.sort_unstable();
    assert_eq!(sums, (1..=200).collect::<Vec<u64>>());
    for _ in 0..10 {
        assert_eq!(client.call(port.public(), "read").unwrap(), "200");
    }
    client.call(port.public(), "look").unwrap();
    let met = client.call(port.public(), "where").unwrap();
    assert!(["first second", "second first"].contains(&text(&met)), "{met:?}");
    assert_eq!(text(&first.command("where").unwrap().reply), "first first");
    assert!(matches!(client.call(port.public(), "what"), Err(CallFailure::Refused(_))));
    // The calls of a member that leaves go to the other one.
    first.end(PATIENCE);
    assert_eq!(client.call_within(port.public(), "add 1", PATIENCE).unwrap(), "201");
    assert_eq!(second.look(|sum| sum.value), 201);
}

#[test]
fn a_copy_whose_apply_panics_stops_and_names_the_command() {
    let name = fresh_name("panic");
    let replica = create(&name);
    replica.command("add 1").unwrap();
    assert_eq!(replica.command("panic").unwrap_err(), CommandFailure::Unknown);
    let end = replica.wait();
    assert!(matches!(end, ReplicaEnd::Stopped(StopReason::Panicked { position: 2 })), "{end:?}");
    assert_eq!(replica.look(|sum| sum.value), 1);
    assert_eq!(replica.status().state, ReplicaState::Ended);
}

#[test]
fn a_state_that_cannot_be_restored_ends_the_newcomer_only() {
    struct Other;
    impl StateMachine for Other {
        fn apply(&mut self, _: &Command<'_>) -> Outcome {
            Outcome::Reply(Bytes::new())
        }
        fn snapshot(&self) -> Vec<Bytes> {
            Vec::new()
        }
        fn restore(&mut self, _: &[Bytes]) -> Result<(), NotRestored> {
            Err(NotRestored("it is of another kind"))
        }
    }
    let name = fresh_name("restore");
    let first = create(&name);
    first.command("add 1").unwrap();
    let second = Replica::open(&name, Founding::Join, Other, patient(), &named("second"));
    assert!(
        matches!(
            second,
            Err(ReplicaError::Ended(ReplicaEnd::Stopped(StopReason::NotRestored(NotRestored(
                "it is of another kind"
            )))))
        ),
        "{second:?}"
    );
    assert_eq!(first.command("add 1").unwrap().reply, "2");
}

#[test]
fn a_service_founded_for_speed_has_local_reads_only() {
    let name = fresh_name("ordered");
    let settings = ReplicaOptions { durability: Durability::Ordered, ..patient() };
    let first = Replica::open(&name, Founding::Create, Sum::default(), settings, &named("first")).unwrap();
    let second = join(&name, "second");
    let done = second.command("add 1").unwrap();
    assert_eq!(first.look_at(done.position, |sum| sum.value), Ok(1));
    assert!(matches!(second.read(|sum| sum.value), Err(ReadFailure::OnlyLocalReads(_))));
}

#[test]
fn opening_gives_up_in_time_and_leaves_nothing() {
    let name = fresh_name("nowhere");
    let settings = ReplicaOptions { open_within: Some(Duration::from_millis(300)), ..patient() };
    let options = Options { settings: unisono::Settings::default(), ..named("lone") };
    let begun = Instant::now();
    let refused = Replica::open(&name, Founding::Join, Sum::default(), settings, &options);
    assert!(matches!(refused, Err(ReplicaError::TimedOut { .. })), "{refused:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let formation = Formation {
        participants: vec![options.name.clone(), Name::new("other").unwrap()],
        at_least: 2,
        within: Duration::from_millis(300),
    };
    let refused = Replica::join_or_form(&name, formation, Sum::default(), &options);
    let Err(ReplicaError::Ended(ReplicaEnd::NotEntered(error))) = refused else { panic!("{refused:?}") };
    assert!(matches!(*error, OpenError::Join(JoinFailure::NotFormed)), "{error:?}");
}

#[test]
fn a_cancelled_opening_ends_at_once() {
    let name = fresh_name("cancelled");
    let begun = Instant::now();
    let replica = Replica::begin(&name, Founding::Join, Sum::default(), patient(), &named("lone")).unwrap();
    assert_eq!(replica.status().state, ReplicaState::Entering);
    let command = replica.start("add 1");
    drop(replica);
    assert_eq!(command.wait(), Err(CommandFailure::Unknown));
    assert!(begun.elapsed() < PATIENCE / 10, "{:?}", begun.elapsed());
}
