// SPDX-License-Identifier: GPL-2.0

//! The ECN field of what an rxe device sends: RoCE data leave as ECT(0), whatever
//! the application asked for and whether or not the RP is enabled, as they leave a
//! ConnectX. ACKs and packets of the connection manager (QP1) are left alone. The
//! ICRC does not cover the field, so only the IP checksum changes.
//!
//! With `ect_mode` = `pass` nothing is changed, and what leaves unmarkable or
//! marked already is counted.

use crate::{
    counters::Counter,
    dcqcn::params::{EctMode, Id},
    device::Device,
    linux::{netfilter::Family, skbuff::SkBuff},
    roce::{
        opcode::Kind,
        packet::{checksum_after_tos, Ecn, IPV4_LEN, IPV6_LEN},
    },
};

/// Whether a packet leaves as it is, whatever the knobs say.
#[inline]
pub(crate) fn is_settled(kind: Kind, tos: u8) -> bool {
    !kind.is_data() || Ecn::from_tos(tos) == Ecn::Ect0
}

fn mode(device: &Device) -> EctMode {
    EctMode::from_value(device.knobs.get(Id::EctMode))
}

/// Whether data that are not settled leave as ECT(0).
#[inline(always)]
pub(crate) fn is_rewriting(device: &Device) -> bool {
    mode(device) == EctMode::Rewrite
}

/// The TOS byte that a packet must get before it leaves; `None`: as it is.
#[inline]
pub(crate) fn to_do(device: &Device, kind: Kind, tos: u8) -> Option<u8> {
    if is_settled(kind, tos) {
        return None;
    }
    match mode(device) {
        EctMode::Rewrite => Some(Ecn::Ect0.in_tos(tos)),
        EctMode::Pass => {
            match Ecn::from_tos(tos) {
                Ecn::NotEct => device.count(Counter::TxNotEct),
                Ecn::Ce => device.count(Counter::TxBornCe),
                Ecn::Ect0 | Ecn::Ect1 => {}
            }
            None
        }
    }
}

#[inline(always)]
fn set_in_v4(ip: &mut [u8; IPV4_LEN], tos: u8) {
    let old = u16::from_be_bytes([ip[0], ip[1]]);
    ip[1] = tos;
    let new = u16::from_be_bytes([ip[0], ip[1]]);
    let check = u16::from_be_bytes([ip[10], ip[11]]);
    [ip[10], ip[11]] = checksum_after_tos(check, old, new).to_be_bytes();
}

#[inline(always)]
fn set_in_v6(ip: &mut [u8; IPV6_LEN], tos: u8) {
    ip[0] = ip[0] & 0xf0 | tos >> 4;
    ip[1] = tos << 4 | ip[1] & 0x0f;
}

/// Sets the TOS byte (the traffic class) if the packet shares its memory with no other;
/// whether it did.
#[inline(always)]
pub(crate) fn set_own_tos(skb: &mut SkBuff, family: Family, tos: u8) -> bool {
    let set = match family {
        Family::V4 => skb.own_head_mut().map(|ip| set_in_v4(ip, tos)),
        Family::V6 => skb.own_head_mut().map(|ip| set_in_v6(ip, tos)),
    };
    set.is_some()
}

/// Sets the TOS byte (the traffic class). Without memory the packet stays as it is.
pub(crate) fn set_tos(skb: &mut SkBuff, family: Family, tos: u8) {
    let _ = match family {
        Family::V4 => skb.head_mut().map(|ip| set_in_v4(ip, tos)),
        Family::V6 => skb.head_mut().map(|ip| set_in_v6(ip, tos)),
    };
}
