//! The network on which a benchmark runs: this machine's loopback, or a lab with a host for each member.
//!
//! The group and the floor use the same network.

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

/// Folder in which a temporary key file exists for a moment: in memory, and writable by root only.
const KEYS: &str = "/run";

/// The options of the network.
#[derive(Args, Clone, Debug)]
pub(crate) struct Choice {
    /// Run each member on a host of its own, joined by a bridge, sealed with a temporary key (Linux, root)
    #[arg(long)]
    lab: bool,

    /// With --lab: let the hosts share one segment of this speed, as on a hub: 10mbit, 512kbit
    #[arg(long, value_name = "RATE", requires = "lab")]
    pub(crate) rate: Option<Rate>,

    /// With --lab: let each host lose this part of the datagrams that it receives, at random: 1%
    #[arg(long, value_name = "PERCENT", requires = "lab")]
    loss: Option<Loss>,

    /// Use no key, to measure the group without sealing
    #[arg(long)]
    unsealed: bool,
}

impl Choice {
    /// Adds these options to a summary.
    pub(crate) fn tell(&self, mut summary: Value) -> Value {
        summary["lab"] = self.lab.into();
        if self.lab {
            summary["rate"] = json!(self.rate.map(|rate| rate.to_string()));
            summary["loss"] = json!(self.loss.map(|loss| loss.to_string()));
        }
        summary
    }

    /// Returns the options as text for people, beginning with a comma; empty without a lab.
    pub(crate) fn words(&self) -> String {
        let rate = self.rate.map(|rate| format!(", one segment of {rate}"));
        let loss = self.loss.map(|loss| format!(", {loss} lost"));
        let lab = if self.lab { ", lab" } else { "" };
        format!("{lab}{}{}", rate.unwrap_or_default(), loss.unwrap_or_default())
    }
}

/// The network of a measurement. Dropping it removes the lab.
#[derive(Debug)]
pub(crate) struct Ground {
    /// The settings of the members.
    pub(crate) settings: Settings,
    lab: Option<Temporary>,
    /// The temporary key: a file without a name, which members open through this process's /proc folder.
    _key: Option<File>,
}

impl Ground {
    /// Prepares the network for this number of processes on each side. `silent` hosts do not report closed ports of
    /// dead processes.
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
            return Err(Problem::usage(
                "--bind and --seeds cannot be used with --lab, which chooses the addresses",
            ));
        }
        let hosts = u16::try_from(processes).ok().filter(|hosts| *hosts <= HOSTS_MAX).ok_or_else(|| {
            Problem::usage(format!(
                "a lab has at most {HOSTS_MAX} hosts, and this needs {processes}: use fewer processes"
            ))
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

    /// Returns the locations of this number of processes.
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

    /// True if datagrams are sealed.
    pub(crate) fn is_sealed(&self) -> bool {
        self.settings.key.is_some()
    }
}

/// Makes a key file without a name, which disappears with this process.
fn temporary_key() -> Result<File, Problem> {
    let path = Path::new(KEYS).join(format!("unisono-{}-{:08x}.key", std::process::id(), lot(1 << 32)?));
    Key::generate()?.write_new(&path)?;
    let file = File::open(&path);
    std::fs::remove_file(&path)?;
    Ok(file?)
}
