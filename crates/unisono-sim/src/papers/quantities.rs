//! What each point measures, and how the testbed measures it.
//!
//! A point names its quantity in words, such as "delay per acknowledgement". Here these words become trials of groups,
//! calls and transfers, and sums of their results. Quantities of a group are measured with the papers' protocol and with
//! our own core; the others belong to the papers' systems alone.

use super::costs::MachineName;
use super::directory::{Directory, Operation, Service};
use super::group::{Measured, Method, Trial};
use super::laboratory::{Laboratory, Side};
use super::points::{Point, Quantity, Use};
use super::ring::Manner;
use super::rmp::{Transfer, Transferred};

/// What a row measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// The number, in the point's unit.
    pub(super) number: Option<f64>,
    /// True if the point's rule holds; none if it has no rule.
    pub(super) rule: Option<bool>,
}

impl Found {
    fn number(number: f64) -> Found {
        Found { number: Some(number), rule: None }
    }

    fn rule(number: f64, holds: bool) -> Found {
        Found { number: Some(number), rule: Some(holds) }
    }

    const NOTHING: Found = Found { number: None, rule: None };
}

/// KT93's largest total of parallel groups, whose bytes and whose use of the Ethernet are the authors' arithmetic.
const PARALLEL_PER_S: f64 = 3175.0;
/// WMK94's aggregate, of which the authors took the ratio to the Ethernet.
const AGGREGATE_KB_PER_S: f64 = 7384.0;
/// Seeds over which the spread of several senders is taken.
const SEEDS: u64 = 8;
/// Bytes of RMP's packets in transfers of files.
const FILE_PACKET_BYTES: u64 = 8192;

/// Measures a point on the testbed.
pub(super) fn measure(point: &Point, side: Side, lab: &Laboratory) -> Found {
    if matches!(point.use_, Use::Given | Use::Quote) {
        return Found::NOTHING;
    }
    if let Some(found) = of_group(point, side, lab) {
        return found;
    }
    match side {
        Side::Ours => of_ring(point, Manner::Ring, lab),
        Side::Papers => of_system(point, lab),
    }
}

/// Measures a point of RMP with our own core, ordered in this manner.
pub(super) fn of_ring(point: &Point, manner: Manner, lab: &Laboratory) -> Found {
    if point.paper() != "WMK94" || matches!(point.use_, Use::Given | Use::Quote) {
        return Found::NOTHING;
    }
    of_transfers(point, lab, &|transfer| lab.ours(transfer, manner), &|transfer| {
        lab.ours(transfer, Manner::Unordered).ordered_ms
    })
}

// --- groups: KTHB89, KT93, KT96 ---

/// Reads the trial of a point.
pub(super) fn trial(point: &Point) -> Trial {
    let machine = match point.text("machine") {
        Some("mc68020") => MachineName::Mc68020,
        _ => MachineName::Mc68030,
    };
    let default = Trial::new(machine);
    let number = |key, other| point.number(key).unwrap_or(other);
    Trial {
        members: number("members", default.members),
        bytes: number("bytes", 0) as u64,
        resilience: number("r", 0),
        method: if point.text("method") == Some("bb") { Method::Bb } else { Method::Pb },
        senders: number("senders", 1),
        // Where all send, the sequencer's node does.
        sender_on_sequencer: point
            .flag("sender_on_sequencer")
            .unwrap_or(point.number("senders").is_some_and(|senders| senders > 1)),
        groups: number("groups", 1),
        history: number("history", default.history as usize) as u64,
        ..default
    }
}

fn of_group(point: &Point, side: Side, lab: &Laboratory) -> Option<Found> {
    if matches!(point.paper(), "KTV93" | "WMK94") && point.what != Quantity::Packets
        || point.text("load").is_some()
    {
        return None;
    }
    let trial = trial(point);
    let run = |trial: &Trial| lab.trial(trial, side);
    let delay = |trial: &Trial| run(trial).delay_us;
    let rpc = || lab.rpc(trial.machine).delay_us;
    Some(match (point.what, point.use_) {
        (Quantity::Delay | Quantity::DelayUnderLoad, _) => Found::number(delay(&trial) / 1000.0),
        (Quantity::Throughput, Use::Order) => larger_is_slower(&trial, &run),
        (Quantity::Throughput, _) => Found::number(run(&trial).per_s),
        (Quantity::Packets, _) => Found::number(run(&trial).packets),
        (Quantity::Interrupts, _) if trial.method == Method::Bb => Found::number(run(&trial).last_interrupts),
        (Quantity::Interrupts, _) => Found::number(run(&trial).interrupts),
        (Quantity::CriticalPath, _) => Found::number(delay(&trial)),
        (Quantity::DelayAdded, _) => {
            Found::number((delay(&trial) - delay(&Trial { bytes: 0, ..trial.clone() })) / 1000.0)
        }
        (Quantity::DelayPerMember, _) => per_member(point, &trial, &delay),
        (Quantity::GroupMinusRpc, _) => Found::number((delay(&trial) - rpc()) / 1000.0),
        (Quantity::BbOverPb, _) => bb_over_pb(point, &trial, &delay),
        (Quantity::SequencersBound, _) => Found::number(1e6 / run(&trial).sequencer_us),
        (Quantity::GroupsAtTheMaximum, _) => most_groups(&trial, &run),
        (Quantity::DelayPerAcknowledgement, _) => {
            let with = |r| delay(&Trial { resilience: r, members: r + 1, ..trial.clone() });
            Found::number((with(15) - with(1)) / 14.0)
        }
        (Quantity::EthernetUse, Use::Exception) => Found::number(run(&trial).use_share),
        (Quantity::Fairness, _) => fairness(&trial, &run(&trial)),
        _ => return None,
    })
}

/// "Each at every number of members": more bytes, fewer messages a second.
fn larger_is_slower(trial: &Trial, run: &impl Fn(&Trial) -> Measured) -> Found {
    let holds = [2, 4, 8, 16].into_iter().all(|members| {
        let rates = [0, 1024, 2048, 4096, 8000].map(|bytes| {
            let all = Trial { members, bytes, senders: members, sender_on_sequencer: true, ..trial.clone() };
            run(&all).per_s
        });
        rates.windows(2).all(|pair| pair[0] > pair[1])
    });
    Found { number: None, rule: Some(holds) }
}

fn per_member(point: &Point, trial: &Trial, delay: &impl Fn(&Trial) -> f64) -> Found {
    let bounds = ["members_from", "members_to"].map(|key| point.number(key).unwrap_or(2));
    let [from, to] = bounds.map(|members| delay(&Trial { members, ..trial.clone() }));
    let each = (to - from) / (bounds[1] - bounds[0]) as f64;
    let paper = point.value.unwrap_or(0.0);
    Found::rule(each, (paper / 4.0..=2.0 * paper).contains(&each))
}

fn bb_over_pb(point: &Point, trial: &Trial, delay: &impl Fn(&Trial) -> f64) -> Found {
    let ratio = |bytes| {
        let with = |method| delay(&Trial { bytes, method, ..trial.clone() });
        with(Method::Bb) / with(Method::Pb)
    };
    if point.value.is_some() {
        let ratio = ratio(0);
        return Found::rule(ratio, (ratio - 1.0).abs() <= 0.05);
    }
    Found::rule(ratio(1024), ratio(1024) < 0.8 && ratio(4096) < 0.7 && ratio(8000) < 0.7)
}

fn most_groups(trial: &Trial, run: &impl Fn(&Trial) -> Measured) -> Found {
    let mut best = (0, 0.0);
    for groups in 1..=7 {
        let rate = run(&Trial { groups, ..trial.clone() }).per_s;
        if rate > best.1 {
            best = (groups, rate);
        }
    }
    Found::number(best.0 as f64)
}

/// The largest distance of a remote sender's delay from their mean, as a share of it.
fn fairness(trial: &Trial, measured: &Measured) -> Found {
    let remote: Vec<f64> =
        measured.delays_us.iter().filter(|(node, _)| node % trial.members != 0).map(|(_, us)| *us).collect();
    let mean = remote.iter().sum::<f64>() / remote.len() as f64;
    let farthest = remote.iter().map(|us| (us / mean - 1.0).abs()).fold(0.0, f64::max);
    Found::rule(farthest, farthest <= 0.05)
}

// --- everything else ---

fn of_system(point: &Point, lab: &Laboratory) -> Found {
    match point.paper() {
        "KTV93" => of_directory(point, lab),
        "WMK94" => of_rmp(point, lab),
        _ => of_arithmetic(point, lab),
    }
}

/// Numbers that the authors computed from others, and those of calls.
fn of_arithmetic(point: &Point, lab: &Laboratory) -> Found {
    let machine = lab.costs.machine(MachineName::Mc68030);
    let null = (machine.packet_header_bytes() + machine.message_bytes(0)) as f64;
    let bytes = point.number("bytes").unwrap_or(0) as u64;
    match point.what {
        Quantity::RpcPackets => Found::number(lab.rpc(MachineName::Mc68020).packets),
        Quantity::BytesPerS => Found::number(PARALLEL_PER_S * 2.0 * null),
        Quantity::EthernetUse => {
            Found::number(PARALLEL_PER_S * 2.0 * (null + 4.0) * 8.0 / (1e6 * machine.mbit_per_s))
        }
        Quantity::SendersThatOverflow => {
            Found::number((machine.receive_ring / machine.packets(bytes) + 1) as f64)
        }
        _ => Found::NOTHING,
    }
}

fn of_directory(point: &Point, lab: &Laboratory) -> Found {
    let directory = lab.directory();
    let service = match point.text("service") {
        Some("rpc") => Service::Pair,
        Some("nvram") => Service::Nvram,
        _ => Service::Group,
    };
    let operation = match point.text("op") {
        Some("append-delete") => Operation::AppendDelete,
        Some("tmp-file") => Operation::TmpFile,
        _ => Operation::Lookup,
    };
    let clients = point.number("clients").unwrap_or(1);
    let servers = point.number("servers").unwrap_or(service.servers());
    Found::number(match point.what {
        Quantity::RpcPackets => lab.rpc(MachineName::Mc68030).packets,
        Quantity::Time => directory.took(operation, service),
        Quantity::GroupOverNvram => {
            directory.took(operation, Service::Group) / directory.took(operation, Service::Nvram)
        }
        Quantity::ServersTime => directory.lookup_served(),
        Quantity::LookupsBound => 1000.0 * servers as f64 / directory.lookup_served(),
        Quantity::Lookups => lab.lookups(servers, clients).mean,
        Quantity::LookupsDeviation => lab.lookups(servers, clients).deviation,
        Quantity::Updates => 2.0 * directory.pairs_per_s(service, clients),
        Quantity::Pairs => directory.pairs_per_s(service, clients),
        Quantity::ServicesTime => directory.pair_served(service),
        Quantity::DiskOperationsMore => {
            let [pair, group] = [Service::Pair, Service::Group].map(Directory::disk_operations);
            f64::from(pair - group)
        }
        _ => return Found::NOTHING,
    })
}

fn of_rmp(point: &Point, lab: &Laboratory) -> Found {
    let ethernet = 1000.0 * lab.costs.machine(MachineName::Sparc5).mbit_per_s / 8.0;
    match point.what {
        Quantity::TimesTheEthernet => Found::number(AGGREGATE_KB_PER_S / ethernet),
        Quantity::KthbBound => Found::number(bound(lab)),
        Quantity::WirePb => Found::number(2.0 * bits_ms(point, lab)),
        Quantity::WireRmp => Found::number(bits_ms(point, lab) + ack_ms(lab)),
        _ => of_transfers(point, lab, &|transfer| lab.transfer(transfer), &|transfer| {
            lab.transfer(transfer).received_ms
        }),
    }
}

/// Measures what a point asks of transfers. `received_ms` says when the others have a message that is alone.
fn of_transfers(
    point: &Point,
    lab: &Laboratory,
    run: &dyn Fn(Transfer) -> Transferred,
    received_ms: &dyn Fn(Transfer) -> f64,
) -> Found {
    let members = point.number("members").or(point.number("destinations")).unwrap_or(1);
    let ethernet = 1000.0 * lab.costs.machine(MachineName::Sparc5).mbit_per_s / 8.0;
    let file = |members, senders, source_delivers, seed| {
        let bytes = FILE_PACKET_BYTES;
        run(Transfer { members, senders, source_delivers, bytes, one_at_a_time: false, seed }).kb_per_s
    };
    let to_others = |members| file(members, 1, false, 0);
    let alone = |members| Transfer {
        members,
        senders: 1,
        source_delivers: false,
        bytes: 0,
        one_at_a_time: true,
        seed: 0,
    };
    let is_flat = |of: &dyn Fn(usize) -> f64| {
        let numbers = [1, 2, 4, 8].map(of);
        let [least, most] = [f64::min, f64::max].map(|pick| numbers.into_iter().fold(numbers[0], pick));
        Found::rule(most / least, most / least <= 1.15)
    };
    let latency = |members| run(alone(members)).ordered_ms;
    match (point.what, point.use_) {
        (Quantity::ThroughputToOne, Use::Order) => is_flat(&to_others),
        // The paper says nothing of the group: eight members, as where its largest aggregate was measured.
        (Quantity::ThroughputToOne, Use::Exception) => Found::number(file(8, 1, true, 0)),
        (Quantity::ThroughputToOne, _) => Found::number(to_others(members)),
        (Quantity::EthernetUse, _) => Found::number(to_others(members) / ethernet),
        (Quantity::Latency, Use::Order) => is_flat(&latency),
        (Quantity::Latency, _) => Found::number(latency(members)),
        (Quantity::ThroughputOfAll, _) => Found::number(members as f64 * file(members, 1, true, 0)),
        (Quantity::OrderedOverUnordered, _) => Found::number(latency(3) / received_ms(alone(3))),
        (Quantity::Packets, _) if point.text("load") == Some("high") => {
            let senders = point.number("senders").unwrap_or(1);
            let load = Transfer {
                members: senders,
                senders,
                source_delivers: true,
                bytes: point.number("bytes").unwrap_or(0) as u64,
                one_at_a_time: false,
                seed: 0,
            };
            Found::number(run(load).multicasts)
        }
        (Quantity::Packets, _) => Found::number(run(alone(3)).multicasts),
        (Quantity::ThroughputSpread, _) => {
            let spread = |senders| {
                let rates: Vec<f64> = (0..SEEDS).map(|seed| file(8, senders, true, seed)).collect();
                let [least, most] =
                    [f64::min, f64::max].map(|pick| rates.iter().copied().fold(rates[0], pick));
                most / least - 1.0
            };
            let spreads = [1, 4, 8].map(spread);
            Found::rule(spreads[2], spreads[1] > spreads[0] && spreads[2] > spreads[0])
        }
        _ => Found::NOTHING,
    }
}

/// KB a second of PB with processors that need no time: each message is on the wire twice.
fn bound(lab: &Laboratory) -> f64 {
    let bytes = 8000;
    let trial = Trial { bytes, free: true, ..Trial::new(MachineName::Mc68030) };
    lab.trial(&trial, Side::Papers).per_s * bytes as f64 / 1000.0
}

/// Milliseconds on the wire of a point's bytes alone, as the authors compute it.
fn bits_ms(point: &Point, lab: &Laboratory) -> f64 {
    let bytes = point.number("bytes").unwrap_or(0) as f64;
    bytes * 8.0 / lab.costs.machine(MachineName::Sparc5).mbit_per_s / 1000.0
}

/// Milliseconds on the wire of an ACK.
fn ack_ms(lab: &Laboratory) -> f64 {
    let machine = lab.costs.machine(MachineName::Sparc5);
    let bytes = machine.packet_header_bytes() + machine.message_bytes(0);
    bytes as f64 * 8.0 / machine.mbit_per_s / 1000.0
}

#[cfg(test)]
mod tests {
    use super::super::costs::Costs;
    use super::*;

    /// The reasons of KT93-26-max and KT93-26-peak state these numbers.
    #[test]
    fn parallel_groups_need_fewer_packets_than_two_and_their_total_grows_beyond_seven() {
        let lab = Laboratory::new(Costs::default(), 1);
        let of_two = Trial { senders: 2, sender_on_sequencer: true, ..Trial::new(MachineName::Mc68030) };
        let [five, seven, twelve] =
            [5, 7, 12].map(|groups| lab.trial(&Trial { groups, ..of_two.clone() }, Side::Papers));
        assert!((five.packets - 1.20).abs() < 0.01, "{five:?}");
        let used = PARALLEL_PER_S * five.packets * 120.0 * 8.0 / 1e7;
        assert!((used - 0.37).abs() < 0.005, "{used}");
        assert!(five.per_s < 0.8 * seven.per_s && seven.per_s < 0.9 * twelve.per_s, "{seven:?} {twelve:?}");
    }
}
