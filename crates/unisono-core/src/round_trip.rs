//! How long an answer takes: Jacobson's estimate, by mean and deviation.

use core::time::Duration;

/// The mean and the deviation of what was measured, if anything was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip(Option<(Duration, Duration)>);

impl RoundTrip {
    /// Something that was sent once was answered after so long.
    pub(crate) fn note(&mut self, sample: Duration) {
        self.0 = Some(match self.0 {
            None => (sample, sample / 2),
            Some((mean, deviation)) => ((mean * 7 + sample) / 8, (deviation * 3 + mean.abs_diff(sample)) / 4),
        });
    }

    pub(crate) fn mean(&self) -> Option<Duration> {
        self.0.map(|(mean, _)| mean)
    }

    /// Hardly any answer takes longer.
    pub(crate) fn most(&self) -> Option<Duration> {
        self.0.map(|(mean, deviation)| mean + deviation * 4)
    }
}
