// SPDX-License-Identifier: GPL-2.0

//! What a recording comes to, in figures.
//!
//! In comes a [`Recording`]; out come [`Figures`], and its tables as series over
//! time ([`Tables`]), for plots. [`FIGURES`] names each figure once: reports, CSV,
//! JSON, assertions and the documentation go by it; how each is computed stands in
//! `Documentation/recordings.md`, too. A figure whose tables are missing is `None`.
//! What to think of a figure is left to others, except for [`Figure::aim`].

pub(crate) mod knobs;
pub(crate) mod series;
pub(crate) mod units;

use std::collections::BTreeMap;

use anyhow::{anyhow, Result};

use crate::recording::{FlowSample, Recording, Run};
use series::{jain, parts, Level, Span, Total};

/// Packets of the first half second, seconds: a queue pair sends 64 of them before a
/// CNP can come back.
pub(crate) const SETTLING_S: f64 = 0.5;

/// How near to their fair share converged senders are, as a share of it.
pub(crate) const CONVERGED: f64 = 0.25;

/// Into how many parts the time is cut to see whether senders have converged, and how
/// many at the end must be so.
const CONVERGENCE_PARTS: usize = 20;
const CONVERGED_PARTS: usize = 5;

/// A phase as recorded, for those without a limiter.
pub(crate) const UNLIMITED: &str = "unlimited";

/// A figure. The discriminant is its place in [`FIGURES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Id {
    Goodput,
    GoodputLeast,
    GoodputMost,
    Jain,
    JainLastHalf,
    Utilisation,
    Convergence,
    QueueMean,
    QueueP99,
    QueueMost,
    Drops,
    DropsLater,
    Duplicates,
    Gaps,
    Naks,
    Retries,
    Errors,
    Marks,
    MarksReceived,
    CnpsSent,
    CnpsHandled,
    CnpsIgnored,
    RateCuts,
    CnpGap,
    Alpha,
    Limited,
    CompletionFirst,
    CompletionLast,
}

const COUNT: usize = Id::CompletionLast as usize + 1;

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    BitsPerSecond,
    Bytes,
    Seconds,
    /// A number of things.
    Count,
    /// 0..1, shown in percent.
    Share,
    /// 0..1, shown as it is.
    Index,
}

/// The tables' sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Throughput,
    Queue,
    Loss,
    Control,
    Completion,
}

impl Group {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Group::Throughput => "Throughput and fairness",
            Group::Queue => "Queue at the bottleneck",
            Group::Loss => "Loss and repetition",
            Group::Control => "Congestion control",
            Group::Completion => "Completion",
        }
    }
}

/// What is wanted of a figure where congestion control works.
type Aim = fn(&Run, f64) -> Option<bool>;

/// A figure's row.
pub(crate) struct Figure {
    pub(crate) id: Id,
    pub(crate) group: Group,
    /// Its name in JSON and CSV.
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    pub(crate) unit: Unit,
    /// What a recording must have for it: "... needs ...".
    pub(crate) needs: &'static str,
    /// The aim in words, and whether a value meets it.
    pub(crate) aim: Option<(&'static str, Aim)>,
}

const fn figure(
    id: Id,
    group: Group,
    key: &'static str,
    label: &'static str,
    unit: Unit,
    needs: &'static str,
) -> Figure {
    Figure {
        id,
        group,
        key,
        label,
        unit,
        needs,
        aim: None,
    }
}

const fn aimed(figure: Figure, words: &'static str, aim: Aim) -> Figure {
    Figure {
        aim: Some((words, aim)),
        ..figure
    }
}

const GOODPUT: &str = "rows of at least one sender in goodput.csv over the measured time";
const QUEUE: &str = "rows of the bottleneck in queue.csv over the measured time";
const COMPLETION: &str = "completion times of the senders in run.json";
const FLOWS: &str = "rows in flows.csv over the measured time";

/// All figures, in the order in which they are shown.
#[rustfmt::skip]
pub(crate) static FIGURES: [Figure; COUNT] = {
    use {Group::*, Unit::*};
    [
        figure(Id::Goodput, Throughput, "goodput_bps", "Goodput, all senders", BitsPerSecond, GOODPUT),
        figure(Id::GoodputLeast, Throughput, "goodput_least_bps", "Goodput, slowest sender", BitsPerSecond, GOODPUT),
        figure(Id::GoodputMost, Throughput, "goodput_most_bps", "Goodput, fastest sender", BitsPerSecond, GOODPUT),
        figure(Id::Jain, Throughput, "jain", "Jain's fairness index", Index, GOODPUT),
        aimed(figure(Id::JainLastHalf, Throughput, "jain_last_half", "Jain's index, last half", Index, GOODPUT),
            "at least 0.95", |_, v| Some(v >= 0.95)),
        aimed(figure(Id::Utilisation, Throughput, "utilisation", "Bottleneck used", Share,
            "queue.csv over the measured time, and the bottleneck's rate in run.json"),
            "at least 95%", |_, v| Some(v >= 0.95)),
        figure(Id::Convergence, Throughput, "convergence_s", "Time to converge", Seconds,
            "goodput.csv with at least two senders that send at the same time"),
        figure(Id::QueueMean, Queue, "queue_mean_bytes", "Mean", Bytes, QUEUE),
        aimed(figure(Id::QueueP99, Queue, "queue_p99_bytes", "99% of the time at most", Bytes, QUEUE),
            "at most Kmax", |run, v| Some(v <= run.bottleneck.as_ref()?.red_max_bytes?)),
        figure(Id::QueueMost, Queue, "queue_most_bytes", "Longest", Bytes, QUEUE),
        figure(Id::Drops, Loss, "drops", "Dropped packets", Count, QUEUE),
        aimed(figure(Id::DropsLater, Loss, "drops_later", "Dropped after the first half second", Count,
            "queue.csv over more than half a second"),
            "none", |_, v| Some(v == 0.0)),
        figure(Id::Duplicates, Loss, "duplicates", "Packets received twice", Count, "the counter duplicate_request"),
        figure(Id::Gaps, Loss, "gaps", "Packets missing in a sequence", Count, "the counter out_of_seq_request"),
        figure(Id::Naks, Loss, "naks", "NAKs received", Count, "the counter rcvd_seq_err"),
        figure(Id::Retries, Loss, "retries", "Times a sender went back", Count, "the counter completer_retry_err"),
        aimed(figure(Id::Errors, Loss, "errors", "Completion errors", Count, "the senders in run.json"),
            "none", |_, v| Some(v == 0.0)),
        figure(Id::Marks, Control, "marks", "CE marks set at the queue", Count, QUEUE),
        figure(Id::MarksReceived, Control, "marks_received", "CE marks received", Count,
            "the counter np_ecn_marked_roce_packets, or events ce"),
        figure(Id::CnpsSent, Control, "cnps_sent", "CNPs sent", Count, "the counter np_cnp_sent, or events cnp_tx"),
        figure(Id::CnpsHandled, Control, "cnps_handled", "CNPs that reached a rate limiter", Count,
            "the counter rp_cnp_handled, flows.csv, or events cnp_rx"),
        figure(Id::CnpsIgnored, Control, "cnps_ignored", "CNPs ignored", Count, "the counter rp_cnp_ignored"),
        figure(Id::RateCuts, Control, "rate_cuts", "Rate cuts", Count,
            "the counter rp_rate_cuts, flows.csv, or events rate_cut"),
        figure(Id::CnpGap, Control, "cnp_gap_s", "Between two CNPs of a flow", Seconds,
            "CNPs that were handled, and the number of queue pairs"),
        figure(Id::Alpha, Control, "alpha_median", "alpha, median", Index, FLOWS),
        figure(Id::Limited, Control, "limited", "Time under a rate limit, per flow", Share, FLOWS),
        figure(Id::CompletionFirst, Completion, "completion_first_s", "First sender done after", Seconds, COMPLETION),
        figure(Id::CompletionLast, Completion, "completion_last_s", "Last sender done after", Seconds, COMPLETION),
    ]
};

impl Id {
    /// Its row.
    pub(crate) fn figure(self) -> &'static Figure {
        &FIGURES[self as usize]
    }
}

/// How one sender fared.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SenderFigures {
    pub(crate) name: String,
    pub(crate) device: String,
    pub(crate) goodput_bps: Option<f64>,
    pub(crate) goodput_last_half_bps: Option<f64>,
    /// Mean of Rc where its QPs have a limiter, summed over them.
    pub(crate) rc_mean_bps: Option<f64>,
    pub(crate) completion_s: Option<f64>,
    pub(crate) errors: Vec<String>,
}

/// All figures of one recording.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// The time they are taken from, seconds.
    pub(crate) span: Span,
    values: [Option<f64>; COUNT],
    pub(crate) senders: Vec<SenderFigures>,
    /// What each device's counters gained: device, counter, gain.
    pub(crate) counters: BTreeMap<String, BTreeMap<String, f64>>,
    /// Queue pairs that sent.
    pub(crate) flows: usize,
}

impl Figures {
    /// Those of `recording`, whose tables are `tables`.
    pub(crate) fn of(recording: &Recording, tables: &Tables<'_>) -> Self {
        let span = measured(recording);
        let mut figures = Self {
            span,
            values: [None; COUNT],
            senders: tables.senders(recording, span),
            counters: tables.counters(span),
            flows: tables.flow_count(&recording.run),
        };
        figures.throughput(tables);
        figures.queue(recording, tables);
        figures.loss(recording);
        figures.control(tables);
        figures.completion();
        figures
    }

    /// The figure, if the recording has what it needs. Senders that never converged
    /// have an infinite [`Id::Convergence`].
    pub(crate) fn get(&self, id: Id) -> Option<f64> {
        self.values[id as usize]
    }

    /// The figure.
    ///
    /// # Errors
    ///
    /// The recording does not have what it needs.
    pub(crate) fn need(&self, id: Id) -> Result<f64> {
        let figure = id.figure();
        self.get(id).ok_or_else(|| {
            anyhow!(
                "{} ({}) cannot be told from this recording: it needs {}",
                figure.label,
                figure.key,
                figure.needs
            )
        })
    }

    fn set(&mut self, id: Id, value: Option<f64>) {
        self.values[id as usize] = value;
    }

    fn throughput(&mut self, tables: &Tables<'_>) {
        let rates: Vec<f64> = self.senders.iter().filter_map(|s| s.goodput_bps).collect();
        let last: Vec<f64> = self
            .senders
            .iter()
            .filter_map(|s| s.goodput_last_half_bps)
            .collect();
        self.set(Id::Goodput, (!rates.is_empty()).then(|| rates.iter().sum()));
        self.set(Id::GoodputLeast, rates.iter().copied().reduce(f64::min));
        self.set(Id::GoodputMost, rates.iter().copied().reduce(f64::max));
        self.set(Id::Jain, jain(&rates));
        self.set(Id::JainLastHalf, jain(&last));
        self.set(Id::Convergence, tables.convergence(self.span, CONVERGED));
    }

    fn queue(&mut self, recording: &Recording, tables: &Tables<'_>) {
        let Some(port) = &tables.port else {
            return;
        };
        let Some(covered) = tables.covered(self.span, port.span) else {
            return;
        };
        let carried = port.sent.gained(covered) * 8.0 / (covered.1 - covered.0);
        let rate = recording.run.bottleneck.as_ref().map(|b| b.rate_bps);
        self.set(
            Id::Utilisation,
            rate.filter(|rate| *rate > 0.0).map(|rate| carried / rate),
        );
        self.set(Id::QueueMean, port.backlog.mean(self.span));
        self.set(Id::QueueP99, port.backlog.quantile(0.99, self.span));
        self.set(Id::QueueMost, port.backlog.most(self.span));
        self.set(Id::DropsLater, tables.drops_after(self.span, SETTLING_S));
    }

    fn loss(&mut self, recording: &Recording) {
        let errors: usize = self.senders.iter().map(|s| s.errors.len()).sum();
        self.set(
            Id::Errors,
            (!recording.run.senders.is_empty()).then_some(errors as f64),
        );
    }

    fn control(&mut self, tables: &Tables<'_>) {
        let span = self.span;
        for (id, totals) in &tables.signals {
            // Beside the marks that were received: from the same moments.
            let span = match id {
                Id::Marks => tables.between_looks(span),
                _ => span,
            };
            self.set(*id, Some(gained(totals, span)));
        }
        if let Some(handled) = self.get(Id::CnpsHandled) {
            let gap = (span.1 - span.0) * self.flows as f64 / handled;
            self.set(Id::CnpGap, (handled > 0.0 && self.flows > 0).then_some(gap));
        }

        let inside = |s: &&&FlowSample| span.0 <= s.time_s && s.time_s <= span.1;
        let mut alphas: Vec<f64> = tables
            .flows
            .iter()
            .flat_map(|flow| flow.samples.iter().filter(inside).map(|s| s.alpha))
            .collect();
        alphas.sort_by(f64::total_cmp);
        self.set(Id::Alpha, series::at_share(&alphas, 0.5));
        if !alphas.is_empty() {
            let limited = tables.flows.iter().map(|flow| flow.limited(span));
            let share = limited.sum::<f64>() / self.flows as f64;
            self.set(Id::Limited, Some(share));
        }
    }

    fn completion(&mut self) {
        let times = || self.senders.iter().filter_map(|s| s.completion_s);
        let (first, last) = (times().reduce(f64::min), times().reduce(f64::max));
        self.set(Id::CompletionFirst, first);
        self.set(Id::CompletionLast, last);
    }
}

/// The time from which figures are taken: as the run says, or all that was recorded.
pub(crate) fn measured(recording: &Recording) -> Span {
    recording.run.measured.unwrap_or_else(|| whole(recording))
}

/// From 0 to the last row of any table.
pub(crate) fn whole(recording: &Recording) -> Span {
    let last = [
        recording.flows.last().map(|row| row.time_s),
        recording.goodput.last().map(|row| row.time_s),
        recording.queue.last().map(|row| row.time_s),
        recording.counters.last().map(|row| row.time_s),
        recording.events.last().map(|row| row.time_s),
        recording.run.measured.map(|span| span.1),
    ];
    (0.0, last.into_iter().flatten().fold(0.0, f64::max))
}

/// The bottleneck's rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Port {
    pub(crate) span: Span,
    /// The queue at each time, as recorded.
    pub(crate) points: Vec<(f64, f64)>,
    backlog: Level,
    sent: Total,
    drops: Total,
    marks: Total,
}

/// One queue pair's rows.
#[derive(Clone, Debug)]
pub(crate) struct Flow<'a> {
    /// The sender, and the QPN where it has several.
    pub(crate) name: String,
    pub(crate) sender: &'a str,
    pub(crate) samples: Vec<&'a FlowSample>,
}

impl Flow<'_> {
    fn total(&self, value: fn(&FlowSample) -> u64) -> Total {
        let mut total = Total::default();
        // A limiter that was not there before began with 0.
        if let Some(first) = self.samples.first() {
            total.push(first.time_s.min(0.0), 0.0);
        }
        for sample in &self.samples {
            total.push(sample.time_s, value(sample) as f64);
        }
        total
    }

    /// The time after which a next sample is no longer the same limiter's: between
    /// them there was none.
    pub(crate) fn longest_gap(&self) -> f64 {
        let mut gaps: Vec<f64> = self
            .samples
            .windows(2)
            .map(|pair| pair[1].time_s - pair[0].time_s)
            .collect();
        gaps.sort_by(f64::total_cmp);
        3.0 * series::at_share(&gaps, 0.5).unwrap_or(f64::INFINITY)
    }

    /// Stretches of time and the sample that holds there; none where no limiter was.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = (Span, &FlowSample)> {
        let longest = self.longest_gap();
        self.samples.windows(2).filter_map(move |pair| {
            let span = (pair[0].time_s, pair[1].time_s);
            (span.1 - span.0 <= longest).then_some((span, pair[0]))
        })
    }

    /// The share of `span` for which a limiter was on.
    fn limited(&self, span: Span) -> f64 {
        let limited = self
            .stretches()
            .filter(|(_, sample)| sample.phase != UNLIMITED);
        let seconds: f64 = limited.map(|(held, _)| overlap(held, span)).sum();
        seconds / (span.1 - span.0)
    }

    /// The mean of Rc over `span`, where it is known.
    fn rc_mean(&self, span: Span) -> Option<f64> {
        let (sum, seconds) = self.stretches().fold((0.0, 0.0), |(sum, all), (held, s)| {
            let seconds = overlap(held, span);
            (sum + s.rc_bps * seconds, all + seconds)
        });
        (seconds > 0.0).then(|| sum / seconds)
    }
}

/// A recording's tables, sorted by what they are about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables<'a> {
    /// What arrived of each sender, bytes; in the order of the run's senders.
    pub(crate) goodput: Vec<(&'a str, Total)>,
    pub(crate) goodput_span: Span,
    pub(crate) port: Option<Port>,
    pub(crate) flows: Vec<Flow<'a>>,
    /// What is counted: the totals whose sum it is.
    pub(crate) signals: Vec<(Id, Vec<Total>)>,
    /// By device and counter.
    pub(crate) counters: BTreeMap<(&'a str, &'a str), Total>,
    /// When they were looked at.
    looks: Vec<f64>,
    /// When each sender began and, if it has, ended.
    sending: Vec<(Option<f64>, Option<f64>)>,
}

impl<'a> Tables<'a> {
    pub(crate) fn of(recording: &'a Recording) -> Self {
        let run = &recording.run;
        let mut goodput: Vec<(&str, Total)> = Vec::new();
        if !recording.goodput.is_empty() {
            // Nothing arrived of a sender without a row.
            goodput.extend(run.senders.iter().map(|s| (&*s.name, Total::default())));
        }
        for row in &recording.goodput {
            let total = entry(&mut goodput, &row.sender);
            total.push(row.time_s, row.bytes as f64);
        }
        let mut counters: BTreeMap<_, Total> = BTreeMap::new();
        for row in &recording.counters {
            counters
                .entry((&*row.device, &*row.counter))
                .or_default()
                .push(row.time_s, row.value as f64);
        }
        let (port, flows) = (port(recording), flows(recording));
        Self {
            goodput,
            goodput_span: ends(recording.goodput.iter().map(|row| row.time_s)),
            signals: signals(recording, port.as_ref(), &flows, &counters),
            port,
            flows,
            counters,
            looks: recording.counters.iter().map(|row| row.time_s).collect(),
            sending: run
                .senders
                .iter()
                .map(|s| {
                    let end = s.completion_s.map(|took| s.begin_s.unwrap_or(0.0) + took);
                    (s.begin_s, end)
                })
                .collect(),
        }
    }

    /// `span` from one look at the counters to another, which are rarer than those at
    /// the queue: both ends are the last look before.
    fn between_looks(&self, span: Span) -> Span {
        let before = |time_s: f64| {
            let after = self.looks.partition_point(|look| *look <= time_s);
            after.checked_sub(1).map_or(time_s, |last| self.looks[last])
        };
        (before(span.0), before(span.1))
    }

    fn covered(&self, span: Span, sampled: Span) -> Option<Span> {
        let both = (span.0.max(sampled.0), span.1.min(sampled.1));
        (both.0 < both.1).then_some(both)
    }

    /// What each sender got, bit/s, in `span`; nothing if it was not sampled then.
    pub(crate) fn rates(&self, span: Span) -> Option<Vec<f64>> {
        let span = self.covered(span, self.goodput_span)?;
        let rate = |total: &Total| total.gained(span) * 8.0 / (span.1 - span.0);
        Some(self.goodput.iter().map(|(_, total)| rate(total)).collect())
    }

    /// Packets dropped in `span` but for its first `after_s` seconds.
    pub(crate) fn drops_after(&self, span: Span, after_s: f64) -> Option<f64> {
        let port = self.port.as_ref()?;
        let later = (span.0 + after_s, span.1);
        self.covered(later, port.span)?;
        Some(port.drops.stepped(later))
    }

    /// What a counted figure gained in each of `spans`.
    pub(crate) fn gains(&self, id: Id, spans: &[Span]) -> Option<Vec<f64>> {
        let (_, totals) = self.signals.iter().find(|(of, _)| *of == id)?;
        Some(spans.iter().map(|span| gained(totals, *span)).collect())
    }

    /// From the beginning of `span`, or of the last sender, until each sender's
    /// goodput stays within `tolerance` of its fair share; infinite if it never does.
    pub(crate) fn convergence(&self, span: Span, tolerance: f64) -> Option<f64> {
        if self.goodput.len() < 2 {
            return None;
        }
        let begin = self
            .sending
            .iter()
            .filter_map(|s| s.0)
            .fold(span.0, f64::max);
        let end = self
            .sending
            .iter()
            .filter_map(|s| s.1)
            .fold(span.1, f64::min);
        let all_send = self.covered((begin, end), self.goodput_span)?;
        let fair = |part: &Span| {
            let rates = self.rates(*part).unwrap_or_default();
            let share = rates.iter().sum::<f64>() / rates.len() as f64;
            share > 0.0 && rates.iter().all(|r| (r - share).abs() <= tolerance * share)
        };
        let parts = parts(all_send, CONVERGENCE_PARTS);
        let unfair = parts.iter().rposition(|part| !fair(part));
        let first = unfair.map_or(0, |last| last + 1);
        let long_enough = first + CONVERGED_PARTS <= CONVERGENCE_PARTS;
        Some(match parts.get(first).filter(|_| long_enough) {
            Some(part) => part.0 - all_send.0,
            None => f64::INFINITY,
        })
    }

    fn senders(&self, recording: &Recording, span: Span) -> Vec<SenderFigures> {
        let half = ((span.0 + span.1) / 2.0, span.1);
        let (all, last) = (self.rates(span), self.rates(half));
        let mut names: Vec<&str> = recording.run.senders.iter().map(|s| &*s.name).collect();
        names.extend(self.goodput.iter().map(|(name, _)| *name));
        names.extend(self.flows.iter().map(|flow| flow.sender));
        let mut found: Vec<SenderFigures> = Vec::new();
        for name in names {
            if found.iter().any(|sender| sender.name == name) {
                continue;
            }
            let at = self.goodput.iter().position(|(of, _)| *of == name);
            let rate = |rates: &Option<Vec<f64>>| rates.as_ref()?.get(at?).copied();
            let said = recording.run.senders.iter().find(|s| s.name == name);
            let rc = self.flows.iter().filter(|flow| flow.sender == name);
            found.push(SenderFigures {
                name: name.to_owned(),
                device: said.map(|s| s.device.clone()).unwrap_or_default(),
                goodput_bps: rate(&all),
                goodput_last_half_bps: rate(&last),
                rc_mean_bps: rc
                    .filter_map(|flow| flow.rc_mean(span))
                    .reduce(|a, b| a + b),
                completion_s: said.and_then(|s| s.completion_s),
                errors: said.map(|s| s.errors.clone()).unwrap_or_default(),
            });
        }
        found
    }

    fn counters(&self, span: Span) -> BTreeMap<String, BTreeMap<String, f64>> {
        let mut gains: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
        for ((device, counter), total) in &self.counters {
            gains
                .entry((*device).to_owned())
                .or_default()
                .insert((*counter).to_owned(), total.stepped(span));
        }
        gains
    }

    fn flow_count(&self, run: &Run) -> usize {
        let said: u32 = run.senders.iter().map(|s| s.qps).sum();
        self.flows.len().max(said as usize)
    }
}

/// What a counted figure is counted by: a counter of this name, else by the flows'
/// own counts, else by events whose detail has a word.
type Counted = (
    Id,
    &'static str,
    Option<fn(&FlowSample) -> u64>,
    &'static str,
    &'static str,
);

#[rustfmt::skip]
const COUNTED: [Counted; 9] = [
    (Id::Duplicates, "duplicate_request", None, "", ""),
    (Id::Gaps, "out_of_seq_request", None, "", ""),
    (Id::Naks, "rcvd_seq_err", None, "", ""),
    (Id::Retries, "completer_retry_err", None, "", ""),
    (Id::MarksReceived, "np_ecn_marked_roce_packets", None, "ce", ""),
    (Id::CnpsSent, "np_cnp_sent", None, "cnp_tx", ""),
    (Id::CnpsHandled, "rp_cnp_handled", Some(|s| s.cnps), "cnp_rx", "handled"),
    (Id::CnpsIgnored, "rp_cnp_ignored", None, "", ""),
    (Id::RateCuts, "rp_rate_cuts", Some(|s| s.cuts), "rate_cut", ""),
];

fn signals(
    recording: &Recording,
    port: Option<&Port>,
    flows: &[Flow<'_>],
    counters: &BTreeMap<(&str, &str), Total>,
) -> Vec<(Id, Vec<Total>)> {
    let mut found = Vec::new();
    if let Some(port) = port {
        found.push((Id::Drops, vec![port.drops.clone()]));
        found.push((Id::Marks, vec![port.marks.clone()]));
    }
    for (id, counter, of_flow, event, detail) in COUNTED {
        let known = counters.iter().filter(|(key, _)| key.1 == counter);
        let mut totals: Vec<Total> = known.map(|(_, total)| total.clone()).collect();
        if let (true, Some(count)) = (totals.is_empty(), of_flow) {
            totals = flows.iter().map(|flow| flow.total(count)).collect();
        }
        if totals.is_empty() {
            let seen = recording.events.iter().filter(|e| e.event == event);
            let mut total = Total::default();
            total.push(0.0, 0.0);
            let mut count = 0.0;
            for event in seen.filter(|e| e.detail.contains(detail)) {
                count += 1.0;
                total.push(event.time_s, count);
            }
            if count > 0.0 {
                totals.push(total);
            }
        }
        if !totals.is_empty() {
            found.push((id, totals));
        }
    }
    found
}

/// What totals that change in steps gained together.
fn gained(totals: &[Total], span: Span) -> f64 {
    totals.iter().map(|total| total.stepped(span)).sum()
}

/// The total of `name` in a list that keeps its order.
fn entry<'l, 'a>(list: &'l mut Vec<(&'a str, Total)>, name: &'a str) -> &'l mut Total {
    let at = match list.iter().position(|(known, _)| *known == name) {
        Some(at) => at,
        None => {
            list.push((name, Total::default()));
            list.len() - 1
        }
    };
    &mut list[at].1
}

/// Seconds that two spans have in common.
fn overlap(a: Span, b: Span) -> f64 {
    (a.1.min(b.1) - a.0.max(b.0)).max(0.0)
}

fn ends(times: impl Iterator<Item = f64>) -> Span {
    times.fold((f64::INFINITY, f64::NEG_INFINITY), |span, time| {
        (span.0.min(time), span.1.max(time))
    })
}

/// The bottleneck: the port that the run names, else the only one there is.
fn port(recording: &Recording) -> Option<Port> {
    let named = recording.run.bottleneck.as_ref().map(|b| &*b.name);
    let known = |name| recording.queue.iter().any(|row| row.port == name);
    let name = match named.filter(|name| known(*name)) {
        Some(name) => name,
        None => &*recording.queue.first()?.port,
    };
    let mut port = Port::default();
    for row in recording.queue.iter().filter(|row| row.port == name) {
        port.points.push((row.time_s, row.backlog_bytes as f64));
        port.sent.push(row.time_s, row.sent_bytes as f64);
        port.drops.push(row.time_s, row.drops as f64);
        port.marks.push(row.time_s, row.marks as f64);
    }
    port.span = ends(port.points.iter().map(|point| point.0));
    port.backlog = port.points.iter().copied().collect();
    Some(port)
}

fn flows(recording: &Recording) -> Vec<Flow<'_>> {
    // One name for a limiter in all its rows; a QPN that is used again by another
    // connection is another flow.
    type Key<'a> = (&'a str, &'a str, u32, Option<u32>);
    let mut found: Vec<(Key<'_>, Vec<&FlowSample>)> = Vec::new();
    let mut known: BTreeMap<Key<'_>, usize> = BTreeMap::new();
    for row in &recording.flows {
        let key = (&*row.sender, &*row.device, row.qpn, row.peer_qpn);
        let at = *known.entry(key).or_insert_with(|| {
            found.push((key, Vec::new()));
            found.len() - 1
        });
        found[at].1.push(row);
    }
    let place = |sender: &str| {
        let senders = &recording.run.senders;
        senders
            .iter()
            .position(|s| s.name == sender)
            .unwrap_or(senders.len())
    };
    found.sort_by_key(|(key, _)| (place(key.0), key.2));
    let alone = |sender: &str| found.iter().filter(|(key, _)| key.0 == sender).count() == 1;
    let name = |key: &Key<'_>| match alone(key.0) {
        true => key.0.to_owned(),
        false => format!("{} QP {}", key.0, key.2),
    };
    found
        .iter()
        .map(|(key, samples)| Flow {
            name: name(key),
            sender: key.0,
            samples: samples.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests;
