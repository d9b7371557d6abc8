//! The wire format through its public interface: what is written is read again, and what is read is never trusted.

mod datagram;
mod document;
mod explain;
mod frames;
mod hostile;
mod report;
mod strategies;
