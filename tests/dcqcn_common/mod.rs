// SPDX-License-Identifier: GPL-2.0

//! Knobs for the tests of the RP: sets of values, and random ones.

use proptest::prelude::*;
use rxe_cc::dcqcn::params::{Id, Preset, RpParams, COUNT, PARAMS};

/// A value for every knob, and the netdev's rate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Knobs {
    pub(crate) values: [u32; COUNT],
    pub(crate) line_rate_mbps: u32,
}

impl Knobs {
    pub(crate) fn preset(preset: Preset, line_rate_mbps: u32) -> Self {
        let mut values = [0; COUNT];
        for param in &PARAMS {
            values[param.id.index()] = preset.value(param.id);
        }
        Knobs {
            values,
            line_rate_mbps,
        }
    }

    pub(crate) fn get(&self, id: Id) -> u32 {
        self.values[id.index()]
    }

    #[must_use]
    pub(crate) fn with(mut self, id: Id, value: u32) -> Self {
        self.values[id.index()] = value;
        self
    }

    pub(crate) fn params(&self) -> RpParams {
        RpParams::from_values(|id| self.get(id), self.line_rate_mbps)
    }
}

/// Any values in the knobs' ranges, the ends of the ranges often among them.
pub(crate) fn any_knobs() -> impl Strategy<Value = Knobs> {
    let values: Vec<_> = PARAMS
        .iter()
        .map(|param| {
            let (min, max) = (param.min, param.max);
            prop_oneof![
                3 => Just(param.connectx),
                3 => Just(param.paper),
                1 => Just(min),
                1 => Just(max),
                2 => min..=min.saturating_add(100).min(max),
                2 => min..=max,
            ]
        })
        .collect();
    let line = prop_oneof![Just(1), Just(40), Just(10_000), Just(400_000), any::<u32>()];
    (values, line).prop_map(|(values, line_rate_mbps)| Knobs {
        values: values.try_into().unwrap(),
        line_rate_mbps,
    })
}

/// Values that people use, or nearly: what happens under them is a fair sample of
/// all phases.
pub(crate) fn usual_knobs() -> impl Strategy<Value = Knobs> {
    (
        (
            prop_oneof![Just(Preset::ConnectX), Just(Preset::Paper)],
            prop_oneof![Just(1_000), Just(10_000), Just(100_000)],
            prop_oneof![Just(1), Just(2), Just(40), Just(1_000)],
            0..3u32,
        ),
        (
            1..=6u32,
            5..300u32,
            prop_oneof![0..400u32, 0..4u32],
            1..2_000u32,
            1..5_000u32,
        ),
        (0..2u32, 0..2u32, 9..=12u32, 20..=80u32, 1..=1023u32),
        (1..=60u32, 1..=60u32, 1..=1023u32),
        prop_oneof![Just((0, 0)), (0..20_000u32, 0..12_000u32)],
        1..50u32,
    )
        .prop_map(|(basis, climb, cut, alpha, rates, min_rate)| {
            let (preset, line, dilation, hyper) = basis;
            let (threshold, time_reset, byte_reset, ai, hai) = climb;
            let (clamp, clamp_after, gd, min_dec, initial_alpha) = cut;
            let (rtt, monitor, g) = alpha;
            let (first, max_rate) = rates;
            Knobs::preset(preset, line / dilation.min(line))
                .with(Id::Dilation, dilation)
                .with(Id::HyperIncrease, hyper)
                .with(Id::RpgThreshold, threshold)
                .with(Id::RpgTimeReset, time_reset)
                .with(Id::RpgByteReset, byte_reset)
                .with(Id::RpgAiRate, ai)
                .with(Id::RpgHaiRate, hai)
                .with(Id::ClampTgtRate, clamp)
                .with(Id::ClampTgtRateAfterTimeInc, clamp_after)
                .with(Id::RpgGd, gd)
                .with(Id::RpgMinDecFac, min_dec)
                .with(Id::InitialAlphaValue, initial_alpha)
                .with(Id::DceTcpRtt, rtt)
                .with(Id::RateReduceMonitorPeriod, monitor)
                .with(Id::DceTcpG, g)
                .with(Id::RateToSetOnFirstCnp, first)
                .with(Id::RpgMaxRate, max_rate)
                .with(Id::RpgMinRate, min_rate)
        })
}
