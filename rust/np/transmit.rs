// SPDX-License-Identifier: GPL-2.0

//! Builds a CNP and sends it. Whatever is missing (a route, memory), the mark
//! that called for it changes nothing else.

use super::Target;
use crate::{
    counters::Counter,
    dcqcn::params::NpParams,
    device::Device,
    latency::Interval,
    linux::{crc32::KernelCrc32, hrtimer::now_ns, ip_output, netdevice::Net},
    roce::{
        cnp::{Cnp, CNP_V4_LEN, CNP_V6_LEN},
        packet::Addr,
    },
    trace::{self, Ends},
};
use kernel::{prelude::*, sync::rcu};

/// Sends the CNP for a mark that was just received.
pub(super) fn immediate(device: &Device, target: &Target, params: &NpParams) {
    device.count(Counter::NpCnpImmediate);
    transmit(device, target, params, false);
}

/// Sends the CNP for a mark received before.
pub(super) fn deferred(device: &Device, target: &Target, params: &NpParams) {
    device.count(Counter::NpCnpDeferred);
    transmit(device, target, params, true);
}

fn transmit(device: &Device, target: &Target, params: &NpParams, deferred: bool) {
    let guard = rcu::read_lock();
    let sent = send(device.netdev.net_rcu(&guard), target, params);
    let ends = Ends {
        qpn: target.qpn,
        peer: target.peer,
        peer_qpn: target.dest_qpn,
    };
    trace::cnp_tx(device, ends, deferred, &sent);
    if sent.is_err() {
        device.count(Counter::NpCnpSendFailed);
        return;
    }
    device.count(Counter::NpCnpSent);
    let interval = if deferred {
        Interval::CeToCnpDeferred
    } else {
        Interval::CeToCnp
    };
    let took_ns = now_ns().saturating_sub(target.marked_ns);
    device.latencies.add(interval, took_ns);
}

fn send(net: Net<'_>, target: &Target, params: &NpParams) -> Result {
    let mut cnp = Cnp::new(target.local, target.peer, target.pkey, target.dest_qpn);
    cnp.dscp = params.dscp;
    cnp.udp_sport = params.udp_sport;
    let priority = u32::from(params.prio);
    match target.local {
        Addr::V4(local) => {
            // The ICRC covers it.
            if let Addr::V4(peer) = target.peer {
                cnp.ip_id = ip_output::select_ipv4_id(net, local, peer);
            }
            let mut bytes = [0; CNP_V4_LEN];
            cnp.write_v4::<KernelCrc32>(&mut bytes)
                .map_err(|_| EINVAL)?;
            ip_output::send(net, target.oif, &bytes, priority)
        }
        Addr::V6(_) => {
            let mut bytes = [0; CNP_V6_LEN];
            cnp.write_v6::<KernelCrc32>(&mut bytes)
                .map_err(|_| EINVAL)?;
            ip_output::send(net, target.oif, &bytes, priority)
        }
    }
}
