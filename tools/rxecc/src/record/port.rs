// SPDX-License-Identifier: GPL-2.0

//! The bottleneck: a netdev's queueing disciplines, as `tc -s qdisc show` has them.
//!
//! In: a netdev, in the network namespace that it is in. Out: how much waits, and
//! what was sent, dropped and marked so far; and the link's rate and RED's
//! thresholds. A `tbf` is taken for the link where there is one, what is at the
//! netdev's root else; marks are RED's. The structs are those of
//! `linux/pkt_sched.h`.

use std::io;

use anyhow::{Context, Result};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::netlink::{attribute, Socket};
use crate::recording::{Bottleneck, QueueSample};
use crate::system::Namespace;

const RTM_GETQDISC: u16 = 38;
const TC_H_ROOT: u32 = u32::MAX;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;

const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_APP: u16 = 4;

const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;

const TCA_RED_PARMS: u16 = 1;
const TCA_RED_MAX_P: u16 = 3;

/// What a dump says of one queueing discipline.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Qdisc {
    is_root: bool,
    sent_bytes: u64,
    backlog_bytes: u64,
    drops: u64,
    marks: u64,
    rate_bps: Option<f64>,
    limit_bytes: Option<f64>,
    red: Option<Red>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Red {
    min_bytes: f64,
    max_bytes: f64,
    probability: Option<f64>,
}

/// What a port has at one moment: the discipline that is the link, and the one that
/// marks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Queues {
    link: Option<Qdisc>,
    red: Option<Qdisc>,
    root: Option<Qdisc>,
}

impl Queues {
    fn add(&mut self, kind: &[u8], qdisc: Qdisc) {
        match kind {
            b"tbf" => self.link = Some(qdisc),
            b"red" => self.red = Some(qdisc),
            _ => {}
        }
        if qdisc.is_root {
            self.root = Some(qdisc);
        }
    }

    fn link(&self) -> Option<Qdisc> {
        self.link.or(self.root)
    }
}

/// A counter of something that may be made anew meanwhile.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    before: u64,
    last: u64,
}

impl Total {
    fn advance(&mut self, now: u64) -> u64 {
        if now < self.last {
            self.before += self.last;
        }
        self.last = now;
        self.before + now
    }
}

/// A netdev whose queue is watched.
pub(super) struct Port {
    name: String,
    index: u32,
    socket: Socket,
    bottleneck: Bottleneck,
    sent: Total,
    drops: Total,
    marks: Total,
}

impl Port {
    /// The netdev `device` of `namespace`.
    ///
    /// # Errors
    ///
    /// There is no such netdev, or no queue at it that counts.
    pub(super) fn open(namespace: &Namespace, device: &str) -> Result<Self> {
        let (index, socket) = namespace.enter(|| {
            let any = rustix::net::socket(
                rustix::net::AddressFamily::INET,
                rustix::net::SocketType::DGRAM,
                None,
            )
            .map_err(io::Error::from)?;
            let index = rustix::net::netdevice::name_to_index(any, device)
                .map_err(io::Error::from)
                .with_context(|| format!("there is no netdev {device}"))?;
            Ok((index, Socket::open(NETLINK_ROUTE)?))
        })?;
        let mut port = Self {
            name: device.to_owned(),
            index,
            socket,
            bottleneck: Bottleneck {
                name: device.to_owned(),
                ..Bottleneck::default()
            },
            sent: Total::default(),
            drops: Total::default(),
            marks: Total::default(),
        };
        port.sample(0.0)?.with_context(|| {
            format!("{device} has no queue: give it one that limits its rate (tc qdisc add dev {device} root tbf ...)")
        })?;
        Ok(port)
    }

    /// What is known of the link: its latest rate, and RED's latest thresholds.
    pub(super) fn bottleneck(&self) -> &Bottleneck {
        &self.bottleneck
    }

    /// Its state now; none while its queue is being replaced.
    pub(super) fn sample(&mut self, time_s: f64) -> io::Result<Option<QueueSample>> {
        let mut queues = Queues::default();
        let index = self.index;
        // struct tcmsg without a filter: the kernel dumps all there are.
        self.socket.dump(RTM_GETQDISC, &[0; 20], |payload| {
            if let Some((kind, qdisc)) = parse(payload, index) {
                queues.add(kind, qdisc);
            }
        })?;
        let Some(link) = queues.link() else {
            return Ok(None);
        };
        self.describe(&link, queues.red.as_ref());
        Ok(Some(QueueSample {
            time_s,
            port: self.name.clone(),
            backlog_bytes: link.backlog_bytes,
            sent_bytes: self.sent.advance(link.sent_bytes),
            drops: self.drops.advance(link.drops),
            marks: self.marks.advance(queues.red.map_or(0, |red| red.marks)),
        }))
    }

    fn describe(&mut self, link: &Qdisc, red: Option<&Qdisc>) {
        let known = &mut self.bottleneck;
        // The last rate is the link's: before, it may have been open wide.
        known.rate_bps = link.rate_bps.unwrap_or_default();
        known.limit_bytes = red.map_or(link.limit_bytes, |red| red.limit_bytes);
        if let Some(red) = red.and_then(|red| red.red) {
            known.red_min_bytes = Some(red.min_bytes);
            known.red_max_bytes = Some(red.max_bytes);
            known.red_probability = red.probability;
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// One message of the dump, if it is about netdev `index`: struct tcmsg (family, ...,
/// ifindex at 4, handle at 8, parent at 12), then attributes.
fn parse(payload: &[u8], index: u32) -> Option<(&[u8], Qdisc)> {
    if u32_at(payload, 4)? != index {
        return None;
    }
    let attributes = payload.get(20..)?;
    let kind = attribute(attributes, TCA_KIND)?;
    let kind = kind.strip_suffix(&[0]).unwrap_or(kind);
    let stats = attribute(attributes, TCA_STATS2)?;
    let basic = attribute(stats, TCA_STATS_BASIC)?;
    let queue = attribute(stats, TCA_STATS_QUEUE)?;
    let mut qdisc = Qdisc {
        is_root: u32_at(payload, 12)? == TC_H_ROOT,
        sent_bytes: u64_at(basic, 0)?,
        backlog_bytes: u32_at(queue, 4)?.into(),
        drops: u32_at(queue, 8)?.into(),
        ..Qdisc::default()
    };
    let options = attribute(attributes, TCA_OPTIONS).unwrap_or_default();
    match kind {
        b"tbf" => read_tbf(&mut qdisc, options),
        b"red" => {
            // struct tc_red_xstats: early, pdrop, other, marked.
            qdisc.marks = attribute(stats, TCA_STATS_APP)
                .and_then(|red| u32_at(red, 12))
                .unwrap_or_default()
                .into();
            read_red(&mut qdisc, options);
        }
        _ => {}
    }
    Some((kind, qdisc))
}

/// struct tc_tbf_qopt: a tc_ratespec (bytes/s at 8), the peak's, the limit at 24.
fn read_tbf(qdisc: &mut Qdisc, options: &[u8]) {
    let Some(parameters) = attribute(options, TCA_TBF_PARMS) else {
        return;
    };
    let bytes_per_s = attribute(options, TCA_TBF_RATE64)
        .and_then(|rate| u64_at(rate, 0))
        .or_else(|| u32_at(parameters, 8).map(u64::from));
    qdisc.rate_bps = bytes_per_s.map(|rate| rate as f64 * 8.0);
    qdisc.limit_bytes = u32_at(parameters, 24).map(f64::from);
}

/// struct tc_red_qopt: limit, qth_min, qth_max.
fn read_red(qdisc: &mut Qdisc, options: &[u8]) {
    let Some(parameters) = attribute(options, TCA_RED_PARMS) else {
        return;
    };
    qdisc.limit_bytes = u32_at(parameters, 0).map(f64::from);
    if let (Some(min), Some(max)) = (u32_at(parameters, 4), u32_at(parameters, 8)) {
        qdisc.red = Some(Red {
            min_bytes: min.into(),
            max_bytes: max.into(),
            probability: attribute(options, TCA_RED_MAX_P)
                .and_then(|share| u32_at(share, 0))
                .map(|share| f64::from(share) / f64::from(u32::MAX)),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::netlink::encode;
    use super::*;

    fn words(values: &[u32]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect()
    }

    fn message(index: u32, parent: u32, kind: &str, options: &[u8], marks: u32) -> Vec<u8> {
        let stats = [
            encode(
                TCA_STATS_BASIC,
                &[&5_000_000_000u64.to_ne_bytes()[..], &words(&[7, 0])].concat(),
            ),
            encode(TCA_STATS_QUEUE, &words(&[3, 3300, 11, 0, 0])),
            encode(TCA_STATS_APP, &words(&[1, 2, 3, marks])),
        ]
        .concat();
        [
            words(&[0, index, 0x2_0000, parent, 2]),
            encode(TCA_KIND, &[kind.as_bytes(), &[0]].concat()),
            encode(TCA_OPTIONS | 1 << 15, options),
            encode(TCA_STATS2 | 1 << 15, &stats),
        ]
        .concat()
    }

    fn tbf() -> Vec<u8> {
        let mut parameters = words(&[0; 9]);
        parameters[8..12].copy_from_slice(&5_000_000u32.to_ne_bytes());
        parameters[24..28].copy_from_slice(&400_000u32.to_ne_bytes());
        message(4, TC_H_ROOT, "tbf", &encode(TCA_TBF_PARMS, &parameters), 0)
    }

    fn red() -> Vec<u8> {
        let options = [
            encode(TCA_RED_PARMS, &words(&[400_000, 15_000, 45_000, 0])),
            encode(TCA_RED_MAX_P, &(u32::MAX / 5).to_ne_bytes()),
        ]
        .concat();
        message(4, 0x2_0001, "red", &options, 99)
    }

    #[test]
    fn the_link_is_the_tbf_and_marks_are_reds() {
        let mut queues = Queues::default();
        for message in [tbf(), red()] {
            let (kind, qdisc) = parse(&message, 4).unwrap();
            queues.add(kind, qdisc);
        }
        let link = queues.link().unwrap();
        assert_eq!(link.sent_bytes, 5_000_000_000);
        assert_eq!((link.backlog_bytes, link.drops), (3300, 11));
        assert_eq!(link.rate_bps, Some(40e6));
        assert_eq!(link.limit_bytes, Some(400_000.0));
        let marking = queues.red.unwrap();
        assert_eq!(marking.marks, 99);
        let red = marking.red.unwrap();
        assert_eq!((red.min_bytes, red.max_bytes), (15_000.0, 45_000.0));
        assert!((red.probability.unwrap() - 0.2).abs() < 1e-6);
    }

    #[test]
    fn other_netdevs_are_left_out_and_short_messages_end_nothing() {
        assert_eq!(parse(&tbf(), 5), None);
        let whole = red();
        for length in 0..whole.len() {
            // Whatever it says, it does not panic.
            let _ = parse(&whole[..length], 4);
        }
    }

    #[test]
    fn a_counter_that_starts_anew_goes_on_from_where_it_was() {
        let mut total = Total::default();
        let seen: Vec<u64> = [5, 9, 9, 2, 4, 1].map(|now| total.advance(now)).into();
        assert_eq!(seen, [5, 9, 9, 11, 13, 14]);
    }
}
