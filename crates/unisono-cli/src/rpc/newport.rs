//! `unisono rpc newport`: makes a port that only its owner can serve.

use crate::arguments::Common;
use crate::output::Output;
use crate::problem::Problem;
use crate::{keygen, signals};
use clap::Args;
use std::path::PathBuf;
use unisono::rpc::PrivatePort;

/// Print a new private port for servers, and its public port for clients
///
/// Keep the private port where only the server can read it: --out writes it to such a file and prints the public port
/// alone. A port hashed from a name gives no protection: every process that knows the name can serve it.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono rpc newport --out clock.port\n\n\
                        Then type `unisono rpc serve --port-file clock.port --exec CMD` on one side and `unisono rpc call PUBLIC` on the other.")]
pub(crate) struct Newport {
    /// Write the private port to a new file that only its owner can read
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: &Newport, output: &Output) -> Result<(), Problem> {
    signals::leave_no_core();
    let private = PrivatePort::random()?;
    let public = private.public().to_string();
    if let Some(path) = &command.out {
        private.write_new(path).map_err(keygen::advise)?;
        output.say(format_args!("public   {public}   to call"))?;
        output.object(&serde_json::json!({"public": public}))?;
        return Ok(());
    }
    let secret = private.reveal();
    output.say(format_args!("private  {}   to serve; keep it secret", *secret))?;
    output.say(format_args!("public   {public}   to call"))?;
    output.object(&serde_json::json!({"private": *secret, "public": public}))?;
    Ok(())
}
