// SPDX-License-Identifier: GPL-2.0

//! The pacer: departures follow the integral of Rc, late timers are made up for,
//! and bursts stay bounded.

mod dcqcn_common;

use dcqcn_common::{any_knobs, usual_knobs, Knobs};
use proptest::prelude::*;
use rxe_cc::dcqcn::pacer::{Due, Pacer, MAX_LATENESS_NS};
use rxe_cc::dcqcn::params::{Id, Preset, RpParams};
use rxe_cc::dcqcn::rp::State;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Knobs of a flow whose rate, in real Mb/s, stands for more than an hour: under
/// this dilation 31 stages of the timer take that long, and they do nothing.
fn steady_knobs(rate_mbps: u32, dilation: u32) -> Knobs {
    Knobs::preset(Preset::ConnectX, 1_000)
        .with(Id::RateToSetOnFirstCnp, rate_mbps * dilation)
        .with(Id::RpgTimeReset, 131_071)
        .with(Id::RpgThreshold, 31)
        .with(Id::RpgByteReset, 0)
        .with(Id::Dilation, dilation)
}

fn steady(rate_mbps: u32) -> RpParams {
    steady_knobs(rate_mbps, 1_000).params()
}

/// A flow with its pacer, as the module keeps them.
struct Flow {
    state: State,
    pacer: Pacer,
    p: RpParams,
}

impl Flow {
    fn new(p: RpParams) -> Self {
        Flow {
            state: State::first_cnp(0, &p),
            pacer: Pacer::new(),
            p,
        }
    }

    fn come_to(&mut self, now: u64) {
        let events = self.state.advance(now, &self.p);
        self.pacer.accrue(&events);
    }

    fn due(&mut self, now: u64, bytes: u32) -> Due {
        self.come_to(now);
        self.pacer.due(&self.state, bytes, &self.p)
    }

    fn depart(&mut self, now: u64, bytes: u32, held: bool) {
        self.come_to(now);
        self.pacer.depart(&self.state, bytes, held, &self.p);
        let events = self.state.on_sent(now, bytes, &self.p);
        self.pacer.accrue(&events);
    }

    /// Waits for a held packet with a timer that is `late` each time, sends it,
    /// and says when.
    fn send_held(&mut self, now: u64, bytes: u32, late: u64) -> u64 {
        let mut now = now;
        let mut asked = 0;
        loop {
            match self.due(now, bytes) {
                Due::Now => break,
                Due::At { at_ns } => {
                    assert!(at_ns > now, "the timer would spin at {now}");
                    now = at_ns + late;
                }
            }
            asked += 1;
            assert!(asked < 100_000);
        }
        self.depart(now, bytes, true);
        now
    }
}

#[test]
fn the_head_leaves_when_the_integral_of_rc_reaches_its_bits() {
    // 1250 bytes at 10 Mb/s are 1 ms.
    let mut flow = Flow::new(steady(10));
    assert_eq!(flow.due(0, 1_250), Due::At { at_ns: MS });
    assert_eq!(flow.due(MS - 1, 1_250), Due::At { at_ns: MS });
    assert_eq!(flow.due(MS, 1_250), Due::Now);
    flow.depart(MS, 1_250, true);
    assert_eq!(flow.due(MS, 2_500), Due::At { at_ns: 3 * MS });
}

#[test]
fn dilation_divides_the_rate_on_the_wire() {
    // 10 Mb/s of the model are 10 kb/s at S = 1000.
    let knobs = steady_knobs(0, 1_000).with(Id::RateToSetOnFirstCnp, 10);
    let mut flow = Flow::new(knobs.params());
    assert_eq!(flow.due(0, 1_250), Due::At { at_ns: SECOND });
}

#[test]
fn a_rising_rate_shortens_the_wait() {
    // 20 Mb/s of 40 after the cut; the first stage, after 1 ms, makes it 30.
    // 6250 bytes are 50000 bits: 20000 in the first ms, 30000 in the second.
    let knobs = Knobs::preset(Preset::Paper, 40)
        .with(Id::RpgTimeReset, 1_000)
        .with(Id::RpgByteReset, 0)
        .with(Id::InitialAlphaValue, 1023)
        .with(Id::RpgGd, 0);
    let mut flow = Flow::new(knobs.params());
    assert_eq!(flow.state.view(&flow.p).rc, 20_000_000);
    assert_eq!(flow.due(0, 6_250), Due::At { at_ns: 2 * MS });
    // Without looking ahead it would have been 2.5 ms.
    assert_eq!(flow.due(1_500 * US, 6_250), Due::At { at_ns: 2 * MS });
    assert_eq!(flow.due(2 * MS, 6_250), Due::Now);
}

#[test]
fn a_cut_lengthens_the_wait() {
    let p = Knobs::preset(Preset::Paper, 1_000)
        .with(Id::RateToSetOnFirstCnp, 10)
        .with(Id::RpgTimeReset, 131_071)
        .with(Id::RpgGd, 0)
        .params();
    let mut flow = Flow::new(p);
    assert_eq!(flow.due(0, 1_250), Due::At { at_ns: MS });
    let events = flow.state.on_cnp(500 * US, &flow.p);
    flow.pacer.accrue(&events);
    // Half of it at 10 Mb/s, the other half at 5.
    assert_eq!(flow.due(500 * US, 1_250), Due::At { at_ns: 1_500 * US });
}

#[test]
fn without_a_limiter_packets_leave_at_once() {
    // Rc is within 1/1024 of the maximum after a stage.
    let knobs = Knobs::preset(Preset::ConnectX, 1).with(Id::RateToSetOnFirstCnp, 1);
    let mut flow = Flow::new(knobs.params());
    assert_ne!(flow.due(0, 65_535), Due::Now);
    flow.come_to(300 * US);
    let now = flow.state.now_ns() + SECOND;
    for _ in 0..1_000 {
        assert_eq!(flow.due(now, 65_535), Due::Now);
        flow.depart(now, 65_535, false);
    }
    assert!(!flow.state.limited());
}

#[test]
fn a_sender_that_slept_sends_one_packet_and_waits() {
    let mut flow = Flow::new(steady(10));
    assert_eq!(flow.due(SECOND, 1_250), Due::Now);
    flow.depart(SECOND, 1_250, false);
    assert_eq!(flow.due(SECOND, 1_250), Due::At { at_ns: SECOND + MS });
}

#[test]
fn a_late_timer_is_made_up_for_within_20_ms() {
    for (late_ms, burst) in [(0, 1), (3, 4), (20, 21), (500, 21)] {
        let mut flow = Flow::new(steady(10));
        let now = MS + late_ms * MS;
        let mut sent = 0;
        while flow.due(now, 1_250) == Due::Now {
            flow.depart(now, 1_250, true);
            sent += 1;
        }
        assert_eq!(sent, burst, "{late_ms} ms late");
    }
}

#[test]
fn a_carry_is_spent_by_who_comes_at_once_and_forgotten_by_who_sleeps() {
    let late = || {
        let mut flow = Flow::new(steady(10));
        flow.come_to(11 * MS);
        flow.depart(11 * MS, 1_250, true);
        flow
    };
    let mut flow = late();
    for _ in 0..10 {
        assert_eq!(flow.due(11 * MS, 1_250), Due::Now);
        flow.depart(11 * MS, 1_250, false);
    }
    assert_ne!(flow.due(11 * MS, 1_250), Due::Now);

    // Of ten packets' carry, two are gone for who comes two packets late, again and again.
    let mut flow = late();
    for (now_ms, packets) in [(14, 1 + 3), (17, 1 + 3), (20, 1)] {
        for _ in 0..packets {
            assert_eq!(flow.due(now_ms * MS, 1_250), Due::Now);
            flow.depart(now_ms * MS, 1_250, false);
        }
    }
    assert_ne!(flow.due(20 * MS, 1_250), Due::Now);

    let mut flow = late();
    assert_eq!(flow.due(SECOND, 1_250), Due::Now);
    flow.depart(SECOND, 1_250, false);
    assert_eq!(flow.due(SECOND, 1_250), Due::At { at_ns: SECOND + MS });
}

#[test]
fn a_carry_is_at_most_20_ms_of_the_rate_after_a_cut() {
    let mut flow = Flow::new(steady(100));
    flow.come_to(100 * MS);
    flow.depart(100 * MS, 1_250, true);
    // 20 ms of 100 Mb/s are 200 packets, of 10 Mb/s 20.
    let slow = steady(10);
    flow.state = State::first_cnp(100 * MS, &slow);
    flow.p = slow;
    let mut sent = 0;
    while flow.due(100 * MS, 1_250) == Due::Now {
        flow.depart(100 * MS, 1_250, false);
        sent += 1;
    }
    assert_eq!(sent, 1 + 20);
}

#[test]
fn a_packet_sent_before_its_time_leaves_no_debt() {
    let mut flow = Flow::new(steady(1));
    flow.depart(0, 65_535, true);
    assert_eq!(flow.due(0, 125), Due::At { at_ns: MS });
}

#[test]
fn a_change_of_the_dilation_keeps_what_was_accrued() {
    // 10 Mb/s real before and after: half of the wait is over.
    let old = steady_knobs(10, 1_000).params();
    let new = steady_knobs(10, 4_000).params();
    let mut flow = Flow::new(old);
    let events = flow.state.on_params(500 * US, &flow.p, &new);
    flow.pacer.accrue(&events);
    flow.pacer.on_params(&flow.p, &new);
    flow.p = new;
    assert_eq!(flow.due(500 * US, 1_250), Due::At { at_ns: MS });
    let events = flow.state.on_params(750 * US, &flow.p, &old);
    flow.pacer.accrue(&events);
    flow.pacer.on_params(&flow.p, &old);
    flow.p = old;
    assert_eq!(flow.due(750 * US, 1_250), Due::At { at_ns: MS });
}

#[test]
fn a_departure_beyond_the_look_ahead_is_asked_for_again() {
    // 1 us stages under a packet of about a second.
    let knobs = Knobs::preset(Preset::ConnectX, 1_000)
        .with(Id::RateToSetOnFirstCnp, 1)
        .with(Id::RpgTimeReset, 1)
        .with(Id::RpgAiRate, 1)
        .with(Id::RpgByteReset, 0)
        .with(Id::RpgThreshold, 31)
        .with(Id::Dilation, 100);
    let mut flow = Flow::new(knobs.params());
    let sent = flow.send_held(0, 65_535, 0);
    // The rate grows by 1 Mb/s of the model a stage of 100 us after the first
    // 31: 1 Mb/s * n(n+1)/2 * 1 us reaches 524280 bits at n of about 1020.
    assert!((90 * MS..120 * MS).contains(&sent), "{sent}");
}

proptest! {
    #[test]
    fn a_held_flow_keeps_its_rate_whatever_its_timers_lateness(
        rate in 1..500u32,
        dilation in prop_oneof![Just(1_000), Just(4_000)],
        sizes in prop::collection::vec(64..9_000u32, 50..200),
        lateness in prop::collection::vec(prop_oneof![3 => 0..MS, 1 => 0..MAX_LATENESS_NS], 200),
    ) {
        let mut flow = Flow::new(steady_knobs(rate, dilation).params());
        let real_bps = f64::from(rate) * 1e6;
        let mut now = 0;
        let mut bits = 0.0;
        for (bytes, late) in sizes.iter().zip(lateness) {
            now = flow.send_held(now, *bytes, late);
            bits += f64::from(*bytes) * 8.0;
            let earned = now as f64 * 1e-9 * real_bps;
            // Never ahead of the rate, and never more behind than can be made up
            // for.
            prop_assert!(bits <= earned + 1.0);
            let behind = MAX_LATENESS_NS as f64 * 1e-9 * real_bps;
            prop_assert!(bits + behind >= earned - 1.0, "{bits} {earned}");
        }
        // All that was late has been made up for once the timer is in time.
        for _ in 0..1_400 {
            now = flow.send_held(now, 1_000, 0);
            bits += 8_000.0;
        }
        let earned = now as f64 * 1e-9 * real_bps;
        prop_assert!((bits - earned).abs() < 8.0 + real_bps * 1e-9 * 1_700.0, "{bits} {earned}");
    }

    #[test]
    fn bursts_are_two_packets_and_what_the_timer_was_late(
        rate in 1..500u32,
        bytes in 64..9_000u32,
        steps in prop::collection::vec(
            (prop_oneof![2 => 0..MS, 1 => 0..100 * MS], 0..3u8, 0..60 * MS),
            1..60,
        ),
    ) {
        // A sender that sleeps, comes with bursts of up to 64, and whose timer is
        // late by up to 60 ms: in no interval leaves more than Rc allows, two
        // packets, and 20 ms of Rc.
        let mut flow = Flow::new(steady(rate));
        let real_bps = f64::from(rate) * 1e6;
        let mut now = 0;
        let mut departures: Vec<u64> = Vec::new();
        for (sleep, packets, late) in steps {
            now += sleep;
            for _ in 0..u32::from(packets) * 30 {
                match flow.due(now, bytes) {
                    Due::Now => flow.depart(now, bytes, false),
                    Due::At { at_ns } => {
                        now = at_ns + late;
                        flow.depart(now, bytes, true);
                    }
                }
                departures.push(now);
            }
        }
        let packet = f64::from(bytes) * 8.0;
        let slack = 2.0 * packet + MAX_LATENESS_NS as f64 * 1e-9 * real_bps + 1.0;
        for (first, from) in departures.iter().enumerate() {
            for (last, to) in departures.iter().enumerate().skip(first).step_by(7) {
                let bits = (last - first + 1) as f64 * packet;
                let allowed = (to - from) as f64 * 1e-9 * real_bps + slack;
                prop_assert!(bits <= allowed, "{bits} {allowed}");
            }
        }
    }

    #[test]
    fn the_departure_foreseen_is_the_departure_made(
        knobs in usual_knobs(),
        bytes in 64..9_000u32,
        looks in prop::collection::vec(0.0..1.0f64, 0..5),
    ) {
        // With CNPs away, asking early or often moves nothing, by more than the
        // nanosecond that rounding up costs.
        let mut flow = Flow::new(knobs.params());
        let foreseen = flow.send_held(0, bytes, 0);
        let mut flow = Flow::new(knobs.params());
        let mut looks: Vec<u64> = looks.iter().map(|x| (x * foreseen as f64) as u64).collect();
        looks.sort_unstable();
        for look in looks.into_iter().filter(|look| *look < foreseen) {
            prop_assert_ne!(flow.due(look, bytes), Due::Now);
        }
        prop_assert_eq!(flow.due(foreseen, bytes), Due::Now);
    }

    #[test]
    fn any_calls_do_no_harm(
        knobs in any_knobs(),
        other in any_knobs(),
        calls in prop::collection::vec((any::<u64>(), any::<u32>(), any::<bool>(), 0..4u8), 1..20),
    ) {
        let mut flow = Flow::new(knobs.params());
        for (time, bytes, held, what) in calls {
            let now = time >> (bytes % 64);
            match what {
                0 => {
                    let due = flow.due(now, bytes);
                    if let Due::At { at_ns } = due {
                        prop_assert!(at_ns >= flow.state.now_ns());
                    }
                }
                1 => flow.depart(now, bytes, held),
                2 => {
                    let events = flow.state.on_cnp(now, &flow.p);
                    flow.pacer.accrue(&events);
                }
                _ => {
                    let new = other.params();
                    let events = flow.state.on_params(now, &flow.p, &new);
                    flow.pacer.accrue(&events);
                    flow.pacer.on_params(&flow.p, &new);
                    flow.p = new;
                }
            }
        }
    }
}
