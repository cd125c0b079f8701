// SPDX-License-Identifier: GPL-2.0

//! A second opinion on the RP: the rules in floating point, ticked one by one,
//! with nothing of the module's code in it. Slow, and that is its merit.

use super::Knobs;
use rxe_cc::dcqcn::params::Id;

/// The knobs as numbers: rates in model bit/s, times in real ns, bytes.
#[derive(Clone, Debug)]
struct Rules {
    s: f64,
    max: f64,
    min: f64,
    first: f64,
    ai: f64,
    hai: f64,
    hyper: u32,
    f: u64,
    time_reset: i64,
    byte_reset: u64,
    monitor: i64,
    rtt: i64,
    g: f64,
    alpha0: f64,
    gd: i32,
    dec: f64,
    clamp: bool,
    clamp_after: bool,
    forget: i64,
}

impl Rules {
    fn new(knobs: &Knobs) -> Self {
        let num = |id| f64::from(knobs.get(id));
        let rate = |id| num(id) * 1e6;
        let s = num(Id::Dilation);
        let time = |id| i64::from(knobs.get(id)) * 1000 * s as i64;
        let line = match rate(Id::LineRate) {
            0.0 => f64::from(knobs.line_rate_mbps) * 1e6 * s,
            line => line * s,
        };
        let max = match rate(Id::RpgMaxRate) {
            0.0 => line,
            limit => line.min(limit),
        };
        Rules {
            s,
            max,
            min: rate(Id::RpgMinRate).min(max),
            first: rate(Id::RateToSetOnFirstCnp),
            ai: rate(Id::RpgAiRate),
            hai: rate(Id::RpgHaiRate),
            hyper: knobs.get(Id::HyperIncrease),
            f: u64::from(knobs.get(Id::RpgThreshold)),
            time_reset: time(Id::RpgTimeReset),
            byte_reset: u64::from(knobs.get(Id::RpgByteReset)) * 64,
            monitor: time(Id::RateReduceMonitorPeriod),
            rtt: time(Id::DceTcpRtt),
            g: num(Id::DceTcpG) / 1024.0,
            alpha0: num(Id::InitialAlphaValue) / 1024.0,
            gd: knobs.get(Id::RpgGd) as i32,
            dec: 1.0 - num(Id::RpgMinDecFac) / 100.0,
            clamp: knobs.get(Id::ClampTgtRate) == 1,
            clamp_after: knobs.get(Id::ClampTgtRateAfterTimeInc) == 1,
            forget: 1_000_000_000 * s as i64,
        }
    }
}

/// A flow's rate, and everything that decides it.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) rc: f64,
    pub(crate) rt: f64,
    /// 0..=1.
    pub(crate) alpha: f64,
    pub(crate) time_stage: u64,
    pub(crate) byte_stage: u64,
    pub(crate) limited: bool,
    pub(crate) pending: bool,
    bytes: u64,
    timer_start: i64,
    window_start: i64,
    cnp_in_window: bool,
    last_cut: i64,
    last_cnp: i64,
}

/// The flow, if it has state, and the time.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    rules: Rules,
    pub(crate) flow: Option<Flow>,
    now: i64,
    /// A release was decided by less than rounding can explain: from here on the
    /// module may rightly disagree.
    pub(crate) undecided: bool,
}

impl Model {
    pub(crate) fn new(knobs: &Knobs) -> Self {
        Model {
            rules: Rules::new(knobs),
            flow: None,
            now: 0,
            undecided: false,
        }
    }

    pub(crate) fn maximum(&self) -> f64 {
        self.rules.max
    }

    pub(crate) fn cnp(&mut self, now: u64) {
        self.advance(now);
        let (now, rules) = (self.now, &self.rules);
        match &mut self.flow {
            None => {
                let mut flow = Flow {
                    rc: rules.max,
                    rt: rules.max,
                    alpha: rules.alpha0,
                    time_stage: 0,
                    byte_stage: 0,
                    limited: true,
                    pending: false,
                    bytes: 0,
                    timer_start: now,
                    window_start: now,
                    cnp_in_window: false,
                    last_cut: now,
                    last_cnp: now,
                };
                if rules.first > 0.0 {
                    flow.rc = rules.first.max(rules.min).min(rules.max);
                    flow.rt = flow.rc;
                } else {
                    flow.cut(now, rules);
                }
                self.flow = Some(flow);
            }
            Some(flow) => {
                flow.cnp_in_window = true;
                flow.last_cnp = now;
                if now - flow.last_cut >= rules.monitor {
                    flow.cut(now, rules);
                } else {
                    flow.pending = true;
                }
            }
        }
    }

    pub(crate) fn sent(&mut self, now: u64, bytes: u32) {
        self.advance(now);
        self.count(bytes);
        // It may be free of its state now.
        self.advance(now);
    }

    fn count(&mut self, bytes: u32) {
        let Some(flow) = &mut self.flow else { return };
        if !flow.limited || self.rules.byte_reset == 0 {
            return;
        }
        flow.bytes += u64::from(bytes);
        while flow.bytes >= self.rules.byte_reset {
            flow.bytes -= self.rules.byte_reset;
            if !flow.limited {
                continue;
            }
            flow.byte_stage += 1;
            self.undecided |= flow.increase(&self.rules);
        }
    }

    pub(crate) fn advance(&mut self, now: u64) {
        let until = now as i64;
        while let Some(flow) = &mut self.flow {
            let rules = &self.rules;
            let never = i64::MAX;
            let window = flow.window_start + rules.rtt;
            let cut = if flow.pending {
                flow.last_cut + rules.monitor
            } else {
                never
            };
            let timer = if flow.limited {
                flow.timer_start + rules.time_reset
            } else {
                never
            };
            let free = if flow.limited || flow.pending {
                never
            } else {
                flow.last_cnp + rules.forget
            };
            // A clock that was shortened is due now, not in the past.
            let [window, cut, timer, free] = [window, cut, timer, free].map(|t| t.max(self.now));
            let next = window.min(cut).min(timer).min(free);
            if next > until {
                break;
            }
            self.now = next;
            if next == window {
                flow.alpha *= rules.g;
                if flow.cnp_in_window {
                    flow.alpha += 1.0 - rules.g;
                }
                flow.cnp_in_window = false;
                flow.window_start = next;
            } else if next == cut {
                flow.cut(next, rules);
            } else if next == timer {
                flow.timer_start = next;
                flow.time_stage += 1;
                self.undecided |= flow.increase(rules);
            } else {
                self.flow = None;
            }
        }
        self.now = self.now.max(until);
    }

    pub(crate) fn change(&mut self, now: u64, knobs: &Knobs) {
        self.advance(now);
        let old = std::mem::replace(&mut self.rules, Rules::new(knobs));
        let new = &self.rules;
        if let Some(flow) = &mut self.flow {
            let scale = new.s / old.s;
            if flow.limited {
                flow.rc = (flow.rc * scale).min(new.max);
                flow.rt = (flow.rt * scale).min(new.max);
            } else {
                flow.rc = new.max;
                flow.rt = if old.max * scale < new.max * (1.0 - 1e-12) {
                    new.max
                } else {
                    (flow.rt * scale).min(new.max)
                };
            }
        }
        self.advance(now);
        if let Some(flow) = &mut self.flow {
            if self.rules.byte_reset == 0 {
                flow.bytes = 0;
            } else if flow.limited && flow.bytes >= self.rules.byte_reset {
                flow.bytes = 0;
                flow.byte_stage += 1;
                self.undecided |= flow.increase(&self.rules);
            }
        }
        self.advance(now);
    }
}

impl Flow {
    fn cut(&mut self, now: i64, rules: &Rules) {
        if rules.clamp || self.byte_stage > 0 || (rules.clamp_after && self.time_stage > 0) {
            self.rt = self.rc;
        }
        let by_alpha = self.rc * self.alpha * 1024.0 / 2f64.powi(rules.gd);
        self.rc = (self.rc - by_alpha.min(self.rc * rules.dec)).max(rules.min);
        self.rt = self.rt.max(self.rc);
        self.time_stage = 0;
        self.byte_stage = 0;
        self.bytes = 0;
        self.timer_start = now;
        self.last_cut = now;
        self.pending = false;
        self.limited = true;
    }

    /// One increase; true if it was a close decision whether to release.
    fn increase(&mut self, rules: &Rules) -> bool {
        let most = self.time_stage.max(self.byte_stage);
        let least = self.time_stage.min(self.byte_stage);
        if most >= rules.f {
            let past = least as f64 - rules.f as f64;
            self.rt += match (least > rules.f, rules.hyper) {
                (false, _) => rules.ai,
                (true, 0) => past * rules.hai,
                (true, 1) => rules.hai,
                (true, _) => rules.hai * 2f64.powf((past - 1.0).min(1000.0)),
            };
            self.rt = self.rt.min(rules.max);
        }
        self.rc = (self.rc + self.rt) / 2.0;
        let gap = (rules.max - self.rc) * 1024.0 - rules.max;
        if gap <= 0.0 {
            self.rc = rules.max;
            self.limited = false;
        }
        gap.abs() < rules.max * 1e-3
    }
}
