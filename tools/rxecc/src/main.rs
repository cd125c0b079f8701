// SPDX-License-Identifier: GPL-2.0

//! `rxecc`: the user's command beside `rxe_cc.ko`.
//!
//! What comes in: a command line ([`cli`]), and this machine's sysfs, debugfs and
//! netlink, or a recording made earlier. What goes out: text or JSON for people
//! and scripts, recordings, reports, and an exit status: 0 done, 1 the answer is
//! no (a finding of `doctor`, an assertion that does not hold), 2 it could not be
//! done, with a sentence on stderr that says what to do.

mod analysis;
mod cli;
mod commands;
mod doctor;
mod inject;
mod program;
mod record;
mod recording;
mod report;
mod simulate;
mod system;
mod text;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match commands::run(cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) if error.is::<text::ReaderGone>() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rxecc: {error:#}");
            ExitCode::from(2)
        }
    }
}
