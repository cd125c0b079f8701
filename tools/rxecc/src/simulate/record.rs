// SPDX-License-Identifier: GPL-2.0

//! A simulated run as a recording, in the same tables as a run of the kernel.
//!
//! In come the network's samples and events, out goes a directory that `rxecc report`
//! and `rxecc assert` read. Hosts, devices and addresses are called as samples/fabric
//! calls them. It bears no date and no path, so that the same run is the same files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Result;
use rxe_cc::dcqcn::rp::Phase;

use crate::recording::{
    self, Bottleneck, CounterSample, FlowSample, GoodputSample, QueueSample, Run, Sender,
};

use super::engine::{Network, Observer, What};
use super::meter::{fraction, name, seconds, Outcome};
use super::scenario::Scenario;

type Table = csv::Writer<BufWriter<File>>;

/// The QPN of each sender: rxe's first one for a program.
const QPN: u32 = 17;

/// Writes a recording.
pub(crate) struct Recorder {
    writer: recording::Writer,
    flows: Table,
    goodput: Table,
    queue: Table,
    counters: Table,
    events: Option<Table>,
    /// What `counters.csv` said last.
    known: BTreeMap<(String, &'static str), u64>,
}

impl Recorder {
    /// # Errors
    ///
    /// The directory or a table in it cannot be written.
    pub(crate) fn create(dir: &Path, events: bool) -> Result<Self> {
        let writer = recording::Writer::create(dir)?;
        Ok(Self {
            flows: writer.table::<FlowSample>()?,
            goodput: writer.table::<GoodputSample>()?,
            queue: writer.table::<QueueSample>()?,
            counters: writer.table::<CounterSample>()?,
            events: events
                .then(|| writer.table::<recording::Event>())
                .transpose()?,
            known: BTreeMap::new(),
            writer,
        })
    }

    /// The end: writes `run.json` and what is left of the tables.
    ///
    /// # Errors
    ///
    /// The disk is full, and the like.
    pub(crate) fn finish(
        mut self,
        scenario: &Scenario,
        outcome: &Outcome,
        title: String,
        command: String,
    ) -> Result<()> {
        let tables = [
            &mut self.flows,
            &mut self.goodput,
            &mut self.queue,
            &mut self.counters,
        ];
        for table in tables.into_iter().chain(&mut self.events) {
            table.flush()?;
        }
        self.writer.run(&Run {
            title,
            source: "simulation".to_owned(),
            command,
            seed: Some(scenario.seed),
            versions: BTreeMap::from([("rxecc".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
            knobs: scenario.knobs.by_path(),
            bottleneck: Some(bottleneck(scenario)),
            measured: Some(outcome.measured_s),
            senders: senders(outcome),
            ..Run::default()
        })
    }

    fn count(
        &mut self,
        time_s: f64,
        device: &str,
        counter: &'static str,
        value: u64,
    ) -> Result<()> {
        let key = (device.to_owned(), counter);
        if self.known.insert(key, value) != Some(value) {
            self.counters.serialize(CounterSample {
                time_s,
                device: device.to_owned(),
                counter: counter.to_owned(),
                value,
            })?;
        }
        Ok(())
    }
}

fn bottleneck(scenario: &Scenario) -> Bottleneck {
    Bottleneck {
        name: port(scenario),
        rate_bps: scenario.rate_bps,
        red_min_bytes: scenario.red.map(|line| line.min_bytes as f64),
        red_max_bytes: scenario.red.map(|line| line.max_bytes as f64),
        red_probability: scenario.red.map(|line| line.probability),
        limit_bytes: scenario.limit_bytes.map(|bytes| bytes as f64),
    }
}

fn senders(outcome: &Outcome) -> Vec<Sender> {
    let senders = outcome
        .flows
        .iter()
        .enumerate()
        .map(|(index, flow)| Sender {
            name: flow.name.clone(),
            // 10.0.0.1 and so on.
            address: Ipv4Addr::from(0x0a00_0001 + index as u32).to_string(),
            device: device(index),
            qps: 1,
            begin_s: Some(flow.begin_s),
            completion_s: flow.completion_s,
            errors: Vec::new(),
        });
    senders.collect()
}

/// The RDMA device of a host; the receiver comes after the last sender.
fn device(host: usize) -> String {
    format!("rxe{}", host + 1)
}

/// The port is called as the host behind it, the receiver.
fn port(scenario: &Scenario) -> String {
    name(scenario.flows as usize)
}

/// The QPN at the receiver's end.
fn peer_qpn(flow: usize) -> u32 {
    QPN + flow as u32
}

fn phase(phase: Phase, limited: bool) -> &'static str {
    match phase {
        _ if !limited => crate::analysis::UNLIMITED,
        Phase::FastRecovery => "fast_recovery",
        Phase::AdditiveIncrease => "additive_increase",
        Phase::HyperIncrease => "hyper_increase",
    }
}

impl Observer for Recorder {
    fn sample(&mut self, network: &Network<'_>) -> Result<()> {
        let time_s = seconds(network.now_ps);
        let scenario = network.scenario;
        for (index, flow) in network.flows.iter().enumerate() {
            if scenario.begin_ps(index) > network.now_ps {
                continue;
            }
            let counts = flow.counts;
            let common = FlowSample {
                time_s,
                sender: name(index),
                device: device(index),
                qpn: QPN,
                peer_qpn: Some(peer_qpn(index)),
                held: flow.held(),
                cnps: counts.cnps,
                cuts: counts.cuts,
                ..FlowSample::default()
            };
            self.flows.serialize(match network.view(index) {
                Some(view) => FlowSample {
                    rc_bps: view.rc_real as f64,
                    rt_bps: view.rt_real as f64,
                    alpha: fraction(view.alpha),
                    phase: phase(view.phase, view.limited).to_owned(),
                    time_stage: view.time_stage,
                    byte_stage: view.byte_stage,
                    ..common
                },
                None => FlowSample {
                    rc_bps: network.maximum_bps() as f64,
                    rt_bps: network.maximum_bps() as f64,
                    phase: crate::analysis::UNLIMITED.to_owned(),
                    ..common
                },
            })?;
            self.goodput.serialize(GoodputSample {
                time_s,
                sender: name(index),
                bytes: counts.received_bytes,
            })?;
            for (counter, value) in [
                ("rp_cnp_handled", counts.cnps),
                ("rp_cnp_ignored", counts.cnps_ignored),
                ("rp_rate_cuts", counts.cuts),
                ("rp_rate_increases", counts.increases),
            ] {
                self.count(time_s, &device(index), counter, value)?;
            }
        }
        let np = network.np_counts;
        let receiver = device(network.flows.len());
        for (counter, value) in [
            ("np_ecn_marked_roce_packets", np.marks),
            ("np_cnp_sent", np.immediate + np.deferred),
            ("np_cnp_immediate", np.immediate),
            ("np_cnp_deferred", np.deferred),
            ("np_cnp_suppressed", np.suppressed),
            ("np_ce_disabled", np.disabled),
        ] {
            self.count(time_s, &receiver, counter, value)?;
        }
        let totals = network.port.totals();
        self.queue.serialize(QueueSample {
            time_s,
            port: port(scenario),
            backlog_bytes: network.port.backlog_bytes(),
            sent_bytes: totals.sent_bytes,
            drops: totals.drops,
            marks: totals.marks,
        })?;
        Ok(())
    }

    fn event(&mut self, network: &Network<'_>, what: What, flow: usize) -> Result<()> {
        let Some(table) = &mut self.events else {
            return Ok(());
        };
        let at_receiver = (device(network.flows.len()), peer_qpn(flow), QPN);
        let at_sender = (device(flow), QPN, peer_qpn(flow));
        let mut write = |event: &str, of: &(String, u32, u32), detail: String| -> Result<()> {
            let view = (event == "rate_cut").then(|| network.view(flow)).flatten();
            table.serialize(recording::Event {
                time_s: seconds(network.now_ps),
                event: event.to_owned(),
                device: of.0.clone(),
                qpn: of.1,
                peer_qpn: Some(of.2),
                rc_bps: view.map(|view| view.rc_real as f64),
                rt_bps: view.map(|view| view.rt_real as f64),
                alpha: view.map(|view| fraction(view.alpha)),
                detail,
            })?;
            Ok(())
        };
        match what {
            What::Ce => write("ce", &at_receiver, String::new()),
            What::CnpSent { deferred } => {
                let kind = if deferred { "deferred" } else { "immediate" };
                write("cnp_tx", &at_receiver, format!("kind={kind}"))
            }
            What::CnpReceived { handled, cuts } => {
                let verdict = if handled { "handled" } else { "disabled" };
                write("cnp_rx", &at_sender, format!("verdict={verdict}"))?;
                match cuts {
                    0 => Ok(()),
                    cuts => write("rate_cut", &at_sender, format!("cuts={cuts}")),
                }
            }
        }
    }
}
