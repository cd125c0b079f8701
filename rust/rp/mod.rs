// SPDX-License-Identifier: GPL-2.0

//! The reaction point: CNPs in.
//!
//! [`cnp_received`] gets every packet with opcode 0x81 from the receive hook, which
//! takes it away from rxe in any case, and judges it. CNPs for QPs whose context is
//! not known yet wait in [`crate::qp`] and come back by [`answered`].

use crate::{
    counters::Counter,
    dcqcn::params::{Id, Trust},
    device::Device,
    hooks::Received,
    linux::{hrtimer::now_ns, rdma::QpContext},
    qp::{self, Knowledge, Notice, QpEntry},
    roce::{
        cnp::check_cnp,
        packet::{Addr, Bth},
    },
};

/// A CNP came.
pub(crate) fn cnp_received(received: &Received<'_>, bth: &Bth) {
    if let Some(verdict) = judge(received, bth) {
        received.device.count(verdict);
    }
}

/// What a CNP counts as; `None` when the answer of the RDMA core decides.
fn judge(received: &Received<'_>, bth: &Bth) -> Option<Counter> {
    let Received {
        tables,
        device,
        packet,
        ..
    } = *received;
    let well_formed = packet
        .transport_len()
        .is_some_and(|len| check_cnp(bth, len as usize).is_ok());
    if !well_formed {
        return Some(Counter::RpCnpMalformed);
    }
    if !packet.icrc_matches() {
        return Some(Counter::RpCnpBadIcrc);
    }
    let Some(qp) = qp::find(tables, device, bth.dest_qp) else {
        return Some(Counter::RpCnpUnknownQp);
    };
    match qp::consult(tables, &qp, Some(packet.source), now_ns()) {
        Knowledge::Known(context) => Some(verdict(&device, Some(context), packet.source)),
        Knowledge::Absent => Some(Counter::RpCnpUnknownQp),
        Knowledge::Unknown { .. } => {
            let remembered = qp::remember(tables, &qp, packet.source, Notice::Cnp);
            (!remembered).then_some(Counter::RpCnpUnknownQp)
        }
    }
}

/// The context that remembered CNPs waited for is there (or does not exist).
pub(crate) fn answered(qp: &QpEntry, context: Option<QpContext>, source: Addr, cnps: u32) {
    qp.device
        .count_many(verdict(&qp.device, context, source), cnps);
}

fn verdict(device: &Device, context: Option<QpContext>, source: Addr) -> Counter {
    match context {
        Some(context) if context.is_controlled() => {
            if !context.takes(None, source) {
                Counter::RpCnpWrongPeer
            } else if !device.knobs.rp_enabled(priority(device, &context)) {
                Counter::RpCnpDisabled
            } else {
                Counter::RpCnpHandled
            }
        }
        _ => Counter::RpCnpUnknownQp,
    }
}

/// The priority of what a QP sends, by its address vector.
fn priority(device: &Device, context: &QpContext) -> u8 {
    Trust::from_value(device.knobs.get(Id::Trust)).priority(
        context.traffic_class >> 2,
        u32::from(context.service_level),
    )
}
