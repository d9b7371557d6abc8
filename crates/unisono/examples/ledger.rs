//! Accounts that three machines keep on their disks, sealed with a key: any two of the three go on, with all that was
//! answered, whatever crashed or lost power in between.
//!
//! Make a key and copy it to each machine (`unisono keygen ledger.key`). Then start one server on each, with its id, its
//! folder, its address, and the addresses of all:
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
//! machine, give the servers three folders and the addresses 127.0.0.1:7195, 127.0.0.1:7197 and 127.0.0.1:7199.

use std::{collections::BTreeMap, error::Error, fmt::Display};
use unisono::replica::{Command, DiskOptions, NotRestored, Outcome, Replica, ReplicaOptions, StateMachine};
use unisono::rpc::{Client, Port, PrivatePort};
use unisono::{Bytes, Key, Options};

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

fn serve(id: u8, folder: &str, options: &Options) -> Result<(), Box<dyn Error>> {
    let disk = DiskOptions::of_three(id, folder);
    // Returns when this server serves: when a majority of the three is there; for the first time, when all are.
    let ledger =
        Replica::open_on_disk("ledger", disk, Ledger::default(), ReplicaOptions::default(), options)?;
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

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let options = |key: &str, seeds: &str| -> Result<Options, Box<dyn Error>> {
        let seeds = seeds.split(',').map(String::from).collect();
        Ok(Options { key: Some(Key::load(key)?), seeds, ..Options::default() })
    };
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", id, folder, key, address, seeds] => {
            let options = Options { bind: Some(address.parse()?), ..options(key, seeds)? };
            serve(id.parse()?, folder, &options)
        }
        ["add", account, amount, key, seeds] => {
            let call = Client::new(&options(key, seeds)?)?
                .call(Port::from_name("ledger"), format!("{account} {amount}"))?;
            println!("{}", String::from_utf8_lossy(&call));
            Ok(())
        }
        _ => Err("type: serve ID FOLDER KEY ADDRESS SEEDS, or: add ACCOUNT AMOUNT KEY SEEDS".into()),
    }
}
