// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/infiniband/<device>/ports/1/`: a file for every counter.
//!
//! In comes who has the counters, out come the files: those that a ConnectX has too
//! join rxe's own in `hw_counters`, the others are in a directory `rxe_cc`.

use crate::{
    counters::{Counter, CounterSource, Group, TABLE},
    linux::{
        port_attrs::{PortFiles, PortGroups},
        rdma::IbDeviceRef,
    },
};
use core::fmt::{self, Write};
use kernel::{prelude::*, sync::Arc};

/// An rxe device has this port only.
const PORT: u32 = 1;

/// The counters' files of one device; dropping it removes them, and waits for their
/// readers. It holds the device's registration: drop it in the client's `remove`.
pub(crate) struct PortCounters<S: CounterSource> {
    _groups: PortGroups<S>,
}

impl<S: CounterSource> PortCounters<S> {
    /// Makes the files. The source is kept for as long.
    ///
    /// # Errors
    ///
    /// As [`PortGroups::new`]; nothing stays behind.
    pub(crate) fn create(dev: &IbDeviceRef, source: Arc<S>) -> Result<Self> {
        Ok(Self {
            _groups: PortGroups::new(
                dev,
                PORT,
                (c"rxe_cc", files(Group::RxeCc)),
                (c"hw_counters", files(Group::HwCounters)),
                source,
            )?,
        })
    }
}

/// Names and keys of the files of a directory.
fn files(group: Group) -> impl Iterator<Item = (&'static str, Counter)> {
    TABLE
        .iter()
        .filter(move |row| row.group == group)
        .map(|row| (row.name, row.counter))
}

impl<S: CounterSource> PortFiles for S {
    type Key = Counter;

    fn show(&self, &counter: &Counter, out: &mut dyn Write) -> fmt::Result {
        write!(out, "{}", self.read(counter))
    }
}
