//! A counter that anybody may call, kept by a group: it survives `kill -9` of any one of its members, and no caller
//! notices.
//!
//! Start it in three terminals, call it from a fourth, and kill one of the three:
//!
//! ```sh
//! cargo run -p unisono --example open_counter -- serve
//! cargo run -p unisono --example open_counter -- add
//! ```
//!
//! The example `counter` does by hand what [`OpenGroup`] does here: it sends what was asked to the group, gives
//! newcomers the state, and recognises a call that a client repeats at another member because the first one died.
//! What is left to be written is what a counter is: [`Counter`].

use unisono::rpc::{Asked, Client, OpenGroup, Outcome, Port, PrivatePort, Service};
use unisono::{Bytes, GroupConfig, Options};

const NAME: &str = "open-counter";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::default();
    match std::env::args().nth(1).as_deref() {
        None => println!("type `serve`, `add` or `get`"),
        Some("serve") => {
            // An addition that was answered is held by two members.
            let config = GroupConfig { resilience: 1, ..GroupConfig::default() };
            let port = PrivatePort::from_name(NAME);
            let member = OpenGroup::open(NAME, &port, Counter(0), config, &options)?;
            println!(
                "{} members, the counter is at {}",
                member.group().members().len(),
                member.look(|c| c.0)
            );
            println!("{}", member.wait());
        }
        Some(call) => {
            let reply = Client::new(&options)?.call(Port::from_name(NAME), call.to_owned())?;
            println!("{}", String::from_utf8_lossy(&reply));
        }
    }
    Ok(())
}

/// The same at every member, at each place in the order.
struct Counter(i64);

impl Service for Counter {
    fn apply(&mut self, asked: &Asked<'_>) -> Outcome {
        match &asked.payload[..] {
            b"add" => self.0 += 1,
            b"get" => {}
            _ => return Outcome::Refuse("type `add` or `get`".into()),
        }
        Outcome::Reply(self.0.to_string().into())
    }

    fn snapshot(&self) -> Bytes {
        self.0.to_be_bytes().to_vec().into()
    }

    fn restore(&mut self, snapshot: &[u8]) {
        self.0 = snapshot.try_into().map_or(0, i64::from_be_bytes);
    }
}
