//! `unisono dir status`: what each server says of itself.

use super::serve::SERVICE;
use super::session::{At, client};
use crate::output::{Output, Tone, hex, utc, visible};
use crate::problem::Problem;
use crate::settings::Settings;
use clap::Args;
use serde_json::json;
use std::collections::BTreeSet;
use std::thread;
use unisono_dir::{ServerStatus, Standing, State, diverged, standing};

/// Digits of a digest that people see.
const DIGEST_DIGITS: usize = 12;

/// Ask every server how it is; answers also while the service does not
///
/// The exit status is 3 unless the service serves and all answers agree on how many servers there are.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir status --key clients.key --cap root.cap")]
pub(crate) struct Status {
    /// Name of the service, by which servers are asked that do not have the root yet, and all without a capability
    #[arg(long, value_name = "NAME", default_value = SERVICE)]
    service: String,

    #[command(flatten)]
    pub(crate) at: At,
}

pub(crate) fn run(command: &Status, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let client = client(settings)?;
    let named = || client.servers_of(&command.service);
    let answered = match command.at.cap {
        Some(_) => {
            let port = command.at.capability()?.port;
            let (by_port, by_name) = thread::scope(|scope| {
                let by_name = scope.spawn(named);
                (client.servers(port), by_name.join().unwrap_or_default())
            });
            together(by_port, by_name)
        }
        None => named(),
    };
    let servers = answered.iter().map(|status| status.servers).max().unwrap_or(0);
    let highest = answered.iter().map(|status| status.number).max().unwrap_or(0);
    let diverged = diverged(&answered);
    for id in 1..=servers {
        let silent =
            ServerStatus { server: id, servers, why: "it does not answer".into(), ..ServerStatus::default() };
        let status = answered.iter().find(|status| status.server == id);
        let lag = status.map(|status| highest - status.number);
        let status = status.unwrap_or(&silent);
        tell(status, lag, diverged.contains(&id), output)?;
    }
    agree(&answered)?;
    match standing(&answered) {
        Standing::Serves if !diverged.is_empty() => Err(Problem::failed(format!(
            "servers have different states at the same command ({}): the memory or the program of one is damaged; stop it, \
             and start it with an empty folder and --replace",
            listed(&diverged)
        ))),
        Standing::Serves => Ok(()),
        Standing::Recovers(missing) if missing.is_empty() => {
            Err(Problem::not_primary("the service is about to serve; ask again in a moment"))
        }
        Standing::Recovers(missing) => Err(Problem::not_primary(what_is_lacking(&missing, &answered))),
        Standing::NoMajority(missing) => Err(Problem::not_primary(format!(
            "no majority: the service waits for {}; start them, or see `unisono dir serve --help` if their disks are lost",
            listed(&missing)
        ))),
        Standing::Silent => Err(Problem::not_primary(
            "no server answers: check that servers run, that this client has the clients' key, and that multicast reaches \
             the servers or --seeds names them (at the port after that of the servers' --bind, if clients have a key of \
             their own)",
        )),
    }
}

/// Adds servers that answer by the name of the service to those that answer at its port: a server learns the port when the
/// service is created, or with its state. Servers of another service of this name are left out.
fn together(mut by_port: Vec<ServerStatus>, by_name: Vec<ServerStatus>) -> Vec<ServerStatus> {
    let is_there = |named: &ServerStatus| by_port.iter().any(|status| status.server == named.server);
    let is_same = |named: &ServerStatus| {
        by_port.iter().any(|status| (status.server, status.disk) == (named.server, named.disk))
    };
    let belong = match by_port.is_empty() {
        // A server that serves answers at the port of its service.
        true => by_name.iter().all(|named| named.state != State::Serving),
        false => by_name.iter().any(is_same),
    };
    if belong {
        let more: Vec<_> = by_name.iter().filter(|named| !is_there(named)).cloned().collect();
        by_port.extend(more);
        by_port.sort_by_key(|status| status.server);
    }
    by_port
}

/// Checks that the answers agree on how many servers there are: otherwise they do not say what is missing.
fn agree(answered: &[ServerStatus]) -> Result<(), Problem> {
    let counts: BTreeSet<u8> = answered.iter().map(|status| status.servers).collect();
    if counts.len() <= 1 {
        return Ok(());
    }
    let counts: Vec<u8> = counts.into_iter().collect();
    Err(Problem::not_primary(format!(
        "the answers differ in how many servers there are ({}): a server was started with another --replicas, or another \
         process that has the clients' key answers in place of one; compare them with the servers that you started",
        listed(&counts)
    )))
}

/// Says why no server serves although enough are there, and what to do: those that are missing may run with disks that do
/// not count.
fn what_is_lacking(missing: &[u8], answered: &[ServerStatus]) -> String {
    let runs = |id: &u8| answered.iter().any(|status| status.server == *id && status.state != State::Stopped);
    let (running, absent): (Vec<u8>, Vec<u8>) = missing.iter().partition(|id| runs(id));
    let mut advice = Vec::new();
    if !absent.is_empty() {
        advice.push(format!("start server {}", listed(&absent)));
    }
    if answered.iter().any(|status| status.state == State::Creating) {
        advice.push("look at what the servers say: their keys may differ".to_owned());
    } else if !running.is_empty() {
        advice.push(format!(
            "server {} runs with a disk that is empty or old: start it with its folder of before, or, if a majority of the \
             disks is lost for ever, start one of the others with --begin-anew",
            listed(&running)
        ));
    }
    format!("no server serves: a good disk of server {} is missing; {}", listed(missing), advice.join("; "))
}

fn listed(ids: &[u8]) -> String {
    let ids: Vec<String> = ids.iter().map(u8::to_string).collect();
    ids.join(", ")
}

fn tell(status: &ServerStatus, lag: Option<u64>, diverged: bool, output: &Output) -> Result<(), Problem> {
    let is_serving = status.state == State::Serving;
    let tone = if is_serving && !diverged { Tone::Good } else { Tone::Bad };
    let mut line = format!("server {}  {}", status.server, output.tone(tone, status.state));
    if lag.is_some() {
        line += &format!(", command {}, generation {}", status.number, status.generation);
    }
    if let Some(lag) = lag.filter(|lag| *lag > 0) {
        line += &format!(", {lag} behind");
    }
    if let Some(digest) = status.digest {
        line += &format!(", digest {}", &hex(&digest)[..DIGEST_DIGITS]);
    }
    if !status.waits_for.is_empty() {
        let ids: Vec<String> = status.waits_for.iter().map(u8::to_string).collect();
        line += &format!(", waits for {}", ids.join(", "));
    }
    if !status.why.is_empty() {
        line += &format!(": {}", visible(&status.why));
    }
    output.say(line)?;
    if diverged {
        output.say(output.tone(Tone::Bad, "  its state differs from the others'"))?;
    }
    for anew in &status.begun_anew {
        output.say(format_args!(
            "  begun anew from server {}, {}, with its log through entry {}",
            anew.server,
            utc(anew.at_ms),
            anew.number
        ))?;
    }
    let known = lag.is_some();
    let begun_anew: Vec<_> = status
        .begun_anew
        .iter()
        .map(|anew| json!({"server": anew.server, "at_ms": anew.at_ms, "number": anew.number}))
        .collect();
    output.object(&json!({
        "server": status.server,
        "state": status.state.word(),
        "why": status.why,
        "primary": is_serving,
        "seqno": known.then_some(status.number),
        "waiting_for": status.waits_for,
        "generation": known.then_some(status.generation),
        "disk": known.then(|| format!("{:016x}", status.disk)),
        "lag": lag,
        "digest": status.digest.map(|digest| hex(&digest)),
        "diverged": diverged,
        "begun_anew": begun_anew,
        "servers": (1..=status.servers).collect::<Vec<u8>>(),
    }))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(server: u8, state: State, disk: u64) -> ServerStatus {
        ServerStatus { server, servers: 3, state, disk, ..ServerStatus::default() }
    }

    #[test]
    fn what_is_lacking_says_what_to_type_next() {
        let with = |server, state| ServerStatus { server, servers: 3, state, ..ServerStatus::default() };
        let (one, two) = (with(1, State::Waiting), with(2, State::Waiting));
        let said = what_is_lacking(&[2, 3], &[one.clone(), two]);
        assert!(
            said.contains("start server 3;") && said.contains("server 2 runs with a disk that is empty"),
            "{said}"
        );
        let said = what_is_lacking(&[3], &[one]);
        assert!(said.ends_with("start server 3"), "{said}");
        let creating = [1, 2, 3].map(|id| with(id, State::Creating));
        assert!(what_is_lacking(&[3], &creating).contains("their keys may differ"));
    }

    #[test]
    fn servers_without_the_root_are_found_by_name_and_those_of_another_service_are_not() {
        let ids = |found: Vec<ServerStatus>| found.iter().map(|status| status.server).collect::<Vec<_>>();
        let (first, second) = (status(1, State::Waiting, 11), status(2, State::Joining, 12));
        let third = status(3, State::Serving, 13);
        let all = vec![first.clone(), second.clone(), third.clone()];
        assert_eq!(ids(together(vec![third.clone()], all.clone())), [1, 2, 3]);
        assert_eq!(ids(together(vec![], all[..2].to_vec())), [1, 2]);
        assert_eq!(together(vec![first.clone()], vec![]), vec![first.clone()]);
        // Another service of this name.
        let other = vec![status(1, State::Serving, 21), status(3, State::Serving, 23)];
        assert_eq!(together(vec![first.clone()], other.clone()), [first]);
        assert_eq!(together(vec![], other), []);
    }

    #[test]
    fn answers_that_differ_in_the_number_of_servers_are_no_good_news() {
        let says = |server, servers| ServerStatus {
            server,
            servers,
            state: State::Serving,
            ..ServerStatus::default()
        };
        assert!(agree(&[]).is_ok());
        assert!(agree(&[says(1, 3), says(2, 3)]).is_ok());
        assert!(agree(&[says(1, 1), says(2, 3)]).is_err());
    }
}
