// SPDX-License-Identifier: GPL-2.0

//! The knobs of one device: where their values are kept.
//!
//! In come values that were checked already ([`KnobId::parse`]) and the questions
//! of the packet paths; out come values and snapshots. What knobs there are stands
//! in [`dcqcn::params`](crate::dcqcn::params), the files are made in
//! [`sysfs::knobs`](crate::sysfs::knobs).
//!
//! Each value is a word of its own, read and written without a lock: a reader sees
//! the old or the new one, and two writes in either order. Who keeps something that
//! was made from several of them makes it anew when [`KnobOwner::knob_changed`] is
//! called.

use crate::dcqcn::params::{
    parse, parse_enable, Enable, Id, NpParams, RpParams, Shown, COUNT, PARAMS,
};
use core::{
    fmt,
    sync::atomic::{AtomicU32, AtomicU8, Ordering::Relaxed},
};
use kernel::prelude::*;

/// A knob, the switches included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnobId {
    /// One of the table.
    Param(Id),
    /// NP on or off for a priority, 0..=7.
    NpEnable(u8),
    /// RP on or off for a priority, 0..=7.
    RpEnable(u8),
}

impl KnobId {
    /// Reads the text that a user wrote to the knob's file.
    ///
    /// # Errors
    ///
    /// `EINVAL` for all that is not a value of the knob.
    pub(crate) fn parse(self, text: &[u8]) -> Result<u32> {
        match self {
            Self::Param(id) => parse(id.param(), text),
            Self::NpEnable(_) | Self::RpEnable(_) => parse_enable(text).map(u32::from),
        }
        .map_err(|_| EINVAL)
    }

    /// A value as the knob's file shows it.
    pub(crate) fn show(self, value: u32) -> impl fmt::Display {
        match self {
            Self::Param(id) => ShownKnob::Param(id.param().show(value)),
            Self::NpEnable(_) | Self::RpEnable(_) => ShownKnob::Switch(value),
        }
    }
}

enum ShownKnob {
    Param(Shown),
    Switch(u32),
}

impl fmt::Display for ShownKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Param(shown) => shown.fmt(f),
            Self::Switch(value) => value.fmt(f),
        }
    }
}

/// Who has knobs.
pub(crate) trait KnobOwner: Send + Sync + 'static {
    /// The knobs.
    fn knobs(&self) -> &Knobs;

    /// A user wrote to `knob`; its value is there already. Called in process context,
    /// from any number of threads at once, never under the RTNL, and must not take it:
    /// whoever holds it may be waiting for this call.
    fn knob_changed(&self, knob: KnobId);
}

/// The values of all knobs of one device.
pub(crate) struct Knobs {
    values: [AtomicU32; COUNT],
    np_enable: AtomicU8,
    rp_enable: AtomicU8,
}

impl Knobs {
    /// All knobs at their defaults, those of a ConnectX.
    pub(crate) fn new() -> Self {
        Self {
            values: core::array::from_fn(|i| AtomicU32::new(PARAMS[i].connectx)),
            np_enable: AtomicU8::new(Enable::ALL.bits()),
            rp_enable: AtomicU8::new(Enable::ALL.bits()),
        }
    }

    /// The value of a knob of the table, in the knob's unit.
    pub(crate) fn get(&self, id: Id) -> u32 {
        self.values[id.index()].load(Relaxed)
    }

    /// Sets a knob of the table; a value out of its range is moved into it.
    pub(crate) fn set(&self, id: Id, value: u32) {
        self.values[id.index()].store(id.param().clamp(value), Relaxed);
    }

    /// The value of any knob; that of a switch is 0 or 1.
    pub(crate) fn read(&self, knob: KnobId) -> u32 {
        match knob {
            KnobId::Param(id) => self.get(id),
            KnobId::NpEnable(priority) => u32::from(self.np_enabled(priority)),
            KnobId::RpEnable(priority) => u32::from(self.rp_enabled(priority)),
        }
    }

    /// Sets any knob; a switch is on unless the value is 0.
    pub(crate) fn write(&self, knob: KnobId, value: u32) {
        match knob {
            KnobId::Param(id) => self.set(id, value),
            KnobId::NpEnable(priority) => switch(&self.np_enable, priority, value != 0),
            KnobId::RpEnable(priority) => switch(&self.rp_enable, priority, value != 0),
        }
    }

    /// Whether marks on packets of `priority` are answered.
    pub(crate) fn np_enabled(&self, priority: u8) -> bool {
        Enable::from_bits(self.np_enable.load(Relaxed)).is_on(priority)
    }

    /// Whether QPs of `priority` are limited.
    pub(crate) fn rp_enabled(&self, priority: u8) -> bool {
        Enable::from_bits(self.rp_enable.load(Relaxed)).is_on(priority)
    }

    /// The notification point's knobs: a handful of loads, cheap enough for every mark.
    pub(crate) fn np_params(&self) -> NpParams {
        NpParams::from_values(|id| self.get(id))
    }

    /// The reaction point's knobs, with what the netdev says of its speed in Mb/s (0:
    /// nothing). Made once a write and link change and kept, not once a packet.
    pub(crate) fn rp_params(&self, netdev_mbps: u32) -> RpParams {
        RpParams::from_values(|id| self.get(id), netdev_mbps)
    }
}

/// Turns one priority on or off; writers of other priorities are not disturbed.
fn switch(mask: &AtomicU8, priority: u8, on: bool) {
    let change = |bits| Some(Enable::from_bits(bits).with(priority, on).bits());
    // The closure always has an answer.
    let _ = mask.fetch_update(Relaxed, Relaxed, change);
}
