//! A service, and a call to it.
//!
//! In one terminal start the service, in another call it:
//!
//! ```sh
//! cargo run -p unisono --example calls -- serve
//! cargo run -p unisono --example calls -- 'how many words are these?'
//! ```
//!
//! The client finds the server by itself. Start the service twice: each call goes to one of the two, and if one dies,
//! to the other. What a failed call means is in [`explain`].

use unisono::rpc::{Answer, CallFailure, Client, Port, PrivatePort, Request, ServeOptions, Server};
use unisono::{Bytes, Options};

/// Name of the service. A process that knows the name can serve it; `unisono rpc newport` makes ports that only their
/// owner can serve.
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

/// Answers a request with the number of its words.
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
        // Counting words twice does no harm. Where repeating would, ask the service what became of the call.
        CallFailure::Unknown => println!("a server took the call and died; it may be made again"),
        // The others say that the call did not happen, and why.
        failure => println!("{failure}"),
    }
}
