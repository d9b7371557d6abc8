//! Calls under faults: endpoints driven by hand over a network that loses, duplicates and delays datagrams.

mod at_most_once;
mod chaos;
mod choice;
mod dead_servers;
mod entitled;
mod forward;
mod hostile;
mod instances;
mod large;
mod lives;
mod ordinary;
#[path = "../common/plain_agreement.rs"]
mod plain_agreement;
mod push_back;
mod slots;
mod strangers;
#[path = "../wire/strategies.rs"]
#[allow(dead_code)]
mod strategies;
mod trickle;
mod world;
