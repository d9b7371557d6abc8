//! `unisono rpc counter`: a counter that is served by the group of all processes that run this command.

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

/// Time to answer accepted requests after a signal: 3 s.
const FAREWELL: Duration = Duration::from_secs(3);

/// Serve a counter together with all other processes that run this: each call counts once, even if members crash
///
/// It takes three calls. `add` adds one, or the number after it (`add 5`), and answers the sum. `get` answers the sum.
/// `where` is forwarded to another member, and answers which member received it and which answered.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  unisono rpc counter votes --name a      in three terminals, as a, b and c\n  \
                  unisono rpc call votes add              in another; kill one of the three and call again"
)]
pub(crate) struct Counter {
    /// Name of the service, or its private port; the group is named after it
    #[arg(value_name = "PORT")]
    port: Served,

    /// Name of this member, which `where` answers [default: the host and the process number]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Number of simultaneous crashes that the group survives without losing a call, if this command founds it
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = arguments::resilience)]
    resilience: u8,

    #[command(flatten)]
    form: FormOptions,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// The present member, shared with the thread that handles signals.
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
            // This member may have been stopped for a while. A new member gets the present sum from the others.
            Ok(ended) => tell(format_args!("{ended}; joining again")),
            Err(problem) => {
                // Leave, so that the others need not suspect this member.
                member.close(FAREWELL);
                return Err(problem);
            }
        }
        current.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Enters the group. A process with `--form` that was a member before only joins: a second formation could create a
/// second group.
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

/// Serves until this process is no member any more.
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

/// Prints that the service is ready.
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
            "another group with its own sum serves this port, and has a member at {address}: the groups did not reach each \
             other when the second was founded; {}",
            if *gives_way {
                "this group gives way: end its members and start them again"
            } else {
                "that group gives way: end its members and start them again"
            }
        ),
        other => format!("{other:?}"),
    }
}

/// The counter's state.
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
                let by = asked
                    .received_by
                    .map_or("a member that is no longer in the group", |member| member.name.as_str());
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
