//! `unisono papers predict`: one number, for conditions that no paper has.

use super::Changes;
use super::run::SEED;
use crate::arguments;
use crate::output::{Output, several};
use crate::problem::Problem;
use crate::progress;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::time::Duration;
use unisono_sim::papers::{
    Laboratory, MachineName, Measured, Method as GroupMethod, Operation, Service, Side, Trial,
};

/// Maximum number of members, of clients, and of groups times members: what the testbed simulates within minutes.
const NODES_MAX: usize = 256;
/// Maximum size of a message: our own core sends a larger one in several datagrams, whatever FLIP does.
const BYTES_MAX: u64 = 15_000;

/// Time after which the command says that it simulates.
const PATIENCE: Duration = Duration::from_secs(2);

/// Predict one number on the testbed, for any conditions
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono papers predict delay --members 9 --resilience 5 --set us=x2")]
pub(super) struct Predict {
    /// What to predict
    #[arg(value_enum)]
    quantity: Asked,

    #[command(flatten)]
    of_group: OfGroup,

    #[command(flatten)]
    of_directory: OfDirectory,

    #[command(flatten)]
    changes: Changes,

    /// Seed of the collisions and draws
    #[arg(long, value_name = "N", value_parser = arguments::within::<u64>(0..=u64::MAX))]
    seed: Option<u64>,
}

/// Conditions of a group.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Of a group (delay, throughput)")]
struct OfGroup {
    /// The machines [default: mc68030]
    #[arg(long, value_enum)]
    machine: Option<Machine>,

    /// Number of members of a group [default: 2]
    #[arg(long, value_name = "N", value_parser = arguments::within::<usize>(2..=NODES_MAX))]
    members: Option<usize>,

    /// Bytes of a message [default: 0]
    #[arg(long, value_name = "B", value_parser = arguments::within::<u64>(0..=BYTES_MAX))]
    bytes: Option<u64>,

    /// Resilience degree: fewer than members [default: 0]
    #[arg(long, value_name = "R", value_parser = arguments::within::<u8>(0..=u8::MAX))]
    resilience: Option<u8>,

    /// Who multicasts a message: the sequencer (pb) or its sender (bb) [default: pb]
    #[arg(long, value_enum)]
    method: Option<Method>,

    /// Number of members that send: one alone is not on the sequencer's node, of several one is [default: 1 for a delay, all
    /// for throughput]
    #[arg(long, value_name = "S", value_parser = arguments::within::<usize>(1..=NODES_MAX))]
    senders: Option<usize>,

    /// Number of groups on one Ethernet [default: 1]
    #[arg(long, value_name = "G", value_parser = arguments::within::<usize>(1..=NODES_MAX))]
    groups: Option<usize>,

    /// Messages that the history holds [default: 128, and 20 for mc68020]
    #[arg(long, value_name = "H", value_parser = arguments::within::<u64>(2..=4096))]
    history: Option<u64>,
}

/// Conditions of the directory service.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Of the directory service (lookups, lookup, append-delete, tmp-file)")]
struct OfDirectory {
    /// The service: rpc is a pair of servers [default: group]
    #[arg(long, value_enum)]
    service: Option<ServiceName>,

    /// Number of servers, for lookups [default: those of the service; rpc has 2 and single 1]
    #[arg(long, value_name = "N", value_parser = arguments::within::<usize>(1..=9))]
    servers: Option<usize>,

    /// Number of clients, for lookups [default: 7]
    #[arg(long, value_name = "C", value_parser = arguments::within::<usize>(1..=16))]
    clients: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Asked {
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
enum ServiceName {
    Group,
    Rpc,
    Nvram,
    Single,
}

impl Predict {
    /// Refuses an option that has no meaning for the quantity.
    fn check(&self) -> Result<(), Problem> {
        let is_of_group = matches!(self.quantity, Asked::Delay | Asked::Throughput);
        let is_lookups = self.quantity == Asked::Lookups;
        let (group, directory) = (&self.of_group, &self.of_directory);
        let given = [
            ("machine", group.machine.is_some(), is_of_group),
            ("members", group.members.is_some(), is_of_group),
            ("bytes", group.bytes.is_some(), is_of_group),
            ("resilience", group.resilience.is_some(), is_of_group),
            ("method", group.method.is_some(), is_of_group),
            ("senders", group.senders.is_some(), is_of_group),
            ("groups", group.groups.is_some(), is_of_group),
            ("history", group.history.is_some(), is_of_group),
            ("service", directory.service.is_some(), !is_of_group),
            ("servers", directory.servers.is_some(), is_lookups),
            ("clients", directory.clients.is_some(), is_lookups),
        ];
        if let Some((option, ..)) =
            given.into_iter().find(|(_, is_given, has_meaning)| *is_given && !has_meaning)
        {
            let quantity = name(self.quantity);
            return Err(Problem::usage(format!("--{option} has no meaning for the quantity {quantity}")));
        }
        let service = directory.service();
        match directory.servers {
            Some(servers)
                if matches!(service, Service::Pair | Service::Single) && servers != service.servers() =>
            {
                Err(Problem::usage(format!("--servers {servers}: this --service has {}", service.servers())))
            }
            _ => Ok(()),
        }
    }

    /// Machines whose costs the quantity depends on. What a machine lacks it has from the mc68030.
    fn machines(&self) -> Vec<MachineName> {
        match (self.quantity, self.of_group.machine) {
            (Asked::Delay | Asked::Throughput, Some(Machine::Mc68020)) => {
                vec![MachineName::Mc68030, MachineName::Mc68020]
            }
            (Asked::Delay | Asked::Throughput, _) => vec![MachineName::Mc68030],
            _ => vec![MachineName::Mc68030, MachineName::Sun360],
        }
    }
}

impl OfDirectory {
    fn service(&self) -> Service {
        match self.service {
            Some(ServiceName::Group) | None => Service::Group,
            Some(ServiceName::Rpc) => Service::Pair,
            Some(ServiceName::Nvram) => Service::Nvram,
            Some(ServiceName::Single) => Service::Single,
        }
    }
}

pub(super) fn run(command: &Predict, output: &Output) -> Result<(), Problem> {
    command.check()?;
    let costs = command.changes.costs()?;
    command.changes.check_machines(&costs, &name(command.quantity), &command.machines())?;
    let lab = Laboratory::new(costs, command.seed.unwrap_or(SEED));
    let under_way =
        progress::tell_if_long(PATIENCE, || "simulates: many members and large messages take minutes …");
    let answer = match command.quantity {
        Asked::Delay | Asked::Throughput => of_group(command, &lab),
        _ => of_directory(command, &lab),
    };
    drop(under_way);
    let answer = answer?;
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
    let is_delay = command.quantity == Asked::Delay;
    let [simulated, ours] = [Side::Papers, Side::Ours].map(|side| lab.trial(&trial, side));
    for (whose, measured) in [("the papers' protocol", &simulated), ("our own protocol", &ours)] {
        if !measured.delay_us.is_finite() {
            return Err(Problem::failed(nothing(whose, measured)));
        }
    }
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

/// Says why a trial has no result: no message was delivered.
fn nothing(whose: &str, measured: &Measured) -> String {
    let why = match measured.lost {
        0 => "no message came back to its sender in an hour of simulated time".into(),
        lost => format!("full receive rings lost {} (receive_ring)", several(lost, "packet")),
    };
    format!("with these costs {whose} delivers nothing: {why}")
}

fn trial(command: &Predict) -> Result<Trial, Problem> {
    let of = &command.of_group;
    let (members, groups) = (of.members.unwrap_or(2), of.groups.unwrap_or(1));
    let resilience = of.resilience.unwrap_or(0);
    Problem::beyond(resilience, members as u64)?;
    if members * groups > NODES_MAX {
        return Err(Problem::usage(format!(
            "--groups {groups} of --members {members} are more than {NODES_MAX} nodes"
        )));
    }
    let default = Trial::new(match of.machine {
        Some(Machine::Mc68020) => MachineName::Mc68020,
        Some(Machine::Mc68030) | None => MachineName::Mc68030,
    });
    let senders = of.senders.unwrap_or(if command.quantity == Asked::Delay { 1 } else { members });
    if senders > members {
        return Err(Problem::usage(format!("--senders {senders} are more than the {members} members")));
    }
    Ok(Trial {
        members,
        bytes: of.bytes.unwrap_or(0),
        resilience: resilience.into(),
        method: match of.method {
            Some(Method::Bb) => GroupMethod::Bb,
            Some(Method::Pb) | None => GroupMethod::Pb,
        },
        senders,
        // As in the papers' rows.
        sender_on_sequencer: senders > 1,
        groups,
        history: of.history.unwrap_or(default.history),
        ..default
    })
}

fn of_directory(command: &Predict, lab: &Laboratory) -> Result<Value, Problem> {
    let (of, service) = (&command.of_directory, command.of_directory.service());
    let took = |operation| ("ms", lab.operation_ms(operation, service));
    let (unit, simulated) = match command.quantity {
        Asked::AppendDelete => took(Operation::AppendDelete),
        Asked::TmpFile => took(Operation::TmpFile),
        Asked::Lookup => took(Operation::Lookup),
        _ => ("per s", lab.lookups_per_s(of.servers.unwrap_or(service.servers()), of.clients.unwrap_or(7))),
    };
    if !simulated.is_finite() {
        return Err(Problem::failed("with these costs no call of a client is answered"));
    }
    Ok(json!({
        "command": "papers predict",
        "quantity": name(command.quantity),
        "unit": unit,
        "simulated": simulated,
        "ours": null,
        "packets": null,
        "interrupts": null,
        "ours_packets": null,
    }))
}

fn name(quantity: Asked) -> String {
    quantity.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
}
