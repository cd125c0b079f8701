// SPDX-License-Identifier: GPL-2.0

//! The figures of several ways beside each other: for the terminal, as JSON, as CSV.
//!
//! In come [`Way`]s; out comes text. [`rows`] is the same for the page, too.

use std::io::Write;

use anyhow::Result;
use serde_json::{json, Map, Value};

use super::Way;
use crate::analysis::units::show;
use crate::analysis::{Figure, Id, FIGURES};
use crate::text::{columns, wrap, Align};

/// One way's figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    /// Whether it meets the aim, where there is one.
    pub(super) good: Option<bool>,
}

/// A figure of all ways.
pub(super) struct Row {
    pub(super) figure: &'static Figure,
    pub(super) cells: Vec<Cell>,
}

/// Those figures that at least one of the recordings has.
pub(super) fn rows(ways: &[Way<'_>]) -> Vec<Row> {
    let known = |figure: &&Figure| ways.iter().any(|way| way.figures.get(figure.id).is_some());
    let row = |figure: &'static Figure| Row {
        figure,
        cells: ways.iter().map(|way| cell(figure, way)).collect(),
    };
    FIGURES.iter().filter(known).map(row).collect()
}

/// Labels of the figures that no recording has.
pub(super) fn unknown(ways: &[Way<'_>]) -> Vec<&'static str> {
    let known = |figure: &&Figure| ways.iter().any(|way| way.figures.get(figure.id).is_some());
    let rest = FIGURES.iter().filter(|figure| !known(figure));
    rest.map(|figure| figure.label).collect()
}

fn cell(figure: &Figure, way: &Way<'_>) -> Cell {
    match way.figures.get(figure.id) {
        None => Cell {
            text: "-".to_owned(),
            good: None,
        },
        Some(value) => Cell {
            text: show(figure.unit, value),
            good: figure
                .aim
                .and_then(|(_, meets)| meets(&way.recording.run, value)),
        },
    }
}

/// The table for a terminal: `+` behind a figure that meets its aim, `!` behind one that
/// does not.
pub(crate) fn text(ways: &[Way<'_>]) -> String {
    const HEAD: usize = 18;
    let rows = rows(ways);
    let mark = |cell: &Cell| match cell.good {
        Some(true) => format!("{} +", cell.text),
        Some(false) => format!("{} !", cell.text),
        None => format!("{}  ", cell.text),
    };
    let heads: Vec<String> = ways.iter().map(|way| wrap("", HEAD, &way.title)).collect();
    let height = heads
        .iter()
        .map(|head| head.lines().count())
        .max()
        .unwrap_or(0);
    let mut lines: Vec<Vec<String>> = Vec::new();
    for at in 0..height {
        let of = |head: &String| {
            let missing = height - head.lines().count();
            let words = at.checked_sub(missing).and_then(|at| head.lines().nth(at));
            format!("{}  ", words.unwrap_or_default())
        };
        let aim = if at + 1 == height { "aim" } else { "" };
        let mut line = vec![String::new()];
        line.extend(heads.iter().map(of));
        line.push(aim.to_owned());
        lines.push(line);
    }
    for group in rows.chunk_by(|a, b| a.figure.group == b.figure.group) {
        lines.push(vec![group[0].figure.group.name().to_owned()]);
        for row in group {
            let mut line = vec![format!("  {}", row.figure.label)];
            line.extend(row.cells.iter().map(mark));
            line.push(row.figure.aim.map_or("", |(words, _)| words).to_owned());
            lines.push(line);
        }
    }
    let mut align = vec![Align::Right; ways.len() + 2];
    align[0] = Align::Left;
    align[ways.len() + 1] = Align::Left;
    let mut text = columns("", &align, &lines);
    let unknown = unknown(ways);
    if !unknown.is_empty() {
        text += &format!("Not recorded: {}.\n", unknown.join(", "));
    }
    text
}

/// A figure as JSON: a number, or null where it is not known (or never came).
fn number(value: Option<f64>) -> Value {
    value.map_or(Value::Null, Value::from)
}

/// Everything that is known of the ways.
pub(crate) fn json(ways: &[Way<'_>]) -> Result<String> {
    let one = |way: &Way<'_>| {
        let mut figures: Map<String, Value> = FIGURES
            .iter()
            .map(|figure| (figure.key.to_owned(), number(way.figures.get(figure.id))))
            .collect();
        let converged = way.figures.get(Id::Convergence).map(f64::is_finite);
        figures.insert("converged".to_owned(), json!(converged));
        let sender = |sender: &crate::analysis::SenderFigures| {
            json!({
                "name": sender.name,
                "device": sender.device,
                "goodput_bps": number(sender.goodput_bps),
                "goodput_last_half_bps": number(sender.goodput_last_half_bps),
                "rc_mean_bps": number(sender.rc_mean_bps),
                "completion_s": number(sender.completion_s),
                "errors": sender.errors,
            })
        };
        json!({
            "recording": way.directory,
            "title": way.title,
            "measured_s": [way.figures.span.0, way.figures.span.1],
            "figures": figures,
            "senders": way.figures.senders.iter().map(sender).collect::<Vec<_>>(),
            "counters": way.figures.counters,
            "run": way.recording.run,
        })
    };
    let all: Vec<Value> = ways.iter().map(one).collect();
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

/// A line for each way, a column for each figure, in the unit of its name; empty where
/// it is not known, `inf` where it never came.
pub(crate) fn csv(ways: &[Way<'_>], to: impl Write) -> Result<()> {
    let mut writer = csv::Writer::from_writer(to);
    let names = FIGURES.iter().map(|figure| figure.key);
    writer.write_record(["recording", "title"].into_iter().chain(names))?;
    for way in ways {
        let figures = FIGURES.iter().map(|figure| {
            let value = way.figures.get(figure.id);
            value.map_or(String::new(), |value| value.to_string())
        });
        let head = [way.directory.clone(), way.title.clone()];
        writer.write_record(head.into_iter().chain(figures))?;
    }
    writer.flush()?;
    Ok(())
}
