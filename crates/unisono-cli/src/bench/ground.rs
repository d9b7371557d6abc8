//! The ground that is measured on: this machine's loopback, or a lab with a host for each member.
//!
//! A group and the floor beside it stand on the same ground.

use super::placement::Placement;
use crate::lab::network::{HOSTS_MAX, Host, Plan};
use crate::lab::quality::{Loss, Rate};
use crate::lab::temporary::Temporary;
use crate::location::Location;
use crate::problem::Problem;
use crate::settings::Settings;
use crate::trial::lot;
use clap::Args;
use serde_json::{Value, json};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use unisono::Key;

/// Where a temporary key has a name for a moment: in memory, and root's.
const KEYS: &str = "/run";

/// What the user chooses of it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Choice {
    /// Each member on a host of its own, all of them on one bridge, sealed with a temporary key (Linux, root)
    #[arg(long)]
    lab: bool,

    /// With --lab: the hosts share one segment of this speed, as on a hub: 10mbit, 512kbit
    #[arg(long, value_name = "RATE", requires = "lab")]
    pub(crate) rate: Option<Rate>,

    /// With --lab: each host loses this part of what it receives, at random: 1%
    #[arg(long, value_name = "PERCENT", requires = "lab")]
    loss: Option<Loss>,

    /// Leave the key out: what the group costs without sealing
    #[arg(long)]
    unsealed: bool,
}

impl Choice {
    /// The summary, with what of this belongs into it.
    pub(crate) fn tell(&self, mut summary: Value) -> Value {
        summary["lab"] = self.lab.into();
        if self.lab {
            summary["rate"] = json!(self.rate.map(|rate| rate.to_string()));
            summary["loss"] = json!(self.loss.map(|loss| loss.to_string()));
        }
        summary
    }

    /// The same for people; begins with a comma, or is empty.
    pub(crate) fn words(&self) -> String {
        let rate = self.rate.map(|rate| format!(", one segment of {rate}"));
        let loss = self.loss.map(|loss| format!(", {loss} lost"));
        let lab = if self.lab { ", lab" } else { "" };
        format!("{lab}{}{}", rate.unwrap_or_default(), loss.unwrap_or_default())
    }
}

/// The ground, while a measurement stands on it.
#[derive(Debug)]
pub(crate) struct Ground {
    /// What the members are to go by.
    pub(crate) settings: Settings,
    lab: Option<Temporary>,
    /// A key without a name in the file system; members read it through this process.
    _key: Option<File>,
}

impl Ground {
    /// Prepares it for so many processes on each side. Whether hosts say that a port is closed, where a process
    /// died: `silent` hosts do not.
    pub(crate) fn prepare(
        choice: &Choice,
        processes: usize,
        silent: bool,
        settings: &Settings,
    ) -> Result<Ground, Problem> {
        let mut settings = settings.clone();
        if choice.unsealed {
            settings.key = None;
        }
        if !choice.lab {
            return Ok(Ground { settings, lab: None, _key: None });
        }
        if settings.bind.is_some() || !settings.seeds.is_empty() {
            return Err(Problem::usage("--bind and --seeds have no meaning with --lab: its hosts are new"));
        }
        let hosts = u16::try_from(processes).ok().filter(|hosts| *hosts <= HOSTS_MAX).ok_or_else(|| {
            Problem::usage(format!("a lab has at most {HOSTS_MAX} hosts, and this takes {processes}"))
        })?;
        let mut key = None;
        match (choice.unsealed, &settings.key) {
            (true, _) => settings.insecure = true,
            (false, Some(_)) => {}
            (false, None) => {
                let file = temporary_key()?;
                settings.key = Some(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into());
                key = Some(file);
            }
        }
        let plan = Plan { hosts, rate: choice.rate, loss: choice.loss, silent };
        Ok(Ground { settings, lab: Some(Temporary::set_up(&plan)?), _key: key })
    }

    /// Where so many processes run.
    pub(crate) fn locations(&self, placement: Placement, processes: usize) -> Vec<Location> {
        let here = placement.of(processes).into_iter().map(Location::here);
        match &self.lab {
            None => here.collect(),
            Some(temporary) => here
                .zip(temporary.lab.hosts())
                .map(|(here, host)| Location {
                    namespace: Some(host.path()),
                    address: Host::address(host.number),
                    ..here
                })
                .collect(),
        }
    }

    /// Whether what is sent is sealed.
    pub(crate) fn is_sealed(&self) -> bool {
        self.settings.key.is_some()
    }
}

/// A key that is gone when this process is.
fn temporary_key() -> Result<File, Problem> {
    let path = Path::new(KEYS).join(format!("unisono-{}-{:08x}.key", std::process::id(), lot(1 << 32)?));
    Key::generate()?.write_new(&path)?;
    let file = File::open(&path);
    std::fs::remove_file(&path)?;
    Ok(file?)
}
