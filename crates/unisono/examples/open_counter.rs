//! A counter that any client may call, kept by a group. If a member is killed with `kill -9`, the others go on, and
//! no client notices.
//!
//! Start it in three terminals, call it from a fourth, and kill one of the three:
//!
//! ```sh
//! cargo run -p unisono --example open_counter -- serve
//! cargo run -p unisono --example open_counter -- add
//! ```
//!
//! The example `counter` does by hand what [`OpenGroup`] does here: it sends calls to the group, sends the state to
//! joiners, and recognises a call that a client repeats at another member because the first one died. What remains to
//! be written is the counter itself: [`Counter`].

use unisono::rpc::{Asked, Client, OpenGroup, Outcome, Port, PrivatePort, Service};
use unisono::{Bytes, GroupConfig, Options};

const NAME: &str = "open-counter";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::default();
    match std::env::args().nth(1).as_deref() {
        None => println!("type `serve`, `add` or `get`"),
        Some("serve") => {
            // Two members hold an addition that was answered.
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

/// The counter; at each seqno it has the same value at every member.
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
