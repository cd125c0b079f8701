// SPDX-License-Identifier: GPL-2.0

//! The subcommands, a file each: its options, and `run`, which answers whether
//! all is as it should be.

pub(crate) mod assert;
pub(crate) mod calibrate;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod get;
pub(crate) mod inject;
pub(crate) mod man;
pub(crate) mod names;
pub(crate) mod preset;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod set;
pub(crate) mod simulate;
pub(crate) mod status;

use anyhow::Result;

use crate::cli::{Cli, Command};
use crate::system::System;

pub(crate) fn run(cli: Cli) -> Result<bool> {
    match cli.command {
        Command::Assert(options) => assert::run(&options),
        Command::Completions(options) => completions::run(&options),
        Command::Get(options) => get::run(&options, &System::open(&cli.sysroot)?),
        Command::Man(options) => man::run(&options),
        Command::Names(options) => names::run(&options),
        Command::Preset(options) => preset::run(&options, &System::open(&cli.sysroot)?),
        Command::Report(options) => report::run(&options),
        Command::Set(options) => set::run(&options, &System::open(&cli.sysroot)?),
        Command::Status(options) => status::run(&options, &System::open(&cli.sysroot)?),
        Command::Calibrate(options) => calibrate::run(&options, &System::open(&cli.sysroot)?),
        Command::Doctor(options) => doctor::run(&options, &System::open(&cli.sysroot)?),
        Command::Inject(options) => inject::run(&options, &System::open(&cli.sysroot)?),
        Command::Record(options) => record::run(&options, &System::open(&cli.sysroot)?),
        Command::Simulate(options) => simulate::run(&options),
    }
}
