//! Datagrams in buffers like those of the driver of a real socket.

use bytes::BytesMut;

const BLOCK_BYTES: usize = 2048;

/// Returns a function that copies small datagrams side by side into a block.
pub(crate) fn receive() -> impl FnMut(&[u8]) -> BytesMut {
    let mut block = BytesMut::new();
    move |datagram| {
        if block.capacity() < datagram.len() {
            block = BytesMut::with_capacity(BLOCK_BYTES);
        }
        block.extend_from_slice(datagram);
        block.split()
    }
}
