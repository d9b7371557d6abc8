#![doc = include_str!("../../scenarios/README.md")]

mod calls;
mod course;
mod group;
mod read;
mod stage;

pub use course::Course;
pub use read::ScriptError;

use crate::frame_faults::FrameFault;
use bytes::Bytes;
use std::io::Write;
use unisono_core::{GroupConfig, Transport};

/// A script, parsed.
#[derive(Clone, Debug)]
pub struct Scenario {
    members: usize,
    /// Processes that serve, if the script is about calls.
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
    Force { process: usize, without: Vec<usize> },
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
    FrameFault(FrameFault),
    Count,
    ExpectDatagrams(u64),
}

impl Scenario {
    /// Runs the script and returns the result. The trace of the run goes to `trace`, if there is one.
    pub fn run(&self, trace: Option<Box<dyn Write>>) -> Course {
        match &self.servers {
            Some(servers) => self.run_calls(servers, trace),
            None => self.run_group(trace),
        }
    }
}
