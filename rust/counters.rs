// SPDX-License-Identifier: GPL-2.0

//! What is counted: the one table of all counters, and where one device's are kept.
//!
//! In come events from the packet paths, in any context; out come sums. The files
//! are made in [`sysfs::counters`](crate::sysfs::counters) from [`TABLE`], one a row.
//! A counter that is the sum of others has no place of its own; one that is a state
//! of the moment is answered by its [`CounterSource`].

use crate::linux::percpu::PerCpuCounters;
use kernel::prelude::*;

/// The directory of a port that a counter's file is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// That of rxe itself: counters known from a ConnectX.
    HwCounters,
    /// Ours.
    RxeCc,
}

/// One counter: all that its file and its sum need.
pub(crate) struct Row {
    /// Which counter this is.
    pub(crate) counter: Counter,
    /// Its directory.
    pub(crate) group: Group,
    /// Its file name.
    pub(crate) name: &'static str,
    /// The counters it is the sum of; none: it is counted itself.
    pub(crate) parts: &'static [Counter],
}

/// Makes [`Counter`] and [`TABLE`] from one line a counter, so that they cannot differ.
macro_rules! counters {
    ($($(#[$doc:meta])* $counter:ident, $group:ident, $name:literal
        $(, sum of [$($part:ident)*])?;)*) => {
        /// A counter. The discriminant is its place in [`TABLE`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Counter {
            $($(#[$doc])* $counter,)*
        }

        /// All counters, in the order of [`Counter`].
        pub(crate) static TABLE: [Row; COUNT] = [$(
            Row {
                counter: Counter::$counter,
                group: Group::$group,
                name: $name,
                parts: &[$($(Counter::$part),*)?],
            },
        )*];

        /// How many counters there are.
        pub(crate) const COUNT: usize = [$($name),*].len();
    };
}

counters! {
    /// Received packets to the RoCE port with a CE mark, each counted once in a reason below.
    NpEcnMarked, HwCounters, "np_ecn_marked_roce_packets";
    /// CNPs sent.
    NpCnpSent, HwCounters, "np_cnp_sent";
    /// Received CNPs that the rate limiter took.
    RpCnpHandled, HwCounters, "rp_cnp_handled";
    /// Received CNPs that it did not take.
    RpCnpIgnored, HwCounters, "rp_cnp_ignored", sum of [
        RpCnpDisabled RpCnpMalformed RpCnpBadIcrc RpCnpUnknownQp RpCnpWrongPeer RpCnpNoMemory
    ];

    /// Marks answered by a CNP at once.
    NpCnpImmediate, RxeCc, "np_cnp_immediate";
    /// CNPs due when a window closed.
    NpCnpDeferred, RxeCc, "np_cnp_deferred";
    /// Marks folded into a window.
    NpCnpSuppressed, RxeCc, "np_cnp_suppressed";
    /// Marks on packets of a priority for which NP is off.
    NpCeDisabled, RxeCc, "np_ce_disabled";
    /// Marks on packets that are no data of a connection.
    NpCeNotData, RxeCc, "np_ce_not_data";
    /// Marks on packets that no QP of ours accepts.
    NpCeInvalid, RxeCc, "np_ce_invalid";
    /// CNPs that could not be sent.
    NpCnpSendFailed, RxeCc, "np_cnp_send_failed";

    /// CNPs for a QP of a priority for which RP is off.
    RpCnpDisabled, RxeCc, "rp_cnp_disabled";
    /// CNPs of the wrong form.
    RpCnpMalformed, RxeCc, "rp_cnp_malformed";
    /// CNPs with a wrong ICRC.
    RpCnpBadIcrc, RxeCc, "rp_cnp_bad_icrc";
    /// CNPs for no live QP.
    RpCnpUnknownQp, RxeCc, "rp_cnp_unknown_qp";
    /// CNPs whose source is not the QP's peer.
    RpCnpWrongPeer, RxeCc, "rp_cnp_wrong_peer";
    /// CNPs for which no state could be made.
    RpCnpNoMemory, RxeCc, "rp_cnp_no_memory";

    /// Rate cuts of all flows.
    RpRateCuts, RxeCc, "rp_rate_cuts";
    /// Rate increases of all flows.
    RpRateIncreases, RxeCc, "rp_rate_increases";
    /// QPs whose rate is limited at this moment.
    RpLimitedQps, RxeCc, "rp_limited_qps";
    /// Packets held at this moment.
    RpHeldPackets, RxeCc, "rp_held_packets";
    /// The longest that a packet was held and then sent, in us.
    RpHeldMaxUs, RxeCc, "rp_held_max_us";
    /// Held packets dropped because the transport went back and repeats them.
    RpRewoundPackets, RxeCc, "rp_rewound_packets";
    /// Packets dropped because their QP, net device or RDMA device goes.
    RpPurgedPackets, RxeCc, "rp_purged_packets";
    /// READ responses and ACKs behind them dropped because too many were held.
    RpDroppedResponses, RxeCc, "rp_dropped_responses";

    /// Data that left as Not-ECT because `ect_mode` is `pass`.
    TxNotEct, RxeCc, "tx_not_ect";
    /// Data that left with the CE mark its own sender gave it because `ect_mode` is `pass`.
    TxBornCe, RxeCc, "tx_born_ce";
}

impl Counter {
    /// The counter's row.
    pub(crate) fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }
}

/// Who has counters.
pub(crate) trait CounterSource: Send + Sync + 'static {
    /// What was counted.
    fn counters(&self) -> &Counters;

    /// The value that a counter's file shows. An owner answers here for what is not
    /// counted but a state of the moment. Called in process context, from any number
    /// of threads at once.
    fn read(&self, counter: Counter) -> u64 {
        self.counters().get(counter)
    }
}

/// The counters of one device.
pub(crate) struct Counters {
    percpu: PerCpuCounters<COUNT>,
}

impl Counters {
    /// Makes the counters, all zero. Sleeps.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            percpu: PerCpuCounters::new()?,
        })
    }

    /// Counts one event.
    #[inline]
    pub(crate) fn inc(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Counts `n` events.
    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        self.percpu.add(counter as usize, n);
    }

    /// The sum over all CPUs, and over all its parts.
    pub(crate) fn get(&self, counter: Counter) -> u64 {
        let parts = counter.row().parts;
        if parts.is_empty() {
            return self.percpu.sum(counter as usize);
        }
        parts
            .iter()
            .map(|&part| self.percpu.sum(part as usize))
            .fold(0, u64::wrapping_add)
    }
}
