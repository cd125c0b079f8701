// SPDX-License-Identifier: GPL-2.0

//! What a run came to: rates, fairness, the queue, and when it had settled.
//!
//! In come the queue's changes and the network at the start and the end of what is
//! measured, out comes an [`Outcome`]. The queue's mean and percentiles are over time,
//! not over packets or samples.

use hdrhistogram::Histogram;

use crate::analysis::{series::jain, CONVERGED};

use super::engine::{Network, NpCounts};
use super::flow::Counts;
use super::port::Totals;
use super::scenario::{Scenario, PS_PER_SEC};

/// The time from the last flow's begin to the end is looked at in this many parts, and
/// this many at the end must be fair, as in [`crate::analysis`].
const PARTS: u64 = 20;
const CONVERGED_PARTS: usize = 5;

/// What one flow came to, in the measured time.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub(crate) struct FlowOutcome {
    pub(crate) name: String,
    pub(crate) begin_s: f64,
    /// IP packets that arrived, bit/s.
    pub(crate) goodput_bps: f64,
    pub(crate) marks: u64,
    pub(crate) cnps: u64,
    pub(crate) cuts: u64,
    /// Rc and alpha at the end; none without a CNP.
    pub(crate) rc_bps: Option<f64>,
    pub(crate) alpha: Option<f64>,
    /// How long its transfer took.
    pub(crate) completion_s: Option<f64>,
}

/// What it all came to. Counts and rates are of the measured time.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Outcome {
    pub(crate) measured_s: (f64, f64),
    pub(crate) flows: Vec<FlowOutcome>,
    /// What the bottleneck carried of what it could, 0..1.
    pub(crate) utilisation: f64,
    pub(crate) jain: f64,
    pub(crate) queue_mean_bytes: f64,
    pub(crate) queue_p99_bytes: u64,
    pub(crate) queue_max_bytes: u64,
    pub(crate) drops: u64,
    pub(crate) marks: u64,
    pub(crate) marked_share: f64,
    pub(crate) cnps_sent: u64,
    pub(crate) cnps_deferred: u64,
    pub(crate) cnps_handled: u64,
    pub(crate) cuts: u64,
    /// Mean of the flows' alphas, over the samples.
    pub(crate) alpha_mean: Option<f64>,
    /// From the last flow's begin until fair for good; none if never.
    pub(crate) convergence_s: Option<f64>,
}

/// Totals at one moment.
#[derive(Clone, Debug, Default)]
struct Mark {
    at_ps: u64,
    port: Totals,
    np: NpCounts,
    flows: Vec<Counts>,
}

impl Mark {
    fn of(network: &Network<'_>) -> Self {
        Self {
            at_ps: network.now_ps,
            port: network.port.totals(),
            np: network.np_counts,
            flows: network.flows.iter().map(|flow| flow.counts).collect(),
        }
    }

    /// IP bytes of each flow since an earlier moment.
    fn received(&self, earlier: &Mark) -> Vec<f64> {
        self.flows
            .iter()
            .zip(&earlier.flows)
            .map(|(now, before)| (now.received_bytes - before.received_bytes) as f64)
            .collect()
    }

    fn utilisation(&self, earlier: &Mark, rate_bps: f64) -> f64 {
        let bits = (self.port.sent_bytes - earlier.port.sent_bytes) as f64 * 8.0;
        bits / (rate_bps * seconds(self.at_ps - earlier.at_ps))
    }
}

/// Looks for the moment from which on all flows have their share.
struct Convergence {
    begin_ps: u64,
    part_ps: u64,
    /// The end of each part and what each flow had received by then.
    ends: Vec<Mark>,
}

/// The measurement.
pub(crate) struct Meter {
    begin: Option<Mark>,
    queue: Histogram<u64>,
    /// Bytes times picoseconds.
    queue_area: f64,
    queue_since_ps: u64,
    /// Sum and number of alphas sampled.
    alphas: (f64, u64),
    convergence: Convergence,
}

impl Meter {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let begin_ps = scenario.begin_ps(scenario.flows as usize - 1);
        Self {
            begin: None,
            queue: Histogram::new(3).expect("three digits are supported"),
            queue_area: 0.0,
            queue_since_ps: 0,
            alphas: (0.0, 0),
            convergence: Convergence {
                begin_ps,
                part_ps: ((scenario.duration_ps - begin_ps) / PARTS).max(1),
                ends: Vec::new(),
            },
        }
    }

    /// From now on it counts.
    pub(crate) fn begin(&mut self, network: &Network<'_>) {
        self.begin = Some(Mark::of(network));
        self.queue.reset();
        self.queue_area = 0.0;
        self.queue_since_ps = network.now_ps;
        self.alphas = (0.0, 0);
    }

    /// The backlog was this until now.
    pub(crate) fn backlog(&mut self, now_ps: u64, bytes: u64) {
        if now_ps == self.queue_since_ps {
            return;
        }
        let gap_ps = now_ps - self.queue_since_ps;
        self.queue_area += bytes as f64 * gap_ps as f64;
        self.queue
            .record_n(bytes, gap_ps)
            .expect("the histogram grows");
        self.queue_since_ps = now_ps;
    }

    /// Looks at the network, each sample interval.
    pub(crate) fn sample(&mut self, network: &Network<'_>) {
        self.convergence.look(network);
        for flow in 0..network.flows.len() {
            if let Some(alpha) = alpha(network, flow) {
                self.alphas.0 += alpha;
                self.alphas.1 += 1;
            }
        }
    }

    /// The end.
    pub(crate) fn end(mut self, network: &Network<'_>) -> Outcome {
        // Transfers may be over before the warm-up is: then there is only the whole.
        let whole = Mark {
            flows: vec![Counts::default(); network.flows.len()],
            ..Mark::default()
        };
        self.backlog(network.now_ps, network.port.backlog_bytes());
        let begin = self.begin.unwrap_or(whole);
        let end = Mark::of(network);
        let window_s = seconds(end.at_ps - begin.at_ps).max(f64::MIN_POSITIVE);
        let received = end.received(&begin);
        let scenario = network.scenario;
        let flows = received.iter().enumerate().map(|(index, bytes)| {
            let (now, before) = (&end.flows[index], &begin.flows[index]);
            let begin_ps = scenario.begin_ps(index);
            let completed_ps = network.flows[index].completed_ps;
            // A flow that did not send all the time is asked how fast it was while it did.
            let until_ps = completed_ps.unwrap_or(end.at_ps);
            let active_ps = until_ps.saturating_sub(begin_ps.max(begin.at_ps));
            FlowOutcome {
                name: name(index),
                begin_s: seconds(begin_ps),
                goodput_bps: bytes * 8.0 / seconds(active_ps).max(1e-12),
                marks: now.marks - before.marks,
                cnps: now.cnps - before.cnps,
                cuts: now.cuts - before.cuts,
                rc_bps: network.view(index).map(|view| view.rc_real as f64),
                alpha: alpha(network, index),
                completion_s: completed_ps.map(|at_ps| seconds(at_ps - begin_ps)),
            }
        });
        let flows: Vec<_> = flows.collect();
        let goodputs: Vec<_> = flows.iter().map(|flow| flow.goodput_bps).collect();
        let sent = end.port.sent_bytes - begin.port.sent_bytes;
        let packets = sent as f64 / f64::from(scenario.packet_bytes);
        let marks = end.port.marks - begin.port.marks;
        let cnps_sent = |np: &NpCounts| np.immediate + np.deferred;
        Outcome {
            measured_s: (seconds(begin.at_ps), seconds(end.at_ps)),
            utilisation: end.utilisation(&begin, scenario.rate_bps),
            jain: jain(&goodputs).unwrap_or(0.0),
            queue_mean_bytes: self.queue_area / (window_s * PS_PER_SEC as f64),
            queue_p99_bytes: self.queue.value_at_quantile(0.99),
            queue_max_bytes: self.queue.max(),
            drops: end.port.drops - begin.port.drops,
            marks,
            // Marked at one end of the queue, counted as sent at the other.
            marked_share: (marks as f64 / packets.max(1.0)).min(1.0),
            cnps_sent: cnps_sent(&end.np) - cnps_sent(&begin.np),
            cnps_deferred: end.np.deferred - begin.np.deferred,
            cnps_handled: flows.iter().map(|flow| flow.cnps).sum(),
            cuts: flows.iter().map(|flow| flow.cuts).sum(),
            alpha_mean: (self.alphas.1 > 0).then(|| self.alphas.0 / self.alphas.1 as f64),
            convergence_s: self.convergence.seconds(),
            flows,
        }
    }
}

impl Convergence {
    fn look(&mut self, network: &Network<'_>) {
        let due_ps = self.begin_ps + self.ends.len() as u64 * self.part_ps;
        let all_send = network.flows.iter().all(|flow| flow.completed_ps.is_none());
        if network.now_ps >= due_ps && all_send {
            self.ends.push(Mark::of(network));
        }
    }

    /// Until each flow's goodput stays within its share's tolerance.
    fn seconds(&self) -> Option<f64> {
        let fair = |part: &[Mark]| {
            let [from, to] = part else {
                return false;
            };
            let received = to.received(from);
            let share = received.iter().sum::<f64>() / received.len() as f64;
            let near = |bytes: &f64| (bytes - share).abs() <= CONVERGED * share;
            share > 0.0 && received.iter().all(near)
        };
        let parts: Vec<_> = self.ends.windows(2).map(fair).collect();
        let first = parts
            .iter()
            .rposition(|fair| !fair)
            .map_or(0, |last| last + 1);
        let long_enough = first + CONVERGED_PARTS <= parts.len();
        long_enough.then(|| seconds(self.ends[first].at_ps - self.begin_ps))
    }
}

/// The name of a sender.
pub(crate) fn name(flow: usize) -> String {
    format!("h{}", flow + 1)
}

/// alpha, 0..1.
fn alpha(network: &Network<'_>, flow: usize) -> Option<f64> {
    network.view(flow).map(|view| fraction(view.alpha))
}

/// The module's alpha as a fraction of 1.
pub(crate) fn fraction(alpha: rxe_cc::dcqcn::rp::Alpha) -> f64 {
    alpha.units() as f64 / (1_u64 << (rxe_cc::dcqcn::rp::Alpha::FRACTION_BITS + 10)) as f64
}

pub(crate) fn seconds(ps: u64) -> f64 {
    ps as f64 / PS_PER_SEC as f64
}
