// SPDX-License-Identifier: GPL-2.0

//! Checks of the reaction point: CNPs are obeyed, the limiter engages and holds, and
//! what it holds leaves again.

use rxe_cc::dcqcn::params::{Group, Id};

use super::notification::{half_off, is_notable};
use super::observed::{Host, Observation};
use super::setup::{each, knob_conflict, line_mbps};
use super::Said;
use crate::commands::preset::dilation_for;

/// CNPs that must have had an effect.
const SURE_CNPS: u64 = 3;

/// The sender's half is on.
pub(super) fn rp_off(o: &Observation) -> Vec<Said> {
    half_off(o, Group::RoceRp, "rp_cnp_disabled", "CNPs were ignored")
}

/// CNPs that were ignored for the reason that `counter` counts.
fn ignored(o: &Observation, counter: &str, why: &str, remedy: &str) -> Vec<Said> {
    each(o, |host| {
        let count = host.count(o, counter);
        let all = host.count(o, "rp_cnp_handled") + host.count(o, "rp_cnp_ignored");
        // They were not read at one moment.
        let all = all.max(count);
        is_notable(count, all).then(|| {
            (
                format!("{count} of {all} CNPs {} were ignored: {why}", o.when()),
                remedy.to_owned(),
            )
        })
    })
}

pub(super) fn cnp_malformed(o: &Observation) -> Vec<Said> {
    ignored(
        o,
        "rp_cnp_malformed",
        "they do not have a CNP's form (length, transport version)",
        "look at them (tcpdump -x 'udp port 4791 and udp[8] = 0x81'): 16 zero bytes behind the BTH, then the ICRC",
    )
}

pub(super) fn cnp_bad_icrc(o: &Observation) -> Vec<Said> {
    ignored(
        o,
        "rp_cnp_bad_icrc",
        "their ICRC is wrong",
        "look who changes them on the way (a NAT changes addresses and ports), or who makes them",
    )
}

pub(super) fn cnp_unknown_qp(o: &Observation) -> Vec<Said> {
    ignored(
        o,
        "rp_cnp_unknown_qp",
        "they name no live QP of this device",
        "their sender must name the QPN of the marked packet's sender (rdma resource show qp lists it), not its own",
    )
}

pub(super) fn cnp_wrong_peer(o: &Observation) -> Vec<Said> {
    ignored(
        o,
        "rp_cnp_wrong_peer",
        "they come from another address than their QP's peer",
        "CNPs must come from the address that the data went to: a second address, a NAT or a VLAN of the \
         receiver's does not do",
    )
}

pub(super) fn cnp_no_memory(o: &Observation) -> Vec<Said> {
    ignored(
        o,
        "rp_cnp_no_memory",
        "there was no memory for the state of their QPs",
        "more memory, or fewer QPs",
    )
}

/// The mean time between two packets of one of a host's QPs, us.
fn packet_gap_us(o: &Observation, host: &Host) -> Option<f64> {
    let sent = host.rxe.gain("sent_pkts");
    // QPs that got CNPs are those that compete.
    let qps = host
        .known_qps()
        .iter()
        .filter(|qp| qp.rp.is_some())
        .count()
        .max(1);
    (host.sends_data() && sent > 0).then(|| o.seconds * 1e6 * qps as f64 / sent as f64)
}

/// Whether alpha and rates have time to act between two packets; else the constant that
/// is too short, its real value, the gap, and the dilation to set.
fn too_fast(o: &Observation, host: &Host) -> Option<(&'static str, f64, f64, u32)> {
    let knobs = host.knobs.as_ref()?;
    let gap_us = packet_gap_us(o, host)?;
    // A rate limiter that nothing ever asked to cut has no time constants to speak of.
    if host.count(o, "rp_cnp_handled") == 0 {
        return None;
    }
    let constants = [Id::DceTcpRtt, Id::RpgTimeReset].map(|id| (id, knobs.real_us(id)));
    let (id, shortest_us) = constants
        .into_iter()
        .min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    if shortest_us >= gap_us {
        return None;
    }
    let sent_bps = host.wire.gain("tx_bytes") as f64 * 8.0 / o.seconds;
    let slowest_bps = match o.bottleneck_bps() {
        Some(bps) => bps as f64,
        None => sent_bps.min(line_mbps(host, knobs) * 1e6),
    };
    let for_gap = (gap_us / f64::from(knobs.get(id))).ceil() as u32;
    let dilation = dilation_for(slowest_bps).max(for_gap.min(Id::Dilation.param().max));
    Some((id.param().name, shortest_us, gap_us, dilation))
}

/// Time constants are longer than the gaps between packets.
pub(super) fn time_constants(o: &Observation) -> Vec<Said> {
    each(o, |host| {
        let (name, real_us, gap_us, dilation) = too_fast(o, host)?;
        let now = host
            .knobs
            .as_ref()
            .map_or(1, |knobs| knobs.get(Id::Dilation));
        let slowed = match now {
            1 => String::new(),
            now => format!(" with its dilation of {now}"),
        };
        let preset = match name {
            "dce_tcp_rtt" => " (a ConnectX's 1 us stays the shortest: rxecc preset paper --bottleneck RATE --all sets both)",
            _ => "",
        };
        Some((
            format!(
                "packets of a QP are {gap_us:.0} us apart, but {name} is {real_us:.0} us{slowed}: alpha and the \
                 cuts are forgotten before the next packet"
            ),
            format!("rxecc set dilation {dilation} --all{preset}"),
        ))
    })
}

/// CNPs lead to a limit.
pub(super) fn never_limited(o: &Observation) -> Vec<Said> {
    // Those that have a cause with a line of its own.
    let conflicts = knob_conflict(o);
    each(o, |host| {
        let handled = host.count(o, "rp_cnp_handled");
        let told =
            too_fast(o, host).is_some() || conflicts.iter().any(|said| said.subject == host.name);
        let seen = host.looks_limited > 0 || host.limited_qps().next().is_some();
        if !o.is_busy() || handled < SURE_CNPS || host.looks == 0 || seen || told {
            return None;
        }
        let cuts = host.count(o, "rp_rate_cuts");
        let line = host
            .knobs
            .as_ref()
            .map_or(0.0, |knobs| line_mbps(host, knobs));
        Some((
            format!(
                "{handled} CNPs were handled {} ({cuts} cuts), but no QP was limited at any of {} looks: \
                 rates are back at the maximum of {line:.0} Mb/s at once",
                o.when(),
                host.looks
            ),
            "a line_rate that is real (rxecc calibrate), and a dilation for it (rxecc preset paper --dilation auto --all)"
                .to_owned(),
        ))
    })
}

/// There is room below.
pub(super) fn at_the_floor(o: &Observation) -> Vec<Said> {
    each(o, |host| {
        let knobs = host.knobs.as_ref()?;
        let floor_bps = u64::from(knobs.get(Id::RpgMinRate)) * 1_000_000;
        let rates: Vec<u64> = host
            .limited_qps()
            .filter_map(|qp| qp.rp.as_ref())
            .map(|rp| rp.model_rc_bps)
            .collect();
        let at_floor = |rate: &u64| *rate <= floor_bps + floor_bps / 50;
        if host.count(o, "rp_cnp_handled") < SURE_CNPS
            || rates.is_empty()
            || !rates.iter().all(at_floor)
        {
            return None;
        }
        let real = knobs.real_mbps(Id::RpgMinRate);
        let remedy = match knobs.get(Id::RpgMinRate) {
            1 => "a dilation lowers it: rxecc set dilation S --all, S = 40 Gb/s over the slowest link; or fewer QPs"
                .to_owned(),
            _ => host.set("rpg_min_rate", 1),
        };
        let whose = match rates.len() {
            1 => "the one limited QP is".to_owned(),
            count => format!("all {count} limited QPs are"),
        };
        Some((
            format!(
                "{whose} at rpg_min_rate, {real:.4} Mb/s of the real link, and CNPs still come: no cut takes \
                 anything any more"
            ),
            remedy,
        ))
    })
}

/// What is held leaves.
pub(super) fn held_for_ever(o: &Observation) -> Vec<Said> {
    each(o, |host| {
        let left = host.wire.gain("tx_packets");
        let stuck = host.looks >= 3 && host.looks_held == host.looks;
        // Whatever else a host sends (ARP) is less than one packet a look.
        (stuck && !host.wire.after.is_empty() && left < u64::from(host.looks)).then(|| {
            (
                format!(
                    "packets were held all the time in {:.1} s, and {left} left: rates are too low for them",
                    o.seconds
                ),
                format!(
                    "{} or a smaller dilation; {} lets everything go",
                    host.set("rpg_min_rate", "N"),
                    host.set("roce_rp/enable", 0)
                ),
            )
        })
    })
}

/// The transport does not repeat what is held.
pub(super) fn rewinds(o: &Observation) -> Vec<Said> {
    each(o, |host| {
        let (rewound, sent) = (
            host.count(o, "rp_rewound_packets"),
            host.rxe.gain("sent_pkts"),
        );
        (o.is_busy() && rewound * 20 > sent).then(|| {
            (
                format!(
                    "the transport repeated {rewound} packets {} that were still held: an ack timeout too short \
                     for the rate, or loss",
                    o.when()
                ),
                "an ack timeout of 14 or more (perftest's -u 14); against loss a longer queue, marked earlier \
                 (samples/fabric port --limit, --mark red:MIN:MAX:P)"
                    .to_owned(),
            )
        })
    })
}

/// READ responses find room.
pub(super) fn responses_dropped(o: &Observation) -> Vec<Said> {
    each(o, |host| {
        let count = host.count(o, "rp_dropped_responses");
        (count > 0).then(|| {
            (
                format!("{count} READ responses were dropped {}, because a QP holds 4 MiB of them at most", o.when()),
                "smaller or fewer READs at a time (perftest's -s and -o), for nothing else stops a responder"
                    .to_owned(),
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use rxe_cc::dcqcn::params::{Enable, Preset};

    use super::super::examine;
    use super::super::observed::tests::{healthy, idle, limited, only, qp, watched};
    use super::super::observed::Knobs;
    use super::*;
    use crate::system::Qp;

    #[test]
    fn an_rp_that_is_off_is_told() {
        let mut o = healthy();
        o.knobs(1).rp = Enable::ALL.with(0, false);
        o.hosts[0].counters = Some(watched(&[("rp_cnp_ignored", 20), ("rp_cnp_disabled", 20)]));
        let found = only(&o);
        assert_eq!((found.check, &*found.subject), ("rp_off", "rxe1"));
        assert!(found.line().contains("20 CNPs were ignored"), "{found:?}");
    }

    #[test]
    fn cnps_that_are_ignored_are_told_for_each_reason() {
        for reason in [
            "malformed",
            "bad_icrc",
            "unknown_qp",
            "wrong_peer",
            "no_memory",
        ] {
            let mut o = healthy();
            o.add(1, "rp_cnp_ignored", 9);
            o.add(1, &format!("rp_cnp_{reason}"), 9);
            assert_eq!(only(&o).check, format!("cnp_{reason}"));
        }
    }

    #[test]
    fn the_last_cnps_of_a_qp_that_ended_are_no_finding() {
        let mut o = healthy();
        o.add(1, "rp_cnp_ignored", 1);
        o.add(1, "rp_cnp_unknown_qp", 1);
        assert_eq!(examine(&o), []);
    }

    /// A ConnectX's defaults as they are on 40 Mb/s.
    fn undilated() -> Observation {
        let mut o = healthy();
        for host in &mut o.hosts {
            let mut knobs = Knobs::preset(Preset::ConnectX);
            knobs.set(Id::LineRate, 100);
            host.knobs = Some(knobs);
        }
        let host = &mut o.hosts[0];
        host.qps = Some(vec![qp(17, 18, "10.0.0.2")]);
        (host.looks_limited, host.looks_held) = (0, 0);
        o
    }

    #[test]
    fn time_constants_shorter_than_the_gaps_are_told_with_the_dilation_to_set() {
        let o = undilated();
        let found = only(&o);
        assert_eq!((found.check, &*found.subject), ("time_constants", "rxe1"));
        // 8,000 packets in 2 s; 40 Gb/s over the 40 Mb/s of the shaper.
        assert!(
            found
                .line()
                .contains("packets of a QP are 250 us apart, but dce_tcp_rtt is 1 us"),
            "{found:?}"
        );
        assert!(
            found.remedy.contains("rxecc set dilation 1000 --all"),
            "{found:?}"
        );
    }

    #[test]
    fn many_qps_make_the_gaps_longer_and_the_dilation_larger() {
        let mut o = undilated();
        for number in 1..=2 {
            o.knobs(number).set(Id::Dilation, 1000);
        }
        assert_eq!(only(&o).check, "never_limited");
        let unlimited = || Qp {
            rp: Some(crate::system::Rp {
                phase: "unlimited".to_owned(),
                ..limited(100_000)
            }),
            ..qp(17, 18, "10.0.0.2")
        };
        o.hosts[0].qps = Some((0..16).map(|_| unlimited()).collect());
        let found = only(&o);
        assert_eq!(found.check, "time_constants");
        // 16 x 250 us.
        assert!(
            found.remedy.contains("rxecc set dilation 4000 --all"),
            "{found:?}"
        );
    }

    #[test]
    fn without_a_shaper_in_sight_the_dilation_is_for_the_rate_that_is_sent() {
        let mut o = undilated();
        o.ports.clear();
        // 8,000 x 1,100 bytes in 2 s are 35.2 Mb/s.
        assert!(
            only(&o).remedy.contains("rxecc set dilation 1136 --all"),
            "{:?}",
            only(&o)
        );
    }

    #[test]
    fn cnps_without_a_limit_are_told_when_nothing_else_explains_it() {
        let mut o = healthy();
        o.hosts[0].qps = Some(vec![qp(17, 18, "10.0.0.2")]);
        o.hosts[0].looks_limited = 0;
        assert_eq!(only(&o).check, "never_limited");
        o.knobs(1).set(Id::RpgMinDecFac, 100);
        assert_eq!(only(&o).check, "knob_conflict");
    }

    #[test]
    fn qps_that_cannot_go_lower_are_told() {
        let mut o = healthy();
        o.hosts[0].qps = Some(vec![Qp {
            rp: Some(limited(1)),
            ..qp(17, 18, "10.0.0.2")
        }]);
        assert_eq!(only(&o).check, "at_the_floor");
        o.knobs(1).set(Id::RpgMinRate, 500);
        assert!(only(&o).remedy.contains("rxecc set rpg_min_rate 1 -d rxe1"));
    }

    #[test]
    fn held_packets_that_never_leave_are_told() {
        let mut o = idle();
        o.hosts[0].looks_held = 8;
        o.hosts[0].wire = watched(&[("tx_packets", 1)]);
        assert_eq!(only(&o).check, "held_for_ever");
        o.hosts[0].wire = watched(&[("tx_packets", 9)]);
        assert_eq!(examine(&o), []);
    }

    #[test]
    fn repetition_of_what_is_held_is_told_unless_it_is_rare() {
        let mut o = healthy();
        o.add(1, "rp_rewound_packets", 200);
        assert_eq!(examine(&o), []);
        o.add(1, "rp_rewound_packets", 300);
        assert_eq!(only(&o).check, "rewinds");
    }

    #[test]
    fn dropped_responses_are_told() {
        let mut o = healthy();
        o.add(1, "rp_dropped_responses", 1);
        assert_eq!(only(&o).check, "responses_dropped");
    }
}
