//! A member process of a trial: sends its share of messages, records what it delivers, and reports both to the parent.

use super::verdict::{Content, Entry};
use crate::arguments::OrderChoice;
use crate::connection;
use crate::location::Location;
use crate::passes::Passes;
use crate::processes::{self, Instructions, monotonic_ns};
use crate::resender::Resender;
use crate::roster::Roster;
use crate::settings::Settings;
use crate::threads;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use unisono::{Bytes, Event, Group, Phase, SlowMember};

/// Maximum number of messages that wait in the resender.
const AHEAD: usize = 256;
/// Interval between two looks at the group: 2 ms.
const PULSE: Duration = Duration::from_millis(2);
/// Text of the message that ends a trial.
const CLOSING: &[u8] = b"closing";

/// The member that a process is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) group: String,
    /// Index of the member, from 0; member 0 founds the group.
    pub(crate) index: usize,
    pub(crate) resilience: u8,
    pub(crate) order: OrderChoice,
    pub(crate) location: Location,
    pub(crate) settings: Settings,
}

/// What a member is to send.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Share {
    /// Number of messages.
    pub(crate) messages: u64,
    /// Number of them, the last ones, that are sent only after a reset.
    pub(crate) after_reset: u64,
    /// Microseconds between two messages; 0 for as fast as the group takes them.
    pub(crate) interval_us: u64,
}

/// An instruction to a member.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Instruction {
    /// Send messages.
    Send(Share),
    /// Begin no further messages.
    Stop,
    /// Report which member is the sequencer.
    Sequencer,
    /// Send the closing message.
    Close,
}

/// An answer of a member.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It has entered the group.
    Entered { uid: u64 },
    /// It has a new view.
    View { view: String, members: usize, sequencer: u64 },
    /// Events delivered, in order, from the first message on.
    Delivered(Vec<Entry>),
    /// It saw that the group is being reset, at this time on the machine's monotonic clock.
    Noticed { at_ns: u64 },
    /// It delivered the first message after a reset, at this time on the machine's monotonic clock.
    Resumed { at_ns: u64 },
    /// Number of its messages that were sent, and that were accepted.
    Accepted { sent: u64, accepted: u64 },
    /// All its messages were accepted; the number of those that were sent again.
    Done { sent_again: u64 },
    /// The uid of the sequencer, as far as it knows.
    Sequencer(u64),
    /// It delivered the closing message, the last one; its passes of the token.
    Closed(Passes),
    /// The group excluded it.
    Excluded,
    /// It failed with this error.
    Trouble(String),
}

/// Returns a member's name.
pub(crate) fn name(index: usize) -> String {
    format!("member-{index}")
}

/// Runs a member process.
pub(crate) fn work(assignment: Assignment, mut instructions: Instructions) -> anyhow::Result<()> {
    assignment.location.enter()?;
    let options = connection::options(&assignment.settings, Some(&name(assignment.index)))
        .map_err(|problem| problem.into_error())?;
    let config = connection::config(assignment.resilience, assignment.order, SlowMember::Wait);
    let group = match assignment.index {
        0 => Group::create(&assignment.group, config, &options)?,
        _ => connection::patiently(|| Group::join(&assignment.group, "", &options))?,
    };
    processes::answer(&Answer::Entered { uid: group.info().me.0 })?;

    let (reset, resets) = mpsc::channel();
    let receiving = group.clone();
    threads::start("events", move || {
        let ended = Witness::new(reset).watch(&receiving);
        or_trouble(ended);
    })?;

    let stop = Arc::new(AtomicBool::new(false));
    let mut sender = Some(Sender {
        group: group.clone(),
        resender: Resender::new(group.clone(), None),
        index: assignment.index,
        resets,
        stop: stop.clone(),
        resets_before: group.info().resets,
        noticed: false,
    });
    while let Some(instruction) = instructions.next()? {
        match instruction {
            Instruction::Send(share) => {
                if let Some(mut sender) = sender.take() {
                    threads::start("sender", move || or_trouble(sender.send(share)))?;
                }
            }
            Instruction::Stop => stop.store(true, Ordering::Relaxed),
            Instruction::Sequencer => {
                processes::answer(&Answer::Sequencer(group.info().sequencer.0))?;
            }
            Instruction::Close => {
                group.send(Bytes::from_static(CLOSING))?;
            }
        }
    }
    group.leave("").map_err(anyhow::Error::from)
}

/// Reports an error to the parent. Ignores a failure to report it: then the parent has ended.
fn or_trouble(result: anyhow::Result<()>) {
    if let Err(error) = result {
        let _ = processes::answer(&Answer::Trouble(format!("{error:#}")));
    }
}

/// Sends a member's messages.
struct Sender {
    group: Group,
    resender: Resender,
    index: usize,
    resets: Receiver<()>,
    stop: Arc<AtomicBool>,
    /// Number of resets before the first message.
    resets_before: u64,
    /// True once a reset was noticed and reported.
    noticed: bool,
}

impl Sender {
    /// Sends a share, and reports the number of accepted messages as it grows.
    fn send(&mut self, share: Share) -> anyhow::Result<()> {
        let mut rest = share;
        let (mut sent, mut reported) = (0, 0);
        let mut due = Instant::now();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                rest = Share { messages: sent, after_reset: 0, ..rest };
            }
            let now = rest.messages - rest.after_reset.min(rest.messages);
            while sent < now && self.resender.waiting() < AHEAD && due <= Instant::now() {
                sent += 1;
                due += Duration::from_micros(share.interval_us);
                self.resender.push(format!("{}:{sent}", self.index).into());
            }
            self.resender.advance()?;
            if self.resender.accepted() > reported {
                reported = self.resender.accepted();
                processes::answer(&Answer::Accepted { sent, accepted: reported })?;
            }
            if reported >= rest.messages {
                return processes::answer(&Answer::Done { sent_again: self.resender.sent_again() });
            }
            if share.interval_us > 0 {
                self.notice_reset()?;
                std::thread::sleep(due.saturating_duration_since(Instant::now()).min(PULSE));
            } else if self.resender.under_way() > 0 {
                self.resender.wait()?;
            } else if self.resender.waiting() > 0 {
                std::thread::sleep(PULSE);
            } else if rest.after_reset > 0 {
                self.resets.recv()?;
                rest.after_reset = 0;
            }
        }
    }

    /// Reports a reset once, when it is under way or over.
    fn notice_reset(&mut self) -> anyhow::Result<()> {
        if self.noticed {
            return Ok(());
        }
        let info = self.group.info();
        if info.phase == Phase::Resetting || info.resets > self.resets_before {
            self.noticed = true;
            processes::answer(&Answer::Noticed { at_ns: monotonic_ns() })?;
        }
        Ok(())
    }
}

/// Records what the member delivers.
struct Witness {
    roster: Roster,
    /// True once a message was delivered. All members joined before the first message was sent, so from here on all of
    /// them record the same events.
    begun: bool,
    /// True if no message was delivered since the last reset.
    reset_just_now: bool,
    reset: mpsc::Sender<()>,
    entries: Vec<Entry>,
}

impl Witness {
    fn new(reset: mpsc::Sender<()>) -> Witness {
        let roster = Roster::default();
        Witness { roster, begun: false, reset_just_now: false, reset, entries: Vec::new() }
    }

    /// Receives events until the member is out of the group.
    fn watch(mut self, group: &Group) -> anyhow::Result<()> {
        let mut events = Vec::new();
        while group.receive_many(&mut events).is_ok() {
            for event in events.drain(..) {
                self.take(group, &event)?;
            }
            self.flush()?;
        }
        Ok(())
    }

    fn take(&mut self, group: &Group, event: &Event) -> anyhow::Result<()> {
        match event {
            Event::Message { payload, .. } if payload.as_ref() == CLOSING => {
                self.flush()?;
                return processes::answer(&Answer::Closed(Passes::of(group)));
            }
            Event::Message { seqno, payload, .. } => {
                let content = parse(payload)
                    .ok_or_else(|| anyhow::anyhow!("delivered a text that no member sent: {payload:?}"))?;
                if std::mem::take(&mut self.reset_just_now) {
                    processes::answer(&Answer::Resumed { at_ns: monotonic_ns() })?;
                }
                self.begun = true;
                self.entries.push(Entry(*seqno, content));
            }
            Event::Excluded { .. } => {
                self.flush()?;
                return processes::answer(&Answer::Excluded);
            }
            _ => {}
        }
        if self.roster.follow(event) {
            let view = self.roster.view();
            self.flush()?;
            processes::answer(&Answer::View {
                members: self.roster.len(),
                sequencer: self.roster.sequencer().0,
                view: view.clone(),
            })?;
            if let (true, Some(seqno)) = (self.begun, event.seqno()) {
                self.entries.push(Entry(seqno, Content::View(crc32c::crc32c(view.as_bytes()))));
            }
        }
        if let Event::Reset { .. } = event {
            self.reset_just_now = true;
            // Fails if the sender has ended, after all its messages were accepted.
            let _ = self.reset.send(());
        }
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        processes::answer(&Answer::Delivered(std::mem::take(&mut self.entries)))
    }
}

/// Parses a payload: `3:17` is message 17 of member 3.
fn parse(payload: &[u8]) -> Option<Content> {
    let (sender, number) = std::str::from_utf8(payload).ok()?.split_once(':')?;
    Some(Content::Message(sender.parse().ok()?, number.parse().ok()?))
}
