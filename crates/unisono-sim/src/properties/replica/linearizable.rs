//! Linearizable: each operation of a caller seems to take effect at one moment between its begin and its end. Commands
//! take effect at their positions, which the copies report; a linearizable read fits in between if it returns what the
//! state had at some position that is neither before anything that had ended when it began, nor after anything that began
//! when it had ended. A local read returns what the state had at some position.
//!
//! The run is checked as a whole that way. Besides, windows of at most 50 operations are checked by a search that knows no
//! positions ([`wing_gong`](super::wing_gong)).
//!
//! With the durability *ordered* nothing is promised. What a copy with bad memory answered does not count.

use super::wing_gong::{Placed, Sequential, check_windows};
use super::{Map, Property, Violation, content};
use crate::properties::{Facts, final_result};
use crate::record::{End, Kind, Life, Mode, OpOutcome, Record, ReplicaRecord, Service};
use crate::replica::{Object, Op, Reply, Value};
use std::collections::BTreeSet;
use unisono_core::Time;

type Name = (Life, u64);

/// An operation of a caller.
#[derive(Clone, Copy, Debug)]
struct Operation {
    by: Life,
    name: Name,
    mode: Mode,
    op: Op,
    begin: Time,
    end: Option<(Time, Reply)>,
}

/// The checker of `linearizable`.
#[derive(Debug, Default)]
pub(super) struct Linearizable {
    held_by_all: bool,
    operations: Vec<Operation>,
    /// Commands of each service, by position.
    commands: Map<Service, Vec<Option<(Name, Op)>>>,
    /// Service that answered a call, if a copy did.
    answered: Map<Name, Service>,
    /// Calls that a copy with bad memory answered, and such copies.
    tainted: BTreeSet<Name>,
    corrupted: BTreeSet<Life>,
    /// Services that began before an administrator let one begin anew; what that one begins with is not known.
    before_anew: Option<usize>,
    checked: u64,
}

impl Sequential for Value {
    type Op = Op;
    type Reply = Reply;

    fn step(&self, op: &Op) -> (Reply, Value) {
        self.after(*op)
    }
}

/// The values of one object: each with the position from which it holds.
#[derive(Debug, Default)]
struct Course(Vec<(u64, Value)>);

impl Course {
    /// Returns the first position not before `from` at which a read returns this.
    fn position_of(&self, op: Op, reply: Reply, from: u64) -> Option<u64> {
        let begin = self.0.partition_point(|(since, _)| *since <= from).saturating_sub(1);
        let fits = |(_, value): &&(u64, Value)| value.after(op).0 == reply;
        self.0[begin..].iter().find(fits).map(|(since, _)| from.max(*since))
    }

    fn value_at(&self, position: u64) -> Value {
        let next = self.0.partition_point(|(since, _)| *since <= position);
        next.checked_sub(1).map_or(Value::default(), |last| self.0[last].1)
    }
}

/// What a service did.
struct Story {
    /// The course of each object.
    courses: Map<Object, Course>,
    /// Position of each command, and its reply.
    positions: Map<Name, (u64, Reply)>,
}

impl Story {
    fn of(commands: &[Option<(Name, Op)>]) -> Result<Story, String> {
        let mut story = Story { courses: Map::new(), positions: Map::new() };
        for (position, command) in (1..).zip(commands.iter().skip(1)) {
            let Some((name, op)) = command else {
                return Err(format!("no copy applied position {position}"));
            };
            let course =
                story.courses.entry(op.object()).or_insert_with(|| Course([(0, Value::default())].into()));
            let value = course.value_at(position);
            let (reply, after) = value.after(*op);
            if after != value {
                course.0.push((position, after));
            }
            story.positions.insert(*name, (position, reply));
        }
        Ok(story)
    }

    fn course(&self, object: Object) -> Option<&Course> {
        self.courses.get(&object)
    }

    fn position_of(&self, op: Op, reply: Reply, from: u64) -> Option<u64> {
        match self.course(op.object()) {
            Some(course) => course.position_of(op, reply, from),
            None => (Value::default().after(op).0 == reply).then_some(from),
        }
    }
}

impl Linearizable {
    /// Returns the operations that concern a service: commands that it executed, and reads that it answered.
    fn operations_of(&self, service: Service, story: &Story) -> Vec<Operation> {
        let concerns = |operation: &&Operation| match operation.mode {
            Mode::Command => story.positions.contains_key(&operation.name),
            Mode::Read | Mode::LocalRead => self.service_of(operation) == Some(service),
        };
        let believed = |operation: &Operation| match (self.is_tainted(operation), operation.mode) {
            // What a command on a lock does depends on the members too, so its reply is not checked here.
            (false, _) if operation.op.is_of_locks() => Some(Operation { end: None, ..*operation }),
            (false, _) => Some(*operation),
            // It took effect, whatever its caller got.
            (true, Mode::Command) => Some(Operation { end: None, ..*operation }),
            (true, _) => None,
        };
        self.operations.iter().filter(concerns).filter_map(believed).collect()
    }

    fn service_of(&self, operation: &Operation) -> Option<Service> {
        self.answered.get(&operation.name).copied()
    }

    fn is_tainted(&self, operation: &Operation) -> bool {
        self.tainted.contains(&operation.name) || self.corrupted.contains(&operation.by)
    }

    fn check(&mut self, service: Service) -> Result<(), String> {
        let Some(commands) = self.commands.get(&service) else { return Ok(()) };
        let story = Story::of(commands)?;
        let operations = self.operations_of(service, &story);
        self.checked += operations.len() as u64;
        sweep(&operations, &story)?;
        let objects: BTreeSet<Object> = operations.iter().map(|operation| operation.op.object()).collect();
        objects.into_iter().try_for_each(|object| check_object(&operations, &story, object))
    }
}

/// Checks operations in the order of time: an operation takes effect after everything that had ended when it began.
fn sweep(operations: &[Operation], story: &Story) -> Result<(), String> {
    // Of equal times the begin comes first: such operations overlap.
    let mut moments: Vec<(Time, bool, usize)> = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        moments.push((operation.begin, false, index));
        moments.extend(operation.end.map(|(end, _)| (end, true, index)));
    }
    moments.sort_unstable();
    let mut effects = vec![0; operations.len()];
    let mut ended = 0;
    for (_, is_end, index) in moments {
        if is_end {
            ended = effects[index].max(ended);
            continue;
        }
        let operation = &operations[index];
        effects[index] = match (operation.mode, operation.end) {
            (Mode::Command, end) => {
                let Some((position, reply)) = story.positions.get(&operation.name) else { continue };
                if let Some((_, got)) = end
                    && got != *reply
                {
                    return Err(format!("{operation:?} should have got {reply:?}"));
                }
                if *position <= ended {
                    return Err(format!(
                        "{operation:?} took effect at {position}, and {ended} had ended when it began"
                    ));
                }
                *position
            }
            (_, None) => continue,
            (Mode::LocalRead, Some((_, reply))) => {
                if story.position_of(operation.op, reply, 0).is_none() {
                    return Err(format!("{operation:?}: the state never was like that"));
                }
                0
            }
            (Mode::Read, Some((_, reply))) => match story.position_of(operation.op, reply, ended) {
                Some(position) => position,
                None => return Err(format!("{operation:?}: the state was not like that from {ended} on")),
            },
        };
    }
    Ok(())
}

/// Checks windows of operations on one object without positions.
fn check_object(operations: &[Operation], story: &Story, object: Object) -> Result<(), String> {
    let of_object =
        |operation: &&Operation| operation.op.object() == object && operation.mode != Mode::LocalRead;
    let placed = operations.iter().filter(of_object).map(|operation| {
        let known = (operation.mode == Mode::Command).then(|| story.positions.get(&operation.name));
        let position = known.flatten().map(|(position, _)| *position);
        Placed { op: operation.op, begin: operation.begin, end: operation.end, position }
    });
    let value_at = |cut| story.course(object).map_or(Value::default(), |course| course.value_at(cut));
    check_windows(placed.collect(), 0, value_at)
}

impl Property for Linearizable {
    fn name(&self) -> &'static str {
        "linearizable"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match content(record) {
            Some(ReplicaRecord::Terms { held_by_all, .. }) => self.held_by_all = *held_by_all,
            Some(ReplicaRecord::Begun { name, mode, op, .. }) => self.operations.push(Operation {
                by: record.life,
                name: *name,
                mode: *mode,
                op: *op,
                begin: record.at,
                end: None,
            }),
            Some(ReplicaRecord::Ended { id, outcome: OpOutcome::Replied(reply) }) => {
                if let Some(operation) = self.operations.get_mut(id.index()) {
                    operation.end = Some((record.at, *reply));
                }
            }
            Some(ReplicaRecord::Applied { at, name, op, .. }) => {
                let commands = self.commands.entry(at.service).or_default();
                let position = at.position as usize;
                if commands.len() <= position {
                    commands.resize(position + 1, None);
                }
                commands[position].get_or_insert((*name, *op));
            }
            Some(ReplicaRecord::Answered { service, name, .. }) => {
                self.answered.insert(*name, *service);
                if self.corrupted.contains(&record.life) {
                    self.tainted.insert(*name);
                }
            }
            Some(ReplicaRecord::Looked { service, name }) => _ = self.answered.insert(*name, *service),
            Some(ReplicaRecord::Corrupted) => _ = self.corrupted.insert(record.life),
            // An operator may say so more than once. A service that began anew lacks the commands of before.
            Some(ReplicaRecord::BeginsAnew) => _ = self.before_anew.get_or_insert(self.commands.len()),
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        if !self.held_by_all {
            return Ok(());
        }
        let known = self.before_anew.unwrap_or(usize::MAX);
        let services: Vec<Service> = self.commands.keys().copied().take(known).collect();
        let fault = services.into_iter().find_map(|service| self.check(service).err());
        final_result(self, end, fault)
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;
    use std::time::Duration;

    const STEP: Duration = Duration::from_millis(1);

    /// Begins an operation, lets it take effect, and ends it with the right reply.
    fn whole(fixture: &mut Fixture, mode: Mode, op: Op) {
        let id = fixture.begin(mode, op);
        fixture.wait(STEP);
        let reply = fixture.apply(id);
        fixture.wait(STEP);
        fixture.end(id, OpOutcome::Replied(reply));
        fixture.wait(STEP);
    }

    fn used() -> Fixture {
        let mut fixture = Fixture::three_copies();
        for round in 0..60 {
            whole(&mut fixture, Mode::Command, Op::Add(0, 1));
            whole(&mut fixture, Mode::Read, Op::Get(0));
            whole(&mut fixture, Mode::Command, Op::Append(round));
            whole(&mut fixture, Mode::Read, Op::GetAll);
        }
        fixture
    }

    #[test]
    fn accepts_operations_one_after_another_and_at_once() {
        let mut fixture = used();
        let (one, other) =
            (fixture.begin(Mode::Command, Op::Put(1, 5)), fixture.begin(Mode::Read, Op::Get(1)));
        fixture.wait(STEP);
        // The read sees the state before or after the command.
        let reply = fixture.apply(one);
        fixture.end(other, OpOutcome::Replied(Reply(0, 0)));
        fixture.end(one, OpOutcome::Replied(reply));
        fixture.begin(Mode::Command, Op::Put(1, 6));
        fixture.good(Linearizable::default());
    }

    #[test]
    fn rejects_a_stale_read() {
        let mut fixture = used();
        let id = fixture.begin(Mode::Read, Op::Get(0));
        fixture.end(id, OpOutcome::Replied(Reply(59, 0)));
        fixture.bad(Linearizable::default());
    }

    #[test]
    fn rejects_reads_that_go_back() {
        let mut fixture = used();
        let command = fixture.begin(Mode::Command, Op::Put(1, 5));
        for value in [5, 0] {
            fixture.wait(STEP);
            let id = fixture.begin(Mode::Read, Op::Get(1));
            fixture.wait(STEP);
            fixture.end(id, OpOutcome::Replied(Reply(value, 0)));
        }
        fixture.apply(command);
        fixture.bad(Linearizable::default());
    }

    #[test]
    fn rejects_a_wrong_reply_and_a_command_before_its_time() {
        let mut fixture = used();
        let id = fixture.begin(Mode::Command, Op::Add(2, 1));
        fixture.apply(id);
        fixture.end(id, OpOutcome::Replied(Reply(7, 1)));
        fixture.bad(Linearizable::default());
        let mut fixture = used();
        let (one, other) =
            (fixture.begin(Mode::Command, Op::Add(2, 1)), fixture.begin(Mode::Command, Op::Add(2, 1)));
        fixture.apply(one);
        fixture.apply(other);
        fixture.end(other, OpOutcome::Replied(Reply(2, 1)));
        fixture.wait(STEP);
        let late = fixture.begin(Mode::Read, Op::Get(2));
        fixture.wait(STEP);
        fixture.end(late, OpOutcome::Replied(Reply(1, 0)));
        fixture.bad(Linearizable::default());
    }
}
