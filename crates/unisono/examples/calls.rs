//! A service, and a call to it.
//!
//! In one terminal start the service, in another call it:
//!
//! ```sh
//! cargo run -p unisono --example calls -- serve
//! cargo run -p unisono --example calls -- 'how many words are these?'
//! ```
//!
//! Neither has to be told where the other is. Start the service twice: calls go to either, and when one dies to the
//! one that is left. What a call that came to nothing means is in [`explain`].

use unisono::rpc::{Answer, CallFailure, Client, Port, PrivatePort, Request, ServeOptions, Server};
use unisono::{Bytes, Options};

/// The name of the service. Whoever knows a name can serve it; `unisono rpc newport` makes ports that only their owner
/// can serve.
const NAME: &str = "words";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1).as_deref() {
        None => println!("type `serve`, or some words to be counted"),
        Some("serve") => {
            let port = PrivatePort::from_name(NAME);
            let server = Server::new(&port, ServeOptions::default(), &Options::default())?;
            println!("counting words at {}", server.address());
            // Two threads answer, this one and another, until the process ends.
            server.serve(2, count);
        }
        Some(text) => {
            let client = Client::new(&Options::default())?;
            match client.call(Port::from_name(NAME), text.to_owned()) {
                Ok(reply) => println!("{}", String::from_utf8_lossy(&reply)),
                Err(failure) => explain(&failure),
            }
        }
    }
    Ok(())
}

/// What the service does with a request.
fn count(request: &Request) -> Answer {
    match std::str::from_utf8(request.payload()) {
        Ok(text) => text.split_whitespace().count().to_string().into(),
        Err(_) => Answer::Refuse(Bytes::from_static(b"these are no words")),
    }
}

fn explain(failure: &CallFailure) {
    match failure {
        CallFailure::Refused(reason) => {
            println!("the service says no: {}", String::from_utf8_lossy(reason));
        }
        // Counting words twice does no harm. Where something would, ask the service what became of the call.
        CallFailure::Unknown => println!("a server took the call and died; it may be made again"),
        // The others say themselves that it did not happen, and why.
        failure => println!("{failure}"),
    }
}
