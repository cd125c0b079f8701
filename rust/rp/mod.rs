// SPDX-License-Identifier: GPL-2.0

//! The reaction point: CNPs in, rates out.
//!
//! [`cnp_received`] gets every packet with opcode 0x81 from the receive hook, which
//! takes it away from rxe in any case, and judges it. CNPs for QPs whose context is
//! not known yet wait in [`crate::qp`] and come back by [`answered`]. An accepted
//! CNP goes to the QP's [`flow`], whose rate the output hook asks for every packet
//! in [`sent`]; packets that must wait are in [`queue`], and [`doorbell`] keeps their
//! QPs from suffering.

pub(crate) mod doorbell;
pub(crate) mod flow;
pub(crate) mod port;
mod queue;

use crate::{
    counters::Counter,
    dcqcn::params::{Group, Id, Trust},
    device::{Device, DeviceEntry},
    hooks::{Received, Sending},
    knobs::KnobId,
    linux::{
        hrtimer::now_ns,
        netdevice::{NetDeviceEvent, Rtnl},
        netfilter::{HookState, Verdict},
        rdma::QpContext,
        skbuff::SkBuff,
    },
    qp::{self, Knowledge, Notice, QpEntry},
    roce::{
        cnp::check_cnp,
        opcode::{Kind, Service},
        packet::{Addr, Bth, Deth, BTH_LEN, DETH_LEN},
    },
    tables::Tables,
    trace::{self, Ends},
};
use kernel::sync::Arc;

/// A CNP came.
pub(crate) fn cnp_received(received: &Received<'_>, bth: &Bth) {
    let verdict = judge(received, bth);
    if let Some(verdict) = verdict {
        received.device.count(verdict);
    }
    let ends = Ends {
        qpn: bth.dest_qp,
        peer: received.packet.source(),
        peer_qpn: 0,
    };
    trace::cnp_rx(&received.device, ends, verdict);
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
    let source = packet.source();
    match qp::consult(tables, &qp, Some(source), now_ns()) {
        Knowledge::Known(context) => Some(accept(tables, &qp, Some(context), source, 1)),
        Knowledge::Absent => Some(Counter::RpCnpUnknownQp),
        Knowledge::Unknown { .. } => {
            let remembered = qp::remember(tables, &qp, source, Notice::Cnp);
            (!remembered).then_some(Counter::RpCnpUnknownQp)
        }
    }
}

/// The context that remembered CNPs waited for is there (or does not exist).
pub(crate) fn answered(
    tables: &Tables,
    qp: &Arc<QpEntry>,
    context: Option<QpContext>,
    source: Addr,
    cnps: u32,
) {
    let verdict = accept(tables, qp, context, source, cnps);
    qp.device.count_many(verdict, cnps);
}

/// Judges CNPs by their QP's context and passes them on; what they count as.
fn accept(
    tables: &Tables,
    qp: &Arc<QpEntry>,
    context: Option<QpContext>,
    source: Addr,
    cnps: u32,
) -> Counter {
    let device = &qp.device;
    let Some(context) = context.filter(QpContext::is_controlled) else {
        return Counter::RpCnpUnknownQp;
    };
    if !context.takes(None, source) {
        return Counter::RpCnpWrongPeer;
    }
    let priority = priority(device, &context);
    if !device.knobs.rp_enabled(priority) {
        return Counter::RpCnpDisabled;
    }
    for _ in 0..cnps.min(CNPS_AT_ONCE) {
        if flow::cnp(tables, qp, &context, priority).is_err() {
            return Counter::RpCnpNoMemory;
        }
    }
    Counter::RpCnpHandled
}

/// CNPs that came at one instant, when their QP's context was not known: a second
/// one makes a pending cut, further ones nothing.
const CNPS_AT_ONCE: u32 = 2;

/// The priority of what a QP sends, by its address vector.
///
/// A UD QP has none; its flow goes by its last packet's priority.
fn priority(device: &Device, context: &QpContext) -> u8 {
    Trust::from_value(device.knobs.get(Id::Trust))
        .priority(context.traffic_class >> 2, u32::from(context.service_level))
}

/// A packet of a device with flows is about to leave: what the output hook found out.
pub(crate) struct Leaving {
    key: flow::FlowKey,
    kind: Kind,
    psn: u32,
    priority: Option<u8>,
}

/// Looks at a packet that is sent; `None`: no flow could hold it.
#[inline]
pub(crate) fn leaving(device: &Device, sending: &Sending<'_>) -> Option<Leaving> {
    let Sending {
        packet,
        bth,
        opcode,
    } = sending;
    if !device.rp.has_flows() || opcode.kind == Kind::Cnp {
        return None;
    }
    let (key, priority) = match opcode.service {
        Service::Rc | Service::Uc => (
            flow::connected_key(device, packet.dest(), bth.dest_qp),
            None,
        ),
        Service::Ud => {
            let deth: [u8; DETH_LEN] = packet.read(BTH_LEN)?;
            let trust = Trust::from_value(device.knobs.get(Id::Trust));
            (
                flow::datagram_key(device, Deth::parse(&deth).src_qp),
                Some(trust.priority(packet.dscp(), packet.priority())),
            )
        }
    };
    Some(Leaving {
        key,
        kind: opcode.kind,
        psn: bth.psn,
        priority,
    })
}

/// Sends a packet by its flow's rate, if it has a flow.
pub(crate) fn send(tables: &Tables, leaving: Leaving, skb: SkBuff, state: &HookState) -> Verdict {
    match tables.rp_flows.get_whole(&leaving.key, state) {
        Some(flow) => flow.send(
            flow::Sent {
                skb,
                kind: leaving.kind,
                psn: leaving.psn,
                priority: leaving.priority,
            },
            state,
        ),
        None => Verdict::Accept(skb),
    }
}

/// A knob was written.
pub(crate) fn knob_changed(device: &DeviceEntry, knob: KnobId) {
    match knob {
        KnobId::RpEnable(_) => flow::priority_disabled(device),
        KnobId::Param(id)
            if id.param().group == Group::RoceRp
                || matches!(id, Id::LineRate | Id::Dilation | Id::HyperIncrease) =>
        {
            device.rp.refresh(&device.knobs);
            flow::params_changed(device);
        }
        KnobId::Param(_) | KnobId::NpEnable(_) => {}
    }
}

/// Reads the speed of the link. Sleeps.
pub(crate) fn read_line_rate(device: &DeviceEntry, rtnl: &Rtnl) {
    if device.rp.set_line_mbps(device.netdev.speed_mbps(rtnl)) {
        device.rp.refresh(&device.knobs);
        flow::params_changed(device);
    }
}

/// Something happened to the net device.
pub(crate) fn netdev_event(device: &DeviceEntry, event: NetDeviceEvent) {
    match event {
        NetDeviceEvent::GoingDown | NetDeviceEvent::Unregister => close_device(device),
        NetDeviceEvent::Up => device.rp.set_closed(false),
        NetDeviceEvent::Down | NetDeviceEvent::Change => {}
    }
}

/// The device sends no more: drops what is held, and holds nothing until it is up.
pub(crate) fn close_device(device: &Device) {
    device.rp.set_closed(true);
    flow::purge_device(device);
}

/// Lets everything go, in order. Sleeps.
pub(crate) fn drain(tables: &Tables) {
    flow::drain(tables);
}
