// SPDX-License-Identifier: GPL-2.0

//! `rxecc preset`: a known set of parameters, and the slow motion that makes it fit a
//! slow link.
//!
//! A preset is the parameters of the algorithm: `roce_np`, `roce_rp` and the rule of
//! hyper increase. What is on or off, and how packets are sent, stays as it is.

use anyhow::Result;
use clap::{Args, ValueEnum};
use rxe_cc::dcqcn::params::{Group, Id, Preset};

use super::set::{self, Whose};
use crate::system::{Device, Knob, System};
use crate::text::{columns, parse_rate, print, rate, Align};

/// The links that the known parameters were made for.
const MODEL_BPS: f64 = 40e9;

/// What to set, and whose.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rxecc preset paper --bottleneck 40mbit --all
  rxecc preset paper --dilation auto --diff -d rxe1
  rxecc preset connectx --dilation 1 --line-rate 0 --all

The status is 1 where --diff finds a difference.")]
pub(crate) struct Options {
    /// Which parameters.
    preset: Name,
    /// Slow motion: auto is 40 Gb/s over the rate of the bottleneck, or of the line.
    /// Without this and --bottleneck it stays as it is.
    #[arg(long, value_name = "auto|S")]
    dilation: Option<String>,
    /// The slowest link on the way (40mbit, 2.5gbit; a number alone is Mb/s). Becomes
    /// line_rate as well, and dilation follows from it, unless these are given.
    #[arg(long, value_name = "RATE")]
    bottleneck: Option<String>,
    /// The real rate of the host's own link; 0 is what the netdev says.
    #[arg(long, value_name = "RATE")]
    line_rate: Option<String>,
    /// Show what would change, and change nothing.
    #[arg(long)]
    diff: bool,
    #[command(flatten)]
    whose: Whose,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// What a ConnectX starts with, and the module.
    Connectx,
    /// The parameters of the DCQCN paper (SIGCOMM 2015).
    Paper,
}

impl From<Name> for Preset {
    fn from(name: Name) -> Self {
        match name {
            Name::Connectx => Preset::ConnectX,
            Name::Paper => Preset::Paper,
        }
    }
}

/// What dilation is to become.
enum Dilation {
    Keep,
    Auto,
    Is(u32),
}

/// Sets it, or shows it.
pub(crate) fn run(options: &Options, system: &System) -> Result<bool> {
    let wishes = Wishes::read(options)?;
    let mut text = String::new();
    let mut same = true;
    for device in options.whose.select(system)? {
        let changes = wishes.changes(&device)?;
        if changes.is_empty() {
            text += &format!("{}: all is as the preset says\n", device.title());
            continue;
        }
        same = false;
        if options.diff {
            text += &diff(&device, &changes);
            continue;
        }
        for change in &changes {
            text += &set::write(&device, change.knob, change.new)?;
        }
    }
    if let (Dilation::Keep, Some(kept)) = (&wishes.dilation, wishes.kept(options, system)?) {
        text += &kept;
    }
    print(&text)?;
    Ok(same || !options.diff)
}

struct Wishes {
    preset: Preset,
    dilation: Dilation,
    bottleneck_bps: Option<f64>,
    line_rate_mbps: Option<u32>,
}

struct Change {
    knob: Knob,
    old: u32,
    new: u32,
}

impl Wishes {
    fn read(options: &Options) -> Result<Self> {
        let bottleneck_bps = options.bottleneck.as_deref().map(parse_rate).transpose()?;
        let line_rate_mbps = match options.line_rate.as_deref() {
            Some("0") => Some(0),
            Some(text) => Some(to_mbps(parse_rate(text)?)),
            None => bottleneck_bps.map(to_mbps),
        };
        let dilation = match options.dilation.as_deref() {
            Some("auto") => Dilation::Auto,
            Some(text) => Dilation::Is(Knob::Param(Id::Dilation).parse(text)?),
            None if bottleneck_bps.is_some() => Dilation::Auto,
            None => Dilation::Keep,
        };
        Ok(Self {
            preset: options.preset.into(),
            dilation,
            bottleneck_bps,
            line_rate_mbps,
        })
    }

    /// What is not as it should be on this device. The scale comes first, so that no
    /// flow runs with the new parameters in the old one.
    fn changes(&self, device: &Device) -> Result<Vec<Change>> {
        let mut wanted = Vec::new();
        if let Some(rate) = self.line_rate_mbps {
            wanted.push((Knob::Param(Id::LineRate), rate));
        }
        let dilation = match self.dilation {
            Dilation::Keep => None,
            Dilation::Is(dilation) => Some(dilation),
            Dilation::Auto => Some(dilation_for(self.slowest_bps(device)?)),
        };
        wanted.extend(dilation.map(|dilation| (Knob::Param(Id::Dilation), dilation)));
        let of_algorithm = |knob: &Knob| match knob {
            Knob::Enable(..) => false,
            Knob::Param(Id::HyperIncrease) => true,
            Knob::Param(id) => id.param().group != Group::RxeCc,
        };
        let knobs = Knob::all().into_iter().filter(of_algorithm);
        wanted.extend(knobs.map(|knob| (knob, knob.preset(self.preset))));
        let mut changes = Vec::new();
        for (knob, new) in wanted {
            let old = device.knob(knob)?;
            if old != new {
                changes.push(Change { knob, old, new });
            }
        }
        Ok(changes)
    }

    /// The rate that dilation goes by.
    fn slowest_bps(&self, device: &Device) -> Result<f64> {
        let line_mbps = match self.line_rate_mbps {
            Some(rate) if rate != 0 => rate,
            Some(_) => device.netdev_rate_mbps()?,
            None => device.line_rate_mbps()?,
        };
        Ok(self.bottleneck_bps.unwrap_or(f64::from(line_mbps) * 1e6))
    }

    /// That slow motion, which the preset did not touch, is on or missing.
    fn kept(&self, options: &Options, system: &System) -> Result<Option<String>> {
        for device in options.whose.select(system)? {
            let dilation = device.knob(Knob::Param(Id::Dilation))?;
            let fit = dilation_for(self.slowest_bps(&device)?);
            if dilation != fit {
                return Ok(Some(format!(
                    "note: dilation stays {dilation}; for the {} of {} it would be {fit} (--dilation auto)\n",
                    rate(self.slowest_bps(&device)?),
                    device.title()
                )));
            }
        }
        Ok(None)
    }
}

/// Never 0, which would be the netdev's own.
fn to_mbps(bps: f64) -> u32 {
    (bps / 1e6).round().clamp(1.0, f64::from(u32::MAX)) as u32
}

/// The slow motion in which a link of this rate is one of those that the parameters
/// were made for.
pub(crate) fn dilation_for(bps: f64) -> u32 {
    let param = Id::Dilation.param();
    let factor = (MODEL_BPS / bps).round();
    factor.clamp(f64::from(param.min), f64::from(param.max)) as u32
}

fn diff(device: &Device, changes: &[Change]) -> String {
    let rows: Vec<Vec<String>> = changes
        .iter()
        .map(|Change { knob, old, new }| {
            vec![
                knob.path(),
                knob.show(*old),
                "->".to_owned(),
                knob.show_with_unit(*new),
            ]
        })
        .collect();
    let align = [Align::Left, Align::Right, Align::Left, Align::Left];
    format!("{}:\n{}", device.title(), columns("  ", &align, &rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dilation_makes_any_link_one_of_40_gbps() {
        assert_eq!(dilation_for(40e6), 1000);
        assert_eq!(dilation_for(1e9), 40);
        assert_eq!(dilation_for(100e9), 1, "never faster than real");
        assert_eq!(dilation_for(1.0), 100_000);
    }
}
