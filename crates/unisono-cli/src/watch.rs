//! Tells people what no event does: that their group stands still, or takes nothing from this member, and goes on, and
//! that somebody speaks of it under another key.

use crate::connection;
use crate::output::{tell, visible};
use crate::settings::Settings;
use crate::threads;
use std::net::SocketAddr;
use std::time::Duration;
use unisono::{Group, Info, Phase, Seqno};

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// A reset that is seen so often in a row finds no quorum, or is slow enough to be told of; so is a message that waits.
const LOOKS: u32 = 2;

/// Watches the group as long as this process is in it.
pub(crate) fn watch(name: &str, group: &Group, settings: &Settings) -> anyhow::Result<()> {
    let (sealed, why) = (settings.key.is_some(), connection::typed("why", name, settings));
    let (name, group) = (visible(name).into_owned(), group.clone());
    let mut watcher =
        Watcher { name, why, sealed, seen_still: 0, accepted: 0, seen_waiting: 0, told_of: None };
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
    /// What was accepted when it was looked at last.
    accepted: Seqno,
    /// How often in a row nothing more was, though this member had sent something.
    seen_waiting: u32,
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
                self.look_for_waits(info);
            }
            Phase::Leaving | Phase::Excluded | Phase::Gone => return false,
            _ => {}
        }
        true
    }

    /// What this member has sent waits for a place, or to be accepted, while everybody is there: somebody is slow.
    fn look_for_waits(&mut self, info: &Info) {
        let name = &self.name;
        if info.under_way > 0 && info.accepted == self.accepted {
            self.seen_waiting += 1;
            if self.seen_waiting == LOOKS {
                tell(format_args!(
                    "{name} takes nothing at present; `{}` names the member that is waited for",
                    self.why
                ));
            }
        } else {
            if self.seen_waiting >= LOOKS {
                tell(format_args!("{name} goes on"));
            }
            self.seen_waiting = 0;
        }
        self.accepted = info.accepted;
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
