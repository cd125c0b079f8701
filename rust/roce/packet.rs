// SPDX-License-Identifier: GPL-2.0

//! The headers of a RoCEv2 packet: IP, UDP, BTH, DETH.
//!
//! Header bytes come in, fields go out, and back. [`check`] says whether rxe
//! would call a packet malformed from its BTH and its length alone; [`View`]
//! reads a whole IP packet, for tools and fuzzers (a kernel has found IP and UDP
//! before it asks us). Left to others: the ICRC ([`super::icrc`]), CNPs
//! ([`super::cnp`]), and all that takes a QP to know.
//!
//! IBTA vol. 1, chapter 9, and Annex A17; RFC 791, 1071, 1624, 3168, 8200.

use crate::roce::{
    cnp,
    icrc::{Crc32, Icrc},
    opcode::{self, Info, Service},
};
use core::cmp::Ordering;

/// Destination UDP port of RoCEv2.
pub const UDP_PORT: u16 = 4791;
/// Length of an IPv4 header without options, bytes.
pub const IPV4_LEN: usize = 20;
/// Length of an IPv6 header without extension headers, bytes.
pub const IPV6_LEN: usize = 40;
/// Length of a UDP header, bytes.
pub const UDP_LEN: usize = 8;
/// Length of a base transport header, bytes.
pub const BTH_LEN: usize = 12;
/// Length of a datagram extended transport header, bytes.
pub const DETH_LEN: usize = 8;
/// Length of the invariant CRC that ends every packet, bytes.
pub const ICRC_LEN: usize = 4;

/// The QP of subnet management packets, which RoCE has not.
pub const QP0: u32 = 0;
/// The QP of general services: connection management.
pub const QP1: u32 = 1;
/// The destination QPN of multicast packets.
pub const MULTICAST_QPN: u32 = 0xff_ffff;
/// The bits of a QPN.
pub const QPN_MASK: u32 = 0xff_ffff;
/// The bits of a PSN.
pub const PSN_MASK: u32 = 0xff_ffff;

/// IP protocol number of UDP.
const PROTOCOL_UDP: u8 = 17;

/// The two ECN bits of an IPv4 TOS or IPv6 traffic class byte (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// 00: congestion cannot be marked on this packet.
    NotEct,
    /// 01.
    Ect1,
    /// 10: congestion can be marked; what RoCE senders set.
    Ect0,
    /// 11: congestion experienced.
    Ce,
}

impl Ecn {
    /// The bits that set the field in a TOS byte.
    pub const MASK: u8 = 0b11;

    /// The field of a TOS or traffic class byte.
    pub const fn from_tos(tos: u8) -> Self {
        match tos & Self::MASK {
            0b00 => Ecn::NotEct,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// The value of the field, 0 to 3.
    pub const fn bits(self) -> u8 {
        match self {
            Ecn::NotEct => 0b00,
            Ecn::Ect1 => 0b01,
            Ecn::Ect0 => 0b10,
            Ecn::Ce => 0b11,
        }
    }

    /// The TOS byte with this field and the DSCP of `tos`.
    pub const fn in_tos(self, tos: u8) -> u8 {
        (tos & !Self::MASK) | self.bits()
    }
}

/// The address of an end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addr {
    /// IPv4, in wire order.
    V4([u8; 4]),
    /// IPv6, in wire order.
    V6([u8; 16]),
}

impl Addr {
    const V4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

    /// The address in a RoCEv2 GID: `::ffff:a.b.c.d` is the IPv4 address.
    pub fn from_gid(gid: [u8; 16]) -> Self {
        match gid.split_last_chunk::<4>() {
            Some((prefix, v4)) if prefix == Self::V4_MAPPED => Addr::V4(*v4),
            _ => Addr::V6(gid),
        }
    }

    /// The RoCEv2 GID of the address.
    pub const fn to_gid(self) -> [u8; 16] {
        match self {
            Addr::V4([a, b, c, d]) => [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d],
            Addr::V6(gid) => gid,
        }
    }
}

/// Whether packets to the address go to a group.
pub const fn is_multicast(addr: Addr) -> bool {
    match addr {
        Addr::V4([first, ..]) => first & 0xf0 == 0xe0,
        Addr::V6([first, ..]) => first == 0xff,
    }
}

/// Base transport header (IBTA vol. 1, 9.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bth {
    /// Operation, see [`opcode`].
    pub opcode: u8,
    /// SE: the receiver is to raise an event.
    pub solicited: bool,
    /// M: path migration state.
    pub migreq: bool,
    /// Pad bytes between payload and ICRC, 0 to 3.
    pub pad: u8,
    /// Transport header version; 0 is the only one there is. Four bits.
    pub tver: u8,
    /// Partition key.
    pub pkey: u16,
    /// FECN: the packet met congestion.
    pub fecn: bool,
    /// BECN: packets the other way met congestion.
    pub becn: bool,
    /// The whole byte of FECN, BECN and six reserved bits, as received. When
    /// written, its two upper bits are those of [`Bth::fecn`] and [`Bth::becn`].
    pub resv8a: u8,
    /// Destination QPN, 24 bits.
    pub dest_qp: u32,
    /// A: the requester wants an acknowledgement.
    pub ack_req: bool,
    /// The seven reserved bits beside A.
    pub resv7: u8,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
}

impl Bth {
    const FECN: u8 = 0x80;
    const BECN: u8 = 0x40;

    /// Reads a header. Every twelve bytes are one.
    pub const fn parse(bytes: &[u8; BTH_LEN]) -> Self {
        let [opcode, flags, p0, p1, resv8a, q0, q1, q2, ack, s0, s1, s2] = *bytes;
        Self {
            opcode,
            solicited: flags & 0x80 != 0,
            migreq: flags & 0x40 != 0,
            pad: (flags >> 4) & 0x3,
            tver: flags & 0xf,
            pkey: u16::from_be_bytes([p0, p1]),
            fecn: resv8a & Self::FECN != 0,
            becn: resv8a & Self::BECN != 0,
            resv8a,
            // Whole words, each loaded at once.
            dest_qp: u32::from_be_bytes([resv8a, q0, q1, q2]) & QPN_MASK,
            ack_req: ack & 0x80 != 0,
            resv7: ack & 0x7f,
            psn: u32::from_be_bytes([ack, s0, s1, s2]) & PSN_MASK,
        }
    }

    /// Writes the header. Bits of a value that its field has no room for are
    /// left out.
    pub const fn to_bytes(&self) -> [u8; BTH_LEN] {
        let flags = ((self.solicited as u8) << 7)
            | ((self.migreq as u8) << 6)
            | ((self.pad & 0x3) << 4)
            | (self.tver & 0xf);
        let resv8a = ((self.fecn as u8) << 7) | ((self.becn as u8) << 6) | (self.resv8a & 0x3f);
        let ack = ((self.ack_req as u8) << 7) | (self.resv7 & 0x7f);
        let [p0, p1] = self.pkey.to_be_bytes();
        let [_, q0, q1, q2] = self.dest_qp.to_be_bytes();
        let [_, s0, s1, s2] = self.psn.to_be_bytes();
        [
            self.opcode,
            flags,
            p0,
            p1,
            resv8a,
            q0,
            q1,
            q2,
            ack,
            s0,
            s1,
            s2,
        ]
    }
}

/// Datagram extended transport header (IBTA vol. 1, 9.3.2): follows the BTH of
/// every UD packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// The key that the sender claims.
    pub qkey: u32,
    /// The QPN of the sender, 24 bits.
    pub src_qp: u32,
}

impl Deth {
    /// Reads a header. The reserved byte is skipped.
    pub const fn parse(bytes: &[u8; DETH_LEN]) -> Self {
        let [k0, k1, k2, k3, _, q0, q1, q2] = *bytes;
        Self {
            qkey: u32::from_be_bytes([k0, k1, k2, k3]),
            src_qp: u32::from_be_bytes([0, q0, q1, q2]),
        }
    }

    /// Writes the header, the reserved byte as zero.
    pub const fn to_bytes(&self) -> [u8; DETH_LEN] {
        let [k0, k1, k2, k3] = self.qkey.to_be_bytes();
        let [_, q0, q1, q2] = self.src_qp.to_be_bytes();
        [k0, k1, k2, k3, 0, q0, q1, q2]
    }
}

/// Compares PSNs on the circle of 2^24.
///
/// `Less` means that `a` is behind `b` by at most half the circle. At exactly
/// half, each is behind the other, as in rxe. Bits above the 24 are ignored.
pub const fn psn_cmp(a: u32, b: u32) -> Ordering {
    let ahead = (a.wrapping_sub(b) << 8) as i32;
    if ahead > 0 {
        Ordering::Greater
    } else if ahead < 0 {
        Ordering::Less
    } else {
        Ordering::Equal
    }
}

/// Whether PSN `a` comes after PSN `b` on the circle of 2^24.
pub const fn psn_after(a: u32, b: u32) -> bool {
    matches!(psn_cmp(a, b), Ordering::Greater)
}

/// Why the transport part of a packet makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// No QP of a RoCE device takes this opcode.
    UnknownOpcode,
    /// Shorter than its headers, its pad and the ICRC.
    TooShort,
    /// Bytes between headers and ICRC where the opcode has none.
    UnexpectedPayload,
    /// Another transport header version than 0.
    TransportVersion,
}

/// Checks the form of a packet by its BTH and its length.
///
/// `transport_len` counts the bytes from the BTH to the end of the ICRC: the UDP
/// length less [`UDP_LEN`]. Everything that rxe calls malformed without looking
/// at a QP is an error here, in the same order. On top of that, payload on an
/// opcode that has none is refused (rxe lets that pass).
///
/// # Errors
///
/// The first reason found.
pub fn check(bth: &Bth, transport_len: usize) -> Result<&'static Info, Malformed> {
    let info = opcode::info(bth.opcode).ok_or(Malformed::UnknownOpcode)?;
    if bth.opcode == opcode::CNP {
        cnp::check_cnp(bth, transport_len)?;
        return Ok(info);
    }

    let bare_len = usize::from(info.header_len) + ICRC_LEN;
    if transport_len < bare_len + usize::from(bth.pad) {
        return Err(Malformed::TooShort);
    }
    if !info.payload && transport_len > bare_len {
        return Err(Malformed::UnexpectedPayload);
    }
    if bth.tver != 0 {
        return Err(Malformed::TransportVersion);
    }
    Ok(info)
}

/// The checksum that belongs into an IPv4 header (RFC 1071).
///
/// `header` is the whole header, options included; its checksum field counts as
/// zero, whatever it holds.
pub fn ipv4_checksum(header: &[u8]) -> u16 {
    const CHECKSUM_OFFSET: usize = 10;

    let (before, rest) = header
        .split_at_checked(CHECKSUM_OFFSET)
        .unwrap_or((header, &[]));
    let after = rest.get(2..).unwrap_or(&[]);
    !ones_complement_add(ones_complement_sum(before), ones_complement_sum(after))
}

fn ones_complement_sum(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0, |sum, word| match *word {
        [high, low] => ones_complement_add(sum, u16::from_be_bytes([high, low])),
        [high] => ones_complement_add(sum, u16::from_be_bytes([high, 0])),
        _ => sum,
    })
}

/// The checksum of an IPv4 header after one of its 16-bit words has changed
/// (RFC 1624, equation 3).
///
/// For a new TOS, the word is the header's first: version, header length, TOS.
/// All values are numbers as read in network order.
pub const fn checksum_after_tos(old_check: u16, old_word: u16, new_word: u16) -> u16 {
    !ones_complement_add(ones_complement_add(!old_check, !old_word), new_word)
}

const fn ones_complement_add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    // With a carry the sum is at most 0xfffe, so this cannot wrap.
    sum.wrapping_add(carry as u16)
}

/// Why bytes are not a RoCEv2 packet that can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParseError {
    /// Bytes are missing, by the packet's own lengths or for a BTH and an ICRC.
    Truncated,
    /// Neither IPv4 nor IPv6.
    IpVersion,
    /// A header length field that cannot be.
    BadLength,
    /// IPv4 options or IPv6 extension headers, which RoCEv2 packets do not have.
    Options,
    /// A part of a larger packet.
    Fragment,
    /// Another protocol than UDP.
    NotUdp,
    /// Another destination port than [`UDP_PORT`].
    OtherPort,
}

/// The IP header in front of a packet.
#[derive(Clone, Copy, Debug)]
enum IpHeader<'a> {
    V4(&'a [u8; IPV4_LEN]),
    V6(&'a [u8; IPV6_LEN]),
}

/// A whole RoCEv2 packet, from its IP header on, lengths verified.
///
/// The transport part may still be malformed ([`View::check`]), and the ICRC
/// wrong ([`View::icrc_matches`]).
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Sender.
    pub src: Addr,
    /// Receiver.
    pub dst: Addr,
    /// IPv4 TOS or IPv6 traffic class: DSCP and ECN.
    pub tos: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub ttl: u8,
    /// UDP source port.
    pub udp_sport: u16,
    /// UDP destination port: always [`UDP_PORT`].
    pub udp_dport: u16,
    /// Base transport header.
    pub bth: Bth,
    /// From the BTH to the end of the ICRC: at least [`BTH_LEN`] + [`ICRC_LEN`].
    pub transport: &'a [u8],
    ip: IpHeader<'a>,
    udp: &'a [u8; UDP_LEN],
    bth_bytes: &'a [u8; BTH_LEN],
    after_bth: &'a [u8],
    icrc: [u8; ICRC_LEN],
}

impl<'a> View<'a> {
    /// Reads a packet. Bytes after the end that the IP header names (the pad of
    /// a short Ethernet frame) are ignored. Checksums are not verified.
    ///
    /// # Errors
    ///
    /// What kept the bytes from being a RoCEv2 packet.
    pub fn parse(packet: &'a [u8]) -> Result<Self, ParseError> {
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => Self::parse_v4(packet),
            Some(6) => Self::parse_v6(packet),
            Some(_) => Err(ParseError::IpVersion),
            None => Err(ParseError::Truncated),
        }
    }

    fn parse_v4(packet: &'a [u8]) -> Result<Self, ParseError> {
        let ip = packet
            .first_chunk::<IPV4_LEN>()
            .ok_or(ParseError::Truncated)?;
        #[rustfmt::skip]
        let [
            version_ihl, tos, len0, len1, _, _, fragment0, fragment1, ttl, protocol, _, _,
            s0, s1, s2, s3, d0, d1, d2, d3,
        ] = *ip;

        match version_ihl & 0xf {
            5 => {}
            0..=4 => return Err(ParseError::BadLength),
            _ => return Err(ParseError::Options),
        }
        // More fragments, or an offset.
        if u16::from_be_bytes([fragment0, fragment1]) & 0x3fff != 0 {
            return Err(ParseError::Fragment);
        }
        if protocol != PROTOCOL_UDP {
            return Err(ParseError::NotUdp);
        }
        let total_len = usize::from(u16::from_be_bytes([len0, len1]));
        if total_len < IPV4_LEN {
            return Err(ParseError::BadLength);
        }
        let datagram = packet
            .get(IPV4_LEN..total_len)
            .ok_or(ParseError::Truncated)?;
        Self::parse_udp(
            IpHeader::V4(ip),
            Addr::V4([s0, s1, s2, s3]),
            Addr::V4([d0, d1, d2, d3]),
            tos,
            ttl,
            datagram,
        )
    }

    fn parse_v6(packet: &'a [u8]) -> Result<Self, ParseError> {
        const HOP_BY_HOP: u8 = 0;
        const ROUTING: u8 = 43;
        const FRAGMENT: u8 = 44;
        const DESTINATION: u8 = 60;

        let (ip, rest) = packet
            .split_first_chunk::<IPV6_LEN>()
            .ok_or(ParseError::Truncated)?;
        let [b0, b1, _, _, len0, len1, next_header, hop_limit, addresses @ ..] = *ip;

        match next_header {
            PROTOCOL_UDP => {}
            FRAGMENT => return Err(ParseError::Fragment),
            HOP_BY_HOP | ROUTING | DESTINATION => return Err(ParseError::Options),
            _ => return Err(ParseError::NotUdp),
        }
        let payload_len = usize::from(u16::from_be_bytes([len0, len1]));
        let datagram = rest.get(..payload_len).ok_or(ParseError::Truncated)?;
        let (src, dst): (&[u8; 16], &[u8; 16]) =
            match (addresses.first_chunk(), addresses.last_chunk()) {
                (Some(src), Some(dst)) => (src, dst),
                _ => return Err(ParseError::Truncated),
            };
        Self::parse_udp(
            IpHeader::V6(ip),
            Addr::V6(*src),
            Addr::V6(*dst),
            ((b0 & 0xf) << 4) | (b1 >> 4),
            hop_limit,
            datagram,
        )
    }

    fn parse_udp(
        ip: IpHeader<'a>,
        src: Addr,
        dst: Addr,
        tos: u8,
        ttl: u8,
        datagram: &'a [u8],
    ) -> Result<Self, ParseError> {
        let udp = datagram
            .first_chunk::<UDP_LEN>()
            .ok_or(ParseError::Truncated)?;
        let [s0, s1, d0, d1, len0, len1, _, _] = *udp;
        let udp_dport = u16::from_be_bytes([d0, d1]);
        if udp_dport != UDP_PORT {
            return Err(ParseError::OtherPort);
        }
        let udp_len = usize::from(u16::from_be_bytes([len0, len1]));
        if udp_len < UDP_LEN {
            return Err(ParseError::BadLength);
        }
        let transport = datagram
            .get(UDP_LEN..udp_len)
            .ok_or(ParseError::Truncated)?;
        let (bth_bytes, rest) = transport
            .split_first_chunk::<BTH_LEN>()
            .ok_or(ParseError::Truncated)?;
        let (after_bth, icrc) = rest
            .split_last_chunk::<ICRC_LEN>()
            .ok_or(ParseError::Truncated)?;
        Ok(Self {
            src,
            dst,
            tos,
            ttl,
            udp_sport: u16::from_be_bytes([s0, s1]),
            udp_dport,
            bth: Bth::parse(bth_bytes),
            transport,
            ip,
            udp,
            bth_bytes,
            after_bth,
            icrc: *icrc,
        })
    }

    /// The ECN field.
    pub const fn ecn(&self) -> Ecn {
        Ecn::from_tos(self.tos)
    }

    /// The differentiated services code point.
    pub const fn dscp(&self) -> u8 {
        self.tos >> 2
    }

    /// [`check`] on this packet.
    ///
    /// # Errors
    ///
    /// The first reason found.
    pub fn check(&self) -> Result<&'static Info, Malformed> {
        check(&self.bth, self.transport.len())
    }

    /// The DETH, if the opcode has one and it is all there.
    pub fn deth(&self) -> Option<Deth> {
        let info = opcode::info(self.bth.opcode)?;
        if info.service != Service::Ud {
            return None;
        }
        self.after_bth.first_chunk().map(Deth::parse)
    }

    /// The payload without pad and ICRC; `None` if the packet is malformed.
    pub fn payload(&self) -> Option<&'a [u8]> {
        let info = self.check().ok()?;
        let extension_len = usize::from(info.header_len).checked_sub(BTH_LEN)?;
        // A CNP may claim a pad, but carries nothing that could be padded.
        let pad = if info.payload { self.bth.pad } else { 0 };
        let end = self.after_bth.len().checked_sub(usize::from(pad))?;
        self.after_bth.get(extension_len..end)
    }

    /// The ICRC that the packet carries, as on the wire.
    pub const fn icrc(&self) -> [u8; ICRC_LEN] {
        self.icrc
    }

    /// The ICRC that the packet should carry.
    pub fn computed_icrc<C: Crc32>(&self) -> [u8; ICRC_LEN] {
        let mut icrc = match self.ip {
            IpHeader::V4(ip) => Icrc::<C>::start_v4(ip, self.udp, self.bth_bytes),
            IpHeader::V6(ip) => Icrc::<C>::start_v6(ip, self.udp, self.bth_bytes),
        };
        icrc.update(self.after_bth);
        icrc.finish()
    }

    /// Whether the ICRC is right.
    pub fn icrc_matches<C: Crc32>(&self) -> bool {
        self.icrc == self.computed_icrc::<C>()
    }
}
