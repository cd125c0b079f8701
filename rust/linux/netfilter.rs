// SPDX-License-Identifier: GPL-2.0

//! Netfilter hooks in the namespaces that have a device of interest, and in no
//! other.
//!
//! C header: [`include/linux/netfilter.h`](srctree/include/linux/netfilter.h).

use super::{
    bindings,
    netdevice::{
        Net, NetDeviceEvent, NetDeviceId, NetDeviceNotifier, NetDeviceRef, NotifierRegistration,
        Rtnl,
    },
    rhashtable::ReadSide,
    skbuff::SkBuff,
};
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{
    error::to_result,
    prelude::*,
    sync::{new_mutex, Arc, Mutex},
    types::Opaque,
};

/// The IP version of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Where a packet was met.
///
/// # Invariants
///
/// The protocol family is that of an IP version. RCU is held as long as a reference lives.
#[repr(transparent)]
pub(crate) struct HookState(bindings::nf_hook_state);

// SAFETY: Netfilter holds RCU while a hook runs, and a state is of one run only.
unsafe impl ReadSide for HookState {}

impl HookState {
    /// # Safety
    ///
    /// `state` must satisfy the invariant for `'a`.
    #[inline(always)]
    unsafe fn from_raw<'a>(state: *const bindings::nf_hook_state) -> &'a Self {
        // SAFETY: `Self` is transparent; the rest is the caller's promise.
        unsafe { &*state.cast() }
    }

    /// Where a packet of a test was met, which holds RCU as netfilter does: in IPv4.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(super) fn for_test<'a>(
        state: &'a mut bindings::nf_hook_state,
        _held: &'a kernel::sync::rcu::Guard,
    ) -> &'a Self {
        state.pf = bindings::NFPROTO_IPV4 as u8;
        // SAFETY: Both hold by now.
        unsafe { Self::from_raw(state) }
    }

    /// The IP version.
    #[inline(always)]
    pub(crate) fn family(&self) -> Family {
        if u32::from(self.0.pf) == bindings::NFPROTO_IPV6 {
            Family::V6
        } else {
            Family::V4
        }
    }

    /// Where the packet goes on when it is held.
    pub(super) fn okfn(
        &self,
    ) -> Option<
        unsafe extern "C" fn(
            *mut bindings::net,
            *mut bindings::sock,
            *mut bindings::sk_buff,
        ) -> core::ffi::c_int,
    > {
        self.0.okfn
    }

    /// The device by which the packet came in (at LOCAL_IN).
    pub(crate) fn in_dev(&self) -> Option<&NetDeviceRef> {
        // SAFETY: A packet's device lives at least as long as the hook runs (RCU).
        unsafe { NonNull::new(self.0.in_).map(|dev| NetDeviceRef::from_raw(dev.as_ptr())) }
    }

    /// The device by which the packet goes out (at LOCAL_OUT).
    pub(crate) fn out_dev(&self) -> Option<&NetDeviceRef> {
        // SAFETY: As in `in_dev()`.
        unsafe { NonNull::new(self.0.out).map(|dev| NetDeviceRef::from_raw(dev.as_ptr())) }
    }
}

/// What becomes of a packet.
pub(crate) enum Verdict {
    /// It goes on.
    Accept(SkBuff),
    /// The hook kept or used it up.
    Stolen,
}

/// The two hooks.
pub(crate) trait NetfilterHooks: Send + Sync {
    /// A packet for this host, after all rules of a firewall. Softirq context.
    fn local_in(&self, skb: SkBuff, state: &HookState) -> Verdict;

    /// A packet of this host, after all rules of a firewall. Any context but hard interrupts.
    fn local_out(&self, skb: SkBuff, state: &HookState) -> Verdict;
}

/// The hooks of one namespace.
///
/// # Invariants
///
/// Both hooks are registered in `net`; `data` outlives them. The namespace is
/// alive: see [`NetHooks`].
struct Registration<T: NetfilterHooks> {
    ops: Pin<KBox<[Opaque<bindings::nf_hook_ops>; 2]>>,
    net: NonNull<bindings::net>,
    _data: Arc<T>,
}

// SAFETY: The C side locks for itself and does not care who unregisters.
unsafe impl<T: NetfilterHooks> Send for Registration<T> {}
// SAFETY: Nothing is reachable through a shared reference.
unsafe impl<T: NetfilterHooks> Sync for Registration<T> {}

impl<T: NetfilterHooks> Registration<T> {
    fn new(net: Net<'_>, data: Arc<T>) -> Result<Self> {
        let hook = |hook: bindings::nf_hookfn, hooknum, priority| {
            Opaque::new(bindings::nf_hook_ops {
                hook,
                priv_: Arc::as_ptr(&data).cast_mut().cast(),
                pf: bindings::NFPROTO_INET as u8,
                hooknum,
                priority,
                ..Default::default()
            })
        };
        let last = bindings::nf_ip_hook_priorities_NF_IP_PRI_LAST;
        let ops = KBox::pin(
            [
                // Just before conntrack's confirmation, which is last on the way in.
                hook(
                    Some(Self::local_in),
                    bindings::nf_inet_hooks_NF_INET_LOCAL_IN,
                    last - 1,
                ),
                hook(
                    Some(Self::local_out),
                    bindings::nf_inet_hooks_NF_INET_LOCAL_OUT,
                    last,
                ),
            ],
            GFP_KERNEL,
        )?;
        // SAFETY: The namespace is alive; the ops are pinned and, with the data that they point
        // to, stay until they are unregistered.
        unsafe {
            to_result(bindings::nf_register_net_hook(net.as_ptr(), ops[0].get()))?;
            to_result(bindings::nf_register_net_hook(net.as_ptr(), ops[1].get())).inspect_err(
                |_| {
                    bindings::nf_unregister_net_hook(net.as_ptr(), ops[0].get());
                    bindings::synchronize_net();
                },
            )?;
        }
        // INVARIANT: Both hooks were registered.
        Ok(Self {
            ops,
            // SAFETY: A live namespace is not at null.
            net: unsafe { NonNull::new_unchecked(net.as_ptr()) },
            _data: data,
        })
    }

    /// # Safety
    ///
    /// Called by netfilter for hooks made in `new()`.
    unsafe extern "C" fn local_in(
        data: *mut core::ffi::c_void,
        skb: *mut bindings::sk_buff,
        state: *const bindings::nf_hook_state,
    ) -> core::ffi::c_uint {
        // SAFETY: By the contract, see `run()`.
        unsafe { Self::run(data, skb, state, T::local_in) }
    }

    /// # Safety
    ///
    /// As for `local_in()`.
    unsafe extern "C" fn local_out(
        data: *mut core::ffi::c_void,
        skb: *mut bindings::sk_buff,
        state: *const bindings::nf_hook_state,
    ) -> core::ffi::c_uint {
        // SAFETY: By the contract, see `run()`.
        unsafe { Self::run(data, skb, state, T::local_out) }
    }

    /// # Safety
    ///
    /// `data` must be that of a registration of this type, `skb` and `state` a hook's arguments,
    /// and RCU be held.
    #[inline(always)]
    unsafe fn run(
        data: *mut core::ffi::c_void,
        skb: *mut bindings::sk_buff,
        state: *const bindings::nf_hook_state,
        hook: impl FnOnce(&T, SkBuff, &HookState) -> Verdict,
    ) -> core::ffi::c_uint {
        // SAFETY: A hook's argument.
        let family = u32::from(unsafe { (*state).pf });
        if family != bindings::NFPROTO_IPV4 && family != bindings::NFPROTO_IPV6 {
            return bindings::NF_ACCEPT;
        }
        // SAFETY: The data live until the hooks are unregistered and no longer running. The packet
        // is the hook's to judge until it returns; in the IP hooks its data begin at the network
        // header. The state's invariant was checked, or is the contract.
        let (data, state, skb) = unsafe {
            (
                &*data.cast::<T>(),
                HookState::from_raw(state),
                SkBuff::from_raw(NonNull::new_unchecked(skb)),
            )
        };
        match hook(data, skb, state) {
            Verdict::Accept(skb) => {
                skb.into_raw();
                bindings::NF_ACCEPT
            }
            Verdict::Stolen => bindings::NF_STOLEN,
        }
    }
}

impl<T: NetfilterHooks> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: Registered by the invariant, in a namespace that is alive. After the grace period
        // no hook is running, so ops and data may go.
        unsafe {
            for ops in self.ops.iter() {
                bindings::nf_unregister_net_hook(self.net.as_ptr(), ops.get());
            }
            bindings::synchronize_net();
        }
    }
}

/// The devices for whose sake there are hooks, each with those of its namespace.
///
/// # Invariants
///
/// All devices are registered in the namespace of their hooks, which therefore is
/// alive: a device is attached under the RTNL while it is registered, and detached
/// by the notifier when it is unregistered or moved.
#[pin_data]
struct Attached<T: NetfilterHooks> {
    #[pin]
    devices: Mutex<KVec<(NetDeviceId, Arc<Registration<T>>)>>,
    _data: PhantomData<Arc<T>>,
}

impl<T: NetfilterHooks> Attached<T> {
    fn detach(&self, dev: NetDeviceId) {
        let mut devices = self.devices.lock();
        if let Some(index) = devices.iter().position(|(id, _)| *id == dev) {
            let _ = devices.remove(index);
        }
    }
}

impl<T: NetfilterHooks> NetDeviceNotifier for Attached<T> {
    fn notify(&self, event: NetDeviceEvent, dev: &NetDeviceRef, _rtnl: &Rtnl) {
        if event == NetDeviceEvent::Unregister {
            self.detach(dev.id());
        }
    }
}

/// Hooks in the namespaces of the attached devices.
///
/// Dropping it takes all hooks away and waits until none is running.
#[pin_data]
pub(crate) struct NetHooks<T: NetfilterHooks> {
    #[pin]
    attached: NotifierRegistration<Attached<T>>,
    data: Arc<T>,
}

impl<T: NetfilterHooks> NetHooks<T> {
    /// No hooks yet, for nobody is attached.
    pub(crate) fn new(data: Arc<T>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            attached <- NotifierRegistration::new(try_pin_init!(Attached {
                devices <- new_mutex!(KVec::new(), "rxe_cc_hooks"),
                _data: PhantomData,
            }? Error)),
            data,
        })
    }

    /// From now on the hooks see the packets of the device's namespace.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the device is not registered (any more).
    pub(crate) fn attach(&self, dev: &super::netdevice::NetDevice, rtnl: &Rtnl) -> Result {
        if !dev.is_registered(rtnl) {
            return Err(ENODEV);
        }
        let net = dev.net(rtnl);
        let mut devices = self.attached.data().devices.lock();
        let present = devices
            .iter()
            .map(|(_, hooks)| hooks)
            .find(|hooks| hooks.net.as_ptr() == net.as_ptr())
            .cloned();
        let hooks = match present {
            Some(hooks) => hooks,
            None => Arc::new(Registration::new(net, self.data.clone())?, GFP_KERNEL)?,
        };
        // INVARIANT: Registered, and the RTNL is held.
        devices.push((dev.id(), hooks), GFP_KERNEL)?;
        Ok(())
    }

    /// The device is of no interest any more. Does nothing when it was detached
    /// already, as every device is that is unregistered or leaves its namespace.
    pub(crate) fn detach(&self, dev: NetDeviceId, _rtnl: &Rtnl) {
        self.attached.data().detach(dev);
    }
}
