// SPDX-License-Identifier: GPL-2.0

//! Crafted packets: fields come in, the bytes of an IP packet go out, right ICRC
//! and all unless a field asks for something else.
//!
//! Everything that a receiver must be able to refuse can be had: a wrong ICRC,
//! another transport version, an opcode that does not exist, reserved bits, a
//! packet cut short. Header formats are the crate's own ([`rxe_cc::roce`]); who
//! sends such a packet to whom is left to [`super::target`], sending it to
//! [`super::wire`].

use anyhow::{bail, Result};
use rxe_cc::roce::{
    icrc::{Icrc, Table},
    opcode::{self, Info, Kind, Service},
    packet::{
        ipv4_checksum, Addr, Bth, Deth, BTH_LEN, ICRC_LEN, IPV4_LEN, IPV6_LEN, PSN_MASK, QPN_MASK,
        UDP_LEN, UDP_PORT,
    },
};

/// The Q_Key of UD packets that nobody asked another one for, perftest's.
const QKEY: u32 = 0x1111_1111;

/// One packet, field by field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) src: Addr,
    pub(crate) dst: Addr,
    /// The whole TOS or traffic class byte.
    pub(crate) tos: u8,
    /// TTL or hop limit.
    pub(crate) ttl: u8,
    pub(crate) udp_sport: u16,
    pub(crate) opcode: u8,
    /// Transport header version, four bits; only 0 exists.
    pub(crate) tver: u8,
    pub(crate) pkey: u16,
    pub(crate) dest_qp: u32,
    pub(crate) psn: u32,
    /// The sender's QPN, which only UD packets carry.
    pub(crate) source_qp: u32,
    /// Bytes behind the headers, where the opcode has any.
    pub(crate) payload_len: usize,
    /// All reserved bits of the BTH set, and all reserved bytes of a CNP.
    pub(crate) reserved: bool,
    /// Turn the ICRC over.
    pub(crate) bad_icrc: bool,
    /// So many bytes are missing at the end; the lengths of IP and UDP say so, too.
    pub(crate) truncate: usize,
}

impl Packet {
    /// The IP packet.
    ///
    /// # Errors
    ///
    /// Addresses of different versions, or a packet too long for its length fields,
    /// or one cut into its BTH.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        let bth = self.bth().to_bytes();
        let rest = self.after_bth();
        let whole = BTH_LEN + rest.len() + ICRC_LEN;
        let Some(transport_len) = whole.checked_sub(self.truncate) else {
            bail!(
                "--truncate {}: the packet has only {whole} bytes from its BTH on",
                self.truncate
            );
        };
        let Ok(udp_len) = u16::try_from(UDP_LEN + transport_len + IPV4_LEN) else {
            bail!(
                "a payload of {} bytes does not fit into one packet",
                self.payload_len
            );
        };
        let udp_len = udp_len - IPV4_LEN as u16;

        let udp = self.udp(udp_len);
        let (ip, mut icrc) = match (self.src, self.dst) {
            (Addr::V4(src), Addr::V4(dst)) => {
                let ip = self.ipv4(src, dst, udp_len);
                (ip.to_vec(), Icrc::<Table>::start_v4(&ip, &udp, &bth))
            }
            (Addr::V6(src), Addr::V6(dst)) => {
                let ip = self.ipv6(src, dst, udp_len);
                (ip.to_vec(), Icrc::<Table>::start_v6(&ip, &udp, &bth))
            }
            _ => bail!("source and destination are not of one IP version: give --source"),
        };
        icrc.update(&rest);
        let mut icrc = icrc.finish();
        if self.bad_icrc {
            icrc = icrc.map(|byte| !byte);
        }

        let mut packet = [&ip, udp.as_slice(), &bth, &rest, &icrc].concat();
        packet.truncate(packet.len() - self.truncate);
        Ok(packet)
    }

    /// What the packet is, for people.
    pub(crate) fn name(&self) -> String {
        match opcode::info(self.opcode) {
            Some(info) => info.name.to_owned(),
            None => format!("opcode 0x{:02x}", self.opcode),
        }
    }

    fn bth(&self) -> Bth {
        let reserved = |mask: u8| if self.reserved { mask } else { 0 };
        let is_cnp = self.opcode == opcode::CNP;
        Bth {
            opcode: self.opcode,
            pad: if has_payload(self.opcode) {
                self.pad()
            } else {
                0
            },
            tver: self.tver,
            pkey: self.pkey,
            becn: is_cnp,
            resv8a: reserved(0x3f),
            dest_qp: self.dest_qp & QPN_MASK,
            resv7: reserved(0x7f),
            psn: self.psn & PSN_MASK,
            ..Bth::default()
        }
    }

    /// Pad bytes that bring the payload to a multiple of four.
    fn pad(&self) -> u8 {
        (self.payload_len.wrapping_neg() & 3) as u8
    }

    /// From the BTH's end to the ICRC's begin: extension headers that are all zero
    /// but for what a receiver needs to find its way, payload, pad.
    fn after_bth(&self) -> Vec<u8> {
        let Some(info) = opcode::info(self.opcode) else {
            return vec![0; self.payload_len];
        };
        let extensions = usize::from(info.header_len) - BTH_LEN;
        let mut bytes = vec![0; extensions];
        if info.kind == Kind::Cnp && self.reserved {
            bytes.fill(0xff);
        }
        if info.service == Service::Ud {
            let deth = Deth {
                qkey: QKEY,
                src_qp: self.source_qp & QPN_MASK,
            };
            for (to, from) in bytes.iter_mut().zip(deth.to_bytes()) {
                *to = from;
            }
        }
        if info.payload {
            bytes.resize(extensions + self.payload_len + usize::from(self.pad()), 0);
        }
        bytes
    }

    fn udp(&self, len: u16) -> [u8; UDP_LEN] {
        let [s0, s1] = self.udp_sport.to_be_bytes();
        let [d0, d1] = UDP_PORT.to_be_bytes();
        let [l0, l1] = len.to_be_bytes();
        [s0, s1, d0, d1, l0, l1, 0, 0]
    }

    /// No options, DF, as soft-RoCE and NICs send it.
    fn ipv4(&self, src: [u8; 4], dst: [u8; 4], udp_len: u16) -> [u8; IPV4_LEN] {
        let [l0, l1] = (IPV4_LEN as u16 + udp_len).to_be_bytes();
        let [s0, s1, s2, s3] = src;
        let [d0, d1, d2, d3] = dst;
        #[rustfmt::skip]
        let mut ip = [
            0x45, self.tos, l0, l1,
            0, 0, 0x40, 0,
            self.ttl, 17, 0, 0,
            s0, s1, s2, s3,
            d0, d1, d2, d3,
        ];
        [ip[10], ip[11]] = ipv4_checksum(&ip).to_be_bytes();
        ip
    }

    fn ipv6(&self, src: [u8; 16], dst: [u8; 16], udp_len: u16) -> [u8; IPV6_LEN] {
        let [v0, v1, v2, v3] = (0x6000_0000 | (u32::from(self.tos) << 20)).to_be_bytes();
        let [l0, l1] = udp_len.to_be_bytes();
        let mut ip = [0; IPV6_LEN];
        let fields = [v0, v1, v2, v3, l0, l1, 17, self.ttl];
        for (to, from) in ip.iter_mut().zip(fields.iter().chain(&src).chain(&dst)) {
            *to = *from;
        }
        ip
    }
}

/// The opcode of a small request to a QP of this service.
pub(crate) fn request_of(service: Service) -> u8 {
    // SEND Only of each: a duplicate is acknowledged and otherwise dropped.
    match service {
        Service::Rc => 0x04,
        Service::Uc => 0x24,
        Service::Ud => 0x64,
    }
}

/// Finds an opcode by its name in [`opcode::all`], or takes its number.
///
/// # Errors
///
/// Neither; the sentence lists what there is.
pub(crate) fn parse_opcode(text: &str) -> Result<u8, String> {
    if let Some(info) = opcode::all()
        .iter()
        .find(|info| info.name.eq_ignore_ascii_case(text))
    {
        return Ok(info.opcode);
    }
    let number = parse_number(text).and_then(|value| u8::try_from(value).ok());
    number.ok_or_else(|| {
        let names: Vec<&str> = opcode::all().iter().map(|info: &Info| info.name).collect();
        format!("a number 0..255, or one of {}", names.join(", "))
    })
}

/// A number, decimal or with 0x hexadecimal, as QPNs are printed here and there.
pub(crate) fn parse_number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn has_payload(opcode: u8) -> bool {
    opcode::info(opcode).is_some_and(|info| info.payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rxe_cc::roce::{
        cnp::{Cnp, CNP_V4_LEN, CNP_V6_LEN},
        packet::{Ecn, Malformed, View},
    };

    const V4: (Addr, Addr) = (Addr::V4([10, 0, 0, 2]), Addr::V4([10, 0, 0, 1]));
    const V6: (Addr, Addr) = (Addr::V6([0xfd; 16]), Addr::V6([0xfe; 16]));

    fn packet(opcode: u8, (src, dst): (Addr, Addr)) -> Packet {
        Packet {
            src,
            dst,
            tos: 3,
            ttl: 64,
            udp_sport: 49152,
            opcode,
            tver: 0,
            pkey: 0xffff,
            dest_qp: 0x12,
            psn: 77,
            source_qp: 0x13,
            payload_len: 61,
            reserved: false,
            bad_icrc: false,
            truncate: 0,
        }
    }

    fn cnp(addresses: (Addr, Addr)) -> Packet {
        Packet {
            tos: 48 << 2 | Ecn::Ect0.bits(),
            udp_sport: 0,
            psn: 0,
            ..packet(opcode::CNP, addresses)
        }
    }

    #[test]
    fn a_cnp_is_that_of_the_module_byte_for_byte() {
        let mut v4 = [0; CNP_V4_LEN];
        let mut v6 = [0; CNP_V6_LEN];
        Cnp::new(V4.0, V4.1, 0xffff, 0x12)
            .write_v4::<Table>(&mut v4)
            .unwrap();
        Cnp::new(V6.0, V6.1, 0xffff, 0x12)
            .write_v6::<Table>(&mut v6)
            .unwrap();
        assert_eq!(cnp(V4).to_bytes().unwrap(), v4);
        assert_eq!(cnp(V6).to_bytes().unwrap(), v6);
    }

    #[test]
    fn every_opcode_makes_a_well_formed_packet_with_the_right_icrc() {
        for info in opcode::all() {
            for addresses in [V4, V6] {
                let bytes = packet(info.opcode, addresses).to_bytes().unwrap();
                let view = View::parse(&bytes).unwrap();
                assert_eq!(
                    view.check().map(|found| found.opcode),
                    Ok(info.opcode),
                    "{}",
                    info.name
                );
                assert!(view.icrc_matches::<Table>(), "{}", info.name);
                assert_eq!(
                    (view.ecn(), view.bth.dest_qp, view.bth.psn),
                    (Ecn::Ce, 0x12, 77)
                );
                let payload = if info.payload { 61 } else { 0 };
                assert_eq!(view.payload().unwrap().len(), payload, "{}", info.name);
            }
        }
    }

    #[test]
    fn a_ud_packet_names_its_sender() {
        let bytes = packet(request_of(Service::Ud), V4).to_bytes().unwrap();
        assert_eq!(View::parse(&bytes).unwrap().deth().unwrap().src_qp, 0x13);
    }

    #[test]
    fn a_bad_icrc_is_the_only_thing_wrong() {
        let good = cnp(V4).to_bytes().unwrap();
        let bad = Packet {
            bad_icrc: true,
            ..cnp(V4)
        }
        .to_bytes()
        .unwrap();
        assert_eq!(good[..good.len() - 4], bad[..bad.len() - 4]);
        assert!(!View::parse(&bad).unwrap().icrc_matches::<Table>());
    }

    #[test]
    fn a_truncated_packet_is_shorter_by_its_own_lengths_too() {
        let whole = cnp(V4).to_bytes().unwrap();
        let cut = Packet {
            truncate: 5,
            ..cnp(V4)
        }
        .to_bytes()
        .unwrap();
        assert_eq!(cut.len(), whole.len() - 5);
        let view = View::parse(&cut).unwrap();
        assert_eq!(view.check(), Err(Malformed::TooShort));
        assert!(Packet {
            truncate: 33,
            ..cnp(V4)
        }
        .to_bytes()
        .is_err());
    }

    #[test]
    fn an_unknown_opcode_another_version_and_reserved_bits_can_be_had() {
        let check = |packet: Packet| View::parse(&packet.to_bytes().unwrap()).unwrap().check();
        assert_eq!(check(packet(0x1f, V4)), Err(Malformed::UnknownOpcode));
        assert_eq!(
            check(Packet { tver: 1, ..cnp(V4) }),
            Err(Malformed::TransportVersion)
        );
        let bytes = Packet {
            reserved: true,
            ..cnp(V4)
        }
        .to_bytes()
        .unwrap();
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.bth.resv8a, view.bth.resv7), (0x7f, 0x7f));
        assert!(view.icrc_matches::<Table>());
        assert_eq!(bytes[40..56], [0xff; 16]);
    }

    #[test]
    fn addresses_of_two_versions_make_no_packet() {
        assert!(cnp((V4.0, V6.1)).to_bytes().is_err());
    }

    #[test]
    fn an_opcode_is_a_name_or_a_number() {
        assert_eq!(parse_opcode("rc_ack"), Ok(0x11));
        assert_eq!(parse_opcode("0x1f"), Ok(0x1f));
        assert!(parse_opcode("0x100").is_err() && parse_opcode("rc").is_err());
    }
}
