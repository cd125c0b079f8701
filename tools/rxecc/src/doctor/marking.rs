// SPDX-License-Identifier: GPL-2.0

//! Checks of the way of a packet to its mark: it leaves as ECT, a queue marks it, and
//! the queue is the one that the data pass.

use rxe_cc::dcqcn::params::{EctMode, Id};

use super::observed::{Host, Observation, Port};
use super::setup::each;
use super::Said;

/// Marks of ACKs that make a finding.
const MARKED_ACKS: u64 = 5;

/// Data leave as ECT.
pub(super) fn not_ect(o: &Observation) -> Vec<Said> {
    each(o, |host| {
        let count = host.count(o, "tx_not_ect");
        (passes(host) && count > 0).then(|| {
            (
                format!(
                    "{count} data packets left as Not-ECT {}, which no switch marks, because ect_mode is pass",
                    o.when()
                ),
                format!(
                    "{}, or have the program ask for ECT(0): perftest's --tclass=2",
                    host.set("ect_mode", "rewrite")
                ),
            )
        })
    })
}

/// Data leave without a mark of their sender's own.
pub(super) fn born_ce(o: &Observation) -> Vec<Said> {
    each(o, |host| {
        let count = host.count(o, "tx_born_ce");
        (passes(host) && count > 0).then(|| {
            (
                format!(
                    "{count} data packets left with a CE mark that their program asked for {}, so receivers \
                     answer congestion that there is not",
                    o.when()
                ),
                format!(
                    "{}, or another traffic class: perftest's --tclass=2 instead of 3 (or 107 and the like)",
                    host.set("ect_mode", "rewrite")
                ),
            )
        })
    })
}

fn passes(host: &Host) -> bool {
    let mode = host
        .knobs
        .as_ref()
        .map(|knobs| EctMode::from_value(knobs.get(Id::EctMode)));
    // Where the knob is not to be seen the counters say enough.
    mode != Some(EctMode::Rewrite)
}

fn each_port(o: &Observation, find: impl Fn(&Port) -> Option<(String, String)>) -> Vec<Said> {
    let found = |port: &Port| {
        let (text, remedy) = find(port)?;
        Some(Said {
            subject: port.title(),
            text,
            remedy,
        })
    };
    o.ports.iter().filter_map(found).collect()
}

/// The shell's way into a port's namespace.
fn inside(port: &Port) -> String {
    match &*port.namespace {
        "" => String::new(),
        name => format!("-n {name} "),
    }
}

/// RED marks instead of dropping.
pub(super) fn red_without_ecn(o: &Observation) -> Vec<Said> {
    each_port(o, |port| {
        let red = port.qdisc("red").filter(|red| !red.ecn)?;
        Some((
            format!(
                "RED here drops instead of marking ({} so far), because it has no ecn",
                red.early
            ),
            format!(
                "tc {}qdisc change dev {} ... red ... ecn",
                inside(port),
                port.netdev
            ),
        ))
    })
}

/// A queue marks, not a die.
pub(super) fn netem_ecn(o: &Observation) -> Vec<Said> {
    each_port(o, |port| {
        let netem = port.qdisc("netem").filter(|netem| netem.ecn)?;
        let _marks_at_random = netem;
        (port.marker().is_none()).then(|| {
            (
                "netem's ecn marks what its loss would have dropped, at random, whatever the queue".to_owned(),
                format!(
                    "a queue with RED: samples/fabric port {} --rate R --mark red, or tc {}qdisc ... tbf and red ... ecn",
                    port.netdev,
                    inside(port)
                ),
            )
        })
    })
}

/// Marks of a host that say nothing about the way of data to it.
fn marks_acks(o: &Observation, host: &Host) -> bool {
    let acks = host.count(o, "np_ce_not_data");
    // Where data are marked as well, each way has its own queue, and that is fine.
    acks >= MARKED_ACKS && o.hosts.iter().all(|host| host.data_marks(o) == 0)
}

/// The way of the data is marked, not that of the ACKs.
pub(super) fn wrong_egress(o: &Observation) -> Vec<Said> {
    each(o, |host| {
        let way = o
            .port_to(host)
            .map_or_else(|| "the port towards it".to_owned(), Port::title);
        marks_acks(o, host).then(|| {
            (
                format!(
                    "all {} CE marks that came {} were on ACKs and CNPs, which say nothing about data: the way \
                     to it is marked, and its data leave on another one",
                    host.count(o, "np_ce_not_data"),
                    o.when()
                ),
                format!(
                    "take the marking from {way} and put it on the port towards the data's receiver; or it is \
                     no switch, but a program that asks for traffic class 3 (CE), which its ACKs keep"
                ),
            )
        })
    })
}

/// Data come, and some of them marked.
pub(super) fn no_marks(o: &Observation) -> Vec<Said> {
    if !o.is_busy() {
        return Vec::new();
    }
    each(o, |host| {
        host.counters.as_ref()?;
        if !host.receives_data() || host.data_marks(o) > 0 || is_controlled(o, host) {
            return None;
        }
        // What keeps marks away has been told already.
        let senders: Vec<&Host> = o.hosts.iter().filter(|other| other.sends_data()).collect();
        let told = |sender: &&Host| {
            marks_acks(o, sender) || (passes(sender) && sender.count(o, "tx_not_ect") > 0)
        };
        let port = o.port_to(host);
        let drops = port.is_some_and(|port| port.qdisc("red").is_some_and(|red| !red.ecn));
        let random = port.is_some_and(|port| port.qdisc("netem").is_some_and(|netem| netem.ecn));
        if senders.iter().any(told) || drops || random {
            return None;
        }
        let count = host.rxe.gain("rcvd_pkts");
        let (cause, remedy) = why_no_marks(o, port, &senders);
        Some((
            format!(
                "{count} RoCE packets came {}, none with a CE mark: {cause}",
                o.when()
            ),
            remedy,
        ))
    })
}

/// Whether earlier marks still show: QPs that were marked, or senders that are limited.
fn is_controlled(o: &Observation, host: &Host) -> bool {
    let marked = host
        .known_qps()
        .iter()
        .any(|qp| qp.np.as_ref().is_some_and(|np| np.marks > 0));
    let limited = |sender: &Host| {
        sender
            .limited_qps()
            .any(|qp| qp.peer.as_deref().is_some_and(|peer| host.owns(peer)))
    };
    marked || o.hosts.iter().any(limited)
}

/// The cause, and the remedy.
fn why_no_marks(o: &Observation, port: Option<&Port>, senders: &[&Host]) -> (String, String) {
    let title = port.map_or_else(|| "the port towards it".to_owned(), Port::title);
    if let Some(marker) = port.and_then(Port::marker) {
        if marker.marked == 0 && marker.early > 0 {
            return (
                format!(
                    "{} on {title} has dropped {} packets that it would have marked, because they came as Not-ECT",
                    marker.kind, marker.early
                ),
                "look what clears the ECN bits on the way (tc or nft rules that set DSCP or TOS), or who \
                 sends without rxe_cc"
                    .to_owned(),
            );
        }
        let below = match marker.min_bytes {
            Some(min) => format!(" of {min} bytes"),
            None => String::new(),
        };
        return (
            format!(
                "{} on {title} marks, but its queue stays below its threshold{below}: there is no congestion",
                marker.kind
            ),
            "more senders or QPs, a lower rate (samples/fabric rate), or a lower min: 64 packets of a QP are \
             all that ever wait"
                .to_owned(),
        );
    }
    let on_the_way_back = senders
        .iter()
        .filter_map(|sender| o.port_to(sender))
        .find(|port| port.marker().is_some());
    if let Some(wrong) = on_the_way_back {
        return (
            format!(
                "the queue that marks is on {}, the way of the ACKs",
                wrong.title()
            ),
            format!("put it on {title}, the way of the data"),
        );
    }
    if let Some(other) = o.ports.iter().find(|port| port.marker().is_some()) {
        return (
            format!(
                "the queue that marks is on {}, and they do not pass it",
                other.title()
            ),
            format!("put it on {title}, the way of the data"),
        );
    }
    (
        "no queue here marks".to_owned(),
        format!(
            "a slow link with RED on {title}: samples/fabric port HOST --rate 40mbit --mark red; on a real \
             switch, ECN for the queue of this traffic"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::examine;
    use super::super::observed::tests::{healthy, idle, only};
    use super::super::observed::Qdisc;
    use super::*;

    /// Data flow, nothing is marked or limited.
    fn unmarked() -> Observation {
        let mut o = healthy();
        for host in &mut o.hosts {
            host.counters = Some(Default::default());
            for qp in host.qps.iter_mut().flatten() {
                (qp.rp, qp.np) = (None, None);
            }
            (host.looks_limited, host.looks_held) = (0, 0);
        }
        o
    }

    #[test]
    fn data_that_leave_as_not_ect_are_told_with_perftests_flag() {
        let mut o = unmarked();
        o.knobs(1).set(Id::EctMode, 1);
        o.add(1, "tx_not_ect", 500);
        let found = only(&o);
        assert_eq!((found.check, &*found.subject), ("not_ect", "rxe1"));
        assert!(
            found.line().contains("--tclass=2")
                && found.line().contains("rxecc set ect_mode rewrite -d rxe1")
        );
    }

    #[test]
    fn a_mode_that_was_pass_once_is_no_finding() {
        let mut o = idle();
        o.add(1, "tx_not_ect", 500);
        o.add(1, "tx_born_ce", 500);
        assert_eq!(examine(&o), []);
    }

    #[test]
    fn data_that_are_born_marked_are_told() {
        let mut o = healthy();
        o.knobs(1).set(Id::EctMode, 1);
        o.add(1, "tx_born_ce", 500);
        assert_eq!(only(&o).check, "born_ce");
    }

    #[test]
    fn red_without_ecn_is_told_once() {
        let mut o = unmarked();
        o.ports[0].qdiscs[1].ecn = false;
        o.ports[0].qdiscs[1].early = 77;
        let found = only(&o);
        assert_eq!((found.check, &*found.subject), ("red_without_ecn", "sw/h2"));
    }

    #[test]
    fn netems_ecn_is_no_red() {
        let mut o = unmarked();
        o.ports[0].qdiscs = vec![Qdisc {
            kind: "netem".to_owned(),
            ecn: true,
            ..Qdisc::default()
        }];
        assert_eq!(only(&o).check, "netem_ecn");
    }

    #[test]
    fn marks_on_acks_alone_are_on_the_wrong_egress() {
        let mut o = unmarked();
        o.add(1, "np_ecn_marked_roce_packets", 50);
        o.add(1, "np_ce_not_data", 50);
        let found = only(&o);
        assert_eq!((found.check, &*found.subject), ("wrong_egress", "rxe1"));
    }

    #[test]
    fn a_few_marked_acks_beside_marked_data_are_no_finding() {
        let mut o = healthy();
        o.add(2, "np_ecn_marked_roce_packets", 8);
        o.add(2, "np_ce_not_data", 8);
        assert_eq!(examine(&o), []);
    }

    #[test]
    fn data_without_a_mark_are_told_with_the_cause() {
        let mut o = unmarked();
        assert!(
            only(&o)
                .line()
                .contains("its queue stays below its threshold of 15000 bytes"),
            "{:?}",
            only(&o)
        );
        o.ports[0].qdiscs[1].early = 9;
        assert!(only(&o).line().contains("Not-ECT"), "{:?}", only(&o));
        // On the way back.
        o.ports[0].ifindex = 11;
        assert!(
            only(&o).line().contains("the way of the ACKs"),
            "{:?}",
            only(&o)
        );
        // Somewhere else.
        o.ports[0].ifindex = 99;
        assert!(only(&o).line().contains("do not pass it"), "{:?}", only(&o));
        o.ports.clear();
        assert!(
            only(&o).line().contains("no queue here marks"),
            "{:?}",
            only(&o)
        );
    }

    #[test]
    fn a_stream_that_is_limited_needs_no_mark_while_one_looks() {
        let mut o = healthy();
        o.hosts[1].counters = Some(Default::default());
        assert_eq!(examine(&o), []);
        o.hosts[1].qps = Some(Vec::new());
        assert_eq!(examine(&o), []);
    }

    #[test]
    fn without_the_peers_ports_the_marks_are_missed_all_the_same() {
        let mut o = unmarked();
        o.hosts.remove(0);
        o.ports.clear();
        assert_eq!(only(&o).check, "no_marks");
    }
}
