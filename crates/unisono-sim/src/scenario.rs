//! Scripts: a group, what happens to it when, and what each member must have been told in the end.
//!
//! A scenario is a text file. Lines are commands, `#` begins a comment. First the group:
//!
//! ```text
//! members 5              # processes 0 to 4; 0 founds the group, the others join in this order
//! places 6               # processes in all, if more than members
//! resilience 1           # default 0
//! policy majority        # or: all, list, at-least N
//! resets manual          # default automatic
//! transport multicast    # or unicast (default), auto
//! method bb              # or pb (default): all messages by this method
//! migration by-load      # or on-request (default), never: when the role moves
//! ```
//!
//! Then what happens. Times count from when all members are in and the group has fallen silent:
//!
//! ```text
//! at 10ms send 2 "x"                        # also: send 2 300 bytes; … times 28; … times 28 every 1ms
//! at 10ms leave 3
//! at 10ms hand over to 4                    # whoever orders does it
//! at 10ms reset 0 min 2
//! at 10ms crash 4
//! at 10ms start 5                           # a new life, which joins; `start 5 or found`: or founds a group
//! at 10ms pause 1 for 500ms
//! at 10ms pause 1 for 92ms times 50 every 100ms
//! at 10ms doze 1 for 500ms                  # its application takes no events
//! at 10ms cut 0 1                           # 0 is not heard by 1 any more
//! at 10ms partition 0 1 | 2 3 4
//! at 10ms heal                              # ends all cuts and partitions, and all frames are let through
//! at 10ms drop frame Heartbeat from 1 to 2 times 3
//! at 10ms crash before frame Prepare from 0 skip 2
//! at 10ms crash after frame Prepare
//! at 10ms count                             # counts datagrams from here; a multicast counts once
//! at 10ms expect datagrams 5
//! until 2s                                  # the end
//! ```
//!
//! With `servers` in place of `members` processes call each other instead of forming a group, and times count from the
//! beginning. There is one port; who is handed a request says who it is.
//!
//! ```text
//! places 4
//! servers 1 2
//! at 10ms call 0 "x" within 1s
//! at 10ms next 1 to 2                       # 1 passes the next request that it is handed on to 2
//! at 10ms withdraw 1
//! ```
//!
//! And what processes must have been told since those times began: all lines, or `...` for any number of lines.
//! `sent` says what became of the process's own messages.
//!
//! ```text
//! expect 0 1:
//!   34 message 4 "x"
//!   35 reset [0 1 2 3] orderer 0 without [4]
//! expect 4:
//!   ...
//!   sent 2 ok 33
//! ```
//!
//! ```text
//! expect 2:
//!   request 0 "x" hops 1
//! expect 0:
//!   answered "by 2"
//! ```

mod calls;

use crate::draw::{MILLISECOND, SECOND};
use crate::network::{Network, Weather, cut};
use crate::plan::name;
use crate::properties::{self, Judge, Terms};
use crate::recorder::Recorder;
use crate::trap::{Deed, Trap};
use crate::world::{Birth, Cue, GroupBirth, GroupCommon, GroupSide, Side, World};
use bytes::Bytes;
use std::fmt;
use std::io::Write;
use std::str::FromStr;
use thiserror::Error;
use unisono_core::wire::FrameKind;
use unisono_core::{Entry, GroupConfig, Migration, Phase, Quorum, Random, Settings, Transport};

/// A script that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct ScriptError {
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: String,
}

/// What came of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// Where it differs from what was expected; nothing if all is well.
    pub problems: Vec<String>,
    /// What each process was told, in the form of `expect` lines.
    pub told: String,
}

/// A script that was read.
#[derive(Clone, Debug)]
pub struct Scenario {
    members: usize,
    /// Processes that serve, if they call each other.
    servers: Option<Vec<usize>>,
    places: usize,
    config: GroupConfig,
    transport: Transport,
    steps: Vec<Step>,
    until: u64,
    expected: Vec<(Vec<usize>, Vec<String>)>,
}

#[derive(Clone, Debug)]
struct Step {
    line: usize,
    at: u64,
    action: Action,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Send { process: usize, payload: Bytes, times: u64 },
    Leave { process: usize },
    HandOver { to: usize },
    Reset { process: usize, members_min: usize },
    Call { process: usize, request: Bytes, limit: u64 },
    PassNext { from: usize, to: usize },
    Withdraw { process: usize },
    Crash { process: usize },
    Start { process: usize, founds: bool },
    Pause { process: usize, duration: u64 },
    Doze { process: usize, duration: u64 },
    Cut { from: usize, to: usize },
    Partition { sides: Vec<Vec<usize>> },
    Heal,
    Trap(Trap),
    Count,
    ExpectDatagrams(u64),
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
            "members" => self.members = words.number()?,
            "places" => self.places = words.number()?,
            "servers" => {
                let servers = self.servers.insert(Vec::new());
                while !words.is_done() {
                    servers.push(words.number()?);
                }
            }
            "resilience" => self.config.resilience = words.number()?,
            "policy" => {
                self.config.quorum = match words.next()? {
                    "majority" => Quorum::MajorityOfView,
                    "all" => Quorum::All,
                    "list" => Quorum::MajorityOf((0..self.members).map(|place| name(place, false)).collect()),
                    "at-least" => Quorum::AtLeast(words.number()?),
                    other => return Err(format!("no policy is called {other}")),
                }
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
                    other => return Err(format!("no transport is called {other}")),
                }
            }
            "method" => {
                self.config.broadcast_above_bytes = match words.next()? {
                    "pb" => u32::MAX,
                    "bb" => 0,
                    other => return Err(format!("no method is called {other}")),
                }
            }
            "migration" => {
                self.config.migration = match words.next()? {
                    "never" => Migration::Never,
                    "on-request" => Migration::OnRequest,
                    "by-load" => Migration::ByLoad,
                    other => return Err(format!("no migration is called {other}")),
                }
            }
            "until" => self.until = words.time()?,
            "at" => {
                let at = words.time()?;
                let mut action = read_action(&mut words)?;
                let mut count = if words.skip("times") { words.number()? } else { 1 };
                let every = if words.skip("every") { words.time()? } else { 0 };
                if let Action::Send { times, .. } = &mut action
                    && every > 0
                {
                    count = std::mem::replace(times, 1);
                }
                if (count > 1) != (every > 0) {
                    return Err("what is done several `times` is done `every` so often".into());
                }
                for index in 0..count {
                    self.steps.push(Step { line: number, at: at + index * every, action: action.clone() });
                }
            }
            "expect" => {
                let mut processes = Vec::new();
                while !words.is_done() {
                    processes.push(parse(words.next()?.trim_end_matches(':'))?);
                }
                self.expected.push((processes, Vec::new()));
            }
            other => return Err(format!("no command is called {other}")),
        }
        words.end()
    }

    /// Runs it; every line of the run goes to `trace`, if there is one.
    pub fn run(&self, trace: Option<Box<dyn Write>>) -> Course {
        if let Some(servers) = &self.servers {
            return self.run_calls(servers, trace);
        }
        let judge = Judge::new(properties::all(&Terms { config: self.config.clone() }));
        let common = GroupCommon::new(self.config.history_messages);
        let mut stage = Stage::<GroupSide>::new(self, common, Recorder::new(judge, trace));
        if stage.form_group() {
            stage.play(Stage::act, |_, _| {});
        }
        stage.close()
    }
}

fn read_action(words: &mut Words<'_>) -> Result<Action, String> {
    Ok(match words.next()? {
        "send" => {
            let process = words.number()?;
            let payload = match words.text() {
                Some(text) => Bytes::copy_from_slice(text.as_bytes()),
                None => {
                    let bytes = words.number()?;
                    words.expect("bytes")?;
                    Bytes::from(vec![b'.'; bytes])
                }
            };
            let times = if words.skip("times") { words.number()? } else { 1 };
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
            let text = words.text().ok_or("a call has a text")?;
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
                Action::Trap(read_trap(words, Deed::CrashBefore)?)
            } else if words.skip("after") {
                Action::Trap(read_trap(words, Deed::CrashAfter)?)
            } else {
                Action::Crash { process: words.number()? }
            }
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
                    sides.last_mut().ok_or("a partition has sides")?.push(process);
                }
            }
            Action::Partition { sides }
        }
        "heal" => Action::Heal,
        "drop" => Action::Trap(read_trap(words, Deed::Drop)?),
        "count" => Action::Count,
        "expect" => {
            words.expect("datagrams")?;
            Action::ExpectDatagrams(words.number()?)
        }
        other => return Err(format!("nothing that happens is called {other}")),
    })
}

fn read_trap(words: &mut Words<'_>, deed: Deed) -> Result<Trap, String> {
    words.expect("frame")?;
    let wanted = words.next()?;
    let frame = FrameKind::ALL.iter().copied().find(|kind| kind.name() == wanted);
    let frame = frame.ok_or_else(|| format!("no frame is called {wanted}"))?;
    let mut trap = Trap { frame, from: None, to: None, skip: 0, times: 1, deed };
    while !words.is_done() {
        match words.next()? {
            "from" => trap.from = Some(words.number()?),
            "to" => trap.to = Some(words.number()?),
            "skip" => trap.skip = words.number()?,
            "times" => trap.times = words.number()?,
            other => return Err(format!("`{other}` says nothing about a frame")),
        }
    }
    Ok(trap)
}

/// A running scenario.
struct Stage<'a, S: Side> {
    scenario: &'a Scenario,
    world: World<S>,
    counted_from: u64,
    problems: Vec<String>,
}

/// Longer than this, and the group will never form.
const FORMATION_MAX: u64 = 20 * SECOND;

impl<'a, S: Side> Stage<'a, S> {
    fn new(scenario: &'a Scenario, common: S::Common, recorder: Recorder) -> Stage<'a, S> {
        let mut random = Random::from_u64(1);
        let mut fork = || Random::from_u64(random.next_u64());
        let network = Network::new(scenario.places, Weather::calm(), fork());
        let mut world = World::new(scenario.places, common, network, recorder, fork());
        world.diary = Some(Default::default());
        Stage { scenario, world, counted_from: 0, problems: Vec::new() }
    }

    /// Lets time pass; applications answer nothing by themselves.
    fn pass(&mut self, duration: u64) {
        let until = self.world.now + duration;
        while self.world.advance(until).is_some() {}
    }

    /// Runs the script: `act` does what it says, `answer` what applications do by themselves.
    fn play(
        &mut self,
        act: impl Fn(&mut Self, &Action) -> Result<(), String>,
        answer: impl Fn(&mut Self, Cue),
    ) {
        let begin = self.world.now;
        for (index, step) in self.scenario.steps.iter().enumerate() {
            self.world.cue(step.at, Cue::Line(index as u32));
        }
        while let Some(cue) = self.world.advance(begin + self.scenario.until) {
            if let Cue::Line(index) = cue {
                let step = &self.scenario.steps[index as usize];
                if let Err(problem) = act(self, &step.action) {
                    self.problems.push(format!("line {}: {problem}", step.line));
                }
            } else {
                answer(self, cue);
            }
        }
    }

    /// Does what can be done to anybody.
    fn act_anywhere(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Crash { process } => self.world.crash(*process),
            Action::Pause { process, duration } => self.world.pause(*process, *duration),
            Action::Doze { process, duration } => self.world.doze(*process, *duration),
            Action::Cut { from, to } => self.world.network.set_cut(*from, *to, cut::PARTITION, true),
            Action::Partition { sides } => {
                let side = |process: usize| sides.iter().position(|side| side.contains(&process));
                for from in 0..self.scenario.places {
                    for to in (0..self.scenario.places).filter(|to| side(*to) != side(from)) {
                        self.world.network.set_cut(from, to, cut::PARTITION, true);
                    }
                }
            }
            Action::Heal => {
                self.world.network.clear_cuts(cut::PARTITION);
                self.world.traps.clear();
            }
            Action::Trap(trap) => self.world.traps.set(*trap),
            Action::Count => self.counted_from = self.world.recorder.totals.datagrams,
            Action::ExpectDatagrams(expected) => {
                let sent = self.world.recorder.totals.datagrams - self.counted_from;
                if sent != *expected {
                    return Err(format!("{sent} datagrams were sent, not {expected}"));
                }
            }
            _ => return Err("that is not done in such a scenario".into()),
        }
        Ok(())
    }

    fn close(mut self) -> Course {
        self.world.recorder.catch_up();
        if let Some(violation) = self.world.recorder.violation() {
            self.problems.push(violation.to_string());
        }
        let diary = self.world.diary.take().unwrap_or_default();
        for (processes, expected) in &self.scenario.expected {
            for process in processes {
                if let Some(problem) = difference(expected, diary.lines(*process)) {
                    self.problems.push(format!("{process}: {problem}"));
                }
            }
        }
        let mut told = String::new();
        for process in 0..self.scenario.places {
            told.push_str(&format!("expect {process}:\n"));
            diary.lines(process).iter().for_each(|line| told.push_str(&format!("  {line}\n")));
        }
        Course { problems: self.problems, told }
    }
}

impl Stage<'_, GroupSide> {
    /// One member after the other enters; then the group falls silent.
    fn form_group(&mut self) -> bool {
        for process in 0..self.scenario.members {
            let entry = if process == 0 { Entry::Found(self.scenario.config.clone()) } else { Entry::Join };
            self.give_life(process, entry);
            while !self.has_entered(process) {
                if self.world.now > FORMATION_MAX || self.world.recorder.violation().is_some() {
                    self.problems.push(format!("{process} does not come in"));
                    return false;
                }
                self.pass(MILLISECOND);
            }
        }
        self.pass(2 * SECOND);
        if let Some(diary) = &mut self.world.diary {
            diary.clear();
        }
        true
    }

    fn has_entered(&self, process: usize) -> bool {
        self.world.resident(process).is_some_and(|resident| resident.side.group.phase() == Phase::Member)
    }

    fn act(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Send { process, payload, times } => {
                for _ in 0..*times {
                    self.world
                        .send_payload(*process, payload.clone(), None)
                        .map_err(|error| error.to_string())?;
                }
            }
            Action::Leave { process } => self.world.leave(*process).map_err(|error| error.to_string())?,
            Action::HandOver { to } => {
                let successor = self.world.resident(*to).ok_or("nobody lives there")?.uid;
                let mut orderers = (0..self.scenario.places).filter(|place| {
                    self.world
                        .resident(*place)
                        .is_some_and(|resident| resident.side.group.info().orderer == resident.uid)
                });
                let orderer = orderers.next_back().ok_or("nobody orders")?;
                self.world.hand_over(orderer, successor);
            }
            Action::Reset { process, members_min } => self.world.reset(*process, *members_min),
            Action::Start { process, founds: false } => self.give_life(*process, Entry::Join),
            Action::Start { process, founds: true } => {
                self.give_life(*process, Entry::JoinOrFound(self.scenario.config.clone()));
            }
            other => return self.act_anywhere(other),
        }
        Ok(())
    }

    fn give_life(&mut self, process: usize, entry: Entry) {
        let settings = Settings { transport: self.scenario.transport, ..Settings::default() };
        let birth = Birth {
            name: name(process, false),
            side: GroupBirth { entry, settings },
            gain: 0,
            events_first: false,
            planted: None,
        };
        if let Err(error) = self.world.start(process, birth) {
            self.problems.push(error.to_string());
        }
    }
}

/// The first place where lines are not what was expected.
fn difference(expected: &[String], found: &[String]) -> Option<String> {
    let mut place = 0;
    let mut skips = false;
    for line in expected {
        if line == "..." {
            skips = true;
            continue;
        }
        let next = if skips {
            found[place..].iter().position(|one| one == line).map(|distance| place + distance)
        } else {
            found.get(place).filter(|one| *one == line).map(|_| place)
        };
        match next {
            Some(next) => place = next + 1,
            None => {
                let told = found.get(place).map_or("nothing more", String::as_str);
                return Some(format!("expected `{line}`, was told `{told}`"));
            }
        }
        skips = false;
    }
    match found.get(place) {
        Some(more) if !skips => Some(format!("expected nothing more, was told `{more}`")),
        _ => None,
    }
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
            return Err("the line ends too early".to_string());
        }
        let (word, rest) = self.rest.split_once(char::is_whitespace).unwrap_or((self.rest, ""));
        self.rest = rest.trim_start();
        Ok(word)
    }

    /// Text in quotes, if that comes next.
    fn text(&mut self) -> Option<&'a str> {
        let (text, rest) = self.rest.strip_prefix('"')?.split_once('"')?;
        self.rest = rest.trim_start();
        Some(text)
    }

    /// Goes over this word, if it comes next.
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
            .ok_or_else(|| format!("{word} is no time; write 10us, 10ms or 10s"))?;
        Ok(parse::<u64>(digits)? * unit)
    }

    fn end(&self) -> Result<(), String> {
        if self.is_done() { Ok(()) } else { Err(format!("`{}` is too much", self.rest)) }
    }
}

fn parse<T: FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word} is no number that fits here"))
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problems.iter().try_for_each(|problem| writeln!(f, "{problem}"))?;
        if !self.problems.is_empty() {
            write!(f, "what was told:\n{}", self.told)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[&str]) -> Vec<String> {
        text.iter().map(|line| line.to_string()).collect()
    }

    #[test]
    fn lines_are_compared_in_order() {
        let found = lines(&["1 joined 1", "2 message 0 \"a\"", "3 message 0 \"b\""]);
        assert_eq!(difference(&found, &found), None);
        assert_eq!(difference(&lines(&["...", "3 message 0 \"b\""]), &found), None);
        assert_eq!(difference(&lines(&["1 joined 1", "..."]), &found), None);
        assert!(difference(&lines(&["1 joined 1"]), &found).is_some());
        assert!(difference(&lines(&["...", "2 message 0 \"a\""]), &found).is_some());
        assert!(difference(&lines(&["1 joined 1", "3 message 0 \"b\"", "..."]), &found).is_some());
        assert!(difference(&lines(&["1 joined 1"]), &[]).is_some());
    }

    #[test]
    fn scripts_are_read() {
        let scenario: Scenario = "members 3\nat 5ms send 1 \"a b\" times 4 # so\nexpect 0 2:\n  1 left 1\n"
            .parse()
            .expect("it is well formed");
        assert_eq!(scenario.steps.len(), 1);
        let payload = Bytes::from_static(b"a b");
        assert_eq!(scenario.steps[0].action, Action::Send { process: 1, payload, times: 4 });
        assert_eq!(scenario.expected, [(vec![0, 2], lines(&["1 left 1"]))]);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line) in [
            ("members", 1),
            ("members 3\nat 5 crash 1", 2),
            ("\nat 5ms drop frame Nonsense", 2),
            ("  1 left 1", 1),
            ("at 5ms crash 1 2", 1),
        ] {
            let error = text.parse::<Scenario>().expect_err(text);
            assert_eq!(error.line, line, "{text}: {error}");
        }
    }
}
