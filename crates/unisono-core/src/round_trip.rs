//! Round trip times: Jacobson's estimate, with mean and deviation.

use core::time::Duration;

/// Mean and deviation of what was measured; `None` before the first measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip(Option<(Duration, Duration)>);

impl RoundTrip {
    /// Notes that a datagram that was sent once was answered after `sample`.
    pub(crate) fn note(&mut self, sample: Duration) {
        self.0 = Some(match self.0 {
            None => (sample, sample / 2),
            Some((mean, deviation)) => ((mean * 7 + sample) / 8, (deviation * 3 + mean.abs_diff(sample)) / 4),
        });
    }

    pub(crate) fn mean(&self) -> Option<Duration> {
        self.0.map(|(mean, _)| mean)
    }

    /// Returns a time that hardly any answer exceeds.
    pub(crate) fn most(&self) -> Option<Duration> {
        self.0.map(|(mean, deviation)| mean + deviation * 4)
    }
}
