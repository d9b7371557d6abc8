//! `unisono dir ls` and `lookup`.

use super::session::{At, Reads, Session, set_too_large, status_word};
use crate::output::{Output, visible};
use crate::problem::Problem;
use crate::settings::Settings;
use clap::Args;
use serde_json::json;
use unisono_dir::{Masks, operation};

/// List the rows of a directory, with their capabilities as its open columns show them
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir ls home")]
pub(crate) struct Ls {
    /// Path of the directory [default: that of --cap]
    #[arg(default_value = "")]
    path: String,

    #[command(flatten)]
    reads: Reads,

    #[command(flatten)]
    pub(crate) at: At,
}

pub(crate) fn ls(command: &Ls, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let session = Session::begin(&command.at, settings)?;
    let place = session.place(&command.path)?;
    let listed = session.ask(|client| client.list(&place, command.reads.is_local()))?;
    let width =
        listed.value.rows.iter().map(|row| visible(row.name.as_str()).chars().count()).max().unwrap_or(0);
    for row in &listed.value.rows {
        let (name, masks) = (row.name.as_str(), masks(&row.masks));
        let capability = row.capability.map(|capability| capability.reveal());
        let shown = capability.as_deref().unwrap_or_else(|reason| status_word(reason));
        output.say(format_args!("{:width$}  {}  {shown}", visible(name), masks.join(",")))?;
        let object = json!({"name": name, "capability": capability.as_deref().ok(), "masks": masks});
        output.object(&object)?;
    }
    Ok(())
}

fn masks(masks: &Masks) -> Vec<String> {
    masks.as_slice().iter().map(ToString::to_string).collect()
}

/// Look rows up, all at one instant
///
/// The exit status is 1 if one of them is not found or not shown by an open column.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir lookup home/ann home/bob")]
pub(crate) struct Lookup {
    /// Paths of the rows
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<String>,

    #[command(flatten)]
    reads: Reads,

    #[command(flatten)]
    pub(crate) at: At,
}

pub(crate) fn lookup(command: &Lookup, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let session = Session::begin(&command.at, settings)?;
    let places = command.paths.iter().map(|path| session.place(path)).collect::<Result<Vec<_>, _>>()?;
    let operation = operation::lookup(places).ok_or_else(|| set_too_large("lookup"))?;
    let looked = session.run(&command.reads.of(operation))?;
    let mut missing = 0;
    for (path, found) in command.paths.iter().zip(&looked.value) {
        let (status, capability) = match found {
            Ok(found) => ("ok", Some(found.capability.reveal())),
            Err(reason) => (status_word(reason), None),
        };
        missing += usize::from(found.is_err());
        output.say(format_args!("{}  {}", visible(path), capability.as_deref().unwrap_or(status)))?;
        output.object(
            &json!({"name": path, "status": status, "capability": capability, "seqno": looked.number}),
        )?;
    }
    match missing {
        0 => Ok(()),
        _ => Err(Problem::failed(format!("{missing} of {} rows: not found, or denied", command.paths.len()))),
    }
}
