// SPDX-License-Identifier: GPL-2.0

//! The DCQCN algorithm, without kernel types: time is handed in as nanoseconds.
//!
//! [`params`] is the table of all knobs. [`np_window`] decides when a notification
//! point sends its CNPs. [`rp`] is the rate of one flow at a reaction point,
//! [`pacer`] when that flow's packets leave. Nothing here allocates, panics,
//! divides 128-bit numbers or counts in floating point, and no loop is longer
//! than a few hundred rounds, whatever the knobs and the time that has passed.

mod alpha;
mod increase;
pub mod np_window;
pub mod pacer;
pub mod params;
pub mod rate;
pub mod rp;
mod snapshot;
