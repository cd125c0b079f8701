// SPDX-License-Identifier: GPL-2.0

//! `rxecc doctor`: its options, and findings as lines or JSON.

use std::time::Duration;

use anyhow::{bail, Result};
use clap::Args;
use serde_json::json;

use crate::doctor::{examine, gather, observed::Observation, Finding, CHECKS};
use crate::system::System;
use crate::text::print;

const EXAMPLES: &str = "\
Examples:
  rxecc doctor                      while traffic flows; the status is 1 if anything is wrong
  rxecc doctor --watch-for 10       for traffic that comes and goes
  rxecc doctor -d rxe2 --json       one device, for scripts

Run it as root: QPs, firewalls and other network namespaces are not shown to others.";

/// Whom to look at, and how long.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// How long to watch counters, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    watch_for: f64,

    /// One RDMA device or netdev (rxe1, eth0, h1/eth0) instead of all.
    #[arg(short, long, value_name = "DEV")]
    device: Option<String>,

    /// Findings as JSON.
    #[arg(long)]
    json: bool,
}

/// Whether all is well.
pub(crate) fn run(options: &Options, system: &System) -> Result<bool> {
    if !(0.0..=86_400.0).contains(&options.watch_for) {
        bail!("--watch-for {}: 0 to 86400 seconds", options.watch_for);
    }
    let devices = match &options.device {
        Some(name) => system.select(Some(name))?,
        // That there is none is a finding.
        None => system.devices(),
    };
    let time = Duration::from_secs_f64(options.watch_for);
    let observation = gather::observe(system, &devices, time)?;
    let findings = examine(&observation);
    if options.json {
        print(&as_json(&observation, &findings))?;
    } else {
        print(&as_text(&observation, &findings))?;
    }
    Ok(findings.is_empty())
}

fn as_text(observation: &Observation, findings: &[Finding]) -> String {
    let mut text: String = findings
        .iter()
        .map(|finding| finding.line() + "\n")
        .collect();
    if !findings.is_empty() && observation.is_busy() {
        return text;
    }
    let names: Vec<&str> = observation.hosts.iter().map(|host| &*host.name).collect();
    let traffic = match observation.is_busy() {
        true => format!("{} RoCE packets", observation.packets()),
        // What only traffic shows was judged by what counters came to.
        false => "no RoCE traffic, so counters since the module was loaded".to_owned(),
    };
    if findings.is_empty() {
        text += "nothing found; ";
    }
    text += &format!(
        "checked: {} things of {} in {:.1} s, {traffic}",
        CHECKS.len(),
        if names.is_empty() {
            "no device".to_owned()
        } else {
            names.join(", ")
        },
        observation.seconds,
    );
    if !observation.is_root {
        text += "; not checked without root: QPs, firewalls, other network namespaces";
    }
    text + "\n"
}

fn as_json(observation: &Observation, findings: &[Finding]) -> String {
    let checked: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
    let devices: Vec<&str> = observation.hosts.iter().map(|host| &*host.name).collect();
    let value = json!({
        "findings": findings,
        "checked": checked,
        "devices": devices,
        "seconds": observation.seconds,
        "roce_packets": observation.packets(),
        "as_root": observation.is_root,
    });
    format!("{value:#}\n")
}
