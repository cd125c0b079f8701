// SPDX-License-Identifier: GPL-2.0

//! `rxecc set`: a knob of one device, or of all.

use anyhow::{bail, Result};
use clap::Args;

use super::get::knob_help;
use crate::system::{Device, Knob, System};
use crate::text::print;

const EXAMPLES: &str = "\
Examples:
  rxecc set rpg_ai_rate 40 --all
  rxecc set dilation 1000 -d rxe1
  rxecc set roce_rp/enable/3 0 -d rxe1";

/// A knob, its value, and whose.
#[derive(Args)]
#[command(after_help = EXAMPLES, after_long_help = knob_help(EXAMPLES))]
pub(crate) struct Options {
    /// A knob, with or without its directory; roce_np/enable is all eight priorities.
    name: String,
    /// A number in the knob's range, in its unit, or one of its words.
    #[arg(allow_hyphen_values = true)]
    value: String,
    #[command(flatten)]
    whose: Whose,
}

/// Which devices are written to.
#[derive(Args)]
pub(super) struct Whose {
    /// RDMA device or netdev (rxe1, eth0, h1/eth0); needed if there are several.
    #[arg(short, long, value_name = "DEV", conflicts_with = "all")]
    device: Option<String>,
    /// All devices.
    #[arg(short, long)]
    all: bool,
}

impl Whose {
    /// The devices.
    ///
    /// # Errors
    ///
    /// Those of [`System::select`]; and nothing is written to several unless that is
    /// what was asked for.
    pub(super) fn select(&self, system: &System) -> Result<Vec<Device>> {
        let devices = system.select(self.device.as_deref())?;
        if self.device.is_none() && !self.all && devices.len() > 1 {
            let titles: Vec<String> = devices.iter().map(Device::title).collect();
            bail!(
                "there are {} devices: say which (-d {}) or --all; there is {}",
                devices.len(),
                devices[0].name,
                titles.join(", ")
            );
        }
        Ok(devices)
    }
}

/// Writes it.
pub(crate) fn run(options: &Options, system: &System) -> Result<bool> {
    let knobs = one_setting(&options.name)?;
    let mut values = Vec::new();
    for knob in knobs {
        values.push((knob, knob.parse(&options.value)?));
    }
    let mut text = String::new();
    for device in options.whose.select(system)? {
        for (knob, value) in &values {
            text += &write(&device, *knob, *value)?;
        }
    }
    print(&text)?;
    Ok(true)
}

/// The knob of a name, or the eight `enable` of one half.
fn one_setting(name: &str) -> Result<Vec<Knob>> {
    let found = Knob::find(name)?;
    let one_half = found
        .iter()
        .all(|knob| matches!(knob, Knob::Enable(..)) && knob.group() == found[0].group());
    if found.len() == 1 || one_half {
        return Ok(found);
    }
    if found.iter().all(|knob| matches!(knob, Knob::Enable(..))) {
        bail!("{name} is in roce_np and in roce_rp: say roce_np/{name} or roce_rp/{name}");
    }
    bail!(
        "{name} is a directory of {} knobs: name one of them (rxecc get {name} --list)",
        found.len()
    );
}

/// Writes one knob and tells in a line what became of it.
pub(super) fn write(device: &Device, knob: Knob, value: u32) -> Result<String> {
    let old = device.knob(knob)?;
    device.set_knob(knob, value)?;
    let became = match old == value {
        true => format!("is {}", knob.show_with_unit(value)),
        false => format!("{} -> {}", knob.show(old), knob.show_with_unit(value)),
    };
    Ok(format!("{}: {} {became}\n", device.title(), knob.path()))
}
