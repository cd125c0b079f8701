// SPDX-License-Identifier: GPL-2.0

//! The kernel's CRC-32.
//!
//! C header: [`include/linux/crc32.h`](srctree/include/linux/crc32.h).

use super::bindings;
use crate::roce::icrc::Crc32;

/// `crc32_le()`, with whatever instructions this processor has for it.
pub(crate) struct KernelCrc32;

impl Crc32 for KernelCrc32 {
    #[inline]
    fn update(crc: u32, data: &[u8]) -> u32 {
        // SAFETY: The slice is readable for its length.
        unsafe { bindings::crc32_le(crc, data.as_ptr().cast(), data.len()) }
    }
}

#[kernel::prelude::kunit_tests(rxe_cc_crc32)]
mod tests {
    use super::*;
    use crate::{
        linux::kunit::{ip_checksum, pattern},
        roce::{
            icrc::{Icrc, Table},
            packet::{checksum_after_tos, ipv4_checksum},
        },
    };

    #[test]
    fn the_kernels_crc_is_that_of_the_table() {
        let bytes = pattern::<300>();
        for start in 0..16 {
            for end in start..bytes.len() {
                let data = &bytes[start..end];
                for seed in [u32::MAX, 0, 0xdead_beef] {
                    assert_eq!(KernelCrc32::update(seed, data), Table::update(seed, data));
                }
            }
        }
        // The check value of CRC-32.
        assert_eq!(!KernelCrc32::update(u32::MAX, b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn an_icrc_does_not_depend_on_who_computes_it_or_in_what_pieces() {
        let bytes = pattern::<200>();
        let (ip4, ip6, udp, bth) = (
            pattern::<20>(),
            pattern::<40>(),
            pattern::<8>(),
            pattern::<12>(),
        );
        let mut table = Icrc::<Table>::start_v4(&ip4, &udp, &bth);
        table.update(&bytes);
        let want = table.finish();
        for cut in 0..=bytes.len() {
            let mut kernel = Icrc::<KernelCrc32>::start_v4(&ip4, &udp, &bth);
            let (head, tail) = bytes.split_at(cut);
            kernel.update(head);
            kernel.update(tail);
            assert_eq!(kernel.finish(), want);
        }
        let table = Icrc::<Table>::start_v6(&ip6, &udp, &bth);
        let kernel = Icrc::<KernelCrc32>::start_v6(&ip6, &udp, &bth);
        assert_eq!(kernel.finish(), table.finish());
    }

    #[test]
    fn the_kernel_accepts_the_ipv4_checksums_that_are_written() {
        let mut ip = [
            0x45, 0, 0, 60, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        for word in [0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff_u16] {
            [ip[4], ip[5]] = word.to_be_bytes();
            let check = ipv4_checksum(&ip);
            for tos in 0..=u8::MAX {
                let mut changed = ip;
                changed[1] = tos;
                let check = checksum_after_tos(check, 0x4500, 0x4500 | u16::from(tos));
                [changed[10], changed[11]] = check.to_be_bytes();
                assert_eq!(ip_checksum(&changed), 0);
            }
        }
    }
}
