//! The copies of a replicated service, for `status`: each member that keeps one says how far it is.

use crate::output::{Output, Tone, hex, visible};
use serde_json::{Value, json};
use std::thread::Builder;
use std::time::Duration;
use unisono::replica::{CopyStatus, any_copy_status, copy_status};
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

    /// Returns the ids of the servers that the service waits for, if it is on disk and no server of it serves.
    pub(crate) fn missing(&self) -> Option<Vec<u8>> {
        let statuses = || self.0.iter().filter_map(|(_, status)| status.as_ref());
        let waits = || statuses().find(|status| !status.waits_for.is_empty());
        match statuses().any(|status| status.has_state) {
            true => None,
            false => waits().map(|status| status.waits_for.clone()),
        }
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
                Some(status) if status.has_state => output.say(format_args!(
                    "    {name}  serving, {} commands, digest {}",
                    status.position,
                    &hex(&status.digest)[..DIGEST_DIGITS]
                ))?,
                Some(status) if !status.waits_for.is_empty() => {
                    output.say(format_args!("    {name}  waits for {}", servers(&status.waits_for)))?;
                }
                Some(status) => output.say(format_args!(
                    "    {name}  fetching the state, {} of {} bytes",
                    status.fetching.bytes_here, status.fetching.bytes_total
                ))?,
                None => output.say(output.tone(Tone::Bad, format_args!("    {name}  does not answer")))?,
            }
        }
        Ok(())
    }

    /// Returns the copies for programs; null if the group is not that of a replicated service.
    pub(crate) fn object(&self) -> Value {
        if self.is_none() {
            return Value::Null;
        }
        let copies = self.0.iter().map(|(member, status)| {
            let state = match status {
                Some(status) if status.has_state => "serving",
                Some(status) if !status.waits_for.is_empty() => "waiting",
                Some(_) => "fetching",
                None => "silent",
            };
            let disk = status.as_ref().filter(|status| status.server > 0);
            let server = disk.map_or_else(|| json!(member.name.as_str()), |status| json!(status.server));
            json!({
                "server": server,
                "state": state,
                "why": null,
                "generation": disk.map(|status| status.generation),
                "waiting_for": disk.map(|status| &status.waits_for),
                "seqno": status.as_ref().map(|status| status.position),
                "synced": null,
                "digest": status.as_ref().filter(|status| status.has_state).map(|status| hex(&status.digest)),
            })
        });
        Value::Array(copies.collect())
    }
}

/// Returns the ids of the servers that a service on disk waits for, if no server of it serves.
pub(crate) fn missing(service: &str, client: &Client) -> Option<Vec<u8>> {
    let status = any_copy_status(client, service, COPY_PATIENCE).ok()?;
    (!status.has_state && !status.waits_for.is_empty()).then_some(status.waits_for)
}

/// Says which servers a service waits for.
pub(crate) fn waits(service: &str, missing: &[u8]) -> String {
    format!("{} does not serve at present: it waits for {}", visible(service), servers(missing))
}

fn servers(ids: &[u8]) -> String {
    let ids: Vec<String> = ids.iter().map(u8::to_string).collect();
    match &ids[..] {
        [one] => format!("server {one}"),
        ids => format!("servers {}", ids.join(", ")),
    }
}
