//! Members and floors as processes of their own.
//!
//! A command that needs several processes starts its own program again with a hidden subcommand. Parent and worker
//! talk in lines of JSON: the first line down the worker's standard input is its role, later lines are orders;
//! lines up its standard output are reports. A worker never outlives its parent: the kernel kills it when the
//! parent dies, however that dies, and where the kernel cannot, the end of its standard input ends it. The parent
//! strikes only processes it started and has not yet waited for.

use crate::cut::cut_off;
use crate::log;
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

/// The processes that one command started: `O` are its orders to them, `R` their reports.
pub(crate) struct Crew<O, R> {
    workers: Vec<Worker>,
    said: Receiver<(usize, Said<R>)>,
    sayer: Sender<(usize, Said<R>)>,
    orders: PhantomData<O>,
}

struct Worker {
    process: Child,
    orders: Option<ChildStdin>,
    /// Passes on what it writes to standard error, until it ends.
    logged: Option<JoinHandle<()>>,
    ended: bool,
}

/// What comes from a worker.
#[derive(Debug)]
pub(crate) enum Said<R> {
    /// A report.
    Answer(R),
    /// A line that is no report.
    Nonsense(String),
    /// It ended.
    Ended,
}

/// What the parent may do to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    /// It dies at once, without a word.
    Kill,
    /// It stands still.
    Stop,
    /// It is cut off from the network.
    Cut,
}

impl<O: Serialize, R: DeserializeOwned + Send + 'static> Crew<O, R> {
    /// Nobody yet.
    pub(crate) fn new() -> Crew<O, R> {
        let (sayer, said) = mpsc::channel();
        Crew { workers: Vec::new(), said, sayer, orders: PhantomData }
    }

    /// Starts a worker in a role; returns its place in the crew. To be called from the main thread: the kernel ties
    /// the worker's life to the thread that started it.
    pub(crate) fn start(&mut self, role: &impl Serialize) -> anyhow::Result<usize> {
        let program =
            std::env::current_exe().context("cannot find this program's own file to start it again")?;
        // What a worker logs while a person sees progress bars goes through this process, which keeps the bars whole.
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
        let (orders, reports) = (process.stdin.take(), process.stdout.take());
        let logged = process.stderr.take().map(pass_on).transpose()?;
        let index = self.workers.len();
        self.workers.push(Worker { process, orders, logged, ended: false });
        if let Some(reports) = reports {
            let sayer = self.sayer.clone();
            threads::start(format!("reports {index}"), move || {
                for line in BufReader::new(reports).lines().map_while(Result::ok) {
                    let said = serde_json::from_str(&line).map_or(Said::Nonsense(line), Said::Answer);
                    if sayer.send((index, said)).is_err() {
                        return;
                    }
                }
                // Nobody listening any more is no trouble: the crew is being dismissed.
                let _ = sayer.send((index, Said::Ended));
            })?;
        }
        self.write(index, role)?;
        Ok(index)
    }

    /// How many were started.
    pub(crate) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Gives an order.
    pub(crate) fn order(&mut self, index: usize, order: &O) -> anyhow::Result<()> {
        self.write(index, order)
    }

    fn write(&mut self, index: usize, line: &impl Serialize) -> anyhow::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        let orders =
            self.workers[index].orders.as_mut().context("this member process takes no more orders")?;
        orders.write_all(&bytes).with_context(|| format!("member process {index} ended unexpectedly"))
    }

    /// The next thing said by anyone; nothing if the deadline passes first.
    pub(crate) fn hear(&mut self, deadline: Instant) -> Option<(usize, Said<R>)> {
        self.said.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    }

    /// The next report by anyone who is not `dead`; anything else is a failure, and so is silence past the deadline.
    pub(crate) fn report(
        &mut self,
        deadline: Instant,
        dead: &[usize],
        what: &str,
    ) -> Result<(usize, R), Problem> {
        loop {
            match self.hear(deadline) {
                Some((index, Said::Answer(report))) => return Ok((index, report)),
                Some((index, _)) if dead.contains(&index) => {}
                Some((index, Said::Nonsense(line))) => {
                    return Err(Problem::failed(format!(
                        "member process {index} said something strange: {line}"
                    )));
                }
                Some((index, Said::Ended)) => {
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

    /// Strikes a worker, unless it has ended.
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

    /// Waits for a worker's end.
    pub(crate) fn wait(&mut self, index: usize) -> anyhow::Result<ExitStatus> {
        self.workers[index].wait()
    }

    /// Lets the workers end by themselves (the end of their orders tells them) and waits for that, at most `patience`.
    pub(crate) fn dismiss(&mut self, patience: Duration) {
        for worker in &mut self.workers {
            worker.orders = None;
        }
        let deadline = Instant::now() + patience;
        while self.workers.iter().any(|worker| !worker.ended) {
            match self.hear(deadline) {
                Some((index, Said::Ended)) => self.workers[index].ended = self.wait(index).is_ok(),
                Some(_) => {}
                None => return,
            }
        }
    }
}

impl<O, R> Drop for Crew<O, R> {
    fn drop(&mut self) {
        for worker in self.workers.iter_mut().filter(|worker| !worker.ended) {
            // It may have ended in the meantime, which is as good.
            let _ = worker.process.kill();
            let _ = worker.wait();
        }
    }
}

impl Worker {
    /// Waits until it has ended, and all that it wrote to standard error is passed on.
    fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let status = self.process.wait()?;
        self.ended = true;
        // A panic of that thread is on standard error already.
        let _ = self.logged.take().map(JoinHandle::join);
        Ok(status)
    }
}

/// Passes on to standard error what a worker writes there, line by line and beside the progress bars.
fn pass_on(stderr: ChildStderr) -> anyhow::Result<JoinHandle<()>> {
    let passing = std::thread::Builder::new().name("log of a member".into()).spawn(move || {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            BARS.suspend(|| _ = std::io::stderr().write_all(&[&line[..], b"\n"].concat()));
        }
    });
    passing.context("cannot start a thread")
}

/// A worker's side: its orders.
pub(crate) struct Orders {
    lines: std::io::Lines<BufReader<std::io::Stdin>>,
}

impl Orders {
    /// Begins a worker's life: ties it to its parent's.
    pub(crate) fn begin(parent: u32) -> anyhow::Result<Orders> {
        #[cfg(target_os = "linux")]
        {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            let now = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
            anyhow::ensure!(u32::try_from(now) == Ok(parent), "the parent process is gone");
        }
        Ok(Orders { lines: BufReader::new(std::io::stdin()).lines() })
    }

    /// The next order (the role, if it is the first); nothing once there will be no more.
    pub(crate) fn next<O: DeserializeOwned>(&mut self) -> anyhow::Result<Option<O>> {
        match self.lines.next() {
            Some(line) => Ok(Some(serde_json::from_str(&line?)?)),
            None => Ok(None),
        }
    }
}

/// Reports to the parent.
pub(crate) fn report(report: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    Ok(out.flush()?)
}

/// Nanoseconds on the clock that all processes of this machine share.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(rustix::time::ClockId::Monotonic)
}

/// Nanoseconds of processor time this process has used, all its threads together.
pub(crate) fn processor_ns() -> u64 {
    clock_ns(rustix::time::ClockId::ProcessCPUTime)
}

fn clock_ns(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}
