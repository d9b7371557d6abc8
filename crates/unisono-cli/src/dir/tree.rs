//! `unisono dir tree`: all that a directory leads to.

use super::session::{At, Reads, Session};
use crate::output::{Output, visible};
use crate::problem::Problem;
use crate::settings::Settings;
use clap::Args;
use serde_json::json;
use std::collections::BTreeSet;
use unisono_dir::{
    Capability, ClientError, Looked, Name, ObjectNumber, Path, Place, Reason, SET_ROWS_MAX, operation,
};

/// Show all that a directory leads to
///
/// Each directory is read at an instant of its own. A directory that was shown before is named and not shown again, so a
/// cycle ends.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir tree home")]
pub(crate) struct Tree {
    /// Path of the directory [default: that of --cap]
    #[arg(default_value = "")]
    path: String,

    #[command(flatten)]
    reads: Reads,

    #[command(flatten)]
    pub(crate) at: At,
}

pub(crate) fn run(command: &Tree, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let session = Session::begin(&command.at, settings)?;
    let place = session.place(&command.path)?;
    let mut walk = Walk { session: &session, reads: &command.reads, output, shown: BTreeSet::new() };
    walk.show(&place, &place.path, 0)
}

/// A row, and what a lookup of it returns.
type Found = (Name, Result<Looked, Reason>);

struct Walk<'a> {
    session: &'a Session,
    reads: &'a Reads,
    output: &'a Output,
    shown: BTreeSet<ObjectNumber>,
}

impl Walk<'_> {
    /// Prints what is below a directory, under this path.
    fn show(&mut self, place: &Place, path: &Path, depth: usize) -> Result<(), Problem> {
        for (name, found) in self.rows(place)? {
            let path = match path.join(&name) {
                Ok(path) => path,
                Err(error) => {
                    self.output.say(format_args!("{}…  {error}", "  ".repeat(depth)))?;
                    continue;
                }
            };
            let is_new =
                found.is_ok_and(|found| !found.is_directory || self.shown.insert(found.capability.object));
            self.print(&path, &name, depth, found, is_new)?;
            if let Ok(Looked { capability, is_directory: true }) = found
                && is_new
            {
                self.show(&Place { capability, path: Path::default() }, &path, depth + 1)?;
            }
        }
        Ok(())
    }

    fn print(
        &self,
        path: &Path,
        name: &Name,
        depth: usize,
        found: Result<Looked, Reason>,
        is_new: bool,
    ) -> Result<(), Problem> {
        let kind = match found {
            Ok(found) if found.is_directory => "directory",
            Ok(_) => "object",
            Err(Reason::Denied) => "denied",
            Err(_) => "not-found",
        };
        let ending = match (kind, is_new) {
            ("directory", true) => "/",
            ("directory", false) => "/  (see above)",
            ("object", _) => "",
            _ => "  (not shown to this capability)",
        };
        self.output.say(format_args!("{}{}{ending}", "  ".repeat(depth), visible(name.as_str())))?;
        let object =
            json!({"path": path.to_string(), "kind": kind, "seen_before": kind == "directory" && !is_new});
        Ok(self.output.object(&object)?)
    }

    /// Returns the rows of a directory, with what is there. A directory that is gone meanwhile has none.
    fn rows(&self, place: &Place) -> Result<Vec<Found>, Problem> {
        let listed = match self.session.ask(|client| client.list(place, self.reads.is_local())) {
            Err(ClientError::Refused(refusal)) if !self.shown.is_empty() => {
                let is_gone =
                    matches!(refusal.reason, Reason::NotFound | Reason::Denied | Reason::NotADirectory);
                return if is_gone { Ok(Vec::new()) } else { Err(ClientError::Refused(refusal).into()) };
            }
            listed => listed?,
        };
        let names: Vec<Name> = listed.value.rows.into_iter().map(|row| row.name).collect();
        let directory = match self.directory(place)? {
            Ok(directory) => directory,
            // It is gone since, or the server that answered is behind.
            Err(reason) => return Ok(names.into_iter().map(|name| (name, Err(reason))).collect()),
        };
        let mut rows = Vec::new();
        for some in names.chunks(SET_ROWS_MAX) {
            let place = |name: &Name| Place { capability: directory, path: name.clone().into() };
            let looked = self.look_up(some.iter().map(place).collect())?;
            rows.extend(some.iter().cloned().zip(looked));
        }
        Ok(rows)
    }

    /// Returns the capability of a directory, with which a lookup of its rows walks no more than one name for each.
    fn directory(&self, place: &Place) -> Result<Result<Capability, Reason>, Problem> {
        if place.path.is_empty() {
            return Ok(Ok(place.capability));
        }
        let looked = self.look_up(vec![place.clone()])?.pop();
        Ok(looked.unwrap_or(Err(Reason::NotFound)).map(|found| found.capability))
    }

    fn look_up(&self, places: Vec<Place>) -> Result<Vec<Result<Looked, Reason>>, Problem> {
        let Some(lookup) = operation::lookup(places) else { return Ok(Vec::new()) };
        Ok(self.session.run(&self.reads.of(lookup))?.value)
    }
}
