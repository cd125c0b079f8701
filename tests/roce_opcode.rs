// SPDX-License-Identifier: GPL-2.0

//! The opcode table against a second account of it: which operations a service
//! has and which headers an operation carries (IBTA vol. 1, 9.2.1, 9.3).

use rxe_cc::roce::opcode::{all, info, Kind, Service, CNP};

/// Bytes of the extension headers of an operation, its kind, whether it may
/// carry payload.
fn operation(code: u8) -> Option<(u8, Kind, bool)> {
    let (reth, aeth, imm) = (8 + 4 + 4, 4, 4);
    Some(match code {
        // SEND: First, Middle, Last, Only; Last and Only with immediate.
        0x00 | 0x01 | 0x02 | 0x04 => (0, Kind::Request, true),
        0x03 | 0x05 => (imm, Kind::Request, true),
        // RDMA WRITE: the address comes with First and Only.
        0x06 | 0x0a => (reth, Kind::Request, true),
        0x07 | 0x08 => (0, Kind::Request, true),
        0x09 => (imm, Kind::Request, true),
        0x0b => (reth + imm, Kind::Request, true),
        // RDMA READ: all responses but Middle acknowledge.
        0x0c => (reth, Kind::Request, false),
        0x0d | 0x0f | 0x10 => (aeth, Kind::ReadResponse, true),
        0x0e => (0, Kind::ReadResponse, true),
        0x11 => (aeth, Kind::Ack, false),
        // ATOMIC: the old value comes back, beside the acknowledgement.
        0x12 => (aeth + 8, Kind::AtomicAck, false),
        // Address, key, and two operands.
        0x13 | 0x14 => (8 + 4 + 8 + 8, Kind::Request, false),
        // SEND with a key to invalidate.
        0x16 | 0x17 => (4, Kind::Request, true),
        // FLUSH names its type in four bytes; ATOMIC WRITE has its eight bytes
        // as payload.
        0x1c => (4 + reth, Kind::Request, false),
        0x1d => (reth, Kind::Request, true),
        _ => return None,
    })
}

fn expected(opcode: u8) -> Option<(Service, u8, Kind, bool)> {
    if opcode == 0b1000_0001 {
        return Some((Service::Rc, 12 + 16, Kind::Cnp, false));
    }
    let code = opcode & 0b1_1111;
    let (service, in_service, datagram) = match opcode >> 5 {
        0b000 => (Service::Rc, true, 0),
        0b001 => (Service::Uc, code <= 0x0b, 0),
        0b011 => (Service::Ud, matches!(code, 0x04 | 0x05), 4 + 4),
        _ => return None,
    };
    let (extensions, kind, payload) = operation(code)?;
    in_service.then_some((service, 12 + datagram + extensions, kind, payload))
}

#[test]
fn every_opcode_is_as_the_specification_has_it() {
    for opcode in 0..=u8::MAX {
        let found = info(opcode).map(|info| {
            assert_eq!(info.opcode, opcode);
            (info.service, info.header_len, info.kind, info.payload)
        });
        assert_eq!(found, expected(opcode), "opcode {opcode:#04x}");
    }
}

#[test]
fn names_say_the_service_and_are_unique() {
    for (place, info) in all().iter().enumerate() {
        let service = match (info.kind, info.service) {
            (Kind::Cnp, _) => "CNP",
            (_, Service::Rc) => "RC_",
            (_, Service::Uc) => "UC_",
            (_, Service::Ud) => "UD_",
        };
        assert!(info.name.starts_with(service), "{}", info.name);
        for other in &all()[place + 1..] {
            assert_ne!(info.name, other.name);
            assert!(info.opcode < other.opcode);
        }
    }
}

#[test]
fn the_list_holds_what_the_look_up_finds() {
    let found: Vec<u8> = (0..=u8::MAX).filter(|op| info(*op).is_some()).collect();
    let listed: Vec<u8> = all().iter().map(|info| info.opcode).collect();
    assert_eq!(found, listed);
}

#[test]
fn requests_and_read_responses_are_data_and_nothing_else() {
    assert!(Kind::Request.is_data());
    assert!(Kind::ReadResponse.is_data());
    assert!(!Kind::Ack.is_data());
    assert!(!Kind::AtomicAck.is_data());
    assert!(!Kind::Cnp.is_data());
}

#[test]
fn a_cnp_is_0x81_and_0x80_is_nothing() {
    assert_eq!(CNP, 0x81);
    assert!(info(0x80).is_none());
}
