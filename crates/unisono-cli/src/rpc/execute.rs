//! Runs a shell command that answers a request: the request goes to its standard input, the reply comes from its
//! standard output.
//!
//! The command leads a process group, so that a timeout ends all processes that it started.

use super::MESSAGE_BYTES_MAX;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use unisono::Bytes;
use unisono::rpc::Answer;

/// Maximum length of the reason of a refusal, taken from the beginning of standard error: 4 KiB.
const REASON_BYTES_MAX: usize = 4096;
/// Bytes read at a time: 64 KiB, the capacity of a pipe.
const GULP_BYTES: usize = 1 << 16;

/// The command of a service, and its running processes.
pub(super) struct Commands {
    command: String,
    limit: Duration,
    running: Mutex<Vec<Pid>>,
}

impl Commands {
    /// Makes a service of this command. Each run is killed after `limit`.
    pub(super) fn new(command: String, limit: Duration) -> Commands {
        Commands { command, limit, running: Mutex::default() }
    }

    /// Runs the command with this request. An exit status other than 0 refuses the request.
    pub(super) fn answer(&self, request: &[u8]) -> Answer {
        self.run(request).unwrap_or_else(|error| refuse(format!("cannot run the command: {error}")))
    }

    /// Kills all running commands.
    pub(super) fn kill_all(&self) {
        for group in self.running().iter() {
            // Fails if the command has just ended.
            let _ = kill_process_group(*group, Signal::KILL);
        }
    }

    fn run(&self, request: &[u8]) -> io::Result<Answer> {
        let until = Instant::now() + self.limit;
        let (mut child, group) = self.start()?;
        let outcome = exchange(&mut child, request, until);
        if !matches!(outcome, Ok(Outcome::Ended { .. })) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // The process number is not reused before `wait`, so `kill_all` cannot hit another process.
        self.running().retain(|running| *running != group);
        let status = child.wait()?;
        Ok(match outcome? {
            Outcome::Ended { reply, .. } if status.success() => Answer::Reply(reply.into()),
            Outcome::Ended { reason, .. } => match reason.trim_ascii() {
                b"" => refuse(format!("the command ended with {status}")),
                said => Answer::Refuse(Bytes::copy_from_slice(said)),
            },
            Outcome::TooMuch => refuse(format!("the command wrote more than {MESSAGE_BYTES_MAX} bytes")),
            Outcome::TooLong => {
                refuse(format!("the command took longer than {} s, and was killed", self.limit.as_secs_f64()))
            }
        })
    }

    /// Starts the command. The lock is held meanwhile, so that `kill_all` misses no running command.
    fn start(&self) -> io::Result<(Child, Pid)> {
        let mut running = self.running();
        let child = Command::new("sh")
            .args(["-c", &self.command])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let group = Pid::from_child(&child);
        running.push(group);
        Ok((child, group))
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Vec<Pid>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of a command.
enum Outcome {
    /// It has ended, and its standard output and error are closed.
    Ended { reply: Vec<u8>, reason: Vec<u8> },
    /// It wrote more than the longest reply.
    TooMuch,
    /// It exceeded its time.
    TooLong,
}

/// Writes the request and reads the output until the command has ended. All pipes are served at once, because a full
/// pipe would block the command.
fn exchange(child: &mut Child, request: &[u8], until: Instant) -> io::Result<Outcome> {
    let mut process = Some(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?);
    let (mut stdin, mut stdout, mut stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    for pipe in [fd(&stdin), fd(&stdout), fd(&stderr)].into_iter().flatten() {
        ioctl_fionbio(pipe, true)?;
    }
    let (mut unsent, mut reply, mut reason) = (request, Vec::new(), Vec::new());
    while process.is_some() || stdout.is_some() || stderr.is_some() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Outcome::TooLong);
        }
        let input = [fd(&process), fd(&stdout), fd(&stderr)].map(|fd| (fd, PollFlags::IN));
        let output = [(fd(&stdin), PollFlags::OUT)];
        let wanted = input.into_iter().chain(output).filter_map(|(fd, flags)| Some((fd?, flags)));
        let mut polled: Vec<PollFd<'_>> =
            wanted.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)).collect();
        match poll(&mut polled, Some(&left.try_into().map_err(io::Error::other)?)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // The first descriptor is that of the process.
        if process.is_some() && !polled[0].revents().is_empty() {
            process = None;
        }
        write_some(&mut stdin, &mut unsent);
        read_some(&mut stdout, &mut reply, MESSAGE_BYTES_MAX as usize + 1)?;
        read_some(&mut stderr, &mut reason, REASON_BYTES_MAX)?;
        if reply.len() as u64 > MESSAGE_BYTES_MAX {
            return Ok(Outcome::TooMuch);
        }
    }
    Ok(Outcome::Ended { reply, reason })
}

fn fd<T: AsFd>(pipe: &Option<T>) -> Option<BorrowedFd<'_>> {
    pipe.as_ref().map(AsFd::as_fd)
}

/// Writes as much as the pipe takes now. Closes the pipe when everything is written, or when the command has closed its
/// end: it need not read the whole request.
fn write_some(pipe: &mut Option<impl Write>, unsent: &mut &[u8]) {
    let Some(open) = pipe else { return };
    match open.write(unsent) {
        Ok(bytes) => *unsent = &unsent[bytes..],
        Err(error) if waits(&error) => return,
        Err(_) => *unsent = &[],
    }
    if unsent.is_empty() {
        *pipe = None;
    }
}

/// Reads what the pipe holds now, and keeps `max` bytes in all. Closes the pipe at its end.
fn read_some(pipe: &mut Option<impl Read>, kept: &mut Vec<u8>, max: usize) -> io::Result<()> {
    let Some(open) = pipe else { return Ok(()) };
    let mut gulp = [0; GULP_BYTES];
    match open.read(&mut gulp) {
        Ok(0) => *pipe = None,
        Ok(bytes) => kept.extend_from_slice(&gulp[..bytes.min(max - kept.len())]),
        Err(error) if waits(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

fn waits(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn refuse(reason: String) -> Answer {
    Answer::Refuse(reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn answer(command: &str, request: &[u8]) -> Answer {
        Commands::new(command.into(), Duration::from_secs(60)).answer(request)
    }

    fn text(answer: Answer) -> (bool, String) {
        let (replied, bytes) = match answer {
            Answer::Reply(reply) => (true, reply),
            Answer::Refuse(reason) => (false, reason),
            other => unreachable!("a command replies or refuses: {other:?}"),
        };
        (replied, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn the_reply_is_the_output_of_the_command() {
        assert_eq!(text(answer("tr a-z A-Z", b"hello")), (true, "HELLO".into()));
        assert_eq!(text(answer("exit 0", &[b'x'; 1 << 20])), (true, String::new()));
        assert_eq!(text(answer("echo unused >&2", b"")), (true, String::new()));
    }

    #[test]
    fn a_status_that_is_not_0_refuses_for_the_reason_it_gives() {
        assert_eq!(text(answer("echo no, thanks >&2; exit 3", b"x")), (false, "no, thanks".into()));
        let (replied, reason) = text(answer("exit 3", b"x"));
        assert!(!replied && reason.contains('3'), "{reason}");
        assert!(!text(answer("/no/such/command", b"x")).0);
        let (replied, reason) = text(answer("yes no | head -c 1000000 >&2; exit 1", b""));
        assert!(!replied && reason.len() <= REASON_BYTES_MAX);
    }

    #[test]
    fn no_full_pipe_blocks_the_command() {
        let request = vec![b'a'; 3 << 20];
        let (replied, reply) = text(answer("tee /dev/stderr | tr a b", &request));
        assert!(replied && reply.len() == request.len() && reply.bytes().all(|byte| byte == b'b'));
        let (replied, reason) = text(answer("yes", b""));
        assert!(!replied && reason.contains("more than"), "{reason}");
    }

    /// Returns a pipe and the path of its writing end. Reading reaches the end when all processes have closed that.
    fn pipe() -> (std::io::PipeReader, String, std::io::PipeWriter) {
        let (reader, writer) = std::io::pipe().unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), writer.as_raw_fd());
        (reader, path, writer)
    }

    #[test]
    fn a_command_that_takes_too_long_is_killed_with_all_its_processes_and_the_client_learns_it() {
        for command in ["sleep 1000 | cat", "sleep 1000 & echo gone", "exec >&- 2>&-; sleep 1000"] {
            let (mut reader, path, writer) = pipe();
            let commands = Commands::new(format!("exec 3>{path}; {command}"), Duration::from_millis(200));
            let (replied, reason) = text(commands.answer(b""));
            assert!(!replied && reason.contains("longer than 0.2 s"), "{command}: {reason}");
            assert!(commands.running().is_empty());
            drop(writer);
            // Returns when all processes that could write are dead.
            assert_eq!(reader.read(&mut [0]).unwrap(), 0, "{command}");
        }
    }

    #[test]
    fn a_process_that_left_its_process_group_does_not_delay_the_answer() {
        // The survivor writes its process number, if it has started by then.
        let survivor = [1, 10, 100].into_iter().find_map(|limit_seconds| {
            let (mut reader, path, writer) = pipe();
            let command = format!("setsid sh -c 'echo $$ >{path}; sleep 1000' & sleep 1000");
            let commands = Commands::new(command, Duration::from_secs(limit_seconds));
            assert!(!text(commands.answer(b"")).0);
            drop(writer);
            let mut survivor = String::new();
            reader.read_to_string(&mut survivor).unwrap();
            survivor.trim().parse().ok().and_then(Pid::from_raw)
        });
        kill_process_group(survivor.unwrap(), Signal::KILL).unwrap();
    }

    #[test]
    fn all_running_commands_can_be_killed() {
        let (mut reader, path, writer) = pipe();
        let commands = Commands::new(format!("echo x >{path}; sleep 1000"), Duration::from_secs(60));
        let answer = std::thread::scope(|scope| {
            let answer = scope.spawn(|| commands.answer(b""));
            reader.read_exact(&mut [0]).unwrap();
            commands.kill_all();
            answer.join().unwrap()
        });
        drop(writer);
        let (replied, reason) = text(answer);
        assert!(!replied && reason.contains("signal"), "{reason}");
    }
}
