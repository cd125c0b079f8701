// SPDX-License-Identifier: GPL-2.0

//! The documents against the sources they speak of: the tables in them are made
//! from the module's own tables, and links lead somewhere.
//!
//! `WRITE_DOCS=1 cargo test --test docs` writes the tables anew.

use rxe_cc::dcqcn::params::{Group, Param, PARAMS};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

const COUNTERS: &str = include_str!("../rust/counters.rs");

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text between the two marks of a table, or the document with another one.
fn table_in<'a>(document: &'a str, name: &str) -> (&'a str, &'a str, &'a str) {
    let begin = format!("<!-- table {name} -->\n");
    let (before, rest) = document.split_once(&begin).expect(&begin);
    let (table, after) = rest.split_once("<!-- end -->").expect("<!-- end -->");
    (
        &document[..before.len() + begin.len()],
        table,
        &document[document.len() - after.len() - "<!-- end -->".len()..],
    )
}

/// Compares the table `name` of a document with what it should be, or writes it.
fn check_table(path: &str, name: &str, want: &str) {
    let document = read(path);
    let (before, table, after) = table_in(&document, name);
    if table == want {
        return;
    }
    if std::env::var_os("WRITE_DOCS").is_some() {
        fs::write(root().join(path), format!("{before}{want}{after}")).expect(path);
        return;
    }
    for (line, (got, want)) in table.lines().zip(want.lines()).enumerate() {
        assert_eq!(got, want, "{path}, table {name}, line {}", line + 1);
    }
    panic!("{path}: the table {name} has too many or too few lines");
}

fn shown(param: &Param, value: u32) -> String {
    param.show(value).to_string()
}

fn knobs_of(group: Group) -> String {
    let mut table = "| file | range | unit | default | paper | what it does |\n\
                     |---|---|---|---|---|---|\n"
        .to_owned();
    if group.has_enable() {
        table += "| `enable/0` .. `enable/7` | 0, 1 | | 1 | 1 | Whether this half of DCQCN acts for the priority. |\n";
    }
    for param in PARAMS.iter().filter(|param| param.group == group) {
        let range = match (param.words, param.min, param.max) {
            ([], 0, 1) => "0, 1".to_owned(),
            ([], min, max) => format!("{min}..{max}"),
            (words, ..) => words.join(", "),
        };
        table += &format!(
            "| `{}` | {range} | {} | {} | {} | {} |\n",
            param.name,
            param.unit,
            shown(param, param.connectx),
            shown(param, param.paper),
            param.doc,
        )
        .replace("|  |", "| |");
    }
    table
}

#[test]
fn every_knob_stands_in_the_parameters_with_range_unit_and_presets() {
    for group in Group::ALL {
        check_table(
            "Documentation/parameters.md",
            group.name(),
            &knobs_of(group),
        );
    }
}

/// A row of the counters' table in the module's source.
struct Counter {
    doc: String,
    directory: &'static str,
    name: String,
    parts: Vec<String>,
}

/// The table, which needs the kernel to be compiled: its lines are read instead.
fn counters() -> (BTreeMap<String, String>, Vec<Counter>) {
    let body = COUNTERS
        .split_once("\ncounters! {\n")
        .and_then(|(_, rest)| rest.split_once("\n}\n"))
        .expect("the table")
        .0;
    let mut names = BTreeMap::new();
    let mut found = Vec::new();
    for entry in body.split(';') {
        let mut doc = Vec::new();
        let mut code = String::new();
        for line in entry.lines().map(str::trim) {
            match line.strip_prefix("///") {
                Some(text) => doc.push(text.trim().to_owned()),
                None => code += line,
            }
        }
        if code.is_empty() {
            continue;
        }
        let mut fields = code.splitn(3, ',').map(str::trim);
        let identifier = fields.next().unwrap().to_owned();
        let directory = match fields.next() {
            Some("HwCounters") => "hw_counters",
            Some("RxeCc") => "rxe_cc",
            other => panic!("{identifier}: {other:?}"),
        };
        let rest = fields.next().expect(&identifier);
        let name = rest.split('"').nth(1).expect(&identifier).to_owned();
        let parts = rest
            .split_once("sum of [")
            .map(|(_, parts)| parts.trim_end_matches(']'))
            .unwrap_or_default();
        names.insert(identifier, name.clone());
        found.push(Counter {
            doc: doc.join(" "),
            directory,
            name,
            parts: parts.split_whitespace().map(str::to_owned).collect(),
        });
    }
    (names, found)
}

#[test]
fn every_counter_stands_in_the_counters_with_its_directory() {
    let (_, counters) = counters();
    assert!(counters.len() >= 27, "{} counters found", counters.len());
    let mut table = "| file | below `ports/1/` | what it counts |\n|---|---|---|\n".to_owned();
    for Counter {
        doc,
        directory,
        name,
        ..
    } in &counters
    {
        table += &format!("| `{name}` | `{directory}` | {doc} |\n");
    }
    check_table("Documentation/counters.md", "counters", &table);
}

#[test]
fn the_sums_in_the_counters_are_those_of_the_module() {
    let document = read("Documentation/counters.md");
    let (names, counters) = counters();
    let flat = document.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut sums = 0;
    for counter in counters.iter().filter(|counter| !counter.parts.is_empty()) {
        let parts: Vec<&str> = counter.parts.iter().map(|part| &*names[part]).collect();
        let sum = format!("{} = {}", counter.name, parts.join(" + "));
        assert!(flat.contains(&sum), "no {sum:?}");
        sums += 1;
    }
    assert!(sums > 0, "no sum was understood");
}

/// The `.md` documents of the project.
fn documents() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md"), root().join("samples/README.md")];
    for entry in fs::read_dir(root().join("Documentation")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

fn check_links(path: &Path) -> usize {
    let text = fs::read_to_string(path).unwrap();
    let mut checked = 0;
    for link in text.split("](").skip(1) {
        let (target, _) = link.split_once(')').expect("the end of a link");
        let file = target.split('#').next().unwrap();
        if file.is_empty() || file.contains("://") {
            continue;
        }
        let full = path.parent().unwrap().join(file);
        assert!(full.exists(), "{}: no {target}", path.display());
        checked += 1;
    }
    checked
}

#[test]
fn links_lead_to_files() {
    let checked: usize = documents().iter().map(|path| check_links(path)).sum();
    assert!(checked > 5, "only {checked} links found");
}
