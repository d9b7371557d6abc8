//! Ctrl-c and SIGTERM: leave the group in good order. A second one ends the process at once.
//!
//! Whoever dies instead of leaving is missed only after a while, and the group is reset for it.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use unisono::Group;

/// Lets the group be left on the first interrupt; whoever receives its events then sees them end.
pub(crate) fn leave_on_interrupt(group: &Group) -> std::io::Result<()> {
    let group = group.clone();
    on_interrupt(move |_| crate::listen::leave(&group))
}

/// Lets the group be left on the first interrupt, and the process end then.
pub(crate) fn end_on_interrupt(group: &Group) -> std::io::Result<()> {
    let group = group.clone();
    on_interrupt(move |signal| {
        crate::listen::leave(&group);
        std::process::exit(128 + signal);
    })
}

/// Does this on the first interrupt.
pub(crate) fn on_interrupt(first: impl FnOnce(i32) + Send + 'static) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut arrivals = signals.forever();
        if let Some(signal) = arrivals.next() {
            std::thread::spawn(move || first(signal));
        }
        if let Some(second) = arrivals.next() {
            std::process::exit(128 + second);
        }
    })?;
    Ok(())
}
