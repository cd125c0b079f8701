// SPDX-License-Identifier: GPL-2.0

//! The ICRC: against packets of others, against a CRC worked out bit by bit, and
//! what it covers, bit for bit.

mod roce_support;

use proptest::prelude::*;
use roce_support::{masked_bits, packets, reference_icrc};
use rxe_cc::roce::icrc::{Crc32, Icrc, Table};

/// A [`Crc32`] with no table, to show that the algorithm is a parameter.
struct Bitwise;

impl Crc32 for Bitwise {
    fn update(mut crc: u32, data: &[u8]) -> u32 {
        for byte in data {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0xedb8_8320 * (crc & 1));
            }
        }
        crc
    }
}

/// The ICRC by the crate, for bytes that need not be a right packet.
fn icrc<C: Crc32>(packet: &[u8]) -> [u8; 4] {
    let array = |from: usize, to: usize| &packet[from..to];
    let mut icrc;
    let rest;
    match packet[0] >> 4 {
        4 => {
            icrc = Icrc::<C>::start_v4(
                array(0, 20).try_into().unwrap(),
                array(20, 28).try_into().unwrap(),
                array(28, 40).try_into().unwrap(),
            );
            rest = &packet[40..];
        }
        6 => {
            icrc = Icrc::<C>::start_v6(
                array(0, 40).try_into().unwrap(),
                array(40, 48).try_into().unwrap(),
                array(48, 60).try_into().unwrap(),
            );
            rest = &packet[60..];
        }
        version => panic!("IP version {version}"),
    }
    icrc.update(&rest[..rest.len() - 4]);
    icrc.finish()
}

#[test]
fn is_that_of_packets_of_others() {
    for packet in packets() {
        let bytes = packet.bytes();
        let carried = &bytes[bytes.len() - 4..];
        assert_eq!(reference_icrc(&bytes), carried, "{}", packet.name);
        assert_eq!(icrc::<Table>(&bytes), carried, "{}", packet.name);
        assert_eq!(icrc::<Bitwise>(&bytes), carried, "{}", packet.name);
    }
}

#[test]
fn leaves_out_the_masked_bits_and_no_other() {
    for packet in packets() {
        let bytes = packet.bytes();
        let right = icrc::<Table>(&bytes);
        let masked = masked_bits(&bytes);
        for offset in 0..bytes.len() - 4 {
            // The IP version decides how the packet is read at all.
            let bits = if offset == 0 { 0..4 } else { 0..8 };
            for bit in bits {
                let mut changed = bytes.clone();
                changed[offset] ^= 1 << bit;
                let left_out = masked
                    .iter()
                    .any(|(at, mask)| *at == offset && mask & (1 << bit) != 0);
                assert_eq!(
                    icrc::<Table>(&changed) == right,
                    left_out,
                    "{}: byte {offset}, bit {bit}",
                    packet.name,
                );
            }
        }
    }
}

#[test]
fn table_has_the_check_value_of_crc_32() {
    assert_eq!(!Table::update(u32::MAX, b"123456789"), 0xcbf4_3926);
    assert_eq!(!Table::update(u32::MAX, b""), 0);
}

proptest! {
    #[test]
    fn table_agrees_with_bits(crc: u32, data: Vec<u8>) {
        prop_assert_eq!(Table::update(crc, &data), Bitwise::update(crc, &data));
    }

    #[test]
    fn agrees_with_the_reference_over_ipv4(
        mut packet in proptest::collection::vec(any::<u8>(), 44..200),
    ) {
        packet[0] = 0x45;
        prop_assert_eq!(icrc::<Table>(&packet), reference_icrc(&packet));
    }

    #[test]
    fn agrees_with_the_reference_over_ipv6(
        mut packet in proptest::collection::vec(any::<u8>(), 64..200),
    ) {
        packet[0] = 0x60 | (packet[0] & 0xf);
        prop_assert_eq!(icrc::<Table>(&packet), reference_icrc(&packet));
    }

    #[test]
    fn does_not_depend_on_the_pieces(
        ip: [u8; 20], udp: [u8; 8], bth: [u8; 12],
        pieces in proptest::collection::vec(any::<Vec<u8>>(), 0..8),
    ) {
        let mut whole = Icrc::<Table>::start_v4(&ip, &udp, &bth);
        whole.update(&pieces.concat());
        let mut split = Icrc::<Table>::start_v4(&ip, &udp, &bth);
        for piece in &pieces {
            split.update(piece);
        }
        prop_assert_eq!(whole.finish(), split.finish());
    }
}
