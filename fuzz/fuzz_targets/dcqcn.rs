// SPDX-License-Identifier: GPL-2.0

//! The RP's state machine and pacer, with any knobs and any history: CNPs, departures,
//! reads, writes to knobs. One flow is advanced only when something happens to it, a
//! second one is looked at in between: they stay the same, within their bounds, and
//! nothing takes long.

#![no_main]

use libfuzzer_sys::{
    arbitrary::{Result, Unstructured},
    fuzz_target,
};
use rxe_cc::dcqcn::{
    pacer::{Due, Pacer},
    params::{Id, RpParams},
    rp::{Alpha, Events, State},
};
use rxe_cc_fuzz::{knob_write, Knobs};

/// Rounds that one call may take.
const ROUNDS_MAX: u32 = 1000;
/// 146 years.
const TIME_MAX_NS: u64 = 1 << 62;

fuzz_target!(|bytes: &[u8]| {
    // Bytes that end early are a short history.
    let _ = history(&mut Unstructured::new(bytes));
});

#[derive(Clone, Copy, Debug)]
enum Op {
    Cnp,
    Sent { wire_bytes: u32, held: bool },
    Read,
}

/// A flow as the module keeps it, and the sums of what it reported.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Flow {
    state: Option<State>,
    pacer: Pacer,
    cuts: u64,
    increases: u64,
    limited: i64,
    credit: u128,
}

impl Flow {
    fn add(&mut self, events: Events) {
        assert!(events.rounds < ROUNDS_MAX, "{} rounds", events.rounds);
        assert!(!(events.limiter_on && events.limiter_off));
        self.cuts += u64::from(events.cuts);
        self.increases += events.increases;
        self.limited += i64::from(events.limiter_on) - i64::from(events.limiter_off);
        self.credit = self.credit.saturating_add(events.credit.units());
        self.pacer.accrue(&events);
    }

    fn apply(&mut self, now_ns: u64, op: Op, p: &RpParams) {
        let Some(state) = &mut self.state else {
            if let Op::Cnp = op {
                self.state = Some(State::first_cnp(now_ns, p));
                self.add(Events::of_first_cnp(p));
            }
            return;
        };
        match op {
            Op::Cnp => {
                let events = state.on_cnp(now_ns, p);
                self.add(events);
            }
            Op::Read => {
                let events = state.advance(now_ns, p);
                self.add(events);
            }
            Op::Sent { wire_bytes, held } => {
                let before = state.advance(now_ns, p);
                let state = *state;
                self.add(before);
                self.pacer.depart(&state, wire_bytes, held, p);
                let mut state = state;
                let events = state.on_sent(now_ns, wire_bytes, p);
                self.state = Some(state);
                self.add(events);
            }
        }
    }

    fn change(&mut self, now_ns: u64, old: &RpParams, new: &RpParams) {
        if let Some(state) = &mut self.state {
            let events = state.on_params(now_ns, old, new);
            self.add(events);
            self.pacer.on_params(old, new);
        }
    }

    /// What is true of a flow at any time; `least_bps`: no cut and no write led below.
    fn check(&self, p: &RpParams, least_bps: u64) {
        let Some(state) = &self.state else { return };
        let view = state.view(p);
        assert!(view.rc <= p.maximum_bps(), "{view:?}");
        assert!(view.rt <= p.maximum_bps(), "{view:?}");
        assert!(view.rc >= least_bps, "{view:?}, not below {least_bps}");
        assert!(view.alpha.units() <= 1024 << Alpha::FRACTION_BITS);
        assert_eq!(view.rc_real, view.rc / p.dilation());
        assert!(view.limited || view.rc == p.maximum_bps(), "{view:?}");
        assert_eq!(self.limited, i64::from(view.limited), "the gauge");
        let now_ns = state.now_ns();
        if let Some(next_ns) = state.next_event_ns(p) {
            assert!(next_ns > now_ns, "an event of the past");
        }
        for wire_bytes in [60, 1_500, 65_549] {
            match self.pacer.due(state, wire_bytes, p) {
                Due::Now => {}
                Due::At { at_ns } => {
                    assert!(view.limited && at_ns > now_ns, "the timer would spin");
                }
            }
        }
    }
}

/// How long nothing happens: in parts of one of the flow's clocks, or any time.
fn wait_ns(u: &mut Unstructured<'_>, knobs: &Knobs) -> Result<u64> {
    let dilation = u64::from(knobs.get(Id::Dilation));
    let period = |id| u64::from(knobs.get(id)) * 1_000 * dilation;
    let parts = u64::from(u.arbitrary::<u8>()?);
    Ok(match u.int_in_range(0..=6_u8)? {
        0 => 0,
        1 => period(Id::RpgTimeReset) * parts / 64,
        2 => period(Id::RateReduceMonitorPeriod) * parts / 64,
        3 => period(Id::DceTcpRtt) * parts / 64,
        4 => period(Id::RpgTimeReset) * parts * parts,
        5 => 1_000_000_000 * dilation * parts / 32,
        _ => u.arbitrary::<u64>()? >> (parts % 64),
    })
}

fn history(u: &mut Unstructured<'_>) -> Result<()> {
    let mut knobs = Knobs::arbitrary(u)?;
    let mut p = knobs.rp_params();
    let mut now_ns = u.arbitrary::<u64>()? >> 16;
    let (mut lazy, mut watched) = (Flow::default(), Flow::default());
    let mut least_bps = p.minimum_bps();
    while !u.is_empty() {
        let wait_ns = wait_ns(u, &knobs)?;
        let looks = u.int_in_range(0..=3_u8)?;
        for look in 1..=looks {
            let part_ns = wait_ns / u64::from(looks) * u64::from(look);
            watched.apply(
                now_ns.saturating_add(part_ns).min(TIME_MAX_NS),
                Op::Read,
                &p,
            );
        }
        now_ns = now_ns.saturating_add(wait_ns).min(TIME_MAX_NS);
        if u.int_in_range(0..=7_u8)? == 0 {
            let (id, value) = knob_write(u)?;
            let new = knobs.clone().with(id, value);
            let new_p = new.rp_params();
            for flow in [&mut lazy, &mut watched] {
                flow.change(now_ns, &p, &new_p);
            }
            (knobs, p) = (new, new_p);
            // Lower than a minimum that was raised, until the next cut.
            let rc = lazy.state.map_or(u64::MAX, |state| state.view(&p).rc);
            least_bps = rc.min(p.minimum_bps());
        } else {
            let op = match u.int_in_range(0..=3_u8)? {
                0 => Op::Read,
                1 => Op::Sent {
                    wire_bytes: u.int_in_range(0..=65_549)?,
                    held: u.arbitrary()?,
                },
                _ => Op::Cnp,
            };
            for flow in [&mut lazy, &mut watched] {
                flow.apply(now_ns, op, &p);
            }
        }
        assert_eq!(lazy, watched, "looking changes something");
        lazy.check(&p, least_bps);
    }
    Ok(())
}
