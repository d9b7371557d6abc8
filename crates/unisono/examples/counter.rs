//! A counter that is the same in several processes and survives `kill -9` of any one of them. Any process may call it.
//!
//! Start it in three terminals, call it from a fourth, kill one of the three, and go on calling:
//!
//! ```sh
//! cargo run -p unisono --example counter -- tally ann --form ann,bob,cleo
//! cargo run -p unisono --example counter -- tally bob --form ann,bob,cleo
//! cargo run -p unisono --example counter -- tally cleo --form ann,bob,cleo
//! cargo run -p unisono --example counter -- tally add 5
//! ```
//!
//! Numbers typed at a member are added too. Start a killed member again with the same words: it joins the others and
//! gets the value from one of them, and from another one if that one leaves or dies meanwhile.
//!
//! The three form the group together, so it is founded once. A process alone never founds a second counter that begins
//! at 0.

use std::error::Error;
use unisono::replica::{Command, NotRestored, Outcome, Replica, StateMachine};
use unisono::rpc::{Client, Port, PrivatePort};
use unisono::{Bytes, Formation, Options};

#[derive(Default)]
struct Counter(i64);

impl StateMachine for Counter {
    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        match String::from_utf8_lossy(command.payload).parse::<i64>() {
            Ok(number) => self.0 = self.0.wrapping_add(number),
            Err(_) => return Outcome::Refuse("type a number to add".into()),
        }
        self.0.to_string().into()
    }

    fn snapshot(&self) -> Vec<Bytes> {
        vec![self.0.to_string().into()]
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        let value = String::from_utf8_lossy(&parts.concat()).parse();
        value.map(|value| self.0 = value).map_err(|_| NotRestored("the state is no number"))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [group, "add", number] => {
            let call = Client::new(&Options::default())?.call(Port::from_name(group), number.to_string())?;
            println!("{}", String::from_utf8_lossy(&call));
        }
        [group, me, "--form", all] => keep(group, me, all)?,
        _ => println!("type GROUP NAME --form NAME,NAME,NAME to keep a counter, GROUP add NUMBER to call it"),
    }
    Ok(())
}

fn keep(group: &str, me: &str, all: &str) -> Result<(), Box<dyn Error>> {
    let formation = Formation::majority_of(all.split(',').map(str::parse).collect::<Result<_, _>>()?);
    let options = Options { name: me.parse()?, ..Options::default() };
    let counter = Replica::join_or_form(group, formation, Counter::default(), &options)?;
    counter.serve(&PrivatePort::from_name(group))?;
    println!("the counter is at {}", counter.look(|counter| counter.0));
    for line in std::io::stdin().lines() {
        match counter.command(line?) {
            Ok(done) => println!("{}", String::from_utf8_lossy(&done.reply)),
            Err(failure) => println!("{failure}"),
        }
    }
    Ok(())
}
