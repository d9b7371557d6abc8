//! Asks all servers how they are.

use super::Client;
use crate::ports::{status_by_name, status_by_port};
use crate::status::{STATUS_QUESTION, ServerStatus};
use bytes::Bytes;
use std::time::Duration;
use unisono::replica::DISK_SERVERS_MAX;
use unisono::rpc::{Call, CallFailure, PrivatePort};

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
            match answers.waits_for(id) {
                true => answers.add(id, Some(call.await)),
                false => answers.add(id, call.try_wait().ok()),
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
            match answers.waits_for(id) {
                true => answers.add(id, Some(call.wait())),
                false => answers.add(id, call.try_wait().ok()),
            }
        }
        answers.heard
    }
}

/// What was heard, in the order of the ids. The answers say how many servers there are, and answers
/// of servers with higher ids are used if they have arrived, but not waited for: a process that answers in place of a server
/// must not hide others.
#[derive(Default)]
struct Answers {
    heard: Vec<ServerStatus>,
}

impl Answers {
    fn waits_for(&self, id: u8) -> bool {
        self.heard.iter().all(|status| status.servers == 0 || id <= status.servers)
    }

    /// Takes an answer to the question for the server with this id. One that names another id is none of that server.
    fn add(&mut self, id: u8, answer: Option<Result<Bytes, CallFailure>>) {
        let status = answer.and_then(Result::ok).and_then(ServerStatus::decode);
        self.heard.extend(status.filter(|status| status.server == id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_server_that_was_asked_answers_for_itself() {
        let mut answers = Answers::default();
        let says = |server, servers| {
            let status = ServerStatus { server, servers, ..ServerStatus::default() };
            Some(Ok(status.encode()))
        };
        answers.add(1, says(3, 3));
        assert!(answers.heard.is_empty());
        answers.add(1, says(1, 1));
        assert!(!answers.waits_for(2));
        answers.add(2, says(2, 3));
        assert_eq!(answers.heard.iter().map(|status| status.server).collect::<Vec<u8>>(), [1, 2]);
    }
}
