//! Starts threads, with an error if the system refuses one.

use anyhow::Context;

/// Starts a thread that no other thread waits for.
pub(crate) fn start(name: impl Into<String>, work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let started = std::thread::Builder::new().name(name.into()).spawn(work);
    started.map(drop).context("cannot start a thread")
}
