// SPDX-License-Identifier: GPL-2.0

//! Recordings small enough to be computed by hand.

use super::*;
use crate::recording::{Bottleneck, CounterSample, Event, GoodputSample, QueueSample, Sender};

fn sender(name: &str) -> Sender {
    Sender {
        name: name.into(),
        device: name.replace('h', "rxe"),
        qps: 1,
        ..Sender::default()
    }
}

/// Senders of a link of 8 Mb/s, measured from second 1 to 5.
fn base(senders: &[&str]) -> Recording {
    Recording {
        run: Run {
            bottleneck: Some(Bottleneck {
                name: "sw".into(),
                rate_bps: 8e6,
                red_max_bytes: Some(100.0),
                ..Bottleneck::default()
            }),
            measured: Some((1.0, 5.0)),
            senders: senders.iter().map(|name| sender(name)).collect(),
            ..Run::default()
        },
        ..Recording::default()
    }
}

fn figures(recording: &Recording) -> Figures {
    Figures::of(recording, &Tables::of(recording))
}

/// Totals of a sender at the seconds 0, 1, 2, ...
fn goodput(recording: &mut Recording, sender: &str, bytes: &[u64]) {
    let rows = bytes
        .iter()
        .enumerate()
        .map(|(second, bytes)| GoodputSample {
            time_s: second as f64,
            sender: sender.into(),
            bytes: *bytes,
        });
    recording.goodput.extend(rows);
}

/// The queue at the seconds 0, 1, 2, ...: backlog, sent, drops, marks.
fn queue(recording: &mut Recording, rows: &[[u64; 4]]) {
    for (second, [backlog_bytes, sent_bytes, drops, marks]) in rows.iter().enumerate() {
        recording.queue.push(QueueSample {
            time_s: second as f64,
            port: "sw".into(),
            backlog_bytes: *backlog_bytes,
            sent_bytes: *sent_bytes,
            drops: *drops,
            marks: *marks,
        });
    }
}

fn counter(recording: &mut Recording, time_s: f64, device: &str, counter: &str, value: u64) {
    recording.counters.push(CounterSample {
        time_s,
        device: device.into(),
        counter: counter.into(),
        value,
    });
}

fn flow(recording: &mut Recording, time_s: f64, rc_bps: f64, phase: &str, cnps: u64) {
    recording.flows.push(FlowSample {
        time_s,
        sender: "h1".into(),
        device: "rxe1".into(),
        qpn: 17,
        rc_bps,
        rt_bps: rc_bps,
        alpha: time_s / 10.0,
        phase: phase.into(),
        cnps,
        ..FlowSample::default()
    });
}

#[test]
fn the_table_of_figures_is_in_the_order_of_its_ids() {
    for (at, figure) in FIGURES.iter().enumerate() {
        assert_eq!(figure.id as usize, at, "{}", figure.key);
    }
}

#[test]
fn goodput_and_fairness_are_those_of_the_measured_time() {
    let mut recording = base(&["h1", "h2"]);
    // Second 0 to 1 is not measured; then 100 bytes a second against 200.
    goodput(
        &mut recording,
        "h1",
        &[0, 9000, 9100, 9200, 9300, 9400, 99_999],
    );
    goodput(&mut recording, "h2", &[0, 0, 200, 400, 500, 600, 600]);
    let found = figures(&recording);
    assert_eq!(found.senders[0].goodput_bps, Some(800.0));
    assert_eq!(found.senders[1].goodput_bps, Some(1200.0));
    assert_eq!(found.get(Id::Goodput), Some(2000.0));
    assert_eq!(found.get(Id::GoodputLeast), Some(800.0));
    assert_eq!(found.get(Id::GoodputMost), Some(1200.0));
    // (800 + 1200)^2 / (2 * (800^2 + 1200^2))
    assert!((found.get(Id::Jain).unwrap() - 4.0 / 4.16).abs() < 1e-12);
    // Seconds 3 to 5: 100 and 100.
    assert_eq!(found.get(Id::JainLastHalf), Some(1.0));
}

#[test]
fn a_sender_of_whom_nothing_arrived_counts_as_0() {
    let mut recording = base(&["h1", "h2"]);
    goodput(&mut recording, "h1", &[0, 100, 200, 300, 400, 500]);
    let found = figures(&recording);
    assert_eq!(found.senders[1].goodput_bps, Some(0.0));
    assert_eq!(found.get(Id::Jain), Some(0.5));
}

#[test]
fn rates_are_taken_over_what_was_sampled_of_the_measured_time() {
    let mut recording = base(&["h1"]);
    goodput(&mut recording, "h1", &[0, 0, 1000, 2000]);
    queue(
        &mut recording,
        &[[0, 0, 0, 0], [0, 0, 0, 0], [0, 500_000, 0, 0]],
    );
    let found = figures(&recording);
    assert_eq!(found.get(Id::Goodput), Some(8000.0));
    // 500 kB in the one second that was sampled, of 1 MB.
    assert_eq!(found.get(Id::Utilisation), Some(0.5));
}

#[test]
fn the_queue_is_weighed_by_time_and_counted_by_steps() {
    let mut recording = base(&["h1"]);
    queue(
        &mut recording,
        &[
            [0, 0, 5, 1],
            [40, 100_000, 7, 2],
            [80, 1_100_000, 9, 2],
            [120, 2_100_000, 9, 4],
            [0, 3_100_000, 9, 10],
            [500, 4_100_000, 10, 10],
            [900, 5_100_000, 99, 99],
        ],
    );
    let found = figures(&recording);
    assert_eq!(found.get(Id::Utilisation), Some(1.0));
    assert_eq!(found.get(Id::QueueMean), Some(60.0));
    assert_eq!(found.get(Id::QueueP99), Some(120.0));
    assert_eq!(found.get(Id::QueueMost), Some(120.0));
    assert_eq!(found.get(Id::Drops), Some(3.0));
    assert_eq!(found.get(Id::DropsLater), Some(3.0));
    assert_eq!(found.get(Id::Marks), Some(8.0));
    let (_, meets) = Id::QueueP99.figure().aim.unwrap();
    assert_eq!(meets(&recording.run, 100.0), Some(true));
    assert_eq!(meets(&recording.run, 101.0), Some(false));
    recording.run.bottleneck = None;
    assert_eq!(meets(&recording.run, 101.0), None);
}

#[test]
fn drops_of_the_first_half_second_are_told_apart() {
    let mut recording = base(&["h1"]);
    for (time_s, drops) in [(1.0, 0), (1.4, 6), (1.6, 8), (5.0, 9)] {
        recording.queue.push(QueueSample {
            time_s,
            port: "sw".into(),
            drops,
            ..QueueSample::default()
        });
    }
    let found = figures(&recording);
    assert_eq!(found.get(Id::Drops), Some(9.0));
    assert_eq!(found.get(Id::DropsLater), Some(3.0));
    recording.run.measured = Some((1.0, 1.4));
    assert_eq!(figures(&recording).get(Id::DropsLater), None);
}

#[test]
fn another_port_than_the_bottleneck_is_not_looked_at() {
    let mut recording = base(&["h1"]);
    queue(&mut recording, &[[10, 0, 0, 0]; 6]);
    for row in recording.queue.clone() {
        recording.queue.push(QueueSample {
            port: "other".into(),
            backlog_bytes: 9999,
            ..row
        });
    }
    assert_eq!(figures(&recording).get(Id::QueueMost), Some(10.0));
}

#[test]
fn counters_are_summed_over_devices() {
    let mut recording = base(&["h1", "h2"]);
    counter(&mut recording, 0.0, "rxe1", "duplicate_request", 100);
    counter(&mut recording, 0.0, "rxe2", "duplicate_request", 3);
    counter(&mut recording, 2.0, "rxe1", "duplicate_request", 104);
    counter(&mut recording, 4.0, "rxe2", "duplicate_request", 4);
    counter(&mut recording, 6.0, "rxe2", "duplicate_request", 50);
    let found = figures(&recording);
    assert_eq!(found.get(Id::Duplicates), Some(5.0));
    assert_eq!(found.counters["rxe1"]["duplicate_request"], 4.0);
    assert_eq!(found.get(Id::Naks), None);
}

#[test]
fn cnps_are_counted_by_counters_else_flows_else_events() {
    let mut recording = base(&["h1"]);
    for (time_s, detail) in [
        (0.5, "verdict=handled"),
        (2.0, "verdict=handled"),
        (3.0, "verdict=disabled"),
    ] {
        recording.events.push(Event {
            time_s,
            event: "cnp_rx".into(),
            detail: detail.into(),
            ..Event::default()
        });
    }
    assert_eq!(figures(&recording).get(Id::CnpsHandled), Some(1.0));

    // The limiter is there from second 2 on, is freed, and begins anew.
    for (time_s, cnps) in [(2.0, 3), (3.0, 5), (4.0, 2), (6.0, 9)] {
        flow(&mut recording, time_s, 1e6, "fast_recovery", cnps);
    }
    assert_eq!(figures(&recording).get(Id::CnpsHandled), Some(7.0));

    counter(&mut recording, 0.0, "rxe1", "rp_cnp_handled", 0);
    counter(&mut recording, 3.0, "rxe1", "rp_cnp_handled", 8);
    let found = figures(&recording);
    assert_eq!(found.get(Id::CnpsHandled), Some(8.0));
    // 4 s, one queue pair, 8 CNPs
    assert_eq!(found.get(Id::CnpGap), Some(0.5));
}

#[test]
fn marks_set_and_received_are_counted_between_the_same_looks() {
    let mut recording = base(&["h1"]);
    // Measured from 1 s on, but the counters were looked at at 0.4 s and 4.4 s.
    queue(
        &mut recording,
        &[
            [0, 0, 0, 0],
            [0, 0, 0, 700],
            [0, 0, 0, 800],
            [0, 0, 0, 900],
            [0, 0, 0, 1000],
        ],
    );
    counter(&mut recording, 0.4, "rxe1", "np_ecn_marked_roce_packets", 0);
    counter(
        &mut recording,
        4.4,
        "rxe1",
        "np_ecn_marked_roce_packets",
        1000,
    );
    let found = figures(&recording);
    assert_eq!(found.get(Id::MarksReceived), Some(1000.0));
    assert_eq!(found.get(Id::Marks), Some(1000.0));
}

#[test]
fn a_limiter_is_on_where_it_was_sampled_in_a_phase() {
    let mut recording = base(&["h1"]);
    for time in 0..=4 {
        let phase = if time == 2 {
            UNLIMITED
        } else {
            "fast_recovery"
        };
        flow(
            &mut recording,
            f64::from(time),
            f64::from(time) * 1e6,
            phase,
            0,
        );
    }
    // A gap: no limiter from 4 to 14.
    flow(&mut recording, 14.0, 9e6, "fast_recovery", 0);
    let found = figures(&recording);
    // Of the seconds 1 to 5: 1 to 2 and 3 to 4.
    assert_eq!(found.get(Id::Limited), Some(0.5));
    // Rc of seconds 1, 2 and 3, each for a second.
    assert_eq!(found.senders[0].rc_mean_bps, Some(2e6));
    assert_eq!(found.get(Id::Alpha), Some(0.3));
}

/// Two senders that share 2000 bytes a second as `first` says, for 21 seconds of which
/// the first is not measured.
fn sharing(first: impl Fn(usize) -> u64) -> Recording {
    let mut recording = base(&["h1", "h2"]);
    recording.run.measured = Some((1.0, 21.0));
    let (mut one, mut two) = (vec![0], vec![0]);
    for second in 0..21 {
        let got = first(second);
        one.push(one[second] + got);
        two.push(two[second] + 2000 - got);
    }
    goodput(&mut recording, "h1", &one);
    goodput(&mut recording, "h2", &two);
    recording
}

#[test]
fn senders_converge_when_they_are_near_their_share_and_stay_there() {
    let settles = sharing(|second| if second < 8 { 1900 } else { 1100 });
    assert_eq!(figures(&settles).get(Id::Convergence), Some(7.0));
    let tables = Tables::of(&settles);
    assert_eq!(tables.convergence((1.0, 21.0), 0.05), Some(f64::INFINITY));
    let at_once = sharing(|_| 1200);
    assert_eq!(figures(&at_once).get(Id::Convergence), Some(0.0));
}

#[test]
fn senders_that_settle_too_late_or_leave_again_do_not_converge() {
    let late = sharing(|second| if second < 18 { 1900 } else { 1000 });
    assert_eq!(figures(&late).get(Id::Convergence), Some(f64::INFINITY));
    let leaves = sharing(|second| if second < 20 { 1000 } else { 1900 });
    assert_eq!(figures(&leaves).get(Id::Convergence), Some(f64::INFINITY));
}

#[test]
fn convergence_is_judged_while_all_send() {
    let mut recording = sharing(|second| if second < 11 { 2000 } else { 1000 });
    recording.run.senders[1].begin_s = Some(11.0);
    assert_eq!(figures(&recording).get(Id::Convergence), Some(0.0));
    let mut alone = sharing(|_| 2000);
    alone.goodput.retain(|row| row.sender == "h1");
    alone.run.senders.truncate(1);
    assert_eq!(figures(&alone).get(Id::Convergence), None);
}

#[test]
fn completion_is_that_of_the_senders() {
    let mut recording = base(&["h1", "h2"]);
    assert_eq!(figures(&recording).get(Id::Errors), Some(0.0));
    recording.run.senders[0].completion_s = Some(3.0);
    recording.run.senders[1].completion_s = Some(4.5);
    recording.run.senders[1].errors = vec!["status 12".into(), "exit 1".into()];
    let found = figures(&recording);
    assert_eq!(found.get(Id::CompletionFirst), Some(3.0));
    assert_eq!(found.get(Id::CompletionLast), Some(4.5));
    assert_eq!(found.get(Id::Errors), Some(2.0));
}

#[test]
fn nothing_recorded_gives_no_figure_and_says_what_it_needs() {
    let found = figures(&Recording::default());
    for figure in &FIGURES {
        assert_eq!(found.get(figure.id), None, "{}", figure.key);
        let said = found.need(figure.id).unwrap_err().to_string();
        assert!(said.contains(figure.needs), "{said}");
    }
}

#[test]
fn the_documentation_tells_each_figure_under_its_key() {
    let text = include_str!("../../../../Documentation/recordings.md");
    for figure in &FIGURES {
        assert!(
            text.contains(&format!("| `{}` |", figure.key)),
            "{}",
            figure.key
        );
    }
}
