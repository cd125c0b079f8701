// SPDX-License-Identifier: GPL-2.0

//! Looking at this machine for a while: [`Observation`]s are made here, and nothing is
//! judged. What cannot be seen, for want of root or of a tool, is left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rxe_cc::dcqcn::params::Group;

use super::observed::{Host, Kernel, Knobs, Observation, Port, Watched};
use super::outside;
use crate::program;
use crate::system::{is_root, names, read, Device, Knob, Namespace, System};

/// Between two looks at what is limited and held.
const LOOK: Duration = Duration::from_millis(250);

/// A flag of a netdev: set up by its administrator (if.h).
const IFF_UP: u32 = 1;

/// Watches the devices for `time`, then looks at everything else.
///
/// # Errors
///
/// None of what is merely missing.
pub(crate) fn observe(system: &System, devices: &[Device], time: Duration) -> Result<Observation> {
    let started = Instant::now();
    let mut hosts: Vec<Host> = devices.iter().map(before).collect();
    while let Some(left) = time.checked_sub(started.elapsed()) {
        thread::sleep(left.min(LOOK));
        for (host, device) in hosts.iter_mut().zip(devices) {
            look(host, device);
        }
    }
    for (host, device) in hosts.iter_mut().zip(devices) {
        after(host, device);
    }
    let seconds = started.elapsed().as_secs_f64();
    let mut observation = Observation {
        seconds,
        is_root: is_root() && system.closed_namespaces().is_empty(),
        kernel: kernel(system),
        is_exclusive: is_exclusive(),
        hosts,
        ..Observation::default()
    };
    for namespace in system.namespaces() {
        observation.ports.extend(ports(namespace));
        observation.drops.extend(drops(namespace));
    }
    Ok(observation)
}

fn before(device: &Device) -> Host {
    let mut host = Host {
        name: device.name.clone(),
        netdev: device.netdev_name.clone(),
        addresses: device.addresses(),
        counters: device.counters().ok().map(begin),
        rxe: begin(device.rxe_counters()),
        wire: begin(statistics(device)),
        cnps_before: cnps(device),
        ..Host::default()
    };
    if let Some(netdev) = &device.netdev {
        let dir = netdev.dir();
        host.namespace = Some(netdev.namespace.name.clone());
        host.ifindex = number(dir, "ifindex").unwrap_or(0);
        host.iflink = number(dir, "iflink").unwrap_or(0);
        // Only hardware has a device behind it; virtio's link is the hypervisor's.
        let driver = fs::canonicalize(dir.join("device/driver")).ok();
        let driver = driver.as_deref().and_then(Path::file_name);
        host.is_virtual = driver.is_none_or(|driver| driver == "virtio_net");
        host.speed_mbps = netdev.speed_mbps();
    }
    host
}

fn begin(counters: BTreeMap<String, u64>) -> Watched {
    Watched {
        before: counters,
        after: BTreeMap::new(),
    }
}

fn look(host: &mut Host, device: &Device) {
    let Ok(counters) = device.counters() else {
        return;
    };
    let has = |name: &str| counters.get(name).is_some_and(|value| *value > 0);
    host.looks += 1;
    host.looks_limited += u32::from(has("rp_limited_qps"));
    host.looks_held += u32::from(has("rp_held_packets"));
}

fn after(host: &mut Host, device: &Device) {
    match (&mut host.counters, device.counters()) {
        (Some(watched), Ok(counters)) => watched.after = counters,
        // The module came or went meanwhile.
        (counters, _) => *counters = None,
    }
    host.rxe.after = device.rxe_counters();
    host.wire.after = statistics(device);
    host.qps = device.qps().ok();
    host.knobs = knobs(device);
    if let Some(netdev) = &device.netdev {
        let flags = read(&netdev.dir().join("flags")).ok();
        let flags =
            flags.and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok());
        host.is_up = flags.is_none_or(|flags| flags & IFF_UP != 0);
        // Reading it fails while the netdev is down.
        host.has_carrier = read(&netdev.dir().join("carrier")).is_ok_and(|text| text == "1");
    }
}

fn number(dir: &Path, name: &str) -> Option<u32> {
    read(&dir.join(name)).ok()?.parse().ok()
}

/// The netdev's own counters.
fn statistics(device: &Device) -> BTreeMap<String, u64> {
    let Some(netdev) = &device.netdev else {
        return BTreeMap::new();
    };
    let dir = netdev.dir().join("statistics");
    let value = |name: &str| Some((name.to_owned(), read(&dir.join(name)).ok()?.parse().ok()?));
    ["tx_bytes", "tx_packets", "rx_bytes", "rx_packets"]
        .into_iter()
        .filter_map(value)
        .collect()
}

fn cnps(device: &Device) -> BTreeMap<u32, u64> {
    let qps = device.qps().unwrap_or_default();
    qps.into_iter()
        .filter_map(|qp| Some((qp.qpn, qp.np?.cnps)))
        .collect()
}

fn knobs(device: &Device) -> Option<Knobs> {
    let mut knobs = Knobs::default();
    for (knob, value) in device.knobs().ok()? {
        match knob {
            Knob::Param(id) => knobs.set(id, value),
            Knob::Enable(Group::RoceNp, priority) => knobs.np = knobs.np.with(priority, value != 0),
            Knob::Enable(_, priority) => knobs.rp = knobs.rp.with(priority, value != 0),
        }
    }
    Some(knobs)
}

fn kernel(system: &System) -> Kernel {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim().to_owned();
    let has_rxe = system.has_module("rdma_rxe");
    let has_module = system.has_module("rxe_cc");
    let config = fs::read_to_string(format!("/boot/config-{release}")).ok();
    Kernel {
        has_rxe,
        has_module,
        // Looking for it takes a process; nobody asks once it is there.
        could_have_rxe: has_rxe || program::output("modprobe", &["-n", "-q", "rdma_rxe"]).is_ok(),
        has_rust: config.map(|text| text.lines().any(|line| line == "CONFIG_RUST=y")),
        release,
    }
}

fn is_exclusive() -> bool {
    program::output("rdma", &["system", "show"]).is_ok_and(|text| text.contains("netns exclusive"))
}

/// The netdevs of a namespace that have a queue of their own.
fn ports(namespace: &Arc<Namespace>) -> Vec<Port> {
    let Ok(text) = namespace.enter(|| program::output("tc", &["-s", "-j", "qdisc", "show"])) else {
        return Vec::new();
    };
    let port = |(netdev, qdiscs): (String, _)| {
        let dir = namespace.sys().join("class/net").join(&netdev);
        Port {
            namespace: namespace.name.clone(),
            ifindex: number(&dir, "ifindex").unwrap_or(0),
            iflink: number(&dir, "iflink").unwrap_or(0),
            netdev,
            qdiscs,
        }
    };
    let mut found = outside::qdiscs(&text).unwrap_or_default();
    // So that the way to a host is known by name also where nothing queues yet.
    for netdev in names(&namespace.sys().join("class/net")) {
        found.entry(netdev).or_default();
    }
    found.into_iter().map(port).collect()
}

/// What may drop RoCE in a namespace; only root is told.
fn drops(namespace: &Arc<Namespace>) -> Vec<String> {
    let place = match &*namespace.name {
        "" => "this namespace",
        name => name,
    };
    let inside = |program: &str, arguments: &[&str]| {
        namespace
            .enter(|| program::output(program, arguments))
            .unwrap_or_default()
    };
    let mut found = outside::nft_drops(&inside("nft", &["-j", "list", "ruleset"]), place);
    // The old tables, which nft does not show.
    for program in ["iptables-legacy-save", "ip6tables-legacy-save"] {
        found.extend(outside::iptables_drops(
            &inside(program, &[]),
            program,
            place,
        ));
    }
    found
}
