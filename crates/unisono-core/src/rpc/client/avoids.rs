//! Servers that a call avoids for a while, because they did not take it.

use super::locate::SERVERS_MAX;
use super::service::Pause;
use crate::identity::Uid;
use crate::time::Time;
use alloc::vec::Vec;

/// The servers that one call avoids, all until the same time.
#[derive(Debug)]
pub(in crate::rpc) struct Avoids {
    servers: Vec<Uid>,
    until: Time,
    /// Pause before the call goes back to servers that had no room for it.
    pause: Pause,
}

impl Avoids {
    pub(super) const NONE: Avoids = Avoids { servers: Vec::new(), until: Time::ZERO, pause: Pause::NONE };

    /// Avoids this server alone, until this time; with `None` no server.
    pub(super) fn set(&mut self, server: Option<(Uid, Time)>) {
        self.servers.clear();
        if let Some((server, until)) = server {
            self.servers.push(server);
            self.until = until;
        }
    }

    /// Notes that this server has no room for the call. All that had none are left alone for a pause, which is longer each time
    /// the call has gone round: so it tries each of them at once, and then waits.
    pub(super) fn note_busy(&mut self, now: Time, server: Uid) {
        if self.pause.is_none() || self.servers.contains(&server) || self.servers.len() >= SERVERS_MAX {
            self.servers.clear();
            self.pause.lengthen();
        }
        self.servers.push(server);
        self.until = now + self.pause.time();
    }

    /// Returns the servers to avoid now, and until when; `None` if there are none.
    pub(super) fn at(&self, now: Time) -> Option<(&[Uid], Time)> {
        (!self.servers.is_empty() && self.until > now).then_some((&*self.servers, self.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn a_call_goes_round_ever_later() {
        let (mut avoids, mut now) = (Avoids::NONE, Time::ZERO);
        let mut round = |avoids: &mut Avoids| {
            for server in 1..=3 {
                // As slow as a server may be, it is tried once in a round.
                now = now + Duration::from_secs(1);
                assert!(!avoids.at(now).is_some_and(|(servers, _)| servers.contains(&Uid(server))));
                avoids.note_busy(now, Uid(server));
            }
            let (servers, until) = avoids.at(now).unwrap();
            assert_eq!(servers, [1, 2, 3].map(Uid));
            until.since(now).as_millis()
        };
        assert_eq!([(); 8].map(|()| round(&mut avoids)), [5, 10, 20, 40, 80, 160, 200, 200]);
    }

    #[test]
    fn lives_that_come_and_go_are_not_remembered_for_ever() {
        let mut avoids = Avoids::NONE;
        (0..1000).for_each(|life| avoids.note_busy(Time::ZERO, Uid(life)));
        assert!(avoids.at(Time::ZERO).unwrap().0.len() <= SERVERS_MAX);
    }
}
