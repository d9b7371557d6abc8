//! The thread that takes the requests of callers at one port, from life to life.

use super::StateMachine;
use super::copy::Copy;
use super::life::Life;
use super::waits::block_on;
use crate::engine::Listed;
use crate::rpc::{PrivatePort, ServeOptions, Server, ServiceError};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Interval at which replies are freed that clients need no more.
const TIDIES_EVERY: Duration = Duration::from_millis(500);
/// Pause before a port is tried again that could not be served in a later life.
const SERVE_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Begins to serve a port in this life.
pub(super) fn begin(life: &Life, port: &PrivatePort) -> Result<Server, ServiceError> {
    let serve = ServeOptions { repeats: true, instance: life.instance(), ..ServeOptions::default() };
    let server = Server::beside(&life.group, port, serve)?;
    // If the life is over, the server is withdrawn, which its user notices.
    life.add(&server);
    Ok(server)
}

/// Takes requests until the replica has ended. `first` is the server of the present life, if there is one.
pub(super) fn serve<S: StateMachine>(copy: &Copy<S>, port: &PrivatePort, first: Option<(u64, Server)>) {
    let mut lives = 0;
    if let Some((number, server)) = first {
        lives = number;
        take(copy, &server);
    }
    while let Some((number, life)) = informed_life(copy, lives) {
        match begin(&life, port) {
            Ok(server) => {
                lives = number;
                drop(life);
                take(copy, &server);
            }
            Err(_) => pause(copy),
        }
    }
}

/// Blocks until this member has the state in a life after the one with this number.
fn informed_life<S: StateMachine>(copy: &Copy<S>, served: u64) -> Option<(u64, Arc<Life>)> {
    let mut listed = Listed::default();
    block_on(None, |context| {
        let mut state = copy.lock();
        if state.end.is_some() || state.is_closing {
            return Poll::Ready(None);
        }
        match &state.life {
            Some(life) if state.lives != served && state.is_informed() => {
                Poll::Ready(Some((state.lives, life.clone())))
            }
            _ => {
                state.register(context, &mut listed);
                Poll::Pending
            }
        }
    })?
}

fn pause<S: StateMachine>(copy: &Copy<S>) {
    let mut listed = Listed::default();
    block_on(Some(Instant::now() + SERVE_AGAIN_AFTER), |context| {
        let mut state = copy.lock();
        state.register(context, &mut listed);
        if state.end.is_some() || state.is_closing { Poll::Ready(()) } else { Poll::Pending }
    });
}

/// Takes requests, and what clients say of the replies that they need no more, until the service is withdrawn.
fn take<S: StateMachine>(copy: &Copy<S>, server: &Server) {
    let mut tidied = Instant::now();
    while let Ok(request) = server.get_request_timeout(TIDIES_EVERY) {
        if let Some(request) = request {
            copy.step(|state, now| state.take_request(now, request));
        }
        if tidied.elapsed() >= TIDIES_EVERY {
            tidied = Instant::now();
            tidy(copy, server);
        }
    }
}

fn tidy<S: StateMachine>(copy: &Copy<S>, server: &Server) {
    let finished = server.finished();
    if !finished.is_empty() {
        copy.step(|state, now| {
            for (client, below) in finished {
                state.copy_mut().into_iter().for_each(|copy| copy.handle_finished(now, client, below));
            }
        });
    }
}
