//! `bench throughput --report`: throughput by senders, by resilience and by order, by size, by method and by transport.

use super::{Throughput, measure};
use crate::arguments::Transport;
use crate::bench::protocol::{Method, Protocol};
use crate::bench::report::{Chart, Column, Page, Series, with};
use crate::output::Output;
use crate::problem::Problem;
use crate::settings::Settings;
use serde_json::Value;
use std::path::Path;

const MEMBERS: [u64; 4] = [2, 3, 5, 8];
const BYTES: [u64; 5] = [64, 256, 1024, 4096, 8000];

/// Minimum number of members of the group whose resilience is varied.
const RESILIENT_MEMBERS: u64 = 5;

const COLUMNS: [Column; 16] = [
    Column { heading: "members", field: "members" },
    Column { heading: "senders", field: "senders" },
    Column { heading: "bytes", field: "bytes" },
    Column { heading: "order", field: "order" },
    Column { heading: "resilience", field: "resilience" },
    Column { heading: "method", field: "method" },
    Column { heading: "transport", field: "transport" },
    Column { heading: "ordered/s", field: "ordered_per_s" },
    Column { heading: "MB/s", field: "mb_per_s" },
    Column { heading: "bare fan-out/s", field: "udp_fanout_per_s" },
    Column { heading: "ratio", field: "ratio_fanout" },
    Column { heading: "rounds", field: "ratio_spread" },
    Column { heading: "own delivery p50 µs", field: "send_p50_us" },
    Column { heading: "p99 µs", field: "send_p99_us" },
    Column { heading: "datagrams per message", field: "datagrams_per_message" },
    Column { heading: "processor µs per message", field: "cpu_us_per_message" },
];

pub(super) fn report(
    command: &Throughput,
    folder: &Path,
    settings: &Settings,
    output: &Output,
) -> Result<(), Problem> {
    let mut report = Page::new("throughput", "Throughput of ordered messages", folder)?;
    report.measure(&variations(command, settings), output, |(command, settings), bar| {
        Ok(vec![measure(command, settings, bar)?])
    })?;
    report.write(&charts(), &COLUMNS, output)
}

fn variations(command: &Throughput, settings: &Settings) -> Vec<(&'static str, (Throughput, Settings))> {
    let mut variations = Vec::new();
    for senders in 1..=command.members {
        for (name, protocol) in command.protocol.under_both_orders() {
            let varied = Throughput { senders: Some(senders), protocol, ..command.clone() };
            variations.push((name, (varied, settings.clone())));
        }
    }
    let members = command.members.max(RESILIENT_MEMBERS);
    for resilience in 0..members.min(RESILIENT_MEMBERS) as u8 {
        let names = ["sequencer, resilience", "token, resilience"];
        for (name, (_, protocol)) in names.into_iter().zip(command.protocol.under_both_orders()) {
            let protocol = Protocol { resilience, ..protocol };
            let varied = Throughput { members, senders: Some(members), protocol, ..command.clone() };
            variations.push((name, (varied, settings.clone())));
        }
    }
    for (name, method) in [("pb", Method::Pb), ("bb", Method::Bb)] {
        for bytes in with(BYTES, command.bytes) {
            let protocol = Protocol { method, ..command.protocol };
            variations.push((name, (Throughput { bytes, protocol, ..command.clone() }, settings.clone())));
        }
    }
    for (name, transport) in [("multicast", Transport::Multicast), ("fan-out", Transport::Unicast)] {
        for members in with(MEMBERS, command.members) {
            let settings = Settings { transport, ..settings.clone() };
            let senders = command.senders.map(|senders| senders.min(members));
            let protocol = command.protocol.among(members);
            let varied = Throughput { members, senders, protocol, ..command.clone() };
            variations.push((name, (varied, settings)));
        }
    }
    variations
}

fn charts() -> Vec<Chart> {
    let members = |object: &Value| object["members"].as_f64();
    let senders = |object: &Value| object["senders"].as_f64();
    let resilience = |object: &Value| object["resilience"].as_f64();
    let bytes = |object: &Value| object["bytes"].as_f64();
    let ordered = |object: &Value| Some(object["ordered_per_s"].as_f64()? / 1e3);
    let megabytes = |object: &Value| object["mb_per_s"].as_f64();
    let fanout =
        |object: &Value| Some(object["udp_fanout_per_s"].as_f64()? * object["bytes"].as_f64()? / 1e6);
    vec![
        Chart {
            name: "senders",
            title: "By senders: a sequencer against a token",
            x_label: "members that send",
            y_label: "thousand messages/s",
            series: vec![
                Series::plain("sequencer", "sequencer", senders, ordered),
                Series::plain("token", "token", senders, ordered),
            ],
        },
        Chart {
            name: "resilience",
            title: "By resilience, all send: a sequencer against a token",
            x_label: "crashes survived without loss",
            y_label: "thousand messages/s",
            series: vec![
                Series::plain("sequencer, resilience", "sequencer", resilience, ordered),
                Series::plain("token, resilience", "token", resilience, ordered),
            ],
        },
        Chart {
            name: "bytes",
            title: "By size: PB against BB",
            x_label: "bytes of a message",
            y_label: "MB/s at the slowest member",
            series: vec![
                Series::plain("pb", "PB, by way of the sequencer", bytes, megabytes),
                Series::plain("bb", "BB, to all at once", bytes, megabytes),
                Series::floor("pb", "bare fan-out", bytes, fanout),
            ],
        },
        Chart {
            name: "transport",
            title: "By members: multicast against a datagram for each",
            x_label: "members",
            y_label: "thousand messages/s",
            series: vec![
                Series::plain("multicast", "multicast", members, ordered),
                Series::plain("fan-out", "fan-out", members, ordered),
            ],
        },
    ]
}
