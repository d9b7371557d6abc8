//! Reports progress of long work on standard error: progress bars on a terminal, and messages.

use crate::output::{BARS, tell};
use crate::threads;
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Display;
use std::sync::mpsc::{self, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

/// Shows a progress bar of `length` steps. `what` names what the steps count.
pub(crate) fn bar(length: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:24} [{bar:40}] {pos}/{len} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    BARS.add(ProgressBar::new(length).with_style(style).with_message(what))
}

/// Shows a count of what `what` names, for work whose total is not known.
pub(crate) fn count(what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:24} {human_pos} {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    BARS.add(ProgressBar::no_length().with_style(style).with_message(what))
}

/// Prints `words` if the work takes longer than `patience`, until the caller drops the returned value; they are asked for then,
/// and may take long. Prints nothing if the work is over by then, or the system refuses a thread for that.
pub(crate) fn tell_if_long<W: Display>(
    patience: Duration,
    words: impl FnOnce() -> W + Send + 'static,
) -> Sender<()> {
    let (under_way, over) = mpsc::channel();
    let _ = threads::start("progress", move || {
        if over.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            let words = words();
            if over.try_recv() == Err(TryRecvError::Empty) {
                tell(words);
            }
        }
    });
    under_way
}
