//! `unisono dir check`: objects that no path reaches.

use super::session::{At, Session, object_digits};
use crate::output::{Output, several};
use crate::problem::Problem;
use crate::settings::Settings;
use clap::Args;
use serde_json::json;
use unisono_dir::{ObjectNumber, operation};

/// List the objects that no path from the root reaches
///
/// Their creators may still have a capability for them. It takes the root's capability, with all rights.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir check --remove")]
pub(crate) struct Check {
    /// Delete them
    #[arg(long)]
    remove: bool,

    #[command(flatten)]
    pub(crate) at: At,
}

pub(crate) fn run(command: &Check, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let session = Session::begin(&command.at, settings)?;
    let (mut after, mut count, mut first_number) = (ObjectNumber(0), 0, None);
    loop {
        let found = session.run(&operation::unreachable(session.at, after))?;
        first_number.get_or_insert(found.number);
        for object in &found.value.objects {
            let digits = object_digits(object.object);
            let kind = if object.size.is_some() { "file" } else { "directory" };
            output.say(format_args!("{digits}  {kind}, created by command {}", object.created))?;
            output.object(
                &json!({"object": digits, "kind": kind, "size": object.size, "created": object.created}),
            )?;
        }
        count += found.value.objects.len() as u64;
        match found.value.objects.last() {
            Some(last) if found.value.more => after = last.object,
            _ => break,
        }
    }
    if !command.remove {
        output.say(format_args!("{}", several(count, "object")))?;
        output.object(&json!({"command": "dir check", "unreachable": count}))?;
        return Ok(());
    }
    // Objects that were created since may be about to get a name.
    let remove = operation::delete_unreachable(session.at, first_number.unwrap_or(0));
    let removed = session.run(&remove)?;
    let (directories, files) = (removed.value.directories, removed.value.files);
    output.say(format_args!(
        "deleted {directories} directories and {files} files, command {}",
        removed.number
    ))?;
    output.object(&json!({
        "command": "dir check", "seqno": removed.number, "unreachable": count, "directories": directories, "files": files
    }))?;
    Ok(())
}
