// SPDX-License-Identifier: GPL-2.0

//! `rxecc man`: a manual page for the command and for each subcommand.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};

use crate::cli::Cli;

/// Where to.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rxecc man /usr/local/share/man/man1")]
pub(crate) struct Options {
    /// The directory; made if missing.
    dir: PathBuf,
}

/// Writes them.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let dir = &options.dir;
    let failed = || format!("cannot write manual pages to {}", dir.display());
    fs::create_dir_all(dir).with_context(failed)?;
    clap_mangen::generate_to(Cli::command(), dir).with_context(failed)?;
    Ok(true)
}
