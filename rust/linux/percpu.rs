// SPDX-License-Identifier: GPL-2.0

//! Per-CPU counters: an array of 64-bit sums that every context may add to
//! without a lock or a shared cache line.
//!
//! C header: [`include/linux/percpu.h`](srctree/include/linux/percpu.h).

use super::bindings;
use core::{mem, ptr::NonNull};
use kernel::{alloc::AllocError, prelude::*};

/// `N` counters, one copy a CPU.
///
/// # Invariants
///
/// `base` is a per-CPU allocation of `N` `u64`s that is ours.
pub(crate) struct PerCpuCounters<const N: usize> {
    base: NonNull<u64>,
}

// SAFETY: Per-CPU memory belongs to no thread.
unsafe impl<const N: usize> Send for PerCpuCounters<N> {}
// SAFETY: All accesses are per-CPU adds and reads of whole words.
unsafe impl<const N: usize> Sync for PerCpuCounters<N> {}

impl<const N: usize> PerCpuCounters<N> {
    /// Makes the counters, all zero. Sleeps.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: No requirements; the memory comes zeroed.
        let base = unsafe {
            bindings::rxe_cc_alloc_percpu(N * mem::size_of::<u64>(), mem::align_of::<u64>())
        };
        // INVARIANT: Just allocated, with room for `N` words.
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or(AllocError)?,
        })
    }

    /// Adds `n` to counter `index`; an index past the end is ignored.
    #[inline]
    pub(crate) fn add(&self, index: usize, n: u64) {
        if index < N {
            // SAFETY: `base` has `N` words by the invariant, the index was checked.
            unsafe { bindings::rxe_cc_this_cpu_add_u64(self.base.as_ptr(), index as u32, n) };
        }
    }

    /// The sum over all CPUs of counter `index`; 0 past the end.
    pub(crate) fn sum(&self, index: usize) -> u64 {
        if index >= N {
            return 0;
        }
        // SAFETY: As in `add()`.
        unsafe { bindings::rxe_cc_percpu_sum_u64(self.base.as_ptr(), index as u32) }
    }
}

impl<const N: usize> Drop for PerCpuCounters<N> {
    fn drop(&mut self) {
        // SAFETY: Ours by the invariant, and unreachable from here on.
        unsafe { bindings::free_percpu(self.base.as_ptr().cast()) };
    }
}

#[kunit_tests(rxe_cc_percpu)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_its_own_sum() -> Result {
        let counters = PerCpuCounters::<3>::new()?;
        for n in 0..1000 {
            counters.add(0, 1);
            counters.add(2, n);
        }
        assert_eq!(counters.sum(0), 1000);
        assert_eq!(counters.sum(1), 0);
        assert_eq!(counters.sum(2), 499_500);
        Ok(())
    }

    #[test]
    fn an_index_past_the_end_counts_nothing() -> Result {
        let counters = PerCpuCounters::<3>::new()?;
        for index in [3, 4, usize::MAX] {
            counters.add(index, 1);
            assert_eq!(counters.sum(index), 0);
        }
        assert_eq!((0..3).map(|index| counters.sum(index)).sum::<u64>(), 0);
        Ok(())
    }
}
