// SPDX-License-Identifier: GPL-2.0

//! alpha, the estimate of how congested the path is.
//!
//! In come CNPs and reads with their times, out comes alpha as it is then. One
//! window (`dce_tcp_rtt`) with a CNP makes it G * alpha + (1 - G), one without
//! G * alpha, where G (`dce_tcp_g`) is the weight that the old value keeps.
//!
//! Windows are not ticked: the value is kept as of the start of the window of
//! the last CNP, and what it has decayed to since is computed when it is asked
//! for, as a power of G. A read changes nothing, so it cannot matter how often
//! somebody looks.

use core::fmt;

use super::rate::{widening_mul, Rate};
use super::snapshot::RpParams;

/// A value of alpha, 0..=1024 in 1/1024 with [`Alpha::FRACTION_BITS`] bits of
/// fraction: in plain 10-bit integers it would stick at 820 instead of
/// converging. Shown as a decimal number with three places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alpha(u64);

impl Alpha {
    /// Bits of fraction of [`Alpha::units`].
    pub const FRACTION_BITS: u32 = 40;

    /// No congestion.
    pub(super) const ZERO: Alpha = Alpha(0);

    /// From 1/1024; more than 1024 is 1024.
    pub(super) const fn from_1024ths(value: u32) -> Self {
        let value = if value > 1024 { 1024 } else { value };
        Alpha((value as u64) << Self::FRACTION_BITS)
    }

    /// In 1/1024, with the fraction.
    pub const fn units(self) -> u64 {
        self.0
    }

    /// In 1/1024, rounded down.
    pub const fn whole(self) -> u32 {
        (self.0 >> Self::FRACTION_BITS) as u32
    }

    /// The fraction behind [`Alpha::whole`] in thousandths, rounded down.
    pub const fn thousandths(self) -> u32 {
        let fraction = self.0 & ((1 << Self::FRACTION_BITS) - 1);
        // 40 bits and 10 bits.
        ((fraction * 1000) >> Self::FRACTION_BITS) as u32
    }

    /// rate * alpha >> gd, alpha in 1/1024.
    pub(super) const fn share_of(self, rate: Rate, gd: u32) -> Rate {
        let units = widening_mul(rate.units(), self.0) >> Self::FRACTION_BITS >> (gd & 63);
        // Only a tiny gd makes this more than the rate, and that is all there is.
        if units > rate.units() as u128 {
            rate
        } else {
            Rate::from_units(units as u64)
        }
    }

    fn weighed(self, g: Weight) -> Self {
        // g is at most 1: not more than it was.
        Alpha((widening_mul(self.0, g.0) >> Weight::FRACTION_BITS) as u64)
    }

    fn after_cnp_window(self, g: Weight) -> Self {
        // G * alpha + (1 - G) <= 1 as long as alpha <= 1. A unit of alpha is
        // 2^-50, one of the weight 2^-62.
        let one_minus_g =
            Weight::ONE.0.saturating_sub(g.0) >> (Weight::FRACTION_BITS - 10 - Self::FRACTION_BITS);
        Alpha(self.weighed(g).0.saturating_add(one_minus_g))
    }
}

impl fmt::Display for Alpha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.whole(), self.thousandths())
    }
}

/// A weight, 0..=1 with 62 bits of fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight(u64);

impl Weight {
    const FRACTION_BITS: u32 = 62;
    const ONE: Weight = Weight(1 << Self::FRACTION_BITS);

    /// From 1/1024; more than 1024 is 1.
    pub(super) const fn from_1024ths(value: u32) -> Self {
        let value = if value > 1024 { 1024 } else { value };
        Weight((value as u64) << (Self::FRACTION_BITS - 10))
    }

    fn times(self, other: Weight) -> Self {
        Weight((widening_mul(self.0, other.0) >> Self::FRACTION_BITS) as u64)
    }

    /// The weight to the power of `n`: at most 16 rounds and then nothing is
    /// left, as even 1023/1024 to the power of 2^16 is 2^-92.
    fn to_the(self, n: u64) -> Self {
        if n >> 16 != 0 && self.0 < Self::ONE.0 {
            return Weight(0);
        }
        let (mut power, mut square, mut left) = (Self::ONE, self, n & 0xffff);
        while left != 0 {
            if left & 1 == 1 {
                power = power.times(square);
            }
            square = square.times(square);
            left >>= 1;
        }
        power
    }
}

/// alpha of one flow over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AlphaClock {
    /// alpha at `start_ns`.
    value: Alpha,
    /// The start of a window, that of the last CNP.
    start_ns: u64,
    /// A CNP came in the window that starts at `start_ns`.
    cnp: bool,
}

impl AlphaClock {
    /// The first window starts now, with no CNP in it.
    pub(super) const fn new(value: Alpha, now_ns: u64) -> Self {
        AlphaClock {
            value,
            start_ns: now_ns,
            cnp: false,
        }
    }

    /// alpha after all windows that end until `now_ns`, that instant included.
    pub(super) fn at(&self, now_ns: u64, p: &RpParams) -> Alpha {
        let windows = self.windows_until(now_ns, p);
        if windows == 0 {
            return self.value;
        }
        if self.cnp {
            self.value
                .after_cnp_window(p.g)
                .weighed(p.g.to_the(windows - 1))
        } else {
            self.value.weighed(p.g.to_the(windows))
        }
    }

    /// A CNP in the window that `now_ns` is in.
    pub(super) fn on_cnp(&mut self, now_ns: u64, p: &RpParams) {
        self.settle(now_ns, p);
        self.cnp = true;
    }

    /// Another window or weight from `now_ns` on. A window that the new period
    /// has ended already ends now.
    pub(super) fn on_params(&mut self, now_ns: u64, old: &RpParams, new: &RpParams) {
        if old.alpha_window_ns == new.alpha_window_ns && old.g == new.g {
            return;
        }
        self.settle(now_ns, old);
        let end_ns = self.start_ns.saturating_add(new.alpha_window_ns.get());
        if end_ns <= now_ns {
            self.value = if self.cnp {
                self.value.after_cnp_window(new.g)
            } else {
                self.value.weighed(new.g)
            };
            *self = Self::new(self.value, now_ns);
        }
    }

    /// Keeps alpha as of the start of the window that `now_ns` is in.
    fn settle(&mut self, now_ns: u64, p: &RpParams) {
        let windows = self.windows_until(now_ns, p);
        if windows != 0 {
            let start_ns = self
                .start_ns
                .saturating_add(windows.saturating_mul(p.alpha_window_ns.get()));
            *self = Self::new(self.at(now_ns, p), start_ns);
        }
    }

    fn windows_until(&self, now_ns: u64, p: &RpParams) -> u64 {
        now_ns.saturating_sub(self.start_ns) / p.alpha_window_ns
    }
}
