//! A service of one server, as a client knows it: how many calls it takes.
//!
//! A server's grant covers all its services together. A service that is full pushes back; then the client has no more
//! calls there than it took. After a while, which grows, the client tries one more.

use crate::identity::Port;
use crate::time::Time;
use crate::wire::SLOTS_MAX;
use core::time::Duration;

/// The pause after a server pushed back: 5 ms at first, doubled each time, 200 ms at most.
const BUSY_FIRST: Duration = Duration::from_millis(5);
const BUSY_MAX: Duration = Duration::from_millis(200);
/// After 16 calls taken since then, the service may have capacity for one more.
const GROWS_AFTER: u16 = 16;

/// A pause after servers pushed back, which grows each time.
#[derive(Debug)]
pub(super) struct Pause(Duration);

impl Pause {
    /// Before the first time.
    pub(super) const NONE: Pause = Pause(Duration::ZERO);

    pub(super) fn is_none(&self) -> bool {
        self.0.is_zero()
    }

    pub(super) fn lengthen(&mut self) {
        self.0 = (self.0 * 2).clamp(BUSY_FIRST, BUSY_MAX);
    }

    pub(super) fn time(&self) -> Duration {
        self.0
    }
}

#[derive(Debug)]
pub(super) struct Service {
    pub(super) port: Port,
    under_way: u16,
    /// Maximum number of calls under way there; no limit until it pushes back.
    limit: u16,
    /// Number of calls that it took since the limit changed.
    taken: u16,
    /// When one call above the limit may be tried.
    pub(super) try_at: Time,
    pause: Pause,
}

impl Service {
    pub(super) fn new(port: Port) -> Service {
        Service {
            port,
            under_way: 0,
            limit: SLOTS_MAX as u16,
            taken: 0,
            try_at: Time::ZERO,
            pause: Pause::NONE,
        }
    }

    /// True if it takes another call now.
    pub(super) fn has_capacity(&self, now: Time) -> bool {
        self.under_way < self.limit || self.try_at <= now
    }

    /// Notes that a call is sent there.
    pub(super) fn note_sent(&mut self, now: Time) {
        self.under_way += 1;
        if self.under_way > self.limit {
            // Only this one call is tried.
            self.limit = self.under_way;
            self.put_off(now);
        }
    }

    /// Notes that a call is no longer there.
    pub(super) fn note_gone(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Notes that it took a call.
    pub(super) fn note_taken(&mut self) {
        self.pause = Pause::NONE;
        if self.limit < SLOTS_MAX as u16 {
            self.taken += 1;
            if self.taken >= GROWS_AFTER {
                (self.limit, self.taken) = (self.limit + 1, 0);
            }
        }
    }

    /// Notes that it pushed back one of its calls.
    pub(super) fn note_busy(&mut self, now: Time) {
        (self.limit, self.taken) = (self.limit.min(self.under_way.saturating_sub(1)), 0);
        // Calls that were sent together are pushed back together.
        if self.try_at <= now {
            self.put_off(now);
        }
    }

    /// Is tried again as soon as at first, however often it pushes back.
    pub(super) fn hurry(&mut self) {
        self.pause = Pause::NONE;
    }

    fn put_off(&mut self, now: Time) {
        self.pause.lengthen();
        self.try_at = now + self.pause.time();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a service that was sent two calls together and took one.
    fn full() -> Service {
        let mut service = Service::new(Port(1));
        (0..2).for_each(|_| service.note_sent(Time::ZERO));
        push_back(&mut service, Time::ZERO);
        service
    }

    fn push_back(service: &mut Service, now: Time) {
        service.note_busy(now);
        service.note_gone();
    }

    /// Tries one call above the limit as soon as possible, in vain. Returns how long the service is then left alone.
    fn left_alone(service: &mut Service) -> Duration {
        let now = service.try_at;
        service.note_sent(now);
        push_back(service, now);
        service.try_at.since(now)
    }

    #[test]
    fn when_it_has_taken_some_it_may_have_one_more() {
        let mut service = full();
        for _ in 0..GROWS_AFTER {
            assert!(!service.has_capacity(Time::ZERO));
            service.note_taken();
        }
        assert!(service.has_capacity(Time::ZERO));
        service.note_sent(Time::ZERO);
        assert!(!service.has_capacity(Time::ZERO), "only one more");
    }

    #[test]
    fn it_is_tried_ever_later_until_it_takes_one() {
        let mut service = full();
        assert_eq!(service.try_at.since(Time::ZERO), BUSY_FIRST);
        assert_eq!([(); 2].map(|()| left_alone(&mut service)), [BUSY_FIRST * 2, BUSY_FIRST * 4]);
        service.note_taken();
        assert_eq!(left_alone(&mut service), BUSY_FIRST);
    }
}
