//! `unisono papers predict`: one number, for conditions that no paper has.

use super::Changes;
use super::run::SEED;
use crate::arguments;
use crate::output::Output;
use crate::problem::Problem;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use unisono_sim::papers::{
    Laboratory, MachineName, Measured, Method as GroupMethod, Operation, Service as Directory, Side, Trial,
};

/// Maximum number of members, of clients, and of groups times members: what the testbed simulates within a minute.
const NODES_MAX: usize = 256;
/// Maximum size of a message: our own core sends a larger one in several datagrams, whatever FLIP does.
const BYTES_MAX: u64 = 15_000;

/// Predict one number on the testbed, for any conditions
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono papers predict delay --members 9 --resilience 5 --set us=x2")]
pub(super) struct Predict {
    /// What to predict
    #[arg(value_enum)]
    quantity: Quantity,

    /// The machines
    #[arg(long, value_enum, default_value = "mc68030")]
    machine: Machine,

    /// Number of members of a group
    #[arg(long, value_name = "N", default_value = "2", value_parser = arguments::within::<usize>(2..=NODES_MAX))]
    members: usize,

    /// Bytes of a message
    #[arg(long, value_name = "B", default_value = "0", value_parser = arguments::within::<u64>(0..=BYTES_MAX))]
    bytes: u64,

    /// Resilience degree: fewer than members
    #[arg(long, value_name = "R", default_value = "0", value_parser = arguments::within::<u8>(0..=u8::MAX))]
    resilience: u8,

    /// Who multicasts a message: the sequencer (pb) or its sender (bb)
    #[arg(long, value_enum, default_value = "pb")]
    method: Method,

    /// Number of members that send [default: 1 for a delay, all for throughput]
    #[arg(long, value_name = "S", value_parser = arguments::within::<usize>(1..=NODES_MAX))]
    senders: Option<usize>,

    /// Number of groups on one Ethernet
    #[arg(long, value_name = "G", default_value = "1", value_parser = arguments::within::<usize>(1..=NODES_MAX))]
    groups: usize,

    /// Messages that the history holds [default: 128, and 20 for mc68020]
    #[arg(long, value_name = "H", value_parser = arguments::within::<u64>(2..=4096))]
    history: Option<u64>,

    /// Directory service
    #[arg(long, value_enum, default_value = "group")]
    service: Service,

    /// Number of directory servers, for lookups [default: those of the service]
    #[arg(long, value_name = "N", value_parser = arguments::within::<usize>(1..=9))]
    servers: Option<usize>,

    /// Number of clients of the directory service, for lookups
    #[arg(long, value_name = "C", default_value = "7", value_parser = arguments::within::<usize>(1..=16))]
    clients: usize,

    #[command(flatten)]
    changes: Changes,

    /// Seed of the collisions and draws
    #[arg(long, value_name = "N", value_parser = arguments::within::<u64>(0..=u64::MAX))]
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Quantity {
    Delay,
    Throughput,
    Lookups,
    Lookup,
    AppendDelete,
    TmpFile,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Machine {
    Mc68020,
    Mc68030,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Method {
    Pb,
    Bb,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Service {
    Group,
    Rpc,
    Nvram,
    Single,
}

pub(super) fn run(command: &Predict, output: &Output) -> Result<(), Problem> {
    let lab = Laboratory::new(command.changes.costs()?, command.seed.unwrap_or(SEED));
    let answer = match command.quantity {
        Quantity::Delay | Quantity::Throughput => of_group(command, &lab)?,
        _ => of_directory(command, &lab),
    };
    output.say(format_args!(
        "{} {}, our own protocol {}",
        shown(&answer["simulated"]),
        answer["unit"].as_str().unwrap_or_default(),
        shown(&answer["ours"])
    ))?;
    Ok(output.object(&answer)?)
}

fn shown(number: &Value) -> String {
    number.as_f64().map_or_else(|| "–".into(), super::figures::number)
}

fn of_group(command: &Predict, lab: &Laboratory) -> Result<Value, Problem> {
    let trial = trial(command)?;
    let is_delay = command.quantity == Quantity::Delay;
    let [simulated, ours] = [Side::Papers, Side::Ours].map(|side| lab.trial(&trial, side));
    let number = |measured: &Measured| if is_delay { measured.delay_us / 1000.0 } else { measured.per_s };
    Ok(json!({
        "command": "papers predict",
        "quantity": name(command.quantity),
        "unit": if is_delay { "ms" } else { "per s" },
        "simulated": number(&simulated),
        "ours": number(&ours),
        "packets": simulated.packets,
        "interrupts": simulated.interrupts,
        "ours_packets": ours.packets,
    }))
}

fn trial(command: &Predict) -> Result<Trial, Problem> {
    let members = command.members;
    Problem::beyond(command.resilience, members as u64)?;
    if members * command.groups > NODES_MAX {
        return Err(Problem::usage(format!(
            "--groups {} of --members {members} are more than {NODES_MAX} nodes",
            command.groups
        )));
    }
    let default = Trial::new(match command.machine {
        Machine::Mc68020 => MachineName::Mc68020,
        Machine::Mc68030 => MachineName::Mc68030,
    });
    let is_delay = command.quantity == Quantity::Delay;
    let senders = command.senders.unwrap_or(if is_delay { 1 } else { members });
    if senders > members {
        return Err(Problem::usage(format!("--senders {senders} are more than the {members} members")));
    }
    Ok(Trial {
        members,
        bytes: command.bytes,
        resilience: command.resilience.into(),
        method: match command.method {
            Method::Pb => GroupMethod::Pb,
            Method::Bb => GroupMethod::Bb,
        },
        senders,
        sender_on_sequencer: !is_delay || senders > 1,
        groups: command.groups,
        history: command.history.unwrap_or(default.history),
        ..default
    })
}

fn of_directory(command: &Predict, lab: &Laboratory) -> Value {
    let service = match command.service {
        Service::Group => Directory::Group,
        Service::Rpc => Directory::Pair,
        Service::Nvram => Directory::Nvram,
        Service::Single => Directory::Single,
    };
    let took = |operation| ("ms", lab.operation_ms(operation, service));
    let (unit, simulated) = match command.quantity {
        Quantity::AppendDelete => took(Operation::AppendDelete),
        Quantity::TmpFile => took(Operation::TmpFile),
        Quantity::Lookup => took(Operation::Lookup),
        _ => ("per s", lab.lookups_per_s(command.servers.unwrap_or(service.servers()), command.clients)),
    };
    json!({
        "command": "papers predict",
        "quantity": name(command.quantity),
        "unit": unit,
        "simulated": simulated,
        "ours": null,
        "packets": null,
        "interrupts": null,
        "ours_packets": null,
    })
}

fn name(quantity: Quantity) -> String {
    quantity.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
}
