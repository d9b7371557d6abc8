//! `unisono dir cluster`: all servers of a directory service in one process, for trying it out.

use super::attendant::{Attendant, Place};
use super::serve;
use crate::arguments::{Common, within};
use crate::connection;
use crate::output::{self, Output, quoted};
use crate::problem::Problem;
use crate::settings::Settings;
use crate::signals;
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use unisono_dir::{
    DiskDurability, DiskOptions, Limits, ROOT_FILE, ReplicaEnd, Server, ServerEnd, ServerOptions,
};

/// Run all servers of a directory service on this machine, to try it out
///
/// Server N keeps its state in DIR/N. They share one process: for a service that survives crashes, run `unisono dir serve`
/// on several machines.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir cluster --data /tmp/dir")]
pub(crate) struct Cluster {
    /// Folder in which the servers keep their folders
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Number of servers, 1 to 9
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = within(1..=9u8))]
    replicas: u8,

    /// Name of the service
    #[arg(long, value_name = "NAME", default_value = serve::SERVICE)]
    service: String,

    #[command(flatten)]
    pub(crate) common: Common,
}

impl Cluster {
    fn data_of(&self, id: u8) -> PathBuf {
        self.data.join(id.to_string())
    }
}

pub(crate) fn run(command: &Cluster, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let servers_options = connection::options(settings, None)?;
    connection::warn_of_no_key(&servers_options);
    let mut servers = Vec::new();
    for id in 1..=command.replicas {
        let options = ServerOptions {
            service: command.service.clone(),
            disk: DiskOptions {
                id,
                servers: command.replicas,
                data: command.data_of(id),
                log_dir: None,
                durability: DiskDurability::default(),
                replace: false,
                begin_anew: false,
                existing: false,
            },
            servers: servers_options.clone(),
            client_key: None,
            limits: Limits::default(),
        };
        servers.push(Arc::new(serve::begin(options)?));
    }
    let interrupted = servers.clone();
    signals::on_interrupt(move |_| {
        end(&interrupted);
        output::exit(0);
    })?;
    let status = serve::status_command(&command.service, settings.key.as_deref());
    let sealed = settings.key.is_some();
    for (server, id) in servers.iter().zip(1..) {
        let place = Place { service: &command.service, data: &command.data_of(id), status: &status };
        let attendant = Attendant::begin(server, place, sealed, *output)?;
        server.wait_until_serving().map_err(serve::ended)?;
        attendant.introduce()?;
    }
    let root = quoted(&command.data_of(1).join(ROOT_FILE).display().to_string());
    output.announce_words(format_args!(
        "type in another terminal: export UNISONO_CAP={root}; unisono dir mkdir home; unisono dir ls"
    ));
    // The first that ends by itself ends all.
    let ended = wait_for_one(&servers);
    end(&servers);
    match ended {
        // A signal ends them.
        ServerEnd::Replica(ReplicaEnd::Closed) => Ok(()),
        ended => Err(serve::ended(ended)),
    }
}

fn wait_for_one(servers: &[Arc<Server>]) -> ServerEnd {
    let (sender, ends) = std::sync::mpsc::channel();
    for server in servers {
        let (server, sender) = (server.clone(), sender.clone());
        thread::spawn(move || drop(sender.send(server.wait())));
    }
    drop(sender);
    ends.recv().unwrap_or(ServerEnd::Replica(ReplicaEnd::Closed))
}

/// Ends all servers at the same time.
fn end(servers: &[Arc<Server>]) {
    thread::scope(|scope| {
        for server in servers {
            scope.spawn(|| server.end(serve::FAREWELL));
        }
    });
}
