//! Processes that elect a leader and share locks, with `unisono::locks`.
//!
//! Start it in three terminals:
//!
//! ```sh
//! cargo run -p unisono --example lock -- home ann --form ann,bob,cleo
//! cargo run -p unisono --example lock -- home bob --form ann,bob,cleo
//! cargo run -p unisono --example lock -- home cleo --form ann,bob,cleo
//! ```
//!
//! One of them says that it leads, and with which fence. Type `acquire stove` in two of them: the second one waits in
//! line until `release stove` is typed in the first, or the first is killed. Any other line is work: the leader does
//! it, the others refuse it. Kill the leader, or stop it for a while with `kill -STOP`: another one leads, with a
//! higher fence.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use unisono::locks::{Held, LockService};
use unisono::replica::{Founding, ReplicaOptions};
use unisono::{Formation, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, group, me, _, all] = &args[..] else { return Err("type GROUP NAME --form NAMES".into()) };
    let formation = Formation::majority_of(all.split(',').map(str::parse).collect::<Result<_, _>>()?);
    let options = Options { name: me.parse()?, ..Options::default() };
    let founding = Founding::JoinOrForm(formation);
    let notice = |notice| eprintln!("{notice:?}");
    let locks = LockService::open(group, founding, ReplicaOptions::default(), &options, notice)?;
    println!("entered");
    let leading = elect(&locks);
    let held = Arc::<Mutex<BTreeMap<String, Held>>>::default();
    for line in std::io::stdin().lines() {
        let line = line?;
        match line.split_once(' ') {
            Some(("acquire", name)) => acquire(&locks, name.to_owned(), &held),
            Some(("release", name)) => {
                let lock = held.lock().unwrap().remove(name);
                match lock.map(Held::release) {
                    Some(Ok(())) => println!("released {name}"),
                    Some(Err(failure)) => println!("{failure}"),
                    None => println!("{name} is not held"),
                }
            }
            // The leader would send the fence along with its work.
            _ => match *leading.lock().unwrap() {
                Some(fence) => println!("done with fence {fence}: {line}"),
                None => println!("not done: {line}"),
            },
        }
    }
    locks.end(Duration::from_secs(1));
    Ok(())
}

/// Takes part in the election. Returns where the fence is while this process leads.
fn elect(locks: &LockService) -> Arc<Mutex<Option<u64>>> {
    let leading = Arc::<Mutex<Option<u64>>>::default();
    let (locks, shown) = (locks.clone(), Arc::clone(&leading));
    thread::spawn(move || {
        let ended = locks.lead("leader", |fence| {
            *shown.lock().unwrap() = fence;
            match fence {
                Some(fence) => println!("leading with fence {fence}"),
                None => println!("not leading"),
            }
        });
        println!("{ended}");
    });
    leading
}

/// Waits in line in a thread of its own.
fn acquire(locks: &LockService, name: String, held: &Arc<Mutex<BTreeMap<String, Held>>>) {
    let (locks, held) = (locks.clone(), Arc::clone(held));
    thread::spawn(move || match locks.acquire(&name) {
        Ok(lock) => {
            let fence = lock.standing().fence();
            held.lock().unwrap().insert(name.clone(), lock);
            match fence {
                Some(fence) => println!("acquired {name} with fence {fence}"),
                None => println!("lost {name}"),
            }
        }
        Err(failure) => println!("{failure}"),
    });
}
