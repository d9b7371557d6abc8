//! A lab that belongs to one run of a command and is removed at its end.

use super::network::{Lab, Plan, TEMPORARY};
use crate::output::tell;
use crate::problem::Problem;
use crate::trial::lot;
use std::fs::File;

/// A lab that is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Temporary {
    pub(crate) lab: Lab,
    /// Held to show other processes that the owner is alive.
    _lock: File,
}

impl Temporary {
    /// Sets up a temporary lab.
    pub(crate) fn set_up(plan: &Plan) -> Result<Temporary, Problem> {
        // The process number identifies the owner for people. The random number avoids a clash of two processes that
        // have the same number in different process namespaces.
        let name = format!("{TEMPORARY}{}-{:04x}", std::process::id(), lot(1 << 16)?);
        let lab = Lab::new(name, plan);
        let (standing, lock) = lab.set_up()?;
        drop(standing);
        Ok(Temporary { lab, _lock: lock })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(problem) = self.lab.remove() {
            tell(format_args!("cannot remove a lab: {:#}", problem.into_error()));
        }
    }
}
