// SPDX-License-Identifier: GPL-2.0

//! The DCQCN algorithm, without kernel types: time is handed in as nanoseconds.
//!
//! [`params`] is the table of all knobs; [`np_window`] decides when a
//! notification point sends its CNPs.

mod alpha;
pub mod np_window;
pub mod params;
pub mod rate;
mod snapshot;
