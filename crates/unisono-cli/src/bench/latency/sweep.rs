//! `bench latency --report`: latency by members, by size, by resilience and order, by method and by transport.

use super::{Latency, measure};
use crate::arguments::Transport;
use crate::bench::protocol::{Method, Protocol};
use crate::bench::report::{Chart, Column, Page, Series, with};
use crate::output::Output;
use crate::problem::Problem;
use crate::settings::Settings;
use serde_json::Value;
use std::path::Path;

const MEMBERS: [u64; 4] = [2, 3, 5, 8];
const BYTES: [u64; 6] = [0, 256, 1024, 2048, 4096, 8000];
/// Minimum number of members of the group whose resilience is varied.
const RESILIENT_MEMBERS: u64 = 5;

const COLUMNS: [Column; 14] = [
    Column { heading: "members", field: "members" },
    Column { heading: "bytes", field: "bytes" },
    Column { heading: "order", field: "order" },
    Column { heading: "method", field: "method" },
    Column { heading: "resilience", field: "resilience" },
    Column { heading: "transport", field: "transport" },
    Column { heading: "p50 µs", field: "p50_us" },
    Column { heading: "p90 µs", field: "p90_us" },
    Column { heading: "p99 µs", field: "p99_us" },
    Column { heading: "bare path p50 µs", field: "udp_path_p50_us" },
    Column { heading: "ratio to path", field: "ratio_path" },
    Column { heading: "rounds", field: "ratio_spread" },
    Column { heading: "datagrams per message", field: "datagrams_per_message" },
    Column { heading: "processor µs per message", field: "cpu_us_per_message" },
];

pub(super) fn report(
    command: &Latency,
    folder: &Path,
    settings: &Settings,
    output: &Output,
) -> Result<(), Problem> {
    let mut report = Page::new("latency", "Latency of ordered messages, one outstanding", folder)?;
    report.measure(&variations(command, settings), output, |(command, settings), bar| {
        Ok(vec![measure(command, settings, bar)?])
    })?;
    report.write(&charts(), &COLUMNS, output)
}

fn variations(command: &Latency, settings: &Settings) -> Vec<(&'static str, (Latency, Settings))> {
    let mut variations = Vec::new();
    for (name, transport) in [("multicast", Transport::Multicast), ("fan-out", Transport::Unicast)] {
        for members in with(MEMBERS, command.members) {
            let settings = Settings { transport, ..settings.clone() };
            // Few members cannot have a high resilience.
            let protocol = command.protocol.among(members);
            variations.push((name, (Latency { members, protocol, ..command.clone() }, settings)));
        }
    }
    for (name, method) in [("pb", Method::Pb), ("bb", Method::Bb)] {
        for bytes in with(BYTES, command.bytes) {
            let protocol = Protocol { method, ..command.protocol };
            variations.push((name, (Latency { bytes, protocol, ..command.clone() }, settings.clone())));
        }
    }
    let members = command.members.max(RESILIENT_MEMBERS);
    for resilience in 0..members.min(RESILIENT_MEMBERS) as u8 {
        for (name, protocol) in command.protocol.under_both_orders() {
            let protocol = Protocol { resilience, ..protocol };
            let varied = Latency { members, protocol, ..command.clone() };
            variations.push((name, (varied, settings.clone())));
        }
    }
    variations
}

fn charts() -> Vec<Chart> {
    let members = |object: &Value| object["members"].as_f64();
    let bytes = |object: &Value| object["bytes"].as_f64();
    let resilience = |object: &Value| object["resilience"].as_f64();
    let p50 = |object: &Value| object["p50_us"].as_f64();
    let p90 = |object: &Value| object["p90_us"].as_f64();
    let p99 = |object: &Value| object["p99_us"].as_f64();
    let path = |object: &Value| object["udp_path_p50_us"].as_f64();
    let call = |object: &Value| object["udp_rpc_p50_us"].as_f64();
    let chart =
        |name, title, x_label, series| Chart { name, title, x_label, y_label: "own delivery, µs", series };
    vec![
        chart(
            "members",
            "By members: the median",
            "members",
            vec![
                Series::plain("multicast", "group", members, p50),
                Series::floor("multicast", "bare path", members, path),
                Series::floor("multicast", "bare call", members, call),
            ],
        ),
        chart(
            "tail",
            "By members: the slower ones",
            "members",
            vec![
                Series::plain("multicast", "p50", members, p50),
                Series::plain("multicast", "p90", members, p90),
                Series::plain("multicast", "p99", members, p99),
            ],
        ),
        chart(
            "bytes",
            "By size: PB against BB, the median",
            "bytes of a message",
            vec![
                Series::plain("pb", "PB, by way of the sequencer", bytes, p50),
                Series::plain("bb", "BB, to all at once", bytes, p50),
                Series::floor("pb", "bare path", bytes, path),
            ],
        ),
        chart(
            "resilience",
            "By resilience: a sequencer against a token, the median",
            "crashes survived without loss",
            vec![
                Series::plain("sequencer", "sequencer", resilience, p50),
                Series::plain("token", "token", resilience, p50),
                Series::floor("sequencer", "bare path", resilience, path),
            ],
        ),
        chart(
            "transport",
            "Multicast against a datagram for each member, the median",
            "members",
            vec![
                Series::plain("multicast", "multicast", members, p50),
                Series::plain("fan-out", "fan-out", members, p50),
                Series::floor("multicast", "bare path, multicast", members, path),
                Series::floor("fan-out", "bare path, fan-out", members, path),
            ],
        ),
    ]
}
