// SPDX-License-Identifier: GPL-2.0

//! The invariant CRC of a RoCEv2 packet (Annex A17, ICRC).
//!
//! The headers and then the rest of a packet come in, the four bytes that end it
//! on the wire go out. The CRC is Ethernet's CRC-32. It runs over eight bytes
//! 0xff (the place of InfiniBand's routing header), then over the packet from
//! the IP header on, with all that a router may change set to ones: IPv4 TOS,
//! TTL and checksum, IPv6 traffic class, flow label and hop limit, the UDP
//! checksum, and the BTH byte that holds FECN and BECN.
//!
//! The CRC itself is a parameter ([`Crc32`]): a kernel has a fast one. Whether
//! a packet that fails the check is dropped, counted or ignored is left to the
//! caller.

use crate::roce::packet::BTH_LEN;
use core::marker::PhantomData;

/// A way to compute CRC-32 (Ethernet, reflected, polynomial 0xedb88320).
pub trait Crc32 {
    /// Runs `data` through the register `crc`, with no inversion before or
    /// after; what Linux calls `crc32_le()`.
    fn update(crc: u32, data: &[u8]) -> u32;
}

/// A [`Crc32`] of one 1 KiB table: for hosts, tests and kernels without better.
#[derive(Clone, Copy, Debug)]
pub struct Table;

impl Crc32 for Table {
    #[inline]
    fn update(crc: u32, data: &[u8]) -> u32 {
        table_update(crc, data)
    }
}

/// The ICRC of a packet in the making.
#[derive(Clone, Copy, Debug)]
pub struct Icrc<C: Crc32> {
    crc: u32,
    algorithm: PhantomData<C>,
}

impl<C: Crc32> Icrc<C> {
    /// Starts with the headers of an IPv4 packet without options.
    ///
    /// What the masked fields hold does not matter.
    pub fn start_v4(ip: &[u8; 20], udp: &[u8; 8], bth: &[u8; BTH_LEN]) -> Self {
        let mut ip = *ip;
        ip[1] = 0xff; // TOS
        ip[8] = 0xff; // TTL
        ip[10] = 0xff; // header checksum
        ip[11] = 0xff;
        Self::start(&ip, udp, bth)
    }

    /// Starts with the headers of an IPv6 packet without extension headers.
    ///
    /// What the masked fields hold does not matter.
    pub fn start_v6(ip: &[u8; 40], udp: &[u8; 8], bth: &[u8; BTH_LEN]) -> Self {
        let mut ip = *ip;
        ip[0] |= 0x0f; // traffic class, flow label
        ip[1] = 0xff;
        ip[2] = 0xff;
        ip[3] = 0xff;
        ip[7] = 0xff; // hop limit
        Self::start(&ip, udp, bth)
    }

    fn start(masked_ip: &[u8], udp: &[u8; 8], bth: &[u8; BTH_LEN]) -> Self {
        let mut udp = *udp;
        udp[6] = 0xff; // checksum
        udp[7] = 0xff;
        let mut bth = *bth;
        bth[4] = 0xff; // FECN, BECN, reserved

        let mut crc = C::update(SEED, masked_ip);
        crc = C::update(crc, &udp);
        crc = C::update(crc, &bth);
        Self {
            crc,
            algorithm: PhantomData,
        }
    }

    /// Goes on with what follows the BTH, pad bytes included, in as many pieces
    /// as the caller likes.
    pub fn update(&mut self, data: &[u8]) {
        self.crc = C::update(self.crc, data);
    }

    /// The last four bytes of the packet, as they stand on the wire.
    pub fn finish(self) -> [u8; 4] {
        (!self.crc).to_le_bytes()
    }
}

/// The register after the eight bytes that every ICRC starts with.
const SEED: u32 = table_update(u32::MAX, &[0xff; 8]);

static TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0xedb8_8320
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

const fn table_update(mut crc: u32, mut data: &[u8]) -> u32 {
    while let Some((byte, rest)) = data.split_first() {
        // The index is below 256 by its mask, so no bound is ever missed.
        crc = (crc >> 8) ^ TABLE[((crc ^ *byte as u32) & 0xff) as usize];
        data = rest;
    }
    crc
}
