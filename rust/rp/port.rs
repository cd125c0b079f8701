// SPDX-License-Identifier: GPL-2.0

//! What the reaction point keeps for a device as a whole: the parameters in force,
//! and the sums over its flows.

use crate::{
    dcqcn::params::{RpParams, UNKNOWN_LINE_RATE_MBPS},
    knobs::Knobs,
};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use kernel::{
    prelude::*,
    sync::{new_spinlock_irq, Arc, SpinLockIrq},
};

/// One flow's part of the sums.
#[derive(Clone, Copy, Default)]
pub(super) struct Gauges {
    pub(super) limited: bool,
    pub(super) held_packets: u32,
    pub(super) response_bytes: u32,
}

/// The sums.
pub(super) struct Sums {
    limited: AtomicU64,
    held_packets: AtomicU64,
    response_bytes: AtomicU64,
}

impl Sums {
    /// A flow's part was `old` and is `new`.
    pub(super) fn replace(&self, old: &Gauges, new: &Gauges) {
        let replace = |sum: &AtomicU64, old: u32, new: u32| {
            if old != new {
                let change = u64::from(new).wrapping_sub(u64::from(old));
                sum.fetch_add(change, Ordering::Relaxed);
            }
        };
        replace(&self.limited, old.limited.into(), new.limited.into());
        replace(&self.held_packets, old.held_packets, new.held_packets);
        replace(&self.response_bytes, old.response_bytes, new.response_bytes);
    }

    /// Memory of held responses, in bytes.
    pub(super) fn response_bytes(&self) -> u64 {
        self.response_bytes.load(Ordering::Relaxed)
    }
}

/// The reaction point of a device.
#[pin_data]
pub(crate) struct Port {
    #[pin]
    params: SpinLockIrq<Arc<RpParams>>,
    /// The net device's speed in Mb/s, as last read.
    line_mbps: AtomicU32,
    /// Flows with a state: with none the output hook looks nothing up.
    pub(super) flows: AtomicU32,
    pub(super) gauges: Sums,
    held_max_ns: AtomicU64,
    /// The device goes down or away: nothing may be held.
    closed: AtomicBool,
}

impl Port {
    /// The reaction point of a device whose link's speed is not known yet.
    pub(crate) fn new(knobs: &Knobs) -> impl PinInit<Self, Error> + use<> {
        let params = Arc::new(knobs.rp_params(UNKNOWN_LINE_RATE_MBPS), GFP_KERNEL);
        try_pin_init!(Self {
            params <- new_spinlock_irq!(params?, "rxe_cc_rp_params"),
            line_mbps: AtomicU32::new(UNKNOWN_LINE_RATE_MBPS),
            flows: AtomicU32::new(0),
            gauges: Sums {
                limited: AtomicU64::new(0),
                held_packets: AtomicU64::new(0),
                response_bytes: AtomicU64::new(0),
            },
            held_max_ns: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }? Error)
    }

    /// The parameters in force.
    pub(super) fn params(&self) -> Arc<RpParams> {
        self.params.lock().clone()
    }

    /// Takes the knobs and the link's speed over. Sleeps. Without memory the old
    /// parameters stay in force until the next write.
    pub(super) fn refresh(&self, knobs: &Knobs) {
        // Two writers: whoever is last has seen both writes.
        let Ok(mut room) = Arc::new(
            knobs.rp_params(self.line_mbps.load(Ordering::Relaxed)),
            GFP_KERNEL,
        ) else {
            return;
        };
        core::mem::swap(&mut *self.params.lock(), &mut room);
    }

    /// Notes the speed of the link; `true` when it is another one.
    pub(super) fn set_line_mbps(&self, mbps: Option<u32>) -> bool {
        let mbps = mbps.unwrap_or(UNKNOWN_LINE_RATE_MBPS);
        self.line_mbps.swap(mbps, Ordering::Relaxed) != mbps
    }

    /// Whether any flow has a state.
    #[inline]
    pub(crate) fn has_flows(&self) -> bool {
        self.flows.load(Ordering::Relaxed) != 0
    }

    /// Whether nothing may be held.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Says whether something may be held.
    pub(super) fn set_closed(&self, closed: bool) {
        self.closed.store(closed, Ordering::Release);
    }

    /// A packet was held for so long.
    pub(super) fn held_for(&self, ns: u64) {
        self.held_max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// Flows whose limiter is on.
    pub(crate) fn limited_qps(&self) -> u64 {
        self.gauges.limited.load(Ordering::Relaxed)
    }

    /// Packets held.
    pub(crate) fn held_packets(&self) -> u64 {
        self.gauges.held_packets.load(Ordering::Relaxed)
    }

    /// The longest that a packet was held, in us.
    pub(crate) fn held_max_us(&self) -> u64 {
        self.held_max_ns.load(Ordering::Relaxed) / 1000
    }
}
