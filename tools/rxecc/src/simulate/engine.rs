// SPDX-License-Identifier: GPL-2.0

//! The events of a simulated network, one after the other.
//!
//! In comes a [`Scenario`], out go samples and events to an [`Observer`] while it runs,
//! and an [`Outcome`] at its end. Time is an integer, everything random comes from one
//! seeded generator, and events of one instant happen in the order in which they were
//! scheduled: the same scenario gives the same run, to the last bit.
//!
//! ```text
//!   Send --link, half the delay--> AtPort --queue--> PortAsks --half the delay--> AtReceiver
//!    ^                                                                                |
//!    +----- AtSender: CNP or ACK <--the way back-- WindowCloses or at once <-- Mark --+
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anyhow::{ensure, Error, Result};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rxe_cc::dcqcn::np_window::{Close, Mark, Window};
use rxe_cc::dcqcn::params::{CnpModeration, NpParams, RpParams};
use rxe_cc::dcqcn::rp::View;

use super::flow::{Flow, Sending, PS_PER_NS};
use super::meter::{Meter, Outcome};
use super::port::{Arrival, Next, Packet, Port};
use super::scenario::{CnpPriority, Scenario, Stall};

/// What memory is good for, packets.
const LONGEST_QUEUE: usize = if cfg!(test) { 100_000 } else { 20_000_000 };

/// Ethernet's header, which goodput does not count.
const ETHERNET_BYTES: u32 = 14;

/// Somebody who looks on.
pub(crate) trait Observer {
    /// Looks at the whole network, each sample interval.
    fn sample(&mut self, network: &Network<'_>) -> Result<()>;

    /// Something happened to a flow.
    fn event(&mut self, network: &Network<'_>, what: What, flow: usize) -> Result<()>;
}

/// Nobody.
impl Observer for () {
    fn sample(&mut self, _network: &Network<'_>) -> Result<()> {
        Ok(())
    }

    fn event(&mut self, _network: &Network<'_>, _what: What, _flow: usize) -> Result<()> {
        Ok(())
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A mark reached the receiver.
    Ce,
    /// A CNP left.
    CnpSent { deferred: bool },
    /// A CNP reached the sender; it was handled, and led to so many cuts.
    CnpReceived { handled: bool, cuts: u32 },
}

/// What the receiver's NP counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NpCounts {
    pub(crate) marks: u64,
    pub(crate) disabled: u64,
    pub(crate) immediate: u64,
    pub(crate) deferred: u64,
    pub(crate) suppressed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begin(u32),
    Send(u32),
    AtPort(Packet),
    PortAsks,
    AtReceiver(Packet),
    /// The NP has seen a mark.
    Mark(u32),
    WindowCloses(u32),
    CnpAtSender(u32),
    AckAtSender(u32, u64),
    Sample,
    Measure,
}

/// The network as it is at [`Network::now_ps`].
pub(crate) struct Network<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) now_ps: u64,
    pub(crate) port: Port,
    pub(crate) flows: Vec<Flow>,
    pub(crate) np_counts: NpCounts,
    rp: RpParams,
    np: Option<NpParams>,
    /// The windows, with the flow that their deferred CNP goes to.
    windows: Vec<(Window, u32)>,
    agenda: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    /// The port will be asked.
    port_asked: bool,
    /// Flows that have not completed.
    open: usize,
    random: Pcg64Mcg,
    stalls: Option<Stalls>,
}

/// When the machine stands still; a generator of its own, so that the coins of RED are
/// the same with and without.
struct Stalls {
    stall: Stall,
    random: Pcg64Mcg,
    start_ps: u64,
    end_ps: u64,
}

impl Stalls {
    fn new(stall: Stall, seed: u64) -> Self {
        let mut stalls = Self {
            stall,
            random: Pcg64Mcg::seed_from_u64(!seed),
            start_ps: 0,
            end_ps: 0,
        };
        stalls.schedule_next();
        stalls
    }

    fn schedule_next(&mut self) {
        let gap = -(1.0 - self.random.random::<f64>()).ln() * self.stall.every_ps as f64;
        self.start_ps = self.end_ps + gap as u64;
        self.end_ps = self.start_ps + self.stall.length_ps;
    }

    /// When something really happens that was to happen at `at_ps`.
    fn delayed(&mut self, at_ps: u64) -> u64 {
        while at_ps >= self.end_ps {
            self.schedule_next();
        }
        if at_ps < self.start_ps {
            at_ps
        } else {
            self.end_ps
        }
    }
}

/// Simulates.
///
/// # Errors
///
/// The scenario cannot be simulated, or the observer failed.
pub(crate) fn run(scenario: &Scenario, observer: &mut impl Observer) -> Result<Outcome> {
    scenario.check().map_err(Error::msg)?;
    let mut network = Network::new(scenario).map_err(Error::msg)?;
    let mut meter = Meter::new(scenario);
    for flow in 0..scenario.flows {
        network.at(scenario.begin_ps(flow as usize), Event::Begin(flow));
    }
    network.at(scenario.warm_up_ps, Event::Measure);
    network.at(0, Event::Sample);

    while let Some(Reverse((at_ps, _, event))) = network.agenda.pop() {
        let at_ps = match &mut network.stalls {
            Some(stalls) => stalls.delayed(at_ps),
            None => at_ps,
        };
        if at_ps > scenario.duration_ps {
            network.now_ps = scenario.duration_ps;
            break;
        }
        network.now_ps = network.now_ps.max(at_ps);
        match event {
            Event::Sample => {
                observer.sample(&network)?;
                meter.sample(&network);
                network.at(network.now_ps + scenario.sample_ps, Event::Sample);
            }
            Event::Measure => meter.begin(&network),
            event => network.happen(event, &mut meter, observer)?,
        }
        if network.open == 0 {
            observer.sample(&network)?;
            break;
        }
    }
    Ok(meter.end(&network))
}

impl<'a> Network<'a> {
    fn new(scenario: &'a Scenario) -> std::result::Result<Self, String> {
        let flows = scenario.flows as usize;
        Ok(Self {
            scenario,
            now_ps: 0,
            port: Port::new(scenario)?,
            flows: (0..flows).map(|_| Flow::new(scenario)).collect(),
            np_counts: NpCounts::default(),
            rp: scenario.knobs.rp(scenario.link_mbps()),
            np: scenario.knobs.np(),
            windows: vec![(Window::new(), 0); flows],
            agenda: BinaryHeap::new(),
            scheduled: 0,
            port_asked: false,
            open: flows,
            random: Pcg64Mcg::seed_from_u64(scenario.seed),
            stalls: scenario
                .stall
                .map(|stall| Stalls::new(stall, scenario.seed)),
        })
    }

    /// The RP of a flow as it is now; `None` before its first CNP.
    pub(crate) fn view(&self, flow: usize) -> Option<View> {
        self.flows[flow].view(self.now_ps, &self.rp)
    }

    /// The rate of a flow that nothing limits, real bit/s.
    pub(crate) fn maximum_bps(&self) -> u64 {
        self.rp.maximum_bps() / self.rp.dilation()
    }

    fn at(&mut self, at_ps: u64, event: Event) {
        self.scheduled += 1;
        self.agenda.push(Reverse((at_ps, self.scheduled, event)));
    }

    fn happen(
        &mut self,
        event: Event,
        meter: &mut Meter,
        observer: &mut impl Observer,
    ) -> Result<()> {
        match event {
            Event::Begin(flow) => self.send(flow),
            Event::Send(flow) => {
                self.flows[flow as usize].asked = false;
                self.send(flow);
            }
            Event::AtPort(packet) => {
                meter.backlog(self.now_ps, self.port.backlog_bytes());
                ensure!(
                    self.port.len() < LONGEST_QUEUE,
                    "the queue has grown to {LONGEST_QUEUE} packets, for nothing holds the flows back: \
                     give --limit, or --in-flight"
                );
                match self.port.arrive(packet, &mut self.random) {
                    Arrival::Dropped => {
                        self.flows[packet.flow as usize].lose();
                        self.send(packet.flow);
                    }
                    Arrival::Queued if !self.port_asked => self.ask_port(meter),
                    Arrival::Queued => {}
                }
            }
            Event::PortAsks => {
                self.port_asked = false;
                self.ask_port(meter);
            }
            Event::AtReceiver(packet) => self.receive(packet),
            Event::Mark(flow) => self.mark(flow, observer)?,
            Event::WindowCloses(window) => self.close_window(window, observer)?,
            Event::CnpAtSender(flow) => self.cnp(flow, observer)?,
            Event::AckAtSender(flow, covered) => {
                let of = &mut self.flows[flow as usize];
                if of.ack(covered) && of.completed_ps.is_none() {
                    of.completed_ps = Some(self.now_ps);
                    self.open -= 1;
                } else {
                    self.send(flow);
                }
            }
            Event::Sample | Event::Measure => {}
        }
        Ok(())
    }

    /// Sends what a flow may send now.
    fn send(&mut self, flow: u32) {
        let index = flow as usize;
        while !self.flows[index].asked {
            match self.flows[index].send(self.now_ps, &self.rp) {
                Sending::Departs { bytes, until_ps } => {
                    let packet = Packet {
                        flow,
                        bytes,
                        marked: false,
                    };
                    let at_ps = until_ps + self.scenario.delay_ps(index) / 2;
                    self.at(at_ps, Event::AtPort(packet));
                }
                Sending::Ask { at_ps } => {
                    self.flows[index].asked = true;
                    self.at(at_ps, Event::Send(flow));
                }
                Sending::Idle => break,
            }
        }
    }

    /// Lets packets leave the port as long as they may.
    fn ask_port(&mut self, meter: &mut Meter) {
        loop {
            let before_bytes = self.port.backlog_bytes();
            match self.port.next(self.now_ps, &mut self.random) {
                Next::Leaves { packet, at_ps } => {
                    meter.backlog(self.now_ps, before_bytes);
                    let delay_ps = self.scenario.delay_ps(packet.flow as usize);
                    let at_ps = at_ps + (delay_ps - delay_ps / 2);
                    self.at(at_ps, Event::AtReceiver(packet));
                }
                Next::Ask { at_ps } => {
                    self.port_asked = true;
                    self.at(at_ps, Event::PortAsks);
                    return;
                }
                Next::Idle => return,
            }
        }
    }

    fn receive(&mut self, packet: Packet) {
        let flow = &mut self.flows[packet.flow as usize];
        flow.counts.received_bytes += u64::from(packet.bytes - ETHERNET_BYTES);
        if let Some(covered) = flow.arrive() {
            let at_ps = self.now_ps + self.scenario.delay_ps(packet.flow as usize);
            self.at(at_ps, Event::AckAtSender(packet.flow, covered));
        }
        if packet.marked {
            self.at(
                self.now_ps + self.scenario.np_delay_ps,
                Event::Mark(packet.flow),
            );
        }
        // One packet less in flight.
        if self.scenario.transport.in_flight.is_some() {
            self.send(packet.flow);
        }
    }

    fn mark(&mut self, flow: u32, observer: &mut impl Observer) -> Result<()> {
        self.np_counts.marks += 1;
        self.flows[flow as usize].counts.marks += 1;
        observer.event(self, What::Ce, flow as usize)?;
        let Some(np) = self.np else {
            self.np_counts.disabled += 1;
            return Ok(());
        };
        // Each sender has an address of its own, so per QP and per address are one.
        let index = match np.moderation {
            CnpModeration::PerQp | CnpModeration::PerIp => flow,
            CnpModeration::PerPort => 0,
        };
        let period_ns = np.min_time_between_cnps_ns;
        let (window, held) = &mut self.windows[index as usize];
        match window.on_mark(self.now_ps / PS_PER_NS, period_ns) {
            Mark::SendNow => {
                self.np_counts.immediate += 1;
                self.send_cnp(flow, false, observer)
            }
            Mark::Suppressed { close_at_ns, first } => {
                self.np_counts.suppressed += 1;
                *held = flow;
                if first {
                    self.at(close_at_ns * PS_PER_NS, Event::WindowCloses(index));
                }
                Ok(())
            }
            Mark::SendLate { close_at_ns } => {
                self.np_counts.suppressed += 1;
                self.np_counts.deferred += 1;
                let owed = std::mem::replace(held, flow);
                self.at(close_at_ns * PS_PER_NS, Event::WindowCloses(index));
                self.send_cnp(owed, true, observer)
            }
        }
    }

    fn close_window(&mut self, index: u32, observer: &mut impl Observer) -> Result<()> {
        let Some(np) = self.np else {
            return Ok(());
        };
        let (window, held) = &mut self.windows[index as usize];
        let now_ns = self.now_ps / PS_PER_NS;
        match window.on_close(now_ns, np.min_time_between_cnps_ns) {
            Close::Send => {
                let flow = *held;
                self.np_counts.deferred += 1;
                self.send_cnp(flow, true, observer)
            }
            Close::Later { at_ns } => {
                self.at(at_ns * PS_PER_NS, Event::WindowCloses(index));
                Ok(())
            }
            Close::Quiet => Ok(()),
        }
    }

    fn send_cnp(&mut self, flow: u32, deferred: bool, observer: &mut impl Observer) -> Result<()> {
        let delay_ps = self
            .scenario
            .cnp_delay_ps
            .unwrap_or_else(|| self.scenario.delay_ps(flow as usize));
        let waits_ps = match self.scenario.cnp_priority {
            CnpPriority::High => 0,
            CnpPriority::Data => self.port.drain_ps(),
        };
        self.at(self.now_ps + delay_ps + waits_ps, Event::CnpAtSender(flow));
        observer.event(self, What::CnpSent { deferred }, flow as usize)
    }

    fn cnp(&mut self, flow: u32, observer: &mut impl Observer) -> Result<()> {
        let index = flow as usize;
        let handled = self.scenario.knobs.rp_enabled();
        let cuts = if handled {
            self.flows[index].cnp(self.now_ps, &self.rp)
        } else {
            self.flows[index].counts.cnps_ignored += 1;
            0
        };
        observer.event(self, What::CnpReceived { handled, cuts }, index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::scenario::{InFlight, PS_PER_SEC};
    use rxe_cc::dcqcn::params::Id;

    const MS: u64 = PS_PER_SEC / 1000;
    const US: u64 = MS / 1000;

    /// A short run of the paper's scenario, changed.
    fn short(change: impl FnOnce(&mut Scenario)) -> Scenario {
        let mut scenario = Scenario::named("paper-40g").unwrap();
        scenario.duration_ps = 20 * MS;
        scenario.warm_up_ps = 5 * MS;
        scenario.sample_ps = MS;
        change(&mut scenario);
        scenario
    }

    fn outcome(change: impl FnOnce(&mut Scenario)) -> Outcome {
        run(&short(change), &mut ()).unwrap()
    }

    /// What the network looked like at the end, and the largest backlog of any sample.
    #[derive(Default)]
    struct Last {
        np: NpCounts,
        cnps: u64,
        largest_backlog: u64,
        cnp_times_ps: Vec<Vec<u64>>,
    }

    impl Observer for Last {
        fn sample(&mut self, network: &Network<'_>) -> Result<()> {
            self.np = network.np_counts;
            self.cnps = network.flows.iter().map(|flow| flow.counts.cnps).sum();
            self.largest_backlog = self.largest_backlog.max(network.port.backlog_bytes());
            Ok(())
        }

        fn event(&mut self, network: &Network<'_>, what: What, flow: usize) -> Result<()> {
            self.cnp_times_ps.resize(network.flows.len(), Vec::new());
            if let What::CnpSent { .. } = what {
                self.cnp_times_ps[flow].push(network.now_ps);
            }
            Ok(())
        }
    }

    #[test]
    fn one_flow_fills_its_link_and_nothing_waits() {
        let outcome = outcome(|s| s.flows = 1);
        assert!(outcome.utilisation > 0.9999, "{outcome:?}");
        assert_eq!((outcome.marks, outcome.queue_max_bytes), (0, 0));
    }

    #[test]
    fn a_transfer_takes_the_time_of_its_packets_and_the_way_there_and_back() {
        // 942 bytes of payload each: 10 packets of 200 ns on either link, one after
        // the other, and 2 us there and back.
        let outcome = outcome(|s| {
            s.flows = 1;
            s.size_bytes = Some(9_420);
        });
        let took_s = outcome.flows[0].completion_s.unwrap();
        assert!((took_s - 6.2e-6).abs() < 1e-9, "{took_s}");
    }

    #[test]
    fn the_last_packet_has_what_is_left() {
        let outcome = outcome(|s| {
            s.flows = 1;
            s.size_bytes = Some(943);
        });
        // Without Ethernet's header: 986 bytes, and 44 + 1.
        let bytes = outcome.flows[0].goodput_bps * outcome.flows[0].completion_s.unwrap() / 8.0;
        assert!((bytes - 1031.0).abs() < 0.1, "{bytes}");
    }

    #[test]
    fn flows_begin_one_after_the_other() {
        let outcome = outcome(|s| s.stagger_ps = 2 * MS);
        let begins: Vec<_> = outcome.flows.iter().map(|flow| flow.begin_s).collect();
        assert_eq!(begins, [0.0, 0.002, 0.004, 0.006]);
    }

    #[test]
    fn every_mark_and_every_cnp_is_accounted_for() {
        for moderation in [0, 2] {
            let scenario = short(|s| s.knobs.set(Id::CnpModeration, moderation));
            let mut last = Last::default();
            run(&scenario, &mut last).unwrap();
            let np = last.np;
            assert!(np.marks > 100, "{np:?}");
            assert_eq!(np.marks, np.immediate + np.suppressed + np.disabled);
            let in_flight = np.immediate + np.deferred - last.cnps;
            assert!(in_flight <= u64::from(scenario.flows), "{in_flight}");
        }
    }

    #[test]
    fn a_flow_gets_one_cnp_a_window_at_most() {
        let mut last = Last::default();
        run(&short(|_| ()), &mut last).unwrap();
        for times in last.cnp_times_ps {
            assert!(times.len() > 10);
            assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 50 * US));
        }
    }

    #[test]
    fn with_the_np_or_the_rp_off_nothing_is_cut() {
        for assignment in ["roce_np/enable/0=0", "roce_rp/enable/0=0"] {
            let outcome = outcome(|s| {
                s.knobs.assign(assignment).unwrap();
                s.limit_bytes = Some(1_000_000);
            });
            assert_eq!(outcome.cuts, 0, "{assignment}");
            assert!(outcome.drops > 1000, "{outcome:?}");
        }
    }

    #[test]
    fn what_is_not_ect_is_dropped_where_it_would_be_marked() {
        let outcome = outcome(|s| {
            s.knobs.assign("ect_mode=pass").unwrap();
            s.mark_at = super::super::scenario::MarkAt::Enqueue;
        });
        assert_eq!((outcome.marks, outcome.cnps_sent), (0, 0));
        assert!(outcome.drops > 1000, "{outcome:?}");
    }

    #[test]
    fn the_queue_holds_at_most_what_the_flows_may_have_in_flight() {
        let mut last = Last::default();
        let scenario = short(|s| {
            s.knobs.assign("roce_rp/enable/0=0").unwrap();
            s.transport.in_flight = Some(InFlight {
                stop_packets: 64,
                resume_packets: 64,
            });
        });
        run(&scenario, &mut last).unwrap();
        assert!(last.largest_backlog <= 4 * 64 * 1000);
        assert!(
            last.largest_backlog > 4 * 60 * 1000,
            "{}",
            last.largest_backlog
        );
    }

    #[test]
    fn dropped_packets_are_sent_again_until_the_transfer_is_complete() {
        let outcome = outcome(|s| {
            s.knobs.assign("roce_rp/enable/0=0").unwrap();
            s.limit_bytes = Some(20_000);
            s.size_bytes = Some(1_000_000);
            s.warm_up_ps = 0;
        });
        assert!(outcome.drops > 100);
        assert!(outcome.flows.iter().all(|flow| flow.completion_s.is_some()));
    }

    #[test]
    fn cnps_behind_data_come_later() {
        let cuts = |priority| outcome(|s| s.cnp_priority = priority).queue_mean_bytes;
        assert_ne!(cuts(CnpPriority::High), cuts(CnpPriority::Data));
    }

    #[test]
    fn a_run_is_that_of_its_seed() {
        let with = |seed| outcome(|s| s.seed = seed);
        assert_eq!(with(7), with(7));
        assert_ne!(with(7), with(8));
    }

    #[test]
    fn a_queue_without_an_end_is_refused_in_a_sentence() {
        // Grows by 30 packets for each that leaves.
        let scenario = short(|s| {
            s.knobs.assign("roce_rp/enable/0=0").unwrap();
            s.flows = 31;
            s.duration_ps = 20 * MS;
        });
        let error = run(&scenario, &mut ()).unwrap_err().to_string();
        assert!(error.contains("--limit"), "{error}");
    }

    #[test]
    fn while_the_machine_stands_still_nothing_happens() {
        let stall = Stall {
            length_ps: 10,
            every_ps: 100,
        };
        let mut stalls = Stalls::new(stall, 1);
        let mut before = 0;
        let mut still = 0_u64;
        for at_ps in 0..100_000 {
            let delayed = stalls.delayed(at_ps);
            assert!(delayed >= at_ps && delayed <= at_ps + 10 && delayed >= before);
            still += u64::from(delayed > at_ps);
            before = delayed;
        }
        // 10 of 110.
        assert!((8_000..10_200).contains(&still), "{still}");
    }
}
