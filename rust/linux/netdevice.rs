// SPDX-License-Identifier: GPL-2.0

//! Network devices, network namespaces and the RTNL lock.
//!
//! C headers: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h),
//! [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h),
//! [`include/linux/rtnetlink.h`](srctree/include/linux/rtnetlink.h).

use super::bindings;
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{
    error::to_result,
    prelude::*,
    sync::rcu,
    types::{NotThreadSafe, Opaque},
};

/// The identity of a network device: equal exactly for the same device while one
/// of the two holders keeps it alive. Not a reference, never dereferenced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NetDeviceId(usize);

impl NetDeviceId {
    /// The identity as a table's key.
    pub(crate) fn as_address(self) -> usize {
        self.0
    }
}

/// A `struct net_device` that somebody else keeps alive.
#[repr(transparent)]
pub(crate) struct NetDeviceRef(Opaque<bindings::net_device>);

impl NetDeviceRef {
    /// Borrows a device from its C pointer.
    ///
    /// # Safety
    ///
    /// `ptr` must point to a `struct net_device` that stays alive for `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::net_device) -> &'a Self {
        // SAFETY: `Self` is a transparent `Opaque<net_device>`, alive by the caller's promise.
        unsafe { &*ptr.cast() }
    }

    /// The C pointer.
    pub(super) fn as_ptr(&self) -> *mut bindings::net_device {
        self.0.get()
    }

    /// Which device this is.
    pub(crate) fn id(&self) -> NetDeviceId {
        NetDeviceId(self.as_ptr() as usize)
    }

    /// The interface index.
    pub(crate) fn ifindex(&self) -> i32 {
        // SAFETY: The device is alive by the type's contract.
        unsafe { bindings::rxe_cc_dev_ifindex(self.as_ptr()) }
    }

    /// The real device under a VLAN device (through all levels), none for others.
    pub(crate) fn vlan_real_dev(&self) -> Option<&NetDeviceRef> {
        // SAFETY: The device is alive; a VLAN device holds a reference on its real device.
        unsafe {
            if !bindings::rxe_cc_is_vlan_dev(self.as_ptr()) {
                return None;
            }
            Some(NetDeviceRef::from_raw(bindings::vlan_dev_real_dev(
                self.as_ptr(),
            )))
        }
    }

    /// The namespace of the device at this moment.
    pub(crate) fn net_rcu<'a>(&self, _guard: &'a rcu::Guard) -> Net<'a> {
        // SAFETY: The device is alive. When it leaves a namespace, that lives for a grace period.
        unsafe { Net::from_raw(bindings::rxe_cc_dev_net(self.as_ptr())) }
    }

    /// The namespace of the device, which cannot change under the RTNL.
    pub(crate) fn net<'a>(&self, _rtnl: &'a Rtnl) -> Net<'a> {
        // SAFETY: As above, while the RTNL is held.
        unsafe { Net::from_raw(bindings::rxe_cc_dev_net(self.as_ptr())) }
    }
}

/// A reference to a `struct net_device`.
///
/// # Invariants
///
/// Holds one reference, taken with `dev_hold()` or handed over.
pub(crate) struct NetDevice(NonNull<bindings::net_device>);

// SAFETY: A net device may be used and released from any thread.
unsafe impl Send for NetDevice {}
// SAFETY: As above; all operations on it are synchronised on the C side.
unsafe impl Sync for NetDevice {}

impl NetDevice {
    /// Takes over a reference.
    ///
    /// # Safety
    ///
    /// `ptr` must come with a reference that nobody else releases.
    pub(super) unsafe fn from_held(ptr: NonNull<bindings::net_device>) -> Self {
        // INVARIANT: The caller hands the reference over.
        Self(ptr)
    }

    /// The speed of the link in Mb/s, when it is known.
    pub(crate) fn speed_mbps(&self, _rtnl: &Rtnl) -> Option<u32> {
        // SAFETY: A reference is held, and the RTNL.
        let speed = unsafe { bindings::rxe_cc_dev_speed(self.as_ptr()) };
        (speed != u32::MAX && speed != 0).then_some(speed)
    }

    /// Whether the device is registered, neither before nor after that.
    pub(crate) fn is_registered(&self, _rtnl: &Rtnl) -> bool {
        // SAFETY: A reference is held; `reg_state` changes under the RTNL only.
        unsafe { bindings::rxe_cc_dev_is_registered(self.as_ptr()) }
    }
}

impl core::ops::Deref for NetDevice {
    type Target = NetDeviceRef;

    fn deref(&self) -> &NetDeviceRef {
        // SAFETY: The reference keeps the device alive as long as `self`.
        unsafe { NetDeviceRef::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for NetDevice {
    fn drop(&mut self) {
        // SAFETY: The reference is ours by the invariant.
        unsafe { bindings::rxe_cc_dev_put(self.0.as_ptr()) };
    }
}

/// A network namespace that somebody else keeps alive for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct Net<'a>(NonNull<bindings::net>, PhantomData<&'a bindings::net>);

impl Net<'_> {
    /// Borrows a namespace from its C pointer.
    ///
    /// # Safety
    ///
    /// `ptr` must point to a `struct net` that stays alive for the borrow.
    pub(super) unsafe fn from_raw(ptr: *mut bindings::net) -> Self {
        // SAFETY: The caller's pointer is valid, so not null.
        Net(unsafe { NonNull::new_unchecked(ptr) }, PhantomData)
    }

    /// The C pointer.
    pub(super) fn as_ptr(&self) -> *mut bindings::net {
        self.0.as_ptr()
    }
}

/// Evidence that the RTNL lock is held by this thread.
pub(crate) struct Rtnl {
    owned: bool,
    _thread: NotThreadSafe,
}

impl Rtnl {
    /// Takes the lock; it is released on drop.
    pub(crate) fn lock() -> Self {
        // SAFETY: Process context, as for every sleeping lock.
        unsafe { bindings::rtnl_lock() };
        Self {
            owned: true,
            _thread: NotThreadSafe,
        }
    }

    /// # Safety
    ///
    /// The RTNL must be held by the caller for as long as the value lives.
    unsafe fn assume_held() -> Self {
        Self {
            owned: false,
            _thread: NotThreadSafe,
        }
    }
}

impl Drop for Rtnl {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: Taken in `lock()`, by this thread.
            unsafe { bindings::rtnl_unlock() };
        }
    }
}

/// What happens to a network device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NetDeviceEvent {
    /// It came up.
    Up,
    /// It is about to go down.
    GoingDown,
    /// It went down.
    Down,
    /// Its link, speed or another property changed.
    Change,
    /// It goes away or leaves its namespace.
    Unregister,
}

impl NetDeviceEvent {
    fn from_raw(event: usize) -> Option<Self> {
        Some(match u32::try_from(event).ok()? {
            bindings::netdev_cmd_NETDEV_UP => Self::Up,
            bindings::netdev_cmd_NETDEV_GOING_DOWN => Self::GoingDown,
            bindings::netdev_cmd_NETDEV_DOWN => Self::Down,
            bindings::netdev_cmd_NETDEV_CHANGE => Self::Change,
            bindings::netdev_cmd_NETDEV_UNREGISTER => Self::Unregister,
            _ => return None,
        })
    }
}

/// Who wants to hear of [`NetDeviceEvent`]s.
pub(crate) trait NetDeviceNotifier: Send + Sync {
    /// Called under the RTNL for every event in [`NetDeviceEvent`], of every
    /// device in every namespace. Registration replays `Up` of the devices that
    /// are up; dropping the registration replays `Down` and `Unregister`.
    fn notify(&self, event: NetDeviceEvent, dev: &NetDeviceRef, rtnl: &Rtnl);
}

/// A registered notifier; dropping it unregisters.
#[pin_data(PinnedDrop)]
pub(crate) struct NotifierRegistration<T: NetDeviceNotifier> {
    #[pin]
    block: Opaque<bindings::notifier_block>,
    #[pin]
    data: T,
}

// SAFETY: `T` is `Send`; the C side does not care who unregisters.
unsafe impl<T: NetDeviceNotifier> Send for NotifierRegistration<T> {}
// SAFETY: `T` is `Sync`, nothing else is reachable through a shared reference.
unsafe impl<T: NetDeviceNotifier> Sync for NotifierRegistration<T> {}

impl<T: NetDeviceNotifier> NotifierRegistration<T> {
    /// Registers `data` for the events of all devices.
    pub(crate) fn new(data: impl PinInit<T, Error>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            data <- data,
            block <- Opaque::try_ffi_init(|place: *mut bindings::notifier_block| {
                // SAFETY: `place` is valid for writes; once registered the block is pinned until
                // the `Drop` below unregisters it. `data` was initialised before: fields are
                // initialised in the order given here.
                unsafe {
                    place.write(bindings::notifier_block {
                        notifier_call: Some(Self::call),
                        ..Default::default()
                    });
                    to_result(bindings::register_netdevice_notifier(place))
                }
            }),
        })
    }

    /// What the notifier calls.
    pub(crate) fn data(&self) -> &T {
        &self.data
    }

    /// # Safety
    ///
    /// Called by the notifier chain, with the block registered above and the RTNL held.
    unsafe extern "C" fn call(
        block: *mut bindings::notifier_block,
        event: usize,
        info: *mut core::ffi::c_void,
    ) -> core::ffi::c_int {
        if let Some(event) = NetDeviceEvent::from_raw(event) {
            // SAFETY: `block` is the field of a `Self` that lives until it is unregistered; `info`
            // is the `netdev_notifier_info` of a live device; netdev chains run under the RTNL.
            unsafe {
                let this = kernel::container_of!(
                    block.cast::<Opaque<bindings::notifier_block>>(),
                    Self,
                    block
                );
                let dev =
                    NetDeviceRef::from_raw((*info.cast::<bindings::netdev_notifier_info>()).dev);
                (*this).data.notify(event, dev, &Rtnl::assume_held());
            }
        }
        bindings::NOTIFY_DONE as core::ffi::c_int
    }
}

#[pinned_drop]
impl<T: NetDeviceNotifier> PinnedDrop for NotifierRegistration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered in `new()`; after this no call is running or comes.
        unsafe { bindings::unregister_netdevice_notifier(self.block.get()) };
    }
}
