// SPDX-License-Identifier: GPL-2.0

//! The tracepoints `rxe_cc:*` in this module's terms: what a packet, a CNP or a
//! rate looks like in a trace. `linux/rxe_cc_trace.h` has the events.

use crate::{
    counters::Counter,
    dcqcn::rp::{Events, View},
    device::Device,
    linux::tracepoint::{self, TraceFlow, TraceRate, NAME_LEN},
    roce::packet::Addr,
};
use core::sync::atomic::{AtomicU64, Ordering};
use kernel::prelude::*;

const WORDS: usize = NAME_LEN / 8;

/// A device's name that may be read while it is changed, torn at worst.
pub(crate) struct Name([AtomicU64; WORDS]);

impl Name {
    /// A name; what does not fit is cut off.
    pub(crate) fn new(name: &CStr) -> Self {
        let new = Self([const { AtomicU64::new(0) }; WORDS]);
        new.set(name);
        new
    }

    /// Changes it.
    pub(crate) fn set(&self, name: &CStr) {
        // The last byte stays 0.
        let mut bytes = name.to_bytes().iter().take(NAME_LEN - 1);
        for word in &self.0 {
            let next = core::array::from_fn(|_| bytes.next().copied().unwrap_or(0));
            word.store(u64::from_ne_bytes(next), Ordering::Relaxed);
        }
    }

    fn get(&self) -> [u8; NAME_LEN] {
        let mut bytes = [0; NAME_LEN];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(&self.0) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        bytes
    }
}

/// The two ends of a flow, as events name them.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    /// Our QPN.
    pub(crate) qpn: u32,
    /// The peer's address.
    pub(crate) peer: Addr,
    /// The peer's QPN; 0 when nobody knows.
    pub(crate) peer_qpn: u32,
}

/// Calls `event` with what every event says of its flow, if anybody listens to any.
#[inline]
fn traced(device: &Device, ends: Ends, event: impl FnOnce(&TraceFlow<'_>)) {
    if tracepoint::enabled() {
        event(&TraceFlow {
            ibdev: &device.name.get(),
            peer: &ends.peer.to_gid(),
            qpn: ends.qpn,
            peer_qpn: ends.peer_qpn,
        });
    }
}

/// A CE mark was judged: the reason why it leads to no CNP, or none; or the QP's
/// context decides.
pub(crate) fn ce(device: &Device, ends: Ends, refused: Option<Counter>, unresolved: bool) {
    let verdict = match refused {
        None if unresolved => 4,
        None => 0,
        Some(Counter::NpCeDisabled) => 1,
        Some(Counter::NpCeNotData) => 2,
        Some(_) => 3,
    };
    traced(device, ends, |flow| tracepoint::ce(flow, verdict));
}

/// A CNP was sent or could not be.
pub(crate) fn cnp_tx(device: &Device, ends: Ends, deferred: bool, sent: &Result) {
    let status = sent.map_or_else(|error| error.to_errno(), |()| 0);
    traced(device, ends, |flow| {
        tracepoint::cnp_tx(flow, deferred, status);
    });
}

/// A CNP came and counts as that; `None`: its QP's context decides.
pub(crate) fn cnp_rx(device: &Device, ends: Ends, verdict: Option<Counter>) {
    let verdict = match verdict {
        Some(Counter::RpCnpHandled) => 0,
        Some(Counter::RpCnpDisabled) => 1,
        Some(Counter::RpCnpMalformed) => 2,
        Some(Counter::RpCnpBadIcrc) => 3,
        Some(Counter::RpCnpUnknownQp) => 4,
        Some(Counter::RpCnpWrongPeer) => 5,
        Some(_) => 6,
        None => 7,
    };
    traced(device, ends, |flow| tracepoint::cnp_rx(flow, verdict));
}

/// A flow's rate changed.
pub(crate) fn rate(
    device: &Device,
    ends: impl FnOnce() -> Ends,
    events: &Events,
    view: impl FnOnce() -> View,
) {
    if events.cuts == 0 && events.increases == 0 && !events.limiter_on && !events.limiter_off {
        return;
    }
    traced(device, ends(), |flow| {
        let view = view();
        let rate = |events| TraceRate {
            rate_bps: view.rc_real,
            target_bps: view.rt_real,
            model_rate_bps: view.rc,
            time_stage: view.time_stage,
            byte_stage: view.byte_stage,
            alpha_milli: view.alpha.whole() * 1000 + view.alpha.thousandths(),
            events,
        };
        if events.limiter_on {
            tracepoint::limiter(flow, &rate(1), true);
        }
        if events.cuts > 0 {
            tracepoint::rate_cut(flow, &rate(events.cuts));
        }
        if events.increases > 0 {
            let increases = u32::try_from(events.increases).unwrap_or(u32::MAX);
            tracepoint::rate_increase(flow, &rate(increases));
        }
        if events.limiter_off {
            tracepoint::limiter(flow, &rate(1), false);
        }
    });
}

/// A packet that is held or was.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    /// Its PSN.
    pub(crate) psn: u32,
    /// Its Ethernet frame without FCS, in bytes; 0: free of charge.
    pub(crate) wire_bytes: u32,
    /// It is a response or an ACK behind one, not a request.
    pub(crate) response: bool,
}

/// A packet was held; its flow holds `held` now.
pub(crate) fn hold(device: &Device, ends: Ends, packet: Waiting, held: u32) {
    traced(device, ends, |flow| {
        tracepoint::hold(flow, packet.psn, packet.wire_bytes, packet.response, held);
    });
}

/// A packet that was held for so long is sent.
pub(crate) fn release(device: &Device, ends: Ends, packet: Waiting, held_ns: u64) {
    traced(device, ends, |flow| {
        tracepoint::release(
            flow,
            packet.psn,
            packet.wire_bytes,
            packet.response,
            held_ns,
        );
    });
}
