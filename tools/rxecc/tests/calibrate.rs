// SPDX-License-Identifier: GPL-2.0

//! `rxecc calibrate` from outside, as far as it goes without a network: what it refuses.

mod cli_support;

use cli_support::Machine;

#[test]
fn what_cannot_be_measured_is_told_before_anything_is_run() {
    let machine = Machine::without_rxe_cc();
    for (arguments, said) in [
        ("--from rxe1", "go together"),
        ("--from rxe1 --to rxe1", "name two devices"),
        ("--from rxe1 --to rxe9", "no soft-RoCE device rxe9"),
        ("--from rxe1 --to rxe2", "rxe_cc is not loaded"),
        ("", "rxe_cc is not loaded"),
        ("--from h1 --to h2 --bottleneck fast", "no rate"),
    ] {
        let error = machine.refused(&format!("calibrate {arguments}"));
        // Others than root get no further.
        let needs_root = error.contains("takes root");
        assert!(error.contains(said) || needs_root, "{arguments}: {error}");
    }
}

#[test]
fn among_more_than_two_devices_the_ends_must_be_named() {
    let machine = Machine::fabric();
    machine.write("sys/class/infiniband/rxe3/parent", "eth3\n");
    let error = machine.refused("calibrate");
    let needs_root = error.contains("takes root");
    assert!(error.contains("--from and --to") || needs_root, "{error}");
}
