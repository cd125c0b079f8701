// SPDX-License-Identifier: GPL-2.0

//! `rxecc record`: rates, queue, goodput, counters and events of a run, to a
//! directory that `rxecc report` and `rxecc assert` read.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::record::{record, Plan, PortName};
use crate::system::System;

/// What to record, and for how long.
#[derive(Args)]
#[command(after_help = "\
Records until CMD ends, the duration has passed, or SIGINT or SIGTERM comes.

Examples, in a network of samples/fabric:
  rxecc record -o /tmp/run --port sw:h2 --goodput h2 --duration 10
  rxecc record -o /tmp/run --port sw:h2 --goodput h2 --events -- \\
      samples/fabric stream h1 h2 -- -D 10
  rxecc report /tmp/run")]
pub(crate) struct Options {
    /// Where to write; tables of an earlier recording there are replaced.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// The bottleneck: the netdev whose egress queue is watched, as NETNS:DEV, or DEV
    /// in this network namespace.
    #[arg(long, value_name = "[NETNS:]DEV", value_parser = port_name)]
    port: Option<PortName>,
    /// Count what arrives of each sender in this network namespace (nft; `.` is this
    /// one). May be given again.
    #[arg(long, value_name = "NETNS")]
    goodput: Vec<String>,
    /// An RDMA device whose QPs and counters are recorded, as `rxecc status` names it.
    /// May be given again; all if it is not given.
    #[arg(short, long, value_name = "DEVICE")]
    device: Vec<String>,
    /// Milliseconds from one sample of the queue to the next.
    #[arg(long, value_name = "MS", default_value_t = 50,
          value_parser = clap::value_parser!(u64).range(5..=60_000))]
    interval: u64,
    /// Milliseconds from one sample of rates and goodput to the next: they cost more.
    #[arg(long, value_name = "MS", default_value_t = 200,
          value_parser = clap::value_parser!(u64).range(5..=60_000))]
    rates_interval: u64,
    /// Milliseconds from one look at the counters to the next.
    #[arg(long, value_name = "MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(50..=60_000))]
    counters_interval: u64,
    /// Also the tracepoints rxe_cc:*; those named, or `all`, or without a name all but
    /// hold and release, which come with every packet.
    #[arg(long, value_name = "EVENT", num_args = 0..=1, require_equals = true,
          default_missing_value = "", value_delimiter = ',')]
    events: Option<Vec<String>>,
    /// One line for the head of the report.
    #[arg(long, default_value = "", value_name = "TEXT")]
    title: String,
    /// The seed that the experiment used, for the report.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Figures are to be taken from here on, in seconds from the start.
    #[arg(long, value_name = "S", value_parser = at_least_zero)]
    measure_from: Option<f64>,
    /// Seconds to record.
    #[arg(long, value_name = "S", value_parser = at_least_zero)]
    duration: Option<f64>,
    /// A command to run meanwhile; its end ends the recording.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

fn port_name(text: &str) -> Result<PortName, String> {
    let (namespace, device) = text.rsplit_once(':').unwrap_or(("", text));
    if device.is_empty() {
        return Err("write NETNS:DEV, like sw:h2".to_owned());
    }
    Ok(PortName {
        namespace: namespace.to_owned(),
        device: device.to_owned(),
    })
}

fn at_least_zero(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..1e9).contains(&value) => Ok(value),
        _ => Err("a number of seconds, like 0.5".to_owned()),
    }
}

/// Records, and answers whether the command ended well.
pub(crate) fn run(options: &Options, system: &System) -> Result<bool> {
    let named = |names: &[String]| {
        names
            .iter()
            .filter(|name| !name.is_empty())
            .cloned()
            .collect()
    };
    let plan = Plan {
        output: options.output.clone(),
        title: options.title.clone(),
        seed: options.seed,
        command_line: command_line(std::env::args()),
        port: options.port.clone(),
        goodput: options
            .goodput
            .iter()
            .map(|name| {
                if name == "." {
                    String::new()
                } else {
                    name.clone()
                }
            })
            .collect(),
        devices: options.device.clone(),
        interval: Duration::from_millis(options.interval),
        rates_interval: Duration::from_millis(options.rates_interval),
        counters_interval: Duration::from_millis(options.counters_interval),
        events: options.events.as_deref().map(named),
        measure_from_s: options.measure_from,
        duration: options.duration.map(Duration::from_secs_f64),
        program: options.command.clone(),
    };
    record(&plan, system)
}

/// The words as a shell takes them.
fn command_line(words: impl Iterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    let quoted: Vec<String> = words
        .map(|word| {
            if !word.is_empty() && word.chars().all(plain) {
                word
            } else {
                format!("'{}'", word.replace('\'', r"'\''"))
            }
        })
        .collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_netdev_with_or_without_its_namespace() {
        let name = |text| port_name(text).map(|port| (port.namespace, port.device));
        assert_eq!(name("sw:h2"), Ok(("sw".into(), "h2".into())));
        assert_eq!(name("eth0"), Ok((String::new(), "eth0".into())));
        assert!(name("sw:").is_err());
    }

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let words = ["rxecc", "--title", "it's 1", "", "a=b"].map(String::from);
        assert_eq!(
            command_line(words.into_iter()),
            r"rxecc --title 'it'\''s 1' '' a=b"
        );
    }
}
