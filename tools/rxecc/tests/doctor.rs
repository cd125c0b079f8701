// SPDX-License-Identifier: GPL-2.0

//! `rxecc doctor` from outside, on machines of files: exit status, lines, JSON. What it
//! finds on real ones is the selftests' matter.

mod cli_support;

use cli_support::Machine;

/// Two devices; the first one's netdev is down.
fn one_is_down() -> Machine {
    let machine = Machine::fabric();
    for (host, flags) in [("h1", "0x1002"), ("h2", "0x1003")] {
        let netdev = format!("run/netns/{host}/sys/class/net/eth0");
        machine.write(&format!("{netdev}/flags"), &format!("{flags}\n"));
        machine.write(&format!("{netdev}/carrier"), "1\n");
    }
    machine
}

#[test]
fn findings_are_a_line_each_with_a_remedy_and_status_1() {
    let told = one_is_down().rxecc("doctor --watch-for 0");
    assert_eq!(told.status, Some(1), "{}{}", told.out, told.err);
    let is_finding = |line: &&str| line.contains(". Remedy: ");
    let findings: Vec<&str> = told.out.lines().filter(is_finding).collect();
    let down = |line: &&&str| line.starts_with("rxe1: its netdev eth0 is down");
    assert_eq!(findings.iter().filter(down).count(), 1, "{}", told.out);
    let rest = told.out.lines().count() - findings.len();
    assert_eq!(rest, 1, "and what was checked: {}", told.out);
}

#[test]
fn json_says_the_same_and_what_was_checked() {
    let told = one_is_down().rxecc("doctor --watch-for 0 --json");
    assert_eq!(told.status, Some(1), "{}{}", told.out, told.err);
    let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    let findings = told["findings"].as_array().unwrap();
    let down =
        |one: &serde_json::Value| one["check"] == "interface_down" && one["subject"] == "rxe1";
    assert!(findings.iter().any(down), "{told}");
    let checked = told["checked"].as_array().unwrap();
    assert!(
        findings.iter().all(|one| checked.contains(&one["check"])),
        "{told}"
    );
}

#[test]
fn one_device_can_be_asked_for() {
    let told = one_is_down().rxecc("doctor --watch-for 0 -d rxe2 --json");
    let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!(told["devices"], serde_json::json!(["rxe2"]));
    let findings = told["findings"].as_array().unwrap();
    assert!(
        findings.iter().all(|one| one["subject"] != "rxe1"),
        "{told}"
    );
}

#[test]
fn a_machine_without_a_device_is_a_finding_and_no_error() {
    let machine = Machine::bare();
    machine.mkdir("sys/module/rdma_rxe");
    machine.mkdir("sys/module/rxe_cc");
    let told = machine.rxecc("doctor --watch-for 0");
    assert_eq!(told.status, Some(1), "{}{}", told.out, told.err);
    let line = "there is no soft-RoCE device. Remedy: rdma link add";
    assert!(told.out.contains(line), "{}", told.out);
}

#[test]
fn what_was_asked_wrongly_is_status_2() {
    let machine = one_is_down();
    for wrong in ["--watch-for 0 -d rxe7", "--watch-for=-1", "--watch-for NaN"] {
        let error = machine.refused(&format!("doctor {wrong}"));
        assert!(error.starts_with("rxecc: "), "{error}");
    }
}
