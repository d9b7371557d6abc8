//! Waits until a group has enough members, and prints how many there are.

use crate::output::tell;
use crate::threads;
use std::time::{Duration, Instant};
use unisono::{Group, GroupConfig, Phase};

/// A wait shorter than this, 1 s, prints nothing.
const SHORT: Duration = Duration::from_secs(1);
/// Interval at which a member counts the members of its group: 200 ms.
const INTERVAL: Duration = Duration::from_millis(200);

/// Parses the number of members to wait for: at most the largest group.
pub(crate) fn members(text: &str) -> Result<usize, String> {
    let most = GroupConfig::default().members_max;
    let members = text.parse().ok().filter(|&members| members <= usize::from(most));
    members.ok_or_else(|| format!("a number up to {most}, the most members that a group can have"))
}

/// A wait until a group has `wanted` members.
pub(crate) struct Gathering {
    wanted: usize,
    /// The address of this process.
    at: String,
    begun: Instant,
    /// The number that was printed last.
    told: Option<usize>,
}

impl Gathering {
    /// Returns the wait of a process at this address.
    pub(crate) fn of(wanted: usize, at: String) -> Gathering {
        Gathering { wanted, at, begun: Instant::now(), told: None }
    }

    /// True if `there` members are enough. If not, and the wait has taken long, prints each number once.
    pub(crate) fn is_complete(&mut self, there: usize) -> bool {
        if there >= self.wanted {
            return true;
        }
        if self.begun.elapsed() >= SHORT && self.told != Some(there) {
            self.told = Some(there);
            let Gathering { wanted, at, .. } = self;
            tell(format_args!("{there} of {wanted} members are there: waiting for more {at}"));
        }
        false
    }
}

/// Prints how many members the group has while this member waits for others.
pub(crate) fn watch(group: &Group, wanted: usize) -> anyhow::Result<()> {
    let (group, info) = (group.clone(), group.info());
    let own = info.rank.and_then(|rank| info.members.get(rank));
    let mut gathering = Gathering::of(wanted, own.map_or(String::new(), |own| format!("at {}", own.address)));
    threads::start("gathering", move || {
        loop {
            let info = group.info();
            let over = matches!(info.phase, Phase::Leaving | Phase::Excluded | Phase::Gone);
            if over || gathering.is_complete(info.members.len()) {
                return;
            }
            std::thread::sleep(INTERVAL);
        }
    })
}
