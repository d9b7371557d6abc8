//! No application works for nobody: a request is not handed out when the server knows that its client's time is over,
//! nor, where nothing disturbs them, when its client has cancelled it a while ago.

use super::Calls;
use crate::properties::ground::Ground;
use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{Kind, Record, What};
use std::time::Duration;
use unisono_core::Time;

/// An undisturbed network takes less than this to say that a call is cancelled.
const CANCELLED_WITHIN: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct NoLateHanding {
    ground: Ground,
    cancelled: Calls<Option<Time>>,
    checked: u64,
}

impl Property for NoLateHanding {
    fn name(&self) -> &'static str {
        "no_late_handing"
    }

    fn interests(&self) -> u64 {
        Kind::Healed.bit() | Kind::CallCancelled.bit() | Kind::Handed.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match record.what {
            What::CallCancelled { call } if self.ground.has(record.life) => {
                *self.cancelled.at(record.life, call) = Some(record.at);
            }
            What::Handed { client, call, is_late, .. } => {
                self.checked += 1;
                if is_late {
                    return broken(self, record, || "its time was over".into());
                }
                let cancelled = self.cancelled.get(client, call).copied().flatten();
                if let Some(at) = cancelled.filter(|at| *at + CANCELLED_WITHIN < record.at) {
                    return broken(self, record, || format!("it was cancelled at {at:?}"));
                }
            }
            _ => self.ground.follow(record),
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{CLIENT, SERVER, Story, handing};
    use super::*;

    #[test]
    fn takes_calls_in_time() {
        Story::of_calls().good(NoLateHanding::default());
    }

    #[test]
    fn rejects_what_is_late() {
        let mut story = Story::of_calls();
        if let What::Handed { is_late, .. } = &mut story.last(handing).what {
            *is_late = true;
        }
        story.bad(NoLateHanding::default());
    }

    #[test]
    fn rejects_what_was_cancelled_a_while_ago_when_all_is_well() {
        let mut story = Story::of_calls();
        let call = story.call(0);
        story.tell(CLIENT, What::CallCancelled { call });
        story.wait(2 * CANCELLED_WITHIN);
        story.hand(SERVER, call, 0);
        story.good(NoLateHanding::default());
        story.heal();
        let call = story.call(0);
        story.tell(CLIENT, What::CallCancelled { call });
        story.hand(SERVER, call, 0);
        story.good(NoLateHanding::default());
        let call = story.call(0);
        story.tell(CLIENT, What::CallCancelled { call });
        story.wait(2 * CANCELLED_WITHIN);
        story.hand(SERVER, call, 0);
        story.bad(NoLateHanding::default());
    }
}
