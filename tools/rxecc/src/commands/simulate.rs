// SPDX-License-Identifier: GPL-2.0

//! `rxecc simulate`.

use anyhow::{bail, Result};
use clap::Args;

/// What to simulate.
#[derive(Args)]
pub(crate) struct Options {}

/// Not yet.
pub(crate) fn run(_options: &Options) -> Result<bool> {
    bail!("the simulator is not here yet")
}
