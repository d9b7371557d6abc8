//! What the protocol must bear, one adversity at a time.
//!
//! The simulator draws its faults at random. Here each test states one evil course of events outright: which datagrams
//! are lost or late, who crashes, whose application sleeps, what a liar sends; and then what must hold all the same.
//! The harness is in `network`; it knows no chance, so each test runs the same way every time. The comment at each test
//! says what goes wrong without the rule that it is about; numbers such as H22 are those of
//! `docs/protocol/deviations.md`.

mod ballots;
mod detection;
mod eavesdropper;
mod finding;
mod hostile_input;
mod joining;
mod leaving;
mod lists_and_policies;
mod migration;
mod multicasts;
mod network;
mod parting;
mod repair_and_flow;
mod resets;
mod versions;
