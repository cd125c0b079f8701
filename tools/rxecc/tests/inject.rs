// SPDX-License-Identifier: GPL-2.0

//! `rxecc inject` from outside, as far as it goes without a network: what it refuses,
//! and what it says to do instead.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A machine with one soft-RoCE device.
fn machine(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // What an earlier run left.
    let _none = fs::remove_dir_all(&root);
    let port = root.join("sys/class/infiniband/rxe1/ports/1");
    for dir in [port.join("hw_counters"), port.join("gids"), root.join("sys/class/net/eth0")] {
        fs::create_dir_all(dir).unwrap();
    }
    fs::write(root.join("sys/class/infiniband/rxe1/parent"), "eth0\n").unwrap();
    let gid = "0000:0000:0000:0000:0000:ffff:0a00:0001\n";
    fs::write(port.join("gids/0"), gid).unwrap();
    root
}

/// Exit status and stderr.
fn inject(root: &Path, arguments: &str) -> (Option<i32>, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_rxecc"))
        .env("RXECC_SYSROOT", root)
        .arg("inject")
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    (done.status.code(), String::from_utf8(done.stderr).unwrap())
}

#[test]
fn a_sender_that_cannot_be_found_is_asked_for() {
    let root = machine("inject-sender");
    let (status, text) = inject(&root, "cnp --to rxe1 --qpn 17");
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("--from"), "{text}");
}

#[test]
fn an_unknown_receiver_is_answered_by_those_there_are() {
    let root = machine("inject-receiver");
    let (status, text) = inject(&root, "cnp --to rxe7 --qpn 17 --from rxe1");
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("there is no soft-RoCE device rxe7; there is rxe1"), "{text}");
}

#[test]
fn values_out_of_range_are_answered_by_the_range() {
    let root = machine("inject-range");
    for (arguments, said) in [
        ("ce --to rxe1 --qpn 0x1000000", "0..16777215"),
        ("ce --to rxe1 --qpn 17 --psn -1", "0..16777215"),
        ("ce --to rxe1 --qpn 17 --tver 16", "0..=15"),
        ("ce --to rxe1 --qpn 17 --tos 256", "0..255"),
        ("ce --to rxe1 --qpn 17 --peer 02:cc", "six bytes"),
        ("ce --to rxe1 --qpn 17 --opcode rc_nothing", "RC_SEND_ONLY"),
    ] {
        let (status, text) = inject(&root, arguments);
        assert_eq!(status, Some(2), "{arguments}: {text}");
        assert!(text.contains(said), "{arguments}: {text}");
    }
}
