// SPDX-License-Identifier: GPL-2.0

//! `rxecc report`, from recordings to the files it writes.

mod report_recordings;

use std::fs;
use std::path::{Path, PathBuf};

use report_recordings::{made_up, rxecc, written, Kind};

/// The three ways, recorded below `name`.
fn three_ways(name: &str, senders: usize) -> Vec<PathBuf> {
    [Kind::Plain, Kind::ConnectX, Kind::Paper]
        .map(|kind| written(&format!("{name}/{kind:?}"), &made_up(kind, senders, 10.0)))
        .into()
}

/// The report on `recordings`, and what was said on the terminal.
fn report(recordings: &[PathBuf], to: &Path, more: &[&str]) -> (String, String) {
    let mut arguments: Vec<String> = vec!["report".into()];
    arguments.extend(recordings.iter().map(|dir| dir.display().to_string()));
    arguments.extend(["-o".into(), to.display().to_string()]);
    arguments.extend(more.iter().map(|&word| word.into()));
    let output = rxecc(arguments);
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    (fs::read_to_string(to).expect("there is a report"), said)
}

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn a_report_needs_nothing_from_elsewhere() {
    let (page, _) = report(&three_ways("alone", 4), &place("alone.html"), &[]);
    for word in ["<script", "@import", "url(", "<img", "<iframe", "src="] {
        assert!(!page.contains(word), "{word}");
    }
    let elsewhere = page.matches("http").count();
    let namespaces = page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count();
    let policy = page.matches("http-equiv").count();
    assert_eq!(elsewhere, namespaces + policy);
}

#[test]
fn every_picture_has_a_name_and_a_description_of_its_own() {
    let (page, _) = report(&three_ways("named", 4), &place("named.html"), &[]);
    let pictures = page.matches("role=\"img\"").count();
    let mut ids: Vec<&str> = page
        .split(" id=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(pictures >= 20, "{pictures}");
    assert_eq!(page.matches("<title id=").count(), pictures);
    assert_eq!(page.matches("<desc id=").count(), pictures);
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "an id stands twice");
}

#[test]
fn what_was_not_recorded_has_a_reason_and_no_empty_plot() {
    let (page, said) = report(&three_ways("plain", 4)[..1], &place("plain.html"), &[]);
    assert!(page.contains("No rate limiter was there to be recorded"));
    assert!(!page.contains("rates-0-wide"));
    assert!(said.contains("Not recorded: "), "{said}");
}

#[test]
fn many_flows_are_a_band_and_the_file_stays_small() {
    let (few, _) = report(&three_ways("few", 4)[2..], &place("few.html"), &[]);
    let (many, _) = report(&three_ways("many", 64)[2..], &place("many.html"), &[]);
    assert!(few.contains("h4</li>") && !few.contains("median of"));
    assert!(many.contains("median of 64 flows"));
    assert!(many.len() < 3 * few.len(), "{} {}", many.len(), few.len());
}

#[test]
fn text_of_a_recording_is_no_markup() {
    let mut recording = made_up(Kind::Paper, 2, 2.0);
    recording.run.title = "<b>a & b</b>".into();
    recording.run.notes = vec!["<script>alert(1)</script>".into()];
    for row in &mut recording.flows {
        row.sender = format!("<i>{}", row.sender);
    }
    let (page, _) = report(&[written("markup", &recording)], &place("markup.html"), &[]);
    assert!(page.contains("&lt;b&gt;a &amp; b"));
    for word in ["<b>a", "<script", "<i>"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn figures_are_written_as_json_and_csv() {
    let (json, csv) = (place("figures.json"), place("figures.csv"));
    let more = [
        "--json",
        &json.display().to_string(),
        "--csv",
        &csv.display().to_string(),
    ]
    .map(String::from);
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    report(&three_ways("numbers", 4), &place("numbers.html"), &more);
    let all: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&json).expect("there is JSON")).expect("is JSON");
    let paper = &all[2]["figures"];
    let used = paper["utilisation"].as_f64().expect("a number");
    assert!((used - 0.975).abs() < 0.002, "{used}");
    assert_eq!(all[0]["figures"]["cnps_sent"], serde_json::Value::Null);
    assert_eq!(all[2]["run"]["seed"], 7);

    let mut table = csv::Reader::from_path(&csv).expect("there is CSV");
    let heads = table.headers().expect("a head").clone();
    let at = heads
        .iter()
        .position(|name| name == "utilisation")
        .expect("a column");
    let rows: Vec<_> = table.records().map(|row| row.expect("a row")).collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[2][at].parse::<f64>().expect("a number"), used);
}

#[test]
fn a_directory_without_a_recording_is_an_error_that_says_so() {
    let output = rxecc(["report", "/nowhere", "-o", "/dev/null"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("/nowhere is no recording"), "{said}");
}
