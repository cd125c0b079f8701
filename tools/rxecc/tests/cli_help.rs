// SPDX-License-Identifier: GPL-2.0

//! The command line itself: `names`, help, manual pages and completions.

mod cli_support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use cli_support::Machine;
use rxe_cc::dcqcn::params::PARAMS;

/// The names of all subcommands, from the help.
fn subcommands(machine: &Machine) -> BTreeSet<String> {
    let help = machine.done("--help");
    let (_, list) = help.split_once("Commands:\n").expect("a list of commands");
    list.lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .filter(|name| name != "help")
        .collect()
}

#[test]
fn names_are_told_for_any_of_a_knobs_names() {
    let machine = Machine::bare();
    for name in [
        "dce_tcp_g",
        "roce_rp/dce_tcp_g",
        "DCE_TCP_G_P1",
        "rp_dce_tcp_g",
    ] {
        let said = machine.done(&format!("names {name}"));
        assert!(said.starts_with("roce_rp/dce_tcp_g\n"), "{name}: {said}");
        assert!(said.contains("bnxt_re    run_avg_weight_g"), "{said}");
    }
    let all = machine.done("names");
    for param in &PARAMS {
        assert!(
            all.contains(&format!("{}/{}\n", param.group.name(), param.name)),
            "{}",
            param.name
        );
    }
    assert!(all.lines().all(|line| line.chars().count() <= 80), "{all}");
    assert!(machine
        .refused("names frobnicate")
        .contains("no knob frobnicate"));
}

#[test]
fn every_subcommand_has_a_manual_page_and_is_completed() {
    let machine = Machine::bare();
    let names = subcommands(&machine);
    assert!(
        names.contains("status") && names.contains("preset"),
        "{names:?}"
    );
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("man-{}", std::process::id()));
    machine.done(&format!("man {}", dir.display()));
    let bash = machine.done("completions bash");
    for name in &names {
        let page = fs::read_to_string(dir.join(format!("rxecc-{name}.1"))).expect(name);
        assert!(page.contains(".TH"), "{name}");
        assert!(
            bash.contains(&format!("rxecc,{name})")),
            "{name} is not completed"
        );
    }
    let main = fs::read_to_string(dir.join("rxecc.1")).unwrap();
    assert!(
        !main.contains("sysroot"),
        "what is for tests alone is told to users"
    );
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_help_of_get_and_set_names_every_knob_with_its_range() {
    let machine = Machine::bare();
    for command in ["get", "set"] {
        let help = machine.done(&format!("{command} --help"));
        for param in &PARAMS {
            let row = help.lines().find(|line| {
                line.split_whitespace().next()
                    == Some(&format!("{}/{}", param.group.name(), param.name))
            });
            let row =
                row.unwrap_or_else(|| panic!("{} is not in the help of {command}", param.name));
            if param.words.is_empty() {
                assert!(row.contains(&param.max.to_string()), "{row}");
            }
            assert!(
                row.trim_end()
                    .ends_with(&param.show(param.connectx).to_string()),
                "{row}"
            );
        }
    }
}
