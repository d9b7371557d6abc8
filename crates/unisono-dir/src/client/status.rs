//! Asks all servers how they are.

use super::Client;
use crate::ports::{status_by_name, status_by_port};
use crate::status::{STATUS_QUESTION, ServerStatus};
use std::time::Duration;
use unisono::replica::DISK_SERVERS_MAX;
use unisono::rpc::{Call, PrivatePort};

/// Time for a server to answer, which is also spent on those that do not exist or are silent.
const STATUS_WITHIN: Duration = Duration::from_millis(500);

impl Client {
    /// Asks all servers of the service at this port, and returns what those say that answer.
    pub fn servers(&self, port: unisono_table::Port) -> Vec<ServerStatus> {
        self.answers(self.ask(|id| status_by_port(port, id)))
    }

    /// Asks all servers of the service of this name, also while there is no capability of it yet.
    pub fn servers_of(&self, service: &str) -> Vec<ServerStatus> {
        self.answers(self.ask(|id| status_by_name(service, id)))
    }

    /// As [`Client::servers`], for asynchronous programs.
    pub async fn servers_async(&self, port: unisono_table::Port) -> Vec<ServerStatus> {
        let mut answers = Answers::default();
        for (id, call) in self.ask(|id| status_by_port(port, id)) {
            if answers.wants(id) {
                answers.add(call.await.ok().and_then(ServerStatus::decode));
            }
        }
        answers.heard
    }

    /// Asks all servers at the same time.
    fn ask(&self, port: impl Fn(u8) -> PrivatePort) -> Vec<(u8, Call)> {
        let ask = |id| {
            let call = self.calls.start(port(id).public(), STATUS_QUESTION.to_vec(), STATUS_WITHIN);
            Some((id, call.ok()?))
        };
        (1..=DISK_SERVERS_MAX).filter_map(ask).collect()
    }

    fn answers(&self, calls: Vec<(u8, Call)>) -> Vec<ServerStatus> {
        let mut answers = Answers::default();
        for (id, call) in calls {
            if answers.wants(id) {
                answers.add(call.wait().ok().and_then(ServerStatus::decode));
            }
        }
        answers.heard
    }
}

/// What was heard, in the order of the ids. The first answer says how many servers there are.
#[derive(Default)]
struct Answers {
    heard: Vec<ServerStatus>,
}

impl Answers {
    fn wants(&self, id: u8) -> bool {
        self.heard.iter().all(|status| status.servers == 0 || id <= status.servers)
    }

    fn add(&mut self, status: Option<ServerStatus>) {
        self.heard.extend(status);
    }
}
