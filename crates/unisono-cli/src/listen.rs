//! `unisono listen`: everything that happens in a group, in its order.

use crate::arguments::{self, Common, OrderChoice};
use crate::connection;
use crate::form::FormOptions;
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

/// The resilience with which a group is founded unless another is asked for.
pub(crate) const RESILIENCE: u8 = 1;

/// Nobody is told of a leave that takes no longer.
const SHORT_LEAVE: Duration = Duration::from_millis(500);
/// Whoever leaves holds this until it has said how that went: the stream of events ends before. True once that is said.
static LEFT: Mutex<bool> = Mutex::new(false);

const HELP: &str = "\
Each line is one event, its place in the order before it. A view is written
  [ann|2.1f3a90bc] (3) [ann, bob, cy]
who orders, and in which epoch (counted by resets); how many members there are; who they are, in the
order in which they came in.

Examples:
  unisono listen news
  unisono listen news --count 10 --json
  unisono listen news --form ann,bob,cy --name ann    the same with --name bob and --name cy

Ends on ctrl-c, after --count messages, or with exit status 3 if the group goes on without it.";

/// Join a group, or found it, and print every event in order
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Listen {
    /// Name of the group
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    group: String,

    /// Print nothing until the group has so many members
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = gathering::members)]
    min_members: usize,

    /// End after so many messages
    #[arg(long, value_name = "N", value_parser = arguments::number)]
    count: Option<u64>,

    /// How many crashes at once the group is to survive without loss, if this founds it [default: 1]
    #[arg(long, value_name = "R", value_parser = arguments::resilience)]
    resilience: Option<u8>,

    /// Who gives the messages their places, if this founds the group
    #[arg(long, value_enum, default_value_t)]
    order: OrderChoice,

    /// What the others call this member [default: the host and the process number]
    #[arg(long, value_name = "ME")]
    name: Option<String>,

    #[command(flatten)]
    form: FormOptions,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Listen, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let config = connection::config(command.resilience.unwrap_or(RESILIENCE), command.order);
    let founding = command.form.founding(config, command.name.as_deref())?;
    let group = connection::enter(&command.group, settings, command.name.as_deref(), Some(&founding))?;
    signals::leave_on_interrupt(&group, || {})?;
    leave_when_unread(&group)?;
    gathering::watch(&group, command.min_members)?;
    let printer = Printer::new(output, command.min_members);
    print_events(&group, printer, command.resilience, command.count, output)
}

/// Prints events until the group is left, by somebody else or here after `count` messages.
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
            if let (true, Event::Message { .. }, Some(left)) = (printed, &event, &mut left) {
                *left -= 1;
                if *left == 0 {
                    break;
                }
            }
        }
        if let Err(error) = output.raw(&text) {
            // Whoever read it is gone; the others are not to miss this member.
            leave(group);
            return Err(error.into());
        }
    }
    leave(group);
    Ok(())
}

/// Lets the group be left when nobody reads what is printed any more: where nothing happens nothing is printed, which would
/// show it.
pub(crate) fn leave_when_unread(group: &Group) -> anyhow::Result<()> {
    let group = group.clone();
    threads::start("reader", move || {
        if output::wait_until_unread() {
            leave(&group);
        }
    })
}

/// Leaves without ado: whatever stands in the way, this member is out.
pub(crate) fn leave(group: &Group) {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::replace(&mut *left, true) {
        return;
    }
    let leaving = progress::tell_if_long(SHORT_LEAVE, "leaving …".into());
    let outcome = group.leave("");
    drop(leaving);
    // It is refused to whoever is out already.
    if let Err(trouble @ (LeaveFailure::Excluded | LeaveFailure::Unconfirmed)) = outcome {
        tell(trouble);
    }
}
