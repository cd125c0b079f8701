// SPDX-License-Identifier: GPL-2.0

//! `rxecc report`: recordings in, an HTML report and a table out.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::recording::Recording;
use crate::report::{html, table, Way};
use crate::text::print;

/// What to report on, and where to.
#[derive(Args)]
#[command(after_help = "\
Example:
  rxecc report plain connectx paper -o report.html --json figures.json

Each DIR is a recording of `rxecc record` or `rxecc simulate`; several are taken as the
ways of running one experiment and compared. The report is one file that needs no
network. What the figures mean stands in Documentation/recordings.md.")]
pub(crate) struct Options {
    /// Recordings, in the order in which they are to be shown.
    #[arg(required = true, value_name = "DIR")]
    recordings: Vec<PathBuf>,
    /// The report: one HTML file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Its title.
    #[arg(long)]
    title: Option<String>,
    /// The figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The figures as CSV, a line for each recording.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// No table on the terminal.
    #[arg(short, long)]
    quiet: bool,
}

/// Writes what was asked for.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let recordings = options
        .recordings
        .iter()
        .map(|dir| Ok((dir.display().to_string(), Recording::read(dir)?)))
        .collect::<Result<Vec<_>>>()?;
    let ways = Way::all(&recordings);
    let cannot = |path: &PathBuf| format!("cannot write {}", path.display());
    if let Some(path) = &options.output {
        let page = html(options.title.as_deref(), &recordings, &ways)?;
        fs::write(path, page).with_context(|| cannot(path))?;
    }
    if let Some(path) = &options.json {
        fs::write(path, table::json(&ways)?).with_context(|| cannot(path))?;
    }
    if let Some(path) = &options.csv {
        let file = File::create(path).with_context(|| cannot(path))?;
        table::csv(&ways, file).with_context(|| cannot(path))?;
    }
    if !options.quiet {
        print(&table::text(&ways))?;
    }
    if let Some(path) = &options.output {
        print(&format!("report: {}\n", path.display()))?;
    }
    Ok(true)
}
