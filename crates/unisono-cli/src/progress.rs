//! What people are told while something takes long, on standard error: progress bars only where a person looks.

use crate::output::{BARS, tell};
use crate::threads;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// A bar for `length` steps of what `what` names.
pub(crate) fn bar(length: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:24} [{bar:40}] {pos}/{len} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    BARS.add(ProgressBar::new(length).with_style(style).with_message(what))
}

/// How many of what `what` names there are so far, where nobody knows how many there will be.
pub(crate) fn count(what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:24} {human_pos} {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    BARS.add(ProgressBar::no_length().with_style(style).with_message(what))
}

/// Tells these words if what follows takes longer than this, and if there is a thread to wait for that. It is over when what
/// is returned is dropped.
pub(crate) fn tell_if_long(patience: Duration, words: String) -> Sender<()> {
    let (under_way, over) = mpsc::channel();
    let _ = threads::start("progress", move || {
        if over.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            tell(words);
        }
    });
    under_way
}
