// SPDX-License-Identifier: GPL-2.0

//! What was seen of a machine: plain values, so that a test can make any machine.
//!
//! Counters are kept as they were when looking began and when it ended. While traffic
//! flowed, what they gained says what is going on; on an idle machine all that is left
//! is what they came to since the module was loaded.

use std::collections::BTreeMap;
use std::net::IpAddr;

use rxe_cc::dcqcn::params::{Enable, Group, Id, Preset, PARAMS};

use crate::system::Qp;

/// So many packets have an average length.
const SURE_PACKETS: u64 = 20;

/// Longer packets on average are data, shorter ones ACKs, bytes.
const DATA_BYTES: u64 = 200;

/// One machine, over a while.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observation {
    /// How long counters were watched.
    pub(crate) seconds: f64,
    /// Whether everything could be looked at: QPs, firewalls, other namespaces.
    pub(crate) is_root: bool,
    pub(crate) kernel: Kernel,
    /// RDMA devices are seen in their own network namespace alone.
    pub(crate) is_exclusive: bool,
    /// The soft-RoCE devices.
    pub(crate) hosts: Vec<Host>,
    /// Netdevs that have a queue of their own, in all namespaces.
    pub(crate) ports: Vec<Port>,
    /// Firewall rules and policies that may drop RoCE, each for people.
    pub(crate) drops: Vec<String>,
}

/// The kernel and its modules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kernel {
    pub(crate) release: String,
    /// rdma_rxe is loaded.
    pub(crate) has_rxe: bool,
    /// rdma_rxe could be loaded.
    pub(crate) could_have_rxe: bool,
    /// rxe_cc is loaded.
    pub(crate) has_module: bool,
    /// CONFIG_RUST; none where the configuration is not to be found.
    pub(crate) has_rust: Option<bool>,
}

/// A soft-RoCE device, its netdev and its QPs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    /// `rxe1`.
    pub(crate) name: String,
    /// Of the netdev; empty for the initial namespace. None: not to be seen.
    pub(crate) namespace: Option<String>,
    pub(crate) netdev: String,
    pub(crate) ifindex: u32,
    /// The ifindex at the other end of a veth pair; its own elsewhere.
    pub(crate) iflink: u32,
    pub(crate) is_up: bool,
    pub(crate) has_carrier: bool,
    /// A link that has no speed of its own, whatever it says.
    pub(crate) is_virtual: bool,
    /// What the netdev says, Mb/s.
    pub(crate) speed_mbps: Option<u32>,
    pub(crate) addresses: Vec<IpAddr>,
    /// None: they are not to be seen from here.
    pub(crate) knobs: Option<Knobs>,
    /// None: the module does not run on this device.
    pub(crate) counters: Option<Watched>,
    /// rxe's own counters.
    pub(crate) rxe: Watched,
    /// The netdev's `statistics`.
    pub(crate) wire: Watched,
    /// None: only root sees them.
    pub(crate) qps: Option<Vec<Qp>>,
    /// CNPs sent of each QP when looking began, by QPN.
    pub(crate) cnps_before: BTreeMap<u32, u64>,
    /// How often QPs were limited, and packets held, of so many looks.
    pub(crate) looks: u32,
    pub(crate) looks_limited: u32,
    pub(crate) looks_held: u32,
}

/// Counters, at the begin and at the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    pub(crate) before: BTreeMap<String, u64>,
    pub(crate) after: BTreeMap<String, u64>,
}

impl Watched {
    /// What it came to.
    pub(crate) fn total(&self, name: &str) -> u64 {
        self.after.get(name).copied().unwrap_or(0)
    }

    /// What it gained.
    pub(crate) fn gain(&self, name: &str) -> u64 {
        let before = self.before.get(name).copied().unwrap_or(0);
        self.total(name).saturating_sub(before)
    }
}

/// All knobs of a netdev.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Knobs {
    values: Vec<u32>,
    pub(crate) np: Enable,
    pub(crate) rp: Enable,
}

impl Default for Knobs {
    fn default() -> Self {
        Self::preset(Preset::ConnectX)
    }
}

impl Knobs {
    pub(crate) fn preset(preset: Preset) -> Self {
        Self {
            values: PARAMS.iter().map(|param| preset.value(param.id)).collect(),
            np: Enable::ALL,
            rp: Enable::ALL,
        }
    }

    pub(crate) fn get(&self, id: Id) -> u32 {
        self.values.get(id.index()).copied().unwrap_or(0)
    }

    pub(crate) fn set(&mut self, id: Id, value: u32) {
        if let Some(place) = self.values.get_mut(id.index()) {
            *place = value;
        }
    }

    /// One half's priorities.
    pub(crate) fn enable(&self, half: Group) -> Enable {
        match half {
            Group::RoceNp => self.np,
            Group::RoceRp | Group::RxeCc => self.rp,
        }
    }

    /// A model's rate, Mb/s, as a real one: divided by the dilation.
    pub(crate) fn real_mbps(&self, id: Id) -> f64 {
        f64::from(self.get(id)) / f64::from(self.get(Id::Dilation).max(1))
    }

    /// A model's time, us, as a real one: multiplied by the dilation.
    pub(crate) fn real_us(&self, id: Id) -> f64 {
        f64::from(self.get(id)) * f64::from(self.get(Id::Dilation).max(1))
    }
}

/// A netdev and its queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct Port {
    /// Of the netdev; empty for the initial namespace.
    pub(crate) namespace: String,
    pub(crate) netdev: String,
    pub(crate) ifindex: u32,
    pub(crate) iflink: u32,
    pub(crate) qdiscs: Vec<Qdisc>,
}

impl Port {
    /// For people.
    pub(crate) fn title(&self) -> String {
        match &*self.namespace {
            "" => self.netdev.clone(),
            namespace => format!("{namespace}/{}", self.netdev),
        }
    }

    /// Whether it is the other end of this host's link.
    pub(crate) fn leads_to(&self, host: &Host) -> bool {
        host.iflink != host.ifindex && self.ifindex == host.iflink && self.iflink == host.ifindex
    }

    pub(crate) fn qdisc(&self, kind: &str) -> Option<&Qdisc> {
        self.qdiscs.iter().find(|qdisc| qdisc.kind == kind)
    }

    /// The queue that marks.
    pub(crate) fn marker(&self) -> Option<&Qdisc> {
        self.qdiscs
            .iter()
            .find(|qdisc| qdisc.ecn && qdisc.kind != "netem")
    }
}

/// One queueing discipline, as tc tells of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Qdisc {
    pub(crate) kind: String,
    pub(crate) ecn: bool,
    /// Where marking begins (RED's min), bytes.
    pub(crate) min_bytes: Option<u64>,
    /// Of a shaper, bit/s.
    pub(crate) rate_bps: Option<u64>,
    pub(crate) marked: u64,
    /// Dropped where an ECT packet would have been marked.
    pub(crate) early: u64,
}

impl Host {
    /// What a counter of the module came to in the time that counts.
    pub(crate) fn count(&self, observation: &Observation, name: &str) -> u64 {
        let Some(counters) = &self.counters else {
            return 0;
        };
        if observation.is_busy() {
            counters.gain(name)
        } else {
            counters.total(name)
        }
    }

    /// RoCE packets that it sent and received while it was watched.
    pub(crate) fn packets(&self) -> u64 {
        self.rxe.gain("sent_pkts") + self.rxe.gain("rcvd_pkts")
    }

    pub(crate) fn sends_data(&self) -> bool {
        self.is_data("sent_pkts", "tx_packets", "tx_bytes")
    }

    /// CE marks on data in the time that counts.
    pub(crate) fn data_marks(&self, observation: &Observation) -> u64 {
        let all = self.count(observation, "np_ecn_marked_roce_packets");
        all.saturating_sub(self.count(observation, "np_ce_not_data"))
    }

    pub(crate) fn receives_data(&self) -> bool {
        self.is_data("rcvd_pkts", "rx_packets", "rx_bytes")
    }

    /// By the average length on the wire: there are CNPs that rxe never counts.
    fn is_data(&self, roce_packets: &str, packets: &str, bytes: &str) -> bool {
        let packets = self.wire.gain(packets);
        self.rxe.gain(roce_packets) >= SURE_PACKETS
            && packets > 0
            && self.wire.gain(bytes) / packets >= DATA_BYTES
    }

    pub(crate) fn owns(&self, address: &str) -> bool {
        address
            .parse()
            .is_ok_and(|address| self.addresses.contains(&address))
    }

    /// Its QPs, as far as they are seen.
    pub(crate) fn known_qps(&self) -> &[Qp] {
        self.qps.as_deref().unwrap_or(&[])
    }

    /// Whether a QP of it has a QP of `other` for its peer.
    pub(crate) fn talks_to(&self, other: &Host) -> bool {
        let peers = self.known_qps().iter().filter_map(|qp| qp.peer.as_deref());
        peers.into_iter().any(|peer| other.owns(peer))
    }

    /// QPs whose rate is limited now.
    pub(crate) fn limited_qps(&self) -> impl Iterator<Item = &Qp> {
        let limited = |qp: &&Qp| qp.rp.as_ref().is_some_and(|rp| rp.is_limited());
        self.known_qps().iter().filter(limited)
    }

    /// CNPs that its QP has sent since looking began.
    pub(crate) fn cnps_of(&self, qp: &Qp) -> u64 {
        let now = qp.np.as_ref().map_or(0, |np| np.cnps);
        now.saturating_sub(self.cnps_before.get(&qp.qpn).copied().unwrap_or(0))
    }

    /// The shell's way to a knob of its.
    pub(crate) fn set(&self, knob: &str, value: impl std::fmt::Display) -> String {
        format!("rxecc set {knob} {value} -d {}", self.name)
    }
}

impl Observation {
    /// Whether RoCE traffic flowed while it was watched, or would have.
    pub(crate) fn is_busy(&self) -> bool {
        let mut hosts = self.hosts.iter();
        hosts.any(|host| host.packets() > 0 || host.looks_held > 0)
    }

    /// RoCE packets of all devices while they were watched.
    pub(crate) fn packets(&self) -> u64 {
        self.hosts.iter().map(Host::packets).sum()
    }

    /// The time that counts, for people.
    pub(crate) fn when(&self) -> String {
        if self.is_busy() {
            format!("in {:.1} s", self.seconds)
        } else {
            "so far".to_owned()
        }
    }

    /// The port at the other end of a host's link.
    pub(crate) fn port_to(&self, host: &Host) -> Option<&Port> {
        self.ports.iter().find(|port| port.leads_to(host))
    }

    /// The slowest shaper, bit/s.
    pub(crate) fn bottleneck_bps(&self) -> Option<u64> {
        let rates = self.ports.iter().flat_map(|port| &port.qdiscs);
        rates.filter_map(|qdisc| qdisc.rate_bps).min()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::{examine, Finding};
    use super::*;
    use crate::system::{Np, Rp};

    /// The one finding that there is.
    pub(crate) fn only(o: &Observation) -> Finding {
        let found = examine(o);
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().unwrap()
    }

    pub(crate) fn watched(gains: &[(&str, u64)]) -> Watched {
        let after = gains
            .iter()
            .map(|(name, gain)| ((*name).to_owned(), 1000 + gain));
        let before = gains.iter().map(|(name, _)| ((*name).to_owned(), 1000));
        Watched {
            before: before.collect(),
            after: after.collect(),
        }
    }

    impl Watched {
        pub(crate) fn add(&mut self, name: &str, gain: u64) {
            let before = *self.before.entry(name.to_owned()).or_insert(0);
            *self.after.entry(name.to_owned()).or_insert(before) += gain;
        }
    }

    impl Observation {
        /// The device `rxe<number>`'s counter gains so much.
        pub(crate) fn add(&mut self, number: usize, name: &str, gain: u64) {
            let counters = self.hosts[number - 1].counters.as_mut();
            counters.expect("counters").add(name, gain);
        }

        pub(crate) fn knobs(&mut self, number: usize) -> &mut Knobs {
            self.hosts[number - 1].knobs.as_mut().expect("knobs")
        }
    }

    pub(crate) fn qp(qpn: u32, peer_qpn: u32, peer: &str) -> Qp {
        Qp {
            qpn,
            service: "RC".to_owned(),
            peer_qpn: Some(peer_qpn),
            peer: Some(peer.to_owned()),
            rp: None,
            np: None,
        }
    }

    pub(crate) fn limited(model_mbps: u64) -> Rp {
        Rp {
            priority: 0,
            phase: "additive_increase".to_owned(),
            rc_bps: model_mbps * 1000,
            rt_bps: model_mbps * 1000,
            model_rc_bps: model_mbps * 1_000_000,
            alpha: 0.3,
            time_stage: 7,
            byte_stage: 0,
            held: 30,
            cnps: 7,
            cuts: 7,
            since_cut_us: 1000,
        }
    }

    fn host(number: u32) -> Host {
        let mut knobs = Knobs::preset(Preset::Paper);
        knobs.set(Id::LineRate, 100);
        knobs.set(Id::Dilation, 1000);
        Host {
            name: format!("rxe{number}"),
            namespace: Some(format!("h{number}")),
            netdev: "eth0".to_owned(),
            ifindex: 2,
            iflink: 10 + number,
            is_up: true,
            has_carrier: true,
            is_virtual: true,
            speed_mbps: Some(10_000),
            addresses: vec![format!("10.0.0.{number}").parse().unwrap()],
            knobs: Some(knobs),
            counters: Some(Watched::default()),
            qps: Some(Vec::new()),
            looks: 8,
            ..Host::default()
        }
    }

    /// Two hosts and a switch that marks at 40 Mb/s towards the second, at rest.
    pub(crate) fn idle() -> Observation {
        let red = Qdisc {
            kind: "red".to_owned(),
            ecn: true,
            min_bytes: Some(15_000),
            ..Qdisc::default()
        };
        let tbf = Qdisc {
            kind: "tbf".to_owned(),
            rate_bps: Some(40_000_000),
            ..Qdisc::default()
        };
        Observation {
            seconds: 2.0,
            is_root: true,
            kernel: Kernel {
                release: "7.3.4".to_owned(),
                has_rxe: true,
                could_have_rxe: true,
                has_module: true,
                has_rust: Some(true),
            },
            hosts: vec![host(1), host(2)],
            ports: vec![Port {
                namespace: "sw".to_owned(),
                netdev: "h2".to_owned(),
                ifindex: 12,
                iflink: 2,
                qdiscs: vec![tbf, red],
            }],
            ..Observation::default()
        }
    }

    /// The same with a stream from the first to the second, marked, answered, limited.
    pub(crate) fn healthy() -> Observation {
        let mut observed = idle();
        let [one, two] = &mut observed.hosts[..] else {
            panic!("two hosts");
        };
        one.rxe = watched(&[("sent_pkts", 8000), ("rcvd_pkts", 500)]);
        one.wire = watched(&[
            ("tx_bytes", 8000 * 1100),
            ("tx_packets", 8000),
            ("rx_bytes", 500 * 70),
            ("rx_packets", 500),
        ]);
        one.counters = Some(watched(&[("rp_cnp_handled", 20), ("rp_rate_cuts", 20)]));
        one.qps = Some(vec![Qp {
            rp: Some(limited(36_000)),
            ..qp(17, 18, "10.0.0.2")
        }]);
        one.looks_limited = 8;
        one.looks_held = 8;
        two.rxe = watched(&[("sent_pkts", 500), ("rcvd_pkts", 8000)]);
        two.wire = watched(&[
            ("tx_bytes", 500 * 70),
            ("tx_packets", 500),
            ("rx_bytes", 8000 * 1100),
            ("rx_packets", 8000),
        ]);
        two.counters = Some(watched(&[
            ("np_ecn_marked_roce_packets", 40),
            ("np_cnp_immediate", 20),
            ("np_cnp_suppressed", 20),
            ("np_cnp_sent", 20),
        ]));
        let np = Np {
            window: "quiet".to_owned(),
            marks: 50,
            cnps: 25,
        };
        two.qps = Some(vec![Qp {
            np: Some(np),
            ..qp(18, 17, "10.0.0.1")
        }]);
        two.cnps_before = BTreeMap::from([(18, 5)]);
        observed
    }

    #[test]
    fn what_counts_is_the_gain_while_traffic_flows_and_the_total_at_rest() {
        let mut observed = healthy();
        observed.add(1, "tx_not_ect", 7);
        let host = &observed.hosts[0];
        assert!(observed.is_busy());
        assert_eq!(host.count(&observed, "rp_cnp_handled"), 20);
        let mut rests = observed.clone();
        for host in &mut rests.hosts {
            host.rxe = Watched::default();
            host.looks_held = 0;
        }
        assert_eq!(rests.hosts[0].count(&rests, "rp_cnp_handled"), 1020);
        assert_eq!(rests.when(), "so far");
    }

    #[test]
    fn acks_are_no_data() {
        let observed = healthy();
        let [one, two] = &observed.hosts[..] else {
            panic!()
        };
        assert_eq!((one.sends_data(), one.receives_data()), (true, false));
        assert_eq!((two.sends_data(), two.receives_data()), (false, true));
    }

    #[test]
    fn many_cnps_beside_few_acks_are_no_data() {
        let mut observed = healthy();
        let host = &mut observed.hosts[0];
        host.rxe = watched(&[("sent_pkts", 8000), ("rcvd_pkts", 30)]);
        host.wire = watched(&[
            ("tx_bytes", 8000 * 1100),
            ("tx_packets", 8000),
            ("rx_bytes", 30 * 70 + 200 * 74),
            ("rx_packets", 230),
        ]);
        assert!(!host.receives_data());
        assert_eq!(examine(&observed), []);
    }

    #[test]
    fn the_port_to_a_host_is_the_other_end_of_its_link() {
        let observed = idle();
        assert!(observed.port_to(&observed.hosts[0]).is_none());
        assert_eq!(
            observed.port_to(&observed.hosts[1]).unwrap().title(),
            "sw/h2"
        );
    }
}
