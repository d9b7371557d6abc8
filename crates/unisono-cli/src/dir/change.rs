//! The commands that change rows. Each is one command of the service: it happens as a whole or not at all.

use super::capability::{parse_capability, split_expected};
use super::session::{At, Session, parse_masks, report, secret, set_too_large};
use crate::output::{Output, quoted};
use crate::problem::Problem;
use crate::settings::Settings;
use clap::Args;
use unisono_dir::{ClientError, Name, Reason, Refusal, Replacement, operation};

/// Create a directory and enter it under a name
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir mkdir home/ann --columns owner,other")]
pub(crate) struct Mkdir {
    /// Path of the new row
    path: String,

    /// Names of the columns, 1 to 4: each is a group of holders with rights of their own
    #[arg(long, value_name = "NAMES", default_value = "owner,group,other")]
    columns: String,

    /// Rights that each column of the parent lets through [default: ff,02,04,08, each column itself]
    #[arg(long, value_name = "MASKS")]
    masks: Option<String>,

    #[command(flatten)]
    pub(crate) at: At,
}

pub(crate) fn mkdir(command: &Mkdir, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let columns: Vec<Name> = command
        .columns
        .split(',')
        .map(|name| name.parse().map_err(|error| Problem::usage(format!("--columns: {error}"))))
        .collect::<Result<_, _>>()?;
    let is_repeated = (1..columns.len()).any(|index| columns[..index].contains(&columns[index]));
    if columns.len() > unisono_dir::COLUMNS_MAX || is_repeated {
        return Err(Problem::usage(
            "a directory has 1 to 4 columns, none twice: --columns owner,group,other",
        ));
    }
    let masks = command.masks.as_deref().map(|text| parse_masks("--masks", text)).transpose()?;
    let session = Session::begin(&command.at, settings)?;
    let place = session.place(&command.path)?;
    if place.path.is_empty() {
        return Err(Problem::usage("name the new directory: unisono dir mkdir PATH"));
    }
    session
        .change("dir mkdir", &operation::create_directory(place, columns, masks, secret()?), output)
        .map(drop)
}

/// Delete an empty directory, and the row that leads to it
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir rmdir home/ann")]
pub(crate) struct Rmdir {
    /// Path of the directory
    path: String,

    #[command(flatten)]
    pub(crate) at: At,
}

pub(crate) fn rmdir(command: &Rmdir, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let session = Session::begin(&command.at, settings)?;
    let place = session.place(&command.path)?;
    session.change("dir rmdir", &operation::delete_directory(place), output).map(drop)
}

/// Add a row with a capability, for any object of any service
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir append home/ann/printer @printer.cap --masks ff,02,02")]
pub(crate) struct Append {
    /// Path of the new row
    path: String,

    /// Its capability: @FILE, or - for a line of standard input. Its digits are taken too, but other users of this machine can
    /// read a command line
    capability: String,

    /// Rights that each column lets through [default: ff,02,04 for a directory, ff,02,02 for anything else]
    #[arg(long, value_name = "MASKS")]
    masks: Option<String>,

    #[command(flatten)]
    pub(crate) at: At,
}

pub(crate) fn append(command: &Append, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let capability = parse_capability(&command.capability)?;
    let masks = command.masks.as_deref().map(|text| parse_masks("--masks", text)).transpose()?;
    let session = Session::begin(&command.at, settings)?;
    let place = session.place(&command.path)?;
    session.change("dir append", &operation::append(place, capability, masks), output).map(drop)
}

/// Replace the rights that each column of a row lets through
#[derive(Args, Debug)]
#[command(after_help = "A column gets only rights that it had or that your columns show of this row.\n\n\
                        Example:\n  unisono dir chmod home/ann ff,02,00   hide it from others")]
pub(crate) struct Chmod {
    /// Path of the row
    path: String,

    /// The masks in hexadecimal, one for each column, such as ff,02,04
    masks: String,

    #[command(flatten)]
    pub(crate) at: At,
}

pub(crate) fn chmod(command: &Chmod, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let masks = parse_masks("MASKS", &command.masks)?;
    let session = Session::begin(&command.at, settings)?;
    let place = session.place(&command.path)?;
    session.change("dir chmod", &operation::chmod(place, masks), output).map(drop)
}

/// Delete a row, but not its object
///
/// The object stays, for those who have its capability. `unisono dir rmdir` and `unisono file rm` delete it too, and
/// `unisono dir check --remove` deletes what no path reaches.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir rm home/ann/printer")]
pub(crate) struct Rm {
    /// Path of the row
    path: String,

    #[command(flatten)]
    pub(crate) at: At,
}

pub(crate) fn rm(command: &Rm, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let session = Session::begin(&command.at, settings)?;
    let place = session.place(&command.path)?;
    session.change("dir rm", &operation::delete_row(place), output).map(drop)
}

/// Replace the capabilities of rows, all of them or none
///
/// With =EXPECTED, only if a lookup of that row returns this capability at present.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir replace home/now @new.cap=@old.cap home/before @old.cap")]
pub(crate) struct Replace {
    /// Pairs of a path and CAPABILITY or CAPABILITY=EXPECTED, each as @FILE or - for a line of standard input
    #[arg(value_name = "PATH CAPABILITY[=EXPECTED]", required = true)]
    pairs: Vec<String>,

    #[command(flatten)]
    pub(crate) at: At,
}

pub(crate) fn replace(command: &Replace, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let (pairs, rest) = command.pairs.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Problem::usage("each path needs a capability: unisono dir replace PATH CAPABILITY …"));
    }
    let mut capabilities = Vec::new();
    for [_, text] in pairs {
        let (capability, expected) = split_expected(text);
        capabilities.push((parse_capability(capability)?, expected.map(parse_capability).transpose()?));
    }
    let session = Session::begin(&command.at, settings)?;
    let rows = pairs.iter().zip(capabilities).map(|([path, _], (capability, expected))| {
        Ok(Replacement { place: session.place(path)?, capability, expected })
    });
    let rows = rows.collect::<Result<Vec<_>, Problem>>()?;
    let operation = operation::replace(rows).ok_or_else(|| set_too_large("replacement"))?;
    match session.run(&operation) {
        Ok(done) => report("dir replace", done.number, output),
        Err(ClientError::Refused(refusal)) => Err(refused(refusal, pairs)),
        Err(error) => Err(error.into()),
    }
}

/// Names the row to which a refusal of a set applies.
fn refused(refusal: Refusal, pairs: &[[String; 2]]) -> Problem {
    let Some([path, _]) = refusal.entry.and_then(|entry| pairs.get(usize::from(entry))) else {
        return ClientError::Refused(refusal).into();
    };
    let advice = match refusal.reason {
        Reason::Differs => format!("; look it up again with `unisono dir lookup {}`", quoted(path)),
        _ => String::new(),
    };
    Problem::failed(format!("{path}: {refusal}{advice}"))
}
