//! The copies of a replicated service, for `status`: each member that keeps one says how far it is.

use crate::output::{Output, Tone, hex, visible};
use serde_json::{Value, json};
use std::thread::Builder;
use std::time::Duration;
use unisono::replica::{CopyStatus, copy_status};
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
                Some(_) => "fetching",
                None => "silent",
            };
            json!({
                "server": member.name.as_str(),
                "state": state,
                "why": null,
                "generation": null,
                "seqno": status.map(|status| status.position),
                "synced": null,
                "digest": status.filter(|status| status.has_state).map(|status| hex(&status.digest)),
            })
        });
        Value::Array(copies.collect())
    }
}
