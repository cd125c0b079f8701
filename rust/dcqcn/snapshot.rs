// SPDX-License-Identifier: GPL-2.0

//! Snapshots: the knobs in the units in which the algorithm works.
//!
//! In come the knobs' raw values (and the link's real rate), out come
//! [`NpParams`] and [`RpParams`], made once per knob write so that packets cost
//! no conversion. Every value is moved into its knob's range first: what is in a
//! snapshot is never zero where zero would mean a division by it.
//!
//! Dilation: times are multiplied here, once. Rates stay in the knobs' own units,
//! "model" rates, and the line rate is multiplied to be one; the pacer and
//! whoever shows a real rate divide. So no knob loses a digit to the dilation.

use core::num::NonZeroU64;

use super::alpha::{Alpha, Weight};
use super::params::{CnpModeration, HyperIncrease, Id, Trust, UNKNOWN_LINE_RATE_MBPS};
use super::rate::Rate;

const NS_PER_US: u64 = 1000;
const NS_PER_SEC: u64 = 1_000_000_000;
const BYTES_PER_BYTE_RESET: u64 = 64;

/// The knobs of the notification point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NpParams {
    /// Shortest time between two CNPs of one flow, real ns (dilated).
    pub min_time_between_cnps_ns: u64,
    /// DSCP of the CNPs, 0..=63.
    pub dscp: u8,
    /// skb priority of the CNPs, 0..=7.
    pub prio: u8,
    /// UDP source port of the CNPs.
    pub udp_sport: u16,
    /// Where the marked packet's priority comes from.
    pub trust: Trust,
    /// What one window covers.
    pub moderation: CnpModeration,
}

impl NpParams {
    /// From the knobs' values.
    pub fn from_values(get: impl Fn(Id) -> u32) -> Self {
        let value = |id: Id| id.param().clamp(get(id));
        NpParams {
            min_time_between_cnps_ns: dilated_ns(
                value(Id::MinTimeBetweenCnps),
                value(Id::Dilation),
            ),
            // Casts lose nothing: the ranges end at 63, 7 and 65535.
            dscp: value(Id::CnpDscp) as u8,
            prio: value(Id::Cnp8021pPrio) as u8,
            udp_sport: value(Id::CnpUdpSport) as u16,
            trust: Trust::from_value(value(Id::Trust)),
            moderation: CnpModeration::from_value(value(Id::CnpModeration)),
        }
    }
}

/// The knobs of the reaction point, with the link's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpParams {
    /// S, 1..=100000.
    pub(super) dilation: NonZeroU64,
    /// The lower of the line rate and `rpg_max_rate`.
    pub(super) maximum: Rate,
    /// `rpg_min_rate`, at most the maximum.
    pub(super) minimum: Rate,
    /// `rate_to_set_on_first_cnp` between minimum and maximum; none is a cut.
    pub(super) first_cnp_rate: Option<Rate>,
    /// `rpg_ai_rate`.
    pub(super) ai: Rate,
    /// `rpg_hai_rate`.
    pub(super) hai: Rate,
    /// The step rule of hyper increase.
    pub(super) hyper: HyperIncrease,
    /// `rpg_threshold`, F.
    pub(super) threshold: u64,
    /// `rpg_time_reset`, real ns.
    pub(super) time_reset_ns: NonZeroU64,
    /// `rpg_byte_reset`, bytes; none is off.
    pub(super) byte_reset: Option<NonZeroU64>,
    /// `rate_reduce_monitor_period`, real ns.
    pub(super) monitor_ns: NonZeroU64,
    /// `dce_tcp_rtt`, real ns.
    pub(super) alpha_window_ns: NonZeroU64,
    /// `dce_tcp_g`.
    pub(super) g: Weight,
    /// `initial_alpha_value`.
    pub(super) initial_alpha: Alpha,
    /// `rpg_gd`, 0..=15.
    pub(super) gd: u32,
    /// The most that a cut takes, %: 100 - `rpg_min_dec_fac`, 0..=99.
    pub(super) max_decrease_percent: u64,
    /// `clamp_tgt_rate`.
    pub(super) clamp_target: bool,
    /// `clamp_tgt_rate_after_time_inc`.
    pub(super) clamp_target_after_time: bool,
    /// How long after its last CNP an unlimited flow keeps its state, real ns.
    pub(super) forget_ns: u64,
}

impl RpParams {
    /// From the knobs' values and the link's rate as the netdev has it, real
    /// Mb/s. The knob `line_rate` goes before that, and a link without a known
    /// speed (0, or all ones as ethtool says it) has
    /// [`UNKNOWN_LINE_RATE_MBPS`].
    pub fn from_values(get: impl Fn(Id) -> u32, line_rate_mbps: u32) -> Self {
        let value = |id: Id| id.param().clamp(get(id));
        let mbps = |id: Id| Rate::from_mbps(u64::from(value(id)));
        let optional = |id: Id| Some(mbps(id)).filter(|rate| *rate > Rate::default());

        let dilation = value(Id::Dilation);
        let period = |id: Id| non_zero(dilated_ns(value(id), dilation));

        let line_rate_mbps = match (value(Id::LineRate), line_rate_mbps) {
            (0, 0 | u32::MAX) => UNKNOWN_LINE_RATE_MBPS,
            (0, netdev) => netdev,
            (user, _) => user,
        };
        // 2^32 * 2^17: no overflow.
        let line_rate = Rate::from_mbps(u64::from(line_rate_mbps) * u64::from(dilation));
        let maximum = optional(Id::RpgMaxRate).map_or(line_rate, |rate| rate.min(line_rate));
        let minimum = mbps(Id::RpgMinRate).min(maximum);

        RpParams {
            dilation: non_zero(u64::from(dilation)),
            maximum,
            minimum,
            first_cnp_rate: optional(Id::RateToSetOnFirstCnp)
                .map(|rate| rate.max(minimum).min(maximum)),
            ai: mbps(Id::RpgAiRate),
            hai: mbps(Id::RpgHaiRate),
            hyper: HyperIncrease::from_value(value(Id::HyperIncrease)),
            threshold: u64::from(value(Id::RpgThreshold)),
            time_reset_ns: period(Id::RpgTimeReset),
            byte_reset: NonZeroU64::new(u64::from(value(Id::RpgByteReset)) * BYTES_PER_BYTE_RESET),
            monitor_ns: period(Id::RateReduceMonitorPeriod),
            alpha_window_ns: period(Id::DceTcpRtt),
            g: Weight::from_1024ths(value(Id::DceTcpG)),
            initial_alpha: Alpha::from_1024ths(value(Id::InitialAlphaValue)),
            gd: value(Id::RpgGd),
            max_decrease_percent: u64::from(100 - value(Id::RpgMinDecFac)),
            clamp_target: value(Id::ClampTgtRate) == 1,
            clamp_target_after_time: value(Id::ClampTgtRateAfterTimeInc) == 1,
            forget_ns: NS_PER_SEC * u64::from(dilation),
        }
    }

    /// S, 1..=100000.
    pub const fn dilation(&self) -> u64 {
        self.dilation.get()
    }

    /// The maximum in model bit/s.
    pub const fn maximum_bps(&self) -> u64 {
        self.maximum.bps()
    }

    /// The minimum in model bit/s.
    pub const fn minimum_bps(&self) -> u64 {
        self.minimum.bps()
    }
}

/// us of model time in ns of real time. 131071 us * 1000 * 100000 is 2^44.
fn dilated_ns(us: u32, dilation: u32) -> u64 {
    (u64::from(us) * NS_PER_US).saturating_mul(u64::from(dilation))
}

/// What is above zero by the ranges, as a divisor.
fn non_zero(value: u64) -> NonZeroU64 {
    NonZeroU64::new(value).unwrap_or(NonZeroU64::MIN)
}
