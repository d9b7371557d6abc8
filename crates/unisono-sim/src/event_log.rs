//! The events that each application received, as lines of text. Scenarios compare them with the expected lines.

use bytes::Bytes;
use std::fmt::Write;
use unisono_core::rpc::{CallFailure, Request};
use unisono_core::{Event, MessageNumber, Outcome, Uid, View};

/// One list of lines per process.
#[derive(Default)]
pub(crate) struct EventLog {
    processes: Vec<(Uid, usize)>,
    lines: Vec<Vec<String>>,
}

/// Longer payloads are shown as their length.
const TEXT_BYTES_MAX: usize = 40;

fn text(payload: &[u8]) -> String {
    let text = std::str::from_utf8(payload).ok().filter(|text| text.len() <= TEXT_BYTES_MAX);
    text.map_or_else(|| format!("({} bytes)", payload.len()), |text| format!("{text:?}"))
}

impl EventLog {
    /// Notes that the life `uid` runs in `process`.
    pub(crate) fn add_life(&mut self, uid: Uid, process: usize) {
        self.processes.push((uid, process));
    }

    /// Removes all lines, but keeps the processes of the lives.
    pub(crate) fn clear(&mut self) {
        self.lines.clear();
    }

    /// Returns the events that the application of a process received.
    pub(crate) fn lines(&self, process: usize) -> &[String] {
        self.lines.get(process).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn result(&mut self, process: usize, number: MessageNumber, outcome: &Outcome) {
        let line = match outcome {
            Outcome::Ok { seqno } => format!("sent {number} ok {seqno}"),
            Outcome::Failed => format!("sent {number} failed"),
            Outcome::Unknown => format!("sent {number} unknown"),
        };
        self.add(process, line);
    }

    pub(crate) fn event(&mut self, process: usize, event: &Event) {
        let line = match event {
            Event::Entered { seqno, view } => format!("{seqno} entered {}", self.view(view)),
            Event::Message { seqno, sender, payload, .. } => {
                format!("{seqno} message {} {}", self.process_of(*sender), text(payload))
            }
            Event::Early { sender, quality, payload, .. } => {
                format!("early {quality} {} {}", self.process_of(*sender), text(payload))
            }
            Event::Joined { seqno, member, .. } => format!("{seqno} joined {}", self.process_of(member.uid)),
            Event::Left { seqno, member, .. } => format!("{seqno} left {}", self.process_of(member.uid)),
            Event::HandedOver { seqno, sequencer } => {
                format!("{seqno} sequencer {}", self.process_of(*sequencer))
            }
            Event::OrderChanged { seqno, order, sequencer } => {
                format!("{seqno} order {order:?}, sequencer {}", self.process_of(*sequencer))
            }
            Event::Reset { seqno, view, excluded, degraded, forced } => {
                let excluded: Vec<Uid> = excluded.iter().map(|member| member.uid).collect();
                let mut line = format!("{seqno} reset {} without {}", self.view(view), self.list(&excluded));
                if *degraded {
                    line.push_str(" degraded");
                }
                if *forced {
                    line.push_str(" forced");
                }
                line
            }
            Event::Suspected { member, reason } => {
                format!("suspected {} {reason:?}", self.process_of(*member))
            }
            Event::Halted { missing } => {
                let missing: Vec<Uid> = missing.iter().map(|member| member.uid).collect();
                format!("halted {}", self.list(&missing))
            }
            Event::Resumed => "resumed".to_string(),
            Event::Excluded { .. } => "excluded".to_string(),
            Event::Gone => "gone".to_string(),
            Event::JoinFailed { reason } => format!("join failed {reason:?}"),
            Event::Conflict { gives_way: true, .. } => "conflict, this group gives way".to_string(),
            Event::Conflict { gives_way: false, .. } => "conflict, the other group gives way".to_string(),
            other => unreachable!("scenarios have no words for {other:?}"),
        };
        self.add(process, line);
    }

    /// Adds the outcome of a call.
    pub(crate) fn call_ended(&mut self, process: usize, result: &Result<Bytes, CallFailure>) {
        let line = match result {
            Ok(reply) => format!("answered {}", text(reply)),
            Err(CallFailure::Refused(reason)) => format!("refused {}", text(reason)),
            Err(CallFailure::NotFound) => "not found".to_string(),
            Err(CallFailure::Failed) => "failed".to_string(),
            Err(CallFailure::OtherInstance) => "other instance".to_string(),
            Err(CallFailure::Busy) => "busy".to_string(),
            Err(CallFailure::Unknown) => "unknown".to_string(),
        };
        self.add(process, line);
    }

    /// Adds a request that was handed to the application.
    pub(crate) fn request(&mut self, process: usize, request: &Request) {
        let (client, payload) = (self.process_of(request.client), text(&request.payload));
        let hops = if request.hops > 0 { format!(" hops {}", request.hops) } else { String::new() };
        self.add(process, format!("request {client} {payload}{hops}"));
    }

    fn add(&mut self, process: usize, line: String) {
        if self.lines.len() <= process {
            self.lines.resize(process + 1, Vec::new());
        }
        self.lines[process].push(line);
    }

    fn process_of(&self, uid: Uid) -> String {
        let process = self.processes.iter().find(|(known, _)| *known == uid);
        process.map_or_else(|| "?".to_string(), |(_, process)| process.to_string())
    }

    fn list(&self, uids: &[Uid]) -> String {
        let processes: Vec<String> = uids.iter().map(|uid| self.process_of(*uid)).collect();
        format!("[{}]", processes.join(" "))
    }

    fn view(&self, view: &View) -> String {
        let uids: Vec<Uid> = view.members.iter().map(|member| member.uid).collect();
        let mut words = self.list(&uids);
        let _ = write!(words, " sequencer {}", self.process_of(view.sequencer));
        words
    }
}
