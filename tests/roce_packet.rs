// SPDX-License-Identifier: GPL-2.0

//! Headers: read and written back, the structure check, serial numbers, the IPv4
//! checksum, and whole packets, right, wrong and cut short.

mod roce_support;

use proptest::prelude::*;
use roce_support::{masked_bits, packets, reference_icrc};
use rxe_cc::roce::{
    icrc::Table,
    opcode::{self, Kind},
    packet::{
        check, checksum_after_tos, ipv4_checksum, is_multicast, psn_after, psn_cmp, Addr, Bth,
        Deth, Ecn, Malformed, ParseError, View,
    },
};
use std::cmp::Ordering;

/// Sets the IP and UDP lengths to what is there.
fn fix_lengths(packet: &mut [u8]) {
    let len = packet.len();
    let put = |packet: &mut [u8], at: usize, value: usize| {
        packet[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
    };
    if packet[0] >> 4 == 4 {
        put(packet, 2, len);
        put(packet, 24, len - 20);
    } else {
        put(packet, 4, len - 40);
        put(packet, 44, len - 40);
    }
}

/// Where the BTH of a packet starts.
fn bth_at(packet: &[u8]) -> usize {
    if packet[0] >> 4 == 4 {
        28
    } else {
        48
    }
}

/// The RC SEND Only over IPv4 and the one over IPv6.
fn sends() -> [Vec<u8>; 2] {
    let all = packets();
    [all[3].bytes(), all[4].bytes()]
}

#[test]
fn packets_of_others_read_as_they_were_made() {
    for packet in packets() {
        let bytes = packet.bytes();
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.src, view.dst), packet.ends(), "{}", packet.name);
        assert_eq!((view.tos, view.ttl), (packet.tos, packet.ttl));
        assert_eq!((view.udp_sport, view.udp_dport), (packet.udp_sport, 4791));
        assert_eq!(view.ecn().in_tos(view.dscp() << 2), packet.tos);
        assert!(view.icrc_matches::<Table>());
        match packet.cnp {
            Some(cnp) => {
                assert_eq!(view.check().map(|info| info.kind), Ok(Kind::Cnp));
                assert_eq!((view.bth.pkey, view.bth.dest_qp), (cnp.pkey, cnp.dest_qp));
            }
            None => {
                assert_eq!(view.check().map(|info| info.name), Ok("RC_SEND_ONLY"));
                assert_eq!(view.payload(), Some(&b"hello"[..]));
                assert_eq!(
                    view.bth,
                    Bth {
                        opcode: 4,
                        pad: 3,
                        pkey: 0xffff,
                        dest_qp: 0x11,
                        ack_req: true,
                        psn: 0x12_3456,
                        ..Bth::default()
                    }
                );
            }
        }
        assert_eq!(view.deth(), None);
    }
}

#[test]
fn a_packet_cut_anywhere_is_truncated() {
    for packet in packets() {
        let bytes = packet.bytes();
        for len in 0..bytes.len() {
            let parsed = View::parse(&bytes[..len]).map(|_| ());
            assert_eq!(
                parsed,
                Err(ParseError::Truncated),
                "{} at {len}",
                packet.name
            );
        }
    }
}

#[test]
fn a_packet_cut_with_right_lengths_is_too_short() {
    for packet in packets() {
        let bytes = packet.bytes();
        let (bth, end) = (bth_at(&bytes), bytes.len());
        // The payload of a SEND may be shorter, but neither its pad nor its ICRC.
        let need = bth + if packet.cnp.is_some() { 32 } else { 12 + 3 + 4 };
        for len in bth..end {
            let mut cut = bytes[..len].to_vec();
            fix_lengths(&mut cut);
            match View::parse(&cut) {
                Err(error) => {
                    assert!(len < bth + 16, "{} at {len}", packet.name);
                    assert_eq!(error, ParseError::Truncated);
                }
                Ok(view) => {
                    assert!(len >= bth + 16, "{} at {len}", packet.name);
                    let outcome = view.check().map(|_| ());
                    if len < need {
                        assert_eq!(outcome, Err(Malformed::TooShort));
                        assert_eq!(view.payload(), None);
                    } else {
                        assert_eq!(outcome, Ok(()));
                        assert_eq!(view.payload().unwrap().len(), len - need);
                    }
                    assert!(!view.icrc_matches::<Table>());
                }
            }
        }
    }
}

#[test]
fn the_pad_of_a_short_frame_is_no_part_of_the_packet() {
    for packet in packets() {
        let mut bytes = packet.bytes();
        let end = bytes.len();
        bytes.extend_from_slice(&[0x5a; 14]);
        let view = View::parse(&bytes).unwrap();
        assert_eq!(view.transport, &bytes[bth_at(&bytes)..end]);
        assert!(view.icrc_matches::<Table>());
    }
}

#[test]
fn every_kind_of_stranger_is_named() {
    let [v4, v6] = sends();
    #[rustfmt::skip]
    let cases: &[(&[u8], usize, u8, ParseError)] = &[
        (&v4, 0, 0x55, ParseError::IpVersion),
        (&v4, 0, 0x05, ParseError::IpVersion),
        (&v4, 0, 0x44, ParseError::BadLength),  // header of 16 bytes
        (&v4, 0, 0x46, ParseError::Options),    // header of 24 bytes
        (&v4, 0, 0x4f, ParseError::Options),
        (&v4, 2, 0xff, ParseError::Truncated),  // longer than what is there
        (&v4, 3, 19, ParseError::BadLength),    // shorter than its header
        (&v4, 3, 27, ParseError::Truncated),    // half a UDP header
        (&v4, 6, 0x20, ParseError::Fragment),   // the first of several
        (&v4, 7, 1, ParseError::Fragment),      // a later one
        (&v4, 6, 0x10, ParseError::Fragment),
        (&v4, 9, 6, ParseError::NotUdp),
        (&v4, 23, 0xb8, ParseError::OtherPort),
        (&v4, 24, 1, ParseError::Truncated),    // UDP longer than its packet
        (&v4, 25, 7, ParseError::BadLength),    // UDP shorter than its header
        (&v4, 25, 23, ParseError::Truncated),   // no room for BTH and ICRC
        (&v6, 0, 0x70, ParseError::IpVersion),
        (&v6, 4, 1, ParseError::Truncated),
        (&v6, 5, 7, ParseError::Truncated),
        (&v6, 6, 44, ParseError::Fragment),
        (&v6, 6, 0, ParseError::Options),
        (&v6, 6, 43, ParseError::Options),
        (&v6, 6, 60, ParseError::Options),
        (&v6, 6, 58, ParseError::NotUdp),
        (&v6, 42, 0, ParseError::OtherPort),
        (&v6, 44, 1, ParseError::Truncated),
        (&v6, 45, 0, ParseError::BadLength),
    ];
    for (packet, offset, value, error) in cases {
        let mut bytes = packet.to_vec();
        assert_ne!(bytes[*offset], *value);
        bytes[*offset] = *value;
        assert_eq!(
            View::parse(&bytes).map(|_| ()),
            Err(*error),
            "byte {offset} = {value:#04x}"
        );
    }
}

#[test]
fn dont_fragment_is_no_fragment() {
    let [mut v4, _] = sends();
    for flags in [0x00, 0x40, 0x80, 0xc0] {
        v4[6] = flags;
        assert!(View::parse(&v4).is_ok());
    }
}

#[test]
fn the_deth_of_a_datagram_names_its_sender() {
    for mut bytes in sends() {
        let bth = bth_at(&bytes);
        // As UD SEND Only the eight bytes after the BTH are the DETH.
        bytes[bth] = 0x64;
        bytes[bth + 1] = 0;
        let deth = Deth {
            qkey: 0x1122_3344,
            src_qp: 0xab_cdef,
        };
        bytes[bth + 12..bth + 20].copy_from_slice(&deth.to_bytes());
        let view = View::parse(&bytes).unwrap();
        assert_eq!(view.deth(), Some(deth));
        assert_eq!(view.payload(), Some(&[][..]));

        // Cut inside of the DETH, the packet still reads, and has none.
        let mut cut = bytes[..bytes.len() - 1].to_vec();
        fix_lengths(&mut cut);
        let view = View::parse(&cut).unwrap();
        assert_eq!(view.deth(), None);
        assert_eq!(view.check(), Err(Malformed::TooShort));
    }
}

/// All single-byte changes of known packets: everything may be asked of what
/// still reads, and the ICRC agrees with the reference.
#[test]
fn any_changed_byte_leaves_a_packet_that_can_be_looked_at() {
    let (mut read, mut refused) = (0_u32, 0_u32);
    for packet in packets() {
        let right = packet.bytes();
        for offset in 0..right.len() {
            for value in 0..=u8::MAX {
                let mut bytes = right.clone();
                bytes[offset] = value;
                let Ok(view) = View::parse(&bytes) else {
                    refused += 1;
                    continue;
                };
                read += 1;
                assert_eq!(view.check().is_ok(), view.payload().is_some());
                view.deth();
                let end = bth_at(&bytes) + view.transport.len();
                assert_eq!(view.computed_icrc::<Table>(), reference_icrc(&bytes[..end]));

                let masked = masked_bits(&bytes)
                    .iter()
                    .any(|(at, mask)| *at == offset && (value ^ right[offset]) & !mask == 0);
                let unchanged = value == right[offset];
                assert_eq!(view.icrc_matches::<Table>(), masked || unchanged);
            }
        }
    }
    assert!(read > 50_000, "only {read} packets could be read");
    assert!(refused > 5_000, "only {refused} packets were refused");
}

/// The rule of rxe, written the other way round: what may be there.
fn expected_check(bth: &Bth, transport_len: usize) -> Result<(), Malformed> {
    let Some(info) = opcode::info(bth.opcode) else {
        return Err(Malformed::UnknownOpcode);
    };
    let pad = if info.kind == Kind::Cnp { 0 } else { bth.pad };
    let between = transport_len as i64 - i64::from(info.header_len) - 4;
    if between < i64::from(pad) {
        Err(Malformed::TooShort)
    } else if between > 0 && !info.payload {
        Err(Malformed::UnexpectedPayload)
    } else if bth.tver > 0 {
        Err(Malformed::TransportVersion)
    } else {
        Ok(())
    }
}

#[test]
fn check_knows_the_form_of_every_opcode() {
    let mut right = 0;
    for opcode in 0..=u8::MAX {
        for pad in 0..4 {
            for tver in [0, 1, 15] {
                for transport_len in 0..80 {
                    let bth = Bth {
                        opcode,
                        pad,
                        tver,
                        ..Bth::default()
                    };
                    let outcome = check(&bth, transport_len).map(|info| {
                        assert_eq!(info.opcode, opcode);
                    });
                    right += u32::from(outcome.is_ok());
                    assert_eq!(
                        outcome,
                        expected_check(&bth, transport_len),
                        "{bth:?}, {transport_len}"
                    );
                }
            }
        }
    }
    assert!(right > 0);
}

#[test]
fn check_by_examples() {
    let bth = |opcode, pad| Bth {
        opcode,
        pad,
        ..Bth::default()
    };
    let outcome = |opcode, pad, len| check(&bth(opcode, pad), len).map(|info| info.name);
    // The 20 bytes of UDP payload of an ACK.
    assert_eq!(outcome(0x11, 0, 20), Ok("RC_ACK"));
    assert_eq!(outcome(0x11, 0, 24), Err(Malformed::UnexpectedPayload));
    assert_eq!(outcome(0x11, 0, 19), Err(Malformed::TooShort));
    // A READ request with payload.
    assert_eq!(outcome(0x0c, 0, 32), Ok("RC_READ_REQUEST"));
    assert_eq!(outcome(0x0c, 0, 1056), Err(Malformed::UnexpectedPayload));
    // A SEND of nothing, one whose pad is missing, a full one.
    assert_eq!(outcome(0x04, 0, 16), Ok("RC_SEND_ONLY"));
    assert_eq!(outcome(0x04, 3, 18), Err(Malformed::TooShort));
    assert_eq!(outcome(0x01, 0, 12 + 4096 + 4), Ok("RC_SEND_MIDDLE"));
    assert_eq!(outcome(0x15, 0, 100), Err(Malformed::UnknownOpcode));
    assert_eq!(outcome(0x44, 0, 100), Err(Malformed::UnknownOpcode));
    assert_eq!(outcome(0x04, 3, usize::MAX), Ok("RC_SEND_ONLY"));
}

#[test]
fn ecn_is_the_two_low_bits() {
    let fields = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce];
    for tos in 0..=u8::MAX {
        let ecn = Ecn::from_tos(tos);
        assert_eq!(ecn, fields[usize::from(tos & 3)]);
        assert_eq!(ecn.bits(), tos & 3);
        for other in fields {
            let changed = other.in_tos(tos);
            assert_eq!(changed >> 2, tos >> 2);
            assert_eq!(Ecn::from_tos(changed), other);
        }
    }
}

#[test]
fn groups_are_told_from_hosts() {
    for first in 0..=u8::MAX {
        let v4 = Addr::V4([first, 0, 0, 1]);
        assert_eq!(is_multicast(v4), (224..240).contains(&first), "{v4:?}");
        let mut gid = [0; 16];
        gid[0] = first;
        assert_eq!(is_multicast(Addr::V6(gid)), first == 255);
    }
}

#[test]
fn checksum_of_known_headers() {
    for packet in packets() {
        let bytes = packet.bytes();
        if bytes[0] == 0x45 {
            let field = u16::from_be_bytes([bytes[10], bytes[11]]);
            assert_eq!(ipv4_checksum(&bytes[..20]), field, "{}", packet.name);
        }
    }
    // Longer headers, and what is none.
    assert_eq!(ipv4_checksum(&[0xff; 60]), 0);
    assert_eq!(ipv4_checksum(&[]), 0xffff);
    assert_eq!(ipv4_checksum(&[0x12]), !0x1200);
    assert_eq!(ipv4_checksum(&[0; 11]), 0xffff);
}

/// Every checksum that a header can have, and every change of its ECN field.
#[test]
fn checksum_follows_every_ecn_change() {
    let mut seen = vec![false; 0x1_0000];
    let mut header: [u8; 20] = packets()[0].bytes()[..20].try_into().unwrap();
    for id in 0..=u16::MAX {
        [header[4], header[5]] = id.to_be_bytes();
        let sums = [0, 1, 2, 3].map(|ecn| {
            header[1] = 0xc0 | ecn;
            let word = u16::from_be_bytes([header[0], header[1]]);
            (word, ipv4_checksum(&header))
        });
        for (old_word, old_check) in sums {
            seen[usize::from(old_check)] = true;
            for (new_word, new_check) in sums {
                assert_eq!(
                    checksum_after_tos(old_check, old_word, new_word),
                    new_check,
                    "{old_check:#06x}: {old_word:#06x} -> {new_word:#06x}"
                );
            }
        }
    }
    // 0xffff would take a header of zeroes.
    assert_eq!(seen.iter().position(|seen| !seen), Some(0xffff));
}

proptest! {
    #[test]
    fn checksum_follows_any_tos_change(mut header: [u8; 20], tos: u8) {
        header[0] = 0x45;
        let word = |header: &[u8; 20]| u16::from_be_bytes([header[0], header[1]]);
        let (old_word, old_check) = (word(&header), ipv4_checksum(&header));
        header[1] = tos;
        prop_assert_eq!(
            checksum_after_tos(old_check, old_word, word(&header)),
            ipv4_checksum(&header)
        );
    }

    /// The sum in wide arithmetic, folded at the end, as RFC 1071 puts it.
    #[test]
    fn checksum_agrees_with_the_plain_sum(header in proptest::collection::vec(any::<u8>(), 20..=60)) {
        let mut words: Vec<u64> = header
            .chunks(2)
            .map(|word| u64::from(word[0]) * 256 + word.get(1).map_or(0, |low| u64::from(*low)))
            .collect();
        words[5] = 0;
        let mut sum: u64 = words.iter().sum();
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        prop_assert_eq!(u64::from(ipv4_checksum(&header)), 0xffff - sum);
    }

    #[test]
    fn bth_bytes_survive(bytes: [u8; 12]) {
        let bth = Bth::parse(&bytes);
        prop_assert_eq!(bth.to_bytes(), bytes);
        prop_assert_eq!(bth.resv8a >> 7 == 1, bth.fecn);
        prop_assert_eq!(bth.resv8a >> 6 & 1 == 1, bth.becn);
    }

    #[test]
    fn bth_fields_survive(
        (opcode, pkey, resv6) in any::<(u8, u16, u8)>(),
        (solicited, migreq, fecn, becn, ack_req) in any::<(bool, bool, bool, bool, bool)>(),
        pad in 0..4_u8, tver in 0..16_u8, resv7 in 0..128_u8,
        dest_qp in 0..0x100_0000_u32, psn in 0..0x100_0000_u32,
    ) {
        let resv8a = u8::from(fecn) << 7 | u8::from(becn) << 6 | (resv6 & 0x3f);
        let bth = Bth {
            opcode, solicited, migreq, pad, tver, pkey, fecn, becn, resv8a, dest_qp, ack_req,
            resv7, psn,
        };
        prop_assert_eq!(Bth::parse(&bth.to_bytes()), bth);
    }

    #[test]
    fn bth_excess_bits_reach_no_other_field(pad: u8, tver: u8, dest_qp: u32, psn: u32, resv7: u8) {
        let wide = Bth { pad, tver, dest_qp, psn, resv7, ..Bth::default() };
        let narrow = Bth {
            pad: pad & 3,
            tver: tver & 15,
            dest_qp: dest_qp & 0xff_ffff,
            psn: psn & 0xff_ffff,
            resv7: resv7 & 0x7f,
            ..Bth::default()
        };
        prop_assert_eq!(Bth::parse(&wide.to_bytes()), narrow);
    }

    #[test]
    fn deth_survives(mut bytes: [u8; 8], qkey: u32, src_qp in 0..0x100_0000_u32) {
        let deth = Deth { qkey, src_qp };
        prop_assert_eq!(Deth::parse(&deth.to_bytes()), deth);
        let deth = Deth::parse(&bytes);
        bytes[4] = 0; // reserved
        prop_assert_eq!(deth.to_bytes(), bytes);
    }

    #[test]
    fn gids_hold_addresses(v4: [u8; 4], v6: [u8; 16]) {
        prop_assert_eq!(Addr::from_gid(Addr::V4(v4).to_gid()), Addr::V4(v4));
        prop_assert_eq!(Addr::from_gid(v6).to_gid(), v6);
        let mut mapped = [0; 16];
        mapped[10..12].fill(0xff);
        mapped[12..].copy_from_slice(&v4);
        prop_assert_eq!(Addr::V4(v4).to_gid(), mapped);
        // One bit off, it is an IPv6 address.
        for bit in 0..96 {
            let mut other = mapped;
            other[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Addr::from_gid(other), Addr::V6(other));
        }
    }

    #[test]
    fn psns_are_compared_on_a_circle(
        a in 0..0x100_0000_u32, ahead in 1..0x80_0000_u32, junk_a: u8, junk_b: u8,
    ) {
        let b = (a + ahead) % 0x100_0000;
        // The bits above the PSN do not matter.
        let a = a | u32::from(junk_a) << 24;
        let b = b | u32::from(junk_b) << 24;
        prop_assert!(psn_after(b, a));
        prop_assert!(!psn_after(a, b));
        prop_assert_eq!(psn_cmp(b, a), Ordering::Greater);
        prop_assert_eq!(psn_cmp(a, b), Ordering::Less);
        prop_assert_eq!(psn_cmp(a, a), Ordering::Equal);
        let opposite = (a.wrapping_add(0x80_0000)) & 0xff_ffff;
        prop_assert!(!psn_after(a, opposite) && !psn_after(opposite, a));
        prop_assert_ne!(psn_cmp(a, opposite), Ordering::Equal);
    }

    #[test]
    fn strangers_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(view) = View::parse(&bytes) {
            prop_assert!(view.transport.len() >= 16);
        }
    }

    /// Random transport bytes behind right IP and UDP headers, so that the read
    /// gets to the end.
    #[test]
    fn strangers_transport_does_no_harm(
        version in 0..2_usize,
        transport in proptest::collection::vec(any::<u8>(), 16..120),
        known: bool,
        opcode in 0..40_usize,
    ) {
        let mut bytes = sends()[version].clone();
        let bth = bth_at(&bytes);
        bytes.truncate(bth);
        bytes.extend_from_slice(&transport);
        if known {
            bytes[bth] = opcode::all()[opcode].opcode;
        }
        fix_lengths(&mut bytes);
        let view = View::parse(&bytes).unwrap();
        prop_assert_eq!(view.transport, &bytes[bth..]);
        prop_assert_eq!(view.check().map(|_| ()), expected_check(&view.bth, transport.len()));
        prop_assert_eq!(view.payload().is_some(), view.check().is_ok());
        prop_assert_eq!(view.computed_icrc::<Table>(), reference_icrc(&bytes));
        let datagram = matches!(view.bth.opcode, 0x64 | 0x65);
        prop_assert_eq!(view.deth().is_some(), datagram && transport.len() >= 24);
    }
}
