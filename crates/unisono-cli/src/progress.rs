//! Progress bars: on standard error, and only where a person looks.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar for `length` steps of what `what` names.
pub(crate) fn bar(length: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:24} [{bar:40}] {pos}/{len} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    ProgressBar::new(length).with_style(style).with_message(what)
}
