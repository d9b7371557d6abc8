//! `unisono lock`: runs a command while this process holds a lock, or keeps the locks of a group.

mod claim;
mod family;
pub(crate) mod guard;
mod hold;
mod serve;

use crate::arguments::{Common, OrderChoice, Scope};
use crate::connection::{self, typed};
use crate::form::FormOptions;
use crate::output::{self, Output, tell, visible};
use crate::problem::Problem;
use crate::rpc::notice_words;
use crate::settings::Settings;
use crate::units;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use unisono::SlowMember;
use unisono::locks::{LockService, LockTable};
use unisono::replica::Notice;

/// Time to leave the group in order.
const FAREWELL: Duration = Duration::from_secs(1);

const HELP: &str = "\
Examples:
  unisono lock jobs --serve --form a,b,c --name a    on three machines or in three terminals, as a, b and c
  unisono lock jobs nightly -- ./backup              on any machine: runs ./backup once it has the lock

UNISONO_FENCE is a number that rises with each grant of a lock. A process that is paused may go on for a
moment after it has lost the lock: let what the command writes to refuse a lower number than it has seen.

Exit status: that of the command, or 128 + N if signal N ended it; 127 if there is no such program; 1 if the
lock was not had, or was lost before the command ended; 3 if the group carries out no commands at present and
--no-wait or --timeout limits the wait.";

/// Run a command while this process holds a lock, on one of several machines at a time
///
/// The process waits in line for the lock, runs the command in a process group of its own, and releases the lock when the
/// command and all processes that it started have ended: what the command leaves running, daemons too, is killed. If this
/// process dies or is cut off, the group excludes it after about half a second, and the next process in line gets the lock. A
/// command whose lock is lost is ended: with SIGTERM, after 2 s with SIGKILL. SIGTERM, SIGINT and SIGHUP are passed on to it.
///
/// With --serve the process keeps the locks together with others and holds none. Without --serve it only joins these
/// processes: it never founds a group.
#[derive(Args, Debug)]
#[command(after_help = HELP, override_usage = "unisono lock [OPTIONS] <GROUP> <NAME> -- <CMD>...\n       \
    unisono lock [OPTIONS] <GROUP> --serve <--form <NAME,…>|--create>")]
pub(crate) struct Lock {
    /// Name of the group that keeps the locks
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    group: String,

    /// Name of the lock: 1 to 255 bytes without control characters
    #[arg(value_name = "NAME", value_parser = lock_name, required_unless_present = "serve")]
    lock: Option<String>,

    /// The command to run, and its arguments
    #[arg(value_name = "CMD", last = true, required_unless_present = "serve")]
    command: Vec<OsString>,

    /// Fail at once, with exit status 1, if another process has the lock
    #[arg(long, conflicts_with = "serve")]
    no_wait: bool,

    /// Wait in line at most for this time, such as 500ms or 2m, or a number of seconds; looking for the group is not
    /// counted
    #[arg(long, value_name = "TIME", value_parser = units::seconds, conflicts_with = "serve")]
    timeout: Option<Duration>,

    /// Keep the locks with the other processes that do so, and hold none
    #[arg(long, conflicts_with_all = ["lock", "command"])]
    serve: bool,

    /// With --serve: join the locks if a member answers within --locate, and found them alone if none does. They stop with
    /// the process that founded them
    #[arg(long, conflicts_with = "form")]
    create: bool,

    #[command(flatten)]
    form: FormOptions,

    /// With --serve: which member assigns the sequence numbers, if this process founds the group [default: sequencer]
    #[arg(long, value_enum)]
    order: Option<OrderChoice>,

    /// With --serve: what happens to a member that answers but does not get on, if this process founds the group: after
    /// this time, such as 500ms or 2m, or a number of seconds, the others go on without it [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = units::slow_member)]
    slow_member: Option<SlowMember>,

    #[command(flatten)]
    scope: Scope,

    /// Name of this member [default: the host and the process number; with --serve --create the host alone, so that a process
    /// that is started again has its former vote]
    #[arg(long, value_name = "ME")]
    name: Option<String>,

    #[command(flatten)]
    pub(crate) common: Common,
}

fn lock_name(text: &str) -> Result<String, String> {
    LockTable::check_name(text).map(|()| text.into()).map_err(|refusal| refusal.to_string())
}

pub(crate) fn run(command: Lock, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let mut options = connection::options(settings, command.name.as_deref())?;
    options.settings.hops = command.scope.hops;
    let Some(lock) = &command.lock else {
        return serve::run(&command, settings, &options, output);
    };
    if let Some(option) = command.option_of_servers() {
        return Err(Problem::usage(format!(
            "{option} is for processes that keep the locks: add --serve in place of NAME and CMD, or leave it out"
        )));
    }
    let status = hold::run(&command, lock, settings, &options)?;
    output::exit(status)
}

impl Lock {
    /// Returns an option that only processes with `--serve` take, if one is given. The parser cannot refuse these: it does not
    /// ask for --serve beside the name of a lock.
    fn option_of_servers(&self) -> Option<&'static str> {
        let given = [
            ("--form", self.form.is_given()),
            ("--create", self.create),
            ("--order", self.order.is_some()),
            ("--slow-member", self.slow_member.is_some()),
        ];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }
}

/// The service that this process is in at present: it leaves one that carries out no commands, and enters another.
#[derive(Clone)]
struct Present(Arc<Mutex<LockService>>);

impl Present {
    fn new(service: LockService) -> Present {
        Present(Arc::new(Mutex::new(service)))
    }

    fn get(&self) -> LockService {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, service: LockService) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = service;
    }
}

/// Returns what to do if no process keeps the locks of the group.
fn advice(group: &str, settings: &Settings) -> String {
    let command = typed("lock", group, settings);
    format!(
        "to keep its locks on three machines, start `{command} --serve --form a,b,c --name a` on the first, and the same with \
         --name b and --name c on the others; to keep them in one process, `{command} --serve --create`"
    )
}

/// Returns what to say if the members of the group have no state of locks.
fn no_locks(group: &str) -> String {
    let group = visible(group);
    format!("no member of {group} has locks: is another service, or a plain group, called {group}?")
}

/// Prints what an operator should know.
fn tell_notice(notice: &Notice) {
    match notice {
        Notice::OtherGroup { address, gives_way } => {
            let (how, which) = match gives_way {
                true => ("more", "this group gives way"),
                false => ("less", "it gives way"),
            };
            tell(format_args!(
                "another group of this name keeps locks of its own, and has a member at {address}; it has ordered {how}, so \
                 {which}"
            ));
        }
        notice => tell(notice_words(notice)),
    }
}
