// SPDX-License-Identifier: GPL-2.0

//! What the tests of the wire formats share: packets made by others
//! (`data/roce_packets.json`), and an ICRC worked out in another way than the
//! crate's. No test of its own.

#![allow(dead_code, reason = "each test file takes the part it needs")]

use rxe_cc::roce::packet::Addr;
use serde::Deserialize;
use std::net::IpAddr;

#[derive(Deserialize)]
struct File {
    packets: Vec<Packet>,
}

/// A packet made by someone else, and what it was made of.
#[derive(Deserialize)]
pub(crate) struct Packet {
    pub(crate) name: String,
    #[serde(rename = "bytes")]
    hex: String,
    src: IpAddr,
    dst: IpAddr,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) udp_sport: u16,
    pub(crate) cnp: Option<CnpFields>,
}

/// The fields that only a CNP's writer is asked for.
#[derive(Deserialize)]
pub(crate) struct CnpFields {
    pub(crate) ip_id: u16,
    pub(crate) flow_label: u32,
    pub(crate) pkey: u16,
    pub(crate) dest_qp: u32,
}

impl Packet {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        assert_eq!(self.hex.len() % 2, 0);
        (0..self.hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&self.hex[at..at + 2], 16).unwrap())
            .collect()
    }

    pub(crate) fn ends(&self) -> (Addr, Addr) {
        (addr(self.src), addr(self.dst))
    }
}

fn addr(ip: IpAddr) -> Addr {
    match ip {
        IpAddr::V4(ip) => Addr::V4(ip.octets()),
        IpAddr::V6(ip) => Addr::V6(ip.octets()),
    }
}

pub(crate) fn packets() -> Vec<Packet> {
    let text = include_str!("../data/roce_packets.json");
    let file: File = serde_json::from_str(text).unwrap();
    assert!(file.packets.iter().any(|packet| packet.cnp.is_some()));
    assert!(file.packets.iter().any(|packet| packet.cnp.is_none()));
    file.packets
}

/// The ICRC of a whole packet (whose last four bytes are not looked at), bit by
/// bit, as a polynomial division of the masked packet.
pub(crate) fn reference_icrc(packet: &[u8]) -> [u8; 4] {
    let mut masked = vec![0xff; 8];
    masked.extend_from_slice(&packet[..packet.len() - 4]);
    for (offset, mask) in masked_bits(packet) {
        masked[8 + offset] |= mask;
    }

    let mut register = u32::MAX;
    for byte in masked {
        for bit in 0..8 {
            let out = (register ^ u32::from(byte >> bit)) & 1;
            register >>= 1;
            if out == 1 {
                register ^= 0x04c1_1db7_u32.reverse_bits();
            }
        }
    }
    (!register).to_le_bytes()
}

/// The bits that the ICRC leaves out: offset from the IP header, mask.
pub(crate) fn masked_bits(packet: &[u8]) -> Vec<(usize, u8)> {
    match packet[0] >> 4 {
        4 => vec![
            (1, 0xff),  // TOS
            (8, 0xff),  // TTL
            (10, 0xff), // header checksum
            (11, 0xff),
            (26, 0xff), // UDP checksum
            (27, 0xff),
            (32, 0xff), // FECN, BECN, reserved
        ],
        6 => vec![
            (0, 0x0f), // traffic class, flow label
            (1, 0xff),
            (2, 0xff),
            (3, 0xff),
            (7, 0xff),  // hop limit
            (46, 0xff), // UDP checksum
            (47, 0xff),
            (52, 0xff), // FECN, BECN, reserved
        ],
        version => panic!("IP version {version}"),
    }
}
