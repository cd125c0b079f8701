// SPDX-License-Identifier: GPL-2.0

//! How long things take in a device: histograms, for debugfs.
//!
//! In come intervals from the packet paths, in any context; out come counts by
//! powers of two of a microsecond. Each CPU counts for itself.

use crate::linux::percpu::PerCpuCounters;
use kernel::prelude::*;

/// What is measured. The discriminant is its place in [`Interval::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Interval {
    /// From a CE mark at the receive hook to the CNP that answers it, sent.
    CeToCnp,
    /// The same for a CNP that left later: from the last mark that it answers.
    CeToCnpDeferred,
    /// From the transmit hook to the departure of a packet that had to wait.
    Held,
}

impl Interval {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::CeToCnp, Self::CeToCnpDeferred, Self::Held];

    /// Its column's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::CeToCnp => "ce_to_cnp",
            Self::CeToCnpDeferred => "ce_to_cnp_deferred",
            Self::Held => "held",
        }
    }
}

/// Rows of a histogram: under 1 us, then each twice as long; the last one is all
/// from 4.2 s on.
pub(crate) const BUCKETS: usize = 24;

const CELLS: usize = BUCKETS * Interval::ALL.len();

/// The histograms of one device.
pub(crate) struct Latencies {
    percpu: PerCpuCounters<CELLS>,
}

impl Latencies {
    /// Makes them, all empty. Sleeps.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            percpu: PerCpuCounters::new()?,
        })
    }

    /// It took `ns`.
    #[inline]
    pub(crate) fn add(&self, interval: Interval, ns: u64) {
        self.percpu.add(cell(interval, bucket(ns)), 1);
    }

    /// How often it took as long as `bucket` says.
    pub(crate) fn get(&self, interval: Interval, bucket: usize) -> u64 {
        self.percpu.sum(cell(interval, bucket.min(BUCKETS - 1)))
    }
}

/// The first microsecond of a row.
pub(crate) const fn from_us(bucket: usize) -> u64 {
    (1 << bucket) >> 1
}

const fn bucket(ns: u64) -> usize {
    let bits = (u64::BITS - (ns / 1000).leading_zeros()) as usize;
    if bits < BUCKETS {
        bits
    } else {
        BUCKETS - 1
    }
}

const fn cell(interval: Interval, bucket: usize) -> usize {
    interval as usize * BUCKETS + bucket
}

// A row begins where the one before it ends.
const _: () = {
    assert!(bucket(0) == 0 && bucket(999) == 0 && bucket(1000) == 1);
    let mut row = 1;
    while row < BUCKETS {
        assert!(bucket(from_us(row) * 1000) == row && bucket(from_us(row) * 1000 - 1) == row - 1);
        row += 1;
    }
    assert!(bucket(u64::MAX) == BUCKETS - 1);
};
