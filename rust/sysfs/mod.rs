// SPDX-License-Identifier: GPL-2.0

//! The files in sysfs: knobs under the net device, counters under the RDMA device.
//!
//! Both are driven by a table that stands elsewhere
//! ([`dcqcn::params`](crate::dcqcn::params), [`counters`](crate::counters)); here is
//! only which file is where. What a user finds is written down in
//! `Documentation/ABI/`.

pub(crate) mod counters;
pub(crate) mod knobs;
