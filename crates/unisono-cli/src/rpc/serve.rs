//! `unisono rpc serve`: serves a port by a shell command.

use super::Serving;
use super::execute::Commands;
use crate::arguments::{self, Common};
use crate::connection;
use crate::output::{self, Output, tell, visible};
use crate::problem::Problem;
use crate::seeds;
use crate::settings::Settings;
use crate::signals;
use crate::units;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use unisono::rpc::{ServeOptions, Server};

/// Time to answer accepted requests after a signal: 5 s.
const FAREWELL: Duration = Duration::from_secs(5);

/// Serve a port by a shell command, which runs once for each request
///
/// The command reads the request from standard input and writes the reply to standard output. If it ends with a status
/// other than 0, the request is refused, for the reason that it writes to standard error.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  unisono rpc serve upper --exec 'tr a-z A-Z'\n  unisono rpc serve disk --exec 'df -h'\n  unisono rpc serve --port-file clock.port --exec date\n\n\
                  Ends on ctrl-c, after answering the requests that it has accepted."
)]
pub(crate) struct Serve {
    #[command(flatten)]
    serving: Serving,

    /// Command that `sh -c` runs for each request
    #[arg(long, value_name = "CMD", value_parser = NonEmptyStringValueParser::new())]
    exec: String,

    /// Maximum number of requests that run at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = arguments::within::<u16>(1..=1024))]
    concurrency: u16,

    /// How long the command may take, such as 500ms or 2m, or a number of seconds. After that it is killed with all
    /// processes that it started, and the request is refused
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::seconds)]
    exec_timeout: Duration,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Serve, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let served = command.serving.served()?;
    let options = connection::options(settings, None)?;
    connection::tell_of_no_address(&options);
    seeds::warn_of_unresolved(&options.seeds);
    seeds::tell_of_wait(&options);
    let server = Server::new(&served.port, ServeOptions::default(), &options)?;
    connection::warn_of_no_key(&options);
    let commands = Arc::new(Commands::new(command.exec, command.exec_timeout));
    let (ending, unfinished) = (server.clone(), commands.clone());
    signals::on_interrupt(move |_| {
        if let Err(trouble) = ending.drain(FAREWELL) {
            tell(trouble);
            unfinished.kill_all();
            output::exit(1);
        }
    })?;
    announce(&server, &served.name, output);
    server.serve(command.concurrency.into(), |request| commands.answer(request.payload()));
    // Wait until the last replies have arrived.
    server.drain(FAREWELL).map_err(Problem::failed)
}

/// Announces that the service is ready.
pub(super) fn announce(server: &Server, name: &str, output: &Output) {
    let (port, address) = (server.port().to_string(), server.address().to_string());
    output.announce(
        format_args!("serving {}, port {port}, at {address}", visible(name)),
        &json!({"event": "serving", "name": name, "port": port, "address": address}),
    );
}
