//! A shell command that answers a request: the request on its standard input, the reply from its standard output.

use super::MESSAGE_BYTES_MAX;
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use unisono::Bytes;
use unisono::rpc::Answer;

/// So much of what a command says on standard error becomes the reason of a refusal.
const REASON_BYTES_MAX: u64 = 4096;

/// Runs the command with this request. It refuses by ending with another status than 0.
pub(super) fn answer(command: &str, request: &[u8]) -> Answer {
    run(command, request).unwrap_or_else(|error| refuse(format!("cannot run the command: {error}")))
}

fn run(command: &str, request: &[u8]) -> io::Result<Answer> {
    let mut process = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (mut stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
    // All three at once: a pipe that is full stops the command, whichever it is.
    let (reply, reason) = thread::scope(|scope| {
        scope.spawn(move || {
            // It need not read what it does not want to know.
            let _ = stdin.as_mut().map(|stdin| stdin.write_all(request));
        });
        let reason = scope.spawn(move || stderr.map(read_some));
        let reply = stdout.map(|stdout| {
            let mut reply = Vec::new();
            let read = stdout.take(MESSAGE_BYTES_MAX + 1).read_to_end(&mut reply);
            read.map(|_| reply)
        });
        (reply, reason.join().ok().flatten())
    });
    let reply = reply.transpose()?.unwrap_or_default();
    // Whoever says too much is not read on, and has ended for that, or never will.
    if reply.len() as u64 > MESSAGE_BYTES_MAX {
        process.kill()?;
        process.wait()?;
        return Ok(refuse(format!("the command says more than {MESSAGE_BYTES_MAX} bytes")));
    }
    let status = process.wait()?;
    if status.success() {
        return Ok(Answer::Reply(reply.into()));
    }
    let said = reason.unwrap_or_default();
    Ok(match said.trim_ascii() {
        b"" => refuse(format!("the command ended with {status}")),
        said => Answer::Refuse(Bytes::copy_from_slice(said)),
    })
}

/// The beginning of what is said; the rest is read so that whoever says it can go on.
fn read_some(mut from: impl Read) -> Vec<u8> {
    let mut beginning = Vec::new();
    // What was read until it failed is as good as it gets.
    let _ = from.by_ref().take(REASON_BYTES_MAX).read_to_end(&mut beginning);
    let _ = io::copy(&mut from, &mut io::sink());
    beginning
}

fn refuse(reason: String) -> Answer {
    Answer::Refuse(reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(answer: Answer) -> (bool, String) {
        let (replied, bytes) = match answer {
            Answer::Reply(reply) => (true, reply),
            Answer::Refuse(reason) => (false, reason),
            Answer::Forward(_) => unreachable!("a command does not know other servers"),
        };
        (replied, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn the_reply_is_what_the_command_says() {
        assert_eq!(text(answer("tr a-z A-Z", b"hello")), (true, "HELLO".into()));
        assert_eq!(text(answer("exit 0", &[b'x'; 1 << 20])), (true, String::new()));
        assert_eq!(text(answer("echo to nobody >&2", b"")), (true, String::new()));
    }

    #[test]
    fn a_status_that_is_not_0_refuses_for_the_reason_it_gives() {
        assert_eq!(text(answer("echo no, thanks >&2; exit 3", b"x")), (false, "no, thanks".into()));
        let (replied, reason) = text(answer("exit 3", b"x"));
        assert!(!replied && reason.contains('3'), "{reason}");
        assert!(!text(answer("/no/such/command", b"x")).0);
        let (replied, reason) = text(answer("yes no | head -c 1000000 >&2; exit 1", b""));
        assert!(!replied && reason.len() <= REASON_BYTES_MAX as usize);
    }

    #[test]
    fn no_pipe_stands_still_whatever_goes_through_it() {
        let request = vec![b'a'; 3 << 20];
        let (replied, reply) = text(answer("tee /dev/stderr | tr a b", &request));
        assert!(replied && reply.len() == request.len() && reply.bytes().all(|byte| byte == b'b'));
        let (replied, reason) = text(answer("yes", b""));
        assert!(!replied && reason.contains("more than"), "{reason}");
    }
}
