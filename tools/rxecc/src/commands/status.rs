// SPDX-License-Identifier: GPL-2.0

//! `rxecc status`: what goes on, at one look.
//!
//! For each device: where it is, the knobs that differ from the defaults, the counters
//! that are not 0, and the QPs whose rate is limited now. What only root may see is
//! said to be missing, once, and the rest is shown.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use anyhow::{bail, Result};
use clap::Args;
use rxe_cc::dcqcn::params::Id;
use serde::Serialize;

use crate::system::{is_root, needs_root, Device, Knob, Qp, System};
use crate::text::{columns, print, rate, Align};

/// What to show.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rxecc status
  rxecc status -d rxe1 --watch=0.5
  rxecc status --json | jq '.devices[].counters'")]
pub(crate) struct Options {
    /// RDMA device or netdev (rxe1, eth0, h1/eth0); without it all.
    #[arg(short, long, value_name = "DEV")]
    device: Option<String>,
    /// As JSON: everything, also knobs with their defaults and counters that are 0.
    /// With --watch a line each time.
    #[arg(long)]
    json: bool,
    /// Again and again, every second or every so many, until it is interrupted.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    watch: Option<f64>,
}

/// Prints it.
pub(crate) fn run(options: &Options, system: &System) -> Result<bool> {
    let Some(seconds) = options.watch else {
        let status = Status::take(options, system)?;
        print(&match options.json {
            true => serde_json::to_string_pretty(&status)? + "\n",
            false => status.show(),
        })?;
        return Ok(true);
    };
    if !(0.01..=86_400.0).contains(&seconds) {
        bail!("--watch={seconds}: from 0.01 to 86400 seconds");
    }
    // A screen is drawn anew, a file is continued.
    let clear = match io::stdout().is_terminal() {
        true => "\x1b[H\x1b[2J",
        false => "",
    };
    loop {
        let status = Status::take(options, system)?;
        print(&match options.json {
            true => serde_json::to_string(&status)? + "\n",
            false => format!("{clear}{}\n", status.show()),
        })?;
        thread::sleep(Duration::from_secs_f64(seconds));
    }
}

/// All of it, as JSON has it.
#[derive(Serialize)]
struct Status {
    /// Whether rxe_cc is there.
    loaded: bool,
    devices: Vec<DeviceStatus>,
    /// What could not be seen, and why.
    notes: Vec<String>,
}

#[derive(Serialize)]
struct DeviceStatus {
    device: String,
    netdev: String,
    /// The netdev's network namespace; empty for the initial one, null where unknown.
    namespace: Option<String>,
    line_rate_mbps: Option<u32>,
    knobs: BTreeMap<String, String>,
    counters: BTreeMap<String, u64>,
    qps: Option<Vec<Qp>>,
    #[serde(skip)]
    title: String,
    #[serde(skip)]
    values: Vec<(Knob, u32)>,
}

impl Status {
    fn take(options: &Options, system: &System) -> Result<Self> {
        let devices = system.select(options.device.as_deref())?;
        let mut notes = Vec::new();
        let loaded = system.has_module("rxe_cc");
        if !loaded {
            notes.push("rxe_cc is not loaded, so there is no congestion control: modprobe rxe_cc (or insmod rxe_cc.ko)".to_owned());
        }
        let hidden: Vec<&str> = devices
            .iter()
            .filter(|device| !is_root() && device.netdev.is_none())
            .map(|device| &*device.name)
            .collect();
        if loaded && !hidden.is_empty() {
            notes.push(format!(
                "the knobs of {} are in another network namespace, which only root may look into: run this with sudo to see them",
                hidden.join(", ")
            ));
        }
        let devices = devices
            .iter()
            .map(|device| DeviceStatus::take(device, loaded, &mut notes))
            .collect();
        Ok(Self {
            loaded,
            devices,
            notes,
        })
    }

    fn show(&self) -> String {
        let devices: Vec<String> = self.devices.iter().map(DeviceStatus::show).collect();
        // Without the module there is a line for each.
        let mut text = devices.join(if self.loaded { "\n" } else { "" });
        for note in &self.notes {
            text += &format!("note: {note}\n");
        }
        text
    }
}

impl DeviceStatus {
    fn take(device: &Device, loaded: bool, notes: &mut Vec<String>) -> Self {
        let mut note = |text: String| {
            if !notes.contains(&text) {
                notes.push(text);
            }
        };
        let mut status = Self {
            device: device.name.clone(),
            netdev: device.netdev_name.clone(),
            namespace: device
                .netdev
                .as_ref()
                .map(|netdev| netdev.namespace.name.clone()),
            line_rate_mbps: None,
            knobs: BTreeMap::new(),
            counters: BTreeMap::new(),
            qps: None,
            title: device.title(),
            values: Vec::new(),
        };
        if !loaded {
            return status;
        }
        match device.knobs() {
            Ok(values) => {
                status.line_rate_mbps = device.line_rate_mbps().ok();
                let shown = values
                    .iter()
                    .map(|(knob, value)| (knob.path(), knob.show(*value)));
                status.knobs = shown.collect();
                status.values = values;
            }
            Err(_) if !is_root() && device.netdev.is_none() => {} // noted for all at once
            Err(error) => note(format!("{error:#}")),
        }
        match device.counters() {
            Ok(counters) => status.counters = counters,
            Err(error) => note(format!("{error:#}")),
        }
        match device.qps() {
            Ok(qps) => status.qps = Some(qps),
            Err(error) if needs_root(&error) => {
                note(
                    "QPs are in debugfs, which only root may read: run this with sudo to see them"
                        .to_owned(),
                );
            }
            Err(error) => note(format!("{error:#}")),
        }
        status
    }

    fn show(&self) -> String {
        let mut head = vec![self.title.clone()];
        if let Some(mbps) = self.line_rate_mbps {
            head.push(format!("line {}", rate(f64::from(mbps) * 1e6)));
        }
        let dilation = self
            .values
            .iter()
            .find(|(knob, _)| *knob == Knob::Param(Id::Dilation));
        if let Some((_, dilation)) = dilation.filter(|(_, dilation)| *dilation != 1) {
            head.push(format!("dilation {dilation}"));
        }
        let mut text = head.join(", ") + "\n";
        if !self.values.is_empty() {
            text += &self.show_knobs();
        }
        if !self.counters.is_empty() {
            text += &self.show_counters();
        }
        if let Some(qps) = &self.qps {
            text += &show_qps(qps);
        }
        text
    }

    fn show_knobs(&self) -> String {
        let changed = self
            .values
            .iter()
            .filter(|(knob, value)| *value != knob.default());
        let rows: Vec<Vec<String>> = changed
            .map(|(knob, value)| {
                vec![
                    knob.path(),
                    knob.show_with_unit(*value),
                    format!("(default {})", knob.show(knob.default())),
                ]
            })
            .collect();
        section(
            "knobs",
            "all as they are by default",
            &rows,
            &[Align::Left; 3],
        )
    }

    fn show_counters(&self) -> String {
        let counted: Vec<Vec<String>> = self
            .counters
            .iter()
            .filter(|(_, value)| **value != 0)
            .map(|(name, value)| vec![name.clone(), value.to_string()])
            .collect();
        // Two beside each other.
        let half = counted.len().div_ceil(2);
        let (left, right) = counted.split_at(half);
        let rows: Vec<Vec<String>> = left
            .iter()
            .enumerate()
            .map(|(place, cells)| match right.get(place) {
                Some(more) => [&cells[..], &more[..]].concat(),
                None => cells.clone(),
            })
            .collect();
        let align = [Align::Left, Align::Right, Align::Left, Align::Right];
        section("counters", "all 0", &rows, &align)
    }
}

/// A title and its rows, or in the same line that there are none.
fn section(title: &str, none: &str, rows: &[Vec<String>], align: &[Align]) -> String {
    match rows {
        [] => format!("  {title}: {none}\n"),
        rows => format!("  {title}:\n{}", columns("    ", align, rows)),
    }
}

fn show_qps(qps: &[Qp]) -> String {
    // The peer last: an IPv6 address may be long.
    let head = ["QPN", "rate", "target", "alpha", "phase", "held", "peer"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for qp in qps {
        let Some(rp) = qp.rp.as_ref().filter(|rp| rp.is_limited()) else {
            continue;
        };
        let phase = rp.phase.trim_end_matches("_recovery");
        rows.push(vec![
            qp.qpn.to_string(),
            rate(rp.rc_bps as f64),
            rate(rp.rt_bps as f64),
            format!("{:.3}", rp.alpha),
            phase.trim_end_matches("_increase").to_owned(),
            rp.held.to_string(),
            qp.peer.clone().unwrap_or_else(|| qp.service.clone()),
        ]);
    }
    let limited = rows.len() - 1;
    if limited == 0 {
        let known = match qps.len() {
            0 => "no packet came lately".to_owned(),
            count => format!("none of {count} is limited"),
        };
        return format!("  QPs: {known}\n");
    }
    let mut align = [Align::Right; 7];
    align[4] = Align::Left;
    align[6] = Align::Left;
    let title = format!("QPs, {limited} of {} limited", qps.len());
    section(&title, "", &rows, &align)
}
