//! Prints events as lines of text or as JSON objects, each message with the view in which it was delivered.

use crate::arguments::order_name;
use crate::output::{Output, hex, visible, visible_json};
use crate::roster::{Roster, words_of_floor};
use serde_json::{Value, json};
use std::fmt::Write as _;
use unisono::{Event, Member, Outside};

/// Formats the events of a group as lines.
pub(crate) struct Printer {
    json: bool,
    roster: Roster,
    /// The present view, as it is printed.
    view: String,
    min_members: usize,
    silent: bool,
}

impl Printer {
    /// Makes a printer that prints nothing until the group has `min_members` members.
    pub(crate) fn new(output: &Output, min_members: usize) -> Printer {
        Printer {
            json: output.json(),
            roster: Roster::default(),
            view: String::new(),
            min_members,
            silent: true,
        }
    }

    /// Appends the event's line to `text`. False, with nothing appended, until the group has had `min_members` members.
    pub(crate) fn print(&mut self, event: &Event, text: &mut String) -> bool {
        // The name of a leaver is in the view before its leave, and the floor that was overridden in that before a reset.
        let before = matches!(event, Event::Left { .. } | Event::Reset { forced: true, .. });
        let before = before.then(|| self.roster.clone());
        if self.roster.follow(event) {
            self.view = self.roster.view();
        }
        if self.silent {
            if self.roster.len() < self.min_members {
                return false;
            }
            self.silent = false;
            self.line(text, self.describe_view(event.seqno().unwrap_or(0)));
            return true;
        }
        if let Some(line) = self.describe(event, before.as_ref().unwrap_or(&self.roster)) {
            self.line(text, line);
        }
        true
    }

    fn line(&self, text: &mut String, (object, words): (Value, String)) {
        // Writing to a string cannot fail.
        let _ = if self.json {
            writeln!(text, "{}", visible_json(&object.to_string()))
        } else {
            writeln!(text, "{words}")
        };
    }

    fn describe_view(&self, seqno: u64) -> (Value, String) {
        let object = json!({
            "event": "view", "seq": seqno, "view": self.view, "members": self.roster.len(),
            "orderer": self.roster.name(self.roster.sequencer()),
        });
        (object, format!("{seqno:>8}  view {}", self.view))
    }

    /// Returns the event as an object and as text; none for events that are not printed.
    fn describe(&self, event: &Event, before: &Roster) -> Option<(Value, String)> {
        let (view, names) = (&self.view, before);
        let name = |member: &Member| names.name(member.uid);
        Some(match event {
            Event::Entered { seqno, .. } => self.describe_view(*seqno),
            Event::Message { seqno, sender, outside, payload, .. } => {
                let sender = names.name(*sender);
                let mut object = json!({"event": "message", "seq": seqno, "view": view, "sender": sender});
                let words = describe_payload(payload, &mut object);
                let client = describe_client(*outside, &mut object);
                (object, format!("{seqno:>8}  {sender}{client}: {words}"))
            }
            Event::Early { sender, quality, outside, payload } => {
                let (sender, quality) = (names.name(*sender), quality.to_string());
                let mut object =
                    json!({"event": "early", "view": view, "sender": sender, "quality": quality});
                let words = describe_payload(payload, &mut object);
                let client = describe_client(*outside, &mut object);
                (object, format!("{:>8}  {sender}{client} ({quality}): {words}", ""))
            }
            Event::Joined { seqno, member, members, .. } => (
                json!({"event": "joined", "seq": seqno, "member": name(member), "members": members, "view": view}),
                format!("{seqno:>8}  joined {}, now {view}", name(member)),
            ),
            Event::Left { seqno, member, members, .. } => (
                json!({"event": "left", "seq": seqno, "member": name(member), "members": members, "view": view}),
                format!("{seqno:>8}  left {}, now {view}", name(member)),
            ),
            Event::HandedOver { seqno, sequencer } => (
                json!({"event": "orderer", "seq": seqno, "member": names.name(*sequencer), "view": view}),
                format!("{seqno:>8}  {} is the sequencer from here on", names.name(*sequencer)),
            ),
            Event::OrderChanged { seqno, order, sequencer } => {
                let (order, orderer) = (order_name(*order), names.name(*sequencer));
                (
                    json!({"event": "order", "seq": seqno, "order": order, "orderer": orderer, "view": view}),
                    format!("{seqno:>8}  the order is {order} from here on"),
                )
            }
            Event::Reset { seqno, excluded, degraded, forced, .. } => {
                let names: Vec<&str> = excluded.iter().map(|member| member.name.as_str()).collect();
                let mut words =
                    format!("{seqno:>8}  reset, now {view}; excluded [{}]", visible(&names.join(", ")));
                if *forced {
                    words += "; forced by an operator, ";
                    words += &of_force(before, self.roster.len());
                }
                if *degraded {
                    words +=
                        "; more members are lost than the group's resilience covers: messages may be lost";
                }
                let mut object = json!({
                    "event": "reset", "seq": seqno, "view": view, "members": self.roster.len(), "excluded": names,
                    "degraded": degraded,
                });
                if *forced {
                    object["forced"] = true.into();
                }
                (object, words)
            }
            Event::Suspected { member, reason } => (
                json!({"event": "suspected", "member": names.name(*member), "reason": format!("{reason:?}").to_lowercase()}),
                format!("{:>8}  {} is suspected: {reason:?}", "", names.name(*member)),
            ),
            Event::Halted { missing } => {
                let left = self.roster.len().saturating_sub(missing.len());
                let floor = Some(self.roster.floor()).filter(|floor| *floor > left);
                let missing: Vec<&str> = missing.iter().map(|member| member.name.as_str()).collect();
                let (object, names) =
                    (json!({"event": "halted", "missing": missing, "floor": floor}), missing.join(", "));
                let why = match floor {
                    Some(floor) => format!("without [{}], and {}", visible(&names), words_of_floor(floor)),
                    None => format!("no quorum without [{}]", visible(&names)),
                };
                (object, format!("{:>8}  the group stands still: {why}", ""))
            }
            Event::Resumed => (json!({"event": "resumed"}), format!("{:>8}  the group goes on", "")),
            Event::Excluded { epoch } => (
                json!({"event": "excluded", "epoch": epoch.map(|epoch| epoch.to_string()), "view": view}),
                format!("{:>8}  excluded: the other members went on and removed this one from the group", ""),
            ),
            Event::Conflict { address, gives_way, other_ordered } => {
                let rule = if *gives_way {
                    "this group is to give way: its members may leave and join again"
                } else {
                    "that group is to give way"
                };
                (
                    json!({
                        "event": "conflict",
                        "address": address.to_string(),
                        "gives_way": gives_way,
                        "other_ordered": other_ordered,
                    }),
                    format!(
                        "{:>8}  another group of this name, with {other_ordered} events ordered, has a member at \
                         {address}; {rule}",
                        ""
                    ),
                )
            }
            // The member is out or did not join; or this version does not know the event.
            _ => return None,
        })
    }
}

/// Says what an operator overrode by a reset from this view to one with `members`: a floor, or the quorum.
fn of_force(before: &Roster, members: usize) -> String {
    let lacks_half = 2 * members < before.len();
    match before.floor() {
        floor if floor > members && lacks_half => format!("without a quorum and below the floor of {floor}"),
        floor if floor > members => format!("below the floor of {floor}"),
        _ => "without a quorum".into(),
    }
}

/// Adds the process outside that a message comes from, if any, to its object, and returns it as text.
fn describe_client(outside: Option<Outside>, object: &mut Value) -> String {
    let Some(Outside { client, .. }) = outside else { return String::new() };
    object["outside"] = true.into();
    object["client"] = client.to_string().into();
    format!(" for {client}")
}

/// Adds the payload of a message to its object, and returns it as text.
fn describe_payload(payload: &[u8], object: &mut Value) -> String {
    object["bytes"] = payload.len().into();
    match std::str::from_utf8(payload) {
        Ok(text) => {
            object["text"] = text.into();
            visible(text).into_owned()
        }
        Err(_) => {
            object["hex"] = hex(payload).into();
            format!("({} bytes) {}", payload.len(), hex(payload))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use unisono::{EpochId, Floor, Uid, View};

    fn member(uid: u64, name: &str, floor: Floor) -> Member {
        let (name, address) = (name.parse().unwrap(), "127.0.0.1:1".parse().unwrap());
        Member { uid: Uid(uid), name, address, floor, hops: 1 }
    }

    #[test]
    fn a_floor_is_named_where_it_halts_the_group_and_where_it_is_overridden() {
        for (floor, lost, halt, force) in [
            (
                Floor::AtLeast(3),
                1,
                "without [cy], and a member asks for at least 3 members (floor)",
                "below the floor of 3",
            ),
            (
                Floor::All,
                2,
                "without [bob, cy], and a member asks for at least 3 members (floor)",
                "without a quorum and below the floor of 3",
            ),
            (Floor::AtLeast(1), 2, "no quorum without [bob, cy]", "without a quorum"),
        ] {
            let members =
                [member(1, "ann", floor), member(2, "bob", Floor::None), member(3, "cy", Floor::None)];
            let epoch = EpochId { counter: 1, coordinator: Uid(1), nonce: 1 };
            let view = View::new(epoch, members.to_vec(), Uid(1), 1);
            let mut printer = Printer::new(&Output::new(&Settings::default()), 1);
            let mut text = String::new();
            printer.print(&Event::Entered { seqno: 1, view }, &mut text);
            let missing = members[3 - lost..].to_vec();
            printer.print(&Event::Halted { missing: missing.clone() }, &mut text);
            assert!(text.contains(&format!("the group stands still: {halt}\n")), "{text}");
            let next = EpochId { counter: 2, ..epoch };
            let view = View::new(next, members[..3 - lost].to_vec(), Uid(1), 1);
            let reset = Event::Reset { seqno: 2, view, excluded: missing, degraded: false, forced: true };
            printer.print(&reset, &mut text);
            assert!(text.contains(&format!("forced by an operator, {force}\n")), "{text}");
        }
    }
}
