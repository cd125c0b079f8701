// SPDX-License-Identifier: GPL-2.0

//! Knobs by name: those of the module's own table, and `enable/0` to `enable/7`.
//!
//! In come names and values as people type them, out come [`Knob`]s and checked
//! values, or sentences with the range, or with the name that was probably meant.

use std::fmt::Write;

use anyhow::{bail, Result};
use rxe_cc::dcqcn::params::{self, Group, Id, Param, Preset, PARAMS, PRIORITIES};

/// One file below a netdev's `ecn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knob {
    /// `enable/N` of one half.
    Enable(Group, u8),
    /// A row of the table.
    Param(Id),
}

impl Knob {
    /// All of them, in the order of the table, a group's `enable/N` first.
    pub(crate) fn all() -> Vec<Knob> {
        let mut knobs = Vec::new();
        for group in Group::ALL {
            if group.has_enable() {
                knobs.extend((0..PRIORITIES).map(|priority| Knob::Enable(group, priority)));
            }
            let rows = PARAMS.iter().filter(|param| param.group == group);
            knobs.extend(rows.map(|param| Knob::Param(param.id)));
        }
        knobs
    }

    /// The knobs that a name means: `rpg_ai_rate`, `roce_rp/rpg_ai_rate`,
    /// `roce_np/enable/3`, `roce_np/enable` (all eight), `enable/3` (of both halves),
    /// `roce_rp` (the whole directory).
    ///
    /// # Errors
    ///
    /// There is no such knob; the nearest name is told.
    pub(crate) fn find(name: &str) -> Result<Vec<Knob>> {
        let name = name.trim_matches('/');
        let name = name.strip_prefix("ecn/").unwrap_or(name);
        let found: Vec<Knob> = Self::all()
            .into_iter()
            .filter(|knob| knob.is_called(name))
            .collect();
        if found.is_empty() {
            bail!("{}", unknown(name));
        }
        Ok(found)
    }

    fn is_called(self, name: &str) -> bool {
        let path = self.path();
        let below = |whole: &str| {
            whole
                .strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        below(&path) || below(&self.name())
    }

    /// Its row, unless it is an `enable/N`.
    fn param(self) -> Option<&'static Param> {
        match self {
            Knob::Enable(..) => None,
            Knob::Param(id) => Some(id.param()),
        }
    }

    /// The directory it is in.
    pub(crate) fn group(self) -> Group {
        match self {
            Knob::Enable(group, _) => group,
            Knob::Param(id) => id.param().group,
        }
    }

    /// Its name inside the directory: `rpg_ai_rate`, `enable/3`.
    pub(crate) fn name(self) -> String {
        match self {
            Knob::Enable(_, priority) => format!("enable/{priority}"),
            Knob::Param(id) => id.param().name.to_owned(),
        }
    }

    /// Its path below `ecn`: `roce_rp/rpg_ai_rate`.
    pub(crate) fn path(self) -> String {
        format!("{}/{}", self.group().name(), self.name())
    }

    /// A preset's value.
    pub(crate) fn preset(self, preset: Preset) -> u32 {
        match self {
            Knob::Enable(..) => 1,
            Knob::Param(id) => preset.value(id),
        }
    }

    /// What it starts with.
    pub(crate) fn default(self) -> u32 {
        self.preset(Preset::ConnectX)
    }

    /// Empty where there is none.
    pub(crate) fn unit(self) -> &'static str {
        self.param().map_or("", |param| param.unit)
    }

    /// What it does, one sentence.
    pub(crate) fn doc(self) -> &'static str {
        self.param().map_or(
            "Whether this half of DCQCN acts for the priority.",
            |param| param.doc,
        )
    }

    /// What it may be: `1..131071`, `0, 1`, `qcn, constant, doubling`.
    pub(crate) fn range(self) -> String {
        match self.param() {
            Some(param) if !param.words.is_empty() => param.words.join(", "),
            Some(param) if (param.min, param.max) != (0, 1) => {
                format!("{}..{}", param.min, param.max)
            }
            _ => "0, 1".to_owned(),
        }
    }

    /// The range with its unit, as part of a sentence.
    pub(crate) fn range_and_unit(self) -> String {
        match self.unit() {
            "" => self.range(),
            unit => format!("{} ({unit})", self.range()),
        }
    }

    /// A value as the file shows it.
    pub(crate) fn show(self, value: u32) -> String {
        match self.param() {
            Some(param) => param.show(value).to_string(),
            None => value.to_string(),
        }
    }

    /// A value with its unit, for people.
    pub(crate) fn show_with_unit(self, value: u32) -> String {
        let mut text = self.show(value);
        match self.unit() {
            "" | "log2" => {}
            "%" => text.push('%'),
            "1/1024" => text.push_str("/1024"),
            unit if unit.starts_with(|c: char| c.is_ascii_digit()) => {
                let _ = write!(text, " x {unit}");
            }
            unit => {
                let _ = write!(text, " {unit}");
            }
        }
        text
    }

    /// What a person typed, or the file says.
    ///
    /// # Errors
    ///
    /// It is not a value of this knob; the range is told.
    pub(crate) fn parse(self, text: &str) -> Result<u32> {
        let value = match self.param() {
            Some(param) => params::parse(param, text.as_bytes()).ok(),
            None => params::parse_enable(text.as_bytes()).map(u32::from).ok(),
        };
        match value {
            Some(value) => Ok(value),
            None => bail!(
                "{} cannot be {:?}: it takes {}",
                self.path(),
                text,
                self.range_and_unit()
            ),
        }
    }
}

fn unknown(name: &str) -> String {
    let mut names: Vec<String> = PARAMS.iter().map(|param| param.name.to_owned()).collect();
    names.push("roce_np/enable".to_owned());
    names.push("roce_rp/enable".to_owned());
    let last = name.rsplit('/').next().unwrap_or(name);
    let near =
        |known: &String| strsim::jaro_winkler(known, name).max(strsim::jaro_winkler(known, last));
    let nearest = names
        .into_iter()
        .max_by(|one, other| near(one).total_cmp(&near(other)));
    match nearest {
        Some(nearest) if near(&nearest) > 0.8 => {
            format!("there is no knob {name}; is it {nearest}? (rxecc get --list names all)")
        }
        _ => format!("there is no knob {name} (rxecc get --list names all)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(name: &str) -> Vec<String> {
        let found = Knob::find(name).unwrap();
        found.into_iter().map(Knob::path).collect()
    }

    #[test]
    fn a_knob_is_found_with_and_without_its_directory() {
        assert_eq!(paths("rpg_ai_rate"), ["roce_rp/rpg_ai_rate"]);
        assert_eq!(paths("roce_rp/rpg_ai_rate"), ["roce_rp/rpg_ai_rate"]);
        assert_eq!(paths("ecn/rxe_cc/dilation"), ["rxe_cc/dilation"]);
        assert_eq!(paths("enable/3"), ["roce_np/enable/3", "roce_rp/enable/3"]);
        assert_eq!(paths("roce_np/enable").len(), 8);
        assert_eq!(paths("roce_np").len(), 11);
    }

    #[test]
    fn the_start_of_a_name_is_no_name() {
        assert!(Knob::find("rpg_").is_err());
        assert!(Knob::find("clamp_tgt_rate").is_ok_and(|found| found.len() == 1));
    }

    #[test]
    fn an_unknown_knob_is_answered_by_the_nearest_name() {
        let error = Knob::find("rgp_ai_rate").unwrap_err().to_string();
        assert!(error.contains("is it rpg_ai_rate?"), "{error}");
        let error = Knob::find("zzz").unwrap_err().to_string();
        assert!(!error.contains("is it"), "{error}");
    }

    #[test]
    fn a_value_out_of_range_is_answered_by_the_range_and_unit() {
        let [knob] = Knob::find("rpg_time_reset").unwrap()[..] else {
            panic!("not one");
        };
        assert_eq!(knob.parse("131071").unwrap(), 131_071);
        let error = knob.parse("0").unwrap_err().to_string();
        assert!(error.contains("1..131071 (us)"), "{error}");
    }

    #[test]
    fn every_file_of_the_module_is_a_knob() {
        assert_eq!(Knob::all().len(), PARAMS.len() + 16);
    }
}
