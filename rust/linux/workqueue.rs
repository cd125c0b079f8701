// SPDX-License-Identifier: GPL-2.0

//! A worker inside a shared object: a function that runs in process context, one
//! run at a time, when somebody asked for it.
//!
//! The kernel crate's work items cannot be cancelled. This one is, when the object
//! that contains it is dropped: nothing of it runs after that.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h).

use super::bindings;
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{prelude::*, types::Opaque};

/// An object with a [`Worker`] in it.
///
/// # Safety
///
/// `OFFSET` must be that of the `Worker<Self>` field; use [`impl_has_worker`].
pub(crate) unsafe trait HasWorker: Sized + Send + Sync {
    /// Where the worker is in the object, in bytes.
    const OFFSET: usize;

    /// What to do. Runs in process context and may sleep.
    fn on_work(&self);
}

/// Calls [`HasWorker::on_work`] of the object around it.
///
/// # Invariants
///
/// `queue` is a work queue of ours.
#[pin_data(PinnedDrop)]
#[repr(C)]
pub(crate) struct Worker<T: HasWorker> {
    #[pin]
    work: Opaque<bindings::delayed_work>,
    queue: NonNull<bindings::workqueue_struct>,
    _object: PhantomData<fn(&T)>,
}

// SAFETY: The C side locks for itself.
unsafe impl<T: HasWorker> Send for Worker<T> {}
// SAFETY: As above.
unsafe impl<T: HasWorker> Sync for Worker<T> {}

impl<T: HasWorker> Worker<T> {
    /// Makes a worker with a work queue of its own, of the given name. It must
    /// become the field that `T`'s implementation of [`HasWorker`] names. Sleeps.
    pub(crate) fn new(name: &'static CStr) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            work <- Opaque::ffi_init(|place| {
                // SAFETY: `place` is valid for writes and pinned.
                unsafe { bindings::rxe_cc_init_delayed_work(place, Some(Self::run)) }
            }),
            // SAFETY: The name is a terminated string, which is copied.
            queue: NonNull::new(unsafe { bindings::rxe_cc_alloc_workqueue(name.as_char_ptr()) })
                .ok_or(ENOMEM)?,
            _object: PhantomData,
        })
    }

    /// Asks for a run as soon as possible, sooner than a delayed one. Any context.
    pub(crate) fn kick(&self) {
        // SAFETY: Both are initialised by `new()`, and the queue is ours until drop.
        unsafe { bindings::rxe_cc_mod_delayed_work(self.queue.as_ptr(), self.work.get(), 0) };
    }

    /// Asks for a run in `ms` milliseconds, unless one is due anyway. Any context.
    pub(crate) fn kick_in_ms(&self, ms: usize) {
        // SAFETY: As in `kick()`.
        unsafe { bindings::rxe_cc_queue_delayed_work(self.queue.as_ptr(), self.work.get(), ms) };
    }

    /// Takes back what was asked for and waits for a run that is under way. Others may
    /// ask again. Sleeps; not from the worker itself.
    pub(crate) fn cancel(&self) {
        // SAFETY: Initialised in `new()`.
        unsafe { bindings::cancel_delayed_work_sync(self.work.get()) };
    }

    /// # Safety
    ///
    /// Called for a work item made by `new()`, inside a live `T`.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // SAFETY: A delayed work begins with its work item, and the worker with the delayed work;
        // the worker is the field at `OFFSET` of a `T`, whose drop waits for this function.
        let object = unsafe { &*work.byte_sub(T::OFFSET).cast::<T>() };
        object.on_work();
    }
}

#[pinned_drop]
impl<T: HasWorker> PinnedDrop for Worker<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Initialised in `new()`. Nobody can ask for another run: that takes a reference
        // to the object, which is being dropped, or a run, which is waited for here.
        unsafe {
            bindings::cancel_delayed_work_sync(self.work.get());
            bindings::destroy_workqueue(self.queue.as_ptr());
        }
    }
}

/// Says where the [`Worker`] of a type is and what it does.
macro_rules! impl_has_worker {
    (impl HasWorker for $object:ty { self.$field:ident, $on_work:expr }) => {
        // SAFETY: The offset is that of the named field, whose type is checked below.
        unsafe impl $crate::linux::workqueue::HasWorker for $object {
            const OFFSET: usize = {
                let _: fn(&$object) -> &$crate::linux::workqueue::Worker<$object> =
                    |object| &object.$field;
                core::mem::offset_of!($object, $field)
            };

            fn on_work(&self) {
                let on_work: fn(&$object) = $on_work;
                on_work(self);
            }
        }
    };
}
pub(crate) use impl_has_worker;

#[kunit_tests(rxe_cc_workqueue)]
mod tests {
    use super::*;
    use crate::linux::kunit::{comes_true, sleep_ms};
    use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use kernel::sync::Arc;

    /// Counts its runs, which end when they may.
    #[pin_data]
    struct Job {
        #[pin]
        worker: Worker<Job>,
        runs: Arc<AtomicU32>,
        begun: AtomicU32,
        may_end: AtomicBool,
    }

    impl_has_worker! {
        impl HasWorker for Job { self.worker, Job::work }
    }

    impl Job {
        fn new() -> Result<Pin<KBox<Self>>> {
            let runs = Arc::new(AtomicU32::new(0), GFP_KERNEL)?;
            KBox::try_pin_init(
                try_pin_init!(Self {
                    worker <- Worker::new(c"rxe_cc_kunit"),
                    runs,
                    begun: AtomicU32::new(0),
                    may_end: AtomicBool::new(true),
                }),
                GFP_KERNEL,
            )
        }

        fn work(&self) {
            self.begun.fetch_add(1, Ordering::Release);
            let _ = comes_true(|| self.may_end.load(Ordering::Acquire));
            sleep_ms(20);
            self.runs.fetch_add(1, Ordering::Release);
        }

        fn runs(&self) -> u32 {
            self.runs.load(Ordering::Acquire)
        }

        /// Asks for a run and returns while it goes on.
        fn begin(&self) -> bool {
            self.may_end.store(false, Ordering::Release);
            self.worker.kick();
            comes_true(|| self.begun.load(Ordering::Acquire) == 1)
        }

        fn end(&self) {
            self.may_end.store(true, Ordering::Release);
        }
    }

    #[test]
    fn who_asks_during_a_run_gets_another_one_and_never_two_at_once() -> Result {
        let job = Job::new()?;
        assert!(job.begin());
        for _ in 0..10 {
            job.worker.kick();
        }
        sleep_ms(50);
        assert_eq!(job.begun.load(Ordering::Acquire), 1);
        job.end();
        assert!(comes_true(|| job.runs() == 2));
        sleep_ms(60);
        assert_eq!(job.runs(), 2);
        Ok(())
    }

    #[test]
    fn a_kick_does_not_wait_for_what_was_asked_for_later() -> Result {
        let job = Job::new()?;
        job.worker.kick_in_ms(3_600_000);
        job.worker.kick();
        assert!(comes_true(|| job.runs() == 1));
        // And the other way round: what is due is not put off.
        job.worker.kick_in_ms(10);
        job.worker.kick_in_ms(3_600_000);
        assert!(comes_true(|| job.runs() == 2));
        Ok(())
    }

    #[test]
    fn what_was_cancelled_does_not_run() -> Result {
        let job = Job::new()?;
        job.worker.kick_in_ms(30);
        job.worker.cancel();
        sleep_ms(80);
        assert_eq!(job.runs(), 0);
        job.worker.kick();
        assert!(comes_true(|| job.runs() == 1));
        Ok(())
    }

    #[test]
    fn dropping_waits_for_a_run_and_lets_no_other_begin() -> Result {
        let job = Job::new()?;
        let runs = job.runs.clone();
        assert!(job.begin());
        job.worker.kick_in_ms(30);
        job.end();
        drop(job);
        assert_eq!(runs.load(Ordering::Acquire), 1);
        sleep_ms(80);
        assert_eq!(runs.load(Ordering::Acquire), 1);
        Ok(())
    }
}
