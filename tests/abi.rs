// SPDX-License-Identifier: GPL-2.0

//! The ABI documents against the tables that make the files: every file is
//! described once, with the range and the defaults it has, and nothing else is.
//! The words of the descriptions are left to readers.

use rxe_cc::dcqcn::params::{Group, Param, PARAMS};
use std::collections::BTreeMap;

const KNOBS: &str = include_str!("../Documentation/ABI/sysfs-class-net-ecn");
const COUNTERS: &str = include_str!("../Documentation/ABI/sysfs-class-infiniband-rxe_cc");
const TABLE: &str = include_str!("../rust/counters.rs");

/// The entries of a document: path below `root` and text of the description.
fn entries(document: &str, root: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in document.split("What:\t\t").skip(1) {
        let (what, rest) = entry.split_once('\n').unwrap();
        let mut lines = rest.lines();
        for tag in [
            "Date:\t\t",
            "KernelVersion:\t",
            "Contact:\t",
            "Description:",
        ] {
            let line = lines.next().unwrap_or_default();
            assert!(line.starts_with(tag), "{what}: {line:?} is not {tag:?}");
        }
        let text = lines.map(|line| line.trim_start_matches("\t\t").to_owned() + "\n");
        let path = what.strip_prefix(root).expect(what).to_owned();
        let twice = found.insert(path, text.collect());
        assert!(twice.is_none(), "{what} stands twice");
    }
    found
}

fn has_line(text: &str, line: &str) -> bool {
    text.lines().any(|other| other == line)
}

fn check_knob(param: &Param, text: &str) {
    let name = param.name;
    if !param.words.is_empty() {
        let words: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("  "))
            .filter(|line| !line.starts_with(' '))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert_eq!(words, param.words, "{name}");
        assert_eq!(param.connectx, 0, "{name}: the first word is the default");
        return;
    }
    let mut range = match (param.min, param.max) {
        (0, 1) => "Range: 0, 1".to_owned(),
        (min, max) => format!("Range: {min}..{max}"),
    };
    if !param.unit.is_empty() {
        range += &format!(" ({})", param.unit);
    }
    assert!(has_line(text, &range), "{name}: no {range:?}");
    let default = format!("Default: {}", param.connectx);
    assert!(has_line(text, &default), "{name}: no {default:?}");
    if param.paper != param.connectx {
        let paper = format!("Parameters of the DCQCN paper: {}", param.paper);
        assert!(has_line(text, &paper), "{name}: no {paper:?}");
    }
}

#[test]
fn every_knob_is_described_with_its_range_and_defaults_and_no_other() {
    let mut entries = entries(KNOBS, "/sys/class/net/<iface>/ecn");
    entries.remove("").expect("the directory");
    for group in Group::ALL {
        let enable = entries.remove(&format!("/{}/enable/<priority>", group.name()));
        assert_eq!(enable.is_some(), group.has_enable(), "{}", group.name());
    }
    for param in &PARAMS {
        let path = format!("/{}/{}", param.group.name(), param.name);
        check_knob(param, &entries.remove(&path).expect(&path));
    }
    assert!(entries.is_empty(), "no such knobs: {:?}", entries.keys());
}

#[test]
fn every_counter_is_described_and_no_other() {
    let mut entries = entries(COUNTERS, "/sys/class/infiniband/<device>/ports/1");
    entries.remove("/rxe_cc").expect("the directory");
    // The table needs the kernel to be compiled: read its lines.
    let mut rows = 0;
    for line in TABLE.lines() {
        let mut fields = line.trim().splitn(3, ", ");
        let (Some(_), Some(group), Some(rest)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let directory = match group {
            "HwCounters" => "hw_counters",
            "RxeCc" => "rxe_cc",
            _ => continue,
        };
        let name = rest.split('"').nth(1).expect(line);
        let path = format!("/{directory}/{name}");
        entries.remove(&path).expect(&path);
        rows += 1;
    }
    assert!(rows >= 19, "the table was not understood: {rows} rows");
    assert!(entries.is_empty(), "no such counters: {:?}", entries.keys());
}
