// SPDX-License-Identifier: GPL-2.0

//! Checks of what must be there before the first packet: kernel, modules, devices,
//! links, and knobs that make sense together.

use std::net::IpAddr;

use rxe_cc::dcqcn::params::{Id, UNKNOWN_LINE_RATE_MBPS};

use super::observed::{Host, Knobs, Observation, Watched};
use super::Said;

/// The whole machine as a subject.
const MACHINE: &str = "this machine";

/// The first kernel whose restrack hides a QP before its destroy begins.
const OLDEST_KERNEL: (u32, u32) = (7, 3);

fn machine(text: String, remedy: &str) -> Vec<Said> {
    vec![Said {
        subject: MACHINE.to_owned(),
        text,
        remedy: remedy.to_owned(),
    }]
}

/// The kernel has what it takes.
pub(super) fn kernel(o: &Observation) -> Vec<Said> {
    let kernel = &o.kernel;
    if kernel.has_module {
        return Vec::new();
    }
    if !kernel.has_rxe && !kernel.could_have_rxe {
        return machine(
            format!("kernel {} has no rdma_rxe", kernel.release),
            "install the kernel's further modules, or a kernel with CONFIG_RDMA_RXE",
        );
    }
    let mut numbers = kernel.release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|text| text.parse().ok());
    if let (Some(major), Some(minor)) = (number(), number()) {
        if (major, minor) < OLDEST_KERNEL {
            return machine(
                format!(
                    "kernel {} is too old for rxe_cc, which needs 7.3",
                    kernel.release
                ),
                "boot a kernel 7.3 or later, or use the lab (scripts/lab shell)",
            );
        }
    }
    if kernel.has_rust == Some(false) {
        return machine(
            format!(
                "kernel {} is built without CONFIG_RUST, so it cannot load rxe_cc",
                kernel.release
            ),
            "boot a kernel with CONFIG_RUST=y, or use the lab (scripts/lab shell)",
        );
    }
    Vec::new()
}

/// rxe_cc is loaded.
pub(super) fn no_module(o: &Observation) -> Vec<Said> {
    if o.kernel.has_module || !kernel(o).is_empty() {
        return Vec::new();
    }
    machine(
        "rxe_cc is not loaded, so soft-RoCE has no congestion control".to_owned(),
        "insmod rxe_cc.ko (or modprobe rxe_cc, once it is installed)",
    )
}

/// There is something to control.
pub(super) fn no_device(o: &Observation) -> Vec<Said> {
    if !o.hosts.is_empty() || (!o.kernel.has_rxe && !o.kernel.could_have_rxe) {
        return Vec::new();
    }
    machine(
        "there is no soft-RoCE device".to_owned(),
        "rdma link add rxe0 type rxe netdev eth0 (whatever netdev it is to be on)",
    )
}

/// The module runs on each device.
pub(super) fn device_without_module(o: &Observation) -> Vec<Said> {
    if !o.kernel.has_module {
        return Vec::new();
    }
    each(o, |host| {
        host.counters.is_none().then(|| {
            (
                "rxe_cc is loaded, but does not run on this device".to_owned(),
                "dmesg | grep rxe_cc tells why; rmmod rxe_cc and load it again".to_owned(),
            )
        })
    })
}

/// One place from which all devices are seen.
pub(super) fn netns_exclusive(o: &Observation) -> Vec<Said> {
    if !o.is_exclusive {
        return Vec::new();
    }
    machine(
        "RDMA devices are exclusive to their network namespaces, and most programs see those of one alone".to_owned(),
        "rdma system set netns shared (before there are namespaces), or ip netns exec NAME rxecc doctor in each",
    )
}

/// Links are up.
pub(super) fn interface_down(o: &Observation) -> Vec<Said> {
    each(o, |host| {
        let namespace = host.namespace.as_deref()?;
        let inside = match namespace {
            "" => String::new(),
            name => format!("-n {name} "),
        };
        if !host.is_up {
            return Some((
                format!("its netdev {} is down, so nothing leaves it", host.netdev),
                format!("ip {inside}link set {} up", host.netdev),
            ));
        }
        (!host.has_carrier).then(|| {
            (
                format!(
                    "its netdev {} has no carrier, so nothing leaves it",
                    host.netdev
                ),
                "plug the link in, or set its other end up (ip link set ... up)".to_owned(),
            )
        })
    })
}

/// Two devices of one namespace reach each other by the loopback interface.
pub(super) fn two_devices(o: &Observation) -> Vec<Said> {
    let mut said = Vec::new();
    for (place, one) in o.hosts.iter().enumerate() {
        for other in &o.hosts[place + 1..] {
            let together = one.namespace.is_some() && one.namespace == other.namespace;
            if together && (share_a_subnet(one, other) || one.talks_to(other)) {
                said.push(Said {
                    subject: format!("{} and {}", one.name, other.name),
                    text: "they are in one network namespace, so what one sends to the other takes neither \
                           a link nor a queue, and is never marked"
                        .to_owned(),
                    remedy: "give each host a network namespace of its own (samples/fabric up)".to_owned(),
                });
            }
        }
    }
    said
}

/// By the usual size of a subnet, /24 or /64.
fn share_a_subnet(one: &Host, other: &Host) -> bool {
    fn subnet(address: &IpAddr) -> Option<Vec<u8>> {
        match address {
            IpAddr::V4(v4) => Some(v4.octets()[..3].to_vec()),
            IpAddr::V6(v6) if v6.is_unicast_link_local() => None,
            IpAddr::V6(v6) => Some(v6.octets()[..8].to_vec()),
        }
    }
    let subnets: Vec<Vec<u8>> = one.addresses.iter().filter_map(subnet).collect();
    let mut others = other.addresses.iter().filter_map(subnet);
    others.any(|subnet| subnets.contains(&subnet))
}

/// What a host sends to itself never reaches IP's output.
pub(super) fn loopback(o: &Observation) -> Vec<Said> {
    const SURE_PACKETS: u64 = 200;
    each(o, |host| {
        let sent = host.rxe.gain("sent_pkts");
        let left = host.wire.gain("tx_packets");
        // Without the netdev's view there is nothing to compare.
        let can_tell = host.namespace.is_some() && !host.wire.after.is_empty();
        let stopped = host.counters.as_ref().map_or(0, stopped_by_the_limiter);
        (can_tell && sent >= SURE_PACKETS && left + stopped < sent / 2).then(|| {
            (
                format!(
                    "of {sent} RoCE packets sent {} only {left} left by {}: its QPs talk to QPs of the same \
                     device, which rxe does without the network",
                    o.when(),
                    host.netdev
                ),
                "put client and server on two devices, each in a network namespace of its own (samples/fabric up)"
                    .to_owned(),
            )
        })
    })
}

/// Packets that rxe sent and the rate limiter did not let leave, or not yet.
fn stopped_by_the_limiter(counters: &Watched) -> u64 {
    let gone = [
        "rp_rewound_packets",
        "rp_dropped_responses",
        "rp_purged_packets",
    ];
    let gone: u64 = gone.iter().map(|name| counters.gain(name)).sum();
    gone + counters.total("rp_held_packets")
}

/// The module knows what the link carries.
pub(super) fn line_rate(o: &Observation) -> Vec<Said> {
    each(o, |host| {
        let knobs = host.knobs.as_ref()?;
        if !host.is_virtual || knobs.get(Id::LineRate) != 0 {
            return None;
        }
        let taken = match host.speed_mbps {
            Some(speed) => format!(
                "its netdev {} says {speed} Mb/s, which is fiction",
                host.netdev
            ),
            None => format!(
                "its netdev {} says no speed, so {UNKNOWN_LINE_RATE_MBPS} Mb/s are taken for it",
                host.netdev
            ),
        };
        Some((
            format!("{taken}, and rates are cut from there"),
            format!(
                "{}, in Mb/s of what it really sends (rxecc calibrate measures it)",
                host.set("line_rate", "N")
            ),
        ))
    })
}

/// A rule that a set of knobs breaks: what it does, and what to write.
type Conflict = fn(&Knobs, f64) -> Option<(String, &'static str, String)>;

/// The second argument is the link's rate, Mb/s.
const CONFLICTS: &[Conflict] = &[
    |knobs, line_mbps| {
        let (low, high) = (
            knobs.real_mbps(Id::RpgMinRate),
            highest_mbps(knobs, line_mbps),
        );
        (low >= high).then(|| {
            let text = format!("rpg_min_rate is {low:.4} Mb/s of the real link, the maximum {high:.4}: no cut takes anything");
            (text, "rpg_min_rate", "1".to_owned())
        })
    },
    |knobs, line_mbps| {
        let (first, high) = (
            knobs.real_mbps(Id::RateToSetOnFirstCnp),
            highest_mbps(knobs, line_mbps),
        );
        (first >= high).then(|| {
            let text = format!("rate_to_set_on_first_cnp is {first:.4} Mb/s of the real link, the maximum {high:.4}: the first CNP changes nothing");
            (text, "rate_to_set_on_first_cnp", "0".to_owned())
        })
    },
    |knobs, _| {
        (knobs.get(Id::RpgMinDecFac) == 100).then(|| {
            let text = "rpg_min_dec_fac is 100, the share of the rate that a cut must leave: no cut takes anything";
            (text.to_owned(), "rpg_min_dec_fac", "50".to_owned())
        })
    },
    |knobs, _| {
        // alpha is 1024 at most, and is shifted.
        let share = 1024.0 / f64::from(1u32 << knobs.get(Id::RpgGd).min(31));
        (share < 0.05).then(|| {
            let text = format!(
                "rpg_gd is {}: a cut takes {:.0}% at most",
                knobs.get(Id::RpgGd),
                share * 100.0
            );
            (text, "rpg_gd", "11".to_owned())
        })
    },
];

fn highest_mbps(knobs: &Knobs, line_mbps: f64) -> f64 {
    match knobs.get(Id::RpgMaxRate) {
        0 => line_mbps,
        _ => line_mbps.min(knobs.real_mbps(Id::RpgMaxRate)),
    }
}

/// The rate that the module takes the link for, Mb/s.
pub(super) fn line_mbps(host: &Host, knobs: &Knobs) -> f64 {
    f64::from(match knobs.get(Id::LineRate) {
        0 => host.speed_mbps.unwrap_or(UNKNOWN_LINE_RATE_MBPS),
        rate => rate,
    })
}

/// Knobs that leave the limiter nothing to do.
pub(super) fn knob_conflict(o: &Observation) -> Vec<Said> {
    let mut said = Vec::new();
    for host in &o.hosts {
        let Some(knobs) = &host.knobs else { continue };
        for conflict in CONFLICTS {
            if let Some((text, knob, value)) = conflict(knobs, line_mbps(host, knobs)) {
                said.push(Said {
                    subject: host.name.clone(),
                    text,
                    remedy: host.set(knob, value),
                });
            }
        }
    }
    said
}

/// The hosts of one experiment run at one speed.
pub(super) fn dilation_differs(o: &Observation) -> Vec<Said> {
    let dilation = |host: &Host| host.knobs.as_ref().map(|knobs| knobs.get(Id::Dilation));
    let talk = |one: &Host, other: &Host| one.talks_to(other) || other.talks_to(one);
    let nobody_talks = !o
        .hosts
        .iter()
        .any(|one| o.hosts.iter().any(|other| one.talks_to(other)));
    let mut different: Vec<&Host> = Vec::new();
    for one in &o.hosts {
        let differs = |other: &&Host| {
            (nobody_talks || talk(one, other))
                && matches!((dilation(one), dilation(other)), (Some(this), Some(that)) if this != that)
        };
        if o.hosts.iter().any(|other| differs(&other)) {
            different.push(one);
        }
    }
    if different.is_empty() {
        return Vec::new();
    }
    let values: Vec<String> = different
        .iter()
        .map(|host| format!("{} {}", host.name, dilation(host).unwrap_or(1)))
        .collect();
    let most = different
        .iter()
        .filter_map(|host| dilation(host))
        .max()
        .unwrap_or(1);
    let names: Vec<&str> = different.iter().map(|host| &*host.name).collect();
    vec![Said {
        subject: names.join(", "),
        text: format!(
            "they are dilated differently ({}), so receivers and senders run at different speeds",
            values.join(", ")
        ),
        remedy: format!("one value for all: rxecc set dilation {most} --all"),
    }]
}

/// A finding of each host that `find` has something to say about.
pub(super) fn each(o: &Observation, find: impl Fn(&Host) -> Option<(String, String)>) -> Vec<Said> {
    o.hosts
        .iter()
        .filter_map(|host| {
            let (text, remedy) = find(host)?;
            Some(Said {
                subject: host.name.clone(),
                text,
                remedy,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::observed::tests::{healthy, idle, only, qp, watched};
    use super::super::{examine, Finding};
    use super::*;

    fn checks(o: &Observation) -> Vec<&'static str> {
        examine(o)
            .into_iter()
            .map(|finding| finding.check)
            .collect()
    }

    #[test]
    fn a_machine_without_the_module_is_told_to_load_it_once() {
        let mut o = idle();
        o.kernel.has_module = false;
        for host in &mut o.hosts {
            (host.knobs, host.counters, host.qps) = (None, None, None);
        }
        assert!(only(&o).line().contains("insmod"));
    }

    #[test]
    fn a_kernel_without_rxe_that_is_too_old_or_without_rust_is_told_instead_of_the_module() {
        for (release, could_have_rxe, has_rust, said) in [
            ("7.3.4", false, Some(true), "CONFIG_RDMA_RXE"),
            ("6.12.9-amd64", true, Some(true), "needs 7.3"),
            ("7.3.4", true, Some(false), "CONFIG_RUST"),
        ] {
            let mut o = Observation::default();
            o.kernel.release = release.to_owned();
            o.kernel.could_have_rxe = could_have_rxe;
            o.kernel.has_rust = has_rust;
            let lines: Vec<String> = examine(&o).iter().map(Finding::line).collect();
            assert!(lines[0].contains(said), "{lines:?}");
            assert!(
                !lines.iter().any(|line| line.contains("insmod")),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn a_machine_without_a_device_is_told_how_to_make_one() {
        let mut o = idle();
        o.hosts.clear();
        assert!(only(&o).line().contains("rdma link add"));
    }

    #[test]
    fn a_device_that_the_module_does_not_run_on_is_named() {
        let mut o = idle();
        o.hosts[1].counters = None;
        assert_eq!(
            (only(&o).check, &*only(&o).subject),
            ("device_without_module", "rxe2")
        );
    }

    #[test]
    fn an_interface_that_is_down_or_has_no_carrier_is_named() {
        let mut o = idle();
        o.hosts[0].is_up = false;
        assert!(only(&o).line().contains("ip -n h1 link set eth0 up"));
        o.hosts[0].is_up = true;
        o.hosts[0].has_carrier = false;
        assert!(only(&o).line().contains("no carrier"));
    }

    #[test]
    fn two_devices_of_a_namespace_and_a_subnet_are_one_too_many() {
        let mut o = idle();
        o.hosts[1].namespace = o.hosts[0].namespace.clone();
        assert_eq!(only(&o).check, "two_devices");
        o.hosts[1].addresses = vec!["10.7.0.2".parse().unwrap()];
        assert_eq!(checks(&o), [""; 0]);
        o.hosts[0].qps = Some(vec![qp(17, 18, "10.7.0.2")]);
        assert_eq!(only(&o).check, "two_devices");
    }

    #[test]
    fn packets_that_never_leave_are_loopback() {
        let mut o = idle();
        o.hosts[0].rxe = watched(&[("sent_pkts", 5000), ("rcvd_pkts", 5000)]);
        o.hosts[0].wire = watched(&[("tx_packets", 3), ("tx_bytes", 200)]);
        assert_eq!(only(&o).check, "loopback");
        // Held, dropped or repeated is not looped back.
        let gone = watched(&[("rp_rewound_packets", 1500), ("rp_dropped_responses", 1500)]);
        let counters = o.hosts[0].counters.replace(gone);
        assert!(!checks(&o).contains(&"loopback"));
        o.hosts[0].counters = counters;
        o.hosts[0].wire = Default::default();
        assert_eq!(checks(&o), [""; 0]);
    }

    #[test]
    fn a_virtual_link_needs_a_line_rate_and_a_real_one_does_not() {
        let mut o = idle();
        o.knobs(1).set(Id::LineRate, 0);
        assert!(only(&o).line().contains("10000 Mb/s"));
        o.hosts[0].speed_mbps = None;
        assert!(only(&o).line().contains("no speed"));
        o.hosts[0].is_virtual = false;
        assert_eq!(checks(&o), [""; 0]);
    }

    #[test]
    fn knobs_that_leave_no_room_for_a_cut_are_told_with_what_to_write() {
        for (id, value, remedy) in [
            (Id::RpgMinRate, 100_000, "rxecc set rpg_min_rate 1 -d rxe1"),
            (
                Id::RateToSetOnFirstCnp,
                100_000,
                "rxecc set rate_to_set_on_first_cnp 0 -d rxe1",
            ),
            (
                Id::RpgMinDecFac,
                100,
                "rxecc set rpg_min_dec_fac 50 -d rxe1",
            ),
            (Id::RpgGd, 15, "rxecc set rpg_gd 11 -d rxe1"),
        ] {
            let mut o = idle();
            o.knobs(1).set(id, value);
            assert_eq!(
                (only(&o).check, &*only(&o).remedy),
                ("knob_conflict", remedy)
            );
        }
        let mut o = idle();
        o.knobs(1).set(Id::RpgMaxRate, 50_000);
        o.knobs(1).set(Id::RpgMinRate, 50_000);
        assert_eq!(only(&o).check, "knob_conflict");
    }

    #[test]
    fn hosts_that_talk_to_each_other_share_one_dilation() {
        let mut o = healthy();
        o.knobs(2).set(Id::Dilation, 1);
        o.knobs(2).set(Id::LineRate, 100);
        let found = examine(&o);
        assert_eq!(found[0].check, "dilation_differs", "{found:?}");
        assert!(found[0].line().contains("rxecc set dilation 1000 --all"));
        // A third one that talks to nobody may have any.
        let mut o = healthy();
        let mut third = o.hosts[1].clone();
        third.name = "rxe3".to_owned();
        third.namespace = Some("h3".to_owned());
        third.addresses = vec!["10.0.0.3".parse().unwrap()];
        third.qps = Some(Vec::new());
        third.knobs.as_mut().unwrap().set(Id::Dilation, 7);
        o.hosts.push(third);
        assert!(!checks(&o).contains(&"dilation_differs"));
    }

    #[test]
    fn exclusive_namespaces_are_told() {
        let mut o = idle();
        o.is_exclusive = true;
        assert_eq!(only(&o).check, "netns_exclusive");
    }
}
