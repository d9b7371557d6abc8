//! The thread that sits when nobody else does.

use super::Engine;
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
    thread::Builder::new().name("unisono".into()).spawn(move || run(&engine))?;
    Ok(())
}

fn run(engine: &Engine) {
    // Where this is refused, timers are a little later.
    let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NANOS));
    loop {
        engine.alarm.bell().wait();
        engine.alarm.bell().silence();
        let Some(mut state) = engine.lock_unless_broken() else { return };
        let mut now = engine.now();
        if !state.turn.alarmed(now) && !state.is_empty() {
            engine.arrange(&mut state, now, false);
            engine.unlock(state);
            continue;
        }
        let mut seat = state.turn.take(now, true);
        loop {
            engine.settle(&mut state, now);
            if state.is_empty() {
                state.closed = true;
                return;
            }
            let Some(mut sitting) = seat.take() else { break };
            if state.turn.claimed() {
                state.turn.leave(now, sitting);
                break;
            }
            let risen = engine.sit(state, &mut sitting, now, Time::NEVER, Duration::ZERO);
            let Some(risen) = risen else { return };
            (state, now) = risen;
            seat = Some(sitting);
        }
        engine.arrange(&mut state, now, true);
        engine.unlock(state);
    }
}
