// SPDX-License-Identifier: GPL-2.0

//! `rxecc completions`: what a shell needs to complete this command's line.

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::{generate, Shell};

use crate::cli::Cli;
use crate::text::print;

/// Whose.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rxecc completions bash > /etc/bash_completion.d/rxecc
  rxecc completions zsh > /usr/share/zsh/vendor-completions/_rxecc")]
pub(crate) struct Options {
    /// The shell.
    shell: Shell,
}

/// Prints it.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut script = Vec::new();
    generate(options.shell, &mut Cli::command(), "rxecc", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(true)
}
