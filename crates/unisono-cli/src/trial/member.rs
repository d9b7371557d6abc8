//! A member process of a trial: sends its share, writes down what it delivers, reports both.

use super::verdict::{Content, Place};
use crate::arguments::OrderChoice;
use crate::connection;
use crate::location::Location;
use crate::processes::{self, Orders, monotonic_ns};
use crate::resender::Resender;
use crate::roster::Roster;
use crate::settings::Settings;
use crate::threads;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use unisono::{Bytes, Event, Group, Phase};

/// Messages put into the resender ahead of the group.
const AHEAD: usize = 256;
/// Between two looks at the group.
const PULSE: Duration = Duration::from_millis(2);
/// The text of the message that closes a trial.
const CLOSING: &[u8] = b"closing";

/// Which member to be.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) group: String,
    /// Counts from 0; member 0 founds the group.
    pub(crate) index: usize,
    pub(crate) resilience: u8,
    pub(crate) order: OrderChoice,
    pub(crate) location: Location,
    pub(crate) settings: Settings,
}

/// What a member is to send.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Share {
    /// So many messages,
    pub(crate) messages: u64,
    /// the last of them only after a reset,
    pub(crate) after_reset: u64,
    /// each so long after the one before; 0 for as fast as the group takes them.
    pub(crate) interval_us: u64,
}

/// An order to a member.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Instruction {
    /// Send messages.
    Send(Share),
    /// Begin no further ones.
    Stop,
    /// Send the closing message.
    Close,
}

/// What a member reports.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It is in.
    Entered { uid: u64 },
    /// The view is a new one.
    View { view: String, members: usize, sequencer: u64 },
    /// Places delivered, in order, from the first message on.
    Delivered(Vec<Place>),
    /// The group was seen to be reset, on the machine's monotonic clock.
    Noticed { at_ns: u64 },
    /// The first message after a reset was delivered, on the machine's monotonic clock.
    Resumed { at_ns: u64 },
    /// So many of its messages were put on their way, and so many were accepted.
    Accepted { sent: u64, accepted: u64 },
    /// All its messages were accepted; so many had to be sent again.
    Done { sent_again: u64 },
    /// The closing message was delivered: nothing follows.
    Closed,
    /// The group went on without it.
    Excluded,
    /// Something is wrong with it.
    Trouble(String),
}

/// What people call a member.
pub(crate) fn name(index: usize) -> String {
    format!("member-{index}")
}

/// The life of a member process.
pub(crate) fn work(role: Assignment, mut orders: Orders) -> anyhow::Result<()> {
    role.location.enter()?;
    let options = connection::options(&role.settings, Some(&name(role.index)))
        .map_err(|problem| problem.into_error())?;
    let config = connection::config(role.resilience, role.order);
    let group = match role.index {
        0 => Group::create(&role.group, config, &options)?,
        _ => connection::patiently(|| Group::join(&role.group, "", &options))?,
    };
    processes::report(&Answer::Entered { uid: group.info().me.0 })?;

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
        index: role.index,
        resets,
        stop: stop.clone(),
        resets_before: group.info().resets,
        noticed: false,
    });
    while let Some(order) = orders.next()? {
        match order {
            Instruction::Send(share) => {
                if let Some(mut sender) = sender.take() {
                    threads::start("sender", move || or_trouble(sender.send(share)))?;
                }
            }
            Instruction::Stop => stop.store(true, Ordering::Relaxed),
            Instruction::Close => {
                group.send(Bytes::from_static(CLOSING))?;
            }
        }
    }
    group.leave("").map_err(anyhow::Error::from)
}

/// Tells the parent of an error; it is gone if it cannot be told.
fn or_trouble(result: anyhow::Result<()>) {
    if let Err(error) = result {
        let _ = processes::report(&Answer::Trouble(format!("{error:#}")));
    }
}

/// Sends a member's messages.
struct Sender {
    group: Group,
    resender: Resender,
    index: usize,
    resets: Receiver<()>,
    stop: Arc<AtomicBool>,
    /// Resets of the group before anything was sent.
    resets_before: u64,
    /// The group was found being reset.
    noticed: bool,
}

impl Sender {
    /// Sends a share, and reports what was accepted as soon as it is known.
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
                processes::report(&Answer::Accepted { sent, accepted: reported })?;
            }
            if reported >= rest.messages {
                return processes::report(&Answer::Done { sent_again: self.resender.sent_again() });
            }
            if share.interval_us > 0 {
                self.look_up()?;
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

    /// Reports the first time that the group is found being reset, or reset already.
    fn look_up(&mut self) -> anyhow::Result<()> {
        if self.noticed {
            return Ok(());
        }
        let info = self.group.info();
        if info.phase == Phase::Resetting || info.resets > self.resets_before {
            self.noticed = true;
            processes::report(&Answer::Noticed { at_ns: monotonic_ns() })?;
        }
        Ok(())
    }
}

/// Writes down what is delivered.
struct Witness {
    roster: Roster,
    /// A message was delivered. All members were in before the first was sent, so from here on all of them write
    /// down everything.
    begun: bool,
    /// Since the last reset no message was delivered.
    reset_just_now: bool,
    reset: mpsc::Sender<()>,
    places: Vec<Place>,
}

impl Witness {
    fn new(reset: mpsc::Sender<()>) -> Witness {
        let roster = Roster::default();
        Witness { roster, begun: false, reset_just_now: false, reset, places: Vec::new() }
    }

    /// Follows the group to its end.
    fn watch(mut self, group: &Group) -> anyhow::Result<()> {
        let mut events = Vec::new();
        while group.receive_many(&mut events).is_ok() {
            for event in events.drain(..) {
                self.take(&event)?;
            }
            self.tell()?;
        }
        Ok(())
    }

    fn take(&mut self, event: &Event) -> anyhow::Result<()> {
        match event {
            Event::Message { payload, .. } if payload.as_ref() == CLOSING => {
                self.tell()?;
                return processes::report(&Answer::Closed);
            }
            Event::Message { seqno, payload, .. } => {
                let content = parse(payload)
                    .ok_or_else(|| anyhow::anyhow!("delivered a text that nobody sent: {payload:?}"))?;
                if std::mem::take(&mut self.reset_just_now) {
                    processes::report(&Answer::Resumed { at_ns: monotonic_ns() })?;
                }
                self.begun = true;
                self.places.push(Place(*seqno, content));
            }
            Event::Excluded { .. } => {
                self.tell()?;
                return processes::report(&Answer::Excluded);
            }
            _ => {}
        }
        if self.roster.follow(event) {
            let view = self.roster.view();
            self.tell()?;
            processes::report(&Answer::View {
                members: self.roster.len(),
                sequencer: self.roster.sequencer().0,
                view: view.clone(),
            })?;
            if let (true, Some(seqno)) = (self.begun, event.seqno()) {
                self.places.push(Place(seqno, Content::View(crc32c::crc32c(view.as_bytes()))));
            }
        }
        if let Event::Reset { .. } = event {
            self.reset_just_now = true;
            // Nobody waits for it if all messages are sent.
            let _ = self.reset.send(());
        }
        Ok(())
    }

    fn tell(&mut self) -> anyhow::Result<()> {
        if self.places.is_empty() {
            return Ok(());
        }
        processes::report(&Answer::Delivered(std::mem::take(&mut self.places)))
    }
}

/// `3:17` is message 17 of member 3.
fn parse(payload: &[u8]) -> Option<Content> {
    let (sender, number) = std::str::from_utf8(payload).ok()?.split_once(':')?;
    Some(Content::Message(sender.parse().ok()?, number.parse().ok()?))
}
