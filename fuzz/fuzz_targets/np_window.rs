// SPDX-License-Identifier: GPL-2.0

//! The NP's window with a timer that may be late and a period that may change: each
//! valid mark is answered, no CNP comes without one, and none sooner after another
//! than the period.

#![no_main]

use libfuzzer_sys::{
    arbitrary::{Result, Unstructured},
    fuzz_target,
};
use rxe_cc::dcqcn::np_window::{Close, Mark, Window};
use rxe_cc::dcqcn::params::Id;
use rxe_cc_fuzz::Knobs;

fuzz_target!(|bytes: &[u8]| {
    // Bytes that end early are a short history.
    let _ = history(&mut Unstructured::new(bytes));
});

/// A flow as the module keeps it.
#[derive(Default)]
struct Flow {
    window: Window,
    timer_ns: Option<u64>,
    last_cnp_ns: Option<u64>,
    /// The shortest period since the last CNP.
    least_ns: u64,
    /// Marks since the last CNP.
    unanswered: u64,
    marks: u64,
    immediate: u64,
    suppressed: u64,
    deferred: u64,
    cnps: u64,
}

impl Flow {
    fn cnp(&mut self, now_ns: u64, period_ns: u64) {
        assert!(self.unanswered > 0, "a CNP without a mark");
        if let Some(last_ns) = self.last_cnp_ns.filter(|_| self.least_ns > 0) {
            let gap_ns = now_ns - last_ns;
            assert!(gap_ns >= self.least_ns, "{gap_ns} ns between CNPs");
        }
        self.last_cnp_ns = Some(now_ns);
        self.least_ns = period_ns;
        self.unanswered = 0;
        self.cnps += 1;
    }

    fn mark(&mut self, now_ns: u64, period_ns: u64) {
        let unchecked = !self.window.needs_icrc(now_ns, period_ns);
        self.marks += 1;
        self.unanswered += 1;
        let mark = self.window.on_mark(now_ns, period_ns);
        match mark {
            Mark::SendNow => {
                self.immediate += 1;
                // A mark that a shortened period left behind still has its own CNP.
                self.cnp(now_ns, period_ns);
                self.unanswered = u64::from(self.window.close_at_ns(period_ns).is_some());
            }
            Mark::Suppressed { close_at_ns, first } => {
                self.suppressed += 1;
                assert!(close_at_ns > now_ns);
                assert!(first || self.timer_ns.is_some(), "nobody armed the timer");
                if first {
                    self.timer_ns = Some(close_at_ns);
                }
            }
            Mark::SendLate { close_at_ns } => {
                self.suppressed += 1;
                self.deferred += 1;
                self.cnp(now_ns, period_ns);
                self.unanswered = 1;
                self.timer_ns = Some(close_at_ns);
            }
        }
        // What nobody checked must not have caused anything.
        assert!(!unchecked || matches!(mark, Mark::Suppressed { first: false, .. }));
    }

    /// The timer fires.
    fn close(&mut self, now_ns: u64, period_ns: u64) {
        self.timer_ns = None;
        match self.window.on_close(now_ns, period_ns) {
            Close::Send => {
                self.deferred += 1;
                self.cnp(now_ns, period_ns);
            }
            Close::Later { at_ns } => {
                assert!(at_ns > now_ns, "the timer would spin");
                self.timer_ns = Some(at_ns);
            }
            Close::Quiet => {}
        }
    }

    fn change(&mut self, now_ns: u64, period_ns: u64) {
        self.least_ns = self.least_ns.min(period_ns);
        // As a write to the knob does.
        if self.window.close_at_ns(period_ns).is_some() {
            self.close(now_ns, period_ns);
        }
    }
}

fn history(u: &mut Unstructured<'_>) -> Result<()> {
    let knobs = Knobs::arbitrary(u)?;
    let mut period_ns = knobs.np_params().min_time_between_cnps_ns;
    let mut now_ns = u.arbitrary::<u64>()? >> 2;
    let mut flow = Flow::default();
    let result = loop {
        let Ok(step) = u.arbitrary::<[u8; 2]>() else {
            break Ok(());
        };
        if u.is_empty() {
            break Ok(());
        }
        // In parts of the period: its ends are of interest.
        let wait_ns = (period_ns / 64).saturating_mul(u64::from(step[1]));
        let wait_ns = wait_ns + u64::from(step[0] >> 6);
        let until_ns = now_ns.saturating_add(wait_ns).min(u64::MAX >> 1);
        let late_ns = (period_ns / 4) * u64::from(step[0] >> 4 & 3);
        while let Some(at_ns) = flow.timer_ns.map(|at_ns| at_ns.saturating_add(late_ns)) {
            if at_ns > until_ns {
                break;
            }
            now_ns = now_ns.max(at_ns);
            flow.close(now_ns, period_ns);
        }
        now_ns = until_ns.max(now_ns);
        match step[0] & 15 {
            0 => {
                let knobs = knobs
                    .clone()
                    .with(Id::MinTimeBetweenCnps, u.int_in_range(0..=131_071)?);
                period_ns = knobs.np_params().min_time_between_cnps_ns;
                flow.change(now_ns, period_ns);
            }
            1 => flow.close(now_ns, period_ns),
            _ => flow.mark(now_ns, period_ns),
        }
    };
    // In the end every mark has its answer.
    let mut rounds = 0;
    while let Some(at_ns) = flow.timer_ns {
        now_ns = now_ns.max(at_ns);
        flow.close(now_ns, period_ns);
        rounds += 1;
        assert!(rounds < 4, "the window does not close");
    }
    assert_eq!(flow.unanswered, 0, "marks without an answer");
    assert_eq!(flow.marks, flow.immediate + flow.suppressed);
    assert_eq!(flow.cnps, flow.immediate + flow.deferred);
    result
}
