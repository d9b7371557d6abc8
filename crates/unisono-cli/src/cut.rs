//! Cuts a child process off from the network: it keeps running, but it can neither send nor receive datagrams.
//!
//! The kernel lets a parent duplicate its child's sockets. Each socket gets a filter that drops all arriving packets,
//! and is shut down for sending, so that sends fail as on a network that is down. This needs no rights beyond those
//! over the child, and affects no other process.

use anyhow::Context;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use socket2::{SockFilter, SockRef, Type};
use std::net::Shutdown;

/// "Return 0" in the kernel's packet filter language (BPF): no byte of any packet passes.
const DROP_ALL: [SockFilter; 1] = [SockFilter::new(0x06, 0, 0, 0)];

/// Cuts off a child of this process, permanently.
pub(crate) fn cut_off(child: Pid) -> anyhow::Result<()> {
    let process = pidfd_open(child, PidfdFlags::empty())?;
    let mut sockets = 0;
    for entry in std::fs::read_dir(format!("/proc/{}/fd", child.as_raw_nonzero()))? {
        let path = entry?.path();
        // The child may open and close descriptors meanwhile, so errors of single ones are ignored.
        let is_socket = std::fs::read_link(&path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        let (true, Some(number)) = (is_socket, number) else { continue };
        let descriptor = pidfd_getfd(&process, number, PidfdGetfdFlags::empty())
            .context("this system does not let a parent take its child's sockets")?;
        let socket = SockRef::from(&descriptor);
        if socket.r#type()? == Type::DGRAM {
            socket.attach_filter(&DROP_ALL)?;
            // For an unconnected socket the system reports `NotConnected`, and shuts it down nevertheless.
            match socket.shutdown(Shutdown::Write) {
                Err(error) if error.kind() != std::io::ErrorKind::NotConnected => return Err(error.into()),
                _ => sockets += 1,
            }
        }
    }
    anyhow::ensure!(sockets > 0, "the process has no datagram sockets");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::UdpSocket;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    const TICK: Duration = Duration::from_millis(5);
    /// Limits the life of the process: 20,000 ticks take longer than any test waits.
    const TICKS_MAX: usize = 20_000;

    /// The process that the test below cuts off. It keeps sending and prints whether that worked, and whether it
    /// received.
    #[test]
    fn process_that_is_cut_off() {
        let Some(parent) = std::env::var_os("UNISONO_TEST_PARENT") else { return };
        let parent = parent.into_string().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(TICK)).unwrap();
        for _ in 0..TICKS_MAX {
            println!("{}", if socket.send_to(b"tick", &parent).is_ok() { "sent" } else { "refused" });
            if socket.recv(&mut [0; 100]).is_ok() {
                println!("received");
            }
        }
    }

    #[test]
    fn nothing_comes_from_or_to_a_process_that_is_cut_off() {
        let own = UdpSocket::bind("127.0.0.1:0").unwrap();
        own.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "cut::tests::process_that_is_cut_off", "--nocapture"])
            .env("UNISONO_TEST_PARENT", own.local_addr().unwrap().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let (_, there) = own.recv_from(&mut [0; 100]).unwrap();
        own.send_to(b"before", there).unwrap();
        assert!(output.any(|line| line.ends_with("received")));

        cut_off(Pid::from_child(&child)).unwrap();
        own.send_to(b"after", there).unwrap();
        assert!(output.any(|line| line.ends_with("refused")));
        own.set_nonblocking(true).unwrap();
        while own.recv(&mut [0; 100]).is_ok() {}
        let later: Vec<String> = output.by_ref().take(20).collect();
        assert!(later.iter().all(|line| line.ends_with("refused")), "{later:?}");
        assert!(own.recv(&mut [0; 100]).is_err());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
