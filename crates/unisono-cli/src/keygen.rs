//! `unisono keygen`: a key that only its owner can read.

use crate::arguments::Common;
use crate::output::Output;
use crate::problem::Problem;
use clap::Args;
use std::path::PathBuf;
use unisono::Key;

/// Write a new group key that only its owner can read
///
/// Everyone with the key is trusted: copy it to each member by a way you trust, such as scp.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono keygen group.key\n  unisono listen news --key group.key")]
pub(crate) struct Keygen {
    /// Where to write it; a file that is there is never overwritten
    file: PathBuf,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Keygen, output: &Output) -> Result<(), Problem> {
    Key::generate()?.write_new(&command.file)?;
    let file = command.file.display().to_string();
    output.say(format_args!("{file}: a new key; copy it to every member, and to nobody else"))?;
    output.object(&serde_json::json!({"command": "keygen", "file": file}))?;
    Ok(())
}
