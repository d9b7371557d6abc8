//! Runs members and floors as separate worker processes.
//!
//! A command that needs several processes starts its own program again with a hidden subcommand. Parent and worker
//! exchange lines of JSON. The first line on the worker's standard input is its assignment, each later line an
//! instruction. Each line on its standard output is an answer. A worker never outlives its parent: the kernel kills it
//! when the parent dies; where the kernel cannot, the worker ends at the end of its standard input. The parent signals
//! only processes that it started and has not waited for yet.

use crate::cut::cut_off;
use crate::log;
use crate::notes;
use crate::output::BARS;
use crate::problem::Problem;
use crate::threads;
use anyhow::Context;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The hidden subcommand under which workers run.
pub(crate) const WORKER: &str = "worker";

/// The worker processes of one command: it sends instructions `I` and receives answers `A`.
pub(crate) struct Crew<I, A> {
    workers: Vec<Worker>,
    received: Receiver<(usize, Received<A>)>,
    sender: Sender<(usize, Received<A>)>,
    /// Answers of workers that were not waited for yet.
    early: Vec<(usize, A)>,
    instructions: PhantomData<I>,
}

/// An answer that may say that the worker could not do what it was told.
pub(crate) trait MayFail {
    /// Returns what went wrong.
    fn trouble(&self) -> Option<&str>;
}

struct Worker {
    process: Child,
    instructions: Option<ChildStdin>,
    /// The thread that copies the worker's standard error to ours, if there is one.
    logged: Option<JoinHandle<()>>,
    ended: bool,
}

/// What the parent receives from a worker.
#[derive(Debug)]
pub(crate) enum Received<A> {
    /// An answer.
    Answer(A),
    /// A line that is no answer.
    Nonsense(String),
    /// The end of its standard output: the worker has ended.
    Ended,
}

/// A fault that the parent can inflict on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    /// It is killed (SIGKILL).
    Kill,
    /// It is stopped (SIGSTOP).
    Stop,
    /// It is cut off from the network and keeps running.
    Cut,
}

impl<I: Serialize, A: DeserializeOwned + Send + 'static> Crew<I, A> {
    /// Makes a crew without workers.
    pub(crate) fn new() -> Crew<I, A> {
        let (sender, received) = mpsc::channel();
        Crew { workers: Vec::new(), received, sender, early: Vec::new(), instructions: PhantomData }
    }

    /// Starts a worker and sends it its assignment. Returns its index in the crew. Must be called from the main thread:
    /// the kernel kills the worker when the thread that started it ends.
    pub(crate) fn start(&mut self, assignment: &impl Serialize) -> anyhow::Result<usize> {
        let program =
            std::env::current_exe().context("cannot find this program's own file to start it again")?;
        // While progress bars are shown, the log lines of workers pass through this process, which prints them between
        // redraws of the bars.
        let passes_log_on = log::is_on() && !BARS.is_hidden();
        let mut process = Command::new(program)
            .arg(WORKER)
            .arg(std::process::id().to_string())
            .envs(log::environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(if passes_log_on { Stdio::piped() } else { Stdio::inherit() })
            .spawn()
            .context("cannot start a member process")?;
        let (instructions, answers) = (process.stdin.take(), process.stdout.take());
        let logged = process.stderr.take().map(pass_on).transpose()?;
        let index = self.workers.len();
        self.workers.push(Worker { process, instructions, logged, ended: false });
        if let Some(answers) = answers {
            let sender = self.sender.clone();
            threads::start(format!("answers {index}"), move || {
                for line in BufReader::new(answers).lines().map_while(Result::ok) {
                    let received =
                        serde_json::from_str(&line).map_or(Received::Nonsense(line), Received::Answer);
                    if sender.send((index, received)).is_err() {
                        return;
                    }
                }
                // If the receiver is dropped, the crew is being dismissed.
                let _ = sender.send((index, Received::Ended));
            })?;
        }
        self.write(index, assignment)?;
        Ok(index)
    }

    /// Returns the number of workers started.
    pub(crate) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Sends a worker an instruction.
    pub(crate) fn instruct(&mut self, index: usize, instruction: &I) -> anyhow::Result<()> {
        self.write(index, instruction)
    }

    fn write(&mut self, index: usize, line: &impl Serialize) -> anyhow::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        let instructions = self.workers[index]
            .instructions
            .as_mut()
            .context("this member process takes no more instructions")?;
        instructions.write_all(&bytes).with_context(|| format!("member process {index} ended unexpectedly"))
    }

    /// Waits for the next line or end of any worker. None if the deadline passes first.
    pub(crate) fn receive(&mut self, deadline: Instant) -> Option<(usize, Received<A>)> {
        self.received.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    }

    /// Waits for the next answer of any worker. Fails at the deadline, and if a worker that is not in `dead` ends or
    /// writes a line that is no answer. `what` names what is waited for.
    pub(crate) fn answer(
        &mut self,
        deadline: Instant,
        dead: &[usize],
        what: &str,
    ) -> Result<(usize, A), Problem> {
        loop {
            match self.receive(deadline) {
                Some((index, Received::Answer(answer))) => return Ok((index, answer)),
                Some((index, _)) if dead.contains(&index) => {}
                Some((index, Received::Nonsense(line))) => {
                    return Err(Problem::failed(format!(
                        "member process {index} wrote a line that is no answer: {line}"
                    )));
                }
                Some((index, Received::Ended)) => {
                    let how =
                        self.wait(index).map_or_else(|error| error.to_string(), |status| status.to_string());
                    return Err(Problem::failed(format!(
                        "member process {index} ended unexpectedly ({how})"
                    )));
                }
                None => return Err(Problem::failed(format!("waited too long for {what}"))),
            }
        }
    }

    /// Waits for the next answer of one worker, and keeps those of the others. Fails as [`Crew::answer`] does, and if any
    /// worker reports trouble.
    pub(crate) fn answer_of(
        &mut self,
        index: usize,
        deadline: Instant,
        dead: &[usize],
        what: &str,
    ) -> Result<A, Problem>
    where
        A: MayFail,
    {
        loop {
            if let Some(at) = self.early.iter().position(|(by, _)| *by == index) {
                return Ok(self.early.remove(at).1);
            }
            let (by, answer) = self.answer(deadline, dead, what)?;
            self.keep(by, answer)?;
        }
    }

    fn keep(&mut self, by: usize, answer: A) -> Result<(), Problem>
    where
        A: MayFail,
    {
        if let Some(trouble) = answer.trouble() {
            return Err(Problem::failed(format!("process {by}: {trouble}")));
        }
        self.early.push((by, answer));
        Ok(())
    }

    /// Returns whether an answer of this worker is there, without waiting for one.
    pub(crate) fn has_answered(&mut self, index: usize, dead: &[usize]) -> Result<bool, Problem>
    where
        A: MayFail,
    {
        while let Some((by, received)) = self.receive(Instant::now()) {
            match received {
                Received::Answer(answer) => self.keep(by, answer)?,
                _ if dead.contains(&by) => {}
                _ => return Err(Problem::failed(format!("process {by} ended unexpectedly"))),
            }
        }
        Ok(self.early.iter().any(|(by, _)| *by == index))
    }

    /// Inflicts a fault on a worker, unless it has ended.
    pub(crate) fn strike(&mut self, index: usize, blow: Blow) -> anyhow::Result<()> {
        let worker = &mut self.workers[index];
        if worker.ended || worker.process.try_wait()?.is_some() {
            worker.ended = true;
            return Ok(());
        }
        let pid = Pid::from_child(&worker.process);
        match blow {
            Blow::Kill => kill_process(pid, Signal::KILL)?,
            Blow::Stop => kill_process(pid, Signal::STOP)?,
            Blow::Cut => cut_off(pid)?,
        }
        Ok(())
    }

    /// Waits until a worker has ended.
    pub(crate) fn wait(&mut self, index: usize) -> anyhow::Result<ExitStatus> {
        self.workers[index].wait()
    }

    /// Closes the standard input of all workers, which makes them end, and waits for that for at most `patience`.
    pub(crate) fn dismiss(&mut self, patience: Duration) {
        for worker in &mut self.workers {
            worker.instructions = None;
        }
        let deadline = Instant::now() + patience;
        while self.workers.iter().any(|worker| !worker.ended) {
            match self.receive(deadline) {
                Some((index, Received::Ended)) => self.workers[index].ended = self.wait(index).is_ok(),
                Some(_) => {}
                None => return,
            }
        }
    }
}

impl<I, A> Drop for Crew<I, A> {
    fn drop(&mut self) {
        for worker in self.workers.iter_mut().filter(|worker| !worker.ended) {
            // Fails if the worker has just ended, which is harmless.
            let _ = worker.process.kill();
            let _ = worker.wait();
        }
    }
}

impl Worker {
    /// Waits until it has ended and its whole standard error is copied to ours.
    fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let status = self.process.wait()?;
        self.ended = true;
        // If that thread panicked, the panic is on standard error already.
        let _ = self.logged.take().map(JoinHandle::join);
        Ok(status)
    }
}

/// Copies a worker's standard error to ours, line by line.
fn pass_on(stderr: ChildStderr) -> anyhow::Result<JoinHandle<()>> {
    let passing = std::thread::Builder::new().name("log of a member".into()).spawn(move || {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            notes::write(&line);
        }
    });
    passing.context("cannot start a thread")
}

/// The worker's side: the assignment and the instructions that it receives.
pub(crate) struct Instructions {
    lines: std::io::Lines<BufReader<std::io::Stdin>>,
}

impl Instructions {
    /// Makes this process end with its parent. To be called first.
    pub(crate) fn begin(parent: u32) -> anyhow::Result<Instructions> {
        #[cfg(target_os = "linux")]
        {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            let now = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
            anyhow::ensure!(u32::try_from(now) == Ok(parent), "the parent process has ended");
        }
        Ok(Instructions { lines: BufReader::new(std::io::stdin()).lines() })
    }

    /// Waits for the next instruction; the first is the assignment. None at the end of the input.
    pub(crate) fn next<I: DeserializeOwned>(&mut self) -> anyhow::Result<Option<I>> {
        match self.lines.next() {
            Some(line) => Ok(Some(serde_json::from_str(&line?)?)),
            None => Ok(None),
        }
    }
}

/// Sends the parent an answer.
pub(crate) fn answer(answer: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    Ok(out.flush()?)
}

/// Returns nanoseconds of the monotonic clock, which all processes of this machine share.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(rustix::time::ClockId::Monotonic)
}

/// Returns the processor time that all threads of this process have used, in nanoseconds.
pub(crate) fn processor_ns() -> u64 {
    clock_ns(rustix::time::ClockId::ProcessCPUTime)
}

/// Returns the number of context switches of all threads of this process; 0 where the system does not say.
pub(crate) fn context_switches() -> u64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let statuses =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    let switches = |status: String| -> u64 {
        let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
        counts.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
    };
    statuses.map(switches).sum()
}

fn clock_ns(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}
