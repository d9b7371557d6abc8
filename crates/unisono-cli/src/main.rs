//! The `unisono` command: try a group out, look at it, measure it, simulate it.
//!
//! Each command is a module with its flags beside its code. What they share: [`arguments`] (the tree of commands),
//! [`settings`] (values from flags, environment and file), [`output`] (plain text for people, JSON lines for scripts),
//! [`problem`] (errors and their exit statuses), [`processes`] (members and floors that run as separate processes).

// `eprintln!` panics where standard error cannot be written; `output::tell` does not.
#![warn(clippy::print_stderr)]
#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod chat;
mod claims;
mod completions;
mod connection;
mod copies;
mod cut;
mod demo;
mod dir;
mod doctor;
mod everyone;
mod explain;
mod file;
mod force;
mod form;
mod gathering;
mod keygen;
mod lab;
mod lines;
mod listen;
mod location;
mod lock;
mod log;
mod look;
mod man;
mod notes;
mod opening;
mod order;
mod output;
mod papers;
mod passes;
mod pcap;
mod printer;
mod problem;
mod processes;
mod progress;
mod resender;
mod roster;
mod rpc;
mod seeds;
mod send;
mod settings;
mod signals;
mod sim;
mod text_file;
mod threads;
mod trial;
mod units;
mod watch;
mod worker;

use arguments::Command;
use look::View;
use output::Output;
use problem::Problem;
use settings::Settings;
use std::process::ExitCode;

fn main() -> ExitCode {
    let status = match arguments::read().and_then(|arguments| run(arguments.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => problem.report(),
    };
    notes::finish();
    status
}

fn run(command: Command) -> Result<(), Problem> {
    let settings = Settings::resolve(&command.common())?;
    log::begin(settings.log);
    let output = Output::new(&settings);
    match command {
        Command::Listen(command) => listen::run(command, &settings, &output),
        Command::Send(command) => send::run(command, &settings, &output),
        Command::Demo(command) => demo::run(command, &settings, &output),
        Command::Chat(command) => chat::run(command, &settings, &output),
        Command::Members(command) => look::run(View::Members, command.look, &settings, &output),
        Command::Status(command) => look::run(View::Status, command.look, &settings, &output),
        Command::Why(command) => look::run(View::Why, command.look, &settings, &output),
        Command::Stats(command) => look::run(View::Stats, command.look, &settings, &output),
        Command::Links(command) => look::run(View::Links, command.look, &settings, &output),
        Command::Order(command) => order::run(command, &settings, &output),
        Command::Lock(command) => lock::run(command, &settings, &output),
        Command::Force(command) => force::run(command, &settings, &output),
        Command::Rpc(command) => rpc::run(command, &settings, &output),
        Command::Dir(command) => dir::run(*command, &settings, &output),
        Command::File(command) => file::run(&command, &settings, &output),
        Command::Doctor(command) => doctor::run(command, &settings, &output),
        Command::Bench(command) => bench::run(command, &settings, &output),
        Command::Lab(command) => lab::run(command, &output),
        Command::Sim(command) => sim::run(command, &output),
        Command::Papers(command) => papers::run(command, &output),
        Command::Explain(command) => explain::run(command, &settings, &output),
        Command::Keygen(command) => keygen::run(command, &output),
        Command::Completions(command) => completions::run(&command, &output),
        Command::Man(command) => man::run(&command, &output),
        Command::LockGuard(command) => lock::guard::run(&command),
        Command::Worker(command) => Ok(worker::run(&command)?),
    }
}
