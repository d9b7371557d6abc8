//! The copies of a replicated service, for `status`: each member that keeps one says how far it is.

use crate::output::{Output, Tone, hex, several, utc, visible};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::thread::Builder;
use std::time::Duration;
use unisono::replica::{CopyStatus, Escape, any_copy_status, copy_status, not_applying};
use unisono::rpc::{CallSettings, Client};
use unisono::{Member, Options};

/// Time for a copy to answer, 300 ms: a member of a group without replicas answers nothing.
const COPY_PATIENCE: Duration = Duration::from_millis(300);
/// Digits of a digest that people see; two digests that differ in no digit of these are the same for all practical ends.
const DIGEST_DIGITS: usize = 12;

/// What each member that was asked says of its copy.
pub(crate) struct Copies(Vec<(Member, Option<CopyStatus>)>);

impl Copies {
    /// Asks these members for their copies, in parallel as far as the system grants threads.
    pub(crate) fn of(group: &str, members: &[Member], options: &Options) -> Copies {
        let calls = CallSettings { locate: COPY_PATIENCE, silence: COPY_PATIENCE, ..options.calls.clone() };
        let Ok(client) = Client::new(&Options { calls, ..options.clone() }) else {
            return Copies(Vec::new());
        };
        let ask = |member: &Member| copy_status(&client, group, member.address, COPY_PATIENCE).ok();
        let copies = std::thread::scope(|scope| {
            let begin = |member| (member, Builder::new().spawn_scoped(scope, move || ask(member)));
            let asking: Vec<_> = members.iter().map(begin).collect();
            let answers = asking.into_iter().map(|(member, asking)| {
                let status = match asking {
                    Ok(asking) => asking.join().ok().flatten(),
                    Err(_) => ask(member),
                };
                (member.clone(), status)
            });
            answers.collect()
        });
        Copies(copies)
    }

    /// True if no member keeps a copy: the group is not that of a replicated service.
    fn is_none(&self) -> bool {
        self.0.iter().all(|(_, status)| status.is_none())
    }

    /// Returns the addresses of the members that have the state.
    pub(crate) fn with_state(&self) -> impl Iterator<Item = SocketAddr> {
        let have = |status: &Option<CopyStatus>| status.as_ref().is_some_and(|status| status.has_state);
        self.0.iter().filter(move |(_, status)| have(status)).map(|(member, _)| member.address)
    }

    fn statuses(&self) -> impl Iterator<Item = &CopyStatus> {
        self.0.iter().filter_map(|(_, status)| status.as_ref())
    }

    /// Returns the ids of the servers that the service waits for, if it is on disk and no server of it serves.
    pub(crate) fn missing(&self) -> Option<Vec<u8>> {
        let mut waits = self.statuses().filter(|status| !status.waits_for.is_empty());
        match self.statuses().any(serves) {
            true => None,
            false => waits.next().map(|status| status.waits_for.clone()),
        }
    }

    /// Returns the number of servers of the service, if it is on disk.
    pub(crate) fn servers(&self) -> Option<u8> {
        self.statuses().map(|status| status.servers).find(|servers| *servers != 0)
    }

    /// Returns the ids of the servers of a service on disk that are not in its group.
    fn outside(&self) -> Vec<u8> {
        let is_in = |id: &u8| self.0.iter().any(|(member, _)| member.name.as_str() == id.to_string());
        (1..=self.servers().unwrap_or(0)).filter(|id| !is_in(id)).collect()
    }

    /// Returns each time that the service on disk began anew, as the server says that knows of most.
    fn anew(&self) -> &[Escape] {
        let known = self.statuses().max_by_key(|status| status.anew.len());
        known.map_or(&[], |status| &status.anew)
    }

    /// Returns when the service on disk was created.
    fn created_at_ms(&self) -> Option<u64> {
        self.statuses().map(|status| status.created_at_ms).find(|at| *at != 0)
    }

    /// Prints a line for each copy.
    pub(crate) fn tell(&self, output: &Output) -> std::io::Result<()> {
        if self.is_none() {
            return Ok(());
        }
        output.say("  copies")?;
        for (member, status) in &self.0 {
            let name = visible(member.name.as_str());
            match status {
                Some(status) if !status.waits_for.is_empty() => {
                    output.say(format_args!("    {name}  waits for {}", servers(&status.waits_for)))?;
                }
                Some(status) if status.has_state => output.say(format_args!(
                    "    {name}  {}, {}, digest {}",
                    stuck(status).unwrap_or_else(|| state(Some(status)).into()),
                    several(status.position, "command"),
                    &hex(&status.digest)[..DIGEST_DIGITS]
                ))?,
                Some(status) => output.say(format_args!(
                    "    {name}  fetching the state, {} of {} bytes",
                    status.fetching.bytes_here, status.fetching.bytes_total
                ))?,
                None => output.say(output.tone(Tone::Bad, format_args!("    {name}  does not answer")))?,
            }
        }
        for id in self.outside() {
            output.say(output.tone(Tone::Bad, format_args!("    {id}  missing")))?;
        }
        if let Some(at_ms) = self.created_at_ms() {
            output.say(format_args!("  created {}", utc(at_ms)))?;
        }
        for Escape { server, at_ms, from, .. } in self.anew() {
            output.say(format_args!(
                "  begun anew from server {server}, {}, with its log through entry {from}",
                utc(*at_ms)
            ))?;
        }
        Ok(())
    }

    /// Returns the copies for programs; null if the group is not that of a replicated service.
    pub(crate) fn object(&self) -> Value {
        if self.is_none() {
            return Value::Null;
        }
        let copies = self.0.iter().map(|(member, status)| {
            let disk = status.as_ref().filter(|status| status.server > 0);
            let server = disk.map_or_else(|| json!(member.name.as_str()), |status| json!(status.server));
            json!({
                "server": server,
                "state": state(status.as_ref()),
                "why": why(status.as_ref()),
                "generation": disk.map(|status| status.generation),
                "waiting_for": disk.map(|status| &status.waits_for),
                "seqno": status.as_ref().map(|status| status.position),
                "synced": disk.map(|status| status.synced),
                "digest": status.as_ref().filter(|status| status.has_state).map(|status| hex(&status.digest)),
                "created_at_ms": disk.map(|status| status.created_at_ms).filter(|at| *at != 0),
                "begun_anew": disk.map(|status| status.anew.iter().map(begun_anew).collect::<Vec<_>>()),
            })
        });
        Value::Array(copies.collect())
    }
}

/// True if a copy serves and its group orders commands.
fn serves(status: &CopyStatus) -> bool {
    status.has_state && !status.is_halted
}

/// Says for how long a copy that serves has known of commands and applied none, if it has.
fn stuck(status: &CopyStatus) -> Option<String> {
    not_applying(status.behind).filter(|_| serves(status))
}

/// Returns the word for what a copy is doing.
fn state(status: Option<&CopyStatus>) -> &'static str {
    match status {
        Some(status) if stuck(status).is_some() => "not applying",
        Some(status) if serves(status) => "serving",
        Some(status) if !status.waits_for.is_empty() => "waiting",
        Some(status) if status.has_state => "halted",
        Some(_) => "fetching",
        None => "silent",
    }
}

/// Says why a copy does not serve or apply commands; `None` if it does.
fn why(status: Option<&CopyStatus>) -> Option<String> {
    match status {
        Some(status) if serves(status) => stuck(status),
        Some(status) if !status.waits_for.is_empty() => {
            Some(format!("it waits for {}", servers(&status.waits_for)))
        }
        Some(status) if status.has_state => Some("its group orders nothing at present".into()),
        Some(_) => Some("it fetches the state, or writes it to its disk".into()),
        None => Some("it does not answer".into()),
    }
}

fn begun_anew(escape: &Escape) -> Value {
    json!({"server": escape.server, "at_ms": escape.at_ms, "number": escape.from})
}

/// Returns the ids of the servers that a service on disk waits for, if no server of it serves.
pub(crate) fn missing(service: &str, client: &Client) -> Option<Vec<u8>> {
    let status = any_copy_status(client, service, COPY_PATIENCE).ok()?;
    (!serves(&status) && !status.waits_for.is_empty()).then_some(status.waits_for)
}

/// Says which servers a service waits for.
pub(crate) fn waits(service: &str, missing: &[u8]) -> String {
    format!("{} does not serve at present: it waits for {}", visible(service), servers(missing))
}

/// Returns the notice that a service on disk has been created. It warns an operator whose service existed before.
pub(crate) fn created_words(service: &str, at_ms: Option<u64>) -> String {
    let at = at_ms.map_or_else(String::new, |at| format!(" at {}", utc(at)));
    format!(
        "created {}{at}: it begins with nothing; if it has existed before, stop its servers and see that their disks are \
         mounted; give later starts --existing, which refuses an empty folder",
        visible(service)
    )
}

pub(crate) fn servers(ids: &[u8]) -> String {
    let ids: Vec<String> = ids.iter().map(u8::to_string).collect();
    match &ids[..] {
        [one] => format!("server {one}"),
        ids => format!("servers {}", ids.join(", ")),
    }
}
