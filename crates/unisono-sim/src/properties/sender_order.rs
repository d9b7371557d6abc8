//! G4, sender order: the messages of one sender are delivered in the order in which it sent them, without omissions.
//! Its leave comes after all of them, unless the group has fewer members than its minimum: then they fail. Messages that were reported *failed* to their sender are left out. A joiner
//! does not receive messages from before its join.
//!
//! A reset may keep an unordered message that was delivered early, and fail earlier ones of its sender. Any other message that
//! comes later shows that they have failed.

use super::streams::Messages;
use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, broken};
use crate::record::{End, Kind, Life, Record, What};
use std::collections::BTreeMap;
use unisono_core::{MessageNumber, Outcome, Quality, Seqno};

#[derive(Clone, Copy, Debug, Default)]
struct Message {
    /// Number of its sender's message before it; 0 for the first.
    previous: MessageNumber,
    /// Seqno at which it was delivered; 0 for not yet.
    seqno: Seqno,
    sent: bool,
    failed: bool,
    /// It is unordered.
    unordered: bool,
    /// A reset put it before its event, because it had been delivered early.
    in_tail: bool,
}

/// A message that a joiner did not deliver, and whose seqno must be below its join.
#[derive(Clone, Copy, Debug)]
struct Earlier {
    joiner: Life,
    entered: Seqno,
    sender: Life,
    number: MessageNumber,
}

/// The checker of `sender_order`.
#[derive(Debug, Default)]
pub(super) struct SenderOrder {
    messages: Messages<Message>,
    /// Last number that each life sent.
    sent: Table<MessageNumber>,
    /// By life and sender, the last number delivered.
    delivered: Table<Table<MessageNumber>>,
    earlier: Vec<Earlier>,
    /// By life and sender, numbers that are left out before messages that a reset kept.
    holes: BTreeMap<(Life, Life), Vec<MessageNumber>>,
    /// Minimum number of members with which messages are ordered.
    members_min: usize,
    checked: u64,
}

impl SenderOrder {
    pub(super) fn new(terms: &GroupTerms) -> SenderOrder {
        SenderOrder { members_min: terms.config.members_min.into(), ..SenderOrder::default() }
    }

    /// `life` entered at `entered`, has delivered the sender's messages through `last`, and now needs to have
    /// delivered those through `previous`. Returns a fault if it has not. `kept` is the message that it delivers now.
    fn left_out(
        &mut self,
        life: Life,
        entered: Seqno,
        sender: Life,
        last: MessageNumber,
        mut previous: MessageNumber,
        kept: Option<Message>,
    ) -> Option<String> {
        let may_leave_out = |missing: &Message| {
            kept.is_some_and(|kept| kept.in_tail && (kept.unordered || missing.unordered))
        };
        while previous != last {
            let missing = self.messages.get(sender, previous).copied().unwrap_or_default();
            if previous < last {
                return Some(format!("number {last} was delivered before it"));
            } else if missing.failed {
                previous = missing.previous;
            } else if may_leave_out(&missing) {
                self.holes.entry((life, sender)).or_default().push(previous);
                previous = missing.previous;
            } else if last == 0 && entered > 0 {
                self.earlier.push(Earlier { joiner: life, entered, sender, number: previous });
                return None;
            } else {
                return Some(format!("number {previous} was left out"));
            }
        }
        None
    }

    /// `life` delivers this message of the sender. Returns a fault if one was left out before that may not be.
    #[cold]
    fn fill(&mut self, life: Life, entered: Seqno, sender: Life, message: Message) -> Option<String> {
        if message.in_tail && message.unordered {
            return None;
        }
        let holes = self.holes.get_mut(&(life, sender))?;
        for number in std::mem::take(holes) {
            let missing = self.messages.get(sender, number).copied().unwrap_or_default();
            if missing.failed {
                continue;
            }
            if message.in_tail && missing.unordered {
                self.holes.entry((life, sender)).or_default().push(number);
            } else if entered > 0 {
                self.earlier.push(Earlier { joiner: life, entered, sender, number });
            } else {
                return Some(format!("number {number} was left out"));
            }
        }
        None
    }
}

impl Property for SenderOrder {
    fn name(&self) -> &'static str {
        "sender_order"
    }

    fn interests(&self) -> u64 {
        Kind::Sent.bit()
            | Kind::SendResult.bit()
            | Kind::Delivered.bit()
            | Kind::Tail.bit()
            | Kind::Left.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Sent { number, quality, .. } => {
                let last = self.sent.at(record.life);
                let previous = std::mem::replace(last, number);
                if number <= previous {
                    return broken(self, record, || {
                        format!("number {number} was sent after number {previous}")
                    });
                }
                if let Some(message) = self.messages.at(record.life, number) {
                    let unordered = quality == Quality::UNORDERED;
                    *message = Message { previous, sent: true, unordered, ..*message };
                }
            }
            What::SendResult { number, outcome: Outcome::Failed } => {
                if let Some(message) = self.messages.at(record.life, number) {
                    message.failed = true;
                }
            }
            What::Tail { sender, number, seqno, .. } => {
                if let Some(message) = self.messages.at(sender, number) {
                    (message.in_tail, message.seqno) = (true, seqno);
                }
            }
            What::Delivered { seqno, sender, number, .. } => {
                self.checked += 1;
                let last = std::mem::replace(self.delivered.at(record.life).at(sender), number);
                let Some(message) = self.messages.at(sender, number) else { return Ok(()) };
                if !message.sent {
                    return Ok(());
                }
                // A member that was cut off may have it at a seqno that the reset has dropped.
                if !message.in_tail {
                    message.seqno = seqno;
                }
                let (message, previous) = (*message, message.previous);
                let entered = facts.stream(record.life).entered;
                if previous != last
                    && let Some(fault) =
                        self.left_out(record.life, entered, sender, last, previous, Some(message))
                {
                    return broken(self, record, || fault);
                }
                if !self.holes.is_empty()
                    && let Some(fault) = self.fill(record.life, entered, sender, message)
                {
                    return broken(self, record, || fault);
                }
            }
            // Its messages would wait for more members.
            What::Left { .. } if facts.before().view.len() < self.members_min => {}
            What::Left { member, .. } => {
                let last = *self.delivered.at(record.life).at(member);
                let sent = *self.sent.at(member);
                let entered = facts.stream(record.life).entered;
                if let Some(fault) = self.left_out(record.life, entered, member, last, sent, None) {
                    return broken(self, record, || fault);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        for Earlier { joiner, entered, sender, number } in &self.earlier {
            let message = self.messages.get(*sender, *number).copied().unwrap_or_default();
            if message.seqno > *entered {
                let what = format!(
                    "{joiner:?}, which joined at {entered}, left out number {number} of {sender:?} at {}",
                    message.seqno
                );
                return Err(Violation { property: self.name(), at: end.at, what });
            }
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::{Fixture, delivery};

    fn good() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        (0..3).for_each(|_| _ = fixture.message(Life(1)));
        fixture.join();
        (0..3).for_each(|_| _ = fixture.message(Life(1)));
        let lost = fixture.send(Life(1));
        fixture.order(Life(1), lost);
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2), Life(3)]);
        fixture.message(Life(1));
        fixture
    }

    #[test]
    fn accepts_each_senders_order() {
        good().good(SenderOrder::default());
    }

    #[test]
    fn rejects_a_message_left_out() {
        let mut fixture = Fixture::of(3, 1);
        (0..3).for_each(|_| _ = fixture.message(Life(1)));
        let second = fixture.records.iter().position(delivery(Life(2))).unwrap() + 3;
        let second =
            second - 3 + fixture.records[second - 2..].iter().position(delivery(Life(2))).unwrap() + 1;
        fixture.records.remove(second);
        fixture.bad(SenderOrder::default());
    }

    #[test]
    fn rejects_messages_in_another_order() {
        let mut fixture = Fixture::of(3, 1);
        let (first, second) = (fixture.send(Life(1)), fixture.send(Life(1)));
        fixture.order(Life(1), second);
        fixture.order(Life(1), first);
        fixture.deliver_all();
        fixture.bad(SenderOrder::default());
    }

    #[test]
    fn rejects_a_leave_that_overtakes_a_message() {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.send(Life(1));
        fixture.leave(Life(1));
        fixture.bad(SenderOrder::default());
    }

    #[test]
    fn accepts_a_leave_after_messages_that_failed() {
        let mut fixture = Fixture::of(4, 1);
        fixture.send(Life(1));
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2), Life(3)]);
        fixture.message(Life(1));
        fixture.leave(Life(1));
        fixture.good(SenderOrder::default());
    }

    #[test]
    fn rejects_a_joiner_that_omits_its_first_message() {
        let mut fixture = Fixture::of(2, 1);
        fixture.message(Life(1));
        let joiner = fixture.join();
        fixture.message(Life(1));
        fixture.message(Life(1));
        let first = fixture.records.iter().position(delivery(joiner)).unwrap();
        fixture.records.remove(first);
        fixture.bad(SenderOrder::default());
    }

    #[test]
    fn rejects_an_omission_across_a_reset_without_a_failure() {
        let mut fixture = good();
        fixture
            .records
            .retain(|record| !matches!(record.what, What::SendResult { outcome: Outcome::Failed, .. }));
        fixture.bad(SenderOrder::default());
    }
}
