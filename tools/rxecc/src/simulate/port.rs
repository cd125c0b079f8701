// SPDX-License-Identifier: GPL-2.0

//! The congestion point: the switch's port towards the receiver, one queue and RED.
//!
//! In come packets and the times at which the engine calls, out come packets that
//! leave, and when to call again. The backlog is what waits, as tc counts it: a packet
//! on its way out no longer does.

use std::collections::VecDeque;

use rand_pcg::Pcg64Mcg;

use super::red::Red;
use super::scenario::{MarkAt, Scenario, Service, PS_PER_SEC};

/// A packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Packet {
    pub(crate) flow: u32,
    pub(crate) bytes: u32,
    /// CE.
    pub(crate) marked: bool,
}

/// What became of a packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Queued,
    Dropped,
}

/// What the port has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This packet leaves, at that time.
    Leaves { packet: Packet, at_ps: u64 },
    /// Ask again then.
    Ask { at_ps: u64 },
    /// Nothing, until a packet arrives.
    Idle,
}

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) sent_bytes: u64,
    pub(crate) marks: u64,
    pub(crate) drops: u64,
}

/// The port.
pub(crate) struct Port {
    queue: VecDeque<Packet>,
    backlog_bytes: u64,
    totals: Totals,
    red: Option<Red>,
    mark_at: MarkAt,
    ect: bool,
    limit_bytes: u64,
    ps_per_byte: f64,
    /// Of a link 0; tokens that are kept at most, as the time they take to come.
    burst_ps: u64,
    /// A link: when it is free. A bucket: when it would have been empty.
    free_ps: u64,
    link: bool,
}

impl Port {
    pub(crate) fn new(scenario: &Scenario) -> Result<Self, String> {
        let ps_per_byte = 8.0 * PS_PER_SEC as f64 / scenario.rate_bps;
        let (link, burst_ps) = match scenario.service {
            Service::Link => (true, 0),
            Service::TokenBucket { burst_bytes } => {
                (false, (burst_bytes as f64 * ps_per_byte) as u64)
            }
        };
        Ok(Self {
            queue: VecDeque::new(),
            backlog_bytes: 0,
            totals: Totals::default(),
            red: scenario
                .red
                .map(|line| Red::new(line, scenario.average))
                .transpose()?,
            mark_at: scenario.mark_at,
            ect: scenario.knobs.ect(),
            limit_bytes: scenario.limit_bytes.unwrap_or(u64::MAX),
            ps_per_byte,
            burst_ps,
            free_ps: 0,
            link,
        })
    }

    /// What waits, bytes.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        self.backlog_bytes
    }

    /// Packets that wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// How long what waits takes to leave.
    pub(crate) fn drain_ps(&self) -> u64 {
        (self.backlog_bytes as f64 * self.ps_per_byte) as u64
    }

    /// A packet comes in.
    pub(crate) fn arrive(&mut self, mut packet: Packet, random: &mut Pcg64Mcg) -> Arrival {
        if self.mark_at == MarkAt::Enqueue {
            packet.marked = self.red_marks(random);
        }
        let fits = self.backlog_bytes + u64::from(packet.bytes) <= self.limit_bytes;
        // What cannot be marked is dropped instead.
        if !fits || (packet.marked && !self.ect) {
            self.totals.drops += 1;
            return Arrival::Dropped;
        }
        self.backlog_bytes += u64::from(packet.bytes);
        self.queue.push_back(packet);
        self.totals.marks += u64::from(packet.marked);
        Arrival::Queued
    }

    fn red_marks(&mut self, random: &mut Pcg64Mcg) -> bool {
        let red = self.red.as_mut();
        red.is_some_and(|red| red.marks(self.backlog_bytes, random))
    }

    /// Takes the head out if it may leave now.
    pub(crate) fn next(&mut self, now_ps: u64, random: &mut Pcg64Mcg) -> Next {
        let Some(mut head) = self.queue.front().copied() else {
            return Next::Idle;
        };
        let takes_ps = (f64::from(head.bytes) * self.ps_per_byte).round() as u64;
        // A bucket is full when it has not been used for the time its burst takes.
        let start_ps = self.free_ps.max(now_ps.saturating_sub(self.burst_ps));
        let end_ps = start_ps + takes_ps;
        let at_ps = if self.link { start_ps } else { end_ps };
        if at_ps > now_ps {
            return Next::Ask { at_ps };
        }
        self.queue.pop_front();
        self.backlog_bytes -= u64::from(head.bytes);
        if self.mark_at == MarkAt::Dequeue {
            // What cannot be marked leaves as it is: it is too late to drop it.
            head.marked = self.ect && self.red_marks(random);
            self.totals.marks += u64::from(head.marked);
        }
        self.totals.sent_bytes += u64::from(head.bytes);
        self.free_ps = end_ps;
        Next::Leaves {
            packet: head,
            at_ps: if self.link { end_ps } else { now_ps },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    const US: u64 = 1_000_000;

    fn port(service: Service, limit_bytes: Option<u64>) -> (Port, Pcg64Mcg) {
        let mut scenario = Scenario::named("paper-40g").unwrap();
        scenario.rate_bps = 8e6; // a byte a microsecond
        scenario.service = service;
        scenario.limit_bytes = limit_bytes;
        scenario.red = None;
        (Port::new(&scenario).unwrap(), Pcg64Mcg::seed_from_u64(1))
    }

    fn packet(bytes: u32) -> Packet {
        Packet {
            flow: 0,
            bytes,
            marked: false,
        }
    }

    #[test]
    fn a_link_carries_one_packet_after_the_other() {
        let (mut port, mut random) = port(Service::Link, None);
        assert_eq!(port.next(0, &mut random), Next::Idle);
        for _ in 0..2 {
            assert_eq!(port.arrive(packet(1000), &mut random), Arrival::Queued);
        }
        assert!(
            matches!(port.next(0, &mut random), Next::Leaves { at_ps, .. } if at_ps == 1000 * US)
        );
        assert_eq!(
            port.backlog_bytes(),
            1000,
            "the one on its way does not wait"
        );
        assert_eq!(port.next(10, &mut random), Next::Ask { at_ps: 1000 * US });
        assert!(
            matches!(port.next(1000 * US, &mut random), Next::Leaves { at_ps, .. } if at_ps == 2000 * US)
        );
    }

    #[test]
    fn a_bucket_lets_its_burst_through_and_then_keeps_the_rate() {
        let (mut port, mut random) = port(Service::TokenBucket { burst_bytes: 2500 }, None);
        for _ in 0..4 {
            port.arrive(packet(1000), &mut random);
        }
        // 2500 tokens after a rest: two packets at once, the third 500 us later.
        let rested = 10_000 * US;
        for _ in 0..2 {
            assert!(
                matches!(port.next(rested, &mut random), Next::Leaves { at_ps, .. } if at_ps == rested)
            );
        }
        let third = rested + 500 * US;
        assert_eq!(port.next(rested, &mut random), Next::Ask { at_ps: third });
        assert!(matches!(port.next(third, &mut random), Next::Leaves { .. }));
        assert_eq!(
            port.next(third, &mut random),
            Next::Ask {
                at_ps: third + 1000 * US
            }
        );
    }

    #[test]
    fn what_comes_beyond_the_limit_is_dropped() {
        let (mut port, mut random) = port(Service::Link, Some(1500));
        assert_eq!(port.arrive(packet(1000), &mut random), Arrival::Queued);
        assert_eq!(port.arrive(packet(501), &mut random), Arrival::Dropped);
        assert_eq!(port.arrive(packet(500), &mut random), Arrival::Queued);
        assert_eq!((port.totals().drops, port.backlog_bytes()), (1, 1500));
    }
}
