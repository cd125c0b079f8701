// SPDX-License-Identifier: GPL-2.0

//! `rxecc status`, `get`, `set` and `preset` on a machine of files: what they find,
//! what they write, and what they say when something is missing.

mod cli_support;

use std::io::{BufRead, BufReader};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cli_support::{Machine, QPS_HEAD};

fn assert_has(text: &str, wanted: &[&str]) {
    for part in wanted {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn every_eth0_is_told_apart_by_its_mac_address() {
    let machine = Machine::fabric();
    machine.write(
        "run/netns/h2/sys/class/net/eth0/ecn/roce_np/cnp_dscp",
        "7\n",
    );
    assert_eq!(machine.done("get cnp_dscp -d rxe1"), "48\n");
    assert_eq!(machine.done("get cnp_dscp -d rxe2"), "7\n");
    assert_eq!(machine.done("get cnp_dscp -d h2"), "7\n");
    assert_eq!(machine.done("get cnp_dscp -d h2/eth0"), "7\n");
}

#[test]
fn a_netdev_whose_mac_address_was_changed_is_the_one_that_is_left() {
    let machine = Machine::fabric();
    machine.write(
        "run/netns/h2/sys/class/net/eth0/address",
        "02:00:00:00:00:09\n",
    );
    machine.write(
        "run/netns/h2/sys/class/net/eth0/ecn/roce_np/cnp_dscp",
        "7\n",
    );
    assert_eq!(machine.done("get cnp_dscp -d rxe2"), "7\n");
}

#[test]
fn a_netdev_that_may_be_either_of_two_is_not_guessed() {
    let machine = Machine::fabric();
    for host in ["h1", "h2"] {
        let address = format!("run/netns/{host}/sys/class/net/eth0/address");
        machine.write(&address, "02:00:00:00:00:09\n");
    }
    let error = machine.refused("get cnp_dscp -d rxe1");
    assert_has(&error, &["rxe1", "network namespace"]);
}

#[test]
fn a_name_that_several_devices_have_is_refused_with_their_names() {
    let machine = Machine::fabric();
    let error = machine.refused("get cnp_dscp -d eth0");
    assert_has(&error, &["rxe1 (h1/eth0)", "rxe2 (h2/eth0)"]);
    let error = machine.refused("get cnp_dscp -d rxe9");
    assert_has(&error, &["no soft-RoCE device rxe9", "rxe1"]);
}

#[test]
fn what_is_missing_is_said_with_what_to_do() {
    let machine = Machine::bare();
    assert_has(
        &machine.refused("status"),
        &["rdma_rxe is not loaded", "modprobe rdma_rxe"],
    );
    machine.mkdir("sys/module/rdma_rxe");
    assert_has(
        &machine.refused("get"),
        &["no soft-RoCE device", "rdma link add"],
    );

    let machine = Machine::without_rxe_cc();
    for command in ["get dilation", "set dilation 1 --all", "preset paper --all"] {
        let error = machine.refused(command);
        assert_has(&error, &["rxe_cc is not loaded", "modprobe rxe_cc"]);
    }
    let status = machine.done("status");
    assert_has(&status, &["rxe1 (h1/eth0)", "rxe_cc is not loaded"]);
}

#[test]
fn a_device_that_is_no_soft_roce_is_left_alone() {
    let machine = Machine::fabric();
    machine.write(
        "sys/class/infiniband/mlx5_0/node_guid",
        "0000:0000:0000:0001\n",
    );
    assert!(!machine.done("status").contains("mlx5_0"));
}

#[test]
fn get_lists_all_knobs_of_all_devices_with_units() {
    let machine = Machine::fabric();
    let all = machine.done("get");
    assert_eq!(all.lines().count(), 2 * 42);
    assert_has(
        &all,
        &[
            "rxe1 (h1/eth0)  roce_rp/rpg_byte_reset",
            "32767 x 64 bytes",
            "1023/1024",
        ],
    );
    let json: serde_json::Value =
        serde_json::from_str(&machine.done("get --json -d rxe1")).unwrap();
    assert_eq!(json["rxe1"]["rxe_cc/ect_mode"], "rewrite");
    assert_eq!(json["rxe1"].as_object().unwrap().len(), 42);
}

#[test]
fn the_list_of_knobs_needs_no_machine() {
    let list = Machine::bare().done("get --list");
    assert_has(
        &list,
        &["roce_rp/rpg_ai_rate\n    1..4294967295 (Mb/s); default 5; paper 40\n"],
    );
    assert!(
        list.lines().all(|line| line.chars().count() <= 80),
        "{list}"
    );
}

#[test]
fn set_writes_one_device_and_shows_what_changed() {
    let machine = Machine::fabric();
    let said = machine.done("set rpg_ai_rate 40 -d rxe2");
    assert_eq!(said, "rxe2 (h2/eth0): roce_rp/rpg_ai_rate 5 -> 40 Mb/s\n");
    assert_eq!(machine.knob("h1", "roce_rp/rpg_ai_rate"), "5");
    assert_eq!(machine.knob("h2", "roce_rp/rpg_ai_rate"), "40");
    let said = machine.done("set roce_rp/rpg_ai_rate 40 --device h2");
    assert_eq!(said, "rxe2 (h2/eth0): roce_rp/rpg_ai_rate is 40 Mb/s\n");
    machine.done("set hyper_increase doubling --all");
    assert_eq!(machine.knob("h1", "rxe_cc/hyper_increase"), "doubling");
    assert_eq!(machine.knob("h2", "rxe_cc/hyper_increase"), "doubling");
}

#[test]
fn set_does_not_write_to_several_devices_unasked() {
    let machine = Machine::fabric();
    assert_has(
        &machine.refused("set rpg_ai_rate 40"),
        &["2 devices", "-d rxe1", "--all"],
    );
    assert_eq!(machine.knob("h1", "roce_rp/rpg_ai_rate"), "5");
    machine.remove("sys/class/infiniband/rxe2");
    machine.done("set rpg_ai_rate 40");
    assert_eq!(machine.knob("h1", "roce_rp/rpg_ai_rate"), "40");
}

#[test]
fn set_switches_one_priority_or_all_eight_of_one_half() {
    let machine = Machine::fabric();
    machine.done("set roce_np/enable/3 0 -d rxe1");
    assert_eq!(machine.knob("h1", "roce_np/enable/3"), "0");
    assert_eq!(machine.knob("h1", "roce_np/enable/2"), "1");
    machine.done("set roce_rp/enable 0 -d rxe1");
    for priority in 0..8 {
        assert_eq!(
            machine.knob("h1", &format!("roce_rp/enable/{priority}")),
            "0"
        );
    }
    let error = machine.refused("set enable/3 0 -d rxe1");
    assert_has(&error, &["roce_np/enable/3 or roce_rp/enable/3"]);
    assert_has(&machine.refused("set roce_rp 1 -d rxe1"), &["directory"]);
}

#[test]
fn a_bad_value_is_refused_with_the_range_and_nothing_is_written() {
    let machine = Machine::fabric();
    for (arguments, range) in [
        ("set rpg_time_reset 0 --all", "1..131071 (us)"),
        ("set rpg_time_reset -1 --all", "1..131071 (us)"),
        ("set rpg_time_reset 1us --all", "1..131071 (us)"),
        ("set dilation 100001 --all", "1..100000"),
        ("set ect_mode Pass --all", "rewrite, pass"),
        ("set roce_np/enable/0 2 --all", "0, 1"),
    ] {
        assert_has(&machine.refused(arguments), &[range]);
    }
    assert_eq!(machine.knob("h1", "roce_rp/rpg_time_reset"), "300");
    assert_has(
        &machine.refused("set rgp_ai_rate 1 --all"),
        &["is it rpg_ai_rate?"],
    );
    assert_has(&machine.refused("get dilution"), &["is it dilation?"]);
}

#[test]
fn the_papers_preset_fits_the_bottleneck() {
    let machine = Machine::fabric();
    machine.done("preset paper --bottleneck 40mbit --all");
    for (knob, value) in [
        ("rxe_cc/dilation", "1000"),
        ("rxe_cc/line_rate", "40"),
        ("roce_rp/rpg_threshold", "5"),
        ("roce_rp/clamp_tgt_rate", "1"),
        ("roce_np/min_time_between_cnps", "50"),
        ("roce_rp/dce_tcp_g", "1020"),
    ] {
        assert_eq!(machine.knob("h2", knob), value, "{knob}");
    }
    machine.done("preset connectx --dilation 1 --line-rate 0 --all");
    for knob in ["roce_rp/rpg_threshold", "rxe_cc/dilation"] {
        assert_eq!(machine.knob("h2", knob), "1", "{knob}");
    }
    assert_eq!(machine.knob("h2", "rxe_cc/line_rate"), "0");
}

#[test]
fn automatic_dilation_goes_by_the_line_rate_without_a_bottleneck() {
    let machine = Machine::fabric();
    machine.done("preset paper --dilation auto -d rxe1"); // the netdev says 10 Gb/s
    assert_eq!(machine.knob("h1", "rxe_cc/dilation"), "4");
    machine.done("preset paper --dilation auto --line-rate 1gbit -d rxe1");
    assert_eq!(machine.knob("h1", "rxe_cc/dilation"), "40");
    assert_eq!(machine.knob("h1", "rxe_cc/line_rate"), "1000");
    machine.done("set line_rate 100 -d rxe2");
    machine.done("preset paper --dilation auto -d rxe2");
    assert_eq!(machine.knob("h2", "rxe_cc/dilation"), "400");
    assert_eq!(machine.knob("h2", "rxe_cc/line_rate"), "100");
    machine.done("preset paper --dilation 7 --bottleneck 1G --line-rate 2G -d rxe2");
    assert_eq!(machine.knob("h2", "rxe_cc/dilation"), "7");
    assert_eq!(machine.knob("h2", "rxe_cc/line_rate"), "2000");
}

#[test]
fn a_preset_leaves_switches_and_packets_as_they_are() {
    let machine = Machine::fabric();
    machine.done("set roce_rp/enable/3 0 --all");
    machine.done("set ect_mode pass --all");
    machine.done("set hyper_increase doubling --all");
    let said = machine.done("preset paper --all");
    assert_eq!(machine.knob("h1", "roce_rp/enable/3"), "0");
    assert_eq!(machine.knob("h1", "rxe_cc/ect_mode"), "pass");
    assert_eq!(machine.knob("h1", "rxe_cc/hyper_increase"), "qcn");
    assert_eq!(machine.knob("h1", "rxe_cc/dilation"), "1");
    assert_has(&said, &["dilation stays 1", "it would be 4"]);
}

#[test]
fn a_diff_shows_what_would_change_and_changes_nothing() {
    let machine = Machine::fabric();
    let said = machine.rxecc("preset paper --diff -d rxe1 --dilation 4");
    assert_eq!(said.status, Some(1), "there are differences");
    assert_has(&said.out, &["rxe1 (h1/eth0)", "roce_rp/rpg_threshold", "5"]);
    assert_eq!(machine.knob("h1", "roce_rp/rpg_threshold"), "1");
    machine.done("preset paper -d rxe1 --dilation 4");
    let said = machine.rxecc("preset paper --diff -d rxe1 --dilation 4");
    assert_eq!((said.status, &*said.err), (Some(0), ""));
    assert_has(&said.out, &["all is as the preset says"]);
}

#[test]
fn bad_rates_and_dilations_are_refused() {
    let machine = Machine::fabric();
    assert_has(
        &machine.refused("preset paper --bottleneck 40mbps --all"),
        &["no rate", "40mbit"],
    );
    assert_has(
        &machine.refused("preset paper --dilation 0 --all"),
        &["1..100000"],
    );
}

fn limited(machine: &Machine) {
    let lines = QPS_HEAD.to_owned()
        + "21 RC 19 10.0.0.2 | 0 additive_increase 15606 15646 15606352 345.636 127 0 44 7 7 70 | -\n\
           22 RC 20 fe80::1234:5678:9abc:def0 | 3 hyper_increase 9999999 10000000 4294967295 1023.999 7 7 64 700000 700000 70 | -\n\
           23 UD - - | 0 unlimited 40000 40000 40000000 0.125 127 0 0 7 7 70 | quiet 10 8\n";
    machine.write("sys/kernel/debug/rxe_cc/rxe1/qps", &lines);
    machine.write(
        "sys/class/infiniband/rxe1/ports/1/rxe_cc/rp_rate_cuts",
        "12345\n",
    );
    machine.write(
        "sys/class/infiniband/rxe1/ports/1/hw_counters/rp_cnp_handled",
        "700\n",
    );
    machine.write(
        "run/netns/h1/sys/class/net/eth0/ecn/rxe_cc/dilation",
        "1000\n",
    );
}

#[test]
fn status_shows_what_is_not_as_usual_within_80_columns() {
    let machine = Machine::fabric();
    limited(&machine);
    let status = machine.done("status -d rxe1");
    assert_has(
        &status,
        &[
            "rxe1 (h1/eth0), line 10 Gb/s, dilation 1000\n",
            "rxe_cc/dilation  1000  (default 1)",
            "rp_cnp_handled  700  rp_rate_cuts  12345",
            "QPs, 2 of 3 limited",
            "15.6 Mb/s  15.6 Mb/s  0.338  additive",
        ],
    );
    assert!(
        !status.contains("np_cnp_sent"),
        "a counter that is 0: {status}"
    );
    assert!(!status.contains("sent_pkts"), "rxe's own counter: {status}");
    assert!(
        status.lines().all(|line| line.chars().count() <= 80),
        "{status}"
    );
}

#[test]
fn status_as_json_has_everything() {
    let machine = Machine::fabric();
    limited(&machine);
    let status: serde_json::Value = serde_json::from_str(&machine.done("status --json")).unwrap();
    assert_eq!(status["loaded"], true);
    let device = &status["devices"][0];
    assert_eq!(device["device"], "rxe1");
    assert_eq!(device["namespace"], "h1");
    assert_eq!(device["line_rate_mbps"], 10000);
    assert_eq!(device["knobs"]["rxe_cc/dilation"], "1000");
    assert_eq!(device["counters"]["np_cnp_sent"], 0);
    assert_eq!(device["qps"][0]["rp"]["rc_bps"], 15_606_000);
    assert_eq!(device["qps"][2]["rp"]["phase"], "unlimited");
    assert_eq!(device["qps"][2]["np"]["marks"], 10);
    assert_eq!(status["devices"][1]["qps"], serde_json::json!([]));
}

#[test]
fn status_goes_on_without_debugfs() {
    let machine = Machine::fabric();
    machine.remove("sys/kernel/debug");
    let status = machine.done("status");
    assert_has(&status, &["counters: all 0", "note: cannot read", "qps"]);
}

#[test]
fn watch_ends_when_nobody_reads_any_more() {
    let machine = Machine::fabric();
    let mut watch = machine
        .command("status --json --watch=0.01")
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let line = lines.next().unwrap().unwrap();
        assert!(line.starts_with('{') && line.ends_with('}'), "{line}");
    }
    drop(lines);
    let deadline = Instant::now() + Duration::from_secs(20);
    let status = loop {
        if let Some(status) = watch.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            watch.kill().unwrap();
            panic!("it goes on for nobody");
        }
        sleep(Duration::from_millis(10));
    };
    assert!(status.success());
}
