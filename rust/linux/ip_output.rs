// SPDX-License-Identifier: GPL-2.0

//! Sending an IP packet that is complete but for its route.
//!
//! C headers: [`include/net/route.h`](srctree/include/net/route.h),
//! [`include/net/ip6_route.h`](srctree/include/net/ip6_route.h).

use super::{bindings, netdevice::Net, netfilter::Family};
use core::{marker::PhantomData, ptr};
use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    types::NotThreadSafe,
};

/// UDP, the protocol that the routes are for.
const PROTOCOL: u8 = 17;

/// A route to a destination.
///
/// # Invariants
///
/// Owns one reference of a valid, usable `struct dst_entry`.
struct Route(*mut bindings::dst_entry);

impl Route {
    /// Finds the route of an IPv4 packet that leaves by a given device.
    fn find_v4(net: Net<'_>, oif: i32, tos: u8, source: [u8; 4], dest: [u8; 4]) -> Result<Self> {
        let mut flow = bindings::flowi4::default();
        flow.__fl_common.flowic_oif = oif;
        flow.__fl_common.flowic_proto = PROTOCOL;
        // INET_DSCP_MASK: the ECN bits take no part in routing.
        flow.__fl_common.flowic_dscp = tos & 0xfc;
        flow.saddr = u32::from_ne_bytes(source);
        flow.daddr = u32::from_ne_bytes(dest);
        // SAFETY: The namespace is alive, the flow is plain data; without a socket.
        let route = from_err_ptr(unsafe {
            bindings::ip_route_output_flow(net.as_ptr(), &mut flow, ptr::null())
        })?;
        // SAFETY: A routing table entry begins with its dst entry.
        // INVARIANT: The reference of the result is ours.
        Ok(Self(unsafe { bindings::rxe_cc_rtable_dst(route) }))
    }

    /// Finds the route of an IPv6 packet that leaves by a given device.
    fn find_v6(net: Net<'_>, oif: i32, source: [u8; 16], dest: [u8; 16]) -> Result<Self> {
        let mut flow = bindings::flowi6::default();
        flow.__fl_common.flowic_oif = oif;
        flow.__fl_common.flowic_proto = PROTOCOL;
        flow.saddr.in6_u.u6_addr8 = source;
        flow.daddr.in6_u.u6_addr8 = dest;
        // SAFETY: As above; the result is never null and carries its error inside.
        unsafe {
            let dst = bindings::ip6_route_output_flags(net.as_ptr(), ptr::null(), &mut flow, 0);
            // INVARIANT: The reference of the result is ours, also when it is an error's.
            let route = Self(dst);
            to_result(bindings::rxe_cc_dst_error(dst))?;
            Ok(route)
        }
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: The reference is ours by the invariant.
        unsafe { bindings::rxe_cc_dst_release(self.0) };
    }
}

/// Softirqs are off on this CPU.
struct BottomHalvesOff(PhantomData<NotThreadSafe>);

impl BottomHalvesOff {
    fn new() -> Self {
        // SAFETY: No requirements; undone on drop.
        unsafe { bindings::rxe_cc_local_bh_disable() };
        Self(PhantomData)
    }
}

impl Drop for BottomHalvesOff {
    fn drop(&mut self) {
        // SAFETY: Disabled in `new()`.
        unsafe { bindings::rxe_cc_local_bh_enable() };
    }
}

/// The next id for an IPv4 packet between two addresses.
pub(crate) fn select_ipv4_id(net: Net<'_>, source: [u8; 4], dest: [u8; 4]) -> u16 {
    let mut header = bindings::iphdr {
        protocol: PROTOCOL,
        ..Default::default()
    };
    // SAFETY: The namespace is alive, the header plain data.
    unsafe {
        let addresses = &mut header.__bindgen_anon_1.addrs;
        addresses.saddr = u32::from_ne_bytes(source);
        addresses.daddr = u32::from_ne_bytes(dest);
        bindings::__ip_select_ident(net.as_ptr(), &mut header, 1);
    }
    u16::from_be(header.id)
}

/// Sends an IP packet without options or extension headers by the device with
/// interface index `oif`.
///
/// Any context but hard interrupts, with interrupts on.
///
/// # Errors
///
/// No route, no memory, or what the output path says.
pub(crate) fn send(net: Net<'_>, oif: i32, packet: &[u8], priority: u32) -> Result {
    let family = match packet.first().ok_or(EINVAL)? >> 4 {
        4 => Family::V4,
        6 => Family::V6,
        _ => return Err(EINVAL),
    };
    let field = |at: usize| packet.get(at..).ok_or(EINVAL);
    let (route, header_len) = match family {
        Family::V4 => {
            let tos = *packet.get(1).ok_or(EINVAL)?;
            let source = *field(12)?.first_chunk().ok_or(EINVAL)?;
            let dest = *field(16)?.first_chunk().ok_or(EINVAL)?;
            (Route::find_v4(net, oif, tos, source, dest)?, 20)
        }
        Family::V6 => {
            let source = *field(8)?.first_chunk().ok_or(EINVAL)?;
            let dest = *field(24)?.first_chunk().ok_or(EINVAL)?;
            (Route::find_v6(net, oif, source, dest)?, 40)
        }
    };
    let len = u32::try_from(packet.len()).map_err(|_| EMSGSIZE)?;
    let _off = BottomHalvesOff::new();
    // SAFETY: The route and its device are alive. The new buffer has room for the link's header
    // and the packet, which is copied into it before anyone reads it. The buffer and the route are
    // handed over to the output path, which frees both in any case.
    unsafe {
        let dev = bindings::rxe_cc_dst_dev(route.0);
        let headroom = bindings::rxe_cc_ll_reserved_space(dev);
        let skb = bindings::rxe_cc_alloc_skb(headroom + len, bindings::rxe_cc_gfp_atomic());
        if skb.is_null() {
            return Err(ENOMEM);
        }
        bindings::rxe_cc_skb_reserve(skb, headroom as i32);
        bindings::rxe_cc_skb_reset_network_header(skb);
        bindings::rxe_cc_skb_set_transport_header(skb, header_len);
        let place = bindings::skb_put(skb, len);
        ptr::copy_nonoverlapping(packet.as_ptr(), place.cast(), packet.len());
        bindings::rxe_cc_skb_set_output(skb, dev, priority, family == Family::V6);
        bindings::rxe_cc_skb_dst_set(skb, route.0);
        core::mem::forget(route);
        // A positive status is the qdisc's (congestion notice): it was sent.
        let status = match family {
            Family::V4 => bindings::ip_local_out(net.as_ptr(), ptr::null_mut(), skb),
            Family::V6 => bindings::ip6_local_out(net.as_ptr(), ptr::null_mut(), skb),
        };
        to_result(status.min(0))
    }
}
