//! Ctrl-c and SIGTERM: leave the group in good order. A second one ends the process at once.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use unisono::Group;

/// Lets the group be left on the first interrupt; whoever receives its events then sees them end.
pub(crate) fn leave_on_interrupt(group: &Group) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let group = group.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut arrivals = signals.forever();
        arrivals.next();
        std::thread::spawn(move || crate::listen::leave_and_end(&group));
        if let Some(second) = arrivals.next() {
            std::process::exit(128 + second);
        }
    })?;
    Ok(())
}
