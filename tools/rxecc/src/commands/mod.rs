// SPDX-License-Identifier: GPL-2.0

//! The subcommands, a file each: its options, and `run`, which answers whether
//! all is as it should be.

pub(crate) mod simulate;

use anyhow::Result;

use crate::cli::{Cli, Command};

pub(crate) fn run(cli: Cli) -> Result<bool> {
    match cli.command {
        Command::Simulate(options) => simulate::run(&options),
    }
}
