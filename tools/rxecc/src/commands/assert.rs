// SPDX-License-Identifier: GPL-2.0

//! `rxecc assert`: a recording and bounds in, a line for each bound and an exit
//! status out, for scripts and CI.

use std::path::PathBuf;

use anyhow::{anyhow, bail, Context, Result};
use clap::Args;

use crate::analysis::units::{count, parse_bytes, parse_percent, seconds, show};
use crate::analysis::{Figures, Id, Tables, Unit};
use crate::recording::Recording;
use crate::text::{parse_rate, print, rate};

/// What must hold.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rxecc assert paper --fair 0.95 --utilisation 95% --queue-p99 kmax --no-loss=0.5
  rxecc assert rates --rate h1=10mbit+-5% --no-errors

One line for each, `ok` or `FAILED`, with the figure and its bound. Exit status: 0 all
hold, 1 one does not, 2 one cannot be told from this recording. Figures are those of
the measured time; what they mean stands in Documentation/recordings.md.")]
pub(crate) struct Options {
    /// The recording.
    #[arg(value_name = "DIR")]
    recording: PathBuf,
    #[command(flatten)]
    bounds: Bounds,
}

/// At least one of them.
#[derive(Args)]
#[group(required = true, multiple = true)]
struct Bounds {
    /// Each sender's goodput settles within TOL of its fair share [25% if not given].
    #[arg(long, value_name = "TOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "25%", value_parser = parse_percent)]
    converged: Option<f64>,
    /// Jain's fairness index over the last half is at least J.
    #[arg(long, value_name = "J")]
    fair: Option<f64>,
    /// The bottleneck drops nothing, but for the first AFTER_S seconds [0 if not given].
    #[arg(long, value_name = "AFTER_S", num_args = 0..=1, require_equals = true,
          default_missing_value = "0")]
    no_loss: Option<f64>,
    /// At least PCT percent of the bottleneck's rate are used.
    #[arg(long, value_name = "PCT", value_parser = parse_percent)]
    utilisation: Option<f64>,
    /// The queue is at most BYTES for 99% of the time; `kmax` takes RED's.
    #[arg(long, value_name = "BYTES")]
    queue_p99: Option<String>,
    /// Fewer than X CNPs a second are sent, all flows together.
    #[arg(long, value_name = "X")]
    cnp_rate_under: Option<f64>,
    /// The goodput of a sender or device (or where it was not recorded, the mean of its
    /// Rc) is Y within Z percent; may be given several times.
    #[arg(long, value_name = "NAME=Y+-Z%", value_parser = parse_rate_bound)]
    rate: Vec<RateBound>,
    /// No completion error.
    #[arg(long)]
    no_errors: bool,
    /// No sender went back to send something again.
    #[arg(long)]
    no_retransmissions: bool,
}

/// `NAME=Y+-Z%`.
#[derive(Clone, Debug, PartialEq)]
struct RateBound {
    name: String,
    bps: f64,
    tolerance: f64,
}

fn parse_rate_bound(text: &str) -> Result<RateBound> {
    let parsed = || {
        let (name, bound) = text.split_once('=')?;
        let (rate, tolerance) = bound.split_once("+-").or_else(|| bound.split_once('±'))?;
        Some((name, rate, tolerance))
    };
    let (name, rate, tolerance) =
        parsed().ok_or_else(|| anyhow!("say NAME=RATE+-PERCENT, as h1=10mbit+-5%"))?;
    Ok(RateBound {
        name: name.to_owned(),
        bps: parse_rate(rate)?,
        tolerance: parse_percent(tolerance)?,
    })
}

/// What came of one bound: whether it holds, and the figure and the bound in words.
type Verdict = Result<(bool, String)>;

/// Says what holds.
///
/// # Errors
///
/// Something cannot be told from the recording; what can be told is said before.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let recording = Recording::read(&options.recording)?;
    let mut all = true;
    let mut unknown = Vec::new();
    for (name, verdict) in verdicts(&options.bounds, &recording) {
        match verdict {
            Ok((holds, words)) => {
                let word = if holds { "ok" } else { "FAILED" };
                print(&format!("{word:6}  {name}: {words}\n"))?;
                all &= holds;
            }
            Err(error) => unknown.push(format!("{name}: {error:#}")),
        }
    }
    if !unknown.is_empty() {
        bail!("{}", unknown.join("\nrxecc: "));
    }
    Ok(all)
}

fn verdicts(bounds: &Bounds, recording: &Recording) -> Vec<(String, Verdict)> {
    let tables = Tables::of(recording);
    let figures = Figures::of(recording, &tables);
    let mut found: Vec<(String, Verdict)> = Vec::new();
    let mut say = |name: &str, verdict: Verdict| found.push((name.to_owned(), verdict));
    if let Some(tolerance) = bounds.converged {
        say("converged", converged(&figures, &tables, tolerance));
    }
    if let Some(least) = bounds.fair {
        say("fair", at_least(&figures, Id::JainLastHalf, least));
    }
    if let Some(after_s) = bounds.no_loss {
        say("no-loss", no_loss(&figures, &tables, after_s));
    }
    if let Some(least) = bounds.utilisation {
        say("utilisation", at_least(&figures, Id::Utilisation, least));
    }
    if let Some(most) = &bounds.queue_p99 {
        say("queue-p99", queue_p99(&figures, recording, most));
    }
    if let Some(under) = bounds.cnp_rate_under {
        say("cnp-rate-under", cnp_rate(&figures, under));
    }
    for bound in &bounds.rate {
        say(
            &format!("rate {}", bound.name),
            sender_rate(&figures, bound),
        );
    }
    if bounds.no_errors {
        say("no-errors", none(&figures, Id::Errors));
    }
    if bounds.no_retransmissions {
        say("no-retransmissions", none(&figures, Id::Retries));
    }
    found
}

fn at_least(figures: &Figures, id: Id, least: f64) -> Verdict {
    let (value, figure) = (figures.need(id)?, id.figure());
    let words = format!(
        "{} {}, at least {}",
        figure.label,
        show(figure.unit, value),
        show(figure.unit, least)
    );
    Ok((value >= least, words))
}

fn none(figures: &Figures, id: Id) -> Verdict {
    let value = figures.need(id)?;
    let words = format!("{} {}, none allowed", id.figure().label, count(value));
    Ok((value == 0.0, words))
}

fn converged(figures: &Figures, tables: &Tables<'_>, tolerance: f64) -> Verdict {
    figures.need(Id::Convergence)?;
    let time = tables
        .convergence(figures.span, tolerance)
        .unwrap_or(f64::INFINITY);
    let within = show(Unit::Share, tolerance);
    let words = match time.is_finite() {
        true => format!(
            "from {} on each sender within {within} of its fair share",
            seconds(time)
        ),
        false => format!("not all senders stay within {within} of their fair share"),
    };
    Ok((time.is_finite(), words))
}

fn no_loss(figures: &Figures, tables: &Tables<'_>, after_s: f64) -> Verdict {
    figures.need(Id::Drops)?;
    let drops = tables
        .drops_after(figures.span, after_s)
        .with_context(|| format!("nothing was recorded later than {} on", seconds(after_s)))?;
    let since = match after_s {
        0.0 => String::new(),
        _ => format!(" after the first {}", seconds(after_s)),
    };
    let words = format!("Dropped packets{since} {}, none allowed", count(drops));
    Ok((drops == 0.0, words))
}

fn queue_p99(figures: &Figures, recording: &Recording, most: &str) -> Verdict {
    let bottleneck = recording.run.bottleneck.as_ref();
    let most = match most {
        "kmax" => bottleneck
            .and_then(|b| b.red_max_bytes)
            .context("the recording names no Kmax: give the bound in bytes")?,
        _ => parse_bytes(most)?,
    };
    let value = figures.need(Id::QueueP99)?;
    let show = |value| show(Unit::Bytes, value);
    let words = format!(
        "99% of the time at most {}, at most {}",
        show(value),
        show(most)
    );
    Ok((value <= most, words))
}

fn cnp_rate(figures: &Figures, under: f64) -> Verdict {
    let sent = figures.need(Id::CnpsSent)?;
    let per_second = sent / (figures.span.1 - figures.span.0);
    let words = format!("{per_second:.1} CNPs a second, fewer than {under}");
    Ok((per_second < under, words))
}

fn sender_rate(figures: &Figures, bound: &RateBound) -> Verdict {
    let named =
        |s: &&crate::analysis::SenderFigures| s.name == bound.name || s.device == bound.name;
    let sender = figures.senders.iter().find(named).with_context(|| {
        let known = figures.senders.iter().map(|s| &*s.name);
        format!(
            "the recording has no sender or device of that name, but {}",
            known.collect::<Vec<_>>().join(", ")
        )
    })?;
    let (what, value) = match (sender.goodput_bps, sender.rc_mean_bps) {
        (Some(goodput), _) => ("goodput", goodput),
        (None, Some(rc)) => ("mean of Rc", rc),
        (None, None) => bail!("it needs rows of that sender in goodput.csv or flows.csv"),
    };
    let off = value / bound.bps - 1.0;
    let words = format!(
        "{what} {} ({:+.1}%), {} within {}",
        rate(value),
        off * 100.0,
        rate(bound.bps),
        show(Unit::Share, bound.tolerance)
    );
    Ok((off.abs() <= bound.tolerance, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_bound_is_a_name_a_rate_and_a_tolerance() {
        let bound = RateBound {
            name: "h1".into(),
            bps: 10e6,
            tolerance: 0.05,
        };
        assert_eq!(parse_rate_bound("h1=10mbit+-5%").unwrap(), bound);
        assert_eq!(parse_rate_bound("h1=10mbit±5%").unwrap(), bound);
        for wrong in ["h1", "h1=10mbit", "h1=fast+-5%", "h1=10mbit+-five"] {
            assert!(parse_rate_bound(wrong).is_err(), "{wrong}");
        }
    }
}
