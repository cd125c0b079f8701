// SPDX-License-Identifier: GPL-2.0

//! CNPs: ours against those of others, byte for byte; and which received ones
//! count as CNPs.

mod roce_support;

use proptest::prelude::*;
use roce_support::{masked_bits, packets, reference_icrc};
use rxe_cc::roce::{
    cnp::{check_cnp, Cnp, WrongIpVersion, CNP_UDP_LEN, CNP_V4_LEN, CNP_V6_LEN},
    icrc::Table,
    opcode::{self, Kind},
    packet::{check, Addr, Bth, Ecn, Malformed, View},
};

/// The packet over whichever IP version the addresses are of.
fn write(cnp: &Cnp) -> Vec<u8> {
    let mut v4 = [0xa5; CNP_V4_LEN];
    let mut v6 = [0xa5; CNP_V6_LEN];
    match (
        cnp.write_v4::<Table>(&mut v4),
        cnp.write_v6::<Table>(&mut v6),
    ) {
        (Ok(()), Err(WrongIpVersion)) => {
            assert_eq!(v6, [0xa5; CNP_V6_LEN], "a refused packet was written to");
            v4.to_vec()
        }
        (Err(WrongIpVersion), Ok(())) => {
            assert_eq!(v4, [0xa5; CNP_V4_LEN], "a refused packet was written to");
            v6.to_vec()
        }
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn has_the_lengths_of_the_annex() {
    assert_eq!((CNP_UDP_LEN, CNP_V4_LEN, CNP_V6_LEN), (40, 60, 80));
}

#[test]
fn equals_those_of_others_byte_for_byte() {
    let mut seen = 0;
    for packet in packets() {
        let Some(fields) = &packet.cnp else { continue };
        let (src, dst) = packet.ends();
        let cnp = Cnp {
            dscp: packet.tos >> 2,
            ecn: Ecn::from_tos(packet.tos),
            ttl: packet.ttl,
            ip_id: fields.ip_id,
            flow_label: fields.flow_label,
            udp_sport: packet.udp_sport,
            ..Cnp::new(src, dst, fields.pkey, fields.dest_qp)
        };
        assert_eq!(write(&cnp), packet.bytes(), "{}", packet.name);
        seen += 1;
    }
    assert_eq!(seen, 3);
}

#[test]
fn is_that_of_a_connectx_by_default() {
    let captured = &packets()[0];
    let (src, dst) = captured.ends();
    let mut cnp = Cnp::new(src, dst, 0xffff, 0x33);
    // The one field that no other packet has the same.
    cnp.ip_id = 0xece6;
    assert_eq!(write(&cnp), captured.bytes());
}

#[test]
fn is_never_written_for_two_ip_versions() {
    let v4 = Addr::V4([10, 0, 0, 1]);
    let v6 = Addr::V6([0xfd; 16]);
    for (src, dst) in [(v4, v6), (v6, v4)] {
        let cnp = Cnp::new(src, dst, 0xffff, 2);
        let mut out = [0xa5; CNP_V4_LEN];
        assert_eq!(cnp.write_v4::<Table>(&mut out), Err(WrongIpVersion));
        assert_eq!(out, [0xa5; CNP_V4_LEN]);
        let mut out = [0xa5; CNP_V6_LEN];
        assert_eq!(cnp.write_v6::<Table>(&mut out), Err(WrongIpVersion));
        assert_eq!(out, [0xa5; CNP_V6_LEN]);
    }
}

#[test]
fn length_and_header_version_alone_make_one() {
    for transport_len in 0..=200 {
        for tver in 0..=15 {
            let bth = Bth {
                opcode: opcode::CNP,
                tver,
                ..Bth::default()
            };
            let expected = match (transport_len, tver) {
                (0..=31, _) => Err(Malformed::TooShort),
                (32, 0) => Ok(()),
                (32, _) => Err(Malformed::TransportVersion),
                _ => Err(Malformed::UnexpectedPayload),
            };
            assert_eq!(check_cnp(&bth, transport_len), expected);
            assert_eq!(
                check(&bth, transport_len).map(|info| info.kind),
                expected.map(|()| Kind::Cnp)
            );
        }
    }
}

fn address() -> impl Strategy<Value = (Addr, Addr)> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (Addr::V4(a), Addr::V4(b))),
        any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (Addr::V6(a), Addr::V6(b))),
    ]
}

proptest! {
    #[test]
    fn reads_back_as_it_was_written(
        (src, dst) in address(),
        dscp in 0..64_u8,
        tos: u8,
        (ttl, ip_id, udp_sport, pkey) in any::<(u8, u16, u16, u16)>(),
        flow_label in 0..0x10_0000_u32,
        dest_qp in 0..0x100_0000_u32,
    ) {
        let ecn = Ecn::from_tos(tos);
        let cnp = Cnp {
            src, dst, dscp, ecn, ttl, ip_id, flow_label, udp_sport, pkey, dest_qp,
        };
        let bytes = write(&cnp);
        let view = View::parse(&bytes).unwrap();
        prop_assert_eq!((view.src, view.dst), (src, dst));
        prop_assert_eq!((view.dscp(), view.ecn(), view.ttl), (dscp, ecn, ttl));
        prop_assert_eq!((view.udp_sport, view.udp_dport), (udp_sport, 4791));
        prop_assert_eq!(view.bth, Bth {
            opcode: 0x81, pkey, becn: true, resv8a: 0x40, dest_qp, ..Bth::default()
        });
        prop_assert_eq!(view.check().map(|info| info.kind), Ok(Kind::Cnp));
        prop_assert_eq!(view.payload(), Some(&[][..]));
        prop_assert_eq!(&view.transport[12..28], &[0; 16]);
        prop_assert_eq!(view.icrc(), reference_icrc(&bytes));
        prop_assert!(view.icrc_matches::<Table>());
        match src {
            Addr::V4(_) => {
                prop_assert_eq!(&bytes[4..8], &[(ip_id >> 8) as u8, ip_id as u8, 0x40, 0]);
                // The words of a right header add up to all ones.
                let sum: u32 = bytes[..20].chunks(2)
                    .map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
                prop_assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
            }
            Addr::V6(_) => {
                let label = u32::from_be_bytes([0, bytes[1] & 0xf, bytes[2], bytes[3]]);
                prop_assert_eq!(label, flow_label);
            }
        }
    }

    #[test]
    fn excess_bits_of_a_field_reach_no_other(
        (src, dst) in address(), dscp: u8, flow_label: u32, dest_qp: u32,
    ) {
        let wide = Cnp { dscp, flow_label, ..Cnp::new(src, dst, 0xffff, dest_qp) };
        let narrow = Cnp {
            dscp: dscp & 0x3f,
            flow_label: flow_label & 0xf_ffff,
            ..Cnp::new(src, dst, 0xffff, dest_qp & 0xff_ffff)
        };
        prop_assert_eq!(write(&wide), write(&narrow));
    }

    #[test]
    fn any_other_bit_of_the_header_may_have_any_value(mut bytes: [u8; 12]) {
        bytes[0] = 0x81;
        bytes[1] &= 0xf0;
        prop_assert_eq!(check_cnp(&Bth::parse(&bytes), 32), Ok(()));
    }

    #[test]
    fn no_other_opcode_is_one(bytes: [u8; 12]) {
        prop_assume!(bytes[0] != 0x81);
        prop_assert_eq!(
            check_cnp(&Bth::parse(&bytes), 32),
            Err(Malformed::UnknownOpcode)
        );
    }

    #[test]
    fn reserved_bytes_may_have_any_value(reserved: [u8; 16]) {
        let mut bytes = packets()[0].bytes();
        bytes[40..56].copy_from_slice(&reserved);
        let icrc = reference_icrc(&bytes);
        bytes[56..].copy_from_slice(&icrc);
        let view = View::parse(&bytes).unwrap();
        prop_assert!(view.check().is_ok());
        prop_assert!(view.icrc_matches::<Table>());
    }

    #[test]
    fn what_routers_change_does_not_make_one_invalid(noise: [u8; 8], which in 0..3_usize) {
        let mut bytes = packets()[which].bytes();
        for ((offset, mask), noise) in masked_bits(&bytes).into_iter().zip(noise) {
            bytes[offset] ^= noise & mask;
        }
        let view = View::parse(&bytes).unwrap();
        prop_assert!(view.check().is_ok());
        prop_assert!(view.icrc_matches::<Table>());
    }
}
