//! `unisono dir serve`: one server of a directory service.

use super::attendant::{Attendant, Place};
use crate::arguments::Common;
use crate::connection;
use crate::output::{self, Output, quoted, visible};
use crate::problem::Problem;
use crate::progress;
use crate::rpc::durability;
use crate::settings::Settings;
use crate::signals;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use unisono_dir::{
    DiskDurability, DiskError, DiskOptions, Limits, ReplicaEnd, ReplicaError, Server, ServerEnd,
    ServerOptions, StartError, StopReason,
};

/// Name of a service that has no other one.
pub(crate) const SERVICE: &str = "directory";
/// Time to answer accepted requests after a signal: 3 s.
pub(crate) const FAREWELL: Duration = Duration::from_secs(3);
/// A start that takes less than this, 2 s, prints no progress.
const SHORT_START: Duration = Duration::from_secs(2);

/// Run one server of a directory service
///
/// All servers create the service together; afterwards any majority of them goes on, whatever crashes. The first start
/// writes the root's capability to DIR/root.cap, which only the owner can read. After a crash, start the server as before.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  unisono dir serve --id 1 --data /var/lib/unisono --key servers.key --client-key clients.key\n  \
                        unisono dir serve --id 2 --data /mnt/new --replace       the disk of server 2 is lost\n  \
                        unisono dir serve --id 1 --data /var/lib/unisono --begin-anew   the disks of a majority are lost for ever"
)]
pub(crate) struct Serve {
    /// Id of this server, from 1 to the number of servers
    #[arg(long, value_name = "ID")]
    id: u8,

    /// Number of servers, 1 to 9, fixed when they create the service: a majority of them serves
    #[arg(long, value_name = "N", default_value_t = 3)]
    replicas: u8,

    /// Folder in which this server keeps its state
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Name of the service
    #[arg(long, value_name = "NAME", default_value = SERVICE)]
    service: String,

    /// Folder for the log, if it is to lie on another device
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,

    /// How many disks have a change before it is answered: majority or one; fixed when the service is created
    #[arg(long, value_name = "DISKS", default_value = "majority", value_parser = durability)]
    durability: DiskDurability,

    /// File with the key of clients; --key is then the key of the servers alone. Clients reach this server at the UDP port
    /// after that of --bind, if it names one
    #[arg(long, value_name = "FILE", env = "UNISONO_CLIENT_KEY")]
    client_key: Option<PathBuf>,

    /// Let this empty folder take the place of the one that this server had
    #[arg(long, conflicts_with = "begin_anew")]
    replace: bool,

    /// Give up the disks of all other servers for ever and go on from this one, once enough others were started with
    /// empty folders and --replace to make a majority. Answers that only the other disks had are lost. Leave it out of
    /// later starts
    #[arg(long)]
    begin_anew: bool,

    /// Refuse an empty folder: after the first start it is a disk that is not mounted, or the wrong folder. For service
    /// files, once the service is created
    #[arg(long, conflicts_with = "replace")]
    existing: bool,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: &Serve, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let options = ServerOptions {
        service: command.service.clone(),
        disk: DiskOptions {
            id: command.id,
            servers: command.replicas,
            data: command.data.clone(),
            log_dir: command.log_dir.clone(),
            durability: command.durability,
            replace: command.replace,
            begin_anew: command.begin_anew,
            existing: command.existing,
        },
        servers: connection::options(settings, None)?,
        client_key: command.client_key.as_deref().map(connection::load_key).transpose()?,
        limits: Limits::default(),
    };
    connection::warn_of_no_key(&options.servers);
    connection::tell_of_no_address(&options.servers);
    let (sealed, servers) = (options.servers.key.is_some(), options.servers.clone());
    let server = Arc::new(begin(options)?);
    let interrupted = server.clone();
    signals::on_interrupt(move |_| {
        interrupted.end(FAREWELL);
        output::exit(0);
    })?;
    let clients_key = command.client_key.as_ref().or(settings.key.as_ref());
    let status = status_command(&command.service, clients_key.map(PathBuf::as_path));
    let place = Place { service: &command.service, data: &command.data, status: &status };
    let attendant = Attendant::begin(&server, place, sealed, *output)?;
    let server_words = format!("server {} of {}", command.id, visible(&command.service));
    let (at, shows) = (connection::whereabouts(&servers), status.clone());
    let words =
        move || format!("{server_words}, {}, waits for other servers …; `{shows}` says for which", at());
    let waiting = progress::tell_if_long(SHORT_START, words);
    server.wait_until_serving().map_err(ended)?;
    drop(waiting);
    attendant.introduce()?;
    match server.wait() {
        ServerEnd::Replica(ReplicaEnd::Closed) => Ok(()),
        end => Err(ended(end)),
    }
}

/// Returns the command that shows the status of a service to its clients, who have this key.
pub(crate) fn status_command(service: &str, key: Option<&Path>) -> String {
    let mut words = vec!["unisono dir status".to_owned()];
    if service != SERVICE {
        words.push(format!("--service {}", quoted(service)));
    }
    if let Some(key) = key {
        words.push(format!("--key {}", quoted(&key.display().to_string())));
    }
    visible(&words.join(" ")).into_owned()
}

/// Starts a server.
pub(crate) fn begin(options: ServerOptions) -> Result<Server, Problem> {
    let replicas = options.disk.servers;
    if !(1..=options.disk.servers).contains(&options.disk.id) && (1..=9).contains(&replicas) {
        let id = options.disk.id;
        return Err(Problem::usage(format!(
            "there is no server {id}: with --replicas {replicas} the ids are 1 to {replicas}"
        )));
    }
    Server::begin(options).map_err(|error| match error {
        StartError::Replica(ReplicaError::Disk(DiskError::OtherServers { folder, found })) => {
            Problem::usage(format!(
                "the folder {} is of a service with {found} servers: start it with --replicas {found}",
                folder.display()
            ))
        }
        StartError::Replica(error) => error.into(),
        StartError::Restore(error) => error.into(),
        StartError::Service(error) => error.into(),
        StartError::SameKey => Problem::usage(error),
        error => Problem::failed(error),
    })
}

/// Returns the problem of a server that ended by itself.
pub(crate) fn ended(end: ServerEnd) -> Problem {
    match &end {
        ServerEnd::Replica(ReplicaEnd::Stopped(
            StopReason::OtherServers
            | StopReason::OtherDurability
            | StopReason::NothingLost
            | StopReason::RunsAlready { .. }
            | StopReason::ReplaceNeeded
            | StopReason::DiskGivenUp
            | StopReason::DiskOfOther,
        ))
        | ServerEnd::BeforeIsThere => Problem::usage(end),
        _ => Problem::failed(end),
    }
}
