//! The members of the group at the present seqno, and how a view is printed: `[sequencer|epoch] (n) [a, b, c]`.

use crate::output::{several, visible};
use unisono::{EpochId, Event, Member, Uid, View};

/// The view, kept up to date by the events of the group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster {
    /// None until this member has entered the group.
    view: Option<View>,
}

impl Roster {
    /// Applies an event to the view. True if the event changed it.
    pub(crate) fn follow(&mut self, event: &Event) -> bool {
        if let (None, Event::Entered { view, .. }) = (&self.view, event) {
            self.view = Some(view.clone());
        }
        self.view.as_mut().is_some_and(|view| view.follow(event))
    }

    /// Returns how many members have to go on after a crash, because one of them asks for that many; 0 if none does.
    pub(crate) fn floor(&self) -> usize {
        floor(self.members())
    }

    fn members(&self) -> &[Member] {
        self.view.as_ref().map_or(&[], |view| &view.members)
    }

    /// Returns the number of members.
    pub(crate) fn len(&self) -> usize {
        self.members().len()
    }

    /// Returns the uid of the sequencer.
    pub(crate) fn sequencer(&self) -> Uid {
        self.view.as_ref().map_or(Uid::default(), |view| view.sequencer)
    }

    /// Returns a member's name; its uid if it has no name.
    pub(crate) fn name(&self, uid: Uid) -> String {
        label(self.members(), uid)
    }

    /// Returns the view as people read it.
    pub(crate) fn view(&self) -> String {
        let epoch = self.view.as_ref().map_or(EpochId::default(), |view| view.epoch);
        view(&epoch, self.sequencer(), self.members(), 0)
    }
}

/// Returns `[sequencer|epoch] (n) [a, b, c]`, or `[a, b and 7 more]` if `omitted` members are not among `members`. A
/// group whose last member has left has no sequencer: `none`.
pub(crate) fn view(epoch: &EpochId, sequencer: Uid, members: &[Member], omitted: usize) -> String {
    if members.is_empty() {
        return format!("[none|{epoch}] (0) []");
    }
    let names: Vec<String> = members.iter().map(|member| distinct(members, member.uid)).collect();
    let more = if omitted > 0 { format!(" and {omitted} more") } else { String::new() };
    let count = names.len() + omitted;
    format!("[{}|{epoch}] ({count}) [{}{more}]", distinct(members, sequencer), names.join(", "))
}

/// Returns how many of these members, a whole view, have to go on after a crash, because one of them asks for that many; 0 if
/// none does.
pub(crate) fn floor(members: &[Member]) -> usize {
    members.iter().map(|member| member.floor.of(members.len())).max().unwrap_or(0)
}

/// Says that a member asks for at least this many members.
pub(crate) fn words_of_floor(floor: usize) -> String {
    format!("a member asks for at least {} (floor)", several(floor as u64, "member"))
}

/// Returns a member's name; its uid if it has no name.
fn label(members: &[Member], uid: Uid) -> String {
    match members.iter().find(|member| member.uid == uid) {
        Some(member) if !member.name.as_str().is_empty() => visible(member.name.as_str()).into_owned(),
        _ => uid.to_string(),
    }
}

/// Number of digits of the uid that are printed to distinguish members of the same name.
const DIGITS: usize = 4;

/// Returns a member's name for people: `ann·3f2a`, with the first digits of its uid, if another member has the same
/// name.
pub(crate) fn distinct(members: &[Member], uid: Uid) -> String {
    let label = label(members, uid);
    let name = members.iter().find(|member| member.uid == uid).map(|member| &member.name);
    let others = members.iter().filter(|member| member.uid != uid);
    match name.filter(|name| !name.as_str().is_empty()) {
        Some(name) if others.map(|other| &other.name).any(|other| other == name) => {
            format!("{label}·{}", &uid.to_string()[..DIGITS])
        }
        _ => label,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono::Name;

    fn member(uid: u64, name: &str) -> Member {
        Member {
            uid: Uid(uid),
            name: Name::new(name).unwrap_or_default(),
            address: "127.0.0.1:1".parse().unwrap(),
            floor: Default::default(),
            hops: 1,
        }
    }

    #[test]
    fn a_view_is_printed_for_people_and_follows_the_events() {
        let mut roster = Roster::default();
        let epoch = EpochId { counter: 3, coordinator: Uid(1), nonce: 1 };
        let view = View::new(epoch, vec![member(1, "ann"), member(2, "bob")], Uid(1), 1);
        assert!(roster.follow(&Event::Entered { seqno: 0, view }));
        assert!(roster.follow(&Event::Joined {
            seqno: 1,
            member: member(9, ""),
            hello: "".into(),
            members: 3
        }));
        assert!(roster.follow(&Event::HandedOver { seqno: 2, sequencer: Uid(2) }));
        assert!(!roster.follow(&Event::Gone));
        assert_eq!(roster.view(), "[bob|3.00000000] (3) [ann, bob, 0000000000000009]");
        assert!(roster.follow(&left(3, member(1, "ann"), None)));
        assert_eq!(roster.view(), "[bob|3.00000000] (2) [bob, 0000000000000009]");
        let some = super::view(&roster.view.as_ref().unwrap().epoch, roster.sequencer(), roster.members(), 5);
        assert_eq!(some, "[bob|3.00000000] (7) [bob, 0000000000000009 and 5 more]");
    }

    #[test]
    fn members_of_the_same_name_are_printed_with_digits() {
        let (first, second) = (0x1111_0000_0000_0000, 0x2222_0000_0000_0000);
        let members =
            [member(first, "ann"), member(second, "ann"), member(3, "bob"), member(4, ""), member(5, "")];
        let names = members.each_ref().map(|member| distinct(&members, member.uid));
        assert_eq!(names, ["ann·1111", "ann·2222", "bob", "0000000000000004", "0000000000000005"]);
        assert_eq!(distinct(&members, Uid(9)), "0000000000000009");
    }

    #[test]
    fn a_group_without_members_has_no_sequencer() {
        let view = View::new(EpochId::default(), vec![member(1, "ann"), member(2, "bob")], Uid(1), 1);
        let mut roster = Roster::default();
        assert_eq!(roster.view(), "[none|0.00000000] (0) []");
        roster.follow(&Event::Entered { seqno: 0, view });
        roster.follow(&left(1, member(1, ""), Some(Uid(2))));
        assert_eq!(roster.view(), "[bob|0.00000000] (1) [bob]");
        roster.follow(&left(2, member(2, ""), None));
        assert!(roster.view().starts_with("[none|"), "{}", roster.view());
    }

    fn left(seqno: u64, member: Member, successor: Option<Uid>) -> Event {
        Event::Left { seqno, member, goodbye: "".into(), members: 0, successor }
    }
}
