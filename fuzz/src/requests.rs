//! Requests and replies of the directory service, and the texts that people type.

use crate::pages;
use bytes::Bytes;
use unisono_table::{Capability, Path, Reply, Request};

/// Reads the input as everything. What can be read is written and read again.
pub fn run(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let _ = Request::kind(&bytes);
    if let Some(request) = Request::decode(&bytes) {
        assert_eq!(Request::decode(&request.encode()), Some(request));
    }
    if let Some(reply) = Reply::decode(&bytes) {
        assert_eq!(Reply::decode(&reply.encode()), Some(reply));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(capability) = text.parse::<Capability>() {
        assert_eq!(capability.reveal().parse(), Ok(capability));
    }
    if let Ok(path) = text.parse::<Path>() {
        assert_eq!(path.to_string().parse(), Ok(path));
    }
}

/// Returns the examples of the page of the protocol, and texts.
pub fn seeds() -> Vec<Vec<u8>> {
    let capability = "000000000000000000000000000000aa:0000000000000001:ff:000000000000000000000000000000bb";
    let mut seeds = pages::of_directory();
    seeds.extend([capability, "home/ann/letter", "a/../b"].map(|text| text.as_bytes().to_vec()));
    seeds
}
