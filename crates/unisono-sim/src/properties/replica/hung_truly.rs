//! Hung truly: a server ends because its disk hangs only if the disk has not got on for 10 s, however long its jobs take.

use super::{Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{Kind, Life, Record, ReplicaRecord, Stop};
use std::time::Duration;

/// Minimum time for which a disk that is said to hang has not got on: 10 s, less the interval at which disks report.
const IDLE_MIN: Duration = Duration::from_secs(9);

/// The checker of `hung_truly`.
#[derive(Debug, Default)]
pub(super) struct HungTruly {
    /// Lives that have stopped. A stopped one says so with each later input; its disk may get on by then.
    stopped: Vec<Life>,
    checked: u64,
}

impl Property for HungTruly {
    fn name(&self) -> &'static str {
        "hung_truly"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        if let Some(ReplicaRecord::Stopped { reason: Stop::DiskHangs { idle }, .. }) = content(record)
            && !self.stopped.contains(&record.life)
        {
            self.stopped.push(record.life);
            self.checked += 1;
            if *idle < IDLE_MIN {
                return broken(self, record, || format!("its disk got on {idle:?} before"));
            }
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{A, Fixture};
    use super::*;

    #[test]
    fn a_server_whose_disk_gets_on_must_not_end() {
        let ended = |idle| {
            let mut fixture = Fixture::three_disks();
            fixture.record(A, ReplicaRecord::Stopped { at: None, reason: Stop::DiskHangs { idle } });
            fixture
        };
        ended(IDLE_MIN).good(HungTruly::default());
        ended(Duration::from_millis(80)).bad(HungTruly::default());
        let mut later = ended(IDLE_MIN);
        let idle = Duration::ZERO;
        later.record(A, ReplicaRecord::Stopped { at: None, reason: Stop::DiskHangs { idle } });
        later.good(HungTruly::default());
    }
}
