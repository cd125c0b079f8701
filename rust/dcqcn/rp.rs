// SPDX-License-Identifier: GPL-2.0

//! The RP's state machine: the rate of one flow, from the CNPs it gets.
//!
//! In come CNPs, departures, reads and changed knobs of one flow, each with its
//! time; out come Rc, Rt and alpha, what happened on the way ([`Events`]), and
//! when something will happen by itself. Which CNP is accepted, where states are
//! kept, and counters are left to others; holding packets to the rate is the
//! [pacer](super::pacer)'s.
//!
//! ```text
//!              first CNP                      stage completes
//!   (no state) ---------> limited, cut <---+--> fast recovery
//!        ^                    |        CNP |      additive increase
//!        |                    v            |      hyper increase
//!        +---- unlimited <-----------------+---------+
//!         1 s without CNP         Rc within 1/1024 of the maximum
//! ```
//!
//! Nothing ticks. A call at `now_ns` first does everything that was due until
//! then, that instant included, in the order of time (at one instant: the alpha
//! window, then a pending cut, then the timer), then its own event. The result is
//! to the last bit that of ticking clocks, however often somebody looks in between,
//! and the work is bounded whatever the time that has passed. A time before the
//! last one counts as the last one.
//!
//! Rates are model rates (see [`super::rate`]), times are real nanoseconds. All
//! calls between two changes of the knobs take the same snapshot; a change is
//! told by [`State::on_params`].

pub use super::alpha::Alpha;
use super::alpha::AlphaClock;
pub use super::increase::Phase;
use super::increase::{Climb, Spacing, StageClock};
use super::rate::Rate;
use super::snapshot::RpParams;

/// The state of one flow that got a CNP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    climb: Climb,
    alpha: AlphaClock,
    /// Sent since the last byte stage.
    bytes: u64,
    /// When the timer's running period began.
    timer_start_ns: u64,
    /// The last cut, or the first CNP if that set the rate.
    last_cut_ns: u64,
    last_cnp_ns: u64,
    /// Everything due until then is done.
    now_ns: u64,
    /// A CNP waits for the end of the monitor period.
    cut_pending: bool,
    /// The state could have been freed: the next CNP is a first one.
    forgotten: bool,
}

/// What happened during a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "the pacer needs the credit, the counters the rest"]
pub struct Events {
    /// Cuts made.
    pub cuts: u32,
    /// Stages completed, each an increase.
    pub increases: u64,
    /// The limiter was off before and is on now.
    pub limiter_on: bool,
    /// The limiter was on before and is off now.
    pub limiter_off: bool,
    /// The integral of Rc over the time passed, for the pacer.
    pub credit: Credit,
    /// Rounds it took to compute this; bounded, and watched by the tests.
    pub rounds: u32,
}

impl Events {
    /// What happened in two calls, one after the other. The credit is the second
    /// one's: the pacer has the first one's already.
    pub fn and(self, later: Self) -> Self {
        Events {
            cuts: self.cuts.saturating_add(later.cuts),
            increases: self.increases.saturating_add(later.increases),
            // On and off again is no change, and the gauge must not see one.
            limiter_on: (self.limiter_on && !later.limiter_off)
                || (later.limiter_on && !self.limiter_off),
            limiter_off: (self.limiter_off && !later.limiter_on)
                || (later.limiter_off && !self.limiter_on),
            credit: later.credit,
            rounds: self.rounds.saturating_add(later.rounds),
        }
    }

    /// What happens in [`State::first_cnp`].
    pub fn of_first_cnp(p: &RpParams) -> Self {
        Events {
            cuts: u32::from(p.first_cnp_rate.is_none()),
            limiter_on: true,
            ..Events::default()
        }
    }
}

/// The integral of a model rate over real time, in 1/16 bit/s * ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Credit(pub(super) u128);

impl Credit {
    /// In 1/16 bit/s * ns.
    pub const fn units(self) -> u128 {
        self.0
    }
}

/// A flow as it is at the moment to which its state was advanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Current rate, model bit/s.
    pub rc: u64,
    /// Target rate, model bit/s.
    pub rt: u64,
    /// Current rate, real bit/s.
    pub rc_real: u64,
    /// Target rate, real bit/s.
    pub rt_real: u64,
    /// The congestion estimate.
    pub alpha: Alpha,
    /// Stages of the timer since the last cut.
    pub time_stage: u64,
    /// Stages of the byte counter since the last cut.
    pub byte_stage: u64,
    /// How the rate recovers.
    pub phase: Phase,
    /// The limiter is on.
    pub limited: bool,
    /// A CNP waits for the end of the monitor period to cut.
    pub cut_pending: bool,
}

impl State {
    /// The state that a first CNP creates. [`Events::of_first_cnp`] counts it.
    pub fn first_cnp(now_ns: u64, p: &RpParams) -> State {
        let mut state = State {
            climb: Climb::unlimited(p.maximum),
            alpha: AlphaClock::new(p.initial_alpha, now_ns),
            bytes: 0,
            timer_start_ns: now_ns,
            last_cut_ns: now_ns,
            last_cnp_ns: now_ns,
            now_ns,
            cut_pending: false,
            forgotten: false,
        };
        match p.first_cnp_rate {
            Some(rate) => {
                state.climb.rc = rate;
                state.climb.rt = rate;
                state.climb.limited = true;
            }
            None => state.cut(p),
        }
        state
    }

    /// A CNP: a cut, now or when the monitor period ends.
    pub fn on_cnp(&mut self, now_ns: u64, p: &RpParams) -> Events {
        self.observed(p, |state| {
            let mut events = state.run_until(now_ns, p);
            if state.forgotten {
                *state = State::first_cnp(state.now_ns, p);
                events.cuts = events.cuts.saturating_add(Events::of_first_cnp(p).cuts);
                return events;
            }
            state.alpha.on_cnp(state.now_ns, p);
            state.last_cnp_ns = state.now_ns;
            if state.now_ns.saturating_sub(state.last_cut_ns) >= p.monitor_ns.get() {
                state.cut(p);
                events.cuts = events.cuts.saturating_add(1);
            } else {
                state.cut_pending = true;
            }
            events
        })
    }

    /// A packet of `wire_bytes` (the Ethernet frame without FCS) left.
    pub fn on_sent(&mut self, now_ns: u64, wire_bytes: u32, p: &RpParams) -> Events {
        self.observed(p, |state| {
            let mut events = state.run_until(now_ns, p);
            if let (true, Some(period)) = (state.climb.limited, p.byte_reset) {
                let bytes = state.bytes.saturating_add(u64::from(wire_bytes));
                state.bytes = bytes % period;
                state.complete_byte_stages(bytes / period, p, &mut events);
            }
            events
        })
    }

    /// A read: brings the state to `now_ns`.
    pub fn advance(&mut self, now_ns: u64, p: &RpParams) -> Events {
        self.observed(p, |state| state.run_until(now_ns, p))
    }

    /// The knobs, the line rate or the dilation changed at `now_ns`; acts at
    /// once.
    ///
    /// A lower maximum bounds Rc and Rt. A clock that the new period has already
    /// passed completes now, once, and starts anew from now: the timer, the alpha
    /// window, a pending cut, and in the same way the byte counter. Another
    /// dilation keeps the real rates.
    ///
    /// Without a limiter Rc is the new maximum; Rt follows one that rises, so
    /// that the recovery from a later cut does not stop at a line rate of the
    /// past.
    pub fn on_params(&mut self, now_ns: u64, old: &RpParams, new: &RpParams) -> Events {
        self.observed(new, |state| {
            let mut events = state.run_until(now_ns, old);
            state.take_rates_over(old, new);
            state.alpha.on_params(state.now_ns, old, new);
            // What the new periods have ended already is due now.
            let due = state.run_until(now_ns, new);
            events.cuts = events.cuts.saturating_add(due.cuts);
            events.increases = events.increases.saturating_add(due.increases);
            events.rounds = events.rounds.saturating_add(due.rounds);
            match new.byte_reset {
                None => state.bytes = 0,
                Some(period) if state.climb.limited && state.bytes >= period.get() => {
                    state.bytes = 0;
                    state.complete_byte_stages(1, new, &mut events);
                }
                Some(_) => {}
            }
            events
        })
    }

    /// The flow at the moment to which it was advanced.
    pub fn view(&self, p: &RpParams) -> View {
        View {
            rc: self.climb.rc.bps(),
            rt: self.climb.rt.bps(),
            rc_real: self.climb.rc.real_bps(p.dilation),
            rt_real: self.climb.rt.real_bps(p.dilation),
            alpha: self.alpha.at(self.now_ns, p),
            time_stage: self.climb.time_stage,
            byte_stage: self.climb.byte_stage,
            phase: self.climb.phase(p),
            limited: self.climb.limited,
            cut_pending: self.cut_pending,
        }
    }

    /// Rc, real bit/s, rounded down.
    pub fn rate_real_bps(&self, p: &RpParams) -> u64 {
        self.climb.rc.real_bps(p.dilation)
    }

    /// Rc, a model rate.
    pub const fn rc(&self) -> Rate {
        self.climb.rc
    }

    /// Whether the limiter is on, as of the moment to which the state came.
    pub const fn limited(&self) -> bool {
        self.climb.limited
    }

    /// The moment to which the state came.
    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// When the last cut was; before the first one, when the state began.
    pub const fn last_cut_ns(&self) -> u64 {
        self.last_cut_ns
    }

    /// The next instant at which Rc may change by itself: a pending cut, or a
    /// stage of the timer.
    pub fn next_event_ns(&self, p: &RpParams) -> Option<u64> {
        match (self.cut_due_ns(p), self.timer_due_ns(p)) {
            (Some(cut), Some(timer)) => Some(cut.min(timer)),
            (cut, timer) => cut.or(timer),
        }
    }

    /// Whether the state may be freed: the limiter is off, no cut is pending, and
    /// the last CNP was one second (times the dilation) before `now_ns`. A state
    /// that is kept behaves as if it had been freed. Advance it to `now_ns`
    /// first: a limiter that went off meanwhile counts as on here.
    pub fn can_free(&self, now_ns: u64, p: &RpParams) -> bool {
        self.forgotten
            || (!self.climb.limited
                && !self.cut_pending
                && now_ns.saturating_sub(self.last_cnp_ns) >= p.forget_ns)
    }

    /// Runs `change`, and notes whether it switched the limiter or left a state
    /// that is of no more use.
    fn observed(&mut self, p: &RpParams, change: impl FnOnce(&mut Self) -> Events) -> Events {
        let before = self.climb.limited;
        let events = change(self);
        let after = self.climb.limited;
        self.forget_if_due(p);
        Events {
            limiter_on: !before && after,
            limiter_off: before && !after,
            ..events
        }
    }

    /// Becomes what a flow without state is, once the state may be freed.
    fn forget_if_due(&mut self, p: &RpParams) {
        if !self.forgotten && self.can_free(self.now_ns, p) {
            self.climb = Climb::unlimited(p.maximum);
            // From no particular time, as it must not matter when it was noticed.
            self.alpha = AlphaClock::new(Alpha::ZERO, 0);
            self.bytes = 0;
            self.forgotten = true;
        }
    }

    /// Does everything that is due until `now_ns`.
    fn run_until(&mut self, now_ns: u64, p: &RpParams) -> Events {
        let mut events = Events::default();
        let now_ns = now_ns.max(self.now_ns);
        let due = |at_ns: &u64| *at_ns <= now_ns;
        loop {
            let cut = self.cut_due_ns(p).filter(due);
            let timer = self.timer_due_ns(p).filter(due);
            match (cut, timer) {
                (Some(cut_ns), timer) if timer.is_none_or(|timer_ns| cut_ns <= timer_ns) => {
                    self.pass_until(cut_ns, &mut events);
                    self.cut(p);
                    events.cuts = events.cuts.saturating_add(1);
                }
                (cut, Some(timer_ns)) => {
                    // A cut takes precedence over a stage at its instant.
                    let last_ns = cut.map_or(now_ns, |cut_ns| cut_ns.saturating_sub(1));
                    let stages =
                        (last_ns.saturating_sub(timer_ns) / p.time_reset_ns).saturating_add(1);
                    self.complete_time_stages(timer_ns, stages, p, &mut events);
                }
                (_, None) => break,
            }
            events.rounds = events.rounds.saturating_add(1);
        }
        self.pass_until(now_ns, &mut events);
        self.forget_if_due(p);
        events
    }

    /// When a pending cut is due. A monitor period that was shortened below the
    /// time it has run ends at once, not in the past.
    fn cut_due_ns(&self, p: &RpParams) -> Option<u64> {
        if !self.cut_pending {
            return None;
        }
        let end_ns = self.last_cut_ns.checked_add(p.monitor_ns.get())?;
        Some(end_ns.max(self.now_ns))
    }

    /// When the next stage of the timer is due; the same holds for its period.
    fn timer_due_ns(&self, p: &RpParams) -> Option<u64> {
        if !self.climb.limited {
            return None;
        }
        let end_ns = self.timer_start_ns.checked_add(p.time_reset_ns.get())?;
        Some(end_ns.max(self.now_ns))
    }

    /// Lets time pass in which Rc does not change.
    fn pass_until(&mut self, at_ns: u64, events: &mut Events) {
        let gap_ns = at_ns.saturating_sub(self.now_ns);
        self.climb.pass(gap_ns, &mut events.credit.0);
        self.now_ns = self.now_ns.max(at_ns);
    }

    /// Completes stages of the timer, the first at `first_ns`, which are all due.
    fn complete_time_stages(
        &mut self,
        first_ns: u64,
        stages: u64,
        p: &RpParams,
        events: &mut Events,
    ) {
        let period_ns = p.time_reset_ns.get();
        let spacing = Spacing {
            first_ns: first_ns.saturating_sub(self.now_ns),
            period_ns,
        };
        let run = self.climb.run(StageClock::Timer, stages, spacing, p);
        events.credit.0 = events.credit.0.saturating_add(run.integral);
        events.increases = events.increases.saturating_add(run.stages);
        events.rounds = events.rounds.saturating_add(run.rounds);
        let after_first = run.stages.saturating_sub(1).saturating_mul(period_ns);
        self.now_ns = first_ns.saturating_add(after_first);
        self.timer_start_ns = self.now_ns;
    }

    /// Completes stages of the byte counter now.
    fn complete_byte_stages(&mut self, stages: u64, p: &RpParams, events: &mut Events) {
        let run = self
            .climb
            .run(StageClock::Bytes, stages, Spacing::AT_ONCE, p);
        events.increases = events.increases.saturating_add(run.stages);
        events.rounds = events.rounds.saturating_add(run.rounds);
    }

    /// Cuts Rc now.
    fn cut(&mut self, p: &RpParams) {
        let climb = &mut self.climb;
        if p.clamp_target
            || climb.byte_stage > 0
            || (p.clamp_target_after_time && climb.time_stage > 0)
        {
            climb.rt = climb.rc;
        }
        let alpha = self.alpha.at(self.now_ns, p);
        let decrease = alpha
            .share_of(climb.rc, p.gd)
            .min(climb.rc.percent(p.max_decrease_percent));
        climb.rc = climb.rc.minus(decrease).max(p.minimum);
        // A minimum that was raised since may have lifted it.
        climb.rt = climb.rt.max(climb.rc);
        climb.time_stage = 0;
        climb.byte_stage = 0;
        climb.limited = true;
        self.bytes = 0;
        self.timer_start_ns = self.now_ns;
        self.last_cut_ns = self.now_ns;
        self.cut_pending = false;
    }

    /// Moves Rc and Rt from one snapshot to the next.
    fn take_rates_over(&mut self, old: &RpParams, new: &RpParams) {
        let climb = &mut self.climb;
        let dilated = |rate: Rate| rate.dilated(old.dilation, new.dilation);
        if climb.limited {
            climb.rc = dilated(climb.rc).min(new.maximum);
            climb.rt = dilated(climb.rt).min(new.maximum);
        } else {
            climb.rc = new.maximum;
            climb.rt = if dilated(old.maximum) < new.maximum {
                new.maximum
            } else {
                dilated(climb.rt).min(new.maximum)
            };
        }
    }
}
