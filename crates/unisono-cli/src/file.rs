//! `unisono file`: immutable files of a directory service.

use crate::arguments::Common;
use crate::dir::{At, Reads, Session, object_digits, target};
use crate::output::{Output, hex};
use crate::problem::Problem;
use crate::settings::Settings;
use crate::signals;
use clap::{Args, Subcommand};
use serde_json::json;
use std::fs::File as Opened;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use unisono_dir::{ClientError, FILE_BYTES_MAX, ObjectNumber, Reason, operation};

/// A file of no more bytes is sent without a question before.
const SMALL_FILE_BYTES_MAX: u64 = 1 << 16;

/// Store and read immutable files of a directory service
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono file put letter.txt --as home/ann/letter\n  \
                  unisono file get home/ann/letter")]
pub(crate) struct File {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Put(Put),
    Get(Get),
    Size(Size),
    Rm(Rm),
    Ls(Ls),
}

/// Create a file, and print its capability
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono file put letter.txt --as home/ann/letter")]
struct Put {
    /// The content, almost 16 MiB at most [default: standard input]
    file: Option<PathBuf>,

    /// Enter it under this path, in the same command
    #[arg(long = "as", value_name = "PATH")]
    path: Option<String>,

    #[command(flatten)]
    at: At,
}

/// Print the content of a file
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono file get home/ann/letter")]
struct Get {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    reads: Reads,
}

/// Print the length of a file in bytes
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono file size home/ann/letter")]
struct Size {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    reads: Reads,
}

/// Delete a file, and with a path the row that leads to it
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono file rm home/ann/letter")]
struct Rm {
    #[command(flatten)]
    which: Which,
}

/// List all files of the service; it takes the root's capability, with all rights
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono file ls")]
struct Ls {
    #[command(flatten)]
    at: At,
}

/// Which file.
#[derive(Args, Debug)]
struct Which {
    /// Its capability, as @FILE or - for a line of standard input, or its path; ./ begins a path that would be another thing
    #[arg(value_name = "CAPABILITY|PATH")]
    target: String,

    #[command(flatten)]
    at: At,
}

impl File {
    /// Returns the common flags.
    pub(crate) fn common(&self) -> &Common {
        match &self.what {
            What::Put(command) => &command.at.common,
            What::Get(command) => &command.which.at.common,
            What::Size(command) => &command.which.at.common,
            What::Rm(command) => &command.which.at.common,
            What::Ls(command) => &command.at.common,
        }
    }
}

pub(crate) fn run(command: &File, settings: &Settings, output: &Output) -> Result<(), Problem> {
    signals::leave_no_core();
    match &command.what {
        What::Put(command) => put(command, settings, output),
        What::Get(command) => get(command, settings, output),
        What::Size(command) => size(command, settings, output),
        What::Rm(command) => rm(command, settings, output),
        What::Ls(command) => ls(command, settings, output),
    }
}

impl Which {
    fn begin(&self, settings: &Settings) -> Result<(Session, unisono_dir::Place), Problem> {
        let place = target(&self.target, &self.at)?;
        Ok((Session::of(place.capability, settings)?, place))
    }
}

fn put(command: &Put, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let session = Session::begin(&command.at, settings)?;
    let place = session.place(command.path.as_deref().unwrap_or(""))?;
    if command.path.is_some() && place.path.is_empty() {
        return Err(Problem::usage("--as takes the path of a row"));
    }
    if may_be_long(command.file.as_ref()) {
        check_capability(&session)?;
    }
    let content = read(command.file.as_ref())?;
    let secret = unisono_dir::random_check()?;
    let created = session.run(&operation::create_file(place, content.into(), None, secret))?;
    let capability = created.value.reveal();
    output.say(&capability)?;
    output.object(&json!({"command": "file put", "seqno": created.number, "capability": capability}))?;
    Ok(())
}

/// True if reading the content takes long enough to ask first whether it is wanted: standard input, or a large file.
fn may_be_long(file: Option<&PathBuf>) -> bool {
    let bytes = file.and_then(|path| path.metadata().ok()).map(|data| data.len());
    bytes.is_none_or(|bytes| bytes > SMALL_FILE_BYTES_MAX)
}

/// Fails if the capability of the session is no good: then the content need not be read. Whether it has the right is seen by the
/// server that gets the file, from its first bytes.
fn check_capability(session: &Session) -> Result<(), Problem> {
    let Some(look) = operation::lookup(vec![session.place("")?]) else { return Ok(()) };
    let looked = session.run(&look)?.value;
    let refusal = looked.into_iter().find_map(Result::err).filter(|reason| *reason == Reason::NotFound);
    refusal.map_or(Ok(()), |reason| Err(ClientError::Refused(reason.into()).into()))
}

/// Reads the content of a file. Refuses one that is too long without reading all of it.
fn read(file: Option<&PathBuf>) -> Result<Vec<u8>, Problem> {
    let mut content = Vec::new();
    let most = FILE_BYTES_MAX as u64 + 1;
    let read = match file {
        Some(path) => {
            let failed = |error| Problem::usage(format!("cannot read {}: {error}", path.display()));
            Opened::open(path).and_then(|file| file.take(most).read_to_end(&mut content)).map_err(failed)
        }
        None => io::stdin().lock().take(most).read_to_end(&mut content).map_err(Problem::from),
    }?;
    match read > FILE_BYTES_MAX {
        true => Err(Problem::usage(format!(
            "a file has at most {FILE_BYTES_MAX} bytes (16 MiB less 16 KiB), and this one has more: split it"
        ))),
        false => Ok(content),
    }
}

fn get(command: &Get, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let (session, place) = command.which.begin(settings)?;
    let content = session.ask(|client| client.read_file(&place, command.reads.is_local()))?;
    if !output.json() {
        let mut out = io::stdout().lock();
        out.write_all(&content)?;
        if io::stdout().is_terminal() && !content.ends_with(b"\n") {
            writeln!(out)?;
        }
        return Ok(out.flush()?);
    }
    let mut object = json!({"command": "file get", "bytes": content.len()});
    match std::str::from_utf8(&content) {
        Ok(text) => object["text"] = text.into(),
        Err(_) => object["hex"] = hex(&content).into(),
    }
    Ok(output.object(&object)?)
}

fn size(command: &Size, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let (session, place) = command.which.begin(settings)?;
    let size = session.run(&command.reads.of(operation::size(place)))?;
    output.say(size.value)?;
    output.object(&json!({"command": "file size", "bytes": size.value, "seqno": size.number}))?;
    Ok(())
}

fn rm(command: &Rm, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let (session, place) = command.which.begin(settings)?;
    session.change("file rm", &operation::delete_file(place), output).map(drop)
}

fn ls(command: &Ls, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let session = Session::begin(&command.at, settings)?;
    let mut after = ObjectNumber(0);
    loop {
        let listed = session.run(&operation::files(session.at, after))?.value;
        for file in &listed.objects {
            let (digits, bytes) = (object_digits(file.object), file.size.unwrap_or(0));
            output.say(format_args!("{digits}  {bytes} bytes, created by command {}", file.created))?;
            output.object(&json!({"object": digits, "bytes": bytes, "created": file.created}))?;
        }
        match listed.objects.last() {
            Some(last) if listed.more => after = last.object,
            _ => return Ok(()),
        }
    }
}
