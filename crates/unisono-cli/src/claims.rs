//! The locks of a group, for `status` and `why`: who holds them, and who waits for them.

use crate::output::{Output, visible};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use unisono::locks::{LockClaim, LockTable, locks_at};
use unisono::rpc::{CallFailure, CallSettings, Client};
use unisono::{Options, Uid};

/// Time for a member to answer, 300 ms: a member that keeps no locks answers nothing.
const PATIENCE: Duration = Duration::from_millis(300);
/// Members that are asked, at most.
const ASKED_MAX: usize = 2;
/// Waiters of a lock that people see.
const WAITERS_SHOWN: usize = 8;

/// What a member says of the locks; `None` if the group keeps none.
pub(crate) enum Claims {
    None,
    TooMany,
    Of(LockTable),
}

impl Claims {
    /// Asks these members, one after the other, until one answers.
    pub(crate) fn of(group: &str, members: impl Iterator<Item = SocketAddr>, options: &Options) -> Claims {
        let calls = CallSettings { locate: PATIENCE, silence: PATIENCE, ..options.calls.clone() };
        let Ok(client) = Client::new(&Options { calls, ..options.clone() }) else { return Claims::None };
        let mut answers = members.take(ASKED_MAX).map(|at| locks_at(&client, group, at, PATIENCE));
        let answered = answers.find_map(|answer| match answer {
            Ok(table) => Some(Claims::Of(table)),
            Err(CallFailure::Refused(_)) => Some(Claims::TooMany),
            Err(_) => None,
        });
        answered.unwrap_or(Claims::None)
    }

    fn lines(&self) -> Vec<(&str, Vec<LockClaim>)> {
        match self {
            Claims::Of(table) => table.locks().map(|(name, claims)| (name, claims.collect())).collect(),
            Claims::None | Claims::TooMany => Vec::new(),
        }
    }

    /// Returns who waits for which lock, and who has it.
    pub(crate) fn waits(&self) -> Vec<(&str, Uid, Uid)> {
        let mut waits = Vec::new();
        for (lock, claims) in self.lines() {
            let Some((holder, waiting)) = claims.split_first() else { continue };
            waits.extend(waiting.iter().map(|claim| (lock, claim.member, holder.member)));
        }
        waits
    }

    /// Prints a line for each lock that is held. `name` returns the name of a member.
    pub(crate) fn tell(&self, name: &dyn Fn(Uid) -> String, output: &Output) -> std::io::Result<()> {
        match self {
            Claims::None => return Ok(()),
            Claims::TooMany => return output.say("  locks: too many are held to show them"),
            Claims::Of(table) if table.is_empty() => return output.say("  no lock is held"),
            Claims::Of(_) => output.say("  locks")?,
        }
        for (lock, claims) in self.lines() {
            let Some((holder, waiting)) = claims.split_first() else { continue };
            let shown = waiting.iter().take(WAITERS_SHOWN).map(|claim| name(claim.member));
            let mut line = shown.collect::<Vec<_>>().join(", ");
            if waiting.len() > WAITERS_SHOWN {
                line += &format!(" and {} more", waiting.len() - WAITERS_SHOWN);
            }
            let line = if line.is_empty() { line } else { format!("; {line} in line") };
            let fence = holder.fence.unwrap_or_default();
            output.say(format_args!(
                "    {}  {} has it, with fence {fence}{line}",
                visible(lock),
                name(holder.member)
            ))?;
        }
        Ok(())
    }

    /// Returns the locks for programs; null if the group keeps none, or too many to show.
    pub(crate) fn object(&self, name: &dyn Fn(Uid) -> String) -> Value {
        let Claims::Of(_) = self else { return Value::Null };
        let locks = self.lines().into_iter().map(|(lock, claims)| {
            let waiting: Vec<String> = claims.iter().skip(1).map(|claim| name(claim.member)).collect();
            json!({
                "name": lock,
                "holder": claims.first().map(|claim| name(claim.member)),
                "fence": claims.first().and_then(|claim| claim.fence),
                "waiting": waiting,
            })
        });
        Value::Array(locks.collect())
    }
}
