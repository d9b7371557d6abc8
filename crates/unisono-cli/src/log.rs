//! The log: writes events of the library and of the command to standard error, as text or one JSON object per line.
//!
//! Nothing is logged unless `--log` or `UNISONO_LOG` asks for it. The log is for operators who collect logs. What a
//! user needs to know is printed without it (see [`output::tell`](crate::output::tell)).

use crate::notes;
use crate::output::{shows_colour, visible, visible_json};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::sync::OnceLock;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

/// The target under which the library, its parts and this command log.
const TARGET: &str = "unisono";
/// The environment variables of the two options. By them a worker process logs as its parent does.
const LEVEL_VARIABLE: &str = "UNISONO_LOG";
const FORMAT_VARIABLE: &str = "UNISONO_LOG_FORMAT";

static BEGUN: OnceLock<Log> = OnceLock::new();

/// The options of the log.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct LogOptions {
    /// Write log entries of this level and above to standard error [default: off]
    #[arg(long, global = true, value_enum, value_name = "LEVEL", env = LEVEL_VARIABLE)]
    pub(crate) log: Option<Level>,

    /// Format of log entries: text, or one JSON object per line [default: text]
    #[arg(long, global = true, value_enum, value_name = "FORMAT", env = FORMAT_VARIABLE)]
    pub(crate) log_format: Option<Format>,
}

/// The lowest level that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    #[default]
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// The format of log entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

/// Level and format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Log {
    pub(crate) level: Level,
    pub(crate) format: Format,
}

impl Level {
    fn filter(self) -> LevelFilter {
        match self {
            Level::Off => LevelFilter::OFF,
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
            Level::Trace => LevelFilter::TRACE,
        }
    }
}

/// Begins to log, if the level is not off. To be called once, before the command runs.
pub(crate) fn begin(log: Log) {
    let _ = BEGUN.set(log);
    if log.level == Level::Off {
        return;
    }
    let filter = Targets::new().with_target(TARGET, log.level.filter());
    let layer = tracing_subscriber::fmt::layer();
    let layer = match log.format {
        Format::Text => {
            let colour = shows_colour(&io::stderr());
            let shown: fn(&str) -> String = if colour { coloured } else { |line| visible(line).into_owned() };
            layer.with_ansi(colour).with_writer(move || Entry { shown }).boxed()
        }
        Format::Json => {
            let layer = layer.json().flatten_event(true).with_current_span(false).with_span_list(false);
            layer.with_writer(|| Entry { shown: |line| visible_json(line).into_owned() }).boxed()
        }
    };
    let subscriber = tracing_subscriber::registry().with(layer.with_filter(filter));
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        tracing::debug!(target: "unisono::command", version = env!("CARGO_PKG_VERSION"), "command started");
    }
}

/// True if this process logs.
pub(crate) fn is_on() -> bool {
    BEGUN.get().is_some_and(|log| log.level != Level::Off)
}

/// Returns the environment variables with which a worker logs as this process does.
pub(crate) fn environment() -> [(&'static str, String); 2] {
    let log = BEGUN.get().copied().unwrap_or_default();
    [(LEVEL_VARIABLE, name(&log.level)), (FORMAT_VARIABLE, name(&log.format))]
}

/// Returns a value's name on the command line.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
}

/// Writes one entry as a line, without waiting for standard error. The text may come from other members, so terminal
/// control characters are escaped.
struct Entry {
    /// Escapes terminal control characters in the line.
    shown: fn(&str) -> String,
}

impl Write for Entry {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        notes::write((self.shown)(text.trim_end_matches('\n')).as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Escapes terminal control characters in the text, except colours.
fn coloured(text: &str) -> String {
    const BEGIN: &str = "\u{1b}[";
    let mut parts = text.split(BEGIN);
    let mut shown = visible(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(part.len());
        match part[end..].strip_prefix('m') {
            Some(rest) => shown.extend([BEGIN, &part[..end], "m", &visible(rest)]),
            None => shown.push_str(&visible(&format!("{BEGIN}{part}"))),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_the_only_control_characters_that_stay() {
        let red = "\u{1b}[31mred\u{1b}[0m, \u{1b}[1;4mbold\u{1b}[0m";
        assert_eq!(coloured(red), red);
        assert_eq!(coloured("a \u{1b}[2J\r\n\u{202e}b"), "a \\u{1b}[2J\\r\\n\\u{202e}b");
        assert_eq!(coloured("\u{1b}[31"), "\\u{1b}[31");
    }
}
