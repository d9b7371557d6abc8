//! `unisono listen`: everything that happens in a group, in its order.

use crate::arguments::Common;
use crate::connection;
use crate::output::{Output, hex, visible};
use crate::problem::Problem;
use crate::roster::Roster;
use crate::settings::Settings;
use crate::signals;
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write as _;
use unisono::{Ended, Event, Group, Member};

/// The resilience with which a group is founded unless another is asked for.
pub(crate) const RESILIENCE: u8 = 1;

/// Join a group, or found it, and print every event in order
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  unisono listen news\n  unisono listen news --count 10 --json\n\n\
                        Ends on ctrl-c, after --count messages, or with status 3 if the group goes on without it.")]
pub(crate) struct Listen {
    /// Name of the group
    group: String,

    /// Print nothing until the group has so many members
    #[arg(long, value_name = "N", default_value_t = 1)]
    min_members: usize,

    /// End after so many messages
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// How many crashes at once the group is to survive without loss, if this founds it [default: 1]
    #[arg(long, value_name = "R")]
    resilience: Option<u8>,

    /// What the others call this member [default: the host and the process number]
    #[arg(long, value_name = "ME")]
    name: Option<String>,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Listen, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let resilience = command.resilience.unwrap_or(RESILIENCE);
    let group = connection::enter(&command.group, settings, command.name.as_deref(), resilience)?;
    signals::leave_on_interrupt(&group)?;
    let mut printer = Printer::new(output, command.min_members);
    let (mut events, mut left) = (Vec::new(), command.count);
    while left != Some(0) {
        match group.receive_many(&mut events) {
            Ok(_) => {}
            Err(Ended::Left) => return Ok(()),
            Err(ended @ Ended::Excluded { .. }) => return Err(Problem::not_primary(ended)),
        }
        let mut text = String::new();
        for event in events.drain(..) {
            connection::warn_of_other_resilience(&event, command.resilience);
            let message = matches!(event, Event::Message { .. });
            let printed = printer.print(&event, &mut text);
            if let (true, true, Some(left)) = (message, printed, &mut left) {
                *left -= 1;
                if *left == 0 {
                    break;
                }
            }
        }
        output.raw(&text)?;
    }
    leave(&group);
    Ok(())
}

/// Leaves without ado: whatever stands in the way, this member is out.
pub(crate) fn leave(group: &Group) {
    if let Err(failure) = group.leave("") {
        eprintln!("unisono: {failure}");
    }
}

/// Events as lines.
struct Printer {
    json: bool,
    roster: Roster,
    /// The present view, and the same as a JSON string.
    view: String,
    min_members: usize,
    silent: bool,
}

impl Printer {
    fn new(output: &Output, min_members: usize) -> Printer {
        Printer {
            json: output.json(),
            roster: Roster::default(),
            view: String::new(),
            min_members,
            silent: true,
        }
    }

    /// Appends the event's line to `text`; false if there is nothing to print yet.
    fn print(&mut self, event: &Event, text: &mut String) -> bool {
        // A leaver is named by the view it leaves.
        let before = matches!(event, Event::Left { .. }).then(|| self.roster.clone());
        if self.roster.follow(event) {
            self.view = self.roster.view();
        }
        if self.silent {
            if self.roster.len() < self.min_members {
                return false;
            }
            self.silent = false;
            let seqno = seqno(event);
            self.line(text, self.describe_view(seqno));
            return true;
        }
        if let Some(line) = self.describe(event, before.as_ref().unwrap_or(&self.roster)) {
            self.line(text, line);
        }
        true
    }

    fn line(&self, text: &mut String, (object, words): (Value, String)) {
        // Writing to a string cannot fail.
        let _ = if self.json { writeln!(text, "{object}") } else { writeln!(text, "{words}") };
    }

    fn describe_view(&self, seqno: u64) -> (Value, String) {
        let object = json!({
            "event": "view", "seq": seqno, "view": self.view, "members": self.roster.len(),
            "orderer": self.roster.name(self.roster.orderer()),
        });
        (object, format!("{seqno:>8}  view {}", self.view))
    }

    /// The event as an object and in words.
    fn describe(&self, event: &Event, names: &Roster) -> Option<(Value, String)> {
        let view = &self.view;
        let name = |member: &Member| names.name(member.uid);
        Some(match event {
            Event::Entered { seqno, .. } => self.describe_view(*seqno),
            Event::Message { seqno, sender, payload, .. } => {
                let sender = names.name(*sender);
                let mut object = json!({"event": "message", "seq": seqno, "view": view, "sender": sender, "bytes": payload.len()});
                let words = match std::str::from_utf8(payload) {
                    Ok(text) => {
                        object["text"] = text.into();
                        visible(text).into_owned()
                    }
                    Err(_) => {
                        object["hex"] = hex(payload).into();
                        format!("({} bytes) {}", payload.len(), hex(payload))
                    }
                };
                (object, format!("{seqno:>8}  {sender}: {words}"))
            }
            Event::Joined { seqno, member, members, .. } => (
                json!({"event": "joined", "seq": seqno, "member": name(member), "members": members, "view": view}),
                format!("{seqno:>8}  joined {}, now {view}", name(member)),
            ),
            Event::Left { seqno, member, members, .. } => (
                json!({"event": "left", "seq": seqno, "member": name(member), "members": members, "view": view}),
                format!("{seqno:>8}  left {}, now {view}", name(member)),
            ),
            Event::HandedOver { seqno, orderer } => (
                json!({"event": "orderer", "seq": seqno, "member": names.name(*orderer), "view": view}),
                format!("{seqno:>8}  {} orders from here on", names.name(*orderer)),
            ),
            Event::Reset { seqno, excluded, degraded, .. } => {
                let gone: Vec<&str> = excluded.iter().map(|member| member.name.as_str()).collect();
                let mut words =
                    format!("{seqno:>8}  reset, now {view}; without [{}]", visible(&gone.join(", ")));
                if *degraded {
                    words +=
                        "; more members are lost than the group's resilience covers: messages may be lost";
                }
                let object = json!({
                    "event": "reset", "seq": seqno, "view": view, "members": self.roster.len(), "excluded": gone,
                    "degraded": degraded,
                });
                (object, words)
            }
            Event::Suspected { member, reason } => (
                json!({"event": "suspected", "member": names.name(*member), "reason": format!("{reason:?}").to_lowercase()}),
                format!("{:>8}  {} is suspected: {reason:?}", "", names.name(*member)),
            ),
            Event::Excluded { epoch } => (
                json!({"event": "excluded", "epoch": epoch.map(|epoch| epoch.to_string()), "view": view}),
                format!("{:>8}  excluded: the group goes on without this member", ""),
            ),
            Event::Conflict { address } => (
                json!({"event": "conflict", "address": address.to_string()}),
                format!(
                    "{:>8}  another group of this name has a member at {address}, and neither can give way",
                    ""
                ),
            ),
            Event::Gone | Event::JoinFailed { .. } => return None,
        })
    }
}

/// The place of an event; 0 if it has none.
fn seqno(event: &Event) -> u64 {
    match event {
        Event::Entered { seqno, .. }
        | Event::Message { seqno, .. }
        | Event::Joined { seqno, .. }
        | Event::Left { seqno, .. }
        | Event::HandedOver { seqno, .. }
        | Event::Reset { seqno, .. } => *seqno,
        _ => 0,
    }
}
