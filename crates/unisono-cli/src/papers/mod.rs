//! `unisono papers`: the papers' tables and figures again, on a simulated testbed of their time and on this machine.
//!
//! The testbed is in the simulator; here are the commands, the report and the page about it.

mod figures;
mod here;
mod page;
mod predict;
mod report;
mod run;
mod tables;

use crate::arguments::Common;
use crate::lab::quality::Rate;
use crate::output::{Output, several};
use crate::problem::Problem;
use crate::sim::Manner;
use clap::{Args, Subcommand};
use std::collections::BTreeMap;
use unisono_sim::papers::{Change, Costs, MachineName, points};

/// Run the papers' measurements again, on a simulated testbed of their time
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono papers run KT93-27 --quick")]
pub(crate) struct Papers {
    #[command(subcommand)]
    what: What,

    #[command(flatten)]
    manner: Manner,
}

#[derive(Debug, Subcommand)]
enum What {
    List(List),
    Costs(ShowCosts),
    Run(run::Run),
    Predict(predict::Predict),
}

/// Name the papers' figures, with the number of points of each
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono papers list")]
struct List {}

/// Print every constant of the testbed, with its origin
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono papers costs")]
struct ShowCosts {
    #[command(flatten)]
    changes: Changes,
}

/// How the testbed differs from the papers'.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "The testbed")]
struct Changes {
    /// Change costs: to a value, or to a multiple of what they are; `papers costs` names them
    #[arg(long = "set", value_name = "KEY=VALUE|KEY=xFACTOR", value_delimiter = ',')]
    set: Vec<String>,

    /// Rate of the simulated Ethernet
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
}

impl Changes {
    fn are_none(&self) -> bool {
        self.set.is_empty() && self.rate.is_none()
    }

    /// Returns the costs with these changes.
    fn costs(&self) -> Result<Costs, Problem> {
        if self.rate.is_some() && self.set.iter().any(|change| key(change) == "rate") {
            return Err(Problem::usage(
                "--rate and --set rate both give the rate of the Ethernet: leave one out",
            ));
        }
        let mut costs = Costs::default();
        // What rho divides is divided before it is changed by itself.
        let (rho, others): (Vec<_>, Vec<_>) = self.set.iter().partition(|change| key(change) == "rho");
        for change in rho.into_iter().chain(others) {
            costs.set(change).map_err(|error| Problem::usage(format!("--set {change}: {error}")))?;
        }
        if let Some(rate) = self.rate {
            let change = Change::To(rate.bits() as f64 / 1e6);
            costs
                .change("rate", change)
                .map_err(|error| Problem::usage(format!("--rate {rate}: {error}")))?;
        }
        Ok(costs)
    }

    /// Refuses a cost of machines that the quantity of this name does not depend on.
    fn check_machines(&self, costs: &Costs, quantity: &str, machines: &[MachineName]) -> Result<(), Problem> {
        for change in &self.set {
            let known = costs.parameters().iter().filter(|parameter| parameter.parameter == key(change));
            let of: Vec<MachineName> = known.map(|parameter| parameter.machine).collect();
            if let [machine, ..] = of[..]
                && !of.iter().any(|machine| machines.contains(machine))
            {
                return Err(Problem::usage(format!(
                    "--set {change}: a cost of {} alone, which {quantity} does not depend on here",
                    machine.name()
                )));
            }
        }
        Ok(())
    }
}

/// Returns the name of the cost that a change is for.
fn key(change: &str) -> &str {
    change.split_once('=').map_or(change, |(key, _)| key)
}

impl Papers {
    /// Returns the common flags.
    pub(crate) fn common(&self) -> Common {
        self.manner.common()
    }
}

pub(crate) fn run(command: Papers, output: &Output) -> Result<(), Problem> {
    match command.what {
        What::List(_) => list(output),
        What::Costs(command) => costs(&command, output),
        What::Run(command) => run::run(&command, output),
        What::Predict(command) => predict::run(&command, output),
    }
}

fn list(output: &Output) -> Result<(), Problem> {
    let mut figures: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for point in points() {
        let ids = figures.entry((point.paper().into(), point.figure().into())).or_default();
        if ids.last() != Some(&point.id) {
            ids.push(point.id);
        }
    }
    for ((paper, figure), ids) in figures {
        let count = several(ids.len() as u64, "point");
        output.say(format_args!("{figure:20} {count:>10}: {}", ids.join(", ")))?;
        output.object(&serde_json::json!({"paper": paper, "figure": figure, "points": ids}))?;
    }
    Ok(())
}

fn costs(command: &ShowCosts, output: &Output) -> Result<(), Problem> {
    for parameter in command.changes.costs()?.parameters() {
        output.say(format_args!(
            "{:14} {:8} {:>9} {:8} {:8} {:28} {}",
            parameter.parameter,
            parameter.machine.name(),
            figures::number(parameter.value),
            parameter.unit,
            parameter.origin.name(),
            parameter.from.unwrap_or_default(),
            parameter.meaning
        ))?;
        output.object(parameter)?;
    }
    Ok(())
}
