//! Servers that a call avoids for a while, because they did not take it.

use super::locate::SERVERS_MAX;
use super::service::Pause;
use crate::identity::Uid;
use crate::time::Time;
use alloc::vec::Vec;

/// The servers that one call avoids.
#[derive(Debug)]
pub(in crate::rpc) struct Avoids {
    /// One that passed the call on or is lost, until this time.
    lost: Option<(Uid, Time)>,
    /// Those that had no room for it, all until the same time.
    busy: Vec<Uid>,
    busy_until: Time,
    /// Pause before the call goes back to them.
    pause: Pause,
}

impl Avoids {
    pub(super) const NONE: Avoids =
        Avoids { lost: None, busy: Vec::new(), busy_until: Time::ZERO, pause: Pause::NONE };

    /// Notes the server that passed the call on or is lost, and until when it is avoided.
    pub(super) fn note_lost(&mut self, server: Option<(Uid, Time)>) {
        self.lost = server;
    }

    /// Notes that this server has no room for the call. All that had none are left alone for a pause, which is longer each time
    /// the call has gone round: so it tries each of them at once, and then waits.
    pub(super) fn note_busy(&mut self, now: Time, server: Uid) {
        if self.pause.is_none() || self.busy.contains(&server) || self.busy.len() >= SERVERS_MAX {
            self.busy.clear();
            self.pause.lengthen();
        }
        self.busy.push(server);
        self.busy_until = now + self.pause.time();
    }

    /// True if the call avoids this server now.
    pub(super) fn has(&self, now: Time, server: Uid) -> bool {
        let is_lost = self.lost.is_some_and(|(lost, until)| lost == server && until > now);
        is_lost || self.busy_until > now && self.busy.contains(&server)
    }

    /// Returns when it avoids fewer servers; `None` if it avoids none now.
    pub(super) fn until(&self, now: Time) -> Option<Time> {
        let lost_until = self.lost.map_or(Time::ZERO, |(_, until)| until);
        [lost_until, self.busy_until].into_iter().filter(|until| *until > now).min()
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
                assert!(!avoids.has(now, Uid(server)));
                avoids.note_busy(now, Uid(server));
            }
            assert!((1..=3).all(|server| avoids.has(now, Uid(server))));
            avoids.until(now).unwrap().since(now).as_millis()
        };
        assert_eq!([(); 8].map(|()| round(&mut avoids)), [5, 10, 20, 40, 80, 160, 200, 200]);
    }

    #[test]
    fn a_server_without_room_does_not_shorten_how_long_a_lost_one_is_avoided() {
        let (mut avoids, now) = (Avoids::NONE, Time::ZERO);
        let after = |millis| now + Duration::from_millis(millis);
        let lengths = [(); 3].map(|()| {
            avoids.note_lost(Some((Uid(1), after(350))));
            avoids.note_busy(now, Uid(2));
            assert!(avoids.has(after(300), Uid(1)) && !avoids.has(after(350), Uid(1)));
            avoids.until(now).unwrap()
        });
        assert_eq!(lengths, [5, 10, 20].map(after));
        assert_eq!((avoids.until(after(20)), avoids.until(after(350))), (Some(after(350)), None));
    }

    #[test]
    fn lives_that_come_and_go_are_not_remembered_for_ever() {
        let mut avoids = Avoids::NONE;
        (0..1000).for_each(|life| avoids.note_busy(Time::ZERO, Uid(life)));
        assert!(avoids.busy.len() <= SERVERS_MAX);
    }
}
