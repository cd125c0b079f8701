// SPDX-License-Identifier: GPL-2.0

//! `rxecc get`: knobs as they are, or what they may be.
//!
//! One knob of one device is printed as its value alone, for scripts; anything else
//! as a line each: device, knob, value with its unit.

use std::collections::BTreeMap;

use anyhow::{bail, Result};
use clap::Args;
use rxe_cc::dcqcn::params::Preset;

use crate::system::{Knob, System};
use crate::text::{columns, print, wrap, Align};

const EXAMPLES: &str = "\
Examples:
  rxecc get dilation
  rxecc get roce_rp -d rxe1
  rxecc get rpg_ai_rate --list";

/// Knobs, and whose.
#[derive(Args)]
#[command(after_help = EXAMPLES, after_long_help = knob_help(EXAMPLES))]
pub(crate) struct Options {
    /// A knob, with or without its directory (rpg_ai_rate, roce_rp/rpg_ai_rate), or a
    /// directory (roce_np, roce_np/enable); without it all.
    name: Option<String>,
    /// RDMA device or netdev (rxe1, eth0, h1/eth0); without it all.
    #[arg(short, long, value_name = "DEV")]
    device: Option<String>,
    /// What knobs there are: ranges, units, defaults, meanings.
    #[arg(short, long, conflicts_with = "device")]
    list: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Prints them.
pub(crate) fn run(options: &Options, system: &System) -> Result<bool> {
    let knobs = match &options.name {
        Some(name) => Knob::find(name)?,
        None => Knob::all(),
    };
    if options.list {
        let text = if options.json {
            list_json(&knobs)?
        } else {
            list(&knobs)
        };
        print(&text)?;
        return Ok(true);
    }
    let devices = system.select(options.device.as_deref())?;
    let mut rows = Vec::new();
    let mut values: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
    let mut errors = Vec::new();
    for device in &devices {
        for knob in &knobs {
            match device.knob(*knob) {
                Ok(value) => {
                    values
                        .entry(&device.name)
                        .or_default()
                        .insert(knob.path(), knob.show(value));
                    rows.push((device.title(), *knob, value));
                }
                // The others would say the same.
                Err(error) => {
                    errors.push(error);
                    break;
                }
            }
        }
    }
    if let (true, Some(error)) = (rows.is_empty(), errors.pop()) {
        return Err(error);
    }
    let text = match (&rows[..], options.json) {
        (_, true) => serde_json::to_string_pretty(&values)? + "\n",
        ([(_, knob, value)], false) => format!("{}\n", knob.show(*value)),
        (rows, false) => {
            let rows: Vec<Vec<String>> = rows
                .iter()
                .map(|(device, knob, value)| {
                    vec![device.clone(), knob.path(), knob.show_with_unit(*value)]
                })
                .collect();
            columns("", &[Align::Left; 3], &rows)
        }
    };
    print(&text)?;
    if let Some(error) = errors.pop() {
        bail!("not all could be read: {error:#}");
    }
    Ok(true)
}

/// What the knobs of a list may be and do.
fn list(knobs: &[Knob]) -> String {
    let mut text = String::new();
    for line in Line::all(knobs) {
        text += &format!("{}\n", line.name);
        let mut facts = format!("{}; default {}", line.knob.range_and_unit(), line.default);
        if line.paper != line.default {
            facts += &format!("; paper {}", line.paper);
        }
        text += &format!("    {facts}\n");
        text += &wrap("    ", 80, line.knob.doc());
    }
    text
}

fn list_json(knobs: &[Knob]) -> Result<String> {
    let list: Vec<serde_json::Value> = knobs
        .iter()
        .map(|knob| {
            serde_json::json!({
                "knob": knob.path(),
                "range": knob.range(),
                "unit": knob.unit(),
                "default": knob.show(knob.default()),
                "paper": knob.show(knob.preset(Preset::Paper)),
                "doc": knob.doc(),
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&list)? + "\n")
}

/// A knob for a list; the eight of an `enable` are one.
struct Line {
    name: String,
    knob: Knob,
    default: String,
    paper: String,
}

impl Line {
    fn all(knobs: &[Knob]) -> Vec<Self> {
        let mut lines: Vec<Self> = Vec::new();
        for knob in knobs {
            let name = match knob {
                Knob::Enable(group, _) => format!("{}/enable/0..7", group.name()),
                Knob::Param(_) => knob.path(),
            };
            if lines.last().is_none_or(|line| line.name != name) {
                lines.push(Self {
                    name,
                    knob: *knob,
                    default: knob.show(knob.default()),
                    paper: knob.show(knob.preset(Preset::Paper)),
                });
            }
        }
        lines
    }
}

/// For `--help` of the commands that take a knob: behind their examples names, ranges,
/// units and defaults.
pub(super) fn knob_help(examples: &str) -> String {
    let mut rows = vec![["Knob", "range", "unit", "default"]
        .map(str::to_owned)
        .to_vec()];
    for line in Line::all(&Knob::all()) {
        let unit = line.knob.unit().to_owned();
        rows.push(vec![line.name, line.knob.range(), unit, line.default]);
    }
    let table = columns("", &[Align::Left; 4], &rows);
    format!(
        "{examples}\n\n{table}\n\
         A default is what a ConnectX starts with. What each does: rxecc get --list"
    )
}
