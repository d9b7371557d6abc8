//! `unisono order`: changes the order of a group while it runs.

use crate::arguments::{Common, OrderChoice, order_name};
use crate::connection;
use crate::output::Output;
use crate::problem::Problem;
use crate::seeds;
use crate::settings::Settings;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use unisono::{ChangeOrderError, ChangeOrderFailure, Options, Report};

/// How long a member may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the group may take for a switch: longer than a member that others wait for may hold it up, as a rule.
const SWITCH_PATIENCE: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Change the order of a group while it runs
///
/// All members go over at the same place in the order of messages; no message is lost, and none is sent again.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit status 1 if the group is being reset, if another change of the order is under way, or if no member answers.\n\nExample:\n  unisono order news token"
)]
pub(crate) struct Order {
    /// Name of the group
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    group: String,

    /// Which member is to assign the sequence numbers
    #[arg(value_enum)]
    order: OrderChoice,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Order, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let options = connection::options(settings, None)?;
    seeds::warn_of_unresolved(&settings.seeds);
    let (group, name) = (&*command.group, command.order.name());
    let before = unisono::look(group, &options, PATIENCE)?;
    let member = before.members.iter().find(|member| member.member.uid == before.reporter);
    let Some(member) = member.map(|member| member.member.address) else {
        return Err(Problem::failed("the member that answered is not in its own view: try again"));
    };
    let (seq, since) = match unisono::change_order(group, member, command.order.order(), &options, PATIENCE) {
        Ok(()) => (in_force(group, member, &before, command.order, &options)?, "from"),
        Err(ChangeOrderFailure::Refused(ChangeOrderError::InForce)) => {
            (unisono::look_at(group, member, &options, PATIENCE)?.order_since, "already, since")
        }
        Err(ChangeOrderFailure::Look(error)) => return Err(error.into()),
        Err(failure) => return Err(Problem::failed(failure)),
    };
    output.say(format_args!("order {name} {since} place {seq}"))?;
    output.object(&json!({ "command": "order", "group": group, "order": name, "seq": seq }))?;
    Ok(())
}

/// Waits until the switch is accepted, and returns its seqno.
fn in_force(
    group: &str,
    member: SocketAddr,
    before: &Report,
    order: OrderChoice,
    options: &Options,
) -> Result<u64, Problem> {
    let begin = Instant::now();
    while begin.elapsed() < SWITCH_PATIENCE {
        let asked = unisono::look_at(group, member, options, PATIENCE);
        // The member may be gone, and its request may have been heard.
        let report = asked.or_else(|_| unisono::look(group, options, PATIENCE))?;
        let switched = report.order_since > before.order_since && report.accepted >= report.order_since;
        if switched && report.order == order.order() {
            return Ok(report.order_since);
        }
        if switched {
            let other = order_name(report.order);
            return Err(Problem::failed(format!("another change came first: the order is {other} now")));
        }
        if report.epoch != before.epoch {
            return Err(Problem::failed("a reset came first, and the order is the one before: try again"));
        }
        std::thread::sleep(ASK_EVERY);
    }
    Err(Problem::not_primary("the group has not changed its order within 10 s: `unisono status` says why"))
}
