//! Calls under adversity: endpoints driven by hand over a segment that loses, doubles and delays.

mod at_most_once;
mod chaos;
mod choice;
mod dead_servers;
mod forward;
mod hostile;
mod large;
mod lives;
mod ordinary;
mod push_back;
mod slots;
#[path = "../wire/strategies.rs"]
#[allow(dead_code)]
mod strategies;
mod world;
