// SPDX-License-Identifier: GPL-2.0

//! The flows that were marked lately: what `cnp_moderation` makes share one
//! window, and the timer that closes it.
//!
//! A flow is made by its first mark and forgotten when its window has long been
//! quiet, or when its QP is gone or another one.

use super::transmit;
use crate::{
    counters::Counter,
    dcqcn::{
        np_window::{Close, Mark, Window},
        params::{CnpModeration, Id, NpParams},
    },
    device::DeviceEntry,
    knobs::KnobId,
    linux::{
        hrtimer::{impl_has_soft_timer, now_ns, SoftTimer},
        rhashtable::Entry,
    },
    qp::{self, Knowledge, Notice, QpEntry},
    roce::{opcode::Service, packet::Addr},
    tables::Tables,
};
use kernel::{
    prelude::*,
    sync::{new_spinlock_irq, rcu, Arc, SpinLockIrq},
};

/// A flow that was not marked for so long, in or out of a window, is forgotten.
const IDLE_NS: u64 = 10_000_000_000;

/// Where a CNP goes.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// Our address, to which the mark was sent.
    pub(super) local: Addr,
    /// The address that sent the mark.
    pub(super) peer: Addr,
    /// The QPN to name: the peer's.
    pub(super) dest_qpn: u32,
    /// The mark's P_Key.
    pub(super) pkey: u16,
    /// The interface by which the mark came.
    pub(super) oif: i32,
    /// The QPN that was marked: ours.
    pub(super) qpn: u32,
    /// The mark's service.
    pub(super) service: Service,
    /// When the mark came.
    pub(super) marked_ns: u64,
}

struct Inner {
    window: Window,
    /// The last mark held in the window: its QP, and where its CNP goes.
    held: Option<(Arc<QpEntry>, Target)>,
    used_ns: u64,
    /// Valid marks.
    marks: u64,
    /// CNPs due, sent or not.
    cnps: u64,
    /// Taken out of the table, or about to be.
    dead: bool,
}

/// A flow.
#[pin_data]
pub(crate) struct Flow {
    /// The device.
    pub(crate) device: Arc<DeviceEntry>,
    #[pin]
    inner: SpinLockIrq<Inner>,
    #[pin]
    timer: SoftTimer<Flow>,
}

impl_has_soft_timer! {
    impl HasSoftTimer for Flow { self.timer, Flow::close }
}

/// A shared [`Flow`], as its table holds it.
type FlowEntry = Entry<6, Flow>;

fn key(qp: &QpEntry, peer: Addr, moderation: CnpModeration) -> [u32; 6] {
    let device = qp.device.number;
    match moderation {
        CnpModeration::PerQp => [device, 0, qp::number(qp), 0, 0, 0],
        CnpModeration::PerIp => {
            let [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3] = peer.to_gid();
            [
                device,
                1,
                u32::from_ne_bytes([a0, a1, a2, a3]),
                u32::from_ne_bytes([b0, b1, b2, b3]),
                u32::from_ne_bytes([c0, c1, c2, c3]),
                u32::from_ne_bytes([d0, d1, d2, d3]),
            ]
        }
        CnpModeration::PerPort => [device, 2, 0, 0, 0, 0],
    }
}

/// The key of a QP's own flow; the address plays no part in it.
fn own_key(qp: &QpEntry) -> [u32; 6] {
    key(qp, Addr::V4([0; 4]), CnpModeration::PerQp)
}

/// The flow of a mark.
pub(super) fn find(
    tables: &Tables,
    qp: &QpEntry,
    target: &Target,
    moderation: CnpModeration,
) -> Result<Arc<FlowEntry>> {
    let key = key(qp, target.peer, moderation);
    if let Some(flow) = tables.flows.get(&key, &rcu::read_lock()) {
        if !flow.inner.lock().dead {
            return Ok(Arc::from(flow));
        }
        tables.flows.remove(&flow);
    }
    let device = qp.device.clone();
    let flow = try_pin_init!(Flow {
        device,
        inner <- new_spinlock_irq!(
            Inner {
                window: Window::new(),
                held: None,
                used_ns: 0,
                marks: 0,
                cnps: 0,
                dead: false,
            },
            "rxe_cc_np_flow"
        ),
        timer <- SoftTimer::new(),
    }? Error);
    let (flow, new) = tables.flows.get_or_insert(key, flow, GFP_ATOMIC)?;
    if new {
        tables.check_gone(&qp.device);
        tables.sweep_later();
    }
    Ok(flow)
}

impl Flow {
    /// A mark of this flow; `false` when its ICRC had to be checked and was wrong.
    pub(super) fn mark(
        &self,
        qp: &Arc<QpEntry>,
        target: Target,
        now_ns: u64,
        params: &NpParams,
        icrc_matches: impl FnOnce() -> bool,
    ) -> bool {
        let period_ns = params.min_time_between_cnps_ns;
        if self.inner.lock().window.needs_icrc(now_ns, period_ns) && !icrc_matches() {
            return false;
        }
        match self.put(qp, target, now_ns, period_ns) {
            (Mark::SendNow, _) => transmit::immediate(&self.device, &target, params),
            (Mark::Suppressed { .. }, _) => self.device.count(Counter::NpCnpSuppressed),
            (Mark::SendLate { .. }, held) => {
                self.device.count(Counter::NpCnpSuppressed);
                self.send_held(held, now_ns, params);
            }
        }
        true
    }

    /// A mark of this flow that waited for its QP's context, and is counted.
    pub(super) fn answered(
        &self,
        qp: &Arc<QpEntry>,
        target: Target,
        now_ns: u64,
        params: &NpParams,
    ) {
        match self.put(qp, target, now_ns, params.min_time_between_cnps_ns) {
            (Mark::SendNow, _) => transmit::deferred(&self.device, &target, params),
            (Mark::Suppressed { .. }, _) => {}
            (Mark::SendLate { .. }, held) => self.send_held(held, now_ns, params),
        }
    }

    /// Puts a valid mark into the window; with the verdict comes what was held until
    /// now.
    fn put(
        &self,
        qp: &Arc<QpEntry>,
        target: Target,
        now_ns: u64,
        period_ns: u64,
    ) -> (Mark, Option<(Arc<QpEntry>, Target)>) {
        let mut inner = self.inner.lock();
        inner.used_ns = now_ns;
        inner.marks += 1;
        let mark = inner.window.on_mark(now_ns, period_ns);
        inner.cnps += u64::from(!matches!(mark, Mark::Suppressed { .. }));
        let (close_at_ns, held) = match mark {
            Mark::SendNow => (None, None),
            Mark::Suppressed { close_at_ns, first } => (
                first.then_some(close_at_ns),
                inner.held.replace((qp.clone(), target)),
            ),
            Mark::SendLate { close_at_ns } => {
                (Some(close_at_ns), inner.held.replace((qp.clone(), target)))
            }
        };
        drop(inner);
        if let Some(at_ns) = close_at_ns {
            self.timer.arm(at_ns);
        }
        (mark, held)
    }

    /// The timer: the window closes.
    fn close(&self) {
        let now_ns = now_ns();
        let params = self.device.knobs.np_params();
        let mut inner = self.inner.lock();
        let close = inner
            .window
            .on_close(now_ns, params.min_time_between_cnps_ns);
        let held = match close {
            Close::Send => inner.held.take(),
            Close::Later { .. } | Close::Quiet => None,
        };
        inner.cnps += u64::from(close == Close::Send);
        inner.used_ns = now_ns;
        drop(inner);
        if let Close::Later { at_ns } = close {
            self.timer.arm(at_ns);
        }
        self.send_held(held, now_ns, &params);
    }

    /// Sends the deferred CNP, if its QP's context still says so; if nobody knows,
    /// has the worker ask and send it.
    fn send_held(&self, held: Option<(Arc<QpEntry>, Target)>, now_ns: u64, params: &NpParams) {
        let Some((qp, target)) = held else {
            return;
        };
        let tables = &self.device.tables;
        match qp::consult(tables, &qp, Some(target.peer), now_ns) {
            Knowledge::Known(context) => {
                if let Some(target) = target.with_context(&context) {
                    transmit::deferred(&self.device, &target, params);
                }
            }
            Knowledge::Unknown { .. } => {
                qp::remember(tables, &qp, target.peer, Notice::Close(target));
            }
            Knowledge::Absent => {}
        }
    }
}

/// A flow as it is seen from outside.
pub(crate) struct Snapshot {
    /// Valid marks.
    pub(crate) marks: u64,
    /// CNPs for them, sent or failed.
    pub(crate) cnps: u64,
    /// The window is open.
    pub(crate) open: bool,
    /// A mark waits for the window's end.
    pub(crate) holding: bool,
}

/// A QP's own flow, if it was marked lately (with `cnp_moderation` = `per_qp`).
pub(crate) fn snapshot(tables: &Tables, qp: &QpEntry, now_ns: u64) -> Option<Snapshot> {
    let guard = rcu::read_lock();
    let flow = tables.flows.get(&own_key(qp), &guard)?;
    let period_ns = flow.device.knobs.np_params().min_time_between_cnps_ns;
    let inner = flow.inner.lock();
    Some(Snapshot {
        marks: inner.marks,
        cnps: inner.cnps,
        open: inner.window.is_open(now_ns, period_ns),
        holding: inner.held.is_some(),
    })
}

/// A knob was written: open windows end by the new period.
pub(crate) fn knob_changed(device: &DeviceEntry, knob: KnobId) {
    if !matches!(knob, KnobId::Param(Id::MinTimeBetweenCnps | Id::Dilation)) {
        return;
    }
    let now_ns = now_ns();
    device.tables.flows.for_each(|flow| {
        // What is not due yet is armed again.
        if flow.device.number == device.number && flow.inner.lock().held.is_some() {
            flow.timer.arm(now_ns);
        }
    });
}

/// A QP is gone, or its number is another QP's: what it had is not inherited.
pub(crate) fn forget(tables: &Tables, qp: &QpEntry) {
    if let Some(flow) = tables.flows.get(&own_key(qp), &rcu::read_lock()) {
        flow.inner.lock().dead = true;
        tables.flows.remove(&flow);
    }
}

/// Forgets flows that were not marked for long. The worker's part.
pub(crate) fn sweep(tables: &Tables) {
    let now_ns = now_ns();
    tables.flows.for_each(|flow| {
        let period_ns = flow.device.knobs.np_params().min_time_between_cnps_ns;
        let mut inner = flow.inner.lock();
        inner.dead = inner.held.is_none()
            && !inner.window.is_open(now_ns, period_ns)
            && now_ns.saturating_sub(inner.used_ns) > IDLE_NS;
        let dead = inner.dead;
        drop(inner);
        if dead {
            tables.flows.remove(&flow);
        }
    });
}
