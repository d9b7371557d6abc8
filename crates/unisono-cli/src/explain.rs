//! `unisono explain`: prints captured datagrams in words.

use crate::arguments::Common;
use crate::output::Output;
use crate::pcap;
use crate::problem::Problem;
use crate::settings::Settings;
use crate::signals;
use anyhow::Context;
use clap::Args;
use serde_json::json;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use unisono::Key;
use unisono_core::wire::Explainer;

const HELP: &str = "\
Examples:
  unisono explain 756e6973…

  Capture all datagrams of a member at port 7195, and all multicasts (port 7196), for
  at most ten seconds. Sealed datagrams can be opened only if the capture contains a
  join, so the capture starts before the join of a sender:

  timeout 10 tcpdump -i any -c 1000 -w group.pcap udp portrange 7195-7196 &
  unisono send news hello --bind 192.0.2.7:7195 --key group.key; wait
  unisono explain group.pcap --key group.key

Without the group's key only the outer header of sealed datagrams is shown.";

/// Print captured datagrams in words; for an invalid one, print what is wrong with it
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Explain {
    /// A datagram as hexadecimal digits, or a capture file of `tcpdump -w` or Wireshark (pcap or pcapng)
    #[arg(value_name = "HEX|FILE.pcap")]
    what: String,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Explain, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let mut explainer = match &settings.key {
        Some(path) => {
            signals::leave_no_core();
            Explainer::with_key(Key::load(path)?.protection())
        }
        None => Explainer::default(),
    };
    if let Some(datagram) = digits(&command.what) {
        let words = explainer.explain(&datagram);
        output.say(words.trim_end())?;
        output.object(&json!({"command": "explain", "bytes": datagram.len(), "words": lines(&words)}))?;
        return Ok(());
    }
    let path = Path::new(&command.what);
    if !path.exists() {
        return Err(Problem::usage(format!("'{}' is neither hexadecimal digits nor a file", command.what)));
    }
    let capture = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut datagrams = pcap::datagrams(BufReader::new(capture))
        .map_err(|reason| Problem::failed(format!("{}: {reason}", path.display())))?;
    let mut count: u64 = 0;
    for found in datagrams.by_ref() {
        count += 1;
        let words = explainer.explain(&found.payload);
        let (seconds, micros) = (found.time_ns / 1_000_000_000, found.time_ns / 1000 % 1_000_000);
        let cut = if found.cut_short { ", cut short by the capture" } else { "" };
        output.say(format_args!(
            "{seconds}.{micros:06} {} to {}{cut}\n{}",
            found.source,
            found.destination,
            words.trim_end()
        ))?;
        output.object(&json!({
            "time_us": found.time_ns / 1000,
            "from": found.source.to_string(),
            "to": found.destination.to_string(),
            "bytes": found.payload.len(),
            "cut_short": found.cut_short,
            "words": lines(&words),
        }))?;
    }
    output.object(&json!({"command": "explain", "datagrams": count}))?;
    if count == 0 {
        let reason = datagrams.unread().map_or("no UDP datagram in this capture".into(), |it| it.to_string());
        return Err(Problem::failed(format!("{}: {reason}", path.display())));
    }
    Ok(())
}

fn lines(words: &str) -> Vec<&str> {
    words.lines().collect()
}

/// Returns the bytes given as pairs of hexadecimal digits. Ignores spaces, colons and a leading 0x.
fn digits(text: &str) -> Option<Vec<u8>> {
    let text = text.strip_prefix("0x").unwrap_or(text);
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace() && *c != ':')
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    let whole = digits.len().is_multiple_of(2) && !digits.is_empty();
    whole.then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_in_any_dress() {
        assert_eq!(digits("0x00fF"), Some(vec![0, 255]));
        assert_eq!(digits("00:ff 10\n"), Some(vec![0, 255, 16]));
        for not in ["", "0", "0x1", "fg", "file.pcap"] {
            assert_eq!(digits(not), None, "{not}");
        }
    }
}
