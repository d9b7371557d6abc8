//! Calls under adversity: endpoints driven by hand over a segment that loses, doubles and delays.

mod at_most_once;
mod ordinary;
mod world;
