//! One holder: at every position of a service a lock has at most one holder, the same at every copy. Fences rise with every
//! grant, across foundings too. The event that removes a member ends its claims, waiters get a lock in the order of their
//! claims, and a refusal changes nothing.
//!
//! Across foundings fences rest on the clocks, so they are compared only if all clocks show the same; not if two processes
//! have the name of one server, which may found two services; and not once a service began anew from a disk, which grants
//! again what it has in its log. With the durability *ordered* a crash may undo the
//! last steps, so copies are compared within an epoch, and foundings are not.

use super::{Map, Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{
    ClaimSeen, Epoch, Kind, LockLine, LockStep, Place, Record, ReplicaRecord, Service, What,
};
use crate::replica::{Op, REFUSED};
use unisono_core::Name;

/// The checker of `one_holder`.
#[derive(Debug, Default)]
pub(super) struct OneHolder {
    held_by_all: bool,
    /// True if fences of different foundings cannot be compared.
    foundings_differ: bool,
    processes: Map<Name, u32>,
    /// The locks after each step that concerned them.
    courses: Map<(Service, Epoch), Map<u64, Locks>>,
    /// Highest fence of each service.
    highest: Map<Service, u64>,
    checked: u64,
}

#[derive(Clone, Debug, Default)]
struct Locks {
    lines: Vec<LockLine>,
    /// Fence of the last grant.
    last_fence: u64,
}

/// Names of locks, each with the numbers of its claims in order.
type Numbers = Vec<(u8, Vec<u64>)>;

impl Locks {
    /// Returns the locks after a step that leads to these lines.
    fn after(&self, step: &LockStep, lines: &[LockLine]) -> Result<Locks, String> {
        let expected = expected(&self.lines, step);
        if numbers(lines) != expected {
            return Err(format!("the claims should be {expected:?}, after {:?}", self.lines));
        }
        let mut last_fence = self.last_fence;
        for line in lines {
            let before = self.lines.iter().find(|before| before.name == line.name);
            let known = |number| before?.claims.iter().find(|claim| claim.number == number);
            for claim in &line.claims {
                match (known(claim.number), claim.fence) {
                    (Some(known), _) if known.member != claim.member => {
                        return Err(format!("claim {} was of {:?}", claim.number, known.member));
                    }
                    (Some(ClaimSeen { fence: Some(known), .. }), Some(fence)) if *known == fence => {}
                    (_, Some(fence)) if fence <= last_fence => {
                        return Err(format!("fence {fence} comes after fence {last_fence}"));
                    }
                    (_, Some(fence)) => last_fence = fence,
                    (_, None) => {}
                }
            }
        }
        Ok(Locks { lines: lines.to_vec(), last_fence })
    }

    /// Returns the locks with which a copy begins.
    fn first(lines: &[LockLine]) -> Locks {
        let fences = lines.iter().flat_map(|line| &line.claims).filter_map(|claim| claim.fence);
        Locks { last_fence: fences.max().unwrap_or_default(), lines: lines.to_vec() }
    }
}

/// Returns the fence of the claim with this number.
fn fence_of(lines: &[LockLine], number: u64) -> Option<u64> {
    lines.iter().flat_map(|line| &line.claims).find(|claim| claim.number == number)?.fence
}

fn numbers(lines: &[LockLine]) -> Numbers {
    let of_line = |line: &LockLine| (line.name, line.claims.iter().map(|claim| claim.number).collect());
    lines.iter().map(of_line).collect()
}

/// Returns the claims that a step leaves.
fn expected(before: &[LockLine], step: &LockStep) -> Numbers {
    let keep = |keeps: &dyn Fn(&LockLine, &ClaimSeen) -> bool| -> Numbers {
        let kept = before.iter().map(|line| {
            let claims = line.claims.iter().filter(|claim| keeps(line, claim));
            (line.name, claims.map(|claim| claim.number).collect::<Vec<_>>())
        });
        kept.filter(|(_, claims)| !claims.is_empty()).collect()
    };
    match step {
        LockStep::Members(members) => keep(&|_, claim| members.contains(&claim.member)),
        LockStep::Applied(Op::Release(name, ..), reply) if reply.1 != REFUSED => {
            keep(&|line, claim| (line.name, claim.number) != (*name, reply.0))
        }
        LockStep::Applied(Op::Acquire(name, ..), reply) if reply.1 != REFUSED => {
            let mut after = numbers(before);
            match after.iter_mut().find(|(known, _)| known == name) {
                Some((_, claims)) if claims.contains(&reply.0) => {}
                Some((_, claims)) => claims.push(reply.0),
                None => after.push((*name, vec![reply.0])),
            }
            after.sort_unstable();
            after
        }
        LockStep::Applied(..) | LockStep::Restored => numbers(before),
    }
}

/// Returns what is wrong with lines wherever they come from.
fn fault(lines: &[LockLine]) -> Option<String> {
    let holders = |line: &LockLine| line.claims.iter().filter(|claim| claim.fence.is_some()).count();
    let is_led = |line: &LockLine| line.claims.first().is_some_and(|claim| claim.fence.is_some());
    let bad = lines.iter().find(|line| holders(line) != 1 || !is_led(line))?;
    Some(format!("lock {} has {} holders", bad.name, holders(bad)))
}

impl OneHolder {
    fn check(&mut self, at: &Place, step: &LockStep, lines: &[LockLine]) -> Result<(), String> {
        self.checked += 1;
        fault(lines).map_or(Ok(()), Err)?;
        let epoch = if self.held_by_all { Epoch(0) } else { at.epoch };
        let course = self.courses.entry((at.service, epoch)).or_default();
        if let Some(known) = course.get(&at.trail.steps) {
            return match known.lines == lines {
                true => Ok(()),
                false => Err(format!("another copy has {:?} after this step", known.lines)),
            };
        }
        let before = course.range(..at.trail.steps).next_back().map(|(_, locks)| locks);
        let (after, granted) = match (before, step) {
            (Some(before), LockStep::Applied(..) | LockStep::Members(_)) => {
                let after = before.after(step, lines)?;
                let rises = after.last_fence > before.last_fence;
                (after.clone(), rises.then_some(after.last_fence))
            }
            // The first command on a lock. What a copy got its state from may have been of another service.
            (_, LockStep::Applied(_, reply)) => (Locks::first(lines), fence_of(lines, reply.0)),
            (_, LockStep::Members(_) | LockStep::Restored) => (Locks::first(lines), None),
        };
        course.insert(at.trail.steps, after);
        if let Some(fence) = granted {
            let before = self.highest.range(..at.service).map(|(_, fence)| *fence).max().unwrap_or_default();
            if fence <= before && self.held_by_all && !self.foundings_differ {
                return Err(format!("fence {fence} comes after fence {before} of an earlier founding"));
            }
            let highest = self.highest.entry(at.service).or_default();
            *highest = fence.max(*highest);
        }
        Ok(())
    }
}

impl Property for OneHolder {
    fn name(&self) -> &'static str {
        "one_holder"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit() | Kind::Started.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        if let What::Started { name } = &record.what {
            let known = *self.processes.entry(name.clone()).or_insert(record.process);
            self.foundings_differ |= known != record.process;
        }
        match content(record) {
            Some(ReplicaRecord::Terms { held_by_all, .. }) => self.held_by_all = *held_by_all,
            // What begins anew grants again what its disk has of the service before.
            Some(ReplicaRecord::ClocksDiffer | ReplicaRecord::BeginsAnew) => self.foundings_differ = true,
            Some(ReplicaRecord::Locks { at, step, lines }) => {
                return self.check(at, step, lines).or_else(|fault| broken(self, record, || fault));
            }
            _ => {}
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{A, B, C, Fixture, OTHER_SERVICE, SERVICE};
    use super::*;
    use crate::record::{Life, Trail};
    use crate::replica::Reply;
    use unisono_core::Uid;

    /// Lines of one lock: claims with their numbers, members and fences.
    fn line(claims: &[(u64, Life, Option<u64>)]) -> Vec<LockLine> {
        let seen = |(number, member, fence): &(u64, Life, Option<u64>)| ClaimSeen {
            number: *number,
            member: *member,
            fence: *fence,
        };
        match claims {
            [] => Vec::new(),
            claims => vec![LockLine { name: 0, claims: claims.iter().map(seen).collect() }],
        }
    }

    fn acquired(number: u64) -> LockStep {
        LockStep::Applied(Op::Acquire(0, Uid(1), 5, true), Reply(number, 1))
    }

    fn released(number: u64) -> LockStep {
        LockStep::Applied(Op::Release(0, Uid(1), number), Reply(number, 1))
    }

    fn refused() -> LockStep {
        LockStep::Applied(Op::Acquire(0, Uid(1), 5, false), Reply(0, REFUSED))
    }

    struct History {
        fixture: Fixture,
        steps: u64,
        service: Service,
    }

    impl History {
        fn new() -> History {
            History { fixture: Fixture::three_copies(), steps: 1, service: SERVICE }
        }

        /// A step at one copy.
        fn step(&mut self, copy: Life, step: LockStep, claims: &[(u64, Life, Option<u64>)]) -> &mut History {
            let trail = Trail { steps: self.steps, hash: 0 };
            let at = Place { service: self.service, trail, ..self.fixture.place(copy) };
            self.fixture.record(copy, ReplicaRecord::Locks { at, step, lines: line(claims) });
            self
        }

        /// The next step, at one copy.
        fn next(&mut self, step: LockStep, claims: &[(u64, Life, Option<u64>)]) -> &mut History {
            self.steps += 1;
            self.step(A, step, claims)
        }

        /// A has the lock with fence 9, B and C wait.
        fn three_in_line() -> History {
            let mut history = History::new();
            history
                .next(acquired(1), &[(1, A, Some(9))])
                .next(acquired(2), &[(1, A, Some(9)), (2, B, None)])
                .next(acquired(3), &[(1, A, Some(9)), (2, B, None), (3, C, None)]);
            history
        }

        fn bad(&self) {
            self.fixture.bad(OneHolder::default());
        }
    }

    #[test]
    fn accepts_holders_one_after_another() {
        let mut history = History::three_in_line();
        history
            .next(refused(), &[(1, A, Some(9)), (2, B, None), (3, C, None)])
            .next(acquired(2), &[(1, A, Some(9)), (2, B, None), (3, C, None)])
            .next(LockStep::Members(vec![A, C]), &[(1, A, Some(9)), (3, C, None)])
            .next(released(1), &[(3, C, Some(10))])
            .next(LockStep::Members(vec![A]), &[])
            .step(B, LockStep::Members(vec![A]), &[]);
        history.fixture.good(OneHolder::default());
    }

    #[test]
    fn rejects_two_holders_and_none() {
        let mut history = History::three_in_line();
        history.next(refused(), &[(1, A, Some(9)), (2, B, Some(10)), (3, C, None)]).bad();
        let mut history = History::three_in_line();
        history.next(refused(), &[(1, A, None), (2, B, None), (3, C, None)]).bad();
    }

    #[test]
    fn rejects_copies_that_differ() {
        let mut history = History::three_in_line();
        history.step(B, acquired(3), &[(1, A, Some(9)), (3, C, None), (2, B, None)]).bad();
    }

    #[test]
    fn rejects_claims_that_outlive_their_member_or_end_before() {
        let mut history = History::three_in_line();
        history.next(LockStep::Members(vec![B, C]), &[(1, A, Some(9)), (2, B, None), (3, C, None)]).bad();
        let mut history = History::three_in_line();
        history.next(LockStep::Members(vec![A, B, C]), &[(1, A, Some(9)), (3, C, None)]).bad();
    }

    #[test]
    fn rejects_a_waiter_that_is_skipped_and_a_refusal_that_changes_something() {
        let mut history = History::three_in_line();
        history.next(released(1), &[(3, C, Some(10)), (2, B, None)]).bad();
        let mut history = History::three_in_line();
        history.next(refused(), &[(1, A, Some(9)), (2, B, None)]).bad();
        let mut history = History::three_in_line();
        history.next(refused(), &[(1, B, Some(9)), (2, B, None), (3, C, None)]).bad();
    }

    #[test]
    fn rejects_fences_that_do_not_rise() {
        for fence in [8, 9] {
            let mut history = History::three_in_line();
            history.next(released(1), &[(2, B, Some(fence)), (3, C, None)]).bad();
            let mut history = History::three_in_line();
            history.service = OTHER_SERVICE;
            history.next(acquired(1), &[(1, A, Some(fence))]).bad();
        }
        let mut history = History::three_in_line();
        history.fixture.record(Life::WORLD, ReplicaRecord::ClocksDiffer);
        history.service = OTHER_SERVICE;
        history.next(acquired(1), &[(1, A, Some(3))]);
        history.fixture.good(OneHolder::default());
    }
}
