//! A help desk of several processes: callers take a ticket, and the one process at the desk serves them all. When it is
//! killed, the next process in line is at the desk.
//!
//! Start it in three terminals, ask from a fourth, kill the process that answered, and ask again:
//!
//! ```sh
//! cargo run -p unisono --example desk -- help ann --form ann,bob,cleo
//! cargo run -p unisono --example desk -- help bob --form ann,bob,cleo
//! cargo run -p unisono --example desk -- help cleo --form ann,bob,cleo
//! cargo run -p unisono --example desk -- help ask "how do I print?"
//! ```
//!
//! The desk is a handler: each process claims it, and the first in line holds it. A ticket is a command, so no two callers
//! get the same number, whichever process dies. If the holder dies before its caller has the answer, the next holder
//! answers, with the same ticket: what the holder does besides answering must tell such a repeat by the ticket.

use std::error::Error;
use std::time::Duration;
use unisono::replica::{Command, NotRestored, Outcome, Replica, Server, StateMachine};
use unisono::rpc::{Client, Port, PrivatePort, Wishes};
use unisono::{Bytes, Formation, Options};

/// Number of tickets that were taken.
#[derive(Default)]
struct Tickets(u64);

impl StateMachine for Tickets {
    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        self.0 += 1;
        format!("ticket {}, {:?}", self.0, String::from_utf8_lossy(command.payload)).into()
    }

    fn take_over(&self, word: &Bytes, me: &Server) -> Bytes {
        format!("{}: served by {}", String::from_utf8_lossy(word), me.name).into()
    }

    fn snapshot(&self) -> Vec<Bytes> {
        vec![self.0.to_string().into()]
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        let tickets = String::from_utf8_lossy(&parts.concat()).parse();
        tickets.map(|tickets| self.0 = tickets).map_err(|_| NotRestored("the state is no number"))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [group, "ask", question] => {
            let wishes = Wishes { handler: Some("desk".into()), ..Wishes::default() };
            let (client, port) = (Client::new(&Options::default())?, Port::from_name(group));
            let answer = client.call_with(port, question.to_string(), wishes, Duration::from_secs(20))?;
            println!("{}", String::from_utf8_lossy(&answer));
        }
        [group, me, "--form", all] => keep(group, me, all)?,
        _ => println!("type GROUP NAME --form NAME,NAME,NAME to keep the desk, GROUP ask QUESTION to ask"),
    }
    Ok(())
}

fn keep(group: &str, me: &str, all: &str) -> Result<(), Box<dyn Error>> {
    let formation = Formation::majority_of(all.split(',').map(str::parse).collect::<Result<_, _>>()?);
    let options = Options { name: me.parse()?, ..Options::default() };
    let tickets = Replica::join_or_form(group, formation, Tickets::default(), &options)?;
    tickets.claim_handler("desk")?;
    tickets.serve(&PrivatePort::from_name(group))?;
    println!("the desk has served {} callers", tickets.look(|tickets| tickets.0));
    println!("the end: {}", tickets.wait());
    Ok(())
}
