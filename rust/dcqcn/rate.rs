// SPDX-License-Identifier: GPL-2.0

//! Rates: a fixed-point number of bits per second, and its arithmetic.
//!
//! Everything the state machine keeps is a *model* rate (the real one times the
//! dilation) with [`FRACTION_BITS`] bits of fraction. 63 bits hold 5.7e17 bit/s:
//! every knob (2^32 - 1 Mb/s is 4.3e15), and a 5 Tb/s line at the largest
//! dilation; a line beyond that counts as [`Rate::LIMIT`]. The highest bit stays
//! free, so the sum of two rates never overflows.
//!
//! The kernel has no 128-bit division; `div` is one in 64-bit steps.

use core::num::NonZeroU64;

/// Bits of fraction of a [`Rate`].
pub const FRACTION_BITS: u32 = 4;

const UNITS_PER_MBPS: u64 = 1_000_000 << FRACTION_BITS;

/// A model rate in 1/16 bit/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

impl Rate {
    /// The highest rate there is.
    pub const LIMIT: Rate = Rate(u64::MAX >> 1);

    /// From 1/16 bit/s; what is above [`Rate::LIMIT`] is that.
    pub(super) const fn from_units(units: u64) -> Self {
        if units > Self::LIMIT.0 {
            Self::LIMIT
        } else {
            Rate(units)
        }
    }

    /// From Mb/s; what is above [`Rate::LIMIT`] is that.
    pub const fn from_mbps(mbps: u64) -> Self {
        Self::from_units(mbps.saturating_mul(UNITS_PER_MBPS))
    }

    /// 1/16 bit/s.
    pub(super) const fn units(self) -> u64 {
        self.0
    }

    /// Model bit/s, rounded down.
    pub const fn bps(self) -> u64 {
        self.0 >> FRACTION_BITS
    }

    /// Real bit/s under this dilation, rounded down.
    pub fn real_bps(self, dilation: NonZeroU64) -> u64 {
        self.bps() / dilation
    }

    /// The sum, at most [`Rate::LIMIT`].
    pub(super) const fn plus(self, step: Rate) -> Self {
        Self::from_units(self.0.saturating_add(step.0))
    }

    /// The difference, at least 0.
    pub(super) const fn minus(self, step: Rate) -> Self {
        Rate(self.0.saturating_sub(step.0))
    }

    /// So many percent of it, 0..=100, rounded down.
    pub(super) const fn percent(self, percent: u64) -> Self {
        // The rate in hundreds and the rest: neither product overflows.
        let whole = (self.0 / 100).saturating_mul(percent);
        let rest = (self.0 % 100).saturating_mul(percent) / 100;
        Self::from_units(whole.saturating_add(rest))
    }

    /// The product, at most [`Rate::LIMIT`].
    pub(super) const fn times(self, factor: u64) -> Self {
        Self::from_units(self.0.saturating_mul(factor))
    }

    /// The middle between two rates, rounded down.
    pub(super) const fn middle(self, other: Rate) -> Self {
        // Both are below 2^63.
        Rate(self.0.wrapping_add(other.0) >> 1)
    }

    /// The rate under which a rate has to be for its limiter to stay on, when
    /// this is the maximum: (maximum - rate) * 1024 > maximum.
    pub(super) const fn release_threshold(self) -> Self {
        Rate(self.0 - (self.0 >> 10))
    }

    /// The same real rate under another dilation, rounded down, but never 0.
    pub(super) fn dilated(self, from: NonZeroU64, to: NonZeroU64) -> Self {
        if from == to {
            return self;
        }
        let units = div(widening_mul(self.0, to.get()), from);
        Self::from_units(saturated(units).max(1))
    }
}

/// The product of two 64-bit numbers; it always fits.
pub(super) const fn widening_mul(a: u64, b: u64) -> u128 {
    (a as u128).wrapping_mul(b as u128)
}

/// `dividend / divisor` rounded down.
///
/// The upper half is divided by the machine; restoring division then makes the
/// lower half of the quotient, a bit a round.
pub(super) fn div(dividend: u128, divisor: NonZeroU64) -> u128 {
    let high = (dividend >> 64) as u64;
    let low = dividend as u64;
    if high == 0 {
        return u128::from(low / divisor);
    }
    let upper = high / divisor;
    let mut rest = high % divisor;
    let divisor = divisor.get();
    let mut lower: u64 = 0;
    let mut bit = 64;
    while bit > 0 {
        bit -= 1;
        // rest < divisor, so twice the rest and a bit has 65 bits at most, and
        // the difference, where there is one, is below the divisor again.
        let carry = rest >> 63 == 1;
        rest = (rest << 1) | ((low >> bit) & 1);
        lower <<= 1;
        if carry || rest >= divisor {
            rest = rest.wrapping_sub(divisor);
            lower |= 1;
        }
    }
    (u128::from(upper) << 64) | u128::from(lower)
}

/// What of a 128-bit number fits into 64 bits: all, or as much as there is.
pub(super) fn saturated(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_agrees_with_the_compilers() {
        // The host has a 128-bit division; numbers of all lengths.
        let mut seed = 1_u64;
        let mut next = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            seed
        };
        let check = |dividend: u128, divisor: u64| {
            let divisor = NonZeroU64::new(divisor).unwrap_or(NonZeroU64::MIN);
            let expected = dividend / u128::from(divisor.get());
            assert_eq!(div(dividend, divisor), expected, "{dividend} / {divisor}");
        };
        for _ in 0..20_000 {
            let dividend = (u128::from(next()) << 64 | u128::from(next())) >> (next() >> 57);
            check(dividend, next() >> (next() >> 58));
        }
        for dividend in [0, 1, u128::from(u64::MAX), 1 << 64, u128::MAX] {
            for divisor in [1, 2, 10, 1 << 63, u64::MAX] {
                check(dividend, divisor);
            }
        }
    }

    #[test]
    fn sums_and_products_stop_at_the_limit() {
        assert_eq!(Rate::from_mbps(u64::MAX), Rate::LIMIT);
        assert_eq!(Rate::LIMIT.plus(Rate::LIMIT), Rate::LIMIT);
        assert_eq!(Rate::LIMIT.times(3), Rate::LIMIT);
        assert_eq!(Rate::LIMIT.middle(Rate::LIMIT), Rate::LIMIT);
        assert_eq!(Rate::LIMIT.percent(100), Rate::LIMIT);
        assert_eq!(Rate::from_mbps(1).minus(Rate::LIMIT), Rate::default());
        assert_eq!(Rate::from_mbps(3).percent(50).bps(), 1_500_000);
    }
}
