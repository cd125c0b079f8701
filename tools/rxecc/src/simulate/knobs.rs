// SPDX-License-Identifier: GPL-2.0

//! The knobs of a simulated network: what the files below `ecn/` are to the module.
//!
//! In come a preset and assignments by name (`roce_rp/rpg_ai_rate=40`, or the name
//! alone); out come the module's own snapshots. All hosts have the same knobs. Data has
//! priority 0.

use std::collections::BTreeMap;

use anyhow::{bail, Result};
use rxe_cc::dcqcn::params::{EctMode, Group, Id, NpParams, Preset, RpParams};

use crate::system::Knob;

/// The traffic class that simulated data is in.
const DATA_PRIORITY: u8 = 0;

/// A value for each knob.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Knobs {
    values: Vec<(Knob, u32)>,
}

impl Knobs {
    /// Those of a preset.
    pub(crate) fn new(preset: Preset) -> Self {
        let values = Knob::all()
            .into_iter()
            .map(|knob| (knob, knob.preset(preset)));
        Self {
            values: values.collect(),
        }
    }

    /// One knob's value.
    pub(crate) fn get(&self, id: Id) -> u32 {
        self.value(Knob::Param(id))
    }

    /// Sets one knob to a value that it allows.
    pub(crate) fn set(&mut self, id: Id, value: u32) {
        self.put(Knob::Param(id), id.param().clamp(value));
    }

    /// Takes `NAME=VALUE`, as it would be written to the file of that name.
    ///
    /// # Errors
    ///
    /// There is no such knob, or that is no value of it, with what there is.
    pub(crate) fn assign(&mut self, assignment: &str) -> Result<()> {
        let Some((name, value)) = assignment.split_once('=') else {
            bail!("{assignment} sets nothing: write NAME=VALUE, for example rpg_ai_rate=40");
        };
        for knob in Knob::find(name)? {
            let value = knob.parse(value)?;
            self.put(knob, value);
        }
        Ok(())
    }

    /// The NP's snapshot; `None` when it is off for the data's priority.
    pub(crate) fn np(&self) -> Option<NpParams> {
        self.enabled(Group::RoceNp)
            .then(|| NpParams::from_values(|id| self.get(id)))
    }

    /// The RP's snapshot on a link of this rate.
    pub(crate) fn rp(&self, link_mbps: u32) -> RpParams {
        RpParams::from_values(|id| self.get(id), link_mbps)
    }

    /// The RP acts on CNPs for the data's priority.
    pub(crate) fn rp_enabled(&self) -> bool {
        self.enabled(Group::RoceRp)
    }

    /// Data leaves as ECT(0): a switch marks it where it would otherwise drop it.
    pub(crate) fn ect(&self) -> bool {
        EctMode::from_value(self.get(Id::EctMode)) == EctMode::Rewrite
    }

    /// By their paths below `ecn/`, as a recording keeps them.
    pub(crate) fn by_path(&self) -> BTreeMap<String, String> {
        let shown = |&(knob, value): &(Knob, u32)| (knob.path(), knob.show(value));
        self.values.iter().map(shown).collect()
    }

    /// Those that differ from a preset, as assignments.
    pub(crate) fn differences(&self, preset: Preset) -> Vec<String> {
        self.values
            .iter()
            .filter(|(knob, value)| knob.preset(preset) != *value)
            .map(|(knob, value)| format!("{}={}", knob.name(), knob.show(*value)))
            .collect()
    }

    fn enabled(&self, group: Group) -> bool {
        self.value(Knob::Enable(group, DATA_PRIORITY)) == 1
    }

    fn value(&self, knob: Knob) -> u32 {
        let found = self.values.iter().find(|(known, _)| *known == knob);
        found.map_or(0, |(_, value)| *value)
    }

    fn put(&mut self, knob: Knob, value: u32) {
        for (known, old) in &mut self.values {
            if *known == knob {
                *old = value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_is_set_by_its_path_or_by_its_name() {
        let mut knobs = Knobs::new(Preset::Paper);
        for assignment in [
            "roce_rp/rpg_ai_rate=7",
            "dilation=1000",
            "hyper_increase=doubling",
        ] {
            knobs.assign(assignment).unwrap();
        }
        assert_eq!(knobs.get(Id::RpgAiRate), 7);
        assert_eq!(knobs.rp(40).dilation(), 1000);
        assert_eq!(
            knobs.differences(Preset::Paper),
            ["rpg_ai_rate=7", "dilation=1000", "hyper_increase=doubling"]
        );
    }

    #[test]
    fn the_halves_are_switched_off_by_priority() {
        let mut knobs = Knobs::new(Preset::ConnectX);
        knobs.assign("roce_rp/enable/3=0").unwrap();
        assert!(knobs.rp_enabled());
        knobs.assign("enable/0=0").unwrap();
        assert!(!knobs.rp_enabled());
        assert_eq!(knobs.np(), None);
    }

    #[test]
    fn a_bad_assignment_says_what_there_is() {
        let mut knobs = Knobs::new(Preset::Paper);
        for (assignment, hint) in [
            ("rpg_ai_rate", "NAME=VALUE"),
            ("rpg_ai_rate=0", "1..4294967295"),
            ("rpg_ai_rat=4", "rpg_ai_rate"),
            ("trust=maybe", "dscp, pcp"),
        ] {
            let error = knobs.assign(assignment).unwrap_err().to_string();
            assert!(error.contains(hint), "{assignment}: {error}");
        }
        assert_eq!(knobs, Knobs::new(Preset::Paper));
    }
}
