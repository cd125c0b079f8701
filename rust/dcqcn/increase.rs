// SPDX-License-Identifier: GPL-2.0

//! The climb back: what a completed stage of either clock does to Rc and Rt.
//!
//! In comes how many stages of the timer or of the byte counter complete in a
//! row, and how far apart they are; out go Rc, Rt, the two stages, whether the
//! limiter is still on, and the integral of Rc over the time of the run. When a
//! stage completes, and what a cut does, is left to the state machine.
//!
//! Runs can be long (a flow that sleeps for a day under a 1 us timer completes
//! 86 billion stages), so they are not always stepped. Let d = Rt - Rc, and let
//! a step add s to Rt before it halves the distance. Rounded down as Rc is,
//! d' = ceil((d + s) / 2). Where the steps are equal or grow by equal amounts h,
//! d follows the step: d = s - h + e, where s is the step just made, and e' =
//! ceil(e / 2). So after at most 64 steps e is 0 or 1 for good, and from there
//! any number of steps is one multiplication: [`Climb::jump`]. It is exact to the
//! last bit; whether a run is asked for in one piece or in many does not matter.

use super::params::HyperIncrease;
use super::rate::{widening_mul, Rate};
use super::snapshot::RpParams;

/// Shorter runs than this are stepped: a jump costs about as much.
const WORTH_A_JUMP: u64 = 8;

/// The three ways in which a rate recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No stage has reached F: Rc closes in on Rt, which stays.
    FastRecovery,
    /// One stage has: Rt grows by `rpg_ai_rate`.
    AdditiveIncrease,
    /// Both stages are past F: Rt grows by `rpg_hai_rate` and more.
    HyperIncrease,
}

/// The clock that completes a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StageClock {
    Timer,
    Bytes,
}

/// The times between the stages of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spacing {
    /// From the moment to which the state has come to the first stage.
    pub(super) first_ns: u64,
    /// From a stage to the next.
    pub(super) period_ns: u64,
}

impl Spacing {
    /// All stages at the moment to which the state has come.
    pub(super) const AT_ONCE: Spacing = Spacing {
        first_ns: 0,
        period_ns: 0,
    };
}

/// What a run has come to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    /// Stages completed: fewer than asked for if the limiter went off.
    pub(super) stages: u64,
    /// The integral of Rc until the last stage completed, 1/16 bit/s * ns.
    pub(super) integral: u128,
    /// Rounds it took to compute.
    pub(super) rounds: u32,
}

/// Rates and stages of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Climb {
    pub(super) rc: Rate,
    pub(super) rt: Rate,
    pub(super) time_stage: u64,
    pub(super) byte_stage: u64,
    /// The limiter is on. Off, Rc is the maximum and both clocks stand.
    pub(super) limited: bool,
}

/// A run of steps of one kind.
#[derive(Clone, Copy)]
struct Regime {
    /// What the next step adds to Rt.
    first: u64,
    /// What each further step adds more than the one before.
    growth: u64,
    /// How many steps are of this kind.
    length: u64,
}

impl Climb {
    /// A flow that nothing limits.
    pub(super) const fn unlimited(maximum: Rate) -> Self {
        Climb {
            rc: maximum,
            rt: maximum,
            time_stage: 0,
            byte_stage: 0,
            limited: false,
        }
    }

    pub(super) fn phase(&self, p: &RpParams) -> Phase {
        if self.time_stage.max(self.byte_stage) < p.threshold {
            Phase::FastRecovery
        } else if self.time_stage.min(self.byte_stage) > p.threshold {
            Phase::HyperIncrease
        } else {
            Phase::AdditiveIncrease
        }
    }

    /// Completes `stages` stages of a clock, or as many as it takes until the
    /// limiter goes off.
    pub(super) fn run(
        &mut self,
        clock: StageClock,
        stages: u64,
        spacing: Spacing,
        p: &RpParams,
    ) -> Run {
        let mut run = Run::default();
        let mut gap_ns = spacing.first_ns;
        while run.stages < stages && self.limited {
            run.rounds = run.rounds.saturating_add(1);
            let left = stages - run.stages;
            let jumped = if left < WORTH_A_JUMP {
                0
            } else {
                self.jump(clock, left, gap_ns, spacing.period_ns, &mut run.integral, p)
            };
            if jumped == 0 {
                self.pass(gap_ns, &mut run.integral);
                self.step(clock, p);
            }
            run.stages = run.stages.saturating_add(jumped.max(1));
            gap_ns = spacing.period_ns;
        }
        run
    }

    /// Adds a time without a change of Rc to the integral.
    pub(super) fn pass(&self, gap_ns: u64, integral: &mut u128) {
        *integral = integral.saturating_add(widening_mul(self.rc.units(), gap_ns));
    }

    fn stage(&mut self, clock: StageClock) -> &mut u64 {
        match clock {
            StageClock::Timer => &mut self.time_stage,
            StageClock::Bytes => &mut self.byte_stage,
        }
    }

    fn step(&mut self, clock: StageClock, p: &RpParams) {
        let stage = self.stage(clock);
        *stage = stage.saturating_add(1);
        let increase = match self.phase(p) {
            Phase::FastRecovery => None,
            Phase::AdditiveIncrease => Some(p.ai),
            Phase::HyperIncrease => {
                let least = self.time_stage.min(self.byte_stage);
                Some(hyper_step(least.saturating_sub(p.threshold), p))
            }
        };
        if let Some(step) = increase {
            self.rt = self.rt.plus(step).min(p.maximum);
        }
        self.rc = self.rc.middle(self.rt);
        if self.rc >= p.maximum.release_threshold() {
            self.rc = p.maximum;
            self.limited = false;
        }
    }

    /// The kind of the next step, and how long it stays that; none if the steps
    /// grow in another way than by equal amounts.
    fn regime(&self, clock: StageClock, p: &RpParams) -> Option<Regime> {
        let (moving, fixed) = match clock {
            StageClock::Timer => (self.time_stage, self.byte_stage),
            StageClock::Bytes => (self.byte_stage, self.time_stage),
        };
        let next = moving.saturating_add(1);
        let equal = |step: Rate, length: u64| Regime {
            first: step.units(),
            growth: 0,
            length,
        };

        if next.max(fixed) < p.threshold {
            return Some(equal(Rate::default(), p.threshold.saturating_sub(next)));
        }
        if fixed <= p.threshold {
            return Some(equal(p.ai, u64::MAX));
        }
        if next <= p.threshold {
            return Some(equal(p.ai, p.threshold.saturating_sub(moving)));
        }
        let regime = if next > fixed || p.hyper == HyperIncrease::Constant {
            equal(hyper_step(fixed.saturating_sub(p.threshold), p), u64::MAX)
        } else if p.hyper == HyperIncrease::Qcn {
            Regime {
                first: hyper_step(next.saturating_sub(p.threshold), p).units(),
                growth: p.hai.units(),
                length: fixed.saturating_sub(moving),
            }
        } else {
            return None;
        };
        // A saturated step is not what the formulas take it for.
        (regime.first < Rate::LIMIT.units()).then_some(regime)
    }

    /// Makes as many steps at once as are known to be alike, at most `left`, the
    /// first after `gap_ns`, and says how many; 0 if the next one is special:
    /// still settling, meeting the maximum, or releasing the limiter.
    fn jump(
        &mut self,
        clock: StageClock,
        left: u64,
        gap_ns: u64,
        period_ns: u64,
        integral: &mut u128,
        p: &RpParams,
    ) -> u64 {
        let Some(Regime {
            first,
            growth,
            length,
        }) = self.regime(clock, p)
        else {
            return 0;
        };
        let (rc, rt) = (self.rc.units(), self.rt.units());
        let settled = i128::from(first) - 2 * i128::from(growth);
        let excess = i128::from(rt) - i128::from(rc) - settled;
        if excess != 0 && excess != 1 {
            return 0;
        }

        // Rt alone has to stay below the maximum, so steps * first < 2^63, and as
        // growth <= first, steps * growth too: nothing below overflows.
        let room = p.maximum.units().saturating_sub(rt);
        let most = left
            .min(length)
            .min(room.checked_div(first).unwrap_or(u64::MAX));
        // What the growth alone adds to Rt in so many steps.
        let grown =
            |steps: u64| widening_mul(growth.wrapping_mul(steps), steps.saturating_sub(1)) >> 1;
        let after = |rate: u64, step: u64, steps: u64| {
            u128::from(rate)
                .saturating_add(widening_mul(step, steps))
                .saturating_add(grown(steps))
        };
        let rt_after = |steps: u64| after(rt, first, steps);
        // Each step of Rc lags one growth behind.
        let lagging = first.saturating_sub(growth);
        let rc_after = |steps: u64| after(rc, lagging, steps);

        // The largest number of steps that neither meet the maximum nor release.
        let maximum = u128::from(p.maximum.units());
        let release = u128::from(p.maximum.release_threshold().units());
        let (mut steps, mut too_many) = (0_u64, most.saturating_add(1));
        loop {
            let middle = steps.saturating_add(too_many.saturating_sub(steps) >> 1);
            if middle == steps {
                break;
            }
            if rt_after(middle) <= maximum && rc_after(middle) < release {
                steps = middle;
            } else {
                too_many = middle;
            }
        }
        if steps == 0 {
            return 0;
        }

        // Rc before the first step lasts gap_ns, before each other one period_ns:
        // the sum of rc_after(j) for j in 1..steps.
        self.pass(gap_ns, integral);
        let pairs = widening_mul(steps, steps - 1) >> 1;
        // Growth is at least 1 Mb/s, so the steps are fewer than 2^21.
        let triples = if growth == 0 {
            0
        } else {
            steps
                .saturating_mul(steps - 1)
                .saturating_mul(steps.saturating_sub(2))
                / 6
        };
        let sum = widening_mul(rc, steps - 1)
            .saturating_add(pairs.saturating_mul(u128::from(lagging)))
            .saturating_add(widening_mul(growth, triples));
        *integral = integral.saturating_add(sum.saturating_mul(u128::from(period_ns)));

        // Both are below the maximum, a u64.
        self.rc = Rate::from_units(rc_after(steps) as u64);
        self.rt = Rate::from_units(rt_after(steps) as u64);
        let stage = self.stage(clock);
        *stage = stage.saturating_add(steps);
        steps
    }
}

/// The step of hyper increase when the lesser stage is `past` stages (1 and up)
/// past F.
fn hyper_step(past: u64, p: &RpParams) -> Rate {
    match p.hyper {
        HyperIncrease::Qcn => p.hai.times(past),
        HyperIncrease::Constant => p.hai,
        HyperIncrease::Doubling => {
            let doublings = past.saturating_sub(1).min(63) as u32;
            p.hai.times(1 << doublings)
        }
    }
}
