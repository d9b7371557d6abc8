//! Looking at a group without being a member.

use crate::error::LookError;
use crate::options::Options;
use std::time::Duration;
use unisono_core::look::Report;

/// Asks any member of the group of this name how it stands, for at most `timeout`. The first answer counts.
pub fn look(_name: &str, _options: &Options, _timeout: Duration) -> Result<Report, LookError> {
    unimplemented!()
}
