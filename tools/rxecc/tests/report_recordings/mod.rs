// SPDX-License-Identifier: GPL-2.0

//! Recordings made up for tests: shapes like those that runs give, from a formula.

#![allow(dead_code, unreachable_pub)] // each test takes what it needs

#[path = "../../src/recording.rs"]
pub mod recording;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use recording::{
    Bottleneck, CounterSample, Event, FlowSample, GoodputSample, QueueSample, Recording, Row, Run,
    Sender, Writer,
};

pub const LINK_BPS: f64 = 40e6;
const STEP_S: f64 = 0.02;

/// Which way of running it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No module: the queue is full, and drops.
    Plain,
    /// Limiters that give up between two CNPs.
    ConnectX,
    /// Limiters that hold.
    Paper,
}

/// A made-up run of `senders`, `seconds` long.
pub fn made_up(kind: Kind, senders: usize, seconds: f64) -> Recording {
    let mut recording = Recording {
        run: run(kind, senders, seconds),
        ..Recording::default()
    };
    let mut random = 12345u64;
    let mut noise = move || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as f64 / f64::from(1u32 << 31) * 2.0 - 1.0
    };
    let fair = LINK_BPS / senders as f64;
    let mut got = vec![0.0; senders];
    let mut counts = vec![0u64; senders];
    let (mut sent, mut drops, mut marks) = (0.0, 0.0, 0.0);
    let steps = (seconds / STEP_S).round() as usize;
    for step in 0..=steps {
        let time_s = step as f64 * STEP_S;
        let settled = 1.0 - (-time_s / 2.0).exp();
        let (backlog, used) = match kind {
            Kind::Plain => (150e3 + 6e3 * noise(), 0.998),
            Kind::ConnectX => (95e3 + 45e3 * noise(), 0.99),
            Kind::Paper => (14e3 + 90e3 * (-time_s * 9.0).exp() + 9e3 * noise(), 0.975),
        };
        let backlog = backlog.max(0.0);
        if step > 0 {
            sent += LINK_BPS * used * STEP_S / 8.0;
            drops += match kind {
                Kind::Plain => 4.0 + 2.0 * noise(),
                _ if time_s < 0.2 => 3.0,
                _ => 0.0,
            };
            marks += match kind {
                Kind::Plain => 0.0,
                Kind::ConnectX => 60.0 + 20.0 * noise(),
                Kind::Paper => 7.0 + 5.0 * noise(),
            };
        }
        recording.queue.push(QueueSample {
            time_s,
            port: "h9".into(),
            backlog_bytes: backlog as u64,
            sent_bytes: sent as u64,
            drops: drops as u64,
            marks: marks as u64,
        });
        for sender in 0..senders {
            let spread = sender as f64 / senders.max(2) as f64 - 0.5;
            let skew = match kind {
                Kind::Plain => 1.0 + 0.9 * spread,
                Kind::ConnectX => 1.0 + 0.3 * spread,
                Kind::Paper => 1.0 + 0.8 * spread * (1.0 - settled),
            };
            let beat = (time_s * 2.4 + sender as f64).sin();
            got[sender] += fair * used * (skew + 0.05 * noise()) * STEP_S / 8.0;
            recording.goodput.push(GoodputSample {
                time_s,
                sender: name(sender),
                bytes: got[sender] as u64,
            });
            if kind == Kind::Plain || (kind == Kind::ConnectX && step % 3 == 1 && sender == 1) {
                continue;
            }
            counts[sender] += u64::from(step % 10 == sender % 10);
            let (rc, rt, alpha, phase) = match kind {
                Kind::ConnectX if (step + sender) % 7 > 0 => (1e9, 1e9, 0.0, "unlimited"),
                Kind::ConnectX => (4e8, 9e8, 0.03, "fast_recovery"),
                _ => (
                    fair * (skew + 0.12 * beat + 0.03 * noise()),
                    fair * (skew + 0.2 + 0.05 * beat),
                    0.16 + 0.84 * (-time_s).exp() + 0.03 * beat,
                    match beat {
                        b if b > 0.4 => "additive_increase",
                        b if b > -0.95 => "fast_recovery",
                        _ => "hyper_increase",
                    },
                ),
            };
            recording.flows.push(FlowSample {
                time_s,
                sender: name(sender),
                device: device(sender),
                qpn: 17 + sender as u32,
                peer_qpn: Some(40 + sender as u32),
                rc_bps: rc,
                rt_bps: rt,
                alpha,
                phase: phase.into(),
                cnps: counts[sender],
                cuts: counts[sender],
                ..FlowSample::default()
            });
            if step % 10 == sender % 10 {
                recording.events.push(Event {
                    time_s,
                    event: "rate_cut".into(),
                    device: device(sender),
                    qpn: 17 + sender as u32,
                    rc_bps: Some(rc),
                    ..Event::default()
                });
            }
        }
        counters(&mut recording, kind, time_s, &counts, drops, marks);
    }
    recording
}

fn name(sender: usize) -> String {
    format!("h{}", sender + 1)
}

fn device(sender: usize) -> String {
    format!("rxe{}", sender + 1)
}

fn run(kind: Kind, senders: usize, seconds: f64) -> Run {
    let (title, knobs): (&str, &[(&str, &str)]) = match kind {
        Kind::Plain => ("rxe alone", &[]),
        Kind::ConnectX => (
            "rxe_cc, ConnectX defaults",
            &[
                ("roce_rp/dce_tcp_rtt", "1"),
                ("roce_rp/rpg_time_reset", "300"),
                ("rxe_cc/dilation", "1"),
            ],
        ),
        Kind::Paper => (
            "rxe_cc, paper, dilation 1000",
            &[
                ("roce_rp/dce_tcp_rtt", "55"),
                ("roce_rp/dce_tcp_g", "1020"),
                ("roce_rp/rpg_time_reset", "55"),
                ("rxe_cc/dilation", "1000"),
            ],
        ),
    };
    let versions = [("kernel", "7.3.0"), ("rxe_cc", "0.1.0")];
    let owned = |pairs: &[(&str, &str)]| {
        let each = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        each.collect()
    };
    Run {
        format: recording::FORMAT,
        title: title.into(),
        source: "simulation".into(),
        started: "2026-01-02T03:04:05Z".into(),
        command: format!("rxecc simulate --senders {senders} --rate 40mbit --seed 7"),
        seed: Some(7),
        versions: owned(&versions),
        knobs: owned(knobs),
        bottleneck: Some(Bottleneck {
            name: "h9".into(),
            rate_bps: LINK_BPS,
            red_min_bytes: Some(15e3),
            red_max_bytes: Some(45e3),
            red_probability: Some(0.2),
            limit_bytes: Some(160e3),
        }),
        measured: Some((0.0, seconds)),
        senders: (0..senders)
            .map(|sender| Sender {
                name: name(sender),
                address: format!("10.0.0.{}", sender + 1),
                device: device(sender),
                qps: 1,
                begin_s: Some(0.0),
                ..Sender::default()
            })
            .collect(),
        notes: Vec::new(),
    }
}

fn counters(
    recording: &mut Recording,
    kind: Kind,
    time_s: f64,
    counts: &[u64],
    drops: f64,
    marks: f64,
) {
    let mut write = |device: &str, counter: &str, value: u64| {
        recording.counters.push(CounterSample {
            time_s,
            device: device.into(),
            counter: counter.into(),
            value,
        });
    };
    write("rxe9", "duplicate_request", (drops * 1.5) as u64);
    write("rxe1", "completer_retry_err", (drops / 3.0) as u64);
    if kind != Kind::Plain {
        write("rxe9", "np_ecn_marked_roce_packets", marks as u64);
        write("rxe9", "np_cnp_sent", counts.iter().sum());
        for (sender, count) in counts.iter().enumerate() {
            write(&device(sender), "rp_cnp_handled", *count);
            write(&device(sender), "rp_rate_cuts", *count);
        }
    }
}

fn write_rows<R: Row>(writer: &Writer, rows: &[R]) {
    if rows.is_empty() {
        return;
    }
    let mut table = writer.table::<R>().expect("the table is made");
    for row in rows {
        table.serialize(row).expect("a row is written");
    }
}

/// Writes it to `name` in the tests' own directory, and says where.
pub fn written(name: &str, recording: &Recording) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let writer = Writer::create(&dir).expect("the directory is made");
    write_rows(&writer, &recording.flows);
    write_rows(&writer, &recording.goodput);
    write_rows(&writer, &recording.queue);
    write_rows(&writer, &recording.counters);
    write_rows(&writer, &recording.events);
    writer.run(&recording.run).expect("run.json is written");
    dir
}

/// `rxecc` with these arguments.
pub fn rxecc<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rxecc"))
        .args(arguments)
        .output()
        .expect("rxecc runs")
}
