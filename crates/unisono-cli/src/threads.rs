//! Threads of a command, which the system may refuse.

use anyhow::Context;

/// Begins a thread that ends by itself, or with the process.
pub(crate) fn start(name: impl Into<String>, work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let started = std::thread::Builder::new().name(name.into()).spawn(work);
    started.map(drop).context("cannot start a thread")
}
