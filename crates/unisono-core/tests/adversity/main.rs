//! The faults that the protocol must bear, one at a time.
//!
//! The simulator draws its faults at random. Here each test states one bad course of events: which datagrams are lost
//! or late, which members crash, whose application sleeps, what a lying member sends. Then it checks what must hold all
//! the same. The harness is in `network`; it uses no random numbers of its own, so each test runs the same way every
//! time. The comment at each test says what goes wrong without the rule that the test is about. Numbers such as H22 are
//! those of `docs/protocol/deviations.md`.

mod ballots;
mod confirming;
mod detection;
mod early;
mod eavesdropper;
mod ending;
mod finding;
mod floors;
mod halting;
mod hostile_input;
mod joining;
mod leaving;
mod lists_and_policies;
mod migration;
mod multicasts;
mod network;
mod notes;
mod parting;
mod progress;
mod qualities;
mod repair_and_flow;
mod resets;
mod ring;
mod scope;
mod switch;
mod unreliable;
mod versions;
