// SPDX-License-Identifier: GPL-2.0

//! The NP's window: when CNPs leave, and that marks and CNPs add up.

use proptest::prelude::*;
use rxe_cc::dcqcn::np_window::{Close, Mark, Window};

const US: u64 = 1000;
const PERIOD: u64 = 50 * US;

#[test]
fn first_mark_after_quiet_is_answered_at_once() {
    let mut window = Window::new();
    assert_eq!(window.on_mark(0, PERIOD), Mark::SendNow);
    assert_eq!(window.on_mark(PERIOD, PERIOD), Mark::SendNow);
    assert_eq!(window.on_mark(10 * PERIOD + 1, PERIOD), Mark::SendNow);
}

#[test]
fn marks_inside_a_window_are_answered_once_when_it_closes() {
    let mut window = Window::new();
    assert_eq!(window.on_mark(7 * US, PERIOD), Mark::SendNow);
    let close_at_ns = 7 * US + PERIOD;
    let folded = |first| Mark::Suppressed { close_at_ns, first };
    assert_eq!(window.on_mark(8 * US, PERIOD), folded(true));
    assert_eq!(window.on_mark(9 * US, PERIOD), folded(false));
    assert_eq!(window.on_mark(close_at_ns - 1, PERIOD), folded(false));
    assert_eq!(window.on_close(close_at_ns, PERIOD), Close::Send);
    assert_eq!(window.on_close(close_at_ns, PERIOD), Close::Quiet);
}

#[test]
fn a_deferred_cnp_opens_the_next_window_at_the_instant_it_is_sent() {
    let mut window = Window::new();
    let _ = window.on_mark(0, PERIOD);
    let _ = window.on_mark(1, PERIOD);
    let sent = PERIOD + 3 * US;
    assert_eq!(window.on_close(sent, PERIOD), Close::Send);
    assert_eq!(
        window.on_mark(sent + PERIOD - 1, PERIOD),
        Mark::Suppressed {
            close_at_ns: sent + PERIOD,
            first: true
        }
    );
}

#[test]
fn a_window_without_marks_closes_quietly() {
    let mut window = Window::new();
    let _ = window.on_mark(0, PERIOD);
    assert_eq!(window.on_close(PERIOD, PERIOD), Close::Quiet);
    assert_eq!(window.on_mark(PERIOD, PERIOD), Mark::SendNow);
}

#[test]
fn icrc_is_checked_until_a_mark_is_held() {
    let mut window = Window::new();
    assert!(window.needs_icrc(0, PERIOD));
    let _ = window.on_mark(0, PERIOD);
    // The opening mark is answered: the next one would cause the deferred CNP.
    assert!(window.needs_icrc(1, PERIOD));
    let _ = window.on_mark(1, PERIOD);
    assert!(!window.needs_icrc(2, PERIOD));
    // Past the end the next mark is one of the next window.
    assert!(window.needs_icrc(PERIOD, PERIOD));
    assert_eq!(window.on_close(PERIOD, PERIOD), Close::Send);
    assert!(window.needs_icrc(PERIOD + 1, PERIOD));
}

#[test]
fn a_mark_before_a_late_close_does_its_work_and_is_held_itself() {
    let mut window = Window::new();
    let _ = window.on_mark(0, PERIOD);
    let _ = window.on_mark(1, PERIOD);
    let late = PERIOD + 9 * US;
    let close_at_ns = late + PERIOD;
    assert_eq!(window.on_mark(late, PERIOD), Mark::SendLate { close_at_ns });
    // The timer that was late fires now, too early for the new window.
    assert_eq!(
        window.on_close(late + 1, PERIOD),
        Close::Later { at_ns: close_at_ns }
    );
    assert_eq!(window.on_close(close_at_ns, PERIOD), Close::Send);
}

#[test]
fn period_0_answers_every_mark() {
    let mut window = Window::new();
    for now in [0, 0, 1, 1, 2] {
        assert_eq!(window.on_mark(now, 0), Mark::SendNow);
        assert!(window.needs_icrc(now, 0));
    }
    assert_eq!(window.on_close(2, 0), Close::Quiet);
}

#[test]
fn a_mark_held_when_the_period_becomes_0_is_still_answered() {
    let mut window = Window::new();
    let _ = window.on_mark(0, PERIOD);
    let _ = window.on_mark(1, PERIOD);
    assert_eq!(window.on_mark(2, 0), Mark::SendNow);
    assert_eq!(window.on_close(3, 0), Close::Send);
    assert_eq!(window.on_close(3, 0), Close::Quiet);
}

#[test]
fn a_changed_period_acts_on_the_open_window() {
    let mut window = Window::new();
    let _ = window.on_mark(0, PERIOD);
    assert_eq!(window.close_at_ns(PERIOD), None);
    let _ = window.on_mark(1, PERIOD);
    assert_eq!(window.close_at_ns(PERIOD), Some(PERIOD));
    // Longer: the timer is sent on.
    assert_eq!(
        window.on_close(PERIOD, 2 * PERIOD),
        Close::Later { at_ns: 2 * PERIOD }
    );
    // Shorter, its end to come; then shorter still, its end passed.
    assert_eq!(
        window.on_close(20 * US, 30 * US),
        Close::Later { at_ns: 30 * US }
    );
    assert_eq!(window.on_close(20 * US, 10 * US), Close::Send);
    assert!(window.is_open(29 * US, 10 * US));
    assert!(!window.is_open(30 * US, 10 * US));
}

#[test]
fn the_ends_of_time_are_no_danger() {
    let mut window = Window::new();
    assert_eq!(window.on_mark(u64::MAX, u64::MAX), Mark::SendNow);
    let _ = window.on_mark(0, u64::MAX);
    let _ = window.on_close(0, u64::MAX);
    let _ = window.on_mark(u64::MAX, 1);
}

/// What happens to a flow: marks, and how late its timer runs.
#[derive(Clone, Debug)]
struct Step {
    wait_ns: u64,
    timer_late_ns: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![0..5 * US, 0..3 * PERIOD, Just(PERIOD), Just(0)];
    let late = prop_oneof![Just(0), 0..3 * PERIOD];
    prop::collection::vec(
        (wait, late).prop_map(|(wait_ns, timer_late_ns)| Step {
            wait_ns,
            timer_late_ns,
        }),
        1..200,
    )
}

/// A flow with its timer and counters, as the module keeps them.
#[derive(Default)]
struct Flow {
    window: Window,
    timer: Option<u64>,
    cnps: Vec<u64>,
    immediate: usize,
    deferred: usize,
    suppressed: usize,
}

impl Flow {
    fn send(&mut self, now: u64) {
        self.cnps.push(now);
    }

    fn run_timer(&mut self, until: u64, period: u64, late: u64) {
        while let Some(at) = self.timer.filter(|at| at + late <= until) {
            self.timer = None;
            match self.window.on_close(at + late, period) {
                Close::Send => {
                    self.deferred += 1;
                    self.send(at + late);
                }
                Close::Later { at_ns } => self.timer = Some(at_ns),
                Close::Quiet => {}
            }
        }
    }

    fn mark(&mut self, now: u64, period: u64) {
        match self.window.on_mark(now, period) {
            Mark::SendNow => {
                self.immediate += 1;
                self.send(now);
            }
            Mark::Suppressed { close_at_ns, first } => {
                self.suppressed += 1;
                assert!(close_at_ns > now);
                assert!(first || self.timer.is_some(), "somebody armed the timer");
                if first {
                    self.timer = Some(close_at_ns);
                }
            }
            Mark::SendLate { close_at_ns } => {
                self.suppressed += 1;
                self.deferred += 1;
                self.send(now);
                self.timer = Some(close_at_ns);
            }
        }
    }
}

proptest! {
    #[test]
    fn at_most_one_cnp_a_period_each_mark_answered_and_all_counted(
        steps in steps(),
        period in prop_oneof![Just(PERIOD), 1..3 * PERIOD],
    ) {
        let mut flow = Flow::default();
        let mut now = 0;
        let mut marks = Vec::new();
        for step in &steps {
            now += step.wait_ns;
            flow.run_timer(now, period, step.timer_late_ns);
            flow.mark(now, period);
            marks.push(now);
        }
        flow.run_timer(u64::MAX / 2, period, 0);

        for pair in flow.cnps.windows(2) {
            prop_assert!(pair[1] - pair[0] >= period, "{pair:?}");
        }
        // Each mark has a CNP at its instant or later, and the last one's is the
        // last: none is sent without a mark since the one before.
        for mark in &marks {
            prop_assert!(flow.cnps.iter().any(|cnp| cnp >= mark));
        }
        let mut since = 0;
        for cnp in &flow.cnps {
            prop_assert!(marks.iter().any(|mark| (since..=*cnp).contains(mark)));
            since = *cnp;
        }
        prop_assert_eq!(marks.len(), flow.immediate + flow.suppressed);
        prop_assert_eq!(flow.cnps.len(), flow.immediate + flow.deferred);
    }

    #[test]
    fn with_a_timer_in_time_every_answer_comes_within_a_period(
        waits in prop::collection::vec(0..2 * PERIOD, 1..100),
    ) {
        let mut flow = Flow::default();
        let mut now = 0;
        let mut marks = Vec::new();
        for wait in waits {
            now += wait;
            flow.run_timer(now, PERIOD, 0);
            flow.mark(now, PERIOD);
            marks.push(now);
        }
        flow.run_timer(u64::MAX / 2, PERIOD, 0);
        for mark in marks {
            prop_assert!(flow.cnps.iter().any(|cnp| (mark..=mark + PERIOD).contains(cnp)));
        }
    }

    #[test]
    fn any_times_and_periods_do_no_harm(
        calls in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 0..50),
    ) {
        let mut window = Window::new();
        for (now, period, mark) in calls {
            let _ = window.needs_icrc(now, period);
            if mark {
                let _ = window.on_mark(now, period);
            } else {
                let _ = window.on_close(now, period);
            }
        }
    }
}
