//! Warns of conditions for which the library has no event: the group stands still, the group takes no messages from
//! this member, or another process uses another key for it. Also reports when the group goes on.

use crate::connection;
use crate::output::{tell, visible};
use crate::settings::Settings;
use crate::threads;
use std::net::SocketAddr;
use std::time::Duration;
use unisono::{Group, Info, Phase, Seqno};

/// Interval at which the group is checked: 1 s.
const INTERVAL: Duration = Duration::from_secs(1);
/// Number of consecutive checks that must see a reset, or a message that waits, before it is reported. A reset that
/// takes this long finds no quorum, or is slow.
const LOOKS: u32 = 2;

/// Watches the group in a thread, as long as this process is a member.
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

/// Watches in a thread for a process that uses another key for the group, as `look` finds one, and warns of the first.
/// `sealed` is true if this process has a key.
pub(crate) fn watch_for_strangers(
    name: &str,
    sealed: bool,
    look: impl Fn() -> Option<SocketAddr> + Send + 'static,
) -> anyhow::Result<()> {
    let name = visible(name).into_owned();
    threads::start("watch", move || {
        let address = loop {
            match look() {
                Some(address) => break address,
                None => std::thread::sleep(INTERVAL),
            }
        };
        tell(of_stranger(&name, sealed, address));
    })
}

/// Describes a process that uses another key for the group.
fn of_stranger(name: &str, sealed: bool, address: SocketAddr) -> String {
    let how = match sealed {
        true => "under another key, or without one",
        false => "with a key, and this process has none",
    };
    format!(
        "{address} sends datagrams of a group {name} {how}: neither can read the other's; give all members the same key \
         file (--key)"
    )
}

struct Watcher {
    name: String,
    /// The command that shows more.
    why: String,
    /// True if this process has a key.
    sealed: bool,
    /// Number of consecutive checks that saw a reset.
    seen_still: u32,
    /// Highest accepted seqno at the last check.
    accepted: Seqno,
    /// Number of consecutive checks at which this member had messages under way and none was accepted since the last
    /// check.
    seen_waiting: u32,
    /// Address of the process with another key that was reported.
    told_of: Option<SocketAddr>,
}

impl Watcher {
    /// Checks the group once. False if this process is no member any more.
    fn look(&mut self, info: &Info) -> bool {
        self.look_for_strangers(info);
        let name = &self.name;
        match info.phase {
            Phase::Resetting => {
                self.seen_still += 1;
                if self.seen_still == LOOKS {
                    tell(format_args!(
                        "{name} stands still: too few of its members answer; `{}` names those that do not",
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

    /// Warns if messages of this member wait though no reset is under way: a member is slow.
    fn look_for_waits(&mut self, info: &Info) {
        let name = &self.name;
        if info.under_way > 0 && info.accepted == self.accepted {
            self.seen_waiting += 1;
            if self.seen_waiting == LOOKS {
                tell(format_args!(
                    "{name} takes no messages at present; `{}` names the member that it waits for",
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

    /// Warns of a process with another key. Once only: such a process may try repeatedly, from several addresses.
    fn look_for_strangers(&mut self, info: &Info) {
        let Some(address) = info.foreign.filter(|_| self.told_of.is_none()) else { return };
        self.told_of = Some(address);
        tell(of_stranger(&self.name, self.sealed, address));
    }
}
