//! Histories of three servers with disks: what happens to them, and at which effect of the script that they run.
//!
//! A history is written as words, such as `slow=2,3 crash1@14 power@quiet last=2,3`: the disks of the servers 2 and 3 are
//! slow, server 1 crashes at the 14th effect, all that are up crash when nothing happens any more, and the servers 2 and 3
//! are the first to come back. `withhold1-2@append1`: from the next append of server 1 on its marks do not reach server 2, neither
//! directly nor by way of a third. They do when the steps are over. With the word `foo` the service is a directory, in which the client makes and deletes that row.

use crate::world::{Effect, EffectKind, JobKind};
use std::fmt;
use std::str::FromStr;
use unisono_core::replica::disk::DiskDurability;

/// Number of servers.
pub(crate) const SERVERS: usize = 3;
/// Number of commands that a client gives unless the history says another.
const COMMANDS: u64 = 3;
/// The word for a history of a directory.
const FOO: &str = "foo";
/// Most commands and steps of a history, sanity limits.
const COMMANDS_MAX: u64 = 1_000;
const STEPS_MAX: usize = 100;

/// A history. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    pub(crate) durability: DiskDurability,
    /// True if the service keeps a directory, in which the client makes and deletes the row *foo* in turn.
    pub(crate) foo: bool,
    /// Number of commands that the client gives.
    pub(crate) commands: u64,
    /// Ids of servers whose disks are slow once the script begins.
    pub(crate) slow: Vec<u8>,
    pub(crate) steps: Vec<Step>,
    /// Ids of the servers that are present first when the steps are over; then all are.
    pub(crate) last: Vec<u8>,
}

/// Something that happens at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) event: Event,
    pub(crate) at: Point,
}

/// What happens. Servers are named by their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Nothing, but the points of later steps come later.
    Wait,
    Crash(u8),
    /// All servers that are up crash.
    Power,
    Return(u8),
    /// No datagram passes between it and the other servers.
    Cut(u8),
    /// No link is cut any more.
    Heal,
    /// What its disk has is remembered.
    Image(u8),
    /// Its disk, which no process uses, is as it was remembered.
    PutBack(u8),
    /// A bit in the middle of its log is flipped.
    Flip(u8),
    /// No mark of the first server reaches the second, until the steps are over.
    Withhold(u8, u8),
}

/// When it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// At this effect after the step before; 0 is the effect of the step before.
    After(u32),
    /// When nothing happens any more.
    Quiet,
    /// At the next effect of this kind.
    Next(Effect),
}

impl Default for History {
    fn default() -> History {
        let durability = DiskDurability::Majority;
        History {
            durability,
            foo: false,
            commands: COMMANDS,
            slow: Vec::new(),
            steps: Vec::new(),
            last: Vec::new(),
        }
    }
}

impl History {
    /// Returns the ids of the servers that are up after the steps.
    pub(crate) fn up(&self) -> Vec<u8> {
        let mut up: Vec<u8> = (1..=SERVERS as u8).collect();
        for step in &self.steps {
            match step.event {
                Event::Crash(id) => up.retain(|up| *up != id),
                Event::Power => up.clear(),
                Event::Return(id) => up.push(id),
                _ => {}
            }
        }
        up
    }

    /// Returns the number of marks that are withheld, each from one server.
    pub(crate) fn withheld(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step.event, Event::Withhold(..))).count()
    }

    /// Returns how many disks hold a command before it is answered.
    pub fn durability(&self) -> DiskDurability {
        self.durability
    }

    /// Sets how many disks hold a command before it is answered.
    pub fn with(self, durability: DiskDurability) -> History {
        History { durability, ..self }
    }
}

/// An event of the server with this id.
type OfServer = fn(u8) -> Event;

/// Names of events with a server.
const EVENTS: [(&str, OfServer); 6] = [
    ("crash", Event::Crash),
    ("return", Event::Return),
    ("cut", Event::Cut),
    ("image", Event::Image),
    ("putback", Event::PutBack),
    ("flip", Event::Flip),
];

/// Begins the name of an event with two servers.
const WITHHOLD: &str = "withhold";

/// Names of effects.
const EFFECTS: [(&str, EffectKind); 7] = [
    ("append", EffectKind::Done(JobKind::Append)),
    ("commit", EffectKind::Done(JobKind::Commit)),
    ("adopt", EffectKind::Done(JobKind::Adopt)),
    ("begins", EffectKind::Begins(JobKind::Append)),
    ("told", EffectKind::Told),
    ("applies", EffectKind::Applies),
    ("serves", EffectKind::Serves),
];

fn is_id(server: u8) -> bool {
    (1..=SERVERS as u8).contains(&server)
}

/// Splits the id off the end of a word.
fn split_id(word: &str) -> Option<(&str, u8)> {
    let (name, id) = word.split_at_checked(word.len().checked_sub(1)?)?;
    let id = id.parse().ok().filter(|id| is_id(*id))?;
    Some((name, id))
}

fn ids(text: &str) -> Option<Vec<u8>> {
    text.split(',').map(|id| id.parse().ok().filter(|id| is_id(*id))).collect()
}

fn step(word: &str) -> Option<Step> {
    let (event, at) = word.split_once('@')?;
    let event = match event {
        "wait" => Event::Wait,
        "power" => Event::Power,
        "heal" => Event::Heal,
        event if event.starts_with(WITHHOLD) => {
            let (from, to) = event.strip_prefix(WITHHOLD)?.split_once('-')?;
            let id = |text: &str| text.parse().ok().filter(|id| is_id(*id));
            Event::Withhold(id(from)?, id(to).filter(|to| Some(*to) != id(from))?)
        }
        event => {
            let (name, server) = split_id(event)?;
            EVENTS.iter().find(|(known, _)| *known == name).map(|(_, event)| event(server))?
        }
    };
    let at = match at {
        "quiet" => Point::Quiet,
        at => match at.parse() {
            Ok(effects) => Point::After(effects),
            Err(_) => {
                let (name, server) = split_id(at)?;
                let (_, what) = EFFECTS.iter().find(|(known, _)| *known == name)?;
                Point::Next(Effect { server, what: *what })
            }
        },
    };
    Some(Step { event, at })
}

impl FromStr for History {
    type Err = String;

    fn from_str(text: &str) -> Result<History, String> {
        let mut history = History::default();
        for word in text.split_whitespace() {
            let known = match word.split_once('=') {
                Some(("commands", text)) => {
                    let number = text.parse().ok().filter(|number| *number <= COMMANDS_MAX);
                    number.map(|number| history.commands = number)
                }
                Some(("slow", text)) => ids(text).map(|ids| history.slow = ids),
                None if word == FOO => {
                    history.foo = true;
                    Some(())
                }
                Some(("last", text)) => ids(text).map(|ids| history.last = ids),
                _ => step(word).map(|step| history.steps.push(step)),
            };
            known.ok_or_else(|| format!("{word} is no step, such as crash1@14, power@quiet or last=2,3"))?;
        }
        match history.steps.len() {
            0..=STEPS_MAX => Ok(history),
            steps => Err(format!("{steps} steps are more than {STEPS_MAX}")),
        }
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ids: &[u8]| ids.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
        let mut words = Vec::new();
        if self.foo {
            words.push(FOO.to_string());
        }
        if self.commands != COMMANDS {
            words.push(format!("commands={}", self.commands));
        }
        if !self.slow.is_empty() {
            words.push(format!("slow={}", list(&self.slow)));
        }
        words.extend(self.steps.iter().map(Step::to_string));
        if !self.last.is_empty() {
            words.push(format!("last={}", list(&self.last)));
        }
        f.write_str(&words.join(" "))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.event {
            Event::Wait => write!(f, "wait@")?,
            Event::Power => write!(f, "power@")?,
            Event::Heal => write!(f, "heal@")?,
            Event::Crash(id) => write!(f, "crash{id}@")?,
            Event::Return(id) => write!(f, "return{id}@")?,
            Event::Cut(id) => write!(f, "cut{id}@")?,
            Event::Image(id) => write!(f, "image{id}@")?,
            Event::PutBack(id) => write!(f, "putback{id}@")?,
            Event::Flip(id) => write!(f, "flip{id}@")?,
            Event::Withhold(from, to) => write!(f, "{WITHHOLD}{from}-{to}@")?,
        }
        match self.at {
            Point::After(effects) => write!(f, "{effects}"),
            Point::Quiet => write!(f, "quiet"),
            Point::Next(Effect { server, what }) => {
                let name = EFFECTS.iter().find(|(_, known)| *known == what).map_or("", |(name, _)| name);
                write!(f, "{name}{server}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_read_as_it_is_written() {
        let text = "foo commands=5 slow=2,3 crash1@14 power@quiet heal@0 wait@told3 cut2@applies3 image1@append1 putback1@0 flip3@commit2 withhold3-1@append3 last=2,3";
        let history: History = text.parse().unwrap();
        assert_eq!((history.steps.len(), history.last.clone()), (9, vec![2, 3]));
        assert_eq!(history.to_string(), text);
        for bad in [
            "commands=x",
            "crash",
            "crash4@1",
            "crash1@",
            "crash1",
            "slow=4",
            "last=",
            "@1",
            "power1@2",
            "crash1@x2",
            "withhold1@2",
            "withhold1-1@2",
            "withhold1-4@2",
        ] {
            assert!(bad.parse::<History>().is_err(), "{bad}");
        }
    }
}
