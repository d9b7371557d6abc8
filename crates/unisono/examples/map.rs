//! A map that is the same in several processes and survives `kill -9` of any one of them, behind HTTP.
//!
//! Start it in three terminals, and use it from a fourth at any of the three:
//!
//! ```sh
//! cargo run -p unisono --example map -- home ann --form ann,bob,cleo 127.0.0.1:8001
//! cargo run -p unisono --example map -- home bob --form ann,bob,cleo 127.0.0.1:8002
//! cargo run -p unisono --example map -- home cleo --form ann,bob,cleo 127.0.0.1:8003
//! curl -X PUT -d soup 127.0.0.1:8001/dinner
//! curl 127.0.0.1:8002/dinner
//! curl -X DELETE 127.0.0.1:8003/dinner
//! ```
//!
//! A PUT or DELETE is answered when all members hold it, and its reply is the previous value. A GET returns a value at
//! least as new as every PUT that was answered before, whichever member answered it. `curl 127.0.0.1:8002/dinner?local`
//! returns what this member has applied, without asking the others. Status 503 says that the group gave no answer in
//! time; a change may then take effect once or not at all.

use axum::http::{Method, StatusCode, Uri};
use axum::{Router, extract::State, response::Result, routing::get};
use std::{collections::BTreeMap, error::Error, fmt::Display};
use unisono::replica::{Command, NotRestored, Outcome, Replica, StateMachine};
use unisono::{Bytes, Formation, Options};

#[derive(Default)]
struct Map(BTreeMap<String, String>);

impl StateMachine for Map {
    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        let words = String::from_utf8_lossy(command.payload);
        let previous = match words.split_once(' ') {
            Some((key, value)) => self.0.insert(key.into(), value.into()),
            None => self.0.remove(&*words),
        };
        previous.unwrap_or_default().into()
    }

    fn snapshot(&self) -> Vec<Bytes> {
        vec![serde_json::to_vec(&self.0).expect("a map of strings").into()]
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        let map = serde_json::from_slice(&parts.concat());
        map.map(|map| self.0 = map).map_err(|_| NotRestored("the state is no map"))
    }
}

fn unavailable(failure: impl Display) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, failure.to_string())
}

async fn read(State(map): State<Replica<Map>>, key: Uri) -> Result<String> {
    if key.query() != Some("local") {
        map.barrier_start().await.map_err(unavailable)?;
    }
    Ok(map.look(|map| map.0.get(key.path()).cloned()).ok_or(StatusCode::NOT_FOUND)?)
}

async fn change(State(map): State<Replica<Map>>, method: Method, key: Uri, value: String) -> Result<Bytes> {
    // A path contains no blank.
    let words = if method == Method::PUT { format!("{} {value}", key.path()) } else { key.path().into() };
    Ok(map.start(words).await.map_err(unavailable)?.reply)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, group, me, _, all, at] = &args[..] else { return Err("GROUP NAME --form NAMES ADDRESS".into()) };
    let formation = Formation::majority_of(all.split(',').map(str::parse).collect::<Result<_, _>>()?);
    let options = Options { name: me.parse()?, ..Options::default() };
    let map = Replica::join_or_form(group, formation, Map::default(), &options)?;
    let listener = tokio::net::TcpListener::bind(at).await?;
    println!("serving at {}", listener.local_addr()?);
    let routes = Router::new().route("/{key}", get(read).put(change).delete(change));
    Ok(axum::serve(listener, routes.with_state(map)).await?)
}
