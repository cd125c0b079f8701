// SPDX-License-Identifier: GPL-2.0

//! A high resolution timer inside a shared object, armed and re-armed from any
//! context, that fires in softirq context.
//!
//! The kernel crate's timers are stopped by dropping a handle, which waits for
//! the callback and so must not be done where the callback's locks are held. A
//! timer that is re-armed by several contexts has no one place for that handle.
//! Here the timer is stopped when the object that contains it is dropped.
//!
//! C header: [`include/linux/hrtimer.h`](srctree/include/linux/hrtimer.h).

use core::{marker::PhantomData, ptr};
use kernel::{bindings, prelude::*, types::Opaque};

/// Now, on the clock of all times in this module (CLOCK_MONOTONIC), in ns.
#[inline]
pub(crate) fn now_ns() -> u64 {
    // SAFETY: No requirements.
    unsafe { bindings::ktime_get() as u64 }
}

/// A clock that costs one load: ticks of about 1/`TICK_HZ` s, whole ones of the kernel's.
#[inline]
pub(crate) fn coarse_ticks<const TICK_HZ: u64>() -> u64 {
    const { assert!(TICK_HZ > 0 && TICK_HZ <= bindings::HZ as u64) };
    // SAFETY: An aligned word that lives for ever; C reads it without a lock, too.
    let jiffies = unsafe { ptr::read_volatile(&raw const bindings::jiffies) };
    jiffies as u64 / (u64::from(bindings::HZ) / TICK_HZ)
}

/// The CPU that runs this; it may be another one right after, where preemption is on.
#[inline]
pub(crate) fn this_cpu() -> u32 {
    // SAFETY: No requirements.
    unsafe { super::bindings::rxe_cc_this_cpu() }
}

/// An object with a [`SoftTimer`] in it.
///
/// # Safety
///
/// `OFFSET` must be that of the `SoftTimer<Self>` field; use [`impl_has_soft_timer`].
pub(crate) unsafe trait HasSoftTimer: Sized + Send + Sync {
    /// Where the timer is in the object, in bytes.
    const OFFSET: usize;

    /// What to do when the timer fires. Runs in softirq context.
    fn on_timer(&self);
}

/// A timer that calls [`HasSoftTimer::on_timer`] of the object around it.
#[pin_data(PinnedDrop)]
#[repr(C)]
pub(crate) struct SoftTimer<T: HasSoftTimer> {
    #[pin]
    timer: Opaque<bindings::hrtimer>,
    _object: PhantomData<fn(&T)>,
}

// SAFETY: The C side locks for itself.
unsafe impl<T: HasSoftTimer> Send for SoftTimer<T> {}
// SAFETY: As above.
unsafe impl<T: HasSoftTimer> Sync for SoftTimer<T> {}

impl<T: HasSoftTimer> SoftTimer<T> {
    /// Makes a timer that is not armed. It must become the field that `T`'s
    /// implementation of [`HasSoftTimer`] names.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            timer <- Opaque::ffi_init(|place| {
                // SAFETY: `place` is valid for writes and pinned.
                unsafe {
                    bindings::hrtimer_setup(
                        place,
                        Some(Self::run),
                        bindings::CLOCK_MONOTONIC as i32,
                        bindings::hrtimer_mode_HRTIMER_MODE_ABS_PINNED_SOFT,
                    )
                }
            }),
            _object: PhantomData,
        })
    }

    /// Arms the timer for the instant `at_ns` (of [`now_ns`]'s clock), whether or
    /// not it was armed. It fires on this CPU. Any context but hard interrupts.
    pub(crate) fn arm(&self, at_ns: u64) {
        // SAFETY: Initialised in `new()`; the object is alive, and stops the timer on drop.
        unsafe {
            bindings::hrtimer_start_range_ns(
                self.timer.get(),
                i64::try_from(at_ns).unwrap_or(i64::MAX),
                0,
                bindings::hrtimer_mode_HRTIMER_MODE_ABS_PINNED_SOFT,
            )
        };
    }

    /// # Safety
    ///
    /// Called for a timer made by `new()`, inside a live `T`.
    unsafe extern "C" fn run(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
        // SAFETY: The timer is the field at `OFFSET` of a `T`, which is alive: its drop waits for
        // this callback. `Opaque` and this struct do not move the C timer off the field's start.
        let object = unsafe { &*timer.byte_sub(T::OFFSET).cast::<T>() };
        object.on_timer();
        bindings::hrtimer_restart::HRTIMER_NORESTART
    }
}

#[pinned_drop]
impl<T: HasSoftTimer> PinnedDrop for SoftTimer<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Initialised in `new()`. Not from its own callback: that has no reference to drop.
        unsafe { bindings::hrtimer_cancel(self.timer.get()) };
    }
}

/// Says where the [`SoftTimer`] of a type is and what it does.
macro_rules! impl_has_soft_timer {
    (impl HasSoftTimer for $object:ty { self.$field:ident, $on_timer:expr }) => {
        // SAFETY: The offset is that of the named field, whose type is checked below.
        unsafe impl $crate::linux::hrtimer::HasSoftTimer for $object {
            const OFFSET: usize = {
                let _: fn(&$object) -> &$crate::linux::hrtimer::SoftTimer<$object> =
                    |object| &object.$field;
                core::mem::offset_of!($object, $field)
            };

            fn on_timer(&self) {
                let on_timer: fn(&$object) = $on_timer;
                on_timer(self);
            }
        }
    };
}
pub(crate) use impl_has_soft_timer;

#[kunit_tests(rxe_cc_hrtimer)]
mod tests {
    use super::*;
    use crate::linux::kunit::{comes_true, sleep_ms};
    use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use kernel::sync::Arc;

    const MS: u64 = 1_000_000;

    /// Notes when it fired, and how often.
    #[pin_data]
    struct Alarm {
        #[pin]
        timer: SoftTimer<Alarm>,
        fired: Arc<AtomicU32>,
        at_ns: AtomicU64,
    }

    impl_has_soft_timer! {
        impl HasSoftTimer for Alarm { self.timer, Alarm::fire }
    }

    impl Alarm {
        fn new() -> Result<Pin<KBox<Self>>> {
            let fired = Arc::new(AtomicU32::new(0), GFP_KERNEL)?;
            KBox::try_pin_init(
                try_pin_init!(Self {
                    timer <- SoftTimer::new(),
                    fired,
                    at_ns: AtomicU64::new(0),
                }),
                GFP_KERNEL,
            )
        }

        fn fire(&self) {
            self.at_ns.store(now_ns(), Ordering::Relaxed);
            self.fired.fetch_add(1, Ordering::Release);
        }

        fn fired(&self) -> u32 {
            self.fired.load(Ordering::Acquire)
        }
    }

    #[test]
    fn a_timer_fires_once_and_not_too_early() -> Result {
        let alarm = Alarm::new()?;
        sleep_ms(5);
        assert_eq!(alarm.fired(), 0);
        let at_ns = now_ns() + 20 * MS;
        alarm.timer.arm(at_ns);
        assert!(comes_true(|| alarm.fired() > 0));
        assert!(alarm.at_ns.load(Ordering::Relaxed) >= at_ns);
        sleep_ms(50);
        assert_eq!(alarm.fired(), 1);
        Ok(())
    }

    #[test]
    fn a_time_that_has_passed_fires_at_once() -> Result {
        let alarm = Alarm::new()?;
        for (round, at_ns) in [0, 1, now_ns()].into_iter().enumerate() {
            alarm.timer.arm(at_ns);
            assert!(comes_true(|| alarm.fired() == round as u32 + 1));
        }
        Ok(())
    }

    #[test]
    fn arming_again_replaces_the_time() -> Result {
        let alarm = Alarm::new()?;
        // Earlier, then later.
        alarm.timer.arm(u64::MAX);
        let at_ns = now_ns() + 10 * MS;
        alarm.timer.arm(at_ns);
        assert!(comes_true(|| alarm.fired() == 1));
        alarm.timer.arm(now_ns() + 200 * MS);
        alarm.timer.arm(u64::MAX);
        sleep_ms(300);
        assert_eq!(alarm.fired(), 1);
        Ok(())
    }

    #[test]
    fn a_timer_that_is_dropped_never_fires() -> Result {
        let alarm = Alarm::new()?;
        let fired = alarm.fired.clone();
        alarm.timer.arm(now_ns() + 20 * MS);
        drop(alarm);
        let count = fired.load(Ordering::Acquire);
        sleep_ms(60);
        assert_eq!(fired.load(Ordering::Acquire), count);
        Ok(())
    }
}
