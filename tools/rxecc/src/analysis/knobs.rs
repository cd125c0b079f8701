// SPDX-License-Identifier: GPL-2.0

//! What a run's knobs mean in time: how long alpha lives, how fast a rate climbs.
//!
//! In come the knobs as a recording has them; out come seconds of the real network,
//! dilation included. The knobs themselves, and their defaults, are the module's
//! ([`Knob`]).

use std::collections::BTreeMap;

use rxe_cc::dcqcn::params::Id;

use crate::system::Knob;

/// The value that a ConnectX starts with, by the knob's path, as its file shows it.
pub(crate) fn default(path: &str) -> Option<String> {
    let knob = Knob::all().into_iter().find(|knob| knob.path() == path)?;
    Some(knob.show(knob.default()))
}

/// A run's time constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Constants {
    pub(crate) dilation: f64,
    /// alpha's window (`dce_tcp_rtt`), seconds.
    pub(crate) window_s: f64,
    /// What each window leaves of alpha, 0..1.
    pub(crate) kept: f64,
    /// The timer that raises the rate (`rpg_time_reset`), seconds.
    pub(crate) timer_s: f64,
}

impl Constants {
    /// Of a run with these knobs; nothing if the module was not there.
    pub(crate) fn of(knobs: &BTreeMap<String, String>) -> Option<Self> {
        if knobs.is_empty() {
            return None;
        }
        let value = |id: Id| {
            let knob = Knob::Param(id);
            let said = knobs
                .get(&knob.path())
                .and_then(|text| text.trim().parse().ok());
            said.unwrap_or_else(|| f64::from(knob.default()))
        };
        let dilation = value(Id::Dilation);
        Some(Self {
            dilation,
            window_s: value(Id::DceTcpRtt) * 1e-6 * dilation,
            kept: value(Id::DceTcpG) / 1024.0,
            timer_s: value(Id::RpgTimeReset) * 1e-6 * dilation,
        })
    }

    /// How long it takes alpha to halve without CNPs, seconds.
    pub(crate) fn half_life_s(&self) -> f64 {
        self.window_s * 0.5f64.ln() / self.kept.ln()
    }

    /// What is left of alpha after `seconds` without a CNP, 0..1.
    pub(crate) fn left_after(&self, seconds: f64) -> f64 {
        0.5f64.powf(seconds / self.half_life_s())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constants(knobs: &[(&str, &str)]) -> Constants {
        let owned = knobs.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        Constants::of(&owned.collect()).expect("there are knobs")
    }

    #[test]
    fn without_knobs_there_was_no_module() {
        assert_eq!(Constants::of(&BTreeMap::new()), None);
    }

    #[test]
    fn dilation_stretches_every_time_constant() {
        let knobs = [("roce_rp/dce_tcp_rtt", "55"), ("roce_rp/dce_tcp_g", "1020")];
        let plain = constants(&knobs);
        let slow = constants(&[&knobs[..], &[("rxe_cc/dilation", "1000")]].concat());
        // ln 2 / -ln(1020/1024) = 177.1 windows
        assert!((plain.half_life_s() - 55e-6 * 177.1).abs() < 1e-5);
        assert!((slow.half_life_s() / plain.half_life_s() - 1000.0).abs() < 1e-6);
        assert!((slow.timer_s - 0.3).abs() < 1e-12);
        assert!((slow.left_after(slow.half_life_s() * 2.0) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn defaults_are_those_of_the_table() {
        assert_eq!(default("roce_rp/rpg_ai_rate").as_deref(), Some("5"));
        assert_eq!(default("rxe_cc/ect_mode").as_deref(), Some("rewrite"));
        assert_eq!(default("roce_np/enable/3").as_deref(), Some("1"));
        assert_eq!(default("roce_rp/unheard_of"), None);
    }
}
