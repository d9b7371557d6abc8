//! The same measurements of real processes on this machine, by the benchmarks of this program.
//!
//! Times of today's machines mean nothing beside those of 1990. So a row gives both as ratios to the figure's first row:
//! whether delays grow with members, bytes and r as they did. They are taken on loopback, in a lab whose hosts share a
//! segment of 10 Mbit/s, as the papers' did, and in one whose network is as fast as this machine.

use crate::output::{several, tell};
use crate::progress;
use anyhow::Context;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use unisono_sim::papers::{InLab, Quantity, Row, Use, ratios};

/// Maximum number of processes: more than that on few processors measure the scheduler.
const PROCESSES_MAX: i64 = 16;
const MESSAGES: &str = "1000";
/// A message of 8,000 bytes takes 14 ms on a segment of 10 Mbit/s, and so does each of the bare ones beside it.
const MESSAGES_SLOW: &str = "100";
const SECONDS: &str = "1";
const OPERATIONS: &str = "200";
/// Messages of a source under way, as RMP's.
const WINDOW: &str = "24";
/// Bytes of RMP's packets in transfers of files.
const FILE_PACKET_BYTES: i64 = 8192;
/// Largest message, and most members, that are measured on the slow segment.
const SLOW_BYTES_MAX: i64 = 8000;
const SLOW_MEMBERS_MAX: i64 = 10;
/// No measurement begins later than this after the command: none takes much more than a minute.
const BUDGET: Duration = Duration::from_secs(12 * 60 + 30);

/// On which network the processes run. In the order in which they are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ground {
    Loopback,
    Slow,
    Fast,
}

/// Name of a lab's network in rows.
pub(super) const SLOW: &str = "10mbit";
pub(super) const FAST: &str = "unlimited";

impl Ground {
    const ALL: [Ground; 3] = [Ground::Loopback, Ground::Slow, Ground::Fast];
    const LABS: &'static [Ground] = &[Ground::Slow, Ground::Fast];

    fn options(self) -> &'static [&'static str] {
        match self {
            Ground::Loopback => &[],
            Ground::Slow => &["--lab", "--rate", "10mbit"],
            Ground::Fast => &["--lab"],
        }
    }
}

/// What is read of a benchmark's answer.
#[derive(Clone, Copy, PartialEq)]
enum Read {
    /// This field of the last line, times a factor.
    Field(&'static str, f64),
    /// This field of the line for this number of groups.
    OfGroups(&'static str, i64),
    /// By how much a null message in a group takes longer than a null call.
    GroupMinusCall,
}

/// A benchmark, what is read of it, and the unit of that.
#[derive(Clone)]
struct Wanted {
    arguments: Vec<String>,
    read: Read,
    unit: &'static str,
    /// The labs in which it is measured too.
    labs: &'static [Ground],
}

/// A benchmark on a network, and the lines of its answer.
type Answers = BTreeMap<(Ground, Vec<String>), Vec<Value>>;

/// Adds to the rows what real processes give, in what is left of the time since the command began.
pub(super) fn measure(rows: &mut [Row], began: Instant) {
    let wanted: Vec<Option<Wanted>> = rows.iter().map(|row| wanted(row, rows)).collect();
    let answers = answers(&wanted, began);
    let number = |place: usize, ground: Ground| {
        let wanted = wanted[place].as_ref()?;
        wanted.read.of(answers.get(&(ground, wanted.arguments.clone()))?)
    };
    for ground in Ground::ALL {
        for (place, row) in rows.iter_mut().enumerate() {
            let Some(found) = number(place, ground) else { continue };
            row.here_unit = wanted[place].as_ref().map(|wanted| wanted.unit.into());
            match ground {
                Ground::Loopback => row.here = Some(found),
                Ground::Slow => _ = row.here_lab.insert(SLOW, InLab { number: found, ratio: None }),
                Ground::Fast => _ = row.here_lab.insert(FAST, InLab { number: found, ratio: None }),
            }
        }
    }
    for (place, ratio) in ratios(rows, |row| row.here) {
        rows[place].here_ratio = Some(ratio);
    }
    for name in [SLOW, FAST] {
        for (place, ratio) in ratios(rows, |row| Some(row.here_lab.get(name)?.number)) {
            if let Some(in_lab) = rows[place].here_lab.get_mut(name) {
                in_lab.ratio = Some(ratio);
            }
        }
    }
}

/// Runs each benchmark once on each of its networks, as long as the time lasts. What fails is told and left out.
fn answers(wanted: &[Option<Wanted>], began: Instant) -> Answers {
    let mut answers = Answers::new();
    for wanted in wanted.iter().flatten() {
        for ground in [Ground::Loopback].iter().chain(wanted.labs).copied() {
            answers.entry((ground, wanted.arguments.clone())).or_default();
        }
    }
    let bar = progress::bar(answers.len() as u64, "measurements here");
    let mut late = 0;
    let mut order: Vec<_> = answers.iter_mut().collect();
    order.sort_by_key(|((ground, arguments), _)| (*ground, cheapness(arguments)));
    for ((ground, arguments), lines) in order {
        if began.elapsed() > BUDGET {
            late += 1;
            continue;
        }
        let options = ground.options().iter().copied();
        let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(options).collect();
        if *ground == Ground::Slow
            && let Some(at) = arguments.iter().position(|word| ["--messages", "--calls"].contains(word))
        {
            arguments[at + 1] = MESSAGES_SLOW;
        }
        match run(&arguments) {
            Ok(found) => *lines = found,
            Err(error) => bar.suspend(|| tell(format_args!("{}: {error:#}", arguments.join(" ")))),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if late > 0 {
        tell(format_args!("{} left out: the time was up", several(late, "measurement")));
    }
    answers
}

/// Benchmarks that take least come first, so that the time is enough for most.
fn cheapness(arguments: &[String]) -> usize {
    let order = ["latency", "rpc", "parallel", "throughput", "dir"];
    order.iter().position(|bench| arguments.iter().any(|word| word == bench)).unwrap_or(order.len())
}

impl Read {
    fn of(self, lines: &[Value]) -> Option<f64> {
        let last = lines.last()?;
        match self {
            Read::Field(field, factor) => Some(last[field].as_f64()? * factor),
            Read::OfGroups(field, groups) => {
                lines.iter().find(|line| line["groups"].as_i64() == Some(groups))?[field].as_f64()
            }
            Read::GroupMinusCall => Some(last["group_p50_us"].as_f64()? - last["p50_us"].as_f64()?),
        }
    }
}

/// Returns the benchmark for a row that real processes can measure; none for any other.
fn wanted(row: &Row, rows: &[Row]) -> Option<Wanted> {
    if matches!(row.use_, Use::Given | Use::Quote | Use::Order) {
        return None;
    }
    match text(row, "machine") {
        _ if matches!(row.what, Quantity::RpcPackets | Quantity::GroupMinusRpc) => Some(call(row)),
        Some("mc68020" | "mc68030") => of_group(row, rows),
        Some("sun3-60") => of_directory(row),
        Some("sparc5") => of_ring(row),
        _ => None,
    }
}

fn number(row: &Row, key: &str) -> Option<i64> {
    row.conditions.get(key)?.as_integer()
}

fn text<'a>(row: &'a Row, key: &str) -> Option<&'a str> {
    row.conditions.get(key)?.as_str()
}

fn arguments(bench: &str, words: &[&str], numbers: &[(&str, i64)]) -> Vec<String> {
    let numbers = numbers.iter().flat_map(|(key, number)| [key.to_string(), number.to_string()]);
    let words =
        ["bench", bench, "--json", "--unsealed"].into_iter().chain(words.iter().copied()).map(String::from);
    words.chain(numbers).collect()
}

fn call(row: &Row) -> Wanted {
    let (read, unit) = match row.what {
        Quantity::RpcPackets => (Read::Field("datagrams_per_call", 1.0), "packets"),
        _ => (Read::GroupMinusCall, "us"),
    };
    let arguments = arguments("rpc", &["--calls", MESSAGES, "--seconds", SECONDS], &[]);
    Wanted { arguments, read, unit, labs: Ground::LABS }
}

fn of_group(row: &Row, rows: &[Row]) -> Option<Wanted> {
    let (members, groups) = (number(row, "members")?, number(row, "groups").unwrap_or(1));
    if members * groups > PROCESSES_MAX {
        return None;
    }
    let (bytes, method) = (number(row, "bytes").unwrap_or(0), text(row, "method").unwrap_or("pb"));
    let fits_slow = bytes <= SLOW_BYTES_MAX && members <= SLOW_MEMBERS_MAX;
    let latency = |read, unit| Wanted {
        arguments: arguments(
            "latency",
            &["--method", method, "--messages", MESSAGES],
            &[("--members", members), ("--bytes", bytes), ("--resilience", number(row, "r").unwrap_or(0))],
        ),
        read,
        unit,
        labs: if fits_slow { Ground::LABS } else { &[] },
    };
    match row.what {
        Quantity::Delay => Some(latency(Read::Field("p50_us", 1.0), "us")),
        Quantity::Packets => Some(latency(Read::Field("datagrams_per_message", 1.0), "packets")),
        Quantity::Throughput | Quantity::DelayUnderLoad => {
            let senders = number(row, "senders").unwrap_or(1);
            // One benchmark measures 1, 2, 4, … groups, up to as many as any row of these conditions has.
            let is_same = |other: &&Row| {
                let same = |key| number(other, key) == number(row, key);
                ["members", "senders", "bytes"].into_iter().all(same)
                    && text(other, "method") == text(row, "method")
                    && members * number(other, "groups").unwrap_or(1) <= PROCESSES_MAX
            };
            let most = rows.iter().filter(is_same).filter_map(|row| number(row, "groups")).max();
            let field = if row.what == Quantity::Throughput { "ordered_per_s" } else { "send_p50_us" };
            Some(Wanted {
                arguments: arguments(
                    "parallel",
                    &["--method", method, "--seconds", SECONDS],
                    &[
                        ("--members", members),
                        ("--bytes", bytes),
                        ("--groups", most.unwrap_or(1)),
                        ("--senders", senders),
                    ],
                ),
                read: Read::OfGroups(field, groups),
                unit: if row.what == Quantity::Throughput { "per s" } else { "us" },
                // With long messages from all, ten seconds of a slow segment are a queue.
                labs: if fits_slow && bytes == 0 { Ground::LABS } else { &[] },
            })
        }
        _ => None,
    }
}

fn of_directory(row: &Row) -> Option<Wanted> {
    let service = text(row, "service")?;
    let (clients, op) = (number(row, "clients")?, text(row, "op")?);
    let durability = if service == "nvram" { "memory" } else { "majority" };
    let (read, unit) = match (row.what, service) {
        // The pair of servers runs beside ours, one operation at a time.
        (Quantity::Time, "rpc") => (Read::Field("against_p50_us", 1.0), "us"),
        (Quantity::Time, _) => (Read::Field("p50_us", 1.0), "us"),
        (_, "rpc") => return None,
        (Quantity::Lookups | Quantity::Pairs, _) => (Read::Field("ops_per_s", 1.0), "per s"),
        _ => return None,
    };
    let words = [
        "--op",
        op,
        "--durability",
        durability,
        "--against",
        if service == "nvram" { "single" } else { "pair" },
        "--operations",
        OPERATIONS,
        "--seconds",
        SECONDS,
    ];
    Some(Wanted {
        arguments: arguments("dir", &words, &[("--clients", clients)]),
        read,
        unit,
        labs: match (row.what, service) {
            // These count what is left in snapshots, and fill 65 MB of logs for that.
            (Quantity::Time, "nvram") => &[Ground::Fast],
            (Quantity::Time, _) => Ground::LABS,
            _ => &[],
        },
    })
}

/// Returns the benchmark of a ring. A source is always a member.
fn of_ring(row: &Row) -> Option<Wanted> {
    let members = number(row, "members").or(number(row, "destinations").map(|others| others + 1));
    let ring = ["--order", "token"];
    let latency = |members, read, unit| Wanted {
        arguments: arguments(
            "latency",
            &[&ring[..], &["--messages", MESSAGES]].concat(),
            &[("--members", members), ("--bytes", 0)],
        ),
        read,
        unit,
        labs: Ground::LABS,
    };
    let throughput = |members, senders, bytes, read, unit| Wanted {
        arguments: arguments(
            "throughput",
            &[&ring[..], &["--window", WINDOW, "--seconds", SECONDS]].concat(),
            &[("--members", members), ("--senders", senders), ("--bytes", bytes)],
        ),
        read,
        unit,
        labs: Ground::LABS,
    };
    let kb_per_s = |members: i64, factor: i64| {
        let read = Read::Field("mb_per_s", 1000.0 * factor as f64);
        throughput(members, 1, FILE_PACKET_BYTES, read, "KB per s")
    };
    match row.what {
        Quantity::Latency => Some(latency(members?, Read::Field("p50_us", 1.0), "us")),
        Quantity::Packets if text(row, "load") == Some("high") => {
            let senders = number(row, "senders")?;
            let read = Read::Field("datagrams_per_message", 1.0);
            Some(throughput(senders, senders, number(row, "bytes")?, read, "packets"))
        }
        Quantity::Packets => Some(latency(4, Read::Field("datagrams_per_message", 1.0), "packets")),
        Quantity::ThroughputToOne => Some(kb_per_s(members?, 1)),
        Quantity::ThroughputOfAll => Some(kb_per_s(members?, members?)),
        _ => None,
    }
}

/// Runs a benchmark and returns the lines of its answer.
fn run(arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
    let program = std::env::current_exe().context("cannot find this program's own file to start it again")?;
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("cannot start a benchmark")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if !output.status.success() || lines.is_empty() {
        anyhow::bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use unisono_sim::papers::{Point, select};

    /// Returns rows without numbers: what is to be measured depends on their conditions alone.
    fn rows(name: &str) -> Vec<Row> {
        let row = |point: Point| Row {
            figure: point.figure().into(),
            point: point.id,
            use_: point.use_,
            what: point.what,
            conditions: point.conditions,
            unit: point.unit,
            paper: point.value,
            simulated: None,
            ours: None,
            ours_otherwise: BTreeMap::new(),
            here: None,
            here_unit: None,
            paper_ratio: None,
            simulated_ratio: None,
            here_ratio: None,
            here_lab: BTreeMap::new(),
            error: None,
            tolerance: None,
            good: None,
            why: None,
            ours_why: None,
        };
        select(&[name.into()]).unwrap().into_iter().map(row).collect()
    }

    fn wanted_of(rows: &[Row], point: &str) -> Option<Wanted> {
        rows.iter().find(|row| row.point == point).and_then(|row| wanted(row, rows))
    }

    #[test]
    fn one_benchmark_serves_all_numbers_of_groups() {
        let rows = rows("KT93-26");
        let all: Vec<Wanted> = rows
            .iter()
            .filter(|row| row.point == "KT93-26-groups-of-2")
            .filter_map(|row| wanted(row, &rows))
            .collect();
        assert_eq!(all.len(), 7);
        assert!(all.iter().all(|wanted| wanted.arguments == all[0].arguments));
        assert!(all[0].arguments.join(" ").contains("--groups 7"));
        let lines = [json!({"groups": 1, "ordered_per_s": 5.0}), json!({"groups": 2, "ordered_per_s": 9.0})];
        assert_eq!([0, 1, 2].map(|place| all[place].read.of(&lines)), [Some(5.0), Some(9.0), None]);
    }

    #[test]
    fn the_pair_is_measured_beside_the_group() {
        let rows = rows("KTV93-7");
        let [group, pair, nvram] = ["group", "rpc", "nvram"]
            .map(|name| wanted_of(&rows, &format!("KTV93-7-append-delete-{name}")).unwrap());
        assert_eq!(group.arguments, pair.arguments);
        assert!(group.read != pair.read && group.arguments != nvram.arguments);
    }

    #[test]
    fn large_groups_are_not_measured_here() {
        assert!(wanted_of(&rows("KT93-21-0B-n30"), "KT93-21-0B-n30").is_none());
    }
}
