// SPDX-License-Identifier: GPL-2.0

//! The pacer: when the next packet of a limited flow leaves.
//!
//! In come the flow's [`State`] and the packet at the head of its queue; out
//! comes that it leaves now, or when to ask again. The queue, the timer, and the
//! floors that a transport's ack timeout sets are left to others.
//!
//! The head leaves when the integral of Rc since the last departure reaches its
//! bits, so a rate that rises meanwhile shortens the wait. That integral is what
//! [`Events::credit`] carries; [`Pacer::accrue`] has to see every [`Events`] of
//! the flow.
//!
//! A sender that had nothing to send gains no credit: one packet leaves at once,
//! the next one waits its full time. A head that was held, and left later than it
//! should have because the timer was late, leaves what was missed as a carry that
//! those behind it may spend: at most [`MAX_LATENESS_NS`] of Rc. The time that a sender
//! was away is taken off it. So a burst is at most the head, the carry, and a packet
//! begun.

use super::rate::{div, saturated, widening_mul, FRACTION_BITS};
use super::rp::{Credit, Events, State};
use super::snapshot::RpParams;
use core::num::NonZeroU64;

/// The lateness of a timer that is made up for.
pub const MAX_LATENESS_NS: u64 = 20_000_000;

/// Rate changes that are looked ahead over to find a departure; if it lies
/// further away, the timer asks again at the last of them.
const LOOK_AHEAD: u32 = 32;

const NS_PER_SEC: u64 = 1_000_000_000;

/// No packet costs more: 2^35 bits * 2^30 ns/s * 2^17 (dilation) * 2^4. What is
/// above is the time of a sender that sleeps.
const ENOUGH: u128 = 1 << 90;

/// The departure clock of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pacer {
    /// The integral of Rc since the last departure.
    since: Wide,
    /// What late timers have left to be made up for.
    carry: Wide,
}

/// A `u128` aligned as its halves are: there may be ten thousand flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wide([u64; 2]);

impl Wide {
    const fn new(value: u128) -> Self {
        Self([value as u64, (value >> 64) as u64])
    }

    const fn get(self) -> u128 {
        let Self([low, high]) = self;
        (high as u128) << 64 | low as u128
    }
}

/// When the head of a queue leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Due {
    /// It may leave now.
    Now,
    /// Not before then; ask again then. Earlier, if knobs change or the flow's
    /// rate is raised by another packet's departure.
    At {
        /// The time to ask again, always later than the state's.
        at_ns: u64,
    },
}

impl Pacer {
    /// The clock of a flow whose last packet has just left.
    pub const fn new() -> Self {
        Pacer {
            since: Wide::new(0),
            carry: Wide::new(0),
        }
    }

    /// Time has passed for the flow's state.
    pub fn accrue(&mut self, events: &Events) {
        let Credit(credit) = events.credit;
        self.since = Wide::new(self.since.get().saturating_add(credit).min(ENOUGH));
    }

    /// The knobs have changed: keeps what was accrued in real bits. Call it after
    /// [`Pacer::accrue`] with the events of [`State::on_params`].
    pub fn on_params(&mut self, old: &RpParams, new: &RpParams) {
        if old.dilation == new.dilation {
            return;
        }
        // 90 bits and 17 bits.
        let dilated = |credit: Wide| {
            let scaled = credit.get().saturating_mul(u128::from(new.dilation.get()));
            Wide::new(div(scaled, old.dilation).min(ENOUGH))
        };
        self.since = dilated(self.since);
        self.carry = dilated(self.carry);
    }

    /// When a packet of `wire_bytes` at the head of the queue leaves, if the state
    /// was advanced to now and its events accrued.
    pub fn due(&self, state: &State, wire_bytes: u32, p: &RpParams) -> Due {
        if !state.limited() {
            return Due::Now;
        }
        let mut missing = cost(wire_bytes, p).saturating_sub(self.credit());
        if missing == 0 {
            return Due::Now;
        }
        let mut ahead = *state;
        for _ in 0..LOOK_AHEAD {
            let now_ns = ahead.now_ns();
            let rate = NonZeroU64::new(ahead.rc().units()).unwrap_or(NonZeroU64::MIN);
            let next_ns = ahead.next_event_ns(p).unwrap_or(u64::MAX);
            let until_next = widening_mul(rate.get(), next_ns.saturating_sub(now_ns));
            if missing <= until_next {
                let rounded_up = missing.saturating_add(u128::from(rate.get() - 1));
                let wait_ns = saturated(div(rounded_up, rate));
                return Due::At {
                    at_ns: now_ns.saturating_add(wait_ns),
                };
            }
            missing -= until_next;
            let _credit = ahead.advance(next_ns, p);
            if !ahead.limited() || next_ns == u64::MAX {
                break;
            }
        }
        Due::At {
            at_ns: ahead.now_ns(),
        }
    }

    /// The packet leaves now: charges it. `held` says that it had to wait, so
    /// that what it left too late counts as the timer's lateness; a packet that
    /// leaves before its time (a floor) leaves no debt.
    ///
    /// The flow's [`State::on_sent`] is another matter and comes after.
    pub fn depart(&mut self, state: &State, wire_bytes: u32, held: bool, p: &RpParams) {
        let cost = cost(wire_bytes, p);
        let left = if !state.limited() {
            0
        } else if held || self.since.get() < cost {
            self.credit().saturating_sub(cost)
        } else {
            // The sender was away: it has not been kept from sending for that long.
            let away = self.since.get() - cost;
            self.carry.get().saturating_sub(away)
        };
        let most = widening_mul(state.rc().units(), MAX_LATENESS_NS);
        self.since = Wide::new(0);
        self.carry = Wide::new(left.min(most));
    }

    fn credit(&self) -> u128 {
        self.since.get().saturating_add(self.carry.get())
    }
}

/// What a packet costs in credit: its bits, in 1/16 bit/s * ns of the model.
fn cost(wire_bytes: u32, p: &RpParams) -> u128 {
    let bits = u64::from(wire_bytes) << 3;
    // 10^9 * 10^5 * 2^4 is 2^51.
    let per_bit = (NS_PER_SEC << FRACTION_BITS).saturating_mul(p.dilation.get());
    widening_mul(bits, per_bit)
}
