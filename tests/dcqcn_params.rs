// SPDX-License-Identifier: GPL-2.0

//! The knob table: what a user may write, what the presets are, and that the
//! table is fit to drive sysfs, tools and documentation.

use proptest::prelude::*;
use rxe_cc::dcqcn::params::{
    parse, parse_enable, CnpModeration, EctMode, Enable, Group, HyperIncrease, Id, Invalid,
    NpParams, Param, Preset, RpParams, Trust, COUNT, PARAMS, UNKNOWN_LINE_RATE_MBPS,
};

fn knob(name: &str) -> &'static Param {
    Group::ALL
        .iter()
        .find_map(|group| Param::find(*group, name))
        .unwrap()
}

#[test]
fn every_knob_of_the_contract_stands_in_the_table_with_its_range_and_presets() {
    // Written down a second time, from the contract, so that a slip in the table
    // shows.
    let big = u32::MAX;
    let rows: [(&str, &str, u32, u32, u32, u32); COUNT] = [
        ("roce_np", "min_time_between_cnps", 0, 131071, 4, 50),
        ("roce_np", "cnp_dscp", 0, 63, 48, 48),
        ("roce_np", "cnp_802p_prio", 0, 7, 6, 6),
        ("roce_rp", "clamp_tgt_rate", 0, 1, 0, 1),
        ("roce_rp", "clamp_tgt_rate_after_time_inc", 0, 1, 1, 1),
        ("roce_rp", "rpg_time_reset", 1, 131071, 300, 55),
        ("roce_rp", "rpg_byte_reset", 0, big, 32767, 156250),
        ("roce_rp", "rpg_threshold", 1, 31, 1, 5),
        ("roce_rp", "rpg_max_rate", 0, big, 0, 0),
        ("roce_rp", "rpg_ai_rate", 1, big, 5, 40),
        ("roce_rp", "rpg_hai_rate", 1, big, 50, 200),
        ("roce_rp", "rpg_gd", 0, 15, 11, 11),
        ("roce_rp", "rpg_min_dec_fac", 1, 100, 50, 50),
        ("roce_rp", "rpg_min_rate", 1, big, 1, 1),
        ("roce_rp", "rate_to_set_on_first_cnp", 0, big, 0, 0),
        ("roce_rp", "dce_tcp_g", 1, 1023, 1019, 1020),
        ("roce_rp", "dce_tcp_rtt", 1, 131071, 1, 55),
        ("roce_rp", "rate_reduce_monitor_period", 1, 131071, 4, 50),
        ("roce_rp", "initial_alpha_value", 1, 1023, 1023, 1023),
        ("rxe_cc", "ect_mode", 0, 1, 0, 0),
        ("rxe_cc", "trust", 0, 1, 0, 0),
        ("rxe_cc", "line_rate", 0, big, 0, 0),
        ("rxe_cc", "dilation", 1, 100_000, 1, 1),
        ("rxe_cc", "hyper_increase", 0, 2, 0, 0),
        ("rxe_cc", "cnp_udp_sport", 0, 65535, 0, 0),
        ("rxe_cc", "cnp_moderation", 0, 2, 0, 0),
    ];
    for (row, param) in rows.iter().zip(&PARAMS) {
        let found = (
            param.group.name(),
            param.name,
            param.min,
            param.max,
            Preset::ConnectX.value(param.id),
            Preset::Paper.value(param.id),
        );
        assert_eq!(*row, found);
    }
}

#[test]
fn rows_are_in_the_order_of_their_ids_and_complete() {
    for (index, param) in PARAMS.iter().enumerate() {
        assert_eq!(param.id.index(), index);
        assert!(std::ptr::eq(param.id.param(), param) || param.id.param().name == param.name);
        assert!(!param.doc.is_empty(), "{}", param.name);
        assert_eq!(
            Param::find(param.group, param.name).unwrap().id,
            param.id,
            "names are unique in their directory"
        );
        if !param.words.is_empty() {
            assert_eq!(param.words.len(), param.max as usize + 1);
        }
    }
}

#[test]
fn a_word_and_its_value_mean_the_same_to_table_and_enum() {
    let value = |name: &str, word: &str| parse(knob(name), word.as_bytes()).unwrap();
    assert_eq!(
        EctMode::from_value(value("ect_mode", "rewrite")),
        EctMode::Rewrite
    );
    assert_eq!(
        EctMode::from_value(value("ect_mode", "pass")),
        EctMode::Pass
    );
    assert_eq!(Trust::from_value(value("trust", "dscp")), Trust::Dscp);
    assert_eq!(Trust::from_value(value("trust", "pcp")), Trust::Pcp);
    let hyper = |word| HyperIncrease::from_value(value("hyper_increase", word));
    assert_eq!(hyper("qcn"), HyperIncrease::Qcn);
    assert_eq!(hyper("constant"), HyperIncrease::Constant);
    assert_eq!(hyper("doubling"), HyperIncrease::Doubling);
    let moderation = |word| CnpModeration::from_value(value("cnp_moderation", word));
    assert_eq!(moderation("per_qp"), CnpModeration::PerQp);
    assert_eq!(moderation("per_ip"), CnpModeration::PerIp);
    assert_eq!(moderation("per_port"), CnpModeration::PerPort);
}

#[test]
fn one_decimal_number_with_at_most_one_newline_is_read() {
    let dscp = knob("cnp_dscp");
    for (text, value) in [("0", 0), ("63", 63), ("48\n", 48), ("007", 7)] {
        assert_eq!(parse(dscp, text.as_bytes()), Ok(value), "{text:?}");
    }
    let max = knob("rpg_max_rate");
    assert_eq!(parse(max, b"4294967295\n"), Ok(u32::MAX));
}

#[test]
fn anything_else_is_refused() {
    let dscp = knob("cnp_dscp");
    let junk: &[&[u8]] = &[
        b"",
        b"\n",
        b"\n\n",
        b"1\n\n",
        b"\n1",
        b" 1",
        b"1 ",
        b"+1",
        b"-1",
        b"-0",
        b"0x10",
        b"1.0",
        b"1e1",
        b"1k",
        b"1\0",
        b"\x001",
        b"1\r\n",
        b"1\t",
        b"64",
        b"4294967296",
        b"4294967344",
        b"18446744073709551664",
        b"99999999999999999999999999999999999999999",
        "\u{0661}".as_bytes(),
        b"\xff",
        b"rewrite",
    ];
    for text in junk {
        assert_eq!(parse(dscp, text), Err(Invalid), "{text:?}");
    }
    assert_eq!(parse(knob("rpg_max_rate"), b"4294967296"), Err(Invalid));
    for name in ["rpg_time_reset", "dilation", "rpg_ai_rate", "dce_tcp_g"] {
        assert_eq!(parse(knob(name), b"0"), Err(Invalid), "{name}");
    }
}

#[test]
fn a_word_valued_knob_takes_its_words_alone() {
    let ect = knob("ect_mode");
    assert_eq!(parse(ect, b"pass\n"), Ok(1));
    assert_eq!(parse(ect, b"rewrite"), Ok(0));
    for text in [
        "", "\n", "Pass", "pas", "passs", "pass ", " pass", "pass\n\n", "0", "1",
    ] {
        assert_eq!(parse(ect, text.as_bytes()), Err(Invalid), "{text:?}");
    }
}

#[test]
fn enable_files_take_0_and_1() {
    assert_eq!(parse_enable(b"0"), Ok(false));
    assert_eq!(parse_enable(b"1\n"), Ok(true));
    for text in ["", "2", "-1", "on", "1 ", "01x"] {
        assert_eq!(parse_enable(text.as_bytes()), Err(Invalid), "{text:?}");
    }
}

#[test]
fn a_priority_is_switched_alone() {
    assert_eq!(Enable::default(), Enable::ALL);
    for priority in 0..8 {
        let off = Enable::ALL.with(priority, false);
        for other in 0..8 {
            assert_eq!(off.is_on(other), other != priority);
        }
        assert_eq!(off.with(priority, true), Enable::ALL);
        assert_eq!(Enable::from_bits(off.bits()), off);
    }
    assert!(!Enable::ALL.is_on(8));
    assert_eq!(Enable::ALL.with(8, false), Enable::ALL);
    assert_eq!(Enable::ALL.with(255, false), Enable::ALL);
}

#[test]
fn priority_comes_from_the_dscp_or_from_the_skb() {
    assert_eq!(Trust::Dscp.priority(26, 5), 3);
    assert_eq!(Trust::Dscp.priority(63, 0), 7);
    assert_eq!(Trust::Dscp.priority(255, 0), 7);
    assert_eq!(Trust::Pcp.priority(26, 5), 5);
    assert_eq!(Trust::Pcp.priority(0, 0xffff_fff9), 1);
}

#[test]
fn np_snapshot_multiplies_its_time_by_the_dilation() {
    let with = |dilation: u32| {
        NpParams::from_values(|id| match id {
            Id::Dilation => dilation,
            Id::MinTimeBetweenCnps => 131_071,
            Id::CnpUdpSport => 4242,
            _ => Preset::ConnectX.value(id),
        })
    };
    let real = with(1);
    assert_eq!(real.min_time_between_cnps_ns, 131_071_000);
    assert_eq!((real.dscp, real.prio, real.udp_sport), (48, 6, 4242));
    assert_eq!(
        with(100_000).min_time_between_cnps_ns,
        131_071_000 * 100_000
    );
}

#[test]
fn the_line_is_the_users_then_the_netdevs_then_a_guess() {
    let maximum = |user: u32, netdev: u32| {
        RpParams::from_values(
            |id| match id {
                Id::LineRate => user,
                _ => Preset::ConnectX.value(id),
            },
            netdev,
        )
        .maximum_bps()
    };
    assert_eq!(maximum(0, 10_000), 10_000_000_000);
    assert_eq!(maximum(40, 10_000), 40_000_000);
    let guess = u64::from(UNKNOWN_LINE_RATE_MBPS) * 1_000_000;
    assert_eq!(maximum(0, 0), guess);
    assert_eq!(maximum(0, u32::MAX), guess);
    assert_eq!(maximum(u32::MAX, 0), 4_294_967_295_000_000);
}

proptest! {
    #[test]
    fn what_a_knob_shows_can_be_written_back(index in 0..COUNT, value: u32) {
        let param = &PARAMS[index];
        let value = param.clamp(value);
        let shown = format!("{}\n", param.show(value));
        prop_assert_eq!(parse(param, shown.as_bytes()), Ok(value));
    }

    #[test]
    fn parse_agrees_with_the_standard_library(index in 0..COUNT, text in "[0-9]{0,12}\n?") {
        let param = &PARAMS[index];
        prop_assume!(param.words.is_empty());
        let expected = text
            .strip_suffix('\n')
            .unwrap_or(&text)
            .parse::<u32>()
            .ok()
            .filter(|value| (param.min..=param.max).contains(value))
            .ok_or(Invalid);
        prop_assert_eq!(parse(param, text.as_bytes()), expected);
    }

    #[test]
    fn bytes_are_refused_or_in_range(index in 0..COUNT, text: Vec<u8>) {
        let param = &PARAMS[index];
        if let Ok(value) = parse(param, &text) {
            prop_assert!((param.min..=param.max).contains(&value));
        }
    }
}
