//! By which rules a measured group orders its messages: the options that benchmarks of groups have in common.

use crate::arguments::{self, OrderChoice};
use crate::connection;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use unisono::GroupConfig;

/// See the module.
#[derive(Args, Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Protocol {
    /// Whether messages travel by way of the sequencer (pb), to all at once (bb), or as their size suggests
    #[arg(long, value_enum, default_value_t)]
    pub(crate) method: Method,

    /// How many crashes at once a group survives without loss
    #[arg(long, value_name = "R", default_value_t = 0, value_parser = arguments::resilience)]
    pub(crate) resilience: u8,

    /// Who gives the messages their places
    #[arg(long, value_enum, default_value_t)]
    pub(crate) order: OrderChoice,
}

/// How messages travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(crate) enum Method {
    /// To the sequencer, which sends them to all
    Pb,
    /// To all, and the sequencer sends a short accept
    Bb,
    /// By size
    #[default]
    Auto,
}

impl Protocol {
    /// What the founder of such a group chooses.
    pub(crate) fn config(self) -> GroupConfig {
        let config = connection::config(self.resilience, self.order);
        let broadcast_above_bytes = match self.method {
            Method::Pb => u32::MAX,
            Method::Bb => 0,
            Method::Auto => config.broadcast_above_bytes,
        };
        GroupConfig { broadcast_above_bytes, ..config }
    }

    /// The same, with no more resilience than so many members can have.
    pub(crate) fn among(self, members: u64) -> Protocol {
        let most = u8::try_from(members.saturating_sub(1)).unwrap_or(u8::MAX);
        Protocol { resilience: self.resilience.min(most), ..self }
    }
}

impl Method {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Method::Pb => "pb",
            Method::Bb => "bb",
            Method::Auto => "auto",
        }
    }
}
