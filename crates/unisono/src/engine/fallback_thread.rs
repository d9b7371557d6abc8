//! The thread that sits when nobody else does, and that stands in for one whose lease is pinned.

use super::Engine;
use super::entering::engines;
use super::lease::{Deputy, OTHERS, Woken};
use super::turn::Sleeper;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use unisono_core::Time;

/// How late the kernel may wake this thread, so that it can wake it together with others; by default 50,000.
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

/// Returns what keeps others from entering until the engine is gone: who comes next finds its address free.
fn run(engine: &Engine) -> Option<impl Sized + use<>> {
    // Where this is refused, timers are a little later.
    let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NANOS));
    let mut deputy = Deputy::new();
    loop {
        let ready = engine.fallback.wait();
        let stood_in = if ready.keys().contains(&OTHERS) { stand_in(engine, &mut deputy) } else { None };
        let mut state = engine.lock_unless_broken()?;
        let mut now = engine.now();
        if let Some(woken) = stood_in {
            engine.note_woken(&mut state, woken);
            state.turn.note_elsewhere(deputy.inbox.len());
            state.take_in(now, &mut deputy.inbox);
            engine.settle(&mut state, now);
        }
        let takes_lease = ready.alarmed() && state.turn.alarmed(now);
        if !takes_lease && !state.is_empty() {
            engine.arrange(&mut state, now, false);
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
            let Some(mut sitting) = lease.take() else { break };
            if state.turn.claimed() {
                state.turn.leave(now, sitting);
                break;
            }
            let sleeper = Sleeper::new(None, Time::NEVER);
            (state, now) = engine.sit(state, &mut sitting, now, sleeper, Duration::ZERO)?;
            lease = Some(sitting);
        }
        engine.arrange(&mut state, now, true);
        engine.unlock(state);
    }
}

/// Reads what a pinned lease does not wait for. Between these times nothing here keeps a socket open. Nothing if another
/// thread broke the engine.
fn stand_in(engine: &Engine, deputy: &mut Deputy) -> Option<Woken> {
    let sockets = engine.lock_unless_broken()?.turn.sockets().clone();
    Some(deputy.read(&engine.watch, &sockets))
}
