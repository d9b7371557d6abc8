//! `unisono dir`: runs the servers of a directory service, and asks them.

mod attendant;
mod backup;
mod cap;
mod capability;
mod change;
mod check;
mod cluster;
mod list;
mod serve;
mod session;
mod status;
mod tree;
mod watch;

pub(crate) use capability::target;
pub(crate) use session::{At, Reads, Session, object_digits};

use crate::arguments::Common;
use crate::output::Output;
use crate::problem::Problem;
use crate::settings::Settings;
use crate::signals;
use clap::{Args, Subcommand};

/// Serve a directory, or ask it: names for protected objects, kept by several servers
///
/// A directory is a table: each row has a name, a capability (what opens an object), and a mask of rights for each column
/// of the directory. A path leads from the directory of --cap down.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  unisono dir cluster --data /tmp/dir                  three servers, in one terminal\n  \
                  export UNISONO_CAP=/tmp/dir/1/root.cap               in another\n  \
                  unisono dir mkdir home && unisono dir ls"
)]
pub(crate) struct Dir {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Serve(serve::Serve),
    Cluster(cluster::Cluster),
    Ls(list::Ls),
    Lookup(list::Lookup),
    Tree(tree::Tree),
    Mkdir(change::Mkdir),
    Rmdir(change::Rmdir),
    Append(change::Append),
    Chmod(change::Chmod),
    Rm(change::Rm),
    Replace(change::Replace),
    Watch(watch::Watch),
    Status(status::Status),
    Check(check::Check),
    Backup(backup::Backup),
    Restore(backup::Restore),
    Cap(cap::Cap),
}

impl Dir {
    /// Returns the common flags.
    pub(crate) fn common(&self) -> &Common {
        match &self.what {
            What::Serve(command) => &command.common,
            What::Cluster(command) => &command.common,
            What::Ls(command) => &command.at.common,
            What::Lookup(command) => &command.at.common,
            What::Tree(command) => &command.at.common,
            What::Mkdir(command) => &command.at.common,
            What::Rmdir(command) => &command.at.common,
            What::Append(command) => &command.at.common,
            What::Chmod(command) => &command.at.common,
            What::Rm(command) => &command.at.common,
            What::Replace(command) => &command.at.common,
            What::Watch(command) => &command.at.common,
            What::Status(command) => &command.at.common,
            What::Check(command) => &command.at.common,
            What::Backup(command) => &command.at.common,
            What::Restore(command) => &command.common,
            What::Cap(command) => command.common(),
        }
    }
}

pub(crate) fn run(command: Dir, settings: &Settings, output: &Output) -> Result<(), Problem> {
    signals::leave_no_core();
    match command.what {
        What::Serve(command) => serve::run(&command, settings, output),
        What::Cluster(command) => cluster::run(&command, settings, output),
        What::Ls(command) => list::ls(&command, settings, output),
        What::Lookup(command) => list::lookup(&command, settings, output),
        What::Tree(command) => tree::run(&command, settings, output),
        What::Mkdir(command) => change::mkdir(&command, settings, output),
        What::Rmdir(command) => change::rmdir(&command, settings, output),
        What::Append(command) => change::append(&command, settings, output),
        What::Chmod(command) => change::chmod(&command, settings, output),
        What::Rm(command) => change::rm(&command, settings, output),
        What::Replace(command) => change::replace(&command, settings, output),
        What::Watch(command) => watch::run(&command, settings, output),
        What::Status(command) => status::run(&command, settings, output),
        What::Check(command) => check::run(&command, settings, output),
        What::Backup(command) => backup::backup(&command, settings, output),
        What::Restore(command) => backup::restore(&command, output),
        What::Cap(command) => cap::run(&command, settings, output),
    }
}
