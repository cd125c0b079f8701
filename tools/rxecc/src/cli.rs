// SPDX-License-Identifier: GPL-2.0

//! The command line: one variant for each subcommand. A subcommand's own options
//! stand in its file below [`crate::commands`].

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::commands;

/// Look at, tune, record and test congestion control on soft-RoCE (rxe_cc).
#[derive(Parser)]
#[command(version, propagate_version = true)]
pub(crate) struct Cli {
    /// Another machine's /sys and /run, for tests.
    #[arg(
        long,
        global = true,
        hide = true,
        env = "RXECC_SYSROOT",
        value_name = "DIR",
        default_value = "/"
    )]
    pub(crate) sysroot: PathBuf,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Simulate flows, a RED switch and DCQCN, packet by packet, without a kernel.
    Simulate(commands::simulate::Options),
}
