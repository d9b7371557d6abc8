//! `unisono rpc counter`: a number served by the group of all who run this.

use super::Served;
use crate::arguments::{self, Common};
use crate::connection;
use crate::form::{self, FormOptions, Founding};
use crate::output::{Output, several, tell, visible};
use crate::problem::Problem;
use crate::settings::Settings;
use crate::signals;
use crate::threads;
use clap::Args;
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use unisono::rpc::{Asked, Notice, OpenGroup, Outcome, Service};
use unisono::{Bytes, Ended, Group, GroupConfig, Member, Options};

/// How long what was taken may still be answered after an interrupt.
const FAREWELL: Duration = Duration::from_secs(3);

/// Serve a counter together with all others who run this: each call counts once, whoever dies
///
/// It takes three calls: `add` adds one, or what follows it (`add 5`), and answers the sum, `get` answers the sum, and `where` is passed on
/// to another member, and answers which ones it met.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  unisono rpc counter votes --name a      in three terminals, as a, b and c\n  \
                  unisono rpc call votes add              in another; kill one of the three, and go on"
)]
pub(crate) struct Counter {
    /// Name of the service, or its private port; the group is named after it
    #[arg(value_name = "PORT")]
    port: Served,

    /// What the others and `where` call this member [default: the host and the process number]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// How many crashes at once the group is to survive without loss, if this founds it
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = arguments::resilience)]
    resilience: u8,

    #[command(flatten)]
    form: FormOptions,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// The member there is now, for whoever interrupts it.
type Current = Arc<Mutex<Option<Arc<OpenGroup<Sum>>>>>;

pub(crate) fn run(command: &Counter, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let options = connection::options(settings, command.name.as_deref())?;
    let config = GroupConfig { resilience: command.resilience, ..GroupConfig::default() };
    let founding = command.form.founding(config, command.name.as_deref())?;
    let mut again = false;
    connection::warn_of_no_key(&options);
    let current = Current::default();
    let interrupted = current.clone();
    signals::on_interrupt(move |_| {
        let member = interrupted.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(member) = member {
            member.close(FAREWELL);
        }
        std::process::exit(0);
    })?;
    loop {
        let group = enter(&command.port.name, &founding, again, settings, &options)?;
        let member = Arc::new(OpenGroup::serve_in(group, &command.port.port, Sum(0))?);
        again = true;
        *current.lock().unwrap_or_else(PoisonError::into_inner) = Some(member.clone());
        match serve(&member, &command.port.name, output) {
            Ok(Ended::Left) => return Ok(()),
            // It may have stood still for long: the others know what it missed.
            Ok(ended) => tell(format_args!("{ended}; joining again")),
            Err(problem) => {
                // The others are not to miss it.
                member.close(FAREWELL);
                return Err(problem);
            }
        }
        current.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Enters the group. A process that was in it and takes part in formations only joins it again: a second formation could
/// bring about a second group.
fn enter(
    name: &str,
    founding: &Founding,
    again: bool,
    settings: &Settings,
    options: &Options,
) -> Result<Group, Problem> {
    match &founding.formation {
        Some(_) if again => Ok(connection::patiently(|| Group::join(name, "", options))?),
        Some(formation) => form::form(name, formation, &founding.config, "rpc counter", settings, options),
        None => Ok(Group::join_or_create(name, founding.config.clone(), "", options)?),
    }
}

/// Serves for as long as the member is in.
fn serve(member: &Arc<OpenGroup<Sum>>, name: &str, output: &Output) -> Result<Ended, Problem> {
    introduce(member, name, output)?;
    let noticing = member.clone();
    threads::start("notices", move || {
        while let Some(notice) = noticing.notice() {
            tell(words(&notice));
        }
    })?;
    Ok(member.wait())
}

/// From now on there are answers.
fn introduce(member: &OpenGroup<Sum>, name: &str, output: &Output) -> std::io::Result<()> {
    let (port, members) = (member.port().to_string(), member.group().members().len());
    let sum = member.look(|sum| sum.0);
    let several = several(members as u64, "member");
    output.say(format_args!("serving {}, port {port}, {several}, at {sum}", visible(name)))?;
    output.object(
        &json!({"event": "serving", "name": name, "port": port, "members": members, "value": sum.to_string()}),
    )
}

fn words(notice: &Notice) -> String {
    match notice {
        Notice::Degraded { excluded } => {
            let names: Vec<&str> = excluded.iter().map(|member| member.name.as_str()).collect();
            format!(
                "more members are lost than the group's resilience covers ({}): calls that were answered may be lost",
                visible(&names.join(", "))
            )
        }
        Notice::OtherGroup { address, gives_way } => format!(
            "another group serves this port, with a sum of its own, and has a member at {address}: they did not hear each \
             other when the second was founded; {}",
            if *gives_way {
                "this one gives way: end its members, and start them again"
            } else {
                "that one gives way: its members are told to end and to start again"
            }
        ),
        other => format!("{other:?}"),
    }
}

/// The number.
struct Sum(i128);

impl Service for Sum {
    fn apply(&mut self, asked: &Asked<'_>) -> Outcome {
        let Ok(text) = std::str::from_utf8(asked.payload) else { return refuse() };
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["add"] => self.0 = self.0.wrapping_add(1),
            ["add", number] => match number.parse::<i64>() {
                Ok(number) => self.0 = self.0.wrapping_add(number.into()),
                Err(_) => return refuse(),
            },
            ["get"] => {}
            ["where"] => {
                let by = asked.received_by.map_or("a member that has died", |member| member.name.as_str());
                return Outcome::Pass(format!("received by {by}").into());
            }
            _ => return refuse(),
        }
        Outcome::Reply(self.0.to_string().into())
    }

    fn snapshot(&self) -> Bytes {
        self.0.to_be_bytes().to_vec().into()
    }

    fn restore(&mut self, snapshot: &[u8]) {
        self.0 = snapshot.try_into().map_or(0, i128::from_be_bytes);
    }

    fn take_over(&self, word: &Bytes, me: &Member) -> Bytes {
        format!("{}, answered by {}", String::from_utf8_lossy(word), me.name).into()
    }
}

fn refuse() -> Outcome {
    Outcome::Refuse("this counter takes `add`, `add NUMBER`, `get` and `where`".into())
}
