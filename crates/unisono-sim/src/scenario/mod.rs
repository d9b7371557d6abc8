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
mod course;
mod group;
mod read;
mod stage;

pub use course::Course;
pub use read::ScriptError;

use crate::trap::Trap;
use bytes::Bytes;
use std::io::Write;
use unisono_core::{GroupConfig, Transport};

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

impl Scenario {
    /// Runs it; every line of the run goes to `trace`, if there is one.
    pub fn run(&self, trace: Option<Box<dyn Write>>) -> Course {
        match &self.servers {
            Some(servers) => self.run_calls(servers, trace),
            None => self.run_group(trace),
        }
    }
}
