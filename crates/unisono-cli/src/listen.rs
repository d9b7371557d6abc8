//! `unisono listen`: joins a group and prints its events in order.

use crate::arguments::{self, Common, OrderChoice, Wishes};
use crate::connection;
use crate::form::{FormOptions, SlowOption};
use crate::gathering;
use crate::output::{self, Output, tell};
use crate::printer::Printer;
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use crate::signals;
use crate::threads;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use unisono::{Ended, Event, Group, LeaveFailure};

/// Default resilience of a group that this command founds.
pub(crate) const RESILIENCE: u8 = 1;

/// A leave that takes less than this, 500 ms, prints no progress.
const SHORT_LEAVE: Duration = Duration::from_millis(500);
/// Locked by the thread that leaves until it has reported the outcome: the stream of events ends earlier. True once a
/// thread has begun to leave.
static LEFT: Mutex<bool> = Mutex::new(false);

const HELP: &str = "\
Each line is one event, with its sequence number before it. A view is printed as
  [ann|2.1f3a90bc] (3) [ann, bob, cy]
the sequencer and the epoch (its first number grows with each reset); the number of members; the
members in the order in which they joined.

Examples:
  unisono listen news
  unisono listen news --count 10 --json
  unisono listen news --form ann,bob,cy --name ann    and so on, with --name bob and --name cy
  unisono listen news --floor 4         the group goes on with four members or more
  unisono listen news --open            also takes what `unisono send news --outside` sends

Ends on ctrl-c, after --count messages, or with exit status 3 if the group excludes this member.";

/// Join a group, or found it if no member answers, and print every event in order
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Listen {
    /// Name of the group
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    group: String,

    /// Print nothing until the group has N members
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = gathering::members)]
    min_members: usize,

    /// End after N messages
    #[arg(long, value_name = "N", value_parser = arguments::number)]
    count: Option<u64>,

    /// Number of simultaneous crashes that the group survives without losing a message, if this command founds it
    /// [default: 1]
    #[arg(long, value_name = "R", value_parser = arguments::resilience)]
    resilience: Option<u8>,

    /// Which member assigns the sequence numbers, if this command founds the group
    #[arg(long, value_enum, default_value_t)]
    order: OrderChoice,

    /// Take messages of processes that are no members (`unisono send --outside`), and send them on
    #[arg(long)]
    open: bool,

    #[command(flatten)]
    slow: SlowOption,

    /// Name of this member [default: the host and the process number]
    #[arg(long, value_name = "ME")]
    name: Option<String>,

    #[command(flatten)]
    wishes: Wishes,

    #[command(flatten)]
    form: FormOptions,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Listen, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let resilience = command.resilience.unwrap_or(RESILIENCE);
    let config = connection::config(resilience, command.order, command.slow.slow_member);
    let founding = command.form.founding(config, command.name.as_deref())?;
    let group = connection::enter(
        &command.group,
        settings,
        command.name.as_deref(),
        command.wishes,
        Some(&founding),
    )?;
    if command.open {
        group.open_to_outside().map_err(Problem::failed)?;
    }
    signals::leave_on_interrupt(&group, || {})?;
    leave_when_unread(&group)?;
    gathering::watch(&group, command.min_members)?;
    let printer = Printer::new(output, command.min_members);
    print_events(&group, printer, command.resilience, command.count, output)
}

/// Prints events until another thread leaves the group, or until `count` messages; then this thread leaves it.
pub(crate) fn print_events(
    group: &Group,
    mut printer: Printer,
    resilience: Option<u8>,
    count: Option<u64>,
    output: &Output,
) -> Result<(), Problem> {
    let (mut events, mut left) = (Vec::new(), count);
    while left != Some(0) {
        match group.receive_many(&mut events) {
            Ok(_) => {}
            Err(Ended::Left) => {
                drop(LEFT.lock());
                return Ok(());
            }
            Err(ended) => return Err(Problem::not_primary(ended)),
        }
        let mut text = String::new();
        for event in events.drain(..) {
            connection::warn_of_other_resilience(&event, resilience);
            let printed = printer.print(&event, &mut text);
            if let (true, Event::Message { .. } | Event::Early { .. }, Some(left)) =
                (printed, &event, &mut left)
            {
                *left -= 1;
                if *left == 0 {
                    break;
                }
            }
        }
        if let Err(error) = output.raw(&text) {
            // The output is closed. Leave, so that the others need not suspect this member and reset the group.
            leave(group);
            return Err(error.into());
        }
    }
    leave(group);
    Ok(())
}

/// Leaves the group as soon as the reader of standard output closes it. A failing write would show that only at the
/// next event.
pub(crate) fn leave_when_unread(group: &Group) -> anyhow::Result<()> {
    let group = group.clone();
    threads::start("reader", move || {
        if output::wait_until_unread() {
            leave(&group);
        }
    })
}

/// Leaves the group, once. This member is out in any case; prints a message if the leave was not confirmed.
pub(crate) fn leave(group: &Group) {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::replace(&mut *left, true) {
        return;
    }
    let leaving = progress::tell_if_long(SHORT_LEAVE, || "leaving …");
    let outcome = group.leave("");
    drop(leaving);
    // A refusal means that this member is out already.
    if let Err(trouble @ (LeaveFailure::Excluded | LeaveFailure::Unconfirmed)) = outcome {
        tell(trouble);
    }
}
