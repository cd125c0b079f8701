// SPDX-License-Identifier: GPL-2.0

//! Netlink dumps: a request in, each message's payload out.
//!
//! A sample every 50 ms must not start a process (`tc`, `nft`): where the CPU is
//! emulated each would cost as much as the interval. A socket belongs to the
//! network namespace that it was opened in, wherever it is used from.

use std::io;

use netlink_packet_core::{
    ErrorBuffer, NetlinkBuffer, NlasIterator, NLMSG_DONE, NLMSG_ERROR, NLM_F_DUMP, NLM_F_REQUEST,
};
use netlink_sys::SocketAddr;

const HEADER_BYTES: usize = 16;

/// A netlink socket that asks for dumps.
pub(super) struct Socket {
    socket: netlink_sys::Socket,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Socket {
    /// In this thread's network namespace; `protocol` is one of
    /// [`netlink_sys::protocols`].
    pub(super) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = netlink_sys::Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            socket,
            // The kernel fills at most 32 KiB for one answer.
            buffer: vec![0; 1 << 16],
            sequence: 0,
        })
    }

    /// Asks for everything of message type `kind` and hands each payload to `each`.
    pub(super) fn dump(
        &mut self,
        kind: u16,
        request: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = vec![0; HEADER_BYTES + request.len()];
        let length = u32::try_from(message.len()).map_err(io::Error::other)?;
        let mut header = NetlinkBuffer::new(&mut message);
        header.set_length(length);
        header.set_message_type(kind);
        header.set_flags(NLM_F_REQUEST | NLM_F_DUMP);
        header.set_sequence_number(self.sequence);
        header.payload_mut().copy_from_slice(request);
        self.socket.send(&message, 0)?;
        loop {
            let length = self.socket.recv(&mut &mut self.buffer[..], 0)?;
            let mut rest = self.buffer.get(..length).unwrap_or_default();
            while !rest.is_empty() {
                let message = NetlinkBuffer::new_checked(rest).map_err(io::Error::other)?;
                let next = (message.length() as usize).next_multiple_of(4);
                // What is left of an answer that was given up.
                let ours = message.sequence_number() == self.sequence;
                match message.message_type() {
                    _ if !ours => {}
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => {
                        let code = ErrorBuffer::new_checked(message.payload())
                            .map_err(io::Error::other)?
                            .code();
                        return match code {
                            None => Ok(()),
                            Some(code) => Err(io::Error::from_raw_os_error(-code.get())),
                        };
                    }
                    _ => each(message.payload()),
                }
                rest = rest.get(next..).unwrap_or_default();
            }
        }
    }
}

/// The attributes of a message, or of an attribute that holds others: kind, value.
/// A damaged one ends them.
pub(super) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(|attribute| {
        let attribute = attribute.ok()?;
        let value = attribute.into_inner();
        let end = usize::from(u16::from_ne_bytes(*value.first_chunk()?));
        let kind = u16::from_ne_bytes(*value.get(2..)?.first_chunk()?);
        // Two bits of the kind are flags.
        Some((kind & 0x3fff, value.get(4..end)?))
    })
}

/// The first attribute of that kind.
pub(super) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(found, value)| (found == kind).then_some(value))
}

/// An attribute in one piece, padded: for requests, and for tests.
pub(super) fn encode(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
