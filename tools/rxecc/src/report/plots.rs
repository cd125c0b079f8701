// SPDX-License-Identifier: GPL-2.0

//! The plots of one way of running an experiment.
//!
//! In comes a [`Way`] and the [`Scales`] that all ways share; out come [`Plot`]s: a
//! picture for wide and one for narrow screens, or why there is none, with title,
//! caption and legend. Up to [`APART`] lines are drawn one by one, more of them as a
//! band. How a chart is drawn stands in [`super::svg`], where on the page in
//! [`super::page`].

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::lines::{thinned, Line, Spread};
use super::palette::{self, Ink};
use super::svg::{self, label, px, stroke, Area, Chart, Size, Vertical};
use super::words::each;
use super::Way;
use crate::analysis::series::{at_share, parts, Span, Total};
use crate::analysis::units::{byte_scale, bytes, count, rate_scale, seconds};
use crate::analysis::{Flow, Id, UNLIMITED};
use crate::recording::FlowSample;
use crate::text::rate;

/// Lines that can be told apart.
const APART: usize = palette::SERIES.len();

/// A plot on the page.
pub(super) struct Plot {
    pub(super) title: &'static str,
    pub(super) caption: String,
    pub(super) legend: Vec<(Key, String)>,
    /// `<svg>` elements, or the sentence that says why there are none.
    pub(super) pictures: Result<Vec<String>, &'static str>,
}

/// A legend's sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Line(Ink),
    Thin(Ink),
    /// With the opacity in percent.
    Fill(Ink, u8),
}

/// What all ways share, so that the eye can compare them.
pub(super) struct Scales {
    ways: usize,
    time: Span,
    goodput: f64,
    rates: f64,
    queue: f64,
}

impl Scales {
    pub(super) fn of(ways: &[Way<'_>]) -> Self {
        let most = |value: &dyn Fn(&Way<'_>) -> f64| ways.iter().map(value).fold(0.0, f64::max);
        let link = most(&|way| way.link().unwrap_or(0.0));
        let limit = |wanted: f64, least: f64| match link > 0.0 {
            true => wanted.max(least).min(link * 1.3),
            false => wanted.max(least).max(1.0),
        };
        let time = (0.0, most(&|way| way.whole.1).max(1e-6));
        let fair = most(&|way| way.share_of(way.flow_count()).unwrap_or(0.0));
        let goodput = most(&|way| {
            let lines = goodput_lines(way, Size::wide(0));
            lines.iter().map(Line::most).fold(0.0, f64::max)
        });
        // Rates as they usually are: those of no limit would make all others flat.
        let mut limited: Vec<f64> = ways
            .iter()
            .flat_map(|way| way.tables.flows.iter().flat_map(|flow| &flow.samples))
            .filter(|sample| sample.phase != UNLIMITED)
            .map(|sample| sample.rc_bps)
            .collect();
        limited.sort_by(f64::total_cmp);
        let usual = at_share(&limited, 0.98).unwrap_or(link);
        Self {
            ways: ways.len(),
            time,
            goodput: limit(goodput * 1.08, fair * 1.5),
            rates: limit(usual * 1.15, fair * 1.8),
            queue: most(&queue_top),
        }
    }

    /// Whether there is nothing to compare with.
    pub(super) fn alone(&self) -> bool {
        self.ways == 1
    }
}

/// The queue's rows.
fn queue_points<'w>(way: &'w Way<'_>) -> &'w [(f64, f64)] {
    way.tables.port.as_ref().map_or(&[], |port| &port.points)
}

/// The highest queue that a way's plot must show: that of the measured time.
fn queue_top(way: &Way<'_>) -> f64 {
    let span = way.figures.span;
    let points = queue_points(way).iter();
    let measured = points.filter(|point| span.0 <= point.0 && point.0 <= span.1);
    let most = measured.map(|point| point.1).fold(0.0, f64::max);
    let kmax = way
        .bottleneck()
        .and_then(|b| b.red_max_bytes)
        .unwrap_or(0.0);
    most.max(kmax).max(1.0) * 1.12
}

/// All plots of a way.
pub(super) fn all(way: &Way<'_>, scales: &Scales) -> Result<Vec<Plot>> {
    Ok(vec![
        goodput(way, scales)?,
        rates(way, scales)?,
        queue(way, scales)?,
        signals(way, scales)?,
        alpha(way, scales)?,
    ])
}

/// Goodput and queue, small, to stand beside those of the other ways.
pub(super) fn glance(way: &Way<'_>, scales: &Scales) -> Result<Vec<Plot>> {
    let size = Size::narrow(190);
    let small = |plot: Plot, draw: &dyn Fn(Size, &Area<'_>) -> Result<()>, id: &str| {
        let pictures = match plot.pictures {
            Err(why) => Err(why),
            Ok(_) => Ok(vec![svg::picture(
                &format!("{id}-{}", way.index),
                "glance",
                &format!("{}, {}", plot.title, way.title),
                &plot.caption,
                size,
                |area| draw(size, area),
            )?]),
        };
        anyhow::Ok(Plot { pictures, ..plot })
    };
    Ok(vec![
        small(
            goodput(way, scales)?,
            &|size, area| draw_goodput(way, scales, size, area),
            "gg",
        )?,
        small(
            queue(way, scales)?,
            &|size, area| draw_queue(way, scales, scales.queue, size, area),
            "gq",
        )?,
    ])
}

/// A picture for wide and one for narrow screens.
fn pictures(
    way: &Way<'_>,
    name: &str,
    title: &str,
    description: &str,
    sizes: [Size; 2],
    draw: impl Fn(Size, &Area<'_>) -> Result<()>,
) -> Result<Vec<String>> {
    let one = |size: Size| {
        let class = if size.is_narrow() { "narrow" } else { "wide" };
        svg::picture(
            &format!("{name}-{}-{class}", way.index),
            class,
            &format!("{title}, {}", way.title),
            description,
            size,
            |area| draw(size, area),
        )
    };
    sizes.into_iter().map(one).collect()
}

const SIZES: [Size; 2] = [Size::wide(250), Size::narrow(220)];

fn missing(title: &'static str, why: &'static str) -> Plot {
    Plot {
        title,
        caption: String::new(),
        legend: Vec::new(),
        pictures: Err(why),
    }
}

// --- lines and bands --------------------------------------------------------------

/// `lines`, each in its colour, or how they are spread.
fn draw_lines(
    chart: &mut Chart<'_, '_>,
    lines: &[Line],
    time: Span,
    columns: usize,
    width: f64,
) -> Result<()> {
    if lines.len() <= APART {
        for (line, ink) in lines.iter().zip(palette::SERIES) {
            for stretch in &line.stretches {
                svg::line(chart, &thinned(stretch, time, columns), stroke(ink, width))?;
            }
        }
        return Ok(());
    }
    let ink = palette::SERIES[0];
    let spread = Spread::of(lines, time, columns);
    svg::between(chart, &spread.least, &spread.most, ink, 0.16)?;
    svg::between(chart, &spread.lower, &spread.upper, ink, 0.28)?;
    svg::line(chart, &spread.median, stroke(ink, width))
}

/// What the colours of `lines` mean.
fn lines_legend(lines: &[Line], of: &str) -> Vec<(Key, String)> {
    if lines.len() <= APART {
        let named = lines.iter().zip(palette::SERIES);
        return named
            .map(|(line, ink)| (Key::Line(ink), line.name.clone()))
            .collect();
    }
    let ink = palette::SERIES[0];
    vec![
        (Key::Line(ink), format!("median of {} {of}", lines.len())),
        (Key::Fill(ink, 40), format!("half of the {of}")),
        (Key::Fill(ink, 16), format!("all {of}")),
    ]
}

// --- goodput ------------------------------------------------------------------------

fn goodput_lines(way: &Way<'_>, size: Size) -> Vec<Line> {
    let tables = &way.tables;
    let (from, to) = tables.goodput_span;
    if tables.goodput.is_empty() || from >= to {
        return Vec::new();
    }
    let count = if size.is_narrow() { 50 } else { 100 };
    let spans = parts((from, to), count);
    let middle = |span: &Span| (span.0 + span.1) / 2.0;
    let of = |(name, total): &(&str, Total)| Line {
        name: (*name).to_owned(),
        stretches: vec![spans
            .iter()
            .map(|span| (middle(span), total.gained(*span) * 8.0 / (span.1 - span.0)))
            .collect()],
    };
    tables.goodput.iter().map(of).collect()
}

fn draw_goodput(way: &Way<'_>, scales: &Scales, size: Size, area: &Area<'_>) -> Result<()> {
    let lines = goodput_lines(way, size);
    let vertical = Vertical::to(scales.goodput, rate_scale(scales.goodput));
    let mut chart = svg::chart(area, size, scales.time, way.figures.span, vertical)?;
    if let Some(share) = way.share_of(lines.len()) {
        svg::thresholds(area, &mut chart, &[(share, "fair")], palette::REFERENCE)?;
    }
    draw_lines(&mut chart, &lines, scales.time, size.columns(), 1.75)
}

fn goodput(way: &Way<'_>, scales: &Scales) -> Result<Plot> {
    const TITLE: &str = "Goodput of each sender";
    let lines = goodput_lines(way, Size::wide(0));
    if lines.is_empty() {
        return Ok(missing(
            TITLE,
            "goodput.csv was not recorded: nothing counted what arrived.",
        ));
    }
    let mut caption = String::from("What arrived at the receiver.");
    if let (Some(least), Some(most)) = (
        way.figures.get(Id::GoodputLeast),
        way.figures.get(Id::GoodputMost),
    ) {
        caption += &format!(" On average {}", each(least, most));
        match way.share_of(lines.len()) {
            Some(share) => caption += &format!("; {} would be fair.", rate(share)),
            None => caption.push('.'),
        }
    }
    let pictures = pictures(way, "goodput", TITLE, &caption, SIZES, |size, area| {
        draw_goodput(way, scales, size, area)
    })?;
    Ok(Plot {
        title: TITLE,
        caption,
        legend: lines_legend(&lines, "senders"),
        pictures: Ok(pictures),
    })
}

// --- rates and phases -----------------------------------------------------------------

const NO_FLOWS: &str =
    "No rate limiter was there to be recorded: flows.csv has no rows. Without rxe_cc nothing \
     limits a queue pair but its 64 packets in flight.";

fn flow_lines(flows: &[Flow<'_>], value: fn(&FlowSample) -> f64) -> Vec<Line> {
    let of = |flow: &Flow<'_>| {
        let longest = flow.longest_gap();
        let stretches = flow
            .samples
            .chunk_by(|a, b| b.time_s - a.time_s <= longest)
            .map(|part| part.iter().map(|s| (s.time_s, value(s))).collect())
            .collect();
        Line {
            name: flow.name.clone(),
            stretches,
        }
    };
    flows.iter().map(of).collect()
}

/// How the phases of so many flows are shown.
enum Phases {
    /// A row each, so high.
    Rows(i32),
    /// The share of the flows that is in each phase.
    Shares,
}

impl Phases {
    fn of(flows: usize) -> Self {
        match flows {
            0..=APART => Phases::Rows(13),
            9..=32 => Phases::Rows((150 / flows as i32).max(5)),
            _ => Phases::Shares,
        }
    }

    fn height(&self, flows: usize) -> i32 {
        match self {
            Phases::Rows(height) => height * flows as i32,
            Phases::Shares => 90,
        }
    }
}

fn phase_ink(phase: &str) -> Ink {
    let known = palette::PHASES.iter().find(|(name, ..)| *name == phase);
    known.map_or(palette::PHASES[0].2, |(_, _, ink)| *ink)
}

/// The phase in the middle of each of `columns` parts of time; nothing where no
/// limiter was.
fn phases<'f>(flow: &'f Flow<'_>, time: Span, columns: usize) -> Vec<Option<&'f str>> {
    let mut stretches = flow.stretches().peekable();
    let mut at = |moment: f64| {
        while stretches.peek().is_some_and(|(held, _)| held.1 <= moment) {
            stretches.next();
        }
        let (_, sample) = stretches.peek().filter(|(held, _)| held.0 <= moment)?;
        Some(&*sample.phase)
    };
    let spans = parts(time, columns);
    spans
        .iter()
        .map(|span| at((span.0 + span.1) / 2.0))
        .collect()
}

fn draw_phases(way: &Way<'_>, scales: &Scales, size: Size, area: &Area<'_>) -> Result<()> {
    let flows = &way.tables.flows;
    let shown = Phases::of(flows.len());
    let time = scales.time;
    let spans = parts(time, size.columns());
    let all: Vec<_> = flows.iter().map(|f| phases(f, time, spans.len())).collect();
    let mut chart = svg::drawn(
        ChartBuilder::on(area)
            .margin_right(px(Size::RIGHT))
            .margin_bottom(px(4))
            .margin_left(px(Size::LEFT))
            .build_cartesian_2d(time.0..time.1, 0.0..flows.len() as f64),
    )?;
    let rows = flows.len() as f64;
    match shown {
        Phases::Rows(height) => {
            let gap = if height > 8 { 0.12 } else { 0.06 };
            for (row, of_flow) in all.iter().enumerate() {
                let values = rows - row as f64 - 1.0 + gap..rows - row as f64 - gap;
                let mut from = 0;
                for run in of_flow.chunk_by(|a, b| a == b) {
                    let held = (spans[from].0, spans[from + run.len() - 1].1);
                    from += run.len();
                    if let Some(phase) = run[0] {
                        svg::band(&mut chart, held, values.clone(), phase_ink(phase))?;
                    }
                }
                if height > 12 || row == 0 || row + 1 == flows.len() {
                    let middle = height * row as i32 + height / 2;
                    let name = shortened(&flows[row].name);
                    label(area, &name, (Size::LEFT - 5, middle), HPos::Right)?;
                }
            }
        }
        Phases::Shares => {
            let mut below = vec![0.0; spans.len()];
            let with_times = |values: &[f64]| -> Vec<(f64, f64)> {
                let steps = spans.iter().zip(values);
                steps.flat_map(|(s, v)| [(s.0, *v), (s.1, *v)]).collect()
            };
            for (name, _, ink) in palette::PHASES.iter().rev() {
                let count = |column: usize| all.iter().filter(|f| f[column] == Some(name)).count();
                let above: Vec<f64> = below
                    .iter()
                    .enumerate()
                    .map(|(column, below)| below + count(column) as f64)
                    .collect();
                svg::between(
                    &mut chart,
                    &with_times(&below),
                    &with_times(&above),
                    *ink,
                    1.0,
                )?;
                below = above;
            }
            let at = |y: i32| (Size::LEFT - 5, y);
            label(area, &flows.len().to_string(), at(7), HPos::Right)?;
            label(area, "flows", at(45), HPos::Right)?;
            label(area, "0", at(81), HPos::Right)?;
        }
    }
    Ok(())
}

/// A name that fits to the left of a chart.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(7) {
        None => name.to_owned(),
        Some(_) => name
            .rsplit_once(' ')
            .map_or(name, |(_, last)| last)
            .chars()
            .take(7)
            .collect(),
    }
}

fn rates(way: &Way<'_>, scales: &Scales) -> Result<Plot> {
    const TITLE: &str = "Rate of each flow, and its phase";
    let flows = &way.tables.flows;
    if flows.is_empty() {
        return Ok(missing(TITLE, NO_FLOWS));
    }
    let mut rc = flow_lines(flows, |sample| sample.rc_bps);
    let mut rt = flow_lines(flows, |sample| sample.rt_bps);
    let most = rc.iter().map(Line::most).fold(0.0, f64::max);
    // Where rates are mostly beyond what the ways have in common, decades show them.
    let beyond = |sample: &&&FlowSample| sample.rc_bps > scales.rates;
    let samples = || flows.iter().flat_map(|flow| &flow.samples);
    let logarithms = samples().filter(beyond).count() * 2 > samples().count();
    let vertical = if logarithms {
        let least = samples()
            .map(|sample| sample.rc_bps)
            .fold(f64::INFINITY, f64::min);
        let least = way
            .share_of(flows.len())
            .map_or(least, |fair| least.min(fair));
        for line in rc.iter_mut().chain(&mut rt) {
            line.map(f64::log10);
        }
        Vertical::decades(least, most, rate_scale(most.min(1e6)))
    } else {
        Vertical::to(scales.rates, rate_scale(scales.rates))
    };
    let strip = Phases::of(flows.len());
    let strip_height = strip.height(flows.len()) + 4;
    let mut caption = match rc.len() <= APART {
        true => String::from("Current rate Rc; thin: target rate Rt."),
        false => String::from("Current rate Rc; thin: median of the target rates Rt."),
    };
    caption += match strip {
        Phases::Rows(_) => " Below: the phase of each flow.",
        Phases::Shares => " Below: how many flows are in each phase.",
    };
    if logarithms {
        caption += " The scale is logarithmic.";
    } else if most > scales.rates {
        caption += &format!(
            " Lines along the upper edge are above it, at {} at most.",
            rate(most)
        );
    }
    let mut legend = lines_legend(&rc, "flows");
    legend.push((Key::Thin(palette::SERIES[0]), "Rt".to_owned()));
    let known = |phase: &str| {
        flows
            .iter()
            .any(|f| f.samples.iter().any(|s| s.phase == phase))
    };
    for (phase, name, ink) in palette::PHASES {
        if known(phase) {
            legend.push((Key::Fill(ink, 100), name.to_owned()));
        }
    }
    let sizes = SIZES.map(|size| Size {
        height: size.height + 30 + strip_height,
        ..size
    });
    let pictures = pictures(way, "rates", TITLE, &caption, sizes, |size, area| {
        let (upper, lower) = area.split_vertically(px(size.height - strip_height));
        let mut chart = svg::chart(&upper, size, scales.time, way.figures.span, vertical)?;
        if let Some(share) = way.share_of(flows.len()) {
            let share = if logarithms { share.log10() } else { share };
            svg::thresholds(&upper, &mut chart, &[(share, "fair")], palette::REFERENCE)?;
        }
        if rt.len() <= APART {
            for (line, ink) in rt.iter().zip(palette::SERIES) {
                for stretch in &line.stretches {
                    let mut style = stroke(ink, 0.75);
                    style.color = ink.color().mix(0.6);
                    svg::line(
                        &mut chart,
                        &thinned(stretch, scales.time, size.columns()),
                        style,
                    )?;
                }
            }
        } else {
            let spread = Spread::of(&rt, scales.time, size.columns());
            svg::line(&mut chart, &spread.median, stroke(palette::SERIES[0], 0.75))?;
        }
        draw_lines(&mut chart, &rc, scales.time, size.columns(), 1.75)?;
        draw_phases(way, scales, size, &lower)
    })?;
    Ok(Plot {
        title: TITLE,
        caption,
        legend,
        pictures: Ok(pictures),
    })
}

// --- queue ----------------------------------------------------------------------------

fn draw_queue(way: &Way<'_>, scales: &Scales, top: f64, size: Size, area: &Area<'_>) -> Result<()> {
    let vertical = Vertical::to(top, byte_scale(top));
    let mut chart = svg::chart(area, size, scales.time, way.figures.span, vertical)?;
    let bottleneck = way.bottleneck();
    let kmin = bottleneck.and_then(|b| b.red_min_bytes);
    let kmax = bottleneck.and_then(|b| b.red_max_bytes);
    if let (Some(kmin), Some(kmax)) = (kmin, kmax) {
        svg::band(
            &mut chart,
            scales.time,
            kmin..kmax.min(top),
            palette::RED_ZONE,
        )?;
    }
    let points = thinned(queue_points(way), scales.time, size.columns());
    let ground: Vec<_> = points.iter().map(|(t, _)| (*t, 0.0)).collect();
    let ink = palette::SERIES[0];
    svg::between(&mut chart, &ground, &points, ink, 0.18)?;
    svg::line(&mut chart, &points, stroke(ink, 1.25))?;
    let limit = bottleneck.and_then(|b| b.limit_bytes);
    let lines = [(kmin, "Kmin"), (kmax, "Kmax"), (limit, "limit")];
    let known = lines
        .iter()
        .filter_map(|(value, name)| Some(((*value)?, *name)));
    let known: Vec<_> = known.collect();
    svg::thresholds(area, &mut chart, &known, palette::THRESHOLD)
}

fn queue(way: &Way<'_>, scales: &Scales) -> Result<Plot> {
    const TITLE: &str = "Queue at the bottleneck";
    if way.tables.port.is_none() {
        return Ok(missing(
            TITLE,
            "queue.csv was not recorded: the bottleneck was not watched.",
        ));
    }
    let mut caption = String::new();
    if let (Some(mean), Some(p99)) = (
        way.figures.get(Id::QueueMean),
        way.figures.get(Id::QueueP99),
    ) {
        caption += &format!(
            "{} on average, at most {} for 99% of the time.",
            bytes(mean),
            bytes(p99)
        );
    }
    let red = way
        .bottleneck()
        .and_then(|b| b.red_min_bytes.zip(b.red_max_bytes));
    if let Some((kmin, kmax)) = red {
        caption += &format!(
            " Marks begin at Kmin ({}); above Kmax ({}) every packet is marked.",
            bytes(kmin),
            bytes(kmax)
        );
    }
    let most = queue_points(way)
        .iter()
        .map(|point| point.1)
        .fold(0.0, f64::max);
    if most > queue_top(way) {
        caption += &format!(" When it was not measured it reached {}.", bytes(most));
    }
    let pictures = pictures(way, "queue", TITLE, &caption, SIZES, |size, area| {
        draw_queue(way, scales, queue_top(way), size, area)
    })?;
    let mut legend = vec![(Key::Line(palette::SERIES[0]), "bytes that wait".to_owned())];
    if red.is_some() {
        legend.push((Key::Fill(palette::RED_ZONE, 100), "Kmin to Kmax".to_owned()));
    }
    Ok(Plot {
        title: TITLE,
        caption,
        legend,
        pictures: Ok(pictures),
    })
}

// --- marks, CNPs, cuts, drops -------------------------------------------------------------

/// What is counted: its name, the figures that count it (the first that has any), its
/// colour, and the panel that it is drawn in.
type Signal = (&'static str, &'static [Id], Ink, usize);

const SIGNALS: [Signal; 4] = [
    (
        "CE marks",
        &[Id::Marks, Id::MarksReceived],
        palette::MARKS,
        0,
    ),
    ("CNPs", &[Id::CnpsHandled, Id::CnpsSent], palette::CNPS, 1),
    ("rate cuts", &[Id::RateCuts], palette::CUTS, 1),
    ("drops", &[Id::Drops], palette::DROPS, 2),
];

/// How often a signal came in each of `spans`.
fn gains(way: &Way<'_>, signal: &Signal, spans: &[Span]) -> Option<Vec<f64>> {
    let all = signal
        .1
        .iter()
        .filter_map(|id| way.tables.gains(*id, spans));
    all.reduce(|a, b| if sum(&a) > 0.0 { a } else { b })
}

/// The parts of time in which is counted.
fn intervals(time: Span, size: Size) -> Vec<Span> {
    parts(time, if size.is_narrow() { 50 } else { 100 })
}

fn signals(way: &Way<'_>, scales: &Scales) -> Result<Plot> {
    const TITLE: &str = "Marks, CNPs, cuts and drops";
    const PANEL: i32 = 118;
    let spans = intervals(scales.time, Size::wide(0));
    let (mut shown, mut none, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for signal in &SIGNALS {
        match gains(way, signal, &spans) {
            None => unknown.push(signal.0),
            Some(values) if sum(&values) == 0.0 => none.push(signal.0),
            Some(values) => shown.push((signal, sum(&values))),
        }
    }
    if shown.is_empty() {
        let why = match none.is_empty() {
            true => "Neither the queue's nor the devices' counters were recorded.",
            false => "There was nothing to count: no mark, no CNP, no cut, no drop.",
        };
        return Ok(missing(TITLE, why));
    }
    let each = |spans: &[Span]| seconds(spans[0].1 - spans[0].0);
    let mut caption = format!(
        "How many in each {} (on narrow screens {}).",
        each(&spans),
        each(&intervals(scales.time, Size::narrow(0)))
    );
    if !none.is_empty() {
        caption += &format!(" There were no {}.", none.join(" and no "));
    }
    if !unknown.is_empty() {
        caption += &format!(" Not recorded: {}.", unknown.join(", "));
    }
    let panels: Vec<_> = shown.chunk_by(|a, b| a.0 .3 == b.0 .3).collect();
    let height = PANEL * panels.len() as i32;
    let sizes = [Size::wide(height), Size::narrow(height)];
    let pictures = pictures(way, "signals", TITLE, &caption, sizes, |size, area| {
        let spans = intervals(scales.time, size);
        let mut rest = area.clone();
        for panel in &panels {
            let (area, below) = rest.split_vertically(px(PANEL));
            draw_signals(way, scales, &spans, panel, size, &area)?;
            rest = below;
        }
        Ok(())
    })?;
    let key = |(signal, total): &(&Signal, f64)| {
        (
            Key::Line(signal.2),
            format!("{} ({})", signal.0, count(*total)),
        )
    };
    Ok(Plot {
        title: TITLE,
        caption,
        legend: shown.iter().map(key).collect(),
        pictures: Ok(pictures),
    })
}

/// One panel: signals that are about as frequent.
fn draw_signals(
    way: &Way<'_>,
    scales: &Scales,
    spans: &[Span],
    panel: &[(&Signal, f64)],
    size: Size,
    area: &Area<'_>,
) -> Result<()> {
    let all: Vec<_> = panel
        .iter()
        .filter_map(|(signal, _)| Some((gains(way, signal, spans)?, signal.2)))
        .collect();
    // What came before the measured time must not make the rest flat.
    let (from, to) = way.figures.span;
    let inside = |span: &Span| from <= span.0 && span.1 <= to;
    let values = all.iter().flat_map(|(values, _)| spans.iter().zip(values));
    let measured = values
        .filter(|(span, _)| inside(span))
        .map(|(_, value)| *value);
    let most = measured.fold(1.0, f64::max);
    let mut vertical = Vertical::to(most * 1.15, (1.0, ""));
    vertical.labels = 3;
    let mut chart = svg::chart(area, size, scales.time, way.figures.span, vertical)?;
    let names: Vec<&str> = panel.iter().map(|(signal, _)| signal.0).collect();
    label(area, &names.join(", "), (Size::LEFT + 4, 10), HPos::Left)?;
    for (at, (values, ink)) in all.iter().enumerate() {
        let steps = spans.iter().zip(values);
        let points: Vec<_> = steps.flat_map(|(s, v)| [(s.0, *v), (s.1, *v)]).collect();
        if at == 0 {
            let ground = [(scales.time.0, 0.0), (scales.time.1, 0.0)];
            svg::between(&mut chart, &ground, &points, *ink, 0.2)?;
        }
        svg::line(&mut chart, &points, stroke(*ink, 1.5))?;
    }
    Ok(())
}

fn sum(values: &[f64]) -> f64 {
    values.iter().sum()
}

// --- alpha --------------------------------------------------------------------------------

fn alpha(way: &Way<'_>, scales: &Scales) -> Result<Plot> {
    const TITLE: &str = "alpha of each flow";
    let flows = &way.tables.flows;
    if flows.is_empty() {
        return Ok(missing(TITLE, NO_FLOWS));
    }
    let lines = flow_lines(flows, |sample| sample.alpha);
    let mut caption =
        String::from("The estimate of congestion, 0 to 1: a cut takes half of it from the rate.");
    if let Some(median) = way.figures.get(Id::Alpha) {
        caption += &format!(" Median: {median:.3}.");
    }
    let sizes = [Size::wide(190), Size::narrow(180)];
    let pictures = pictures(way, "alpha", TITLE, &caption, sizes, |size, area| {
        let vertical = Vertical::to(1.0, (1.0, "alpha"));
        let mut chart = svg::chart(area, size, scales.time, way.figures.span, vertical)?;
        draw_lines(&mut chart, &lines, scales.time, size.columns(), 1.25)
    })?;
    Ok(Plot {
        title: TITLE,
        caption,
        legend: lines_legend(&lines, "flows"),
        pictures: Ok(pictures),
    })
}
