//! `unisono rpc newport`: a port that only its owner can serve.

use crate::arguments::Common;
use crate::output::Output;
use crate::problem::Problem;
use clap::Args;
use unisono::rpc::PrivatePort;

/// Print a new private port, to serve, and its public one, to call
///
/// Keep the private one where only the server reads it. A port hashed from a name protects nobody: whoever knows the
/// name can serve it.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono rpc newport\n\n\
                        Then `unisono rpc serve PRIVATE` on one side and `unisono rpc call PUBLIC` on the other.")]
pub(crate) struct Newport {
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(output: &Output) -> Result<(), Problem> {
    let private = PrivatePort::random()?;
    let (public, secret) = (private.public().to_string(), private.reveal());
    output.say(format_args!("private  {}   to serve; tell nobody", *secret))?;
    output.say(format_args!("public   {public}   to call"))?;
    output.object(&serde_json::json!({"private": *secret, "public": public}))?;
    Ok(())
}
