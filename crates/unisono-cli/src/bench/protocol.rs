//! The protocol options that benchmarks of groups have in common.

use crate::arguments::{self, OrderChoice};
use crate::connection;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use unisono::{GroupConfig, Quality, SlowMember};

/// How a measured group orders its messages.
#[derive(Args, Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Protocol {
    /// Whether messages are sent by way of the sequencer (pb), to all members at once (bb), or by size (auto)
    #[arg(long, value_enum, default_value_t)]
    pub(crate) method: Method,

    /// Number of simultaneous crashes that the group survives without losing a message
    #[arg(long, value_name = "R", default_value_t = 0, value_parser = arguments::resilience)]
    pub(crate) resilience: u8,

    /// What each message asks for: unordered, source, ordered, resilient=K, majority or total
    #[arg(long, value_name = "Q", default_value_t, value_parser = arguments::ordered_quality)]
    #[serde(with = "quality_as_text")]
    pub(crate) quality: Quality,

    /// Which member assigns the sequence numbers
    #[arg(long, value_enum, default_value_t)]
    pub(crate) order: OrderChoice,
}

/// How messages are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(crate) enum Method {
    /// To the sequencer, which sends them to all
    Pb,
    /// To all, and the sequencer sends their numbers
    Bb,
    /// By size
    #[default]
    Auto,
}

/// A quality as its name.
mod quality_as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use unisono::Quality;

    pub(super) fn serialize<S: Serializer>(quality: &Quality, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(quality)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Quality, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Protocol {
    /// Returns the configuration of such a group.
    pub(crate) fn config(self) -> GroupConfig {
        let config = connection::config(self.resilience, self.order, SlowMember::Wait);
        let broadcast_above_bytes = match self.method {
            Method::Pb => u32::MAX,
            Method::Bb => 0,
            Method::Auto => config.broadcast_above_bytes,
        };
        GroupConfig { broadcast_above_bytes, ..config }
    }

    /// Returns the words for how safe its messages are.
    pub(crate) fn safety(self) -> String {
        match self.quality {
            Quality::ORDERED => format!("resilience {}", self.resilience),
            quality => format!("resilience {}, messages {quality}", self.resilience),
        }
    }

    /// Returns the same protocol with a sequencer and with a token, each with its name. A migrating sequencer stays one.
    pub(crate) fn under_both_orders(self) -> [(&'static str, Protocol); 2] {
        let sequencer = match self.order {
            OrderChoice::Token => OrderChoice::Sequencer,
            order => order,
        };
        let of = |order| Protocol { order, ..self };
        [("sequencer", of(sequencer)), ("token", of(OrderChoice::Token))]
    }

    /// Returns the same protocol with the resilience limited to what a group of this size can have.
    pub(crate) fn among(self, members: u64) -> Protocol {
        let most = u8::try_from(members.saturating_sub(1)).unwrap_or(u8::MAX);
        Protocol { resilience: self.resilience.min(most), ..self }
    }
}

impl Method {
    /// Returns its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Method::Pb => "pb",
            Method::Bb => "bb",
            Method::Auto => "auto",
        }
    }
}
