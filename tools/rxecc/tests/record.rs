// SPDX-License-Identifier: GPL-2.0

//! `rxecc record` from outside, on a machine made of files: what it writes, and how
//! it ends. Queue, arrivals and events need a kernel: the selftest `samples` has them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const QPS: &str = "# qpn type peer_qpn peer | rp: prio phase rc_kbps rt_kbps model_rc_kbps \
    alpha/1024 time_stage byte_stage held cnps cuts since_cut_us | np: window marks cnps\n\
    21 RC 19 10.0.0.2 | 0 fast_recovery 15606 20000 15606352 512.000 2 1 44 7 6 1000 | -\n\
    22 RC 20 10.0.0.2 | - | quiet 10 8\n";

/// A machine with one soft-RoCE device, rxe1, in the network namespace h1.
fn machine(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("record")
        .join(name);
    // What an earlier run left.
    let _none = fs::remove_dir_all(&root);
    let device = root.join("sys/class/infiniband/rxe1");
    let files = [
        (device.join("parent"), "eth0\n"),
        (
            device.join("ports/1/gids/0"),
            "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
        ),
        (device.join("ports/1/hw_counters/duplicate_request"), "3\n"),
        (device.join("ports/1/hw_counters/lifespan"), "10\n"),
        (device.join("ports/1/rxe_cc/np_cnp_immediate"), "0\n"),
        (root.join("sys/kernel/debug/rxe_cc/rxe1/qps"), QPS),
        (root.join("sys/module/rxe_cc/refcnt"), "0\n"),
        (root.join("run/netns/h1/sys/class/net/eth0/mtu"), "1500\n"),
    ];
    for (path, text) in files {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn command(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rxecc"));
    command.env("RXECC_SYSROOT", root).arg("record").arg("-o");
    command.arg(root.join("out")).args(words);
    command
}

fn record(root: &Path, words: &[&str]) -> (i32, String) {
    let Output { status, stderr, .. } = command(root, words).output().unwrap();
    (status.code().unwrap(), String::from_utf8(stderr).unwrap())
}

/// A table's rows, without the head.
fn rows(root: &Path, file: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root.join("out").join(file)).unwrap_or_default();
    let row = |line: &str| line.split(',').map(str::to_owned).collect();
    text.lines().skip(1).map(row).collect()
}

fn run_file(root: &Path) -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(root.join("out/run.json")).unwrap()).unwrap()
}

#[test]
fn a_sending_qp_is_sampled_under_the_name_of_its_namespace() {
    let root = machine("flows");
    let (status, said) = record(
        &root,
        &["--interval=20", "--duration=0.5", "--title=T", "--seed=7"],
    );
    assert_eq!(status, 0, "{said}");
    let flows = rows(&root, "flows.csv");
    assert!(flows.len() >= 3, "{flows:?}");
    let wanted = "h1,rxe1,21,19,15606000.0,20000000.0,0.5,fast_recovery,2,1,44,7,6";
    assert!(
        flows.iter().all(|row| row[1..].join(",") == wanted),
        "{flows:?}"
    );
    let run = run_file(&root);
    assert_eq!(
        (&run["title"], &run["seed"], &run["format"]),
        (&"T".into(), &7.into(), &1.into())
    );
    let sender = &run["senders"][0];
    assert_eq!(
        (&sender["name"], &sender["device"]),
        (&"h1".into(), &"rxe1".into())
    );
    assert_eq!(
        (&sender["address"], &sender["qps"]),
        (&"10.0.0.1".into(), &1.into())
    );
}

#[test]
fn a_counter_is_told_at_the_start_and_when_it_changed() {
    let root = machine("counters");
    let counter = root.join("sys/class/infiniband/rxe1/ports/1/rxe_cc/np_cnp_immediate");
    let script = format!("sleep 0.3; echo 5 >{}; sleep 0.3", counter.display());
    let (status, said) = record(
        &root,
        &["--counters-interval=50", "--", "sh", "-c", &script],
    );
    assert_eq!(status, 0, "{said}");
    let seen: Vec<String> = rows(&root, "counters.csv")
        .iter()
        .map(|row| row[1..].join(","))
        .collect();
    assert_eq!(
        seen,
        [
            "rxe1,duplicate_request,3",
            "rxe1,np_cnp_immediate,0",
            "rxe1,np_cnp_immediate,5"
        ]
    );
}

#[test]
fn the_end_of_the_command_is_the_end_and_its_failure_is_told() {
    let root = machine("command");
    let (status, said) = record(
        &root,
        &["--measure-from=0.1", "--", "sh", "-c", "sleep 0.2; exit 3"],
    );
    assert_eq!(status, 1, "{said}");
    let run = run_file(&root);
    assert!(run["notes"].to_string().contains("exit status: 3"), "{run}");
    assert_eq!(run["measured"][0], 0.1);
    assert!(run["measured"][1].as_f64().unwrap() >= 0.2, "{run}");
}

/// A recording that goes on, and the time until it says so.
fn going_on(root: &Path, words: &[&str]) -> Child {
    let child = command(root, words).stderr(Stdio::null()).spawn().unwrap();
    for _ in 0..200 {
        if !rows(root, "flows.csv").is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child
}

#[test]
fn a_signal_ends_a_recording_well_and_its_command_with_it() {
    for signal in ["INT", "TERM"] {
        let root = machine(signal);
        let mut child = going_on(&root, &["--", "sleep", "100"]);
        let pid = child.id().to_string();
        assert!(Command::new("kill")
            .args(["-s", signal, &pid])
            .status()
            .unwrap()
            .success());
        let status = child.wait().unwrap();
        // The command was ended, which is its failure.
        assert_eq!(status.code(), Some(1), "{signal}");
        assert_eq!(run_file(&root)["senders"][0]["name"], "h1");
        let root = machine(signal);
        let mut child = going_on(&root, &[]);
        let pid = child.id().to_string();
        assert!(Command::new("kill")
            .args(["-s", signal, &pid])
            .status()
            .unwrap()
            .success());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
        assert_eq!(run_file(&root)["senders"][0]["name"], "h1");
    }
}

#[test]
fn without_the_module_counters_are_recorded_and_a_note_says_what_is_missing() {
    let root = machine("plain");
    fs::remove_dir_all(root.join("sys/module/rxe_cc")).unwrap();
    let (status, said) = record(&root, &["--duration=0.1", "--events"]);
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("rxe_cc was not loaded"), "{said}");
    assert!(rows(&root, "flows.csv").is_empty());
    assert!(!rows(&root, "counters.csv").is_empty());
}

#[test]
fn where_there_is_nothing_to_record_a_sentence_says_what_to_do() {
    let root = machine("nothing");
    fs::remove_dir_all(root.join("sys/class/infiniband")).unwrap();
    let (status, said) = record(&root, &["--duration=0.1"]);
    assert_eq!(status, 2);
    assert!(said.contains("modprobe rdma_rxe"), "{said}");
}
