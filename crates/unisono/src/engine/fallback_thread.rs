//! The thread that holds the I/O lease when no application thread waits, and that watches the other sockets while one
//! is pinned.

use super::Engine;
use super::entering::engines;
use super::lease::{FallbackReader, OTHERS, Woken};
use super::turn::Sleeper;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use unisono_core::Time;

/// How late the kernel may wake this thread, so that it can combine the wake with others, in nanoseconds. The system's
/// default is 50,000.
const TIMER_SLACK_NANOS: NonZeroU64 = NonZeroU64::new(1000).unwrap();

/// Starts the thread. It ends with the engine's last member.
pub(super) fn start(engine: Arc<Engine>) -> io::Result<()> {
    let work = move || {
        let entrance = run(&engine);
        drop(engine);
        drop(entrance);
    };
    thread::Builder::new().name("unisono".into()).spawn(work)?;
    Ok(())
}

/// Returns what keeps other members from entering until the engine is gone, so that the next one finds its address
/// free.
fn run(engine: &Engine) -> Option<impl Sized + use<>> {
    // Where this is refused, timers are a little later.
    let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NANOS));
    let mut reader = FallbackReader::new();
    loop {
        let ready = engine.fallback.wait();
        let read = if ready.keys().contains(&OTHERS) { read_unpinned(engine, &mut reader) } else { None };
        let mut state = engine.lock_unless_broken()?;
        let mut now = engine.now();
        if let Some(woken) = read {
            engine.note_woken(&mut state, woken);
            state.turn.note_elsewhere(reader.inbox.len());
            state.dispatch(now, &mut reader.inbox);
            engine.settle(&mut state, now);
        }
        let takes_lease = ready.alarmed() && state.turn.alarmed(now);
        if !takes_lease && !state.is_empty() {
            engine.pass_lease(&mut state, now, false);
            engine.unlock(state);
            continue;
        }
        let mut lease = state.turn.take(now, true);
        loop {
            engine.settle(&mut state, now);
            if state.is_empty() {
                engine.unlock(state);
                let entrance = engines();
                state = engine.lock_unless_broken()?;
                if state.is_empty() {
                    state.closed = true;
                    return Some(entrance);
                }
            }
            let Some(mut held) = lease.take() else { break };
            if state.turn.claimed() {
                state.turn.release(now, held);
                break;
            }
            let sleeper = Sleeper::new(None, Time::NEVER);
            (state, now) = engine.lead(state, &mut held, now, sleeper, Duration::ZERO)?;
            lease = Some(held);
        }
        engine.pass_lease(&mut state, now, true);
        engine.unlock(state);
    }
}

/// Reads what the holder of a pinned lease does not wait for. Between two calls this thread keeps no socket open.
/// `None` if another thread panicked in the engine.
fn read_unpinned(engine: &Engine, reader: &mut FallbackReader) -> Option<Woken> {
    let sockets = engine.lock_unless_broken()?.turn.sockets().clone();
    Some(reader.read(&engine.watch, &sockets))
}
