// SPDX-License-Identifier: GPL-2.0

//! RDMA devices as an `ib_client` sees them, and the contexts of their QPs.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/restrack.h`](srctree/include/rdma/restrack.h).

use super::{bindings, netdevice::NetDevice};
use core::{
    marker::PhantomData,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};
use kernel::{
    error::{from_err_ptr, from_result, to_result},
    prelude::*,
    sync::{new_spinlock, SpinLock},
    types::Opaque,
};

/// An RDMA device that somebody else keeps registered: the core during a client's
/// callbacks, and from the end of `add` to the end of `remove`.
#[repr(transparent)]
pub(crate) struct IbDeviceRef(Opaque<bindings::ib_device>);

impl IbDeviceRef {
    /// # Safety
    ///
    /// `ptr` must point to a device that stays registered for `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: `Self` is a transparent `Opaque<ib_device>`, alive by the caller's promise.
        unsafe { &*ptr.cast() }
    }

    /// The C pointer.
    pub(super) fn as_ptr(&self) -> *mut bindings::ib_device {
        self.0.get()
    }

    /// Whether this is a soft-RoCE device.
    pub(crate) fn is_rxe(&self) -> bool {
        // SAFETY: The device is alive; its ops never change.
        unsafe { (*self.as_ptr()).ops.driver_id == bindings::rdma_driver_id_RDMA_DRIVER_RXE }
    }

    /// The device's name, for the duration of a client's `add` and `renamed`.
    fn name(&self) -> &CStr {
        // SAFETY: The device is alive and its name a terminated string that stays: a rename waits
        // for the core's lock, which is held around both.
        unsafe { CStr::from_char_ptr(bindings::rxe_cc_ib_device_name(self.as_ptr())) }
    }

    /// The net device of port 1, when it has one.
    pub(crate) fn netdev(&self) -> Option<NetDevice> {
        // SAFETY: The device is alive; what comes back holds a reference that is ours.
        unsafe {
            NonNull::new(bindings::ib_device_get_netdev(self.as_ptr(), 1))
                .map(|dev| NetDevice::from_held(dev))
        }
    }

    /// Finds a QP, as `rdma resource show qp` does: through restrack, so a QP under
    /// destroy is no longer found. Sleeps.
    fn find_qp(&self, qpn: u32) -> Result<TrackedQp<'_>> {
        // SAFETY: The device is alive and its restrack database with it.
        let entry = from_err_ptr(unsafe {
            bindings::rdma_restrack_get_byid(
                self.as_ptr(),
                bindings::rdma_restrack_type_RDMA_RESTRACK_QP,
                qpn,
            )
        })?;
        // INVARIANT: The lookup took a reference.
        Ok(TrackedQp(entry, PhantomData))
    }

    /// The context of a QP. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOENT`: there is no such QP, or it is under destroy.
    pub(crate) fn query_qp(&self, qpn: u32) -> Result<QpContext> {
        self.find_qp(qpn)?.query()
    }

    /// Rings the doorbell of a QP without posting work, if `ring` says so of its
    /// context; that is returned. A QP whose state allows no sending is never rung.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// As for [`query_qp`](Self::query_qp).
    pub(crate) fn ring_doorbell(
        &self,
        qpn: u32,
        ring: impl FnOnce(&QpContext) -> bool,
    ) -> Result<QpContext> {
        let qp = self.find_qp(qpn)?;
        let context = qp.query()?;
        if matches!(context.state, QpState::Rts | QpState::Sqd | QpState::Sqe) && ring(&context) {
            // SAFETY: The reference on the entry keeps the QP; an empty list posts nothing.
            to_result(unsafe { bindings::rxe_cc_ring_doorbell(qp.as_ptr()) })?;
        }
        Ok(context)
    }
}

/// A QP that cannot be destroyed for as long as the value lives.
///
/// # Invariants
///
/// Holds a reference on the restrack entry of a QP.
struct TrackedQp<'a>(
    *mut bindings::rdma_restrack_entry,
    PhantomData<&'a IbDeviceRef>,
);

impl TrackedQp<'_> {
    fn as_ptr(&self) -> *mut bindings::ib_qp {
        // SAFETY: An entry of that type is the `res` of an `ib_qp`.
        unsafe { bindings::rxe_cc_restrack_to_qp(self.0) }
    }

    fn query(&self) -> Result<QpContext> {
        let mut attr = bindings::ib_qp_attr::default();
        let mut init = bindings::ib_qp_init_attr::default();
        // SAFETY: The reference on the entry keeps the QP, for destroy waits for it; both results
        // are plain data.
        let (kind, user) = unsafe {
            let qp = self.as_ptr();
            to_result(bindings::ib_query_qp(
                qp,
                &mut attr,
                bindings::ib_qp_attr_mask_IB_QP_STATE as i32,
                &mut init,
            ))?;
            ((*qp).qp_type, (*self.0).user)
        };
        let grh = &attr.ah_attr.grh;
        Ok(QpContext {
            service: match kind {
                bindings::ib_qp_type_IB_QPT_RC => QpType::Rc,
                bindings::ib_qp_type_IB_QPT_UC => QpType::Uc,
                bindings::ib_qp_type_IB_QPT_UD => QpType::Ud,
                _ => QpType::Other,
            },
            state: QpState::from_raw(attr.qp_state),
            dest_qpn: attr.dest_qp_num,
            // SAFETY: Any bytes are a GID.
            peer_gid: unsafe { grh.dgid.raw },
            traffic_class: grh.traffic_class,
            service_level: attr.ah_attr.sl,
            ack_timeout: attr.timeout,
            user,
        })
    }
}

impl Drop for TrackedQp<'_> {
    fn drop(&mut self) {
        // SAFETY: The reference is ours by the invariant.
        unsafe { bindings::rdma_restrack_put(self.0) };
    }
}

/// The services of a QP that carry congestion controlled traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Any other (GSI, raw, ...).
    Other,
}

/// The states of a QP (IBTA vol. 1, 10.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QpState {
    /// Reset.
    Reset,
    /// Initialised.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drained.
    Sqd,
    /// Send queue error.
    Sqe,
    /// Error.
    Err,
}

impl QpState {
    fn from_raw(state: bindings::ib_qp_state) -> Self {
        match state {
            bindings::ib_qp_state_IB_QPS_RESET => Self::Reset,
            bindings::ib_qp_state_IB_QPS_INIT => Self::Init,
            bindings::ib_qp_state_IB_QPS_RTR => Self::Rtr,
            bindings::ib_qp_state_IB_QPS_RTS => Self::Rts,
            bindings::ib_qp_state_IB_QPS_SQD => Self::Sqd,
            bindings::ib_qp_state_IB_QPS_SQE => Self::Sqe,
            _ => Self::Err,
        }
    }

    /// Whether a QP in this state takes part in congestion control.
    pub(crate) fn is_live(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe)
    }
}

/// What a QP's context says of its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QpContext {
    /// Service.
    pub(crate) service: QpType,
    /// State.
    pub(crate) state: QpState,
    /// The peer's QPN (RC, UC).
    pub(crate) dest_qpn: u32,
    /// The peer's GID (RC, UC).
    pub(crate) peer_gid: [u8; 16],
    /// Traffic class of what the QP sends (RC, UC).
    pub(crate) traffic_class: u8,
    /// Service level of what the QP sends (RC, UC).
    pub(crate) service_level: u8,
    /// Local ACK timeout, 4.096 us * 2^n; 0: none.
    pub(crate) ack_timeout: u8,
    /// A process owns the QP, not the kernel.
    pub(crate) user: bool,
}

/// A device that keeps its registration for as long as the value lives: the
/// core's unregistering waits.
///
/// # Invariants
///
/// Holds one count taken with `ib_device_try_get()`.
pub(crate) struct IbDevice(NonNull<bindings::ib_device>);

impl core::ops::Deref for IbDevice {
    type Target = IbDeviceRef;

    fn deref(&self) -> &IbDeviceRef {
        // SAFETY: Registered by the invariant for as long as `self` lives.
        unsafe { IbDeviceRef::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for IbDevice {
    fn drop(&mut self) {
        // SAFETY: The count is ours by the invariant.
        unsafe { bindings::ib_device_put(self.0.as_ptr()) };
    }
}

/// A way to a device that ends when the device goes: for workers that outlive it.
/// Process context only.
///
/// # Invariants
///
/// A pointer in `device` is that of a device that a client has not yet said
/// goodbye to: it is alive.
#[pin_data]
pub(crate) struct IbDeviceHandle {
    #[pin]
    device: SpinLock<Option<NonNull<bindings::ib_device>>>,
}

// SAFETY: The pointer is only used as the invariant allows, on any thread.
unsafe impl Send for IbDeviceHandle {}
// SAFETY: As above, under the lock.
unsafe impl Sync for IbDeviceHandle {}

impl IbDeviceHandle {
    /// Makes a handle that leads nowhere yet.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            device <- new_spinlock!(None, "rxe_cc_ib_device"),
        })
    }

    /// The device, if it is there and not being unregistered.
    pub(crate) fn get(&self) -> Option<IbDevice> {
        let device = self.device.lock();
        let ptr = (*device)?;
        // SAFETY: Alive by the invariant, while the lock is held.
        // INVARIANT: On success the count is the new value's.
        unsafe { bindings::rxe_cc_ib_device_try_get(ptr.as_ptr()) }.then(|| IbDevice(ptr))
    }
}

/// A client of the RDMA core.
pub(crate) trait RdmaClient: Send + Sync {
    /// What the client keeps for each of its devices.
    type Data: Send + Sync;

    /// A device of that name came (or was there already). `None`: not interested.
    fn add(&self, device: &IbDeviceRef, name: &CStr) -> Result<Option<Pin<KBox<Self::Data>>>>;

    /// A device got another name.
    fn renamed(&self, data: &Self::Data, name: &CStr);

    /// The handle in what `add` returned; it leads to the device from the end of
    /// `add` to the start of `remove`.
    fn handle(data: &Self::Data) -> &IbDeviceHandle;

    /// A device goes. It is still registered.
    fn remove(&self, device: &IbDeviceRef, data: Pin<KBox<Self::Data>>);
}

/// The one registration of this module: `ib_client::add` gets no cookie by which
/// it could find it.
static CLIENT: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// A registered client; dropping it says goodbye to all devices.
#[pin_data(PinnedDrop)]
pub(crate) struct ClientRegistration<T: RdmaClient> {
    #[pin]
    client: Opaque<bindings::ib_client>,
    ops: T,
}

// SAFETY: `T` is `Send` and `Sync`; the C side does not care who unregisters.
unsafe impl<T: RdmaClient> Send for ClientRegistration<T> {}
// SAFETY: As above.
unsafe impl<T: RdmaClient> Sync for ClientRegistration<T> {}

impl<T: RdmaClient> ClientRegistration<T> {
    /// Registers a client; `add` is called for the devices that are there.
    ///
    /// # Errors
    ///
    /// `EBUSY` when the module has a registered client already.
    pub(crate) fn new(name: &'static CStr, ops: T) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            ops,
            client <- Opaque::try_ffi_init(|place: *mut bindings::ib_client| {
                // SAFETY: `place` is the field of a `Self` that is pinned; `ops` was initialised
                // before it. The name is static. Unregistered on drop.
                unsafe {
                    let this: *mut Self = kernel::container_of!(
                        place.cast::<Opaque<bindings::ib_client>>(),
                        Self,
                        client
                    );
                    CLIENT
                        .compare_exchange(
                            ptr::null_mut(),
                            this.cast(),
                            Ordering::AcqRel,
                            Ordering::Relaxed,
                        )
                        .map_err(|_| EBUSY)?;
                    place.write(bindings::ib_client {
                        name: name.as_char_ptr(),
                        add: Some(Self::add),
                        remove: Some(Self::remove),
                        rename: Some(Self::rename),
                        ..Default::default()
                    });
                    to_result(bindings::ib_register_client(place)).inspect_err(|_| {
                        CLIENT.store(ptr::null_mut(), Ordering::Release);
                    })
                }
            }),
        })
    }

    /// # Safety
    ///
    /// Called by the core for a client made by `new()`.
    unsafe extern "C" fn add(device: *mut bindings::ib_device) -> core::ffi::c_int {
        // SAFETY: `CLIENT` is the registration that this callback belongs to: there is one at a
        // time, set before it is registered and cleared after it is unregistered. The device stays
        // registered until `remove` returns.
        unsafe {
            let this = CLIENT.load(Ordering::Acquire).cast::<Self>();
            from_result(|| {
                let device_ref = IbDeviceRef::from_raw(device);
                let data = (*this)
                    .ops
                    .add(device_ref, device_ref.name())?
                    .ok_or(EOPNOTSUPP)?;
                // INVARIANT: Until `remove` the device is alive.
                *T::handle(&data).device.lock() = NonNull::new(device);
                bindings::ib_set_client_data(
                    device,
                    (*this).client.get(),
                    // Not moved until `remove` makes it what it was.
                    KBox::into_raw(Pin::into_inner_unchecked(data)).cast(),
                );
                Ok(0)
            })
        }
    }

    /// # Safety
    ///
    /// Called by the core for a client made by `new()`, between `add` and `remove`.
    unsafe extern "C" fn rename(device: *mut bindings::ib_device, data: *mut core::ffi::c_void) {
        // SAFETY: As in `add()`; `data` is what `add()` set, and stays until `remove`.
        unsafe {
            let this = CLIENT.load(Ordering::Acquire).cast::<Self>();
            (*this).ops.renamed(
                &*data.cast::<T::Data>(),
                IbDeviceRef::from_raw(device).name(),
            );
        }
    }

    /// # Safety
    ///
    /// Called by the core for a client made by `new()`, once for each successful `add`.
    unsafe extern "C" fn remove(device: *mut bindings::ib_device, data: *mut core::ffi::c_void) {
        // SAFETY: As in `add()`; `data` is what `add()` set, and ours again.
        unsafe {
            let this = CLIENT.load(Ordering::Acquire).cast::<Self>();
            let data = Pin::new_unchecked(KBox::from_raw(data.cast::<T::Data>()));
            *T::handle(&data).device.lock() = None;
            (*this).ops.remove(IbDeviceRef::from_raw(device), data);
        }
    }
}

#[pinned_drop]
impl<T: RdmaClient> PinnedDrop for ClientRegistration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered in `new()`; afterwards no callback is running or comes.
        unsafe { bindings::ib_unregister_client(self.client.get()) };
        CLIENT.store(ptr::null_mut(), Ordering::Release);
    }
}
