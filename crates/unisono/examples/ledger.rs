//! Accounts that three machines keep on their disks, sealed with a key: any two of the three go on, with all that was
//! answered, whatever crashed or lost power in between.
//!
//! Make a key and copy it to each machine (`unisono keygen ledger.key`). Then start one server on each, with its id, its
//! folder, its address, and the addresses of all. A server waits for the others, however late they start:
//!
//! ```sh
//! export SEEDS=192.0.2.1,192.0.2.2,192.0.2.3
//! cargo run -p unisono --example ledger -- serve 1 /var/lib/ledger ledger.key 192.0.2.1:7195 $SEEDS   # machine 1
//! cargo run -p unisono --example ledger -- serve 2 /var/lib/ledger ledger.key 192.0.2.2:7195 $SEEDS   # machine 2
//! cargo run -p unisono --example ledger -- serve 3 /var/lib/ledger ledger.key 192.0.2.3:7195 $SEEDS   # machine 3
//! cargo run -p unisono --example ledger -- add ann 5 ledger.key $SEEDS                                # any machine
//! ```
//!
//! `ann 5`, typed at a server, adds 5 to the account `ann` too, and `ann` alone prints its balance. To try it on one
//! machine, give the servers three folders, the addresses 127.0.0.1:7195, 127.0.0.1:7197 and 127.0.0.1:7199, and these
//! three, ports included, as seeds.
//!
//! After the first start add `--existing`: then a disk that is not mounted is noticed, not taken for an empty one. If a
//! disk is lost for ever, start its server once with an empty folder and `--replace`.

use std::{
    collections::BTreeMap, error::Error, fmt::Display, net::SocketAddr, process::ExitCode, time::Duration,
};
use unisono::replica::{Command, DiskOptions, NotRestored, Outcome, Replica, ReplicaOptions, StateMachine};
use unisono::rpc::{Client, Port, PrivatePort};
use unisono::{Bytes, Key, Options};

const USAGE: &str = "type, on each of three machines, with the addresses of all three as SEEDS:
  ledger serve ID FOLDER KEY ADDRESS SEEDS [--existing | --replace]
on any machine:
  ledger add ACCOUNT AMOUNT KEY SEEDS
for example, on one machine, after `unisono keygen ledger.key`:
  export SEEDS=127.0.0.1:7195,127.0.0.1:7197,127.0.0.1:7199
  ledger serve 1 /tmp/ledger-1 ledger.key 127.0.0.1:7195 $SEEDS
  ledger serve 2 /tmp/ledger-2 ledger.key 127.0.0.1:7197 $SEEDS
  ledger serve 3 /tmp/ledger-3 ledger.key 127.0.0.1:7199 $SEEDS
  ledger add ann 5 ledger.key $SEEDS
later starts: --existing refuses an empty folder; --replace lets an empty folder take the place of a lost disk";

/// Interval at which a server that waits for others says so.
const SAYS_EVERY: Duration = Duration::from_secs(5);

/// The balance of each account.
#[derive(Default)]
struct Ledger(BTreeMap<String, i64>);

impl StateMachine for Ledger {
    /// Adds an amount to an account; replies with the balance.
    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        let words = String::from_utf8_lossy(command.payload);
        let parsed =
            words.split_once(' ').and_then(|(account, amount)| Some((account, amount.parse::<i64>().ok()?)));
        let Some((account, amount)) = parsed else { return Outcome::Refuse("type: ACCOUNT AMOUNT".into()) };
        let balance = self.0.entry(account.into()).or_default();
        *balance = balance.wrapping_add(amount);
        balance.to_string().into()
    }

    fn snapshot(&self) -> Vec<Bytes> {
        vec![serde_json::to_vec(&self.0).expect("a map of strings").into()]
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        let accounts = serde_json::from_slice(&parts.concat());
        accounts.map(|accounts| self.0 = accounts).map_err(|_| NotRestored("the state is no ledger"))
    }
}

fn serve(disk: DiskOptions, address: SocketAddr, options: &Options) -> Result<(), Box<dyn Error>> {
    let id = disk.id;
    let ledger =
        Replica::begin_on_disk("ledger", disk, Ledger::default(), ReplicaOptions::default(), options)?;
    // `Replica::open_on_disk` waits as long, and says nothing: until a majority of the three is there; for the first
    // time, until all are.
    while !ledger.ready().wait(SAYS_EVERY)? {
        let (_, waits_for) = ledger.disk().ok_or("the replica has no disk")?;
        let others: Vec<String> = waits_for.iter().map(u8::to_string).collect();
        eprintln!("server {id}, at {address}, waits for servers {}", others.join(", "));
    }
    ledger.serve(&PrivatePort::from_name("ledger"))?;
    println!("server {id} serves");
    for line in std::io::stdin().lines() {
        let line = line?;
        if line.contains(' ') {
            // Answered once two of the three disks have it. It takes effect once, whichever servers crash meanwhile.
            print(ledger.command(line).map(|done| String::from_utf8_lossy(&done.reply).into_owned()));
        } else {
            // A read that includes everything that was answered before, at any server.
            print(ledger.read(|ledger| ledger.0.get(&line).copied().unwrap_or_default()));
        }
    }
    Ok(())
}

fn print(answer: Result<impl Display, impl Display>) {
    match answer {
        Ok(answer) => println!("{answer}"),
        Err(failure) => println!("error: {failure}"),
    }
}

fn run(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let options = |key: &str, seeds: &str| -> Result<Options, Box<dyn Error>> {
        let advice =
            |error| format!("{error}; `unisono keygen {key}` makes a key, to be copied to every machine");
        let seeds = seeds.split(',').map(String::from).collect();
        Ok(Options { key: Some(Key::load(key).map_err(advice)?), seeds, ..Options::default() })
    };
    match arguments {
        ["serve", id, folder, key, address, seeds, flags @ ..]
            if matches!(flags, [] | ["--existing"] | ["--replace"]) =>
        {
            let id = id.parse().map_err(|_| format!("ID is 1, 2 or 3, not {id}"))?;
            let address = address.parse().map_err(|_| {
                format!("ADDRESS is that of this server, with a port, as in 192.0.2.1:7195, not {address}")
            })?;
            let (existing, replace) = (flags == ["--existing"], flags == ["--replace"]);
            let disk = DiskOptions { existing, replace, ..DiskOptions::of_three(id, folder) };
            serve(disk, address, &Options { bind: Some(address), ..options(key, seeds)? })
        }
        ["add", account, amount, key, seeds] => {
            let call = Client::new(&options(key, seeds)?)?
                .call(Port::from_name("ledger"), format!("{account} {amount}"))?;
            println!("{}", String::from_utf8_lossy(&call));
            Ok(())
        }
        _ => Err(USAGE.into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
