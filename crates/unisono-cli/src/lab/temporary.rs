//! A lab that belongs to one run of a command, and goes with it.

use super::network::{Lab, Plan, TEMPORARY};
use crate::output::tell;
use crate::problem::Problem;
use crate::trial::lot;
use std::fs::File;

/// A lab that goes with the run that needs it.
#[derive(Debug)]
pub(crate) struct Temporary {
    pub(crate) lab: Lab,
    /// Says to others that its owner lives.
    _lock: File,
}

impl Temporary {
    /// Sets one up.
    pub(crate) fn set_up(plan: &Plan) -> Result<Temporary, Problem> {
        // The number of the process tells people whose it is; the lot tells apart two processes in two namespaces.
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
            tell(format_args!("a lab stays behind: {:#}", problem.into_error()));
        }
    }
}
