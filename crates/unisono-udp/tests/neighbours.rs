//! What the kernel tells of a neighbour that does not answer, and of the send buffer that datagrams to it fill.
//!
//! The test starts itself again in a network namespace of its own, on a link without other machines.

use std::io::Write;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use unisono_udp::{SendBuffer, SilentNeighbours, Socket};

const INSIDE: &str = "UNISONO_TEST_LINK_WITHOUT_NEIGHBOURS";
/// One neighbour has a hardware address all the same: it is written into the table.
const LINK: &str = "ip link add here type veth peer name there && ip address add 10.195.0.1/16 dev here \
                    && ip link set here up && ip link set there up \
                    && ip neighbour add 10.195.0.2 lladdr 02:00:00:00:00:02 dev here && exec \"$0\" --nocapture";
const DATAGRAMS: usize = 50;

#[test]
fn a_neighbour_that_does_not_answer_is_seen_and_fills_the_send_buffer() {
    if std::env::var_os(INSIDE).is_some() {
        return send_to_neighbours();
    }
    let myself = std::env::current_exe().unwrap();
    let inside =
        Command::new("unshare").args(["-rn", "sh", "-c", LINK]).arg(&myself).env(INSIDE, "1").output();
    match inside {
        Ok(output) if String::from_utf8_lossy(&output.stdout).contains("1 test") => {
            assert!(output.status.success(), "{output:?}");
        }
        other => {
            let _ = writeln!(std::io::stderr(), "skipped: cannot set up a link of its own here: {other:?}");
        }
    }
}

fn send_to_neighbours() {
    let socket = Socket::bind(([10, 195, 0, 1], 0).into()).unwrap();
    let send_to = |last| {
        let to = SocketAddr::from(([10, 195, 0, last], 9));
        (0..DATAGRAMS).for_each(|_| assert_eq!(socket.send(&[7; 100], 100, &[to]), 0));
        // What went to a neighbour that answers leaves the buffer at once.
        std::thread::sleep(Duration::from_millis(100));
        (socket.send_buffer().unwrap(), SilentNeighbours::read().contains(to.ip()))
    };
    let size = socket.send_buffer().unwrap().size;
    assert!(size >= 100_000, "{size}");
    assert_eq!(send_to(2), (SendBuffer { used: 0, size }, false));
    let (buffer, is_silent) = send_to(9);
    assert!(is_silent && buffer.size == size, "{buffer:?}");
    assert!((DATAGRAMS * 100..=DATAGRAMS * 2000).contains(&buffer.used), "{buffer:?}");
}
