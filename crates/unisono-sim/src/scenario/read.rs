//! Parses scripts. The syntax is described in `scenarios/README.md`.

use super::{Action, Scenario, Step};
use crate::draw::{MILLISECOND, SECOND};
use crate::frame_faults::{FaultAction, FrameFault};
use crate::plan::name;
use bytes::Bytes;
use std::fmt::Display;
use std::str::FromStr;
use thiserror::Error;
use unisono_core::wire::FrameKind;
use unisono_core::{GroupConfig, Migration, Order, Quorum, Transport};

/// Most processes of a script: the default limit of a group's members.
const PLACES_MAX: usize = 256;
/// Most repetitions of one action.
const TIMES_MAX: u64 = 100_000;

/// A script that could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct ScriptError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The mistake in it.
    pub problem: String,
}

impl FromStr for Scenario {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Scenario, ScriptError> {
        let mut scenario = Scenario {
            members: 3,
            servers: None,
            places: 0,
            config: GroupConfig { resilience: 0, broadcast_above_bytes: u32::MAX, ..GroupConfig::default() },
            transport: Transport::Unicast,
            steps: Vec::new(),
            until: SECOND,
            expected: Vec::new(),
        };
        for (index, line) in text.lines().enumerate() {
            scenario
                .read_line(index + 1, line)
                .map_err(|problem| ScriptError { line: index + 1, problem })?;
        }
        if scenario.servers.is_none() {
            scenario.places = scenario.places.max(scenario.members);
        }
        Ok(scenario)
    }
}

impl Scenario {
    fn read_line(&mut self, number: usize, line: &str) -> Result<(), String> {
        let line = line.split_once('#').map_or(line, |(before, _)| before);
        let is_indented = line.starts_with(char::is_whitespace);
        let mut words = Words::new(line);
        if words.is_done() {
            return Ok(());
        }
        if is_indented {
            let (_, lines) = self.expected.last_mut().ok_or("an indented line must follow `expect`")?;
            lines.push(line.trim().to_string());
            return Ok(());
        }
        match words.next()? {
            "members" => self.members = words.up_to(PLACES_MAX)?,
            "places" => self.places = words.up_to(PLACES_MAX)?,
            "servers" => {
                let mut servers = Vec::new();
                while !words.is_done() {
                    servers.push(words.number()?);
                }
                self.servers = Some(servers.clone());
                self.check_processes(servers)?;
            }
            "resilience" => self.config.resilience = words.number()?,
            "policy" => {
                self.config.quorum = match words.next()? {
                    "majority" => Quorum::MajorityOfView,
                    "all" => Quorum::All,
                    "list" => Quorum::MajorityOf((0..self.members).map(|place| name(place, false)).collect()),
                    "at-least" => Quorum::AtLeast(words.number()?),
                    other => return Err(format!("unknown policy {other}")),
                };
                self.config.check().map_err(|error| error.to_string())?;
            }
            "resets" => {
                self.config.automatic = match words.next()? {
                    "automatic" => true,
                    "manual" => false,
                    other => return Err(format!("resets are automatic or manual, not {other}")),
                }
            }
            "transport" => {
                self.transport = match words.next()? {
                    "multicast" => Transport::Multicast,
                    "unicast" => Transport::Unicast,
                    "auto" => Transport::Auto,
                    other => return Err(format!("unknown transport {other}")),
                }
            }
            "method" => {
                self.config.broadcast_above_bytes = match words.next()? {
                    "pb" => u32::MAX,
                    "bb" => 0,
                    other => return Err(format!("unknown method {other}")),
                }
            }
            "order" => {
                self.config.order = match words.next()? {
                    "fixed" => Order::Sequencer(Migration::Never),
                    "on-request" => Order::Sequencer(Migration::OnRequest),
                    "by-load" => Order::Sequencer(Migration::ByLoad),
                    "token" => Order::Token,
                    other => return Err(format!("unknown order {other}")),
                }
            }
            "until" => self.until = words.time()?,
            "at" => {
                let at = words.time()?;
                let mut action = read_action(&mut words)?;
                self.check_processes(action.processes())?;
                let mut count = if words.skip("times") { words.up_to(TIMES_MAX)? } else { 1 };
                let every = if words.skip("every") { words.time()? } else { 0 };
                if let Action::Send { times, .. } = &mut action
                    && every > 0
                {
                    count = std::mem::replace(times, 1);
                }
                if (count > 1) != (every > 0) {
                    return Err("a number of `times` above 1 and an interval `every` belong together".into());
                }
                for index in 0..count {
                    let at = at.saturating_add(index.saturating_mul(every));
                    self.steps.push(Step { line: number, at, action: action.clone() });
                }
            }
            "expect" => {
                let mut processes = Vec::new();
                while !words.is_done() {
                    processes.push(parse(words.next()?.trim_end_matches(':'))?);
                }
                self.check_processes(processes.clone())?;
                self.expected.push((processes, Vec::new()));
            }
            other => return Err(format!("unknown command {other}")),
        }
        words.end()
    }

    /// Refuses numbers of processes that do not exist.
    fn check_processes(&self, processes: Vec<usize>) -> Result<(), String> {
        let places = if self.servers.is_none() { self.places.max(self.members) } else { self.places };
        match processes.into_iter().find(|process| *process >= places) {
            Some(process) => Err(format!(
                "there is no process {process}: the {places} processes are numbered from 0; put `members` or `places` \
                 first"
            )),
            None => Ok(()),
        }
    }
}

impl Action {
    /// Returns the processes that the action names.
    fn processes(&self) -> Vec<usize> {
        match self {
            Action::Send { process, .. }
            | Action::Leave { process }
            | Action::HandOver { to: process }
            | Action::Reset { process, .. }
            | Action::Call { process, .. }
            | Action::Withdraw { process }
            | Action::Crash { process }
            | Action::Start { process, .. }
            | Action::Pause { process, .. }
            | Action::Doze { process, .. } => vec![*process],
            Action::Force { process, without } => without.iter().chain([process]).copied().collect(),
            Action::PassNext { from, to } | Action::Cut { from, to } => vec![*from, *to],
            Action::Partition { sides } => sides.concat(),
            Action::FrameFault(fault) => [fault.from, fault.to].into_iter().flatten().collect(),
            Action::Heal | Action::Count | Action::ExpectDatagrams(_) => Vec::new(),
        }
    }
}

fn read_action(words: &mut Words<'_>) -> Result<Action, String> {
    Ok(match words.next()? {
        "send" => {
            let process = words.number()?;
            let payload = match words.text() {
                Some(text) => Bytes::copy_from_slice(text.as_bytes()),
                None => {
                    let bytes = words.up_to(GroupConfig::default().message_bytes_max as usize)?;
                    words.expect("bytes")?;
                    Bytes::from(vec![b'.'; bytes])
                }
            };
            let times = if words.skip("times") { words.up_to(TIMES_MAX)? } else { 1 };
            Action::Send { process, payload, times }
        }
        "leave" => Action::Leave { process: words.number()? },
        "hand" => {
            words.expect("over")?;
            words.expect("to")?;
            Action::HandOver { to: words.number()? }
        }
        "call" => {
            let process = words.number()?;
            let text = words.text().ok_or("`call` needs a text in quotes")?;
            let request = Bytes::copy_from_slice(text.as_bytes());
            words.expect("within")?;
            Action::Call { process, request, limit: words.time()? }
        }
        "next" => {
            let from = words.number()?;
            words.expect("to")?;
            Action::PassNext { from, to: words.number()? }
        }
        "withdraw" => Action::Withdraw { process: words.number()? },
        "reset" => {
            let process = words.number()?;
            let members_min = if words.skip("min") { words.number()? } else { 1 };
            Action::Reset { process, members_min }
        }
        "crash" => {
            if words.skip("before") {
                Action::FrameFault(read_frame_fault(words, FaultAction::CrashBefore)?)
            } else if words.skip("after") {
                Action::FrameFault(read_frame_fault(words, FaultAction::CrashAfter)?)
            } else {
                Action::Crash { process: words.number()? }
            }
        }
        "force" => {
            let process = words.number()?;
            words.expect("without")?;
            let mut without = vec![words.number()?];
            while !words.is_done() {
                without.push(words.number()?);
            }
            Action::Force { process, without }
        }
        "start" => {
            let process = words.number()?;
            let founds = words.skip("or");
            if founds {
                words.expect("found")?;
            }
            Action::Start { process, founds }
        }
        "pause" => Action::Pause { process: words.number()?, duration: words.duration()? },
        "doze" => Action::Doze { process: words.number()?, duration: words.duration()? },
        "cut" => Action::Cut { from: words.number()?, to: words.number()? },
        "partition" => {
            let mut sides = vec![Vec::new()];
            while !words.is_done() {
                if words.skip("|") {
                    sides.push(Vec::new());
                } else {
                    let process = words.number()?;
                    sides.last_mut().ok_or("`partition` needs sides")?.push(process);
                }
            }
            Action::Partition { sides }
        }
        "heal" => Action::Heal,
        "drop" => Action::FrameFault(read_frame_fault(words, FaultAction::Drop)?),
        "count" => Action::Count,
        "expect" => {
            words.expect("datagrams")?;
            Action::ExpectDatagrams(words.number()?)
        }
        other => return Err(format!("unknown action {other}")),
    })
}

fn read_frame_fault(words: &mut Words<'_>, action: FaultAction) -> Result<FrameFault, String> {
    words.expect("frame")?;
    let wanted = words.next()?;
    let frame = FrameKind::ALL.iter().copied().find(|kind| kind.name() == wanted);
    let frame = frame.ok_or_else(|| format!("unknown frame {wanted}"))?;
    let mut fault = FrameFault { frame, from: None, to: None, skip: 0, times: 1, action };
    while !words.is_done() {
        match words.next()? {
            "from" => fault.from = Some(words.number()?),
            "to" => fault.to = Some(words.number()?),
            "skip" => fault.skip = words.number()?,
            "times" => fault.times = words.number()?,
            other => return Err(format!("unexpected `{other}`: use from, to, skip or times")),
        }
    }
    Ok(fault)
}

/// The words of a line; text in quotes is one word.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn new(line: &'a str) -> Words<'a> {
        Words { rest: line.trim() }
    }

    fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    fn next(&mut self) -> Result<&'a str, String> {
        if self.is_done() {
            return Err("the line is incomplete".to_string());
        }
        let (word, rest) = self.rest.split_once(char::is_whitespace).unwrap_or((self.rest, ""));
        self.rest = rest.trim_start();
        Ok(word)
    }

    /// Takes text in quotes, if that comes next.
    fn text(&mut self) -> Option<&'a str> {
        let (text, rest) = self.rest.strip_prefix('"')?.split_once('"')?;
        self.rest = rest.trim_start();
        Some(text)
    }

    /// Takes this word, if it comes next; true if it did.
    fn skip(&mut self, word: &str) -> bool {
        let mut ahead = Words { rest: self.rest };
        let comes = ahead.next() == Ok(word);
        if comes {
            self.rest = ahead.rest;
        }
        comes
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        if self.skip(word) { Ok(()) } else { Err(format!("`{word}` is missing")) }
    }

    fn number<T: FromStr>(&mut self) -> Result<T, String> {
        parse(self.next()?)
    }

    fn up_to<T: FromStr + PartialOrd + Display>(&mut self, most: T) -> Result<T, String> {
        let number = self.number()?;
        if number <= most { Ok(number) } else { Err(format!("{number} is too many: at most {most}")) }
    }

    fn duration(&mut self) -> Result<u64, String> {
        self.expect("for")?;
        self.time()
    }

    fn time(&mut self) -> Result<u64, String> {
        let word = self.next()?;
        let units = [("us", 1_000), ("ms", MILLISECOND), ("s", SECOND)];
        let (digits, unit) = units
            .iter()
            .find_map(|(suffix, unit)| word.strip_suffix(suffix).map(|digits| (digits, unit)))
            .ok_or_else(|| format!("{word} is not a time; write 10us, 10ms or 10s"))?;
        parse::<u64>(digits)?.checked_mul(*unit).ok_or_else(|| format!("{word} is too long"))
    }

    fn end(&self) -> Result<(), String> {
        if self.is_done() { Ok(()) } else { Err(format!("unexpected `{}` at the end", self.rest)) }
    }
}

fn parse<T: FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word} is not a number in the permitted range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_read() {
        let scenario: Scenario = "members 3\nat 5ms send 1 \"a b\" times 4 # so\nexpect 0 2:\n  1 left 1\n"
            .parse()
            .expect("it is well formed");
        assert_eq!(scenario.steps.len(), 1);
        let payload = Bytes::from_static(b"a b");
        assert_eq!(scenario.steps[0].action, Action::Send { process: 1, payload, times: 4 });
        assert_eq!(scenario.expected, [(vec![0, 2], vec!["1 left 1".to_string()])]);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line) in [
            ("members", 1),
            ("members 3\nat 5 crash 1", 2),
            ("\nat 5ms drop frame Nonsense", 2),
            ("  1 left 1", 1),
            ("at 5ms crash 1 2", 1),
            ("members 3\nat 5ms crash 3", 2),
            ("members 3\nat 5ms cut 0 3", 2),
            ("members 3\nat 5ms partition 0 1 | 2 3", 2),
            ("members 3\nat 5ms drop frame Data from 3", 2),
            ("members 3\nexpect 0 3:", 2),
            ("places 2\nservers 2", 2),
            ("members 257", 1),
            ("policy at-least 0", 1),
            ("at 5ms send 0 16777217 bytes", 1),
            ("at 5ms crash 0 times 100001 every 1ms", 1),
            ("until 99999999999999999999s", 1),
            ("until 18446744073709551615s", 1),
        ] {
            let error = text.parse::<Scenario>().expect_err(text);
            assert_eq!(error.line, line, "{text}: {error}");
        }
    }
}
