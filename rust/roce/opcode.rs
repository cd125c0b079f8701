// SPDX-License-Identifier: GPL-2.0

//! The BTH opcodes, each once.
//!
//! An opcode byte comes in; its transport service, its part in the conversation
//! and the length of its headers go out. The upper three bits of the byte name
//! the service, the lower five the operation (IBTA vol. 1, 9.2.1); the CNP
//! stands outside of that scheme (Annex A17).
//!
//! Listed are the opcodes that soft-RoCE can deliver to a QP, and the CNP. The
//! reliable datagram service is left out on purpose: no RoCE device offers such
//! a QP, so its packets are as unknown as an unassigned opcode.

use Kind::{Ack, AtomicAck, ReadResponse, Request};
use Service::{Rc, Uc, Ud};

/// Opcode of a congestion notification packet (Annex A17).
pub const CNP: u8 = 0x81;

/// A transport service: the QP type that a packet speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// The part of a packet in the conversation between two QPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// From the requester: SEND, RDMA WRITE, RDMA READ request, ATOMIC, FLUSH.
    Request,
    /// From the responder: the data that an RDMA READ asked for.
    ReadResponse,
    /// From the responder: ACK or NAK.
    Ack,
    /// From the responder: the result of an ATOMIC operation.
    AtomicAck,
    /// From a notification point: a congestion notification.
    Cnp,
}

impl Kind {
    /// Whether congestion control applies to such packets: they are what a
    /// notification point answers and what a reaction point paces.
    pub const fn is_data(self) -> bool {
        matches!(self, Kind::Request | Kind::ReadResponse)
    }
}

/// What is known of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// The opcode itself.
    pub opcode: u8,
    /// Service and operation, for people.
    pub name: &'static str,
    /// The service. A CNP has none of its own; it is listed under
    /// [`Service::Rc`], and [`Info::kind`] tells it apart.
    pub service: Service,
    /// The part in the conversation.
    pub kind: Kind,
    /// Bytes from the start of the BTH to the end of the last extension header.
    /// For a CNP that includes its 16 reserved bytes.
    pub header_len: u8,
    /// Whether payload may follow the headers.
    pub payload: bool,
}

/// Looks an opcode up; `None` if no QP of a RoCE device can be meant by it.
pub fn info(opcode: u8) -> Option<&'static Info> {
    let row = INDEX.get(usize::from(opcode))?;
    TABLE.get(usize::from(*row))
}

/// All listed opcodes, in ascending order.
pub fn all() -> &'static [Info] {
    &TABLE
}

// Header lengths in bytes (IBTA vol. 1, 9.2 to 9.3 and the memory placement
// extensions' annex for FETH).
const BTH: u8 = 12;
const DETH: u8 = 8;
const RETH: u8 = 16;
const AETH: u8 = 4;
const ATOMIC_ETH: u8 = 28;
const ATOMIC_ACK_ETH: u8 = 8;
const IMM_DT: u8 = 4;
const IETH: u8 = 4;
const FETH: u8 = 4;
const CNP_RESERVED: u8 = 16;

const fn row(
    opcode: u8,
    name: &'static str,
    service: Service,
    kind: Kind,
    extension_len: u8,
    payload: bool,
) -> Info {
    Info {
        opcode,
        name,
        service,
        kind,
        header_len: BTH + extension_len,
        payload,
    }
}

#[rustfmt::skip]
static TABLE: [Info; 40] = [
    row(0x00, "RC_SEND_FIRST",          Rc, Request,      0,                     true),
    row(0x01, "RC_SEND_MIDDLE",         Rc, Request,      0,                     true),
    row(0x02, "RC_SEND_LAST",           Rc, Request,      0,                     true),
    row(0x03, "RC_SEND_LAST_IMM",       Rc, Request,      IMM_DT,                true),
    row(0x04, "RC_SEND_ONLY",           Rc, Request,      0,                     true),
    row(0x05, "RC_SEND_ONLY_IMM",       Rc, Request,      IMM_DT,                true),
    row(0x06, "RC_WRITE_FIRST",         Rc, Request,      RETH,                  true),
    row(0x07, "RC_WRITE_MIDDLE",        Rc, Request,      0,                     true),
    row(0x08, "RC_WRITE_LAST",          Rc, Request,      0,                     true),
    row(0x09, "RC_WRITE_LAST_IMM",      Rc, Request,      IMM_DT,                true),
    row(0x0a, "RC_WRITE_ONLY",          Rc, Request,      RETH,                  true),
    row(0x0b, "RC_WRITE_ONLY_IMM",      Rc, Request,      RETH + IMM_DT,         true),
    row(0x0c, "RC_READ_REQUEST",        Rc, Request,      RETH,                  false),
    row(0x0d, "RC_READ_RESPONSE_FIRST", Rc, ReadResponse, AETH,                  true),
    row(0x0e, "RC_READ_RESPONSE_MIDDLE", Rc, ReadResponse, 0,                    true),
    row(0x0f, "RC_READ_RESPONSE_LAST",  Rc, ReadResponse, AETH,                  true),
    row(0x10, "RC_READ_RESPONSE_ONLY",  Rc, ReadResponse, AETH,                  true),
    row(0x11, "RC_ACK",                 Rc, Ack,          AETH,                  false),
    row(0x12, "RC_ATOMIC_ACK",          Rc, AtomicAck,    AETH + ATOMIC_ACK_ETH, false),
    row(0x13, "RC_COMPARE_SWAP",        Rc, Request,      ATOMIC_ETH,            false),
    row(0x14, "RC_FETCH_ADD",           Rc, Request,      ATOMIC_ETH,            false),
    row(0x16, "RC_SEND_LAST_INV",       Rc, Request,      IETH,                  true),
    row(0x17, "RC_SEND_ONLY_INV",       Rc, Request,      IETH,                  true),
    row(0x1c, "RC_FLUSH",               Rc, Request,      FETH + RETH,           false),
    row(0x1d, "RC_ATOMIC_WRITE",        Rc, Request,      RETH,                  true),
    row(0x20, "UC_SEND_FIRST",          Uc, Request,      0,                     true),
    row(0x21, "UC_SEND_MIDDLE",         Uc, Request,      0,                     true),
    row(0x22, "UC_SEND_LAST",           Uc, Request,      0,                     true),
    row(0x23, "UC_SEND_LAST_IMM",       Uc, Request,      IMM_DT,                true),
    row(0x24, "UC_SEND_ONLY",           Uc, Request,      0,                     true),
    row(0x25, "UC_SEND_ONLY_IMM",       Uc, Request,      IMM_DT,                true),
    row(0x26, "UC_WRITE_FIRST",         Uc, Request,      RETH,                  true),
    row(0x27, "UC_WRITE_MIDDLE",        Uc, Request,      0,                     true),
    row(0x28, "UC_WRITE_LAST",          Uc, Request,      0,                     true),
    row(0x29, "UC_WRITE_LAST_IMM",      Uc, Request,      IMM_DT,                true),
    row(0x2a, "UC_WRITE_ONLY",          Uc, Request,      RETH,                  true),
    row(0x2b, "UC_WRITE_ONLY_IMM",      Uc, Request,      RETH + IMM_DT,         true),
    row(0x64, "UD_SEND_ONLY",           Ud, Request,      DETH,                  true),
    row(0x65, "UD_SEND_ONLY_IMM",       Ud, Request,      DETH + IMM_DT,         true),
    row(CNP,  "CNP",                    Rc, Kind::Cnp,    CNP_RESERVED,          false),
];

/// No row of [`TABLE`].
const NO_ROW: u8 = u8::MAX;

/// The row of [`TABLE`] of each opcode.
static INDEX: [u8; 256] = index();

// Runs in the compiler only: an index out of bounds is a build error.
const fn index() -> [u8; 256] {
    let mut index = [NO_ROW; 256];
    let mut row = 0;
    while row < TABLE.len() {
        index[TABLE[row].opcode as usize] = row as u8;
        row += 1;
    }
    index
}
