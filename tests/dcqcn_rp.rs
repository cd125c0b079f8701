// SPDX-License-Identifier: GPL-2.0

//! Rules of the RP's state machine, over random knobs and histories.

mod dcqcn_common;
#[path = "dcqcn_common/model.rs"]
mod model;

use dcqcn_common::{any_knobs, usual_knobs, Knobs};
use model::Model;
use proptest::prelude::*;
use rxe_cc::dcqcn::params::{Id, Preset};
use rxe_cc::dcqcn::rp::{Alpha, Events, Phase, State};

const US: u64 = 1000;
const SECOND: u64 = 1_000_000_000;

/// How long until the next thing happens: in parts of a knob's period, so that
/// coincidences are common.
#[derive(Clone, Debug)]
enum Wait {
    Of(Id, u64),
    Seconds(u64),
}

const WHOLE: u64 = 64;

impl Wait {
    fn ns(&self, knobs: &Knobs) -> u64 {
        let dilation = u64::from(knobs.get(Id::Dilation));
        match self {
            Wait::Of(id, parts) => u64::from(knobs.get(*id)) * US * dilation * parts / WHOLE,
            Wait::Seconds(seconds) => seconds * SECOND * dilation,
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Cnp,
    Sent(u32),
    Read,
    Change(Id, u32),
}

fn wait() -> impl Strategy<Value = Wait> {
    let period = prop_oneof![
        Just(Id::RpgTimeReset),
        Just(Id::RateReduceMonitorPeriod),
        Just(Id::DceTcpRtt)
    ];
    let parts = prop_oneof![
        1 => Just(0),
        4 => (0..4u64).prop_map(|periods| periods * WHOLE),
        4 => 0..4 * WHOLE,
        1 => 0..40 * WHOLE,
    ];
    prop_oneof![
        60 => (period, parts).prop_map(|(id, parts)| Wait::Of(id, parts)),
        1 => (1..3u64).prop_map(Wait::Seconds),
    ]
}

/// One write to a knob.
fn change() -> impl Strategy<Value = Op> {
    let any_value_of =
        |id: Id, low: u32, high: u32| (low..=high).prop_map(move |v| Op::Change(id, v));
    prop_oneof![
        any_value_of(Id::RpgTimeReset, 5, 300),
        any_value_of(Id::DceTcpRtt, 1, 60),
        any_value_of(Id::RateReduceMonitorPeriod, 1, 60),
        any_value_of(Id::RpgByteReset, 0, 400),
        any_value_of(Id::RpgMaxRate, 0, 12_000),
        any_value_of(Id::RpgMinRate, 1, 50),
        any_value_of(Id::DceTcpG, 1, 1023),
        any_value_of(Id::RpgAiRate, 1, 2_000),
        any_value_of(Id::RpgThreshold, 1, 6),
        any_value_of(Id::LineRate, 1, 20_000),
        prop_oneof![Just(1), Just(2), Just(40), Just(1_000)]
            .prop_map(|s| Op::Change(Id::Dilation, s)),
    ]
}

fn op(changes: bool) -> impl Strategy<Value = Op> {
    let steady = prop_oneof![
        4 => Just(Op::Cnp),
        6 => prop_oneof![64..4200u32, 0..70_000u32].prop_map(Op::Sent),
        2 => Just(Op::Read),
    ];
    if changes {
        prop_oneof![6 => steady, 1 => change()].boxed()
    } else {
        steady.boxed()
    }
}

fn history(changes: bool) -> impl Strategy<Value = Vec<(Wait, Op)>> {
    prop::collection::vec((wait(), op(changes)), 1..60)
}

/// Sums up what calls report.
#[derive(Clone, Debug, Default, PartialEq)]
struct Totals {
    cuts: u32,
    increases: u64,
    limited: i32,
    credit: u128,
}

impl Totals {
    fn add(&mut self, events: &Events) {
        self.cuts += events.cuts;
        self.increases += events.increases;
        self.limited += i32::from(events.limiter_on) - i32::from(events.limiter_off);
        self.credit += events.credit.units();
    }
}

/// A flow in the module's hands.
#[derive(Clone, Debug)]
struct Flow {
    knobs: Knobs,
    state: Option<State>,
    totals: Totals,
}

impl Flow {
    fn new(knobs: &Knobs) -> Self {
        Flow {
            knobs: knobs.clone(),
            state: None,
            totals: Totals::default(),
        }
    }

    fn apply(&mut self, now: u64, op: &Op) {
        let p = self.knobs.params();
        let events = match (&mut self.state, op) {
            (state @ None, Op::Cnp) => {
                *state = Some(State::first_cnp(now, &p));
                Events::of_first_cnp(&p)
            }
            (Some(state), Op::Cnp) => state.on_cnp(now, &p),
            (Some(state), Op::Sent(bytes)) => state.on_sent(now, *bytes, &p),
            (Some(state), Op::Read) => state.advance(now, &p),
            (state, Op::Change(id, value)) => {
                self.knobs = self.knobs.clone().with(*id, *value);
                let new = self.knobs.params();
                match state {
                    Some(state) => state.on_params(now, &p, &new),
                    None => return,
                }
            }
            (None, _) => return,
        };
        self.totals.add(&events);
    }

    /// Comes to `now` one event at a time, looking at each.
    fn tick_to(&mut self, now: u64) {
        let p = self.knobs.params();
        while let Some(state) = &mut self.state {
            let Some(next) = state.next_event_ns(&p).filter(|next| *next <= now) else {
                break;
            };
            let before = *state;
            let events = state.advance(next, &p);
            assert!(events.increases <= 1 && events.cuts <= 1);
            assert!(
                events.increases + u64::from(events.cuts) > 0,
                "an event was announced for {next}: {before:?}"
            );
            self.totals.add(&events);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn lazily_advanced_is_ticked_step_by_step_and_reads_change_nothing(
        knobs in usual_knobs(),
        history in history(true),
        reads in prop::collection::vec(0..=WHOLE, 60),
    ) {
        let mut lazy = Flow::new(&knobs);
        let mut ticked = Flow::new(&knobs);
        let mut now = 5 * US;
        for ((wait, op), read) in history.iter().zip(reads) {
            let wait = wait.ns(&lazy.knobs);
            ticked.tick_to(now + wait * read / WHOLE);
            ticked.apply(now + wait * read / WHOLE, &Op::Read);
            now += wait;
            ticked.tick_to(now);
            ticked.apply(now, &Op::Read);
            if let Some(state) = &mut ticked.state {
                // Twice at one instant, and once from the past.
                let _ = state.advance(now, &ticked.knobs.params());
                let _ = state.advance(now / 2, &ticked.knobs.params());
            }
            ticked.apply(now, op);
            lazy.apply(now, op);
            prop_assert_eq!(&lazy.state, &ticked.state, "after {:?}", op);
            prop_assert_eq!(&lazy.totals, &ticked.totals);
        }
    }

    #[test]
    fn long_runs_of_stages_are_exact_in_every_phase(
        f in 1..6u32,
        ai in prop_oneof![1..100u32, 1..1_000_000u32],
        hai in prop_oneof![1..100u32, 1..1_000_000u32],
        hyper in 0..3u32,
        line in prop_oneof![1_000..1_000_000u32, any::<u32>()],
        first in 1..1_000u32,
        runs in prop::collection::vec((any::<bool>(), prop_oneof![1..40u32, 1..3_000u32]), 1..8),
    ) {
        // From a low rate under a high line, so that the climb is long: stages of
        // either clock one by one, and the same run in one piece.
        let knobs = Knobs::preset(Preset::ConnectX, 0)
            .with(Id::LineRate, line)
            .with(Id::RpgThreshold, f)
            .with(Id::RpgAiRate, ai)
            .with(Id::RpgHaiRate, hai)
            .with(Id::HyperIncrease, hyper)
            .with(Id::RpgByteReset, 2)
            .with(Id::RateToSetOnFirstCnp, first);
        let p = knobs.params();
        let period = Wait::Of(Id::RpgTimeReset, WHOLE).ns(&knobs);
        let mut whole = Flow::new(&knobs);
        whole.apply(7, &Op::Cnp);
        let mut pieces = whole.clone();
        for (timer, stages) in runs {
            let now = whole.state.map_or(0, |state| state.now_ns());
            if timer {
                let until = now + u64::from(stages) * period;
                pieces.tick_to(until);
                pieces.apply(until, &Op::Read);
                whole.apply(until, &Op::Read);
            } else {
                for _ in 0..stages {
                    pieces.apply(now, &Op::Sent(128));
                }
                whole.apply(now, &Op::Sent(128 * stages));
                if whole.state.is_some_and(|state| !state.limited()) {
                    // What a packet held when the limiter went off is of no use.
                    let view = |flow: &Flow| flow.state.map(|state| state.view(&p));
                    prop_assert_eq!(view(&whole), view(&pieces));
                    break;
                }
            }
            prop_assert_eq!(&whole.state, &pieces.state);
            prop_assert_eq!(&whole.totals, &pieces.totals);
        }
    }

    #[test]
    fn an_independent_model_agrees(
        knobs in usual_knobs(),
        history in history(true),
    ) {
        let mut flow = Flow::new(&knobs);
        let mut model = Model::new(&knobs);
        let mut now = 5 * US;
        for (wait, op) in &history {
            now += wait.ns(&flow.knobs);
            flow.apply(now, op);
            match op {
                Op::Cnp => model.cnp(now),
                Op::Sent(bytes) => model.sent(now, *bytes),
                Op::Read => model.advance(now),
                Op::Change(..) => model.change(now, &flow.knobs),
            }
            if model.undecided {
                break;
            }
            agrees(&flow, &model, now)?;
        }
    }

    #[test]
    fn rates_and_alpha_stay_in_their_bounds(
        knobs in any_knobs(),
        history in history(false),
    ) {
        let p = knobs.params();
        let mut flow = Flow::new(&knobs);
        let mut now = 0;
        for (wait, op) in &history {
            now += wait.ns(&knobs);
            flow.apply(now, op);
            let Some(state) = &flow.state else { continue };
            let view = state.view(&p);
            prop_assert!(view.rc <= p.maximum_bps());
            prop_assert!(view.rc >= p.minimum_bps());
            prop_assert!(view.rt <= p.maximum_bps());
            prop_assert!(view.alpha.units() <= 1024 << Alpha::FRACTION_BITS);
            prop_assert_eq!(view.rc_real, view.rc / p.dilation());
            prop_assert!(view.limited || view.rc == p.maximum_bps());
            let (least, most) = (
                view.time_stage.min(view.byte_stage),
                view.time_stage.max(view.byte_stage),
            );
            let f = u64::from(knobs.get(Id::RpgThreshold));
            let phase = match (most < f, least > f) {
                (true, _) => Phase::FastRecovery,
                (_, true) => Phase::HyperIncrease,
                _ => Phase::AdditiveIncrease,
            };
            prop_assert_eq!(view.phase, phase);
            prop_assert_eq!(flow.totals.limited, i32::from(view.limited), "the gauge");
        }
    }

    #[test]
    fn there_is_at_most_one_cut_in_a_monitor_period(
        knobs in usual_knobs(),
        history in history(false),
    ) {
        let p = knobs.params();
        let monitor = Wait::Of(Id::RateReduceMonitorPeriod, WHOLE).ns(&knobs);
        let mut flow = Flow::new(&knobs);
        let mut now = 0;
        // A rate set by the first CNP counts as a cut here.
        let mut last: Option<u64> = None;
        for (wait, op) in &history {
            let until = now + wait.ns(&knobs);
            loop {
                let next = flow.state.and_then(|state| state.next_event_ns(&p));
                let at = next.filter(|at| *at <= until);
                let before = flow.totals.cuts;
                let fresh = flow.state.is_none_or(|state| state.can_free(until, &p));
                match at {
                    Some(at) => flow.apply(at, &Op::Read),
                    None => flow.apply(until, op),
                }
                now = at.unwrap_or(until);
                let cuts = flow.totals.cuts - before;
                let set = fresh && at.is_none() && matches!(op, Op::Cnp);
                prop_assert!(cuts <= 1);
                if cuts == 1 || set {
                    if let Some(last) = last {
                        prop_assert!(now - last >= monitor, "{last} {now}");
                    }
                    last = Some(now);
                }
                if at.is_none() {
                    break;
                }
            }
        }
    }

    #[test]
    fn nothing_panics_whatever_the_knobs_the_times_and_the_order(
        calls in prop::collection::vec(
            (any::<u64>(), 0..5u8, any::<u32>(), any::<[u32; 26]>(), any_knobs()),
            1..12,
        ),
    ) {
        let (_, _, line, wild, tame) = &calls[0];
        let mut p = tame.params();
        let mut state = State::first_cnp(u64::from(*line), &p);
        let _ = rxe_cc::dcqcn::params::RpParams::from_values(|id| wild[id.index()], *line);
        for (time, what, value, wild, tame) in &calls {
            let wild = rxe_cc::dcqcn::params::RpParams::from_values(|id| wild[id.index()], *value);
            let next = if value % 2 == 0 { wild } else { tame.params() };
            let time = time >> (value % 64);
            let events = match what {
                0 => state.on_cnp(time, &p),
                1 => state.on_sent(time, *value, &p),
                2 => state.advance(time, &p),
                // Told of new knobs, and not told.
                3 => state.on_params(time, &p, &next),
                _ => state.advance(time, &next),
            };
            if *what == 3 {
                p = next;
            }
            prop_assert!(events.rounds < 1000, "{}", events.rounds);
            let view = state.view(&p);
            prop_assert!(view.alpha.units() <= 1024 << Alpha::FRACTION_BITS);
            let _ = (state.next_event_ns(&p), state.can_free(time, &p), state.rate_real_bps(&p));
        }
    }

    #[test]
    fn a_day_of_sleep_is_bounded_work(
        knobs in any_knobs(),
        sent in prop::collection::vec(prop_oneof![Just(u32::MAX), any::<u32>()], 0..6),
        cnps in 1..3u32,
    ) {
        let p = knobs.params();
        let mut state = State::first_cnp(0, &p);
        for nth in 0..cnps {
            let _ = state.on_cnp(u64::from(nth) * US, &p);
        }
        for bytes in sent {
            let events = state.on_sent(state.now_ns(), bytes, &p);
            prop_assert!(events.rounds < 1000, "sent {}", events.rounds);
        }
        let events = state.advance(state.now_ns() + 86_400 * SECOND, &p);
        prop_assert!(events.rounds < 1000, "slept {}", events.rounds);
    }
}

fn agrees(flow: &Flow, model: &Model, now: u64) -> Result<(), TestCaseError> {
    let p = flow.knobs.params();
    let state = flow.state.filter(|state| !state.can_free(now, &p));
    let context = format!("at {now}: {flow:?}\n{model:?}");
    prop_assert_eq!(state.is_some(), model.flow.is_some(), "{}", context);
    let (Some(state), Some(expected)) = (state, &model.flow) else {
        return Ok(());
    };
    let view = state.view(&p);
    let near = |found: u64, expected: f64| (found as f64 - expected).abs() <= expected * 1e-4 + 2.0;
    let alpha = view.alpha.units() as f64 / (1u64 << (Alpha::FRACTION_BITS + 10)) as f64;
    prop_assert!(near(p.maximum_bps(), model.maximum()), "{}", context);
    prop_assert!(near(view.rc, expected.rc), "{}", context);
    prop_assert!(near(view.rt, expected.rt), "{}", context);
    prop_assert!((alpha - expected.alpha).abs() < 1e-9, "{alpha} {context}");
    prop_assert_eq!(view.time_stage, expected.time_stage, "{}", context);
    prop_assert_eq!(view.byte_stage, expected.byte_stage, "{}", context);
    prop_assert_eq!(view.limited, expected.limited, "{}", context);
    prop_assert_eq!(view.cut_pending, expected.pending, "{}", context);
    Ok(())
}

#[test]
fn two_calls_together_switch_the_limiter_as_one_would() {
    let event = |limiter_on, limiter_off| Events {
        limiter_on,
        limiter_off,
        ..Events::default()
    };
    let (none, on, off) = (event(false, false), event(true, false), event(false, true));
    for (first, second, both) in [
        (none, none, none),
        (none, on, on),
        (none, off, off),
        (on, none, on),
        (off, none, off),
        (on, off, none),
        (off, on, none),
    ] {
        assert_eq!(first.and(second), both);
    }
}

#[test]
fn a_state_is_small() {
    assert!(size_of::<State>() <= 160, "{}", size_of::<State>());
}

#[test]
fn the_slowest_recovery_there_is_takes_a_day_in_few_rounds() {
    // 1 us stages of 1 Mb/s up to a line of 4 Pb/s: 4.3 billion stages.
    let knobs = Knobs::preset(Preset::ConnectX, 0)
        .with(Id::LineRate, u32::MAX)
        .with(Id::RpgTimeReset, 1)
        .with(Id::RpgAiRate, 1)
        .with(Id::RpgByteReset, 0)
        .with(Id::ClampTgtRate, 1)
        .with(Id::RateToSetOnFirstCnp, 1);
    let p = knobs.params();
    let mut state = State::first_cnp(0, &p);
    let events = state.advance(3_600 * SECOND, &p);
    let view = state.view(&p);
    assert_eq!(view.time_stage, 3_600_000_000);
    assert_eq!(view.rt, 3_600_000_000 * 1_000_000 + 1_000_000);
    assert!(events.rounds < 100, "{}", events.rounds);
    let events = state.advance(86_400 * SECOND, &p);
    assert!(events.limiter_off && !state.limited());
    assert!(events.rounds < 200, "{}", events.rounds);
    let stages = 3_600_000_000 + events.increases;
    assert!(stages > 4_290_000_000, "past 32 bits: {stages}");
}

#[test]
fn alpha_does_not_stick_short_of_its_limit() {
    // A CNP in every window: 10-bit arithmetic stops at 820, the value goes to
    // 1024.
    let knobs = Knobs::preset(Preset::Paper, 40_000).with(Id::InitialAlphaValue, 1);
    let p = knobs.params();
    let mut state = State::first_cnp(0, &p);
    let mut now = 0;
    for _ in 0..10_000 {
        now += 55 * US;
        let _ = state.on_cnp(now, &p);
    }
    assert_eq!(state.view(&p).alpha.whole(), 1023);
    assert!(state.view(&p).alpha.thousandths() >= 990);
}

#[test]
fn a_cut_that_takes_nothing_still_limits_until_the_next_increase() {
    let knobs = Knobs::preset(Preset::ConnectX, 10_000).with(Id::RpgMinDecFac, 100);
    let p = knobs.params();
    let mut state = State::first_cnp(0, &p);
    assert_eq!(state.view(&p).rc, 10_000_000_000);
    assert!(state.limited());
    let events = state.advance(300 * US, &p);
    assert_eq!((events.increases, events.limiter_off), (1, true));
    assert_eq!(state.next_event_ns(&p), None);
}

#[test]
fn a_rate_set_by_the_first_cnp_stays_within_minimum_and_maximum() {
    let rate = |set, min, line| {
        let knobs = Knobs::preset(Preset::ConnectX, line)
            .with(Id::RateToSetOnFirstCnp, set)
            .with(Id::RpgMinRate, min);
        let p = knobs.params();
        let state = State::first_cnp(0, &p);
        assert_eq!(Events::of_first_cnp(&p).cuts, 0);
        (state.view(&p).rc / 1_000_000, state.view(&p).rt / 1_000_000)
    };
    assert_eq!(rate(100, 1, 1_000), (100, 100));
    assert_eq!(rate(100, 200, 1_000), (200, 200));
    assert_eq!(rate(2_000, 1, 1_000), (1_000, 1_000));
    // A minimum above the maximum acts as the maximum.
    assert_eq!(rate(100, 5_000, 1_000), (1_000, 1_000));
}

#[test]
fn a_cut_to_a_raised_minimum_takes_the_target_with_it() {
    let knobs = Knobs::preset(Preset::ConnectX, 1000)
        .with(Id::RateToSetOnFirstCnp, 50)
        .with(Id::RpgByteReset, 0);
    let mut state = State::first_cnp(0, &knobs.params());
    let _ = state.advance(100 * US, &knobs.params());
    let raised = knobs.clone().with(Id::RpgMinRate, 80);
    let p = raised.params();
    let _ = state.on_params(100 * US, &knobs.params(), &p);
    let _ = state.on_cnp(100 * US, &p);
    let after_cut = state.view(&p);
    assert_eq!((after_cut.rc, after_cut.rt), (80_000_000, 80_000_000));
    // The target rises from there; were it below, this would lower the rate.
    let _ = state.advance(100 * US + 300 * US, &p);
    assert!(state.view(&p).rc > 80_000_000);
}

#[test]
fn a_pending_cut_goes_on_when_the_limiter_is_off() {
    // The limiter goes off at 300 us; the CNP of 200 us cuts at 1000 us.
    let knobs = Knobs::preset(Preset::ConnectX, 10_000)
        .with(Id::RpgMinDecFac, 100)
        .with(Id::RateReduceMonitorPeriod, 1_000);
    let p = knobs.params();
    let mut state = State::first_cnp(0, &p);
    let _ = state.on_cnp(200 * US, &p);
    let events = state.advance(400 * US, &p);
    assert!(events.limiter_off && state.view(&p).cut_pending);
    assert_eq!(state.next_event_ns(&p), Some(1_000 * US));
    // Bytes are not counted meanwhile.
    let events = state.on_sent(500 * US, u32::MAX, &p);
    assert_eq!(events.increases, 0);
    let events = state.advance(1_000 * US, &p);
    assert_eq!((events.cuts, events.limiter_on), (1, true));
}

#[test]
fn a_shortened_period_ends_at_the_write_or_later_never_before() {
    let long = Knobs::preset(Preset::Paper, 40_000)
        .with(Id::RpgTimeReset, 10_000)
        .with(Id::RateReduceMonitorPeriod, 10_000)
        .with(Id::DceTcpRtt, 10_000);
    let old = long.params();

    // The timer alone: its 100 us are over at 5 ms, so it completes then, once.
    let new = long.clone().with(Id::RpgTimeReset, 100).params();
    let mut state = State::first_cnp(0, &old);
    let events = state.on_params(5_000 * US, &old, &new);
    assert_eq!(events.increases, 1);
    assert_eq!(state.next_event_ns(&new), Some(5_100 * US));

    // The monitor period: the cut that waits is made at the write.
    let new = long.clone().with(Id::RateReduceMonitorPeriod, 100).params();
    let mut state = State::first_cnp(0, &old);
    let _ = state.on_cnp(1_000 * US, &old);
    let events = state.on_params(5_000 * US, &old, &new);
    assert_eq!(events.cuts, 1);
    // ... and the next may come 100 us after that.
    let events = state.on_cnp(5_099 * US, &new);
    assert_eq!(events.cuts, 0);
    assert_eq!(state.advance(5_100 * US, &new).cuts, 1);

    // The alpha window.
    let new = long.clone().with(Id::DceTcpRtt, 100).params();
    let mut state = State::first_cnp(0, &old);
    let _ = state.on_params(5_000 * US, &old, &new);
    let decayed = 1023.0 * 1020.0 / 1024.0;
    let alpha = |state: &State| {
        let view = state.view(&new);
        f64::from(view.alpha.whole()) + f64::from(view.alpha.thousandths()) / 1000.0
    };
    assert!((alpha(&state) - decayed).abs() < 0.002);
    let _ = state.advance(5_099 * US, &new);
    assert!((alpha(&state) - decayed).abs() < 0.002);
    let _ = state.advance(5_100 * US, &new);
    assert!((alpha(&state) - decayed * 1020.0 / 1024.0).abs() < 0.002);

    // Not over yet: the end moves to start + period.
    let new = long.clone().with(Id::RpgTimeReset, 6_000).params();
    let mut state = State::first_cnp(0, &old);
    let events = state.on_params(5_000 * US, &old, &new);
    assert_eq!(events.increases, 0);
    assert_eq!(state.next_event_ns(&new), Some(6_000 * US));
}

#[test]
fn dilation_keeps_real_rates_and_alpha() {
    let knobs = Knobs::preset(Preset::Paper, 40);
    let old = knobs.params();
    let new = knobs.with(Id::Dilation, 1_000).params();
    let mut state = State::first_cnp(0, &old);
    let before = state.view(&old);
    let _ = state.on_params(10 * US, &old, &new);
    let after = state.view(&new);
    assert_eq!(before.rc_real, after.rc_real);
    assert_eq!(before.rt_real, after.rt_real);
    assert_eq!(before.alpha, after.alpha);
    assert_eq!(after.rc / 1_000, after.rc_real);
    assert_eq!(state.next_event_ns(&new), Some(55 * US * 1_000));
}

#[test]
fn a_lower_maximum_bounds_the_rates_at_once_and_a_higher_one_frees_the_unlimited() {
    let knobs = Knobs::preset(Preset::ConnectX, 10_000);
    let wide = knobs.params();
    let narrow = knobs.with(Id::RpgMaxRate, 100).params();
    let mut state = State::first_cnp(0, &wide);
    let events = state.on_params(US, &wide, &narrow);
    assert!(!events.limiter_off && state.limited());
    let view = state.view(&narrow);
    assert_eq!((view.rc, view.rt), (100_000_000, 100_000_000));

    let events = state.advance(300 * US, &narrow);
    assert!(events.limiter_off);
    let _ = state.on_params(400 * US, &narrow, &wide);
    let view = state.view(&wide);
    assert_eq!((view.rc, view.rt), (10_000_000_000, 10_000_000_000));
}
