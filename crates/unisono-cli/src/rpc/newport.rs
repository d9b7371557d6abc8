//! `unisono rpc newport`: makes a port that only its owner can serve.

use crate::arguments::Common;
use crate::output::Output;
use crate::problem::Problem;
use clap::Args;
use unisono::rpc::PrivatePort;

/// Print a new private port for servers, and its public port for clients
///
/// Keep the private port where only the server can read it. A port hashed from a name gives no protection: every
/// process that knows the name can serve it.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono rpc newport\n\n\
                        Then type `unisono rpc serve PRIVATE --exec CMD` on one side and `unisono rpc call PUBLIC` on the other.")]
pub(crate) struct Newport {
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(output: &Output) -> Result<(), Problem> {
    let private = PrivatePort::random()?;
    let (public, secret) = (private.public().to_string(), private.reveal());
    output.say(format_args!("private  {}   to serve; keep it secret", *secret))?;
    output.say(format_args!("public   {public}   to call"))?;
    output.object(&serde_json::json!({"private": *secret, "public": public}))?;
    Ok(())
}
