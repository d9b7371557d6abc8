//! Runs the command from a test, to its end or in the background.

// Each test program uses a part of this module.
#![allow(dead_code)]

pub(crate) mod lab;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use signal_hook::consts::SIGHUP;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// Time limit of every wait in a test: 60 s.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Flags of a process that is to join an existing group, whose members may be kept from answering for a while.
pub(crate) const LOOKS_LONG: [&str; 2] = ["--locate", "6000"];
/// Flags for groups in which a member fails: 1 s is longer than machines usually keep a process waiting. A member that
/// was kept waiting itself probes the silent members again, so its patience begins anew.
pub(crate) const WATCHFUL: [&str; 2] = ["--patience", "1000"];
/// Maximum number of attempts at something that fails if the machine keeps processes waiting.
const TRIES: usize = 5;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Lets one test run at a time. With several, members would get no processor, and would be suspected.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the command. Unless [`WATCHFUL`] is given, its members do not suspect a member that the machine keeps
/// waiting. It reacts to SIGHUP even if nohup started these tests: a child inherits an ignored signal, but not a
/// handled one.
pub(crate) fn command() -> Command {
    static HANDLES_HANGUP: Once = Once::new();
    HANDLES_HANGUP.call_once(|| _ = signal_hook::flag::register(SIGHUP, Arc::default()).unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.env("UNISONO_PATIENCE", "30s");
    command
}

/// Runs the command to its end.
pub(crate) fn unisono(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    unisono_in(Path::new("."), arguments)
}

/// Runs the command in a folder to its end.
pub(crate) fn unisono_in(folder: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    command().current_dir(folder).args(arguments).output().unwrap()
}

/// Runs a query to an existing group, again if no member answered in time.
pub(crate) fn asked(arguments: impl IntoIterator<Item = impl AsRef<OsStr>> + Clone) -> Output {
    persistently(|| unisono(arguments.clone()), |output| output.status.code() != Some(1))
}

/// Sends texts to an existing group.
pub(crate) fn sent(group: &str, texts: &[&str]) -> Output {
    unisono([&["send", group, "--json"], &LOOKS_LONG[..], texts].concat())
}

/// Tries a few times until the outcome is as wanted. Returns the last outcome.
pub(crate) fn persistently<T>(mut attempt: impl FnMut() -> T, well: impl Fn(&T) -> bool) -> T {
    let mut outcome = attempt();
    for _ in 1..TRIES {
        if well(&outcome) {
            break;
        }
        outcome = attempt();
    }
    outcome
}

/// Returns the last line of the output as an object.
pub(crate) fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("no object at the end of {output:?}: {error}"))
}

/// Returns a name of a group that no other test uses.
pub(crate) fn group(of: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{of}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A command in the background, killed when this value is dropped.
pub(crate) struct Background {
    pub(crate) process: Child,
    lines: Receiver<Value>,
    /// The lines that it has printed so far.
    pub(crate) seen: Vec<Value>,
}

impl Background {
    /// Starts it with `--json`.
    pub(crate) fn start(arguments: &[&str]) -> Background {
        Background::begin(arguments, Stdio::null())
    }

    /// Starts it with `--json`. What it prints on standard error is among its lines, as texts.
    pub(crate) fn start_heard(arguments: &[&str]) -> Background {
        Background::begin(arguments, Stdio::piped())
    }

    fn begin(arguments: &[&str], stderr: Stdio) -> Background {
        let mut process = command()
            .args(arguments)
            .arg("--json")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let (to, lines) = mpsc::channel();
        if let Some(said) = process.stderr.take() {
            Background::read(said, to.clone());
        }
        Background::read(process.stdout.take().unwrap(), to);
        Background { process, lines, seen: Vec::new() }
    }

    fn read(from: impl Read + Send + 'static, to: Sender<Value>) {
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if to.send(serde_json::from_str(&line).unwrap_or(Value::String(line))).is_err() {
                    return;
                }
            }
        });
    }

    /// Waits until it has printed a text with these words on standard error.
    pub(crate) fn until_said(&mut self, words: &str) {
        self.until(words, |seen| {
            seen.iter().any(|line| line.as_str().is_some_and(|text| text.contains(words)))
        });
    }

    /// Starts a listener and waits until it is a member.
    pub(crate) fn listen(group: &str, more: &[&str]) -> Background {
        let mut listener = Background::start(&[&["listen", group], more].concat());
        listener.until("the view", |seen| !seen.is_empty());
        listener
    }

    /// Starts a listener that joins an existing group.
    pub(crate) fn join(group: &str, more: &[&str]) -> Background {
        Background::listen(group, &[&LOOKS_LONG, more].concat())
    }

    /// Writes lines to its standard input.
    pub(crate) fn feed(&mut self, lines: &[String]) {
        let mut input = self.process.stdin.as_ref().unwrap();
        input.write_all(lines.iter().map(|line| format!("{line}\n")).collect::<String>().as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// Reads its output until a condition holds. `what` describes it, for the panic.
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&[Value]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(&self.seen) {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(error) => {
                    panic!("{what}: {error} after {:?}", self.seen.iter().rev().take(5).collect::<Vec<_>>())
                }
            }
        }
    }

    /// Reads its output until it has printed `count` messages.
    pub(crate) fn until_messages(&mut self, count: usize) {
        self.until(&format!("{count} messages"), |seen| {
            seen.iter().filter(|line| line["event"] == "message").count() >= count
        });
    }

    /// Returns seqno and text of the messages that it has printed.
    pub(crate) fn messages(&self) -> Vec<(u64, String)> {
        let messages = self.seen.iter().filter(|line| line["event"] == "message");
        messages
            .map(|line| (line["seq"].as_u64().unwrap(), line["text"].as_str().unwrap().to_string()))
            .collect()
    }

    /// Returns the texts of these messages.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.messages().into_iter().map(|(_, text)| text).collect()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Closes its input, reads the rest of its output, and returns its exit status.
    pub(crate) fn end(&mut self) -> Option<i32> {
        drop(self.process.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.seen.push(line);
        }
        assert!(Instant::now() < deadline, "it does not end: {:?}", self.seen.last());
        self.process.wait().unwrap().code()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a command that tests a group. Repeats it with far more patience if the group excluded a live member, which the
/// machine may have kept waiting.
pub(crate) fn tried(arguments: &[&str]) -> Output {
    let output = unisono([arguments, &WATCHFUL[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    match said.contains("the group excluded") && said.contains("which is alive") {
        true => unisono([arguments, &["--patience", "5000"]].concat()),
        false => output,
    }
}
