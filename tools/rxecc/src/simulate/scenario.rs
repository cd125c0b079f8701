// SPDX-License-Identifier: GPL-2.0

//! What is simulated: the network, the traffic and the knobs, and the networks that
//! have a name.
//!
//! ```text
//!   h1 --link--+
//!   h2 --link--+-- switch --port (the bottleneck)--> h(N+1)
//!   ...        |
//!   hN --link--+
//! ```

use rxe_cc::dcqcn::params::{Id, Preset};

use super::knobs::Knobs;
use super::red::{Average, Line, Red};

/// Ethernet, IPv4, UDP, BTH and ICRC around the payload of a SEND Middle, bytes.
pub(crate) const HEADER_BYTES: u32 = 14 + 20 + 8 + 12 + 4;

/// Picoseconds in a second: at 100 Gb/s a byte takes 80 of them, and no packet's time
/// has to be rounded by a percent, as it would be in nanoseconds.
pub(crate) const PS_PER_SEC: u64 = 1_000_000_000_000;

/// More than this is no longer kept in memory at once.
const MOST_FLOWS: u32 = 10_000;
/// A jumbo frame.
const LARGEST_PACKET: u32 = 9_216;

/// How the port empties its queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Service {
    /// A link: packet after packet, each taking its time.
    Link,
    /// tc's `tbf`: tokens come at the port's rate, and a packet that has them is gone.
    TokenBucket {
        /// Tokens that are kept at most, bytes.
        burst_bytes: u64,
    },
}

/// When RED looks at the queue and marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum MarkAt {
    /// As a packet arrives: Linux. The mark is as old as the queue is long when it leaves.
    Enqueue,
    /// As a packet leaves: switches with a shared buffer, and the DCQCN papers.
    Dequeue,
}

/// What a transport allows itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Transport {
    /// Stops with this many packets between it and the receiver, held ones included.
    pub(crate) in_flight: Option<InFlight>,
    /// Stops with this many packets that no ACK has covered.
    pub(crate) unacked_packets: Option<u32>,
    /// The receiver acknowledges every n-th packet.
    pub(crate) ack_every: u32,
}

/// rxe stops at 64 and goes on below 16.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InFlight {
    pub(crate) stop_packets: u32,
    pub(crate) resume_packets: u32,
}

/// A machine that everything runs on stands still now and then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stall {
    pub(crate) length_ps: u64,
    /// Mean time between the end of one and the start of the next.
    pub(crate) every_ps: u64,
}

/// Which of the ways back a CNP takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CnpPriority {
    /// Ahead of all data: it never waits.
    High,
    /// As data: it waits as long as the bottleneck's queue would take at that moment,
    /// as if the way back were as full.
    Data,
}

/// All of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scenario {
    pub(crate) flows: u32,
    /// Of the bottleneck, bit/s.
    pub(crate) rate_bps: f64,
    /// Of each sender's link, bit/s.
    pub(crate) link_bps: f64,
    pub(crate) service: Service,
    /// Ethernet frame without FCS.
    pub(crate) packet_bytes: u32,
    /// One way, sender to receiver, half of it before the switch. Flow n has the n-th,
    /// and after the last the first again.
    pub(crate) delays_ps: Vec<u64>,
    /// From a mark's arrival to the NP's verdict.
    pub(crate) np_delay_ps: u64,
    /// A CNP's way back; without it as long as the data's way.
    pub(crate) cnp_delay_ps: Option<u64>,
    pub(crate) cnp_priority: CnpPriority,
    pub(crate) red: Option<Line>,
    pub(crate) average: Average,
    pub(crate) mark_at: MarkAt,
    /// The queue drops what comes beyond it.
    pub(crate) limit_bytes: Option<u64>,
    pub(crate) transport: Transport,
    /// Payload of each flow; without it they never end.
    pub(crate) size_bytes: Option<u64>,
    /// Flow n begins n times this after the first.
    pub(crate) stagger_ps: u64,
    pub(crate) stall: Option<Stall>,
    pub(crate) preset: Preset,
    pub(crate) knobs: Knobs,
    pub(crate) duration_ps: u64,
    /// Not measured, at the beginning.
    pub(crate) warm_up_ps: u64,
    /// Time between two samples.
    pub(crate) sample_ps: u64,
    pub(crate) seed: u64,
}

/// A named scenario.
pub(crate) struct Named {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    make: fn() -> Scenario,
}

/// All named scenarios; the first is what is simulated without a name.
pub(crate) const NAMED: [Named; 3] = [
    Named {
        name: "paper-40g",
        doc: "4 flows into 40 Gb/s, 1000-byte packets, RED 5KB:200KB:0.01, the paper's parameters",
        make: paper_40g,
    },
    Named {
        name: "incast-100g",
        doc: "64 flows into 100 Gb/s, RED 400KB:1600KB:0.2, the paper's parameters",
        make: incast_100g,
    },
    Named {
        name: "soft-roce",
        doc: "4 flows into 40 Mb/s by tbf and tc's RED, rxe's caps, the paper's parameters, dilation 1000",
        make: soft_roce,
    },
];

const US: u64 = PS_PER_SEC / 1_000_000;
const MS: u64 = PS_PER_SEC / 1000;

fn paper_40g() -> Scenario {
    Scenario {
        flows: 4,
        rate_bps: 40e9,
        link_bps: 40e9,
        service: Service::Link,
        packet_bytes: 1000,
        delays_ps: vec![2 * US],
        np_delay_ps: 0,
        cnp_delay_ps: None,
        cnp_priority: CnpPriority::High,
        red: Some(Line {
            min_bytes: 5_000,
            max_bytes: 200_000,
            probability: 0.01,
        }),
        average: Average::Instant,
        mark_at: MarkAt::Dequeue,
        limit_bytes: None,
        transport: Transport {
            ack_every: 1,
            ..Transport::default()
        },
        size_bytes: None,
        stagger_ps: 0,
        stall: None,
        preset: Preset::Paper,
        knobs: Knobs::new(Preset::Paper),
        duration_ps: 500 * MS,
        warm_up_ps: 200 * MS,
        sample_ps: MS,
        seed: 1,
    }
}

fn incast_100g() -> Scenario {
    Scenario {
        flows: 64,
        rate_bps: 100e9,
        link_bps: 100e9,
        packet_bytes: 1024 + HEADER_BYTES,
        red: Some(Line {
            min_bytes: 400_000,
            max_bytes: 1_600_000,
            probability: 0.2,
        }),
        duration_ps: 100 * MS,
        warm_up_ps: 30 * MS,
        sample_ps: MS / 5,
        ..paper_40g()
    }
}

/// What samples/incast makes of namespaces: a port of samples/fabric, perftest.
fn soft_roce() -> Scenario {
    let mut knobs = Knobs::new(Preset::Paper);
    knobs.set(Id::LineRate, 40);
    knobs.set(Id::Dilation, 1000);
    Scenario {
        rate_bps: 40e6,
        // About what one emulated CPU can send.
        link_bps: 1e9,
        service: Service::TokenBucket {
            burst_bytes: 100_000,
        },
        packet_bytes: 1024 + HEADER_BYTES,
        delays_ps: vec![100 * US],
        red: Some(Line {
            min_bytes: 15_000,
            max_bytes: 45_000,
            probability: 0.2,
        }),
        average: Average::Tc {
            burst_packets: 20,
            packet_bytes: 1100,
        },
        mark_at: MarkAt::Enqueue,
        limit_bytes: Some(400_000),
        transport: Transport {
            in_flight: Some(InFlight {
                stop_packets: 64,
                resume_packets: 16,
            }),
            unacked_packets: Some(128),
            ack_every: 64,
        },
        knobs,
        duration_ps: 60 * PS_PER_SEC,
        warm_up_ps: 15 * PS_PER_SEC,
        sample_ps: 50 * MS,
        ..paper_40g()
    }
}

impl Scenario {
    /// The scenario of a name.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let names: Vec<_> = NAMED.iter().map(|named| named.name).collect();
        NAMED
            .iter()
            .find(|named| named.name == name)
            .map(|named| (named.make)())
            .ok_or_else(|| format!("there is no scenario '{name}': {}", names.join(", ")))
    }

    /// One way of flow `flow`.
    pub(crate) fn delay_ps(&self, flow: usize) -> u64 {
        self.delays_ps[flow % self.delays_ps.len()]
    }

    /// When flow `flow` begins.
    pub(crate) fn begin_ps(&self, flow: usize) -> u64 {
        self.stagger_ps.saturating_mul(flow as u64)
    }

    /// The links' rate as an RDMA device knows it.
    pub(crate) fn link_mbps(&self) -> u32 {
        // Rates are at most 4 Tb/s.
        (self.link_bps / 1e6).round().max(1.0) as u32
    }

    /// Makes sure that it can be simulated.
    ///
    /// # Errors
    ///
    /// The first thing that cannot, and what it should be.
    pub(crate) fn check(&self) -> Result<(), String> {
        let beginning_of_last = self.begin_ps(self.flows.saturating_sub(1) as usize);
        let rules = [
            (
                (1..=MOST_FLOWS).contains(&self.flows),
                format!("{} flows cannot be simulated: 1 to {MOST_FLOWS}", self.flows),
            ),
            (
                (HEADER_BYTES + 6..=LARGEST_PACKET).contains(&self.packet_bytes),
                format!(
                    "a packet of {} bytes is no RoCE frame: {} to {LARGEST_PACKET}",
                    self.packet_bytes,
                    HEADER_BYTES + 6
                ),
            ),
            (
                self.warm_up_ps < self.duration_ps,
                "nothing is left to measure: make --duration longer than --warm-up".to_owned(),
            ),
            (
                beginning_of_last < self.duration_ps,
                "the last flow never begins: make --duration longer, or --stagger or --flows smaller".to_owned(),
            ),
            (
                self.sample_ps >= 1000 && self.sample_ps <= self.duration_ps,
                "--sample must be between 1ns and --duration".to_owned(),
            ),
            (
                self.duration_ps / self.sample_ps.max(1) <= 10_000_000,
                "more than ten million samples: make --sample longer".to_owned(),
            ),
            (
                !self.delays_ps.is_empty(),
                "--delay needs at least one time".to_owned(),
            ),
            (
                self.size_bytes != Some(0),
                "a transfer of 0 bytes has no packet: leave --size out, or give it some".to_owned(),
            ),
            (
                self.transport.ack_every > 0,
                "--ack-every 0 would never acknowledge: 1 or more".to_owned(),
            ),
            (
                self.transport
                    .unacked_packets
                    .is_none_or(|window| window >= self.transport.ack_every),
                "--unacked must be at least --ack-every, or the flows wait for ever".to_owned(),
            ),
            (
                self.transport.in_flight.is_none_or(|cap| {
                    cap.resume_packets > 0 && cap.resume_packets <= cap.stop_packets
                }),
                "--in-flight needs STOP:RESUME with RESUME between 1 and STOP".to_owned(),
            ),
            (
                self.red.is_none_or(|line| line.min_bytes <= line.max_bytes),
                "RED's Kmin is above its Kmax: write --red KMIN:KMAX:PMAX".to_owned(),
            ),
            (
                self.red
                    .is_none_or(|line| line.probability > 0.0 && line.probability <= 1.0),
                "RED's Pmax must be above 0 and at most 1".to_owned(),
            ),
            (
                self.limit_bytes
                    .is_none_or(|limit| limit >= u64::from(self.packet_bytes)),
                "no packet fits into that --limit".to_owned(),
            ),
            (
                match self.service {
                    Service::Link => true,
                    Service::TokenBucket { burst_bytes } => {
                        burst_bytes >= u64::from(self.packet_bytes)
                    }
                },
                "no packet ever has its tokens: make --tbf at least a packet".to_owned(),
            ),
            (
                self.stall
                    .is_none_or(|stall| stall.length_ps > 0 && stall.every_ps > 0),
                "--stall needs LENGTH:EVERY, both above 0".to_owned(),
            ),
        ];
        if let Some((_, sentence)) = rules.into_iter().find(|(holds, _)| !holds) {
            return Err(sentence);
        }
        if let Some(line) = self.red {
            Red::new(line, self.average)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_scenario_can_be_simulated() {
        for named in NAMED {
            assert_eq!(Scenario::named(named.name).unwrap().check(), Ok(()));
        }
        let error = Scenario::named("paper-4g").unwrap_err();
        assert!(
            error.contains("paper-40g, incast-100g, soft-roce"),
            "{error}"
        );
    }

    #[test]
    fn what_cannot_be_simulated_is_named() {
        type Break = fn(&mut Scenario);
        let broken: [(Break, &str); 6] = [
            (|s| s.flows = 0, "flows"),
            (|s| s.packet_bytes = 40, "RoCE frame"),
            (|s| s.warm_up_ps = s.duration_ps, "--warm-up"),
            (|s| s.stagger_ps = s.duration_ps, "never begins"),
            (|s| s.transport.ack_every = 0, "--ack-every"),
            (|s| s.red.as_mut().unwrap().max_bytes = 1, "Kmin"),
        ];
        for (breaks, hint) in broken {
            let mut scenario = Scenario::named("soft-roce").unwrap();
            breaks(&mut scenario);
            let error = scenario.check().unwrap_err();
            assert!(error.contains(hint), "{error}");
        }
    }
}
