//! Tells people that their group stands still, and that it goes on: no event does, since nothing happens meanwhile.

use crate::output::visible;
use std::time::Duration;
use unisono::{Group, Phase};

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// A reset that is seen so often in a row finds no quorum, or is slow enough to be told of.
const LOOKS: u32 = 2;

/// Watches the group as long as this process is in it.
pub(crate) fn watch(name: &str, group: &Group) -> std::io::Result<()> {
    let (name, group) = (visible(name).into_owned(), group.clone());
    std::thread::Builder::new().name("standstill".into()).spawn(move || {
        let mut seen = 0;
        loop {
            std::thread::sleep(INTERVAL);
            match group.info().phase {
                Phase::Resetting => {
                    seen += 1;
                    if seen == LOOKS {
                        eprintln!(
                            "unisono: {name} stands still: too few of its members answer; `unisono why {name}` \
                             names those who do not"
                        );
                    }
                }
                Phase::Member | Phase::Locating | Phase::Joining => {
                    if seen >= LOOKS {
                        eprintln!("unisono: {name} goes on");
                    }
                    seen = 0;
                }
                Phase::Leaving | Phase::Excluded | Phase::Gone => return,
            }
        }
    })?;
    Ok(())
}
