// SPDX-License-Identifier: GPL-2.0

//! `rxecc simulate`: from options to a [`Scenario`], and from its outcome to a table,
//! JSON and a recording.

use std::path::PathBuf;

use anyhow::{bail, ensure, Context, Error, Result};
use clap::{Args, ValueEnum};
use rxe_cc::dcqcn::params::{Id, Preset};

use crate::analysis::units;
use crate::simulate::engine;
use crate::simulate::fluid::{self, FixedPoint};
use crate::simulate::knobs::Knobs;
use crate::simulate::meter::{FlowOutcome, Outcome};
use crate::simulate::record::Recorder;
use crate::simulate::red::{Average, Line};
use crate::simulate::scenario::{
    CnpPriority, InFlight, MarkAt, Scenario, Service, Stall, NAMED, PS_PER_SEC,
};
use crate::text::{self, columns, print, Align};

/// Rates that the options take at most: a byte then takes 2 ps.
const HIGHEST_BPS: f64 = 4e12;
/// A bit over a day, seconds; the simulated clock ends at 213 days.
const LONGEST_S: u64 = 100_000;
/// What the table has room for.
const FLOWS_SHOWN: usize = 32;

const EXAMPLES: &str = "\
Examples:
  rxecc simulate
      4 flows into 40 Gb/s with the parameters of the DCQCN paper
  rxecc simulate --flows 8 --fluid
      8 flows, beside the fixed point of the fluid model
  rxecc simulate --scenario soft-roce --preset connectx --dilation 1
      what soft-RoCE's slow links do to a ConnectX's parameters
  rxecc simulate --scenario incast-100g --size 1MB
      64 transfers of 1 MB each, and when they are done
  rxecc simulate --set rpg_ai_rate=100 --red 5KB:200KB:0.1 -o target/simulated
      a knob and the switch changed, recorded for rxecc report";

fn help() -> String {
    let names = NAMED
        .iter()
        .map(|named| format!("  {:12} {}\n", named.name, named.doc));
    format!("Scenarios:\n{}\n{EXAMPLES}", names.collect::<String>())
}

/// What to simulate.
#[derive(Args)]
#[command(after_help = help())]
pub(crate) struct Options {
    /// Where to start from; every other option changes one thing of it
    #[arg(long, default_value = NAMED[0].name, value_name = "NAME")]
    scenario: String,
    /// Set of parameters: all knobs but line_rate and dilation
    #[arg(long, value_name = "NAME")]
    preset: Option<PresetName>,
    /// A knob's value, by its path below ecn/ or its name (may be repeated)
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Slow motion, the same as --set dilation=S
    #[arg(long, value_name = "S")]
    dilation: Option<String>,

    /// Senders, one QP each
    #[arg(long, value_name = "N", help_heading = "Network")]
    flows: Option<u32>,
    /// What the bottleneck carries: 40gbit
    #[arg(long, value_parser = rate, help_heading = "Network")]
    rate: Option<f64>,
    /// What each sender's link carries
    #[arg(long, value_parser = rate, value_name = "RATE", help_heading = "Network")]
    link: Option<f64>,
    /// One way from sender to receiver: 2us; several, with commas, go round the flows
    #[arg(long, value_parser = time, value_delimiter = ',', value_name = "TIME", help_heading = "Network")]
    delay: Option<Vec<u64>>,
    /// Ethernet frame without FCS, bytes
    #[arg(long, value_parser = size, value_name = "BYTES", help_heading = "Network")]
    packet: Option<u64>,
    /// RED's thresholds and probability: 5KB:200KB:0.01; none does not mark
    #[arg(long, value_parser = red, value_name = "KMIN:KMAX:PMAX", help_heading = "Network")]
    red: Option<Red>,
    /// Whether RED looks at the queue itself, or at tc's average of it
    #[arg(long, value_name = "HOW", help_heading = "Network")]
    red_average: Option<AverageName>,
    /// Whether packets are marked as they arrive in the queue, or as they leave it
    #[arg(long, value_name = "WHEN", help_heading = "Network")]
    mark_at: Option<MarkAt>,
    /// tc's burst for that average, packets [default: Kmin / avpkt + 7]
    #[arg(long, value_name = "PACKETS", help_heading = "Network")]
    red_burst: Option<u32>,
    /// tc's avpkt for that average, bytes [default: 1100]
    #[arg(long, value_name = "BYTES", help_heading = "Network")]
    red_avpkt: Option<u32>,
    /// The queue drops what comes beyond it; none drops nothing
    #[arg(long, value_parser = optional_size, value_name = "BYTES", help_heading = "Network")]
    limit: Option<Unless>,
    /// The port is a tc tbf that lets so many bytes through at once; none is a link
    #[arg(long, value_parser = optional_size, value_name = "BYTES", help_heading = "Network")]
    tbf: Option<Unless>,

    /// From a mark's arrival to the NP's answer
    #[arg(long, value_parser = time, value_name = "TIME", help_heading = "Hosts")]
    np_delay: Option<u64>,
    /// A CNP's way back [default: as long as the data's]
    #[arg(long, value_parser = time, value_name = "TIME", help_heading = "Hosts")]
    cnp_delay: Option<u64>,
    /// Whether CNPs overtake data, or wait as long as the bottleneck's queue takes
    #[arg(long, value_name = "HOW", help_heading = "Hosts")]
    cnp_priority: Option<CnpPriority>,
    /// A QP stops with so many packets in flight, and resumes below RESUME (rxe: 64:16)
    #[arg(long, value_parser = in_flight, value_name = "STOP[:RESUME]", help_heading = "Hosts")]
    in_flight: Option<Cap>,
    /// A QP stops with so many packets unacknowledged (rxe: 128); 0 is no limit
    #[arg(long, value_name = "PACKETS", help_heading = "Hosts")]
    unacked: Option<u32>,
    /// The receiver acknowledges every N-th packet (rxe: 64)
    #[arg(long, value_name = "N", help_heading = "Hosts")]
    ack_every: Option<u32>,
    /// Payload of each flow, after which it is done
    #[arg(long, value_parser = size, value_name = "BYTES", help_heading = "Hosts")]
    size: Option<u64>,
    /// Each flow begins so much after the one before
    #[arg(long, value_parser = time, value_name = "TIME", help_heading = "Hosts")]
    stagger: Option<u64>,
    /// All hosts and the switch are one machine, which stands still for LENGTH, every
    /// EVERY on average
    #[arg(long, value_parser = stall, value_name = "LENGTH:EVERY", help_heading = "Hosts")]
    stall: Option<Stall>,

    /// Simulated time
    #[arg(long, value_parser = time, value_name = "TIME", help_heading = "Run")]
    duration: Option<u64>,
    /// Of that, not measured at the beginning
    #[arg(long, value_parser = time, value_name = "TIME", help_heading = "Run")]
    warm_up: Option<u64>,
    /// Time between two samples of a recording
    #[arg(long, value_parser = time, value_name = "TIME", help_heading = "Run")]
    sample: Option<u64>,
    /// Of everything random; the same seed gives the same run
    #[arg(long, help_heading = "Run")]
    seed: Option<u64>,
    /// Also the fixed point of the fluid model
    #[arg(long, help_heading = "Run")]
    fluid: bool,
    /// JSON instead of a table
    #[arg(long, help_heading = "Run")]
    json: bool,
    /// Write a recording to this directory
    #[arg(short, long, value_name = "DIR", help_heading = "Run")]
    output: Option<PathBuf>,
    /// The recording has every mark, CNP and cut, too
    #[arg(long, requires = "output", help_heading = "Run")]
    events: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PresetName {
    /// What a ConnectX starts with
    Connectx,
    /// The DCQCN paper's
    Paper,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AverageName {
    /// As the DCQCN paper has it
    Instant,
    /// As Linux' tc red does it
    Tc,
}

/// An amount, or `none`.
type Unless = Option<u64>;
/// RED, or `none`.
type Red = Option<Line>;
/// A cap, or `none`.
type Cap = Option<InFlight>;

/// Simulates and shows.
///
/// # Errors
///
/// It cannot be simulated, or the recording not written.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let scenario = options.scenario()?;
    scenario.check().map_err(Error::msg)?;
    let point = options.fluid.then(|| fluid::fixed_point(&scenario));
    let outcome = match &options.output {
        Some(dir) => {
            let mut recorder = Recorder::create(dir, options.events)?;
            let outcome = engine::run(&scenario, &mut recorder)?;
            recorder.finish(&scenario, &outcome, options.title(&scenario), command())?;
            outcome
        }
        None => engine::run(&scenario, &mut ())?,
    };
    let text = match options.json {
        true => json(options, &scenario, &outcome, point)?,
        false => table(options, &scenario, &outcome, point),
    };
    print(&text)?;
    Ok(true)
}

impl Options {
    fn scenario(&self) -> Result<Scenario> {
        let mut scenario = Scenario::named(&self.scenario).map_err(Error::msg)?;
        self.change_knobs(&mut scenario)?;
        self.change_network(&mut scenario)?;
        self.change_hosts(&mut scenario);
        replace(&mut scenario.duration_ps, self.duration);
        replace(&mut scenario.seed, self.seed);
        replace(&mut scenario.warm_up_ps, self.warm_up);
        replace(&mut scenario.sample_ps, self.sample);
        if self.duration.is_some() {
            // A shorter run keeps its proportions where they were not asked for.
            if self.warm_up.is_none() {
                scenario.warm_up_ps = scenario.warm_up_ps.min(scenario.duration_ps / 3);
            }
            if self.sample.is_none() {
                scenario.sample_ps = scenario.sample_ps.min(scenario.duration_ps / 100).max(1000);
            }
        }
        Ok(scenario)
    }

    fn change_knobs(&self, scenario: &mut Scenario) -> Result<()> {
        if let Some(preset) = self.preset {
            let preset = match preset {
                PresetName::Connectx => Preset::ConnectX,
                PresetName::Paper => Preset::Paper,
            };
            let mut knobs = Knobs::new(preset);
            for id in [Id::LineRate, Id::Dilation] {
                knobs.set(id, scenario.knobs.get(id));
            }
            scenario.preset = preset;
            scenario.knobs = knobs;
        }
        if let Some(dilation) = &self.dilation {
            scenario.knobs.assign(&format!("dilation={dilation}"))?;
        }
        for assignment in &self.set {
            scenario.knobs.assign(assignment)?;
        }
        Ok(())
    }

    fn change_network(&self, scenario: &mut Scenario) -> Result<()> {
        replace(&mut scenario.flows, self.flows);
        replace(&mut scenario.rate_bps, self.rate);
        replace(&mut scenario.link_bps, self.link);
        replace(&mut scenario.delays_ps, self.delay.clone());
        replace(&mut scenario.limit_bytes, self.limit);
        replace(&mut scenario.red, self.red);
        replace(&mut scenario.mark_at, self.mark_at);
        if let Some(bytes) = self.packet {
            scenario.packet_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
        if let Some(tbf) = self.tbf {
            scenario.service = match tbf {
                Some(burst_bytes) => Service::TokenBucket { burst_bytes },
                None => Service::Link,
            };
        }
        let tc = match self.red_average {
            Some(name) => name == AverageName::Tc,
            None => scenario.average != Average::Instant,
        };
        if !tc {
            ensure!(
                self.red_burst.is_none() && self.red_avpkt.is_none(),
                "--red-burst and --red-avpkt are for tc's average: add --red-average tc"
            );
            scenario.average = Average::Instant;
            return Ok(());
        }
        let packet_bytes = self.red_avpkt.unwrap_or(1100);
        ensure!(
            packet_bytes > 0,
            "--red-avpkt 0: packets have bytes, say 1100"
        );
        let kmin_packets = scenario
            .red
            .map_or(0, |line| line.min_bytes / u64::from(packet_bytes));
        let burst = u32::try_from(kmin_packets + 7).unwrap_or(u32::MAX);
        scenario.average = Average::Tc {
            burst_packets: self.red_burst.unwrap_or(burst),
            packet_bytes,
        };
        Ok(())
    }

    fn change_hosts(&self, scenario: &mut Scenario) {
        replace(&mut scenario.np_delay_ps, self.np_delay);
        replace(&mut scenario.cnp_priority, self.cnp_priority);
        replace(&mut scenario.stagger_ps, self.stagger);
        replace(&mut scenario.transport.in_flight, self.in_flight);
        replace(&mut scenario.transport.ack_every, self.ack_every);
        scenario.cnp_delay_ps = self.cnp_delay.or(scenario.cnp_delay_ps);
        scenario.size_bytes = self.size.or(scenario.size_bytes);
        scenario.stall = self.stall.or(scenario.stall);
        if let Some(packets) = self.unacked {
            scenario.transport.unacked_packets = (packets > 0).then_some(packets);
        }
    }

    /// One line: what this run was, short enough to stand above a column.
    fn title(&self, scenario: &Scenario) -> String {
        let preset = match scenario.preset {
            Preset::ConnectX => "connectx",
            Preset::Paper => "paper",
        };
        let flows = match scenario.flows {
            1 => "1 flow".to_owned(),
            flows => format!("{flows} flows"),
        };
        let mut words = vec![self.scenario.clone(), flows, preset.to_owned()];
        words.extend(scenario.knobs.differences(scenario.preset));
        words.join(", ")
    }
}

/// One line: the bottleneck.
fn bottleneck(scenario: &Scenario) -> String {
    let rate = text::rate(scenario.rate_bps);
    let port = match scenario.service {
        Service::Link => "a link".to_owned(),
        Service::TokenBucket { burst_bytes } => {
            format!("tbf, burst {}", units::bytes(burst_bytes as f64))
        }
    };
    let red = match scenario.red {
        Some(line) => format!(
            "RED from {} to {}, {}%{}",
            units::bytes(line.min_bytes as f64),
            units::bytes(line.max_bytes as f64),
            line.probability * 100.0,
            match scenario.average {
                Average::Instant => "",
                Average::Tc { .. } => ", of tc's average",
            }
        ),
        None => "no marks".to_owned(),
    };
    format!("{rate} ({port}), {red}")
}

fn replace<T>(old: &mut T, new: Option<T>) {
    if let Some(new) = new {
        *old = new;
    }
}

/// The command line, without where it wrote to.
fn command() -> String {
    let mut words = vec!["rxecc".to_owned()];
    let mut arguments = std::env::args().skip(1);
    while let Some(word) = arguments.next() {
        match &*word {
            "-o" | "--output" => {
                arguments.next();
            }
            word if word.starts_with("-o") || word.starts_with("--output=") => {}
            _ => words.push(word),
        }
    }
    words.join(" ")
}

fn json(
    options: &Options,
    scenario: &Scenario,
    outcome: &Outcome,
    point: Option<Option<FixedPoint>>,
) -> Result<String> {
    let mut value = serde_json::json!({
        "title": options.title(scenario),
        "seed": scenario.seed,
        "rate_bps": scenario.rate_bps,
        "knobs": scenario.knobs.by_path(),
        "outcome": outcome,
    });
    if let Some(point) = point {
        value["fluid"] = serde_json::to_value(point)?;
    }
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

fn table(
    options: &Options,
    scenario: &Scenario,
    outcome: &Outcome,
    point: Option<Option<FixedPoint>>,
) -> String {
    let (from, to) = outcome.measured_s;
    let mut text = format!(
        "{}\n{}\nmeasured from {} to {}, seed {}\n\n",
        options.title(scenario),
        bottleneck(scenario),
        units::seconds(from),
        units::seconds(to),
        scenario.seed
    );
    text += &flows_table(&outcome.flows);
    let or_never = |value: Option<f64>| match value {
        Some(s) => format!("after {}", units::seconds(s)),
        None => "no: not all flows stay within 25% of their share".to_owned(),
    };
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let lines = [
        (
            "link",
            format!(
                "{} of {} used; Jain's index {:.3}",
                percent(outcome.utilisation),
                text::rate(scenario.rate_bps),
                outcome.jain
            ),
        ),
        (
            "queue",
            format!(
                "mean {}, p99 {}, most {}",
                units::bytes(outcome.queue_mean_bytes),
                units::bytes(outcome.queue_p99_bytes as f64),
                units::bytes(outcome.queue_max_bytes as f64)
            ),
        ),
        (
            "marks",
            format!(
                "{} ({:.3}% of packets), {} drops",
                outcome.marks,
                outcome.marked_share * 100.0,
                outcome.drops
            ),
        ),
        (
            "CNPs",
            format!(
                "{} sent ({} deferred), {} handled, {} cuts",
                outcome.cnps_sent, outcome.cnps_deferred, outcome.cnps_handled, outcome.cuts
            ),
        ),
        ("converged", or_never(outcome.convergence_s)),
        ("transfers", transfers(&outcome.flows)),
    ];
    let lines = lines.into_iter().filter(|(_, line)| !line.is_empty());
    text.push('\n');
    for (name, line) in lines {
        text += &format!("{name:11}{line}\n");
    }
    if let Some(point) = point {
        text.push('\n');
        text += &fluid_table(outcome, point);
    }
    text
}

fn flows_table(flows: &[FlowOutcome]) -> String {
    let head = [
        "flow",
        "begin",
        "goodput",
        "Rc",
        "alpha",
        "marks",
        "CNPs",
        "cuts",
        "done after",
    ];
    let mut align = [Align::Right; 9];
    align[0] = Align::Left;
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let dash = || "-".to_owned();
    for flow in flows.iter().take(FLOWS_SHOWN) {
        rows.push(vec![
            flow.name.clone(),
            units::seconds(flow.begin_s),
            text::rate(flow.goodput_bps),
            flow.rc_bps.map_or_else(dash, text::rate),
            flow.alpha.map_or_else(dash, |alpha| format!("{alpha:.3}")),
            flow.marks.to_string(),
            flow.cnps.to_string(),
            flow.cuts.to_string(),
            flow.completion_s.map_or_else(dash, units::seconds),
        ]);
    }
    let mut text = columns("", &align, &rows);
    if let Some(more @ 1..) = flows.len().checked_sub(FLOWS_SHOWN) {
        text += &format!("and {more} more, which --json has\n");
    }
    text
}

/// How long transfers took; empty where nothing has an end.
fn transfers(flows: &[FlowOutcome]) -> String {
    let mut took_s: Vec<_> = flows.iter().filter_map(|flow| flow.completion_s).collect();
    took_s.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (took_s.first(), took_s.last()) else {
        return String::new();
    };
    format!(
        "{} of {} done, after {} to {}, half of them within {}",
        took_s.len(),
        flows.len(),
        units::seconds(*first),
        units::seconds(*last),
        units::seconds(took_s[(took_s.len() - 1) / 2])
    )
}

fn fluid_table(outcome: &Outcome, point: Option<FixedPoint>) -> String {
    let Some(point) = point else {
        return "the fluid model has no fixed point here\n".to_owned();
    };
    let row = |name: &str, p: f64, alpha: Option<f64>, queue: String| {
        let alpha = alpha.map_or_else(|| "-".to_owned(), |alpha| format!("{alpha:.3}"));
        vec![name.to_owned(), format!("{:.3}%", p * 100.0), alpha, queue]
    };
    let pinned = if point.pinned { ", pinned at Kmax" } else { "" };
    let mut rows = vec![["", "marked", "alpha", "queue"].map(str::to_owned).to_vec()];
    rows.push(row(
        "fluid model",
        point.probability,
        Some(point.alpha),
        units::bytes(point.queue_bytes) + pinned,
    ));
    rows.push(row(
        "simulated",
        outcome.marked_share,
        outcome.alpha_mean,
        units::bytes(outcome.queue_mean_bytes),
    ));
    let align = [Align::Left, Align::Right, Align::Right, Align::Left];
    columns("", &align, &rows)
}

fn rate(text: &str) -> Result<f64> {
    let bps = text::parse_rate(text)?;
    ensure!(
        (1.0..=HIGHEST_BPS).contains(&bps),
        "{text} is not between 1bit and {}",
        text::rate(HIGHEST_BPS)
    );
    Ok(bps)
}

fn size(text: &str) -> Result<u64> {
    Ok(units::parse_bytes(text)?.round() as u64)
}

fn optional_size(text: &str) -> Result<Unless> {
    match text {
        "none" => Ok(None),
        _ => size(text).map(Some),
    }
}

/// Picoseconds.
fn time(text: &str) -> Result<u64> {
    let time = humantime::parse_duration(text)
        .with_context(|| format!("{text} is no time: write for example 50us or 100ms"))?;
    ensure!(
        time.as_secs() < LONGEST_S,
        "{text} is too long: at most {LONGEST_S}s"
    );
    // A day's picoseconds are 2^57.
    Ok(time.as_nanos() as u64 * (PS_PER_SEC / 1_000_000_000))
}

fn red(text: &str) -> Result<Red> {
    if text == "none" {
        return Ok(None);
    }
    let [min, max, probability] = text.split(':').collect::<Vec<_>>()[..] else {
        bail!("{text} is no RED: write KMIN:KMAX:PMAX, for example 5KB:200KB:0.01");
    };
    Ok(Some(Line {
        min_bytes: size(min)?,
        max_bytes: size(max)?,
        probability: probability
            .parse()
            .with_context(|| format!("Pmax {probability} is no number: 0.01 is one percent"))?,
    }))
}

fn in_flight(text: &str) -> Result<Cap> {
    if text == "none" {
        return Ok(None);
    }
    let (stop, resume) = text.split_once(':').unwrap_or((text, text));
    let number = |word: &str| {
        word.parse::<u32>()
            .with_context(|| format!("{word} is no number of packets: write 64 or 64:16"))
    };
    Ok(Some(InFlight {
        stop_packets: number(stop)?,
        resume_packets: number(resume)?,
    }))
}

fn stall(text: &str) -> Result<Stall> {
    let Some((length, every)) = text.split_once(':') else {
        bail!("{text} is no stall: write LENGTH:EVERY, for example 20ms:1s");
    };
    Ok(Stall {
        length_ps: time(length)?,
        every_ps: time(every)?,
    })
}
