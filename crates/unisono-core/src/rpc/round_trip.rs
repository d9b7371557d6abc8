//! How long an answer takes, and how long to wait for one.

use core::time::Duration;

const PATIENCE_FIRST: Duration = Duration::from_millis(20);
const PATIENCE_MIN: Duration = Duration::from_millis(5);
/// Nobody waits longer before asking again.
pub(super) const PATIENCE_MAX: Duration = Duration::from_millis(250);

/// Jacobson's estimate: mean and deviation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip(Option<(Duration, Duration)>);

impl RoundTrip {
    /// Something that was sent once was answered after so long.
    pub(super) fn note(&mut self, sample: Duration) {
        self.0 = Some(match self.0 {
            None => (sample, sample / 2),
            Some((mean, deviation)) => ((mean * 7 + sample) / 8, (deviation * 3 + mean.abs_diff(sample)) / 4),
        });
    }

    /// How long to wait before asking again.
    pub(super) fn patience(&self) -> Duration {
        let Some((mean, deviation)) = self.0 else { return PATIENCE_FIRST };
        (mean + deviation * 4).clamp(PATIENCE_MIN, PATIENCE_MAX)
    }
}
