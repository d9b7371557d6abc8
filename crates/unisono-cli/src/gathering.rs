//! Waiting until a group has so many members, not without a word.

use crate::output::tell;
use crate::threads;
use std::time::{Duration, Instant};
use unisono::{Group, GroupConfig, Phase};

/// Nobody is told of a shorter wait.
const SHORT: Duration = Duration::from_secs(1);
/// Between two looks at the group that this process is in.
const INTERVAL: Duration = Duration::from_millis(200);

/// How many members somebody waits for: no more than a group ever has.
pub(crate) fn members(text: &str) -> Result<usize, String> {
    let most = GroupConfig::default().members_max;
    let members = text.parse().ok().filter(|&members| members <= usize::from(most));
    members.ok_or_else(|| format!("a number up to {most}, which is as many as a group has"))
}

/// Somebody waits for so many members.
pub(crate) struct Gathering {
    wanted: usize,
    begun: Instant,
    /// The number that was told of last.
    told: Option<usize>,
}

impl Gathering {
    pub(crate) fn of(wanted: usize) -> Gathering {
        Gathering { wanted, begun: Instant::now(), told: None }
    }

    /// Whether so many are enough. If not, and the wait is long, tells people once of each number.
    pub(crate) fn is_complete(&mut self, there: usize) -> bool {
        if there >= self.wanted {
            return true;
        }
        if self.begun.elapsed() >= SHORT && self.told != Some(there) {
            self.told = Some(there);
            tell(format_args!("{there} of {} members are there: waiting for more", self.wanted));
        }
        false
    }
}

/// Tells people how many members are there while a member waits for others.
pub(crate) fn watch(group: &Group, wanted: usize) -> anyhow::Result<()> {
    let (group, mut gathering) = (group.clone(), Gathering::of(wanted));
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
