//! Verdicts: which of two groups of one name gives way, and how all members of both learn the same.
//!
//! The group that has ordered fewer events gives way; of two with as many, the one with the larger instance. Both
//! groups may be ordering, so two members that compare at different moments may disagree. Therefore one of them
//! decides: the member that asked compares when the answer comes, and sends its verdict (`Met`) to its own members and to
//! the member that answered, which passes it on to its group. A verdict names the counts that were compared, and keeps
//! them for as long as it is repeated. A member keeps the first verdict that it learns.
//!
//! A verdict may be lost, and a member that does not know it decides anew. By then the other group may have ordered
//! more, so that each group takes the other for the one to give way, and both stay for ever. So there is one exception:
//! a member of the group with the larger instance that has taken the other group for the one to give way changes its
//! mind if the other group says the opposite. A group that was told to give way is never told to stay, since its
//! members may be leaving already. Usually the two groups disagree because the words of one do not arrive; so a member
//! that answers a question, and keeps a verdict opposite to the one that follows, sends its own to the member that
//! asked.

use crate::episode::Episode;
use crate::event::Event;
use crate::group::{Group, Phase};
use crate::identity::{Instance, Seqno, Uid};
use crate::planted::{Planted, Probe};
use crate::time::Time;
use crate::wire::{Frame, HereIs, Met};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::net::SocketAddr;

/// Number of other groups that are remembered.
const OTHERS_MAX: usize = 16;

/// What was decided about this group and another one.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    /// Number of events that this group and the other had ordered when it was decided.
    ours: Seqno,
    theirs: Seqno,
    /// True if this member's group is the one to give way.
    gives_way: bool,
    /// True if the other group has said so.
    from_other: bool,
}

/// Another group of this port.
#[derive(Clone, Copy, Debug)]
struct Other {
    instance: Instance,
    verdict: Verdict,
    /// Whether this group gives way, as the application was told in the last `Conflict` for that group.
    told: Option<bool>,
    /// Cookie of the last verdict that was passed on for that group.
    passed_on: u64,
}

/// What a member knows of other groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdicts {
    /// The latest last.
    others: Vec<Other>,
}

impl Verdicts {
    /// Takes note of a verdict about `instance`, and returns what is known of that group from now on. `goes_first` is
    /// true if this group has the smaller instance.
    fn learn(&mut self, instance: Instance, heard: Verdict, goes_first: bool) -> Option<&mut Other> {
        let Some(index) = self.others.iter().position(|other| other.instance == instance) else {
            if self.others.len() == OTHERS_MAX {
                self.others.remove(0);
            }
            self.others.push(Other { instance, verdict: heard, told: None, passed_on: 0 });
            return self.others.last_mut();
        };
        let other = self.others.get_mut(index)?;
        if other.verdict.gives_way == heard.gives_way {
            other.verdict.from_other |= heard.from_other;
        } else if heard.gives_way && heard.from_other && !goes_first {
            other.verdict = heard;
        }
        Some(other)
    }
}

impl Group {
    /// Compares this group with the one that answered, and sends the verdict to the members of both.
    pub(super) fn decide_conflict(&mut self, from: SocketAddr, here: HereIs) {
        let verdict = Verdict {
            ours: self.log.accepted(),
            theirs: here.ordered,
            gives_way: self.is_to_give_way(here.ordered, here.instance),
            from_other: false,
        };
        let Some(other) = self.learn(here.instance, verdict) else { return };
        let verdict = other.verdict;
        self.pass_on(here.instance, verdict, from);
        if !self.broken(Planted::ConflictUntold) {
            self.tell_other_group(here.cookie, verdict, from);
        }
    }

    /// Handles the verdict of another group. Its cookie shows that it is no copy of an earlier one, and that it comes
    /// from the member that asked and got the cookie from this one, or from one that answered this one's question.
    pub(crate) fn handle_verdict(&mut self, now: Time, from: SocketAddr, sender: Uid, met: Met) {
        if self.phase != Phase::Member || met.instance == self.instance {
            return;
        }
        let is_of_answerer =
            self.seek.as_ref().is_some_and(|seek| seek.was_answered_with(met.instance, met.cookie));
        if !is_of_answerer && !self.admission.cookie_is_good(now, sender, from, met.cookie) {
            return;
        }
        let heard = Verdict { from_other: true, ..Verdict::of(&met) };
        let Some(other) = self.learn(met.instance, heard) else { return };
        if core::mem::replace(&mut other.passed_on, met.cookie) == met.cookie {
            return;
        }
        let verdict = other.verdict;
        self.pass_on(met.instance, verdict, from);
        if !is_of_answerer && heard.gives_way && !verdict.gives_way {
            self.tell_other_group(met.cookie, verdict, from);
        }
    }

    /// Handles the verdict that another member of this group knows.
    pub(crate) fn handle_met(&mut self, met: &Met) {
        if met.instance != self.instance && self.learn(met.instance, Verdict::of(met)).is_some() {
            self.report_conflict(met.instance, met.address);
        }
    }

    /// Reports a verdict to this member's application and to the other members. The other group has a member at this
    /// address.
    fn pass_on(&mut self, instance: Instance, verdict: Verdict, address: SocketAddr) {
        self.report_conflict(instance, address);
        if !self.broken(Planted::ConflictUntold) {
            // A cookie is for one receiver alone.
            self.post_to_each(&Frame::Met(verdict.frame(0, instance, address)));
        }
    }

    /// Sends a verdict to the other group's member that this cookie belongs to.
    fn tell_other_group(&mut self, cookie: u64, verdict: Verdict, to: SocketAddr) {
        let met = verdict.of_other().frame(cookie, self.instance, self.me.address);
        self.post_outside(to, Frame::Met(met));
    }

    fn learn(&mut self, instance: Instance, heard: Verdict) -> Option<&mut Other> {
        let goes_first = self.goes_first(instance);
        self.seek.as_mut()?.verdicts.learn(instance, heard, goes_first)
    }

    /// True if this group is to give way to `other`, which has ordered this number of events.
    fn is_to_give_way(&self, ordered: Seqno, other: Instance) -> bool {
        match self.log.accepted().cmp(&ordered) {
            _ if self.broken(Planted::GivesWayByLot) => !self.goes_first(other),
            Ordering::Equal => !self.goes_first(other),
            order => order == Ordering::Less,
        }
    }

    /// Reports a `Conflict` to the application, once for each other group and verdict: another group of this port has a
    /// member at this address, and neither can give way.
    fn report_conflict(&mut self, instance: Instance, address: SocketAddr) {
        let waits = self.notices.iter().any(|notice| matches!(notice, Event::Conflict { .. }));
        // Notices lie between an application's first event and its last.
        let is_in =
            matches!(self.phase, Phase::Member | Phase::Resetting) && self.log.delivered() >= self.entered_at;
        let Some(seek) = &mut self.seek else { return };
        let Some(other) = seek.verdicts.others.iter_mut().find(|other| other.instance == instance) else {
            return;
        };
        let Verdict { gives_way, theirs: other_ordered, .. } = other.verdict;
        if other.told == Some(gives_way) || waits || !is_in {
            return;
        }
        other.told = Some(gives_way);
        self.probe(Probe::ConflictTold);
        self.episodes.push(Episode::Conflict { address, gives_way, other_ordered });
        self.notices.push_back(Event::Conflict { address, gives_way, other_ordered });
    }
}

impl Verdict {
    /// Returns the verdict in a frame, from its receiver's side.
    fn of(met: &Met) -> Verdict {
        let Met { ordered, ordered_here, gives_way, from_other, .. } = *met;
        Verdict { ours: ordered_here, theirs: ordered, gives_way, from_other }
    }

    /// Returns the verdict from the other group's side. To that group it comes from another one.
    fn of_other(self) -> Verdict {
        Verdict { ours: self.theirs, theirs: self.ours, gives_way: !self.gives_way, from_other: true }
    }

    /// Returns the frame that reports it to members of the group on whose side it is.
    fn frame(self, cookie: u64, instance: Instance, address: SocketAddr) -> Met {
        let Verdict { ours: ordered_here, theirs: ordered, gives_way, from_other } = self;
        Met { cookie, instance, ordered, ordered_here, gives_way, from_other, address }
    }
}
