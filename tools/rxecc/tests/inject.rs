// SPDX-License-Identifier: GPL-2.0

//! `rxecc inject` from outside, as far as it goes without a network: what it refuses,
//! and what it says to do instead.

mod cli_support;

use cli_support::Machine;

const GID: &str = "sys/class/infiniband/rxe1/ports/1/gids/0";

#[test]
fn a_sender_that_cannot_be_found_is_asked_for() {
    let machine = Machine::fabric();
    machine.write(GID, "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
    let error = machine.refused("inject cnp --to rxe1 --qpn 17");
    assert!(error.contains("--from"), "{error}");
    let error = machine.refused("inject cnp --to 10.0.0.1 --qpn 17");
    assert!(error.contains("--from"), "{error}");
}

#[test]
fn an_unknown_receiver_is_answered_by_those_there_are() {
    let error = Machine::fabric().refused("inject cnp --to rxe7 --qpn 17 --from rxe1");
    assert!(
        error.contains("no soft-RoCE device rxe7; there is rxe1"),
        "{error}"
    );
}

#[test]
fn values_out_of_range_are_answered_by_the_range() {
    let machine = Machine::fabric();
    for (option, said) in [
        ("--qpn 0x1000000", "0..16777215"),
        ("--qpn 17 --psn 16777216", "0..16777215"),
        ("--qpn 17 --tver 16", "0..=15"),
        ("--qpn 17 --tos 256", "0..255"),
        ("--qpn 17 --peer 02:cc", "six bytes"),
        ("--qpn 17 --opcode rc_nothing", "RC_SEND_ONLY"),
    ] {
        let told = machine.rxecc(&format!("inject ce --to rxe1 {option}"));
        assert_eq!(told.status, Some(2), "{option}: {}", told.err);
        assert!(told.err.contains(said), "{option}: {}", told.err);
    }
}
