// SPDX-License-Identifier: GPL-2.0

//! A packet-level simulator of DCQCN: what the kernel does, far faster, and exactly
//! repeatable.
//!
//! [`scenario`] says what is simulated, [`engine`] does it event by event, [`meter`]
//! sums up, [`record`] keeps what happened. [`flow`] sends by the module's own state
//! machine and pacer, [`engine`] answers marks by the module's own NP window, [`port`]
//! and [`red`] are the congestion point. [`fluid`] is what theory says. What the user
//! asked for and what is printed stands in [`crate::commands::simulate`].

pub(crate) mod engine;
pub(crate) mod flow;
pub(crate) mod fluid;
pub(crate) mod knobs;
pub(crate) mod meter;
pub(crate) mod port;
pub(crate) mod record;
pub(crate) mod red;
pub(crate) mod scenario;
