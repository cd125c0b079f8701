// SPDX-License-Identifier: GPL-2.0

//! The notification point: CE marks in, CNPs out.
//!
//! [`marked`] gets every CE-marked packet of a device from the receive hook and
//! judges it; a valid mark goes to its [`Flow`], whose window says whether a CNP
//! leaves now, when the window closes, or has left. Marks of QPs whose context is
//! not known yet wait in [`crate::qp`] and come back by [`answered`].
//!
//! The packet that carried the mark goes on to rxe in any case.

mod flow;
mod transmit;

pub(crate) use flow::{forget, knob_changed, snapshot, sweep, Flow, Snapshot, Target};

use crate::{
    counters::Counter,
    hooks::Received,
    linux::{
        hrtimer::now_ns,
        rdma::{QpContext, QpType},
    },
    qp::{self, Knowledge, Notice, QpEntry},
    roce::{
        opcode::{self, Service},
        packet::{self, Bth, Deth, BTH_LEN, DETH_LEN, MULTICAST_QPN, QP1},
    },
    tables::Tables,
    trace::{self, Ends},
};
use kernel::sync::Arc;

/// Why a mark leads to no CNP.
enum Refused {
    /// Its priority is off.
    Disabled,
    /// An ACK, a CNP, multicast, a management QP.
    NotData,
    /// Malformed, for no QP, from a stranger, or its ICRC is wrong.
    Invalid,
}

impl Refused {
    fn counter(&self) -> Counter {
        match self {
            Self::Disabled => Counter::NpCeDisabled,
            Self::NotData => Counter::NpCeNotData,
            Self::Invalid => Counter::NpCeInvalid,
        }
    }
}

/// What became of a valid mark.
enum Taken {
    /// Its flow has it.
    Counted,
    /// It waits for its QP's context, and is counted when that is there.
    Remembered,
}

/// The default P_Key's number, the only one that rxe has.
const DEFAULT_PKEY: u16 = 0x7fff;

/// A CE-marked packet came.
pub(crate) fn marked(received: &Received<'_>, bth: Option<&Bth>) {
    let now_ns = now_ns();
    let device = &received.device;
    device.count(Counter::NpEcnMarked);
    let (refused, unresolved) = match judge(received, bth, now_ns) {
        Ok(Taken::Counted) => (None, false),
        Ok(Taken::Remembered) => (None, true),
        Err(refused) => (Some(refused.counter()), false),
    };
    if let Some(counter) = refused {
        device.count(counter);
    }
    let ends = Ends {
        qpn: bth.map_or(0, |bth| bth.dest_qp),
        peer: received.packet.source(),
        peer_qpn: 0,
    };
    trace::ce(device, ends, refused, unresolved);
}

fn judge(received: &Received<'_>, bth: Option<&Bth>, now_ns: u64) -> Result<Taken, Refused> {
    let Received {
        tables,
        device,
        in_dev,
        packet,
    } = *received;
    let bth = bth.ok_or(Refused::Invalid)?;
    let info = opcode::info(bth.opcode).ok_or(Refused::Invalid)?;
    let local = packet.dest();
    if !info.kind.is_data()
        || bth.dest_qp <= QP1
        || bth.dest_qp == MULTICAST_QPN
        || packet::is_multicast(local)
    {
        return Err(Refused::NotData);
    }
    let len = packet.transport_len().ok_or(Refused::Invalid)?;
    packet::check(bth, len as usize).map_err(|_| Refused::Invalid)?;
    if bth.pkey & 0x7fff != DEFAULT_PKEY {
        return Err(Refused::Invalid);
    }
    let params = device.knobs.np_params();
    let priority = params.trust.priority(packet.dscp(), packet.priority());
    if !device.knobs.np_enabled(priority) {
        return Err(Refused::Disabled);
    }
    let source_qpn = match info.service {
        Service::Ud => {
            let deth: [u8; DETH_LEN] = packet.read(BTH_LEN).ok_or(Refused::Invalid)?;
            Deth::parse(&deth).src_qp
        }
        Service::Rc | Service::Uc => 0,
    };
    let target = Target {
        local,
        peer: packet.source(),
        dest_qpn: source_qpn,
        pkey: bth.pkey,
        oif: in_dev.ifindex(),
        qpn: bth.dest_qp,
        service: info.service,
        marked_ns: now_ns,
    };

    let qp = qp::find(tables, device, bth.dest_qp).ok_or(Refused::Invalid)?;
    match qp::consult(tables, &qp, Some(target.peer), now_ns) {
        Knowledge::Absent => Err(Refused::Invalid),
        Knowledge::Known(context) => {
            let target = target.with_context(&context).ok_or(Refused::Invalid)?;
            let flow = flow::find(tables, &qp, &target, params.moderation);
            let valid = || packet.icrc_matches();
            match flow {
                Ok(flow) => flow
                    .mark(&qp, target, now_ns, &params, valid)
                    .then_some(Taken::Counted)
                    .ok_or(Refused::Invalid),
                // A CNP was due at once and found no memory.
                Err(_) if valid() => {
                    device.count(Counter::NpCnpImmediate);
                    device.count(Counter::NpCnpSendFailed);
                    Ok(Taken::Counted)
                }
                Err(_) => Err(Refused::Invalid),
            }
        }
        Knowledge::Unknown { marked } => {
            let valid = marked || packet.icrc_matches();
            if valid && qp::remember(tables, &qp, target.peer, Notice::Mark(target)) {
                Ok(Taken::Remembered)
            } else {
                Err(Refused::Invalid)
            }
        }
    }
}

/// The context that remembered marks waited for is there (or does not exist).
pub(crate) fn answered(
    tables: &Tables,
    qp: &Arc<QpEntry>,
    context: Option<QpContext>,
    target: Target,
    marks: u32,
    close: bool,
) {
    let device = &qp.device;
    let Some(target) = context.and_then(|context| target.with_context(&context)) else {
        device.count_many(Counter::NpCeInvalid, marks);
        return;
    };
    device.count_many(Counter::NpCnpSuppressed, marks);
    let params = device.knobs.np_params();
    if close {
        // Its window is open already: the flow started it when it asked.
        transmit::deferred(device, &target, &params);
    }
    if marks > 0 {
        match flow::find(tables, qp, &target, params.moderation) {
            Ok(flow) => flow.answered(qp, target, now_ns(), &params),
            Err(_) => {
                device.count(Counter::NpCnpDeferred);
                device.count(Counter::NpCnpSendFailed);
            }
        }
    }
}

impl Target {
    /// Fills in what the context says; `None`: the packet does not belong to it.
    fn with_context(mut self, context: &QpContext) -> Option<Self> {
        if !context.takes(Some(self.service), self.peer) {
            return None;
        }
        if context.service != QpType::Ud {
            self.dest_qpn = context.dest_qpn;
        }
        Some(self)
    }
}
