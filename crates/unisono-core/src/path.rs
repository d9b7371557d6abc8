//! The path window: how many bytes the path to the sequencer and back carries, as the seqnos of own messages show.
//!
//! If more is under way than a path carries in one round trip, the rest only waits in a queue before its slowest part,
//! until that overflows. So the bytes under way are limited to what was seen to come back in a time, over the shortest
//! round trip seen and 40 ms. The queue stays short, and leaves room to others that use it. Nor may more wait than a
//! socket holds: on a fast path the socket is the queue. The rate counts, not the delay: a process that gets no
//! processor looks like a full queue by its delay, but many bytes then come back at once.

use core::time::Duration;

/// Minimum window in bytes: the first measurement may be wrong, and a few datagrams harm no path.
pub(crate) const PATH_WINDOW_MIN: u64 = 32 << 10;
/// Time that bytes under way may wait on the path beyond the shortest round trip: well below the 100 ms that queues of
/// slow links hold, and well above the time that a process waits for a busy processor.
const QUEUE_TIME_MAX: Duration = Duration::from_millis(40);
/// Divisor of a rate that is not reached any more: this part of it is forgotten with each round trip.
const RATE_MEMORY: u64 = 16;

/// What was measured of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// Maximum number of bytes that may wait in queues.
    queued_bytes_max: u64,
    /// Highest rate, in bytes per second, at which bytes came back lately.
    rate: u64,
    /// Shortest round trip.
    shortest: Option<Duration>,
    /// Maximum number of bytes under way; `None` before a round trip was measured.
    window: Option<u64>,
}

impl Path {
    /// Returns a path of which nothing is known. At most `queued_bytes_max` bytes are to wait in queues.
    pub(crate) fn new(queued_bytes_max: u64) -> Path {
        Path {
            queued_bytes_max: queued_bytes_max.max(PATH_WINDOW_MIN),
            rate: 0,
            shortest: None,
            window: None,
        }
    }

    /// Returns the same path without its measurements.
    pub(crate) fn afresh(&self) -> Path {
        Path::new(self.queued_bytes_max)
    }

    /// True once a round trip was measured.
    pub(crate) fn is_known(&self) -> bool {
        self.window.is_some()
    }

    /// Returns the maximum number of bytes under way.
    pub(crate) fn window(&self) -> u64 {
        self.window.unwrap_or(u64::MAX)
    }

    /// Notes that a message took `round_trip` to come back, and that `bytes` came back in that time. `is_full`: there
    /// was more to send than the window let out; otherwise few bytes came back because few were sent. `lateness`: how
    /// late processes were; the time for queues grows by it, at most to twice its length.
    pub(crate) fn note(&mut self, round_trip: Duration, bytes: u64, is_full: bool, lateness: Duration) {
        let nanos = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX).max(1);
        let rate = bytes.saturating_mul(1_000_000_000) / nanos;
        let remembered = if is_full { self.rate - self.rate / RATE_MEMORY } else { self.rate };
        self.rate = rate.max(remembered);
        let shortest = self.shortest.map_or(round_trip, |known| known.min(round_trip));
        let queued = self.carried_within(QUEUE_TIME_MAX + lateness.min(QUEUE_TIME_MAX));
        let carried = self.carried_within(shortest).saturating_add(queued.min(self.queued_bytes_max));
        if carried >= PATH_WINDOW_MIN {
            (self.shortest, self.window) = (Some(shortest), Some(carried));
        } else {
            // The minimum is under way and takes this long: the path is long, and the time is not spent in a queue of
            // ours.
            (self.shortest, self.window) = (Some(round_trip), Some(PATH_WINDOW_MIN));
        }
    }

    fn carried_within(&self, time: Duration) -> u64 {
        let carried = u128::from(self.rate) * time.as_nanos() / 1_000_000_000;
        u64::try_from(carried).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A path between large buffers.
    fn path() -> Path {
        Path::new(4 << 20)
    }

    /// A path with this rate and this round trip, on which always as much is under way as may be.
    fn filled(bytes_per_s: u64, empty: Duration, mut path: Path, rounds: u32) -> (Path, Duration) {
        let mut took = empty;
        for _ in 0..rounds {
            let under_way = path.window().min(4 << 20);
            took = empty.max(Duration::from_nanos(under_way * 1_000_000_000 / bytes_per_s));
            path.note(took, under_way, true, Duration::ZERO);
        }
        (path, took)
    }

    #[test]
    fn on_a_slow_path_little_waits() {
        let mut path = path();
        path.note(2 * MS, 1500, true, Duration::ZERO);
        let (path, took) = filled(1_250_000, 2 * MS, path, 100);
        assert!(took < 45 * MS && took > 30 * MS, "{took:?}");
        assert!((45_000..60_000).contains(&path.window()), "{path:?}");
    }

    #[test]
    fn a_fast_or_a_long_path_is_filled() {
        for (bytes_per_s, empty) in [(1_000_000_000, MS / 10), (100_000_000, 30 * MS), (20_000_000, 100 * MS)]
        {
            let mut path = path();
            path.note(empty, PATH_WINDOW_MIN, true, Duration::ZERO);
            let (path, _) = filled(bytes_per_s, empty, path, 100);
            let needed = (bytes_per_s as f64 * empty.as_secs_f64()) as u64;
            assert!(path.window() >= needed, "{path:?} on {bytes_per_s} bytes/s, {empty:?}");
        }
    }

    #[test]
    fn a_path_that_became_long_is_filled_again() {
        let (path, _) = filled(10_000_000, MS, path(), 50);
        let (path, _) = filled(10_000_000, 200 * MS, path, 1000);
        assert!(path.window() >= 2_000_000, "{path:?}");
    }

    #[test]
    fn sending_little_does_not_shrink_the_window() {
        let mut path = path();
        path.note(MS, 100_000, true, Duration::ZERO);
        let window = path.window();
        for _ in 0..1000 {
            path.note(MS, 100, false, Duration::ZERO);
        }
        assert!(path.window() >= window);
    }

    #[test]
    fn a_starved_process_is_no_queue() {
        let (mut path, _) = filled(500_000_000, MS / 10, path(), 50);
        // Every tenth round trip waits for a processor.
        for round in 0..1000 {
            let took = if round % 10 == 0 { 60 * MS } else { MS };
            path.note(took, 500_000, true, Duration::ZERO);
        }
        assert!(path.window() >= 4 << 20, "{path:?}");
    }
}
