// SPDX-License-Identifier: GPL-2.0

//! `rxecc simulate` as a user runs it: against the fluid model and what is known of
//! soft-RoCE, its recordings, its help and its sentences. Nothing here depends on how
//! fast the machine is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn rxecc(arguments: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rxecc"))
        .arg("simulate")
        .args(arguments)
        .current_dir(dir)
        .output()
        .expect("rxecc runs")
}

/// A directory of the test's own.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _not_there = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// What a run came to, and the fluid model's fixed point.
fn simulated(arguments: &str) -> (Value, Value) {
    let mut words: Vec<_> = arguments.split_whitespace().collect();
    words.extend(["--fluid", "--json"]);
    let output = rxecc(&words, Path::new(env!("CARGO_TARGET_TMPDIR")));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {said}");
    let mut value: Value = serde_json::from_slice(&output.stdout).unwrap();
    (value["outcome"].take(), value["fluid"].take())
}

fn number(value: &Value, name: &str) -> f64 {
    value[name]
        .as_f64()
        .unwrap_or_else(|| panic!("{name} in {value}"))
}

fn assert_within(what: &str, value: f64, from: f64, to: f64) {
    assert!(
        (from..=to).contains(&value),
        "{what} is {value}, not in {from}..={to}"
    );
}

/// The mean queue as a multiple of the fluid model's.
fn queue_to_fluid(arguments: &str) -> f64 {
    let (outcome, fluid) = simulated(arguments);
    number(&outcome, "queue_mean_bytes") / number(&fluid, "queue_bytes")
}

#[test]
fn the_papers_queues_are_those_of_the_fluid_model() {
    // Of five seeds 0.86..0.87, 0.94..0.99 and 0.89..0.93; Documentation/simulate.md says
    // why 2 flows stay below, and why 8, which touch Kmax at times, do.
    for (flows, from, to) in [(2, 0.80, 1.0), (4, 0.90, 1.05), (8, 0.85, 1.0)] {
        let run = format!("--flows {flows} --duration 250ms --warm-up 100ms");
        assert_within(&run, queue_to_fluid(&run), from, to);
    }
}

#[test]
fn without_a_step_at_kmax_the_fluid_model_holds_up_to_16_flows() {
    // The same slope, but no queue comes to where everything is marked.
    for flows in [8, 10, 16] {
        let run = format!("--flows {flows} --red 5KB:980KB:0.05 --duration 250ms --warm-up 100ms");
        assert_within(&run, queue_to_fluid(&run), 0.93, 1.1);
    }
}

#[test]
fn from_16_flows_on_the_queue_runs_against_kmax() {
    let (outcome, fluid) = simulated("--flows 16 --duration 200ms --warm-up 100ms");
    assert_eq!(fluid["pinned"], true);
    assert_within("p99", number(&outcome, "queue_p99_bytes"), 190e3, 230e3);
}

#[test]
fn slow_motion_makes_a_slow_link_a_fast_one() {
    let fast = "--flows 4 --duration 300ms --warm-up 100ms";
    let slow = "--flows 4 --rate 40mbit --link 40mbit --dilation 1000 --delay 2ms \
                --duration 300s --warm-up 100s";
    let (fast, slow) = (simulated(fast).0, simulated(slow).0);
    for figure in ["utilisation", "jain", "queue_mean_bytes"] {
        let ratio = number(&slow, figure) / number(&fast, figure);
        assert_within(figure, ratio, 0.97, 1.03);
    }
}

#[test]
fn soft_roce_in_slow_motion_is_full_fair_and_nearly_empty() {
    for (flows, p99) in [(4, 28e3), (16, 45e3)] {
        let run = format!("--scenario soft-roce --flows {flows}");
        let (outcome, _) = simulated(&run);
        assert_within(&run, number(&outcome, "utilisation"), 0.96, 1.0);
        assert_within(&run, number(&outcome, "jain"), 0.98, 1.0);
        assert_within(&run, number(&outcome, "queue_p99_bytes"), 10e3, p99);
        assert_eq!(outcome["drops"], 0);
    }
}

#[test]
fn soft_roce_without_dilation_stays_at_the_cap_of_packets_in_flight() {
    // Flows are between 16 and 64 packets of 1082 bytes.
    for preset in ["paper", "connectx"] {
        let run = format!(
            "--scenario soft-roce --dilation 1 --preset {preset} --duration 20s --warm-up 5s"
        );
        let mean = number(&simulated(&run).0, "queue_mean_bytes");
        assert_within(&run, mean, 4.0 * 32.0 * 1082.0, 4.0 * 64.0 * 1082.0);
    }
}

#[test]
fn a_machine_that_stands_still_costs_capacity_unless_the_port_makes_up_for_it() {
    let utilisation = |tbf: &str| {
        let run = format!("--scenario soft-roce --stall 20ms:500ms --tbf {tbf} --duration 100s");
        number(&simulated(&run).0, "utilisation")
    };
    assert_within("3 ms of burst", utilisation("15000"), 0.4, 0.75);
    assert_within("20 ms of burst", utilisation("100KB"), 0.97, 1.0);
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read(path).unwrap())
    });
    entries.collect()
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let dir = scratch("seeds");
    let run = |seed: &str, to: &str| {
        let arguments = ["--duration", "5ms", "--events", "--seed", seed, "-o", to];
        let output = rxecc(&arguments, &dir);
        assert!(output.status.success(), "{output:?}");
        (output.stdout, files(&dir.join(to)))
    };
    let first = run("1", "first");
    let second = run("1", "second");
    assert!(first == second, "stdout or a table differs");
    let other = run("2", "other");
    assert!(first.1["flows.csv"] != other.1["flows.csv"]);
    assert!(first.1["events.csv"] != other.1["events.csv"]);
}

#[test]
fn a_recording_has_all_tables_and_adds_up() {
    let dir = scratch("recording");
    let arguments = ["--duration", "20ms", "--events", "--json", "-o", "run"];
    let output = rxecc(&arguments, &dir);
    assert!(output.status.success(), "{output:?}");
    let outcome: Value = serde_json::from_slice::<Value>(&output.stdout).unwrap()["outcome"].take();
    let run: Value = serde_json::from_slice(&fs::read(dir.join("run/run.json")).unwrap()).unwrap();
    assert_eq!(run["format"], 1);
    assert_eq!(run["source"], "simulation");
    assert_eq!(run["seed"], 1);
    assert_eq!(
        run["command"],
        "rxecc simulate --duration 20ms --events --json"
    );
    assert_eq!(run["knobs"]["roce_rp/rpg_ai_rate"], "40");
    assert_eq!(run["bottleneck"]["name"], "h5");
    assert_eq!(run["senders"][3]["address"], "10.0.0.4");

    let rows = |table: &str| -> Vec<BTreeMap<String, String>> {
        let mut reader = csv::Reader::from_path(dir.join("run").join(table)).unwrap();
        reader.deserialize().map(Result::unwrap).collect()
    };
    let total = |table: &[BTreeMap<String, String>], column: &str| -> u64 {
        table.last().unwrap()[column].parse().unwrap()
    };
    let queue = rows("queue.csv");
    let events = rows("events.csv");
    let of = |event: &str| events.iter().filter(|row| row["event"] == event).count();
    // Up to the last sample; events go on to the end.
    let marks = total(&queue, "marks");
    assert!(marks > 0 && of("ce") as u64 <= marks + 200 && of("ce") as u64 + 200 >= marks);
    assert!(of("cnp_tx") >= of("cnp_rx") && of("cnp_rx") > 0);
    assert!(of("rate_cut") > 0);
    let measured = run["measured"][0].as_f64().unwrap();
    assert!(rows("goodput.csv")
        .iter()
        .any(|row| row["time_s"].parse::<f64>().unwrap() <= measured));
    // All that left the port but what is on its way, less 14 bytes of Ethernet each.
    let sent = total(&queue, "sent_bytes") / 1000;
    let received: u64 = rows("goodput.csv")
        .iter()
        .rev()
        .take(4)
        .map(|row| row["bytes"].parse::<u64>().unwrap() / 986)
        .sum();
    assert!(
        sent > 0 && received <= sent && received + 20 >= sent,
        "{received} of {sent}"
    );
    for phase in rows("flows.csv").iter().map(|row| &row["phase"]) {
        let phases = [
            "unlimited",
            "fast_recovery",
            "additive_increase",
            "hyper_increase",
        ];
        assert!(phases.contains(&phase.as_str()), "{phase}");
    }
    assert!(number(&outcome, "cuts") > 0.0);
}

#[test]
fn the_examples_of_the_help_work_as_printed() {
    let dir = scratch("examples");
    let help = String::from_utf8(rxecc(&["--help"], &dir).stdout).unwrap();
    let examples: Vec<_> = help
        .lines()
        .filter_map(|line| line.trim().strip_prefix("rxecc simulate"))
        .filter(|rest| !rest.contains("[OPTIONS]"))
        .collect();
    assert_eq!(examples.len(), 5, "{help}");
    for example in examples {
        // Shorter, or the test would take as long as they do.
        let mut words: Vec<_> = example.split_whitespace().collect();
        words.extend(["--duration", "10ms"]);
        let output = rxecc(&words, &dir);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{example}: {output:?}");
        for line in ["goodput", "link", "queue", "marks", "CNPs", "converged"] {
            assert!(text.contains(line), "{example}: {text}");
        }
    }
    assert!(dir.join("target/simulated/run.json").exists());
}

#[test]
fn what_cannot_be_simulated_is_said_in_a_sentence() {
    let dir = scratch("sentences");
    for (arguments, hint) in [
        ("--scenario soft", "paper-40g, incast-100g, soft-roce"),
        ("--flows 0", "1 to 10000"),
        ("--flows two", "invalid digit"),
        ("--rate fast", "40mbit"),
        ("--rate 0gbit", "40mbit"),
        ("--rate 5tbit", "1bit"),
        ("--delay soon", "50us"),
        ("--delay 100000000s", "100000s"),
        ("--red 5KB", "KMIN:KMAX:PMAX"),
        ("--red 200KB:5KB:0.01", "Kmin is above"),
        ("--red 5KB:200KB:7", "at most 1"),
        ("--red-burst 3", "--red-average tc"),
        ("--red-average tc --red-burst 3", "--red-burst 6"),
        ("--red-average tc --red-avpkt 0", "1100"),
        ("--set rpg_ai_rate=fast", "1..4294967295"),
        ("--set rpg_a_irate=4", "rpg_ai_rate"),
        ("--dilation 0", "1..100000"),
        ("--packet 40", "64"),
        ("--packet 64KB", "9216"),
        ("--warm-up 1s --duration 1s", "longer than --warm-up"),
        ("--duration 1ms --stagger 1ms", "never begins"),
        ("--sample 0s", "--sample"),
        ("--sample 1ns", "--sample longer"),
        ("--size 0", "--size"),
        ("--in-flight 16:64", "STOP:RESUME"),
        ("--in-flight many", "64:16"),
        ("--unacked 10 --ack-every 64", "--ack-every"),
        ("--ack-every 0", "--ack-every"),
        ("--tbf 500", "--tbf"),
        ("--limit 500", "--limit"),
        ("--stall 20ms", "LENGTH:EVERY"),
        ("--stall 0s:1s", "above 0"),
        ("--events", "--output"),
        ("-o /proc/nothing", "/proc/nothing"),
    ] {
        let output = rxecc(&arguments.split_whitespace().collect::<Vec<_>>(), &dir);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert!(said.contains(hint), "{arguments}: {said}");
        assert!(!said.contains("panicked"), "{arguments}: {said}");
    }
}
