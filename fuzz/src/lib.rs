// SPDX-License-Identifier: GPL-2.0

//! What the fuzz targets share: knobs made of a fuzzer's bytes, and the bits of a
//! packet that its ICRC leaves out.
//!
//! In: an [`Unstructured`]. Out: values that the module could meet. What must hold
//! for them stands in the targets.

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use rxe_cc::dcqcn::params::{Id, NpParams, Param, Preset, RpParams, COUNT, PARAMS};
use rxe_cc::roce::packet::{Addr, UDP_LEN};

/// A value for every knob, and the speed of the link.
#[derive(Clone, Debug)]
pub struct Knobs {
    values: [u32; COUNT],
    line_rate_mbps: u32,
}

impl Knobs {
    /// A preset with some knobs written over.
    ///
    /// # Errors
    ///
    /// When the bytes do not suffice.
    pub fn arbitrary(u: &mut Unstructured<'_>) -> Result<Self> {
        let preset = *u.choose(&[Preset::ConnectX, Preset::Paper])?;
        let mut knobs = Knobs {
            values: PARAMS.each_ref().map(|param| preset.value(param.id)),
            line_rate_mbps: *u.choose(&[0, 1, 40, 1_000, 10_000, 400_000, u32::MAX])?,
        };
        for _ in 0..u.int_in_range(0..=12)? {
            let (id, value) = knob_write(u)?;
            knobs = knobs.with(id, value);
        }
        Ok(knobs)
    }

    /// The value of one.
    pub fn get(&self, id: Id) -> u32 {
        self.values[id.index()]
    }

    /// The same with another value for one.
    #[must_use]
    pub fn with(mut self, id: Id, value: u32) -> Self {
        self.values[id.index()] = value;
        self
    }

    /// What the reaction point makes of them.
    pub fn rp_params(&self) -> RpParams {
        RpParams::from_values(|id| self.get(id), self.line_rate_mbps)
    }

    /// What the notification point makes of them.
    pub fn np_params(&self) -> NpParams {
        NpParams::from_values(|id| self.get(id))
    }
}

/// What somebody may write to some knob: often an end of its range, or near one.
///
/// # Errors
///
/// When the bytes do not suffice.
pub fn knob_write(u: &mut Unstructured<'_>) -> Result<(Id, u32)> {
    let Param { id, min, max, .. } = u.choose(&PARAMS)?;
    let value = match u.int_in_range(0..=5_u8)? {
        0 => *min,
        1 => *max,
        2 => u.int_in_range(*min..=min.saturating_add(100).min(*max))?,
        3 => u.int_in_range(*min..=min.saturating_add(10_000).min(*max))?,
        4 => id.param().paper,
        _ => u.int_in_range(*min..=*max)?,
    };
    Ok((*id, value))
}

/// How long an IP header without options is.
pub fn ip_len(addr: Addr) -> usize {
    match addr {
        Addr::V4(_) => rxe_cc::roce::packet::IPV4_LEN,
        Addr::V6(_) => rxe_cc::roce::packet::IPV6_LEN,
    }
}

/// Whether the ICRC leaves a byte of a packet out; `addr` is one of its addresses, and
/// the first byte, half of which it may leave out, does not count.
pub fn is_masked(addr: Addr, at: usize) -> bool {
    let ip = match addr {
        // TOS, TTL, checksum.
        Addr::V4(_) => matches!(at, 1 | 8 | 10 | 11),
        // Traffic class, flow label, hop limit.
        Addr::V6(_) => matches!(at, 1..=3 | 7),
    };
    let udp = ip_len(addr);
    // UDP's checksum; FECN, BECN and the bits beside them.
    ip || at == udp + 6 || at == udp + 7 || at == udp + UDP_LEN + 4
}
