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
    /// Check figures of a recording against bounds: one line each, exit status for CI.
    Assert(commands::assert::Options),
    /// Measure what this host can send, and set line_rate and dilation by it.
    Calibrate(commands::calibrate::Options),
    /// Say why nothing happens: what keeps congestion control from working, and the remedy.
    Doctor(commands::doctor::Options),
    /// Send crafted packets to an existing QP: CE-marked data, or CNPs, good and bad ones.
    Inject(commands::inject::Options),
    /// Draw recordings: one HTML file with plots, and a table that compares them.
    Report(commands::report::Options),
    /// Show devices, knobs that differ from the defaults, counters, and limited QPs, live.
    Status(commands::status::Options),
    /// Read knobs, or list what they may be.
    Get(commands::get::Options),
    /// Write a knob.
    Set(commands::set::Options),
    /// Set the parameters of a ConnectX or of the DCQCN paper, in slow motion if need be.
    Preset(commands::preset::Options),
    /// What mlx5, mlxconfig, irdma, bnxt_re and the paper call a knob.
    Names(commands::names::Options),
    /// Record rates, queue, goodput, counters and events of a run to a directory.
    Record(commands::record::Options),
    /// Simulate flows, a RED switch and DCQCN, packet by packet, without a kernel.
    Simulate(commands::simulate::Options),
    /// Print what a shell needs to complete the command line.
    Completions(commands::completions::Options),
    /// Write the manual pages.
    Man(commands::man::Options),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Up to what is the shell's, or an explanation behind some spaces.
    fn words(line: &str) -> Vec<&str> {
        let line = line.trim().split("  ").next().unwrap_or_default();
        let ours = |word: &&str| !["|", ">", ">>", "&", "&&", "#"].contains(word);
        let words = line.split_whitespace().take_while(ours);
        words.map(|word| word.trim_matches('\'')).collect()
    }

    #[test]
    fn the_examples_of_each_help_are_understood() {
        let mut tried = 0;
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let lines = help.lines().map(str::trim_start);
            for line in lines.filter(|line| line.starts_with("rxecc ")) {
                if let Err(error) = Cli::try_parse_from(words(line)) {
                    panic!("{line}: {error}");
                }
                tried += 1;
            }
        }
        assert!(tried >= 15, "only {tried} examples were found");
    }
}
