// SPDX-License-Identifier: GPL-2.0

//! What the KUnit suites of the module work on: packets made by hand, and what
//! the kernel itself says of them. The suites stand beside what they test.

use super::{bindings, netdevice::NetDeviceRef, netfilter::HookState, skbuff::SkBuff};
use core::{
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};
use kernel::{
    prelude::*,
    sync::{
        rcu::{self, rcu_barrier},
        Arc,
    },
    time::{delay::fsleep, Delta},
};

/// Bytes no two of which are alike within 256, and no two runs of 256 either.
pub(crate) fn pattern<const N: usize>() -> [u8; N] {
    core::array::from_fn(|i| (i + i / 256 * 17) as u8)
}

/// A packet that holds `bytes`, the first `linear` of them in one piece and the
/// others in pages.
pub(crate) fn packet(bytes: &[u8], linear: usize) -> Result<SkBuff> {
    if linear > bytes.len() {
        return Err(EINVAL);
    }
    // SAFETY: The slice is readable for its length, which `linear` does not exceed.
    let skb =
        unsafe { bindings::rxe_cc_kunit_packet(bytes.as_ptr(), bytes.len() as u32, linear as u32) };
    // SAFETY: A new buffer is ours; its data begin at its network header.
    Ok(unsafe { SkBuff::from_raw(NonNull::new(skb).ok_or(ENOMEM)?) })
}

/// Another packet with the same bytes in the same memory.
pub(crate) fn clone(skb: &SkBuff) -> Result<SkBuff> {
    // SAFETY: Valid by the type's invariant.
    let skb = unsafe { bindings::rxe_cc_kunit_clone(skb.as_ptr()) };
    // SAFETY: A new buffer is ours; its data begin where the old one's do.
    Ok(unsafe { SkBuff::from_raw(NonNull::new(skb).ok_or(ENOMEM)?) })
}

/// What the kernel gets for an IPv4 header, checksum included: 0 if it is right.
pub(crate) fn ip_checksum(header: &[u8; 20]) -> u16 {
    // SAFETY: Reads the 20 bytes of a header without options.
    unsafe { bindings::rxe_cc_kunit_ip_checksum(header.as_ptr()) }
}

/// A net device that is always there.
pub(crate) fn loopback() -> &'static NetDeviceRef {
    // SAFETY: The first namespace and its loopback device live as long as the kernel.
    unsafe { NetDeviceRef::from_raw(bindings::rxe_cc_kunit_loopback()) }
}

/// Calls `f` with the state of a hook of IPv4 behind which nothing comes.
pub(crate) fn at_hook<R>(f: impl FnOnce(&HookState) -> R) -> R {
    f(HookState::for_test(
        &mut bindings::nf_hook_state::default(),
        &rcu::read_lock(),
    ))
}

/// Sleeps at least `ms` milliseconds.
pub(crate) fn sleep_ms(ms: i64) {
    fsleep(Delta::from_millis(ms));
}

/// Waits for something that happens in another context, five seconds at most;
/// whether it did.
pub(crate) fn comes_true(condition: impl Fn() -> bool) -> bool {
    (0..500).any(|_| {
        condition() || {
            sleep_ms(10);
            false
        }
    })
}

/// How many of its [`Value`]s were dropped.
pub(crate) struct Drops(Arc<AtomicU32>);

/// A number, counted when it is dropped.
pub(crate) struct Value(pub(crate) u32, Arc<AtomicU32>);

impl Drop for Value {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drops {
    /// None yet.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Arc::new(AtomicU32::new(0), GFP_KERNEL)?))
    }

    /// A value of which this hears.
    pub(crate) fn value(&self, value: u32) -> Value {
        Value(value, self.0.clone())
    }

    /// As of now.
    pub(crate) fn so_far(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// After all grace periods that have begun.
    pub(crate) fn count(&self) -> u32 {
        rcu_barrier();
        self.so_far()
    }
}
