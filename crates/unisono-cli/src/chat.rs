//! `unisono chat`: sends what is typed and prints the group's events, in one terminal.

use crate::arguments::{self, Common, OrderChoice, Wishes};
use crate::connection;
use crate::form::{FormOptions, SlowOption};
use crate::lines::{self, Input, Lines};
use crate::listen::{self, RESILIENCE};
use crate::output::{Output, tell};
use crate::printer::Printer;
use crate::problem::Problem;
use crate::resender::Resender;
use crate::settings::Settings;
use crate::signals;
use crate::threads;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use unisono::Group;

/// Talk in a group: every member sees all lines in the same order
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono chat kitchen --name Ann\n\nEnds on ctrl-d or ctrl-c.")]
pub(crate) struct Chat {
    /// Name of the group
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    group: String,

    /// Your name in the group [default: the host and the process number]
    #[arg(long, value_name = "ME")]
    name: Option<String>,

    /// Number of simultaneous crashes that the group survives without losing a message, if this command founds it
    /// [default: 1]
    #[arg(long, value_name = "R", value_parser = arguments::resilience)]
    resilience: Option<u8>,

    /// Which member assigns the sequence numbers, if this command founds the group
    #[arg(long, value_enum, default_value_t)]
    order: OrderChoice,

    #[command(flatten)]
    slow: SlowOption,

    #[command(flatten)]
    wishes: Wishes,

    #[command(flatten)]
    form: FormOptions,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Chat, settings: &Settings, output: &Output) -> Result<(), Problem> {
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
    signals::leave_on_interrupt(&group, || {})?;
    listen::leave_when_unread(&group)?;
    let (speaking, lines) = (group.clone(), lines::read(Vec::new())?);
    threads::start("speaker", move || speak(&speaking, &lines))?;
    listen::print_events(&group, Printer::new(output, 1), command.resilience, None, output)
}

/// Sends each typed line as a message. Leaves the group at the end of the input.
fn speak(group: &Group, lines: &Lines) {
    let mut resender = Resender::new(group.clone(), None);
    loop {
        let sent = match lines.next() {
            Input::Line(line) => {
                resender.push(line);
                resender.flush().map_err(|stuck| stuck.to_string())
            }
            Input::End(Ok(())) => break,
            Input::End(Err(error)) => Err(format!("cannot read standard input: {error}")),
        };
        if let Err(trouble) = sent {
            tell(trouble);
            break;
        }
    }
    listen::leave(group);
}
