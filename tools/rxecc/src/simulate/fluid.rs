// SPDX-License-Identifier: GPL-2.0

//! The fluid model of DCQCN (Zhu et al., SIGCOMM 2015 and CoNEXT 2016): where N equal
//! flows come to rest.
//!
//! In comes a scenario, out come the marking probability p*, alpha* and the queue q* at
//! which nothing moves any more. At rest each flow has Rc = C / N, and what cuts take
//! from Rc is what increases give back. With the rate of a flow in packets a second,
//!
//! - a = 1 - (1 - p)^(tau Rc): the chance of a cut in tau, the time between CNPs,
//! - alpha = 1 - (1 - p)^(tau' Rc), tau' the window of alpha,
//! - b = p / ((1 - p)^-B - 1): byte stages for each packet, B packets a stage,
//! - c = (1 - p)^(F B) b: those of them past fast recovery,
//! - d = p / ((1 - p)^-(T Rc) - 1) and e = (1 - p)^(F T Rc) d: the same for the timer,
//!
//! Rt rests when (Rt - Rc) a / tau = R_AI Rc (c + e), and Rc when
//! alpha a / tau = (Rt - Rc) (b + d), so
//!
//! > alpha a^2 = tau^2 R_AI Rc (b + d) (c + e)
//!
//! whose left side grows with p and whose right side falls. Hyper increase is not in
//! the model, and every cut is taken to make Rt = Rc.

use rxe_cc::dcqcn::params::Id;

use super::red::Average;
use super::scenario::Scenario;

/// Where the flows come to rest.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct FixedPoint {
    /// p*, the share of packets that is marked.
    pub(crate) probability: f64,
    /// alpha*, 0..1.
    pub(crate) alpha: f64,
    /// q*, bytes.
    pub(crate) queue_bytes: f64,
    /// p* is above Pmax: the queue is pinned at Kmax.
    pub(crate) pinned: bool,
}

/// The model's parameters; packets and seconds.
struct Model {
    rate: f64,
    ai: f64,
    tau: f64,
    alpha_window: f64,
    timer: f64,
    byte_stage: f64,
    threshold: f64,
    /// What a cut takes of alpha, 1/2 in the paper.
    cut: f64,
}

impl Model {
    fn of(scenario: &Scenario) -> Self {
        let knob = |id| f64::from(scenario.knobs.get(id));
        let dilation = knob(Id::Dilation);
        let seconds = |id| knob(id) * 1e-6 * dilation;
        let packet_bits = f64::from(scenario.packet_bytes) * 8.0;
        let cnps = seconds(Id::MinTimeBetweenCnps);
        Self {
            rate: scenario.rate_bps / f64::from(scenario.flows) / packet_bits,
            ai: knob(Id::RpgAiRate) * 1e6 / dilation / packet_bits,
            tau: cnps.max(seconds(Id::RateReduceMonitorPeriod)),
            alpha_window: seconds(Id::DceTcpRtt),
            timer: seconds(Id::RpgTimeReset),
            byte_stage: knob(Id::RpgByteReset) * 64.0 / f64::from(scenario.packet_bytes),
            threshold: knob(Id::RpgThreshold),
            cut: 1024.0 / 2.0_f64.powf(knob(Id::RpgGd)),
        }
    }

    /// 1 - (1 - p)^packets.
    fn any_marked(p: f64, packets: f64) -> f64 {
        -((-p).ln_1p() * packets).exp_m1()
    }

    fn alpha(&self, p: f64) -> f64 {
        Self::any_marked(p, self.alpha_window * self.rate)
    }

    /// Stages of so many packets, for each packet: all, and those past fast recovery.
    fn stages(&self, p: f64, packets: f64) -> (f64, f64) {
        if packets <= 0.0 {
            return (0.0, 0.0);
        }
        let log = (-p).ln_1p();
        let all = p / (-log * packets).exp_m1();
        (all, (log * self.threshold * packets).exp() * all)
    }

    /// What cuts take, less what increases give: grows with p.
    fn excess(&self, p: f64) -> f64 {
        let a = Self::any_marked(p, self.tau * self.rate);
        let (b, c) = self.stages(p, self.byte_stage);
        let (d, e) = self.stages(p, self.timer * self.rate);
        let loss = 2.0 * self.cut * self.alpha(p) * a * a;
        loss - self.tau * self.tau * self.ai * self.rate * (b + d) * (c + e)
    }
}

/// The fixed point; `None` without RED, or where the model has none.
pub(crate) fn fixed_point(scenario: &Scenario) -> Option<FixedPoint> {
    let line = scenario.red?;
    let model = Model::of(scenario);
    let (mut low, mut high) = (1e-12_f64, 1.0 - 1e-12);
    if model.excess(low) > 0.0 || model.excess(high) < 0.0 {
        return None;
    }
    // In steps of the exponent: p is anything between 1e-9 and 1.
    for _ in 0..200 {
        let middle = (low * high).sqrt();
        if model.excess(middle) > 0.0 {
            high = middle;
        } else {
            low = middle;
        }
    }
    let probability = low;
    // tc's RED at x on the line marks one packet in (1 + 1 / x) / 2.
    let on_line = match scenario.average {
        Average::Instant => probability,
        Average::Tc { .. } => probability / (2.0 - probability),
    };
    Some(FixedPoint {
        probability,
        alpha: model.alpha(probability),
        queue_bytes: line.queue_of(on_line),
        pinned: on_line > line.probability,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper(flows: u32) -> FixedPoint {
        let mut scenario = Scenario::named("paper-40g").unwrap();
        scenario.flows = flows;
        fixed_point(&scenario).unwrap()
    }

    #[test]
    fn the_papers_parameters_give_the_published_queues() {
        for (flows, kilobytes) in [(2, 20.0), (4, 42.0), (8, 94.0), (10, 123.0)] {
            let point = paper(flows);
            assert!(!point.pinned);
            assert!(
                (point.queue_bytes / 1000.0 - kilobytes).abs() < 0.5,
                "N = {flows}: {point:?}"
            );
        }
    }

    #[test]
    fn from_16_flows_on_the_queue_is_pinned_at_kmax() {
        for flows in [16, 32, 64] {
            let point = paper(flows);
            assert!(point.pinned);
            assert_eq!(point.queue_bytes, 200_000.0);
        }
    }

    #[test]
    fn slow_motion_changes_nothing() {
        let fast = Scenario::named("paper-40g").unwrap();
        let mut slow = fast.clone();
        slow.rate_bps /= 1000.0;
        slow.knobs.set(Id::Dilation, 1000);
        let (fast, slow) = (fixed_point(&fast).unwrap(), fixed_point(&slow).unwrap());
        assert!((fast.queue_bytes / slow.queue_bytes - 1.0).abs() < 1e-6);
        assert!((fast.alpha / slow.alpha - 1.0).abs() < 1e-6);
    }

    #[test]
    fn without_marks_there_is_no_fixed_point() {
        let mut scenario = Scenario::named("paper-40g").unwrap();
        scenario.red = None;
        assert_eq!(fixed_point(&scenario), None);
    }
}
