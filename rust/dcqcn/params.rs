// SPDX-License-Identifier: GPL-2.0

//! The knobs: name, directory, range, defaults, unit and meaning, in one table.
//!
//! What comes in: the text a user wrote to a knob, or the knobs' raw values.
//! What goes out: a checked value, and [`NpParams`] / [`RpParams`], snapshots in
//! the units the algorithm works in. Files, storage, permissions and the way a
//! new snapshot reaches the flows are left to others: sysfs, the tools and the
//! documentation are driven by [`PARAMS`] and add nothing of their own.
//!
//! Ranges and names are those of the `ecn` directories a ConnectX has; the
//! `paper` column is the parameter set of the DCQCN paper (SIGCOMM 2015).

use core::fmt;

pub use super::snapshot::{NpParams, RpParams};

/// The traffic classes a half of DCQCN can be switched on and off for
/// (`enable/0` .. `enable/7`).
pub const PRIORITIES: u8 = 8;

/// The line rate assumed when neither the netdev nor the user names one, Mb/s.
pub const UNKNOWN_LINE_RATE_MBPS: u32 = 1000;

/// One numeric or word-valued knob. The discriminant is its place in [`PARAMS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Id {
    /// NP: shortest time between two CNPs of one flow, us.
    MinTimeBetweenCnps,
    /// NP: DSCP of the CNPs.
    CnpDscp,
    /// NP: skb priority of the CNPs, from which a VLAN makes the PCP.
    Cnp8021pPrio,
    /// RP: every cut takes the current rate as the target.
    ClampTgtRate,
    /// RP: a cut after a timer stage takes the current rate as the target.
    ClampTgtRateAfterTimeInc,
    /// RP: period of the stage timer, us.
    RpgTimeReset,
    /// RP: period of the byte counter, 64 bytes.
    RpgByteReset,
    /// RP: stages of fast recovery (F).
    RpgThreshold,
    /// RP: highest rate, Mb/s; 0 is the line rate.
    RpgMaxRate,
    /// RP: step of additive increase, Mb/s.
    RpgAiRate,
    /// RP: step of hyper increase, Mb/s.
    RpgHaiRate,
    /// RP: how far alpha is shifted down in a cut.
    RpgGd,
    /// RP: the least share of the rate that a cut leaves, %.
    RpgMinDecFac,
    /// RP: lowest rate a cut leads to, Mb/s.
    RpgMinRate,
    /// RP: rate set by the first CNP, Mb/s; 0 is a cut instead.
    RateToSetOnFirstCnp,
    /// RP: weight of the old alpha, 1/1024.
    DceTcpG,
    /// RP: window of alpha, us.
    DceTcpRtt,
    /// RP: shortest time between two cuts, us.
    RateReduceMonitorPeriod,
    /// RP: alpha of a first CNP, 1/1024.
    InitialAlphaValue,
    /// What is done to the ECN field of data packets sent.
    EctMode,
    /// Where a packet's priority comes from.
    Trust,
    /// The real rate of the link, Mb/s; 0 is the netdev's.
    LineRate,
    /// Slow motion: times are multiplied, rates divided by this.
    Dilation,
    /// The step rule of hyper increase.
    HyperIncrease,
    /// UDP source port of the CNPs.
    CnpUdpSport,
    /// What one window of the NP covers.
    CnpModeration,
}

impl Id {
    /// The knob's place in [`PARAMS`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The knob's row.
    pub fn param(self) -> &'static Param {
        // The compile-time check below proves that every Id has its row.
        match PARAMS.get(self.index()) {
            Some(param) => param,
            None => &FIRST,
        }
    }
}

/// The directory a knob lives in, under the netdev's `ecn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// The notification point's.
    RoceNp,
    /// The reaction point's.
    RoceRp,
    /// Those that no ConnectX has.
    RxeCc,
}

impl Group {
    /// All directories.
    pub const ALL: [Group; 3] = [Group::RoceNp, Group::RoceRp, Group::RxeCc];

    /// The directory's name.
    pub const fn name(self) -> &'static str {
        match self {
            Group::RoceNp => "roce_np",
            Group::RoceRp => "roce_rp",
            Group::RxeCc => "rxe_cc",
        }
    }

    /// Whether the directory has `enable/0` .. `enable/7` beside its knobs.
    pub const fn has_enable(self) -> bool {
        matches!(self, Group::RoceNp | Group::RoceRp)
    }
}

/// A named set of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// What a ConnectX starts with; the module's default.
    ConnectX,
    /// The parameters of the DCQCN paper.
    Paper,
}

impl Preset {
    /// The preset's value of a knob.
    pub fn value(self, id: Id) -> u32 {
        let param = id.param();
        match self {
            Preset::ConnectX => param.connectx,
            Preset::Paper => param.paper,
        }
    }
}

/// One knob: all that sysfs, tools and documentation need to know of it.
#[derive(Debug)]
pub struct Param {
    /// Which knob this is.
    pub id: Id,
    /// Its directory.
    pub group: Group,
    /// Its file name.
    pub name: &'static str,
    /// Lowest value allowed.
    pub min: u32,
    /// Highest value allowed.
    pub max: u32,
    /// Value of the ConnectX preset, the default.
    pub connectx: u32,
    /// Value of the paper preset.
    pub paper: u32,
    /// Unit, empty where there is none.
    pub unit: &'static str,
    /// What the knob does, one sentence.
    pub doc: &'static str,
    /// The words of a word-valued knob, a word's place being its value; empty
    /// for a number.
    pub words: &'static [&'static str],
}

impl Param {
    /// A value as the knob's file shows it: the number, or the word.
    pub const fn show(&self, value: u32) -> Shown {
        Shown {
            words: self.words,
            value,
        }
    }

    /// `value`, moved into the knob's range.
    pub fn clamp(&self, value: u32) -> u32 {
        // min <= max is checked at compile time.
        value.max(self.min).min(self.max)
    }

    /// The row of the knob `name` in the directory `group`.
    pub fn find(group: Group, name: &str) -> Option<&'static Param> {
        PARAMS
            .iter()
            .find(|param| param.group == group && param.name == name)
    }
}

/// A value in the form in which its knob's file shows it, without a newline.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    words: &'static [&'static str],
    value: u32,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words.get(self.value as usize) {
            Some(word) => f.write_str(word),
            None => write!(f, "{}", self.value),
        }
    }
}

/// What was written is not a value of the knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid;

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a value of this knob")
    }
}

/// Reads the text a user wrote to the knob `param`: one decimal number in the
/// knob's range or, for a word-valued knob, one of its words, either with at
/// most one newline behind it.
///
/// # Errors
///
/// [`Invalid`] for everything else: nothing, a sign, a space, hexadecimal, junk
/// before or behind, a number out of range.
pub fn parse(param: &Param, text: &[u8]) -> Result<u32, Invalid> {
    if param.words.is_empty() {
        return parse_number(text, param.min, param.max);
    }
    let text = strip_newline(text);
    let value = param
        .words
        .iter()
        .position(|word| word.as_bytes() == text)
        .ok_or(Invalid)?;
    u32::try_from(value).map_err(|_| Invalid)
}

/// Reads the text a user wrote to an `enable/N` file.
///
/// # Errors
///
/// [`Invalid`] for anything but 0 or 1 with at most one newline behind it.
pub fn parse_enable(text: &[u8]) -> Result<bool, Invalid> {
    Ok(parse_number(text, 0, 1)? == 1)
}

fn strip_newline(text: &[u8]) -> &[u8] {
    match text {
        [line @ .., b'\n'] => line,
        whole => whole,
    }
}

fn parse_number(text: &[u8], min: u32, max: u32) -> Result<u32, Invalid> {
    let digits = strip_newline(text);
    if digits.is_empty() {
        return Err(Invalid);
    }
    let mut value: u32 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return Err(Invalid);
        }
        value = value
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u32::from(digit & 0xf)))
            .ok_or(Invalid)?;
    }
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(Invalid)
    }
}

/// For which priorities a half of DCQCN is on: the `enable/0` .. `enable/7` of
/// one directory. Bit N is priority N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enable(u8);

impl Enable {
    /// On for every priority, the default.
    pub const ALL: Enable = Enable(u8::MAX);

    /// From the mask [`Enable::bits`] gave.
    pub const fn from_bits(bits: u8) -> Self {
        Enable(bits)
    }

    /// The mask, to be kept in an atomic.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether `priority` is on. There is no priority above 7: off.
    pub const fn is_on(self, priority: u8) -> bool {
        priority < PRIORITIES && self.0 & (1 << (priority & 7)) != 0
    }

    /// The same with `priority` switched; a priority above 7 changes nothing.
    #[must_use]
    pub const fn with(self, priority: u8, on: bool) -> Self {
        if priority >= PRIORITIES {
            return self;
        }
        let bit = 1 << (priority & 7);
        Enable(if on { self.0 | bit } else { self.0 & !bit })
    }
}

impl Default for Enable {
    fn default() -> Self {
        Enable::ALL
    }
}

/// What is done to the ECN field of RoCE data packets we send (`ect_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EctMode {
    /// They leave as ECT(0).
    #[default]
    Rewrite,
    /// They leave as they are.
    Pass,
}

impl EctMode {
    /// The files' words, in the order of the values.
    pub const WORDS: &'static [&'static str] = &["rewrite", "pass"];

    /// From the knob's value; an unknown one is the default.
    pub const fn from_value(value: u32) -> Self {
        match value {
            1 => EctMode::Pass,
            _ => EctMode::Rewrite,
        }
    }
}

/// Where a packet's priority comes from (`trust`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The upper three bits of the DSCP.
    #[default]
    Dscp,
    /// The skb's priority, where a VLAN's ingress map puts the PCP.
    Pcp,
}

impl Trust {
    /// The files' words, in the order of the values.
    pub const WORDS: &'static [&'static str] = &["dscp", "pcp"];

    /// From the knob's value; an unknown one is the default.
    pub const fn from_value(value: u32) -> Self {
        match value {
            1 => Trust::Pcp,
            _ => Trust::Dscp,
        }
    }

    /// The priority, 0..=7, of a packet with this DSCP (0..=63) and this skb
    /// priority.
    pub const fn priority(self, dscp: u8, skb_priority: u32) -> u8 {
        match self {
            Trust::Dscp => (dscp >> 3) & 7,
            Trust::Pcp => (skb_priority & 7) as u8,
        }
    }
}

/// The step rule of hyper increase (`hyper_increase`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HyperIncrease {
    /// The step grows by `rpg_hai_rate` with each stage, as in 802.1Qau.
    #[default]
    Qcn,
    /// The step is `rpg_hai_rate`.
    Constant,
    /// The step starts at `rpg_hai_rate` and doubles with each stage.
    Doubling,
}

impl HyperIncrease {
    /// The files' words, in the order of the values.
    pub const WORDS: &'static [&'static str] = &["qcn", "constant", "doubling"];

    /// From the knob's value; an unknown one is the default.
    pub const fn from_value(value: u32) -> Self {
        match value {
            1 => HyperIncrease::Constant,
            2 => HyperIncrease::Doubling,
            _ => HyperIncrease::Qcn,
        }
    }
}

/// What one window of the NP covers (`cnp_moderation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CnpModeration {
    /// One QP.
    #[default]
    PerQp,
    /// All QPs of one peer address.
    PerIp,
    /// All QPs of the port.
    PerPort,
}

impl CnpModeration {
    /// The files' words, in the order of the values.
    pub const WORDS: &'static [&'static str] = &["per_qp", "per_ip", "per_port"];

    /// From the knob's value; an unknown one is the default.
    pub const fn from_value(value: u32) -> Self {
        match value {
            1 => CnpModeration::PerIp,
            2 => CnpModeration::PerPort,
            _ => CnpModeration::PerQp,
        }
    }
}

/// How many knobs there are.
pub const COUNT: usize = 26;

const FIRST: Param = number(
    Id::MinTimeBetweenCnps,
    Group::RoceNp,
    "min_time_between_cnps",
    (0, 131_071),
    (4, 50),
    "us",
    "Shortest time between two CNPs of one flow; 0 answers every mark.",
);

/// All knobs, in the order of [`Id`].
pub static PARAMS: [Param; COUNT] = TABLE;

const TABLE: [Param; COUNT] = [
    FIRST,
    number(
        Id::CnpDscp,
        Group::RoceNp,
        "cnp_dscp",
        (0, 63),
        (48, 48),
        "",
        "DSCP of the CNPs sent.",
    ),
    number(
        Id::Cnp8021pPrio,
        Group::RoceNp,
        "cnp_802p_prio",
        (0, 7),
        (6, 6),
        "",
        "skb priority of the CNPs sent, from which a VLAN's egress map makes the PCP.",
    ),
    number(
        Id::ClampTgtRate,
        Group::RoceRp,
        "clamp_tgt_rate",
        (0, 1),
        (0, 1),
        "",
        "Whether every cut makes the current rate the target rate.",
    ),
    number(
        Id::ClampTgtRateAfterTimeInc,
        Group::RoceRp,
        "clamp_tgt_rate_after_time_inc",
        (0, 1),
        (1, 1),
        "",
        "Whether a cut after at least one timer stage makes the current rate the target rate.",
    ),
    number(
        Id::RpgTimeReset,
        Group::RoceRp,
        "rpg_time_reset",
        (1, 131_071),
        (300, 55),
        "us",
        "Period of the timer whose expiries raise the rate.",
    ),
    number(
        Id::RpgByteReset,
        Group::RoceRp,
        "rpg_byte_reset",
        (0, u32::MAX),
        (32_767, 156_250),
        "64 bytes",
        "Sent data after which the byte counter raises the rate; 0 turns the counter off.",
    ),
    number(
        Id::RpgThreshold,
        Group::RoceRp,
        "rpg_threshold",
        (1, 31),
        (1, 5),
        "",
        "Stage (F) at which fast recovery ends; when both stages are past it, hyper increase begins.",
    ),
    number(
        Id::RpgMaxRate,
        Group::RoceRp,
        "rpg_max_rate",
        (0, u32::MAX),
        (0, 0),
        "Mb/s",
        "Highest rate of a limited flow; 0 is the line rate.",
    ),
    number(
        Id::RpgAiRate,
        Group::RoceRp,
        "rpg_ai_rate",
        (1, u32::MAX),
        (5, 40),
        "Mb/s",
        "What additive increase adds to the target rate.",
    ),
    number(
        Id::RpgHaiRate,
        Group::RoceRp,
        "rpg_hai_rate",
        (1, u32::MAX),
        (50, 200),
        "Mb/s",
        "What hyper increase adds to the target rate, see hyper_increase.",
    ),
    number(
        Id::RpgGd,
        Group::RoceRp,
        "rpg_gd",
        (0, 15),
        (11, 11),
        "log2",
        "A cut takes rate * alpha >> rpg_gd, alpha in 1/1024; 11 is alpha/2.",
    ),
    number(
        Id::RpgMinDecFac,
        Group::RoceRp,
        "rpg_min_dec_fac",
        (1, 100),
        (50, 50),
        "%",
        "The least share of the rate that one cut leaves.",
    ),
    number(
        Id::RpgMinRate,
        Group::RoceRp,
        "rpg_min_rate",
        (1, u32::MAX),
        (1, 1),
        "Mb/s",
        "Lowest rate that a cut leads to.",
    ),
    number(
        Id::RateToSetOnFirstCnp,
        Group::RoceRp,
        "rate_to_set_on_first_cnp",
        (0, u32::MAX),
        (0, 0),
        "Mb/s",
        "Rate that the first CNP of a flow sets; 0 makes it an ordinary cut.",
    ),
    number(
        Id::DceTcpG,
        Group::RoceRp,
        "dce_tcp_g",
        (1, 1023),
        (1019, 1020),
        "1/1024",
        "Weight of the old alpha in the new one (the paper's g of 1/256 is 1020).",
    ),
    number(
        Id::DceTcpRtt,
        Group::RoceRp,
        "dce_tcp_rtt",
        (1, 131_071),
        (1, 55),
        "us",
        "Window after which alpha is updated.",
    ),
    number(
        Id::RateReduceMonitorPeriod,
        Group::RoceRp,
        "rate_reduce_monitor_period",
        (1, 131_071),
        (4, 50),
        "us",
        "Shortest time between two cuts of one flow.",
    ),
    number(
        Id::InitialAlphaValue,
        Group::RoceRp,
        "initial_alpha_value",
        (1, 1023),
        (1023, 1023),
        "1/1024",
        "alpha that a flow starts with at its first CNP.",
    ),
    word(
        Id::EctMode,
        "ect_mode",
        EctMode::WORDS,
        "ECN field of the data packets sent: made ECT(0), or left alone.",
    ),
    word(
        Id::Trust,
        "trust",
        Trust::WORDS,
        "What gives a packet its priority: DSCP >> 3, or the skb priority (a VLAN's PCP).",
    ),
    number(
        Id::LineRate,
        Group::RxeCc,
        "line_rate",
        (0, u32::MAX),
        (0, 0),
        "Mb/s",
        "The link's real rate; 0 takes the netdev's.",
    ),
    number(
        Id::Dilation,
        Group::RxeCc,
        "dilation",
        (1, 100_000),
        (1, 1),
        "",
        "Slow motion: every time parameter is multiplied, every rate parameter divided by this.",
    ),
    word(
        Id::HyperIncrease,
        "hyper_increase",
        HyperIncrease::WORDS,
        "Step of hyper increase: growing by rpg_hai_rate, always rpg_hai_rate, or doubling from it.",
    ),
    number(
        Id::CnpUdpSport,
        Group::RxeCc,
        "cnp_udp_sport",
        (0, 65_535),
        (0, 0),
        "",
        "UDP source port of the CNPs sent.",
    ),
    word(
        Id::CnpModeration,
        "cnp_moderation",
        CnpModeration::WORDS,
        "What shares one CNP window: a QP, all QPs of a peer address, or all QPs of the port.",
    ),
];

/// A row of a number; pairs are (lowest, highest) and (ConnectX, paper).
const fn number(
    id: Id,
    group: Group,
    name: &'static str,
    range: (u32, u32),
    presets: (u32, u32),
    unit: &'static str,
    doc: &'static str,
) -> Param {
    Param {
        id,
        group,
        name,
        min: range.0,
        max: range.1,
        connectx: presets.0,
        paper: presets.1,
        unit,
        doc,
        words: &[],
    }
}

/// A row of a word-valued knob; the first word is the default.
const fn word(
    id: Id,
    name: &'static str,
    words: &'static [&'static str],
    doc: &'static str,
) -> Param {
    Param {
        id,
        group: Group::RxeCc,
        name,
        min: 0,
        max: (words.len() - 1) as u32,
        connectx: 0,
        paper: 0,
        unit: "",
        doc,
        words,
    }
}

// The table is in the order of Id, complete, and every preset is in its range.
const _: () = {
    let mut i = 0;
    while i < COUNT {
        let param = &TABLE[i];
        assert!(param.id.index() == i);
        assert!(param.min <= param.connectx && param.connectx <= param.max);
        assert!(param.min <= param.paper && param.paper <= param.max);
        i += 1;
    }
    assert!(Id::CnpModeration.index() == COUNT - 1);
};
