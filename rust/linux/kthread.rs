// SPDX-License-Identifier: GPL-2.0

//! A real-time worker inside a shared object: a function that runs in process
//! context, ahead of all normal tasks, some time after somebody asked for it.
//!
//! For short work that must be done in time although every CPU is busy with
//! processes that poll.
//!
//! C header: [`include/linux/kthread.h`](srctree/include/linux/kthread.h).

use super::bindings;
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{error::from_err_ptr, prelude::*, types::Opaque};

/// An object with an [`RtWorker`] in it.
///
/// # Safety
///
/// `OFFSET` must be that of the `RtWorker<Self>` field; use [`impl_has_rt_worker`].
pub(crate) unsafe trait HasRtWorker: Sized + Send + Sync {
    /// Where the worker is in the object, in bytes.
    const OFFSET: usize;

    /// What to do. Runs in process context and may sleep.
    fn on_work(&self);
}

/// Calls [`HasRtWorker::on_work`] of the object around it, in a thread of its own
/// with the lowest real-time priority.
///
/// # Invariants
///
/// `thread` is a worker thread of ours.
#[pin_data(PinnedDrop)]
#[repr(C)]
pub(crate) struct RtWorker<T: HasRtWorker> {
    #[pin]
    work: Opaque<bindings::kthread_delayed_work>,
    thread: NonNull<bindings::kthread_worker>,
    _object: PhantomData<fn(&T)>,
}

// SAFETY: The C side locks for itself.
unsafe impl<T: HasRtWorker> Send for RtWorker<T> {}
// SAFETY: As above.
unsafe impl<T: HasRtWorker> Sync for RtWorker<T> {}

impl<T: HasRtWorker> RtWorker<T> {
    /// Makes a worker with a thread of the given name. It must become the field
    /// that `T`'s implementation of [`HasRtWorker`] names. Sleeps.
    pub(crate) fn new(name: &'static CStr) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            work <- Opaque::ffi_init(|place| {
                // SAFETY: `place` is valid for writes and pinned.
                unsafe { bindings::rxe_cc_init_kthread_delayed_work(place, Some(Self::run)) }
            }),
            thread: {
                // SAFETY: The name is a terminated string, which is copied.
                let thread = from_err_ptr(unsafe {
                    bindings::rxe_cc_create_rt_worker(name.as_char_ptr())
                })?;
                NonNull::new(thread).ok_or(ENOMEM)?
            },
            _object: PhantomData,
        })
    }

    /// Asks for a run in `ms` milliseconds, unless one is due anyway. Any context.
    pub(crate) fn kick_in_ms(&self, ms: usize) {
        // SAFETY: Both are initialised by `new()`, and the thread is ours until drop.
        unsafe {
            bindings::rxe_cc_kthread_queue_delayed_work(self.thread.as_ptr(), self.work.get(), ms)
        };
    }

    /// Takes back what was asked for and waits for a run that is under way. Others may
    /// ask again. Sleeps; not from the worker itself.
    pub(crate) fn cancel(&self) {
        // SAFETY: Initialised in `new()`.
        unsafe { bindings::kthread_cancel_delayed_work_sync(self.work.get()) };
    }

    /// # Safety
    ///
    /// Called for a work item made by `new()`, inside a live `T`.
    unsafe extern "C" fn run(work: *mut bindings::kthread_work) {
        // SAFETY: A delayed work begins with its work item, and the worker with the delayed work;
        // the worker is the field at `OFFSET` of a `T`, whose drop waits for this function.
        let object = unsafe { &*work.byte_sub(T::OFFSET).cast::<T>() };
        object.on_work();
    }
}

#[pinned_drop]
impl<T: HasRtWorker> PinnedDrop for RtWorker<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Initialised in `new()`. Nobody can ask for another run: that takes a reference
        // to the object, which is being dropped, or a run, which is waited for here.
        unsafe {
            bindings::kthread_cancel_delayed_work_sync(self.work.get());
            bindings::kthread_destroy_worker(self.thread.as_ptr());
        }
    }
}

/// Says where the [`RtWorker`] of a type is and what it does.
macro_rules! impl_has_rt_worker {
    (impl HasRtWorker for $object:ty { self.$field:ident, $on_work:expr }) => {
        // SAFETY: The offset is that of the named field, whose type is checked below.
        unsafe impl $crate::linux::kthread::HasRtWorker for $object {
            const OFFSET: usize = {
                let _: fn(&$object) -> &$crate::linux::kthread::RtWorker<$object> =
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
pub(crate) use impl_has_rt_worker;
