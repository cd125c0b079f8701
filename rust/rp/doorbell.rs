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
use kernel::{
    prelude::*,
    time::{delay::fsleep, Delta},
};

/// How soon the worker looks after packets that were just held.
pub(crate) const START_MS: usize = 2;
/// How often it looks while packets are held: well within a quarter of the shortest
/// ack timeout that relies on it, 33 ms, without the tick's 4 ms at 250 Hz on top.
const PERIOD_NS: u64 = 3_000_000;
/// With very many flows it rests for so many times as long as it worked.
const REST: u64 = 3;

/// The worker's part. Sleeps, and returns when nothing is held any more.
pub(crate) fn watch(tables: &Tables) {
    loop {
        let started_ns = now_ns();
        let Ok(flows) = tables.rp_flows.collect(|flow| flow.needs_watch()) else {
            return tables.watch_held();
        };
        if flows.is_empty() {
            return;
        }
        for flow in &flows {
            look_after(flow);
        }
        drop(flows);
        let worked_ns = now_ns().saturating_sub(started_ns);
        let rest_ns = PERIOD_NS.max(worked_ns.saturating_mul(REST));
        fsleep(Delta::from_nanos(
            i64::try_from(rest_ns).unwrap_or(i64::MAX),
        ));
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
