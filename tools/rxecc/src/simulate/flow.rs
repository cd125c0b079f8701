// SPDX-License-Identifier: GPL-2.0

//! A sender: one queue pair of its own host, the transport above and the RP below it.
//!
//! In come the times at which the engine asks, CNPs, and what became of packets; out
//! come packets that leave, or when to ask again. Rate and departures are the module's
//! own state machine and pacer, called as the module's output hook calls them: a packet
//! that finds the way free leaves at once, others are held and leave in order. What the
//! transport repeats, it knows at once: a lost packet is sent again at the end, and no
//! ack timer runs.

use rxe_cc::dcqcn::pacer::{Due, Pacer};
use rxe_cc::dcqcn::params::RpParams;
use rxe_cc::dcqcn::rp::{Events, State, View};

use super::scenario::{Scenario, Transport, HEADER_BYTES, PS_PER_SEC};

/// The module counts in nanoseconds.
pub(crate) const PS_PER_NS: u64 = 1000;

/// A program without an end has this many packets ready.
const READY: u64 = 2;

/// Totals of one flow since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Bytes of IP packets that arrived.
    pub(crate) received_bytes: u64,
    /// Marks that arrived.
    pub(crate) marks: u64,
    /// CNPs that the RP took.
    pub(crate) cnps: u64,
    /// CNPs for an RP that is off.
    pub(crate) cnps_ignored: u64,
    pub(crate) cuts: u64,
    pub(crate) increases: u64,
}

/// What a sender does when it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// A packet of so many bytes is on the link until then.
    Departs { bytes: u32, until_ps: u64 },
    /// Ask again then.
    Ask { at_ps: u64 },
    /// Nothing to send.
    Idle,
}

/// A flow.
pub(crate) struct Flow {
    limiter: Option<(State, Pacer)>,
    /// All packets there are, and the bytes of the last one.
    total: Option<(u64, u32)>,
    packet_bytes: u32,
    link_ps_per_byte: f64,
    transport: Transport,
    /// Packets that the transport has handed down, that left, arrived, were lost and
    /// were acknowledged.
    produced: u64,
    departed: u64,
    arrived: u64,
    lost: u64,
    acked: u64,
    /// Too many are in flight: asleep until few are.
    asleep: bool,
    /// The head had to wait.
    head_waited: bool,
    link_free_ps: u64,
    /// The engine will ask.
    pub(crate) asked: bool,
    pub(crate) counts: Counts,
    pub(crate) completed_ps: Option<u64>,
}

impl Flow {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let payload = u64::from(scenario.packet_bytes - HEADER_BYTES);
        let total = scenario.size_bytes.map(|size| {
            let packets = size.div_ceil(payload);
            let last = size - (packets - 1) * payload;
            // At most a packet's.
            (packets, last as u32 + HEADER_BYTES)
        });
        Self {
            limiter: None,
            total,
            packet_bytes: scenario.packet_bytes,
            link_ps_per_byte: 8.0 * PS_PER_SEC as f64 / scenario.link_bps,
            transport: scenario.transport,
            produced: 0,
            departed: 0,
            arrived: 0,
            lost: 0,
            acked: 0,
            asleep: false,
            head_waited: false,
            link_free_ps: 0,
            asked: false,
            counts: Counts::default(),
            completed_ps: None,
        }
    }

    /// Packets that wait to be sent.
    pub(crate) fn held(&self) -> u64 {
        self.produced - self.departed
    }

    /// The RP as it is at a time; `None` before the first CNP.
    pub(crate) fn view(&self, now_ps: u64, params: &RpParams) -> Option<View> {
        let (mut state, _) = self.limiter?;
        let _of_a_copy = state.advance(now_ps / PS_PER_NS, params);
        Some(state.view(params))
    }

    /// Sends the next packet if it may leave now.
    pub(crate) fn send(&mut self, now_ps: u64, params: &RpParams) -> Sending {
        self.produce();
        if self.held() == 0 {
            return Sending::Idle;
        }
        if self.link_free_ps > now_ps {
            self.head_waited = true;
            return Sending::Ask {
                at_ps: self.link_free_ps,
            };
        }
        let bytes = self.head_bytes();
        let now_ns = now_ps / PS_PER_NS;
        if let Some((state, pacer)) = &mut self.limiter {
            let events = state.advance(now_ns, params);
            pacer.accrue(&events);
            count(&mut self.counts, &events);
            if let Due::At { at_ns } = pacer.due(state, bytes, params) {
                self.head_waited = true;
                return Sending::Ask {
                    at_ps: at_ns.saturating_mul(PS_PER_NS),
                };
            }
            pacer.depart(state, bytes, self.head_waited, params);
            let events = state.on_sent(now_ns, bytes, params);
            pacer.accrue(&events);
            count(&mut self.counts, &events);
        }
        self.departed += 1;
        self.head_waited = true;
        self.link_free_ps = now_ps + (f64::from(bytes) * self.link_ps_per_byte).round() as u64;
        Sending::Departs {
            bytes,
            until_ps: self.link_free_ps,
        }
    }

    /// A CNP; how many cuts it led to.
    pub(crate) fn cnp(&mut self, now_ps: u64, params: &RpParams) -> u32 {
        self.counts.cnps += 1;
        let now_ns = now_ps / PS_PER_NS;
        let events = match &mut self.limiter {
            Some((state, pacer)) => {
                let events = state.on_cnp(now_ns, params);
                pacer.accrue(&events);
                events
            }
            None => {
                self.limiter = Some((State::first_cnp(now_ns, params), Pacer::new()));
                Events::of_first_cnp(params)
            }
        };
        count(&mut self.counts, &events);
        events.cuts
    }

    /// A packet reached the receiver; how many packets its ACK, if it causes one, covers.
    pub(crate) fn arrive(&mut self) -> Option<u64> {
        self.arrived += 1;
        let last = self.total.is_some_and(|(total, _)| self.arrived == total);
        let due = self.transport.unacked_packets.is_some()
            && self.arrived % u64::from(self.transport.ack_every) == 0;
        (last || due).then_some(self.arrived)
    }

    /// The switch dropped a packet.
    pub(crate) fn lose(&mut self) {
        self.lost += 1;
    }

    /// An ACK came back; whether it was the last one.
    pub(crate) fn ack(&mut self, covered: u64) -> bool {
        self.acked = self.acked.max(covered);
        self.total.is_some_and(|(total, _)| self.acked >= total)
    }

    /// Lets the transport hand down what it may.
    fn produce(&mut self) {
        if self.held() == 0 {
            self.head_waited = false;
        }
        let all = self.total.map_or(u64::MAX, |(total, _)| total + self.lost);
        let mut may = all - self.produced;
        if let Some(window) = self.transport.unacked_packets {
            let unacked = self.produced - self.lost - self.acked;
            may = may.min(u64::from(window).saturating_sub(unacked));
        }
        match self.transport.in_flight {
            Some(cap) => {
                let in_flight = self.produced - self.arrived - self.lost;
                self.asleep &= in_flight >= u64::from(cap.resume_packets);
                let room = u64::from(cap.stop_packets).saturating_sub(in_flight);
                if self.asleep {
                    may = 0;
                } else {
                    self.asleep = may >= room;
                    may = may.min(room);
                }
            }
            None => may = may.min(READY.saturating_sub(self.held())),
        }
        self.produced += may;
    }

    fn head_bytes(&self) -> u32 {
        match self.total {
            Some((total, last_bytes)) if self.departed + 1 == total + self.lost => last_bytes,
            _ => self.packet_bytes,
        }
    }
}

fn count(counts: &mut Counts, events: &Events) {
    counts.cuts += u64::from(events.cuts);
    counts.increases += events.increases;
}
