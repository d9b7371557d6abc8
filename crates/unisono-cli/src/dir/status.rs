//! `unisono dir status`: what each server says of itself.

use super::serve::SERVICE;
use super::session::{At, client};
use crate::copies;
use crate::output::{Output, Tone, hex, utc, visible};
use crate::problem::Problem;
use crate::settings::Settings;
use clap::Args;
use serde_json::json;
use std::collections::BTreeSet;
use std::thread;
use unisono_dir::{ServerStatus, Standing, State, diverged, servers_heard, standing};

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
        let silent = silent(id, servers, &answered, settings.seeds.len());
        let status = answered.iter().find(|status| status.server == id);
        let lag = status.map(|status| highest - status.number);
        let status = status.unwrap_or(&silent);
        tell(status, lag, diverged.contains(&id), output)?;
    }
    tell_beginnings(&answered, output)?;
    agree(&answered)?;
    match standing(&answered) {
        Standing::Serves if !diverged.is_empty() => Err(Problem::failed(what_differs(&diverged, &answered))),
        Standing::Serves => Ok(()),
        Standing::Recovers(missing) if missing.is_empty() => {
            Err(Problem::not_primary("the service is about to serve; ask again in a moment"))
        }
        Standing::Recovers(missing) => Err(Problem::not_primary(what_is_lacking(&missing, &answered))),
        Standing::NoMajority(missing) => Err(Problem::not_primary(format!(
            "no majority: the service waits for {}, without an answer to this client; start them if they do not run, or see \
             `unisono dir serve --help` if their disks are lost",
            copies::servers(&missing)
        ))),
        Standing::Silent => Err(Problem::not_primary(
            "no server answers: check that servers run, that this client has the clients' key, and that multicast reaches \
             the servers or --seeds names them (at the port above that of the servers' --bind, if clients have a key of \
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

/// Returns the status of a server that did not answer this client, which asked this number of seeds.
fn silent(id: u8, servers: u8, answered: &[ServerStatus], seeds: usize) -> ServerStatus {
    let hear: Vec<u8> =
        answered.iter().filter(|status| status.hears.contains(&id)).map(|status| status.server).collect();
    let (state, why) = match hear[..] {
        [] => (State::Stopped, "it does not answer".to_owned()),
        _ => {
            let unnamed = match (1..usize::from(servers)).contains(&seeds) {
                true => "; is it among --seeds?",
                false => "",
            };
            let why =
                format!("it does not answer this client, but servers hear it: {}{unnamed}", listed(&hear));
            (State::Unreachable, why)
        }
    };
    ServerStatus { server: id, servers, state, why, ..ServerStatus::default() }
}

/// Says when the service was created, and the instance that positions of watches name.
fn tell_beginnings(answered: &[ServerStatus], output: &Output) -> Result<(), Problem> {
    let of = |status: &ServerStatus| Some((status.created_at_ms?, status.instance));
    for (at, instance) in answered.iter().filter_map(of).collect::<BTreeSet<(u64, u64)>>() {
        let is_of = |status: &&ServerStatus| of(status) == Some((at, instance));
        let servers: Vec<u8> = answered.iter().filter(is_of).map(|status| status.server).collect();
        let servers = copies::servers(&servers);
        output.say(format_args!("created {}, instance {instance:016x}, at {servers}", utc(at)))?;
    }
    Ok(())
}

/// Says why no server serves although enough are there, and what to do. A disk is called bad only if a server has compared it
/// with its own.
fn what_is_lacking(missing: &[u8], answered: &[ServerStatus]) -> String {
    let heard = servers_heard(answered);
    let is_running = |status: &ServerStatus| status.state != State::Stopped;
    let runs = |id: &u8| {
        heard.contains(id) || answered.iter().any(|status| status.server == *id && is_running(status))
    };
    let (running, absent): (Vec<u8>, Vec<u8>) = missing.iter().partition(|id| runs(id));
    let known: BTreeSet<u8> = answered.iter().flat_map(|status| status.useless_disks.clone()).collect();
    let (useless, apart): (Vec<u8>, Vec<u8>) = running.iter().partition(|id| known.contains(id));
    let servers = answered.iter().map(|status| status.servers).max().unwrap_or(0);
    let majority = usize::from(servers / 2 + 1);
    let mut advice = Vec::new();
    if !absent.is_empty() {
        let (are, them) = if absent.len() == 1 { ("is", "it") } else { ("are", "them") };
        advice.push(format!("{} {are} missing: start {them}", copies::servers(&absent)));
    }
    if !apart.is_empty() {
        advice.push(format!(
            "{} and those that wait for {} do not hear each other: look at the network between them, at --bind and --seeds, \
             and whether they have the same --key",
            copies::servers(&apart),
            if apart.len() == 1 { "it" } else { "them" }
        ));
    }
    if !useless.is_empty() {
        let words = match useless.len() {
            1 => "runs with a disk that is empty or old: start it with its folder of before",
            _ => "run with disks that are empty or old: start them with their folders of before",
        };
        advice.push(format!("{} {words}", copies::servers(&useless)));
    }
    if usize::from(servers) < majority + useless.len() {
        // A server that knows of useless disks has compared them with its own.
        let is_good =
            |status: &&ServerStatus| !status.useless_disks.is_empty() && !known.contains(&status.server);
        let good: Vec<u8> = answered.iter().filter(is_good).map(|status| status.server).collect();
        let begin = match &good[..] {
            [] => "start a server with a good disk".to_owned(),
            [one] => format!("stop server {one}, start it"),
            _ => format!("stop {}, start one of them", copies::servers(&good)),
        };
        advice.push(format!(
            "if those folders are lost for ever, {begin} with --begin-anew, and the others with empty folders and --replace: \
             changes that only the lost disks had are gone then"
        ));
    }
    let waits_for_one = |status: &ServerStatus| {
        status.one_disk && status.hears.len() + 1 >= majority && !status.waits_for.is_empty()
    };
    if useless.is_empty() && apart.is_empty() && answered.iter().any(waits_for_one) {
        advice.push(format!(
            "with durability one the disk of {} may be the only one with changes that were answered; if it is lost \
             for ever, stop the others, start one of them with --begin-anew and the rest with empty folders and --replace: \
             what only the lost disk had is gone then",
            copies::servers(&absent)
        ));
    }
    format!("no server serves: {}", advice.join("; "))
}

/// Says what to do about servers whose states differ. Only the state of most of them shows which one is wrong.
fn what_differs(diverged: &[u8], answered: &[ServerStatus]) -> String {
    let is_judged = |id: &u8| {
        let number = answered.iter().find(|status| status.server == *id).map(|status| status.number);
        answered.iter().any(|status| {
            status.digest.is_some() && Some(status.number) == number && !diverged.contains(&status.server)
        })
    };
    let what = format!("servers have different states at the same command ({})", listed(diverged));
    match diverged.iter().all(is_judged) {
        true => format!(
            "{what}: the memory or the program of one is damaged; stop it, keep its folder aside, and start it with an empty \
             one and --replace"
        ),
        false => format!(
            "{what}, and none of these is that of most: stop the programs that write, and copy the folders of all servers \
             before you stop or replace one"
        ),
    }
}

fn listed(ids: &[u8]) -> String {
    let ids: Vec<String> = ids.iter().map(u8::to_string).collect();
    ids.join(", ")
}

fn tell(status: &ServerStatus, lag: Option<u64>, diverged: bool, output: &Output) -> Result<(), Problem> {
    let is_serving = status.serves();
    let is_stuck = status.state == State::Serving && !is_serving;
    let tone = if is_serving && !diverged { Tone::Good } else { Tone::Bad };
    // A server that serves and applies nothing says for how long.
    let word = if is_stuck { visible(&status.why) } else { status.state.word().into() };
    let mut line = format!("server {}  {}", status.server, output.tone(tone, word));
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
    if !status.why.is_empty() && !is_stuck {
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
        "state": if is_stuck { "not applying" } else { status.state.word() },
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
        "hears": known.then_some(&status.hears),
        "useless_disks": known.then_some(&status.useless_disks),
        "durability": known.then_some(if status.one_disk { "one" } else { "majority" }),
        "instance": (status.instance != 0).then(|| format!("{:016x}", status.instance)),
        "created_at_ms": status.created_at_ms,
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
        let waiting = |server, waits_for: &[u8]| ServerStatus {
            waits_for: waits_for.to_vec(),
            hears: (1..=3).filter(|id| *id != server && !waits_for.contains(id)).collect(),
            ..with(server, State::Waiting)
        };
        // Good servers that are cut off from each other.
        let apart: Vec<_> = [(1, [2, 3]), (2, [1, 3]), (3, [1, 2])].map(|(id, ids)| waiting(id, &ids)).into();
        let said = what_is_lacking(&[1, 2, 3], &apart);
        assert!(
            said.contains("servers 1, 2, 3 and those that wait for them do not hear each other"),
            "{said}"
        );
        assert!(!said.contains("--begin-anew") && !said.contains("disk"), "{said}");
        // Disks that another server knows to be old: first no majority of the disks, then one.
        let knows = |useless: &[u8]| ServerStatus {
            hears: useless.to_vec(),
            useless_disks: useless.to_vec(),
            ..waiting(1, &[2, 3])
        };
        let said = what_is_lacking(&[2, 3], &[knows(&[2]), waiting(2, &[2, 3])]);
        let words = "server 3 is missing: start it; server 2 runs with a disk that is empty or old";
        assert!(said.contains(words) && !said.contains("--begin-anew"), "{said}");
        let said = what_is_lacking(&[2, 3], &[knows(&[2, 3]), waiting(2, &[2, 3]), waiting(3, &[2, 3])]);
        let words = "stop server 1, start it with --begin-anew, and the others with empty folders and --replace: changes";
        assert!(said.contains(words) && said.contains("servers 2, 3 run with disks"), "{said}");
        let creating = [1, 2, 3].map(|id| with(id, State::Creating));
        assert!(what_is_lacking(&[3], &creating).contains("the same --key"));
    }

    #[test]
    fn a_server_is_replaced_only_where_most_say_that_it_is_the_wrong_one() {
        let with = |server, digest| ServerStatus {
            number: 5,
            digest: Some([digest; 32]),
            ..status(server, State::Serving, 11)
        };
        assert!(what_differs(&[2], &[with(1, 1), with(2, 2), with(3, 1)]).contains("--replace"));
        assert!(!what_differs(&[1, 2], &[with(1, 1), with(2, 2)]).contains("--replace"));
        assert!(!what_differs(&[1, 2, 3], &[with(1, 1), with(2, 2), with(3, 3)]).contains("--replace"));
    }

    #[test]
    fn a_service_that_waits_for_one_disk_says_what_it_costs_to_go_on_without_it() {
        let waiting = |server, hears: &[u8], one_disk| ServerStatus {
            server,
            servers: 3,
            state: State::Waiting,
            waits_for: vec![3],
            hears: hears.to_vec(),
            one_disk,
            ..ServerStatus::default()
        };
        let said = what_is_lacking(&[3], &[waiting(1, &[2], true), waiting(2, &[1], true)]);
        let words = "what only the lost disk had is gone";
        assert!(said.contains("--begin-anew") && said.contains(words), "{said}");
        for not in [waiting(1, &[], true), waiting(1, &[2], false)] {
            assert!(!what_is_lacking(&[3], &[not]).contains("--begin-anew"));
        }
    }

    #[test]
    fn a_server_that_only_this_client_does_not_reach_is_not_stopped() {
        let hears = [ServerStatus { hears: vec![3], ..status(1, State::Serving, 11) }];
        assert_eq!(silent(2, 3, &hears, 0).state, State::Stopped);
        let third = silent(3, 3, &hears, 3);
        assert_eq!(third.state, State::Unreachable);
        assert_eq!(third.why, "it does not answer this client, but servers hear it: 1");
        assert!(silent(3, 3, &hears, 2).why.ends_with("; is it among --seeds?"));
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
