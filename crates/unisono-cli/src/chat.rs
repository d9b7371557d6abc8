//! `unisono chat`: listening and sending at once, for two hands.

use crate::arguments::{self, Common, OrderChoice};
use crate::connection;
use crate::form::FormOptions;
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

/// Talk in a group: what you type goes to all, and all see it in the same order
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono chat kitchen --name Ann\n\nEnds on ctrl-d or ctrl-c.")]
pub(crate) struct Chat {
    /// Name of the group
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    group: String,

    /// What the others call you [default: the host and the process number]
    #[arg(long, value_name = "ME")]
    name: Option<String>,

    /// How many crashes at once the group is to survive without loss, if this founds it [default: 1]
    #[arg(long, value_name = "R", value_parser = arguments::resilience)]
    resilience: Option<u8>,

    /// Who gives the messages their places, if this founds the group
    #[arg(long, value_enum, default_value_t)]
    order: OrderChoice,

    #[command(flatten)]
    form: FormOptions,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Chat, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let config = connection::config(command.resilience.unwrap_or(RESILIENCE), command.order);
    let founding = command.form.founding(config, command.name.as_deref())?;
    let group = connection::enter(&command.group, settings, command.name.as_deref(), Some(&founding))?;
    signals::leave_on_interrupt(&group, || {})?;
    listen::leave_when_unread(&group)?;
    let (speaking, lines) = (group.clone(), lines::read(Vec::new())?);
    threads::start("speaker", move || speak(&speaking, &lines))?;
    listen::print_events(&group, Printer::new(output, 1), command.resilience, None, output)
}

/// Sends what is typed, line by line, and leaves when there is no more.
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
