//! Tells people what no event does: that their group stands still and goes on, and that somebody speaks of it under
//! another key.

use crate::connection;
use crate::output::{tell, visible};
use crate::settings::Settings;
use crate::threads;
use std::net::SocketAddr;
use std::time::Duration;
use unisono::{Group, Info, Phase};

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// A reset that is seen so often in a row finds no quorum, or is slow enough to be told of.
const LOOKS: u32 = 2;

/// Watches the group as long as this process is in it.
pub(crate) fn watch(name: &str, group: &Group, settings: &Settings) -> anyhow::Result<()> {
    let (sealed, why) = (settings.key.is_some(), connection::typed("why", name, settings));
    let (name, group) = (visible(name).into_owned(), group.clone());
    let mut watcher = Watcher { name, why, sealed, seen_still: 0, told_of: None };
    watcher.look_for_strangers(&group.info());
    threads::start("watch", move || {
        while watcher.look(&group.info()) {
            std::thread::sleep(INTERVAL);
        }
    })
}

struct Watcher {
    name: String,
    /// What to type to learn more.
    why: String,
    /// This process has a key.
    sealed: bool,
    /// How often in a row the group was being reset.
    seen_still: u32,
    /// The stranger that was told of.
    told_of: Option<SocketAddr>,
}

impl Watcher {
    /// Looks once. False when there is nothing more to see.
    fn look(&mut self, info: &Info) -> bool {
        self.look_for_strangers(info);
        let name = &self.name;
        match info.phase {
            Phase::Resetting => {
                self.seen_still += 1;
                if self.seen_still == LOOKS {
                    tell(format_args!(
                        "{name} stands still: too few of its members answer; `{}` names those who do not",
                        self.why
                    ));
                }
            }
            Phase::Member | Phase::Locating | Phase::Joining => {
                if self.seen_still >= LOOKS {
                    tell(format_args!("{name} goes on"));
                }
                self.seen_still = 0;
            }
            Phase::Leaving | Phase::Excluded | Phase::Gone => return false,
        }
        true
    }

    /// Once is enough: whoever has another key may try again and again, from other addresses.
    fn look_for_strangers(&mut self, info: &Info) {
        let Some(address) = info.foreign.filter(|_| self.told_of.is_none()) else { return };
        self.told_of = Some(address);
        let how = if self.sealed {
            "under another key, or without one"
        } else {
            "with a key, and this process has none"
        };
        tell(format_args!(
            "{address} speaks of a group {} {how}: neither hears the other; members need the same key file \
             (--key)",
            self.name
        ));
    }
}
