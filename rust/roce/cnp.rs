// SPDX-License-Identifier: GPL-2.0

//! The congestion notification packet (Annex A17, CNP).
//!
//! The fields that differ from CNP to CNP come in, a whole IP packet with its
//! ICRC goes out, equal to what a ConnectX sends; and a received BTH comes in,
//! whether it can be a CNP goes out. When a CNP is due, for whom, and what it
//! does to a rate is left to the rooms above.
//!
//! After the BTH (opcode 0x81, BECN set, PSN 0) come 16 reserved bytes and the
//! ICRC, no other header.

use crate::roce::{
    icrc::{Crc32, Icrc},
    opcode,
    packet::{
        ipv4_checksum, Addr, Bth, Ecn, Malformed, BTH_LEN, ICRC_LEN, IPV4_LEN, IPV6_LEN, UDP_LEN,
        UDP_PORT,
    },
};

/// The reserved bytes after the BTH.
pub const RESERVED_LEN: usize = 16;
/// The transport part of a CNP, BTH to ICRC, bytes.
pub const CNP_TRANSPORT_LEN: usize = BTH_LEN + RESERVED_LEN + ICRC_LEN;
/// The UDP length of a CNP, bytes.
pub const CNP_UDP_LEN: usize = UDP_LEN + CNP_TRANSPORT_LEN;
/// The length of a CNP over IPv4, bytes.
pub const CNP_V4_LEN: usize = IPV4_LEN + CNP_UDP_LEN;
/// The length of a CNP over IPv6, bytes.
pub const CNP_V6_LEN: usize = IPV6_LEN + CNP_UDP_LEN;

/// The DSCP of CNPs unless told otherwise, as on a ConnectX.
pub const DEFAULT_DSCP: u8 = 48;
/// The TTL or hop limit of CNPs unless told otherwise.
pub const DEFAULT_TTL: u8 = 64;

/// The addresses are not both of the IP version that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongIpVersion;

/// What may differ from CNP to CNP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cnp {
    /// The notification point: where the marked packet went to.
    pub src: Addr,
    /// The reaction point: where the marked packet came from.
    pub dst: Addr,
    /// Differentiated services code point, six bits.
    pub dscp: u8,
    /// ECN field.
    pub ecn: Ecn,
    /// TTL or hop limit.
    pub ttl: u8,
    /// IPv4 identification. No part of an IPv6 packet.
    pub ip_id: u16,
    /// IPv6 flow label, 20 bits. No part of an IPv4 packet.
    pub flow_label: u32,
    /// UDP source port.
    pub udp_sport: u16,
    /// Partition key, that of the marked packet.
    pub pkey: u16,
    /// The QPN whose rate is to be cut: the peer of the QP that was marked.
    pub dest_qp: u32,
}

impl Cnp {
    /// A CNP as a ConnectX sends it by default: DSCP 48, ECT(0), TTL 64, UDP
    /// source port 0, IP identification and flow label 0.
    pub const fn new(src: Addr, dst: Addr, pkey: u16, dest_qp: u32) -> Self {
        Self {
            src,
            dst,
            dscp: DEFAULT_DSCP,
            ecn: Ecn::Ect0,
            ttl: DEFAULT_TTL,
            ip_id: 0,
            flow_label: 0,
            udp_sport: 0,
            pkey,
            dest_qp,
        }
    }

    /// The TOS or traffic class byte.
    pub const fn tos(&self) -> u8 {
        (self.dscp << 2) | self.ecn.bits()
    }

    /// Writes the packet with an IPv4 header: no options, DF, UDP checksum 0.
    ///
    /// # Errors
    ///
    /// If an address is not IPv4; `out` is left as it was.
    pub fn write_v4<C: Crc32>(&self, out: &mut [u8; CNP_V4_LEN]) -> Result<(), WrongIpVersion> {
        let (Addr::V4(src), Addr::V4(dst)) = (self.src, self.dst) else {
            return Err(WrongIpVersion);
        };
        let [len0, len1] = (CNP_V4_LEN as u16).to_be_bytes();
        let [id0, id1] = self.ip_id.to_be_bytes();
        let [s0, s1, s2, s3] = src;
        let [d0, d1, d2, d3] = dst;
        #[rustfmt::skip]
        let mut ip: [u8; IPV4_LEN] = [
            0x45, self.tos(), len0, len1,
            id0, id1, 0x40, 0,
            self.ttl, 17, 0, 0,
            s0, s1, s2, s3,
            d0, d1, d2, d3,
        ];
        [ip[10], ip[11]] = ipv4_checksum(&ip).to_be_bytes();

        let udp = self.udp();
        let bth = self.bth().to_bytes();
        let icrc = Icrc::<C>::start_v4(&ip, &udp, &bth);
        fill(out, &[&ip, &udp, &bth, &RESERVED, &end(icrc)]);
        Ok(())
    }

    /// Writes the packet with an IPv6 header, UDP checksum 0 as rxe sends it.
    ///
    /// # Errors
    ///
    /// If an address is not IPv6; `out` is left as it was.
    pub fn write_v6<C: Crc32>(&self, out: &mut [u8; CNP_V6_LEN]) -> Result<(), WrongIpVersion> {
        let (Addr::V6(src), Addr::V6(dst)) = (self.src, self.dst) else {
            return Err(WrongIpVersion);
        };
        let class_and_label =
            0x6000_0000 | (u32::from(self.tos()) << 20) | (self.flow_label & 0xf_ffff);
        let [v0, v1, v2, v3] = class_and_label.to_be_bytes();
        let [len0, len1] = (CNP_UDP_LEN as u16).to_be_bytes();
        let start = [v0, v1, v2, v3, len0, len1, 17, self.ttl];
        let mut ip = [0; IPV6_LEN];
        fill(&mut ip, &[&start, &src, &dst]);

        let udp = self.udp();
        let bth = self.bth().to_bytes();
        let icrc = Icrc::<C>::start_v6(&ip, &udp, &bth);
        fill(out, &[&ip, &udp, &bth, &RESERVED, &end(icrc)]);
        Ok(())
    }

    fn udp(&self) -> [u8; UDP_LEN] {
        let [s0, s1] = self.udp_sport.to_be_bytes();
        let [d0, d1] = UDP_PORT.to_be_bytes();
        let [len0, len1] = (CNP_UDP_LEN as u16).to_be_bytes();
        [s0, s1, d0, d1, len0, len1, 0, 0]
    }

    fn bth(&self) -> Bth {
        Bth {
            opcode: opcode::CNP,
            pkey: self.pkey,
            becn: true,
            dest_qp: self.dest_qp,
            ..Bth::default()
        }
    }
}

/// Whether a packet with the CNP's opcode is a CNP.
///
/// `transport_len` counts from the BTH to the end of the ICRC: the UDP length
/// less [`UDP_LEN`]. Only the length and the header version decide. SE, M, pad,
/// A, PSN, BECN and every reserved bit or byte may have any value: a later
/// annex may give them a meaning, and the notification is understood without.
///
/// # Errors
///
/// The first reason found.
pub fn check_cnp(bth: &Bth, transport_len: usize) -> Result<(), Malformed> {
    if bth.opcode != opcode::CNP {
        return Err(Malformed::UnknownOpcode);
    }
    if transport_len < CNP_TRANSPORT_LEN {
        return Err(Malformed::TooShort);
    }
    if transport_len > CNP_TRANSPORT_LEN {
        return Err(Malformed::UnexpectedPayload);
    }
    if bth.tver != 0 {
        return Err(Malformed::TransportVersion);
    }
    Ok(())
}

const RESERVED: [u8; RESERVED_LEN] = [0; RESERVED_LEN];

/// The ICRC over the headers and the reserved bytes.
fn end<C: Crc32>(mut icrc: Icrc<C>) -> [u8; ICRC_LEN] {
    icrc.update(&RESERVED);
    icrc.finish()
}

/// Writes `parts` one after the other, as far as `out` goes.
fn fill(out: &mut [u8], parts: &[&[u8]]) {
    for (to, from) in out.iter_mut().zip(parts.iter().copied().flatten()) {
        *to = *from;
    }
}
