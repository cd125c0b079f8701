// SPDX-License-Identifier: GPL-2.0

//! Looks after the QPs whose packets are held.
//!
//! rxe stops a QP by itself when 64 of its packets are in flight, and only a run of
//! its send task moves the ack timer on. So while packets are held the doorbell is
//! rung, without work, whenever a quarter of the ack timeout has passed without a
//! request: that runs the send task. Held packets also keep a QP's destroy waiting;
//! a QP that restrack no longer finds is under destroy, and what it has here is
//! dropped.

use super::flow::{Fate, Flow};
use crate::{
    linux::{hrtimer::now_ns, rdma::QpState},
    qp,
    tables::Tables,
};
use kernel::prelude::*;

/// How soon the worker looks again while packets are held. With the tick's 4 ms on
/// top, at 250 Hz, well within a quarter of the shortest ack timeout that relies on
/// it, 33 ms.
pub(crate) const PERIOD_MS: usize = 2;

/// The worker's part. Sleeps.
pub(crate) fn watch(tables: &Tables) {
    let Ok(flows) = tables.rp_flows.collect(|flow| flow.needs_watch()) else {
        tables.watch_held();
        return;
    };
    for flow in &flows {
        look_after(flow);
    }
    if !flows.is_empty() {
        tables.watch_held();
    }
}

fn look_after(flow: &Flow) {
    let now_ns = now_ns();
    let answer = match flow.qp.device.ib.get() {
        Some(device) => device.ring_doorbell(qp::number(&flow.qp), |context| {
            flow.take_ring(context, now_ns)
        }),
        // The device goes; it is purged by whoever removes it.
        None => return,
    };
    match answer {
        Ok(context) => match context.state {
            QpState::Rtr => {}
            QpState::Rts | QpState::Sqd | QpState::Sqe => flow.found(),
            QpState::Reset | QpState::Init | QpState::Err => flow.purge(Fate::Closing),
        },
        Err(ENOENT) => flow.purge(Fate::Dying),
        // Rung in vain: the state changed in between, and is looked at next time.
        Err(_) => {}
    }
}
