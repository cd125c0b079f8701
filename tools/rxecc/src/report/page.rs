// SPDX-License-Identifier: GPL-2.0

//! The HTML document: one file, without scripts, that loads nothing.
//!
//! In come [`Way`]s; what stands on the page comes from [`super::words`],
//! [`super::plots`] and [`super::table`], how it looks from `report.css` and
//! [`super::palette`].

use std::collections::BTreeSet;

use anyhow::Result;
use maud::{html, Markup, PreEscaped, DOCTYPE};

use super::palette;
use super::plots::{self, Key, Plot, Scales};
use super::table::{rows, unknown};
use super::{words, Way};
use crate::analysis::knobs;
use crate::analysis::units::{bytes, count, seconds};
use crate::recording::Run;
use crate::text::rate;

const STYLE: &str = include_str!("report.css");

/// Nothing from elsewhere, no script.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// The document.
pub(super) fn page(title: &str, ways: &[Way<'_>]) -> Result<String> {
    let scales = Scales::of(ways);
    let style = format!(
        "{STYLE}\n@media (prefers-color-scheme: dark) {{\n{}}}\n",
        palette::dark_rules()
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                link rel="icon" href="data:,";
                title { (title) " - rxecc" }
                style { (PreEscaped(style)) }
            }
            body {
                header {
                    p.kicker { "DCQCN on soft-RoCE" }
                    h1 { (title) }
                    (head(ways))
                    @if ways.len() > 1 {
                        nav aria-label="Contents" {
                            ul {
                                li { a href="#figures" { "Figures" } }
                                @for way in ways {
                                    li { a href={ "#way-" (way.index) } { (way.title) } }
                                }
                                li { a href="#knobs" { "Knobs" } }
                            }
                        }
                    }
                }
                main {
                    @if ways.len() > 1 {
                        section {
                            h2 { "How they differ" }
                            @for sentence in words::differences(ways) {
                                p { (sentence) }
                            }
                            (glance(ways, &scales)?)
                        }
                    }
                    section #figures {
                        h2 { "Figures" }
                        (figures(ways))
                    }
                    @for way in ways {
                        (section(way, &scales)?)
                    }
                    section #knobs {
                        h2 { "Knobs" }
                        (knob_table(ways))
                    }
                }
                footer {
                    p {
                        "Made by rxecc " (env!("CARGO_PKG_VERSION"))
                        ". How each figure is computed stands in Documentation/recordings.md."
                    }
                }
            }
        }
    };
    Ok(page.into_string())
}

/// A name and what it is for a way; empty if it is not known.
type Fact = (&'static str, fn(&Way<'_>) -> String);

/// What of the run the head names, once if it is the same for all ways.
fn head(ways: &[Way<'_>]) -> Markup {
    let facts: [Fact; 8] = [
        ("Senders", senders),
        ("Bottleneck", bottleneck),
        ("Measured", |way| {
            let (from, to) = way.figures.span;
            format!("{} to {}", seconds(from), seconds(to))
        }),
        ("Seed", |way| {
            let seed = way.recording.run.seed;
            seed.map_or(String::new(), |seed| seed.to_string())
        }),
        ("Source", |way| way.recording.run.source.clone()),
        ("Versions", |way| versions(&way.recording.run)),
        ("Begun", |way| way.recording.run.started.clone()),
        ("Command", |way| way.recording.run.command.clone()),
    ];
    html! {
        dl.facts {
            @for (name, fact) in facts {
                @let said: Vec<String> = ways.iter().map(fact).collect();
                @let same = said.iter().all(|text| *text == said[0]);
                @if said.iter().any(|text| !text.is_empty()) {
                    dt { (name) }
                    dd {
                        @if same {
                            (fact_text(name, &said[0]))
                        } @else {
                            ul {
                                @for (way, text) in ways.iter().zip(&said) {
                                    li { (fact_text(name, text)) span.of { (way.title) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn fact_text(name: &str, text: &str) -> Markup {
    match (name, text) {
        (_, "") => html! { "-" },
        ("Command", _) => html! { code { (text) } },
        _ => html! { (text) },
    }
}

fn senders(way: &Way<'_>) -> String {
    let senders = &way.recording.run.senders;
    let qps: BTreeSet<u32> = senders.iter().map(|s| s.qps).collect();
    let each = match qps.iter().collect::<Vec<_>>()[..] {
        [] => return String::new(),
        [1] => "1 queue pair".to_owned(),
        [n] => format!("{n} queue pairs"),
        _ => "different numbers of queue pairs".to_owned(),
    };
    match senders.len() {
        1 => format!("1 with {each}"),
        n => format!("{n} with {each} each"),
    }
}

fn bottleneck(way: &Way<'_>) -> String {
    let Some(link) = way.bottleneck() else {
        return String::new();
    };
    let mut text = format!("{}, {}", link.name, rate(link.rate_bps));
    if let (Some(kmin), Some(kmax)) = (link.red_min_bytes, link.red_max_bytes) {
        text += &format!("; RED {} to {}", bytes(kmin), bytes(kmax));
        if let Some(p) = link.red_probability {
            text += &format!(", {:.0}% at the latter", p * 100.0);
        }
    }
    if let Some(limit) = link.limit_bytes {
        text += &format!("; limit {}", bytes(limit));
    }
    text
}

fn versions(run: &Run) -> String {
    let each = run.versions.iter().map(|(name, v)| format!("{name} {v}"));
    each.collect::<Vec<_>>().join(", ")
}

/// Goodput and queue of all ways, on the same scales.
fn glance(ways: &[Way<'_>], scales: &Scales) -> Result<Markup> {
    let mut columns = Vec::new();
    for way in ways {
        columns.push((way, plots::glance(way, scales)?));
    }
    Ok(html! {
        div.glance {
            @for (way, plots) in &columns {
                div {
                    h3 { a href={ "#way-" (way.index) } { (way.title) } }
                    @for plot in plots {
                        figure {
                            figcaption { (plot.title) }
                            (pictures(plot))
                        }
                    }
                }
            }
        }
        @if let Some(plot) = columns.iter().filter_map(|(_, plots)| plots.first()).find(|p| p.pictures.is_ok()) {
            (legend(plot))
        }
    })
}

fn pictures(plot: &Plot) -> Markup {
    html! {
        @match &plot.pictures {
            Ok(pictures) => @for picture in pictures { (PreEscaped(picture)) },
            Err(why) => p.missing { (why) },
        }
    }
}

/// The comparison.
fn figures(ways: &[Way<'_>]) -> Markup {
    let rows = rows(ways);
    let unknown = unknown(ways);
    html! {
        p {
            "Over the measured time"
            @if ways.iter().any(|way| way.figures.span != way.whole) {
                " (the rest of the plots is shaded)"
            }
            ". "
            span.good { "\u{2713}" } " meets the aim, "
            span.bad { "\u{2717}" } " does not; - was not recorded."
        }
        (scrolling("Figures of all ways", html! {
            table {
                thead {
                    tr {
                        th scope="col" { "Figure" }
                        @for way in ways { th.number scope="col" { (way.title) } }
                        th scope="col" { "Aim" }
                    }
                }
                @for group in rows.chunk_by(|a, b| a.figure.group == b.figure.group) {
                    tbody {
                        tr.group {
                            th scope="rowgroup" colspan=(ways.len() + 2) { (group[0].figure.group.name()) }
                        }
                        @for row in group {
                            tr {
                                th scope="row" { (row.figure.label) }
                                @for cell in &row.cells {
                                    td.number {
                                        (cell.text)
                                        @match cell.good {
                                            Some(true) => span.good title="meets the aim" { "\u{2713}" },
                                            Some(false) => span.bad title="does not meet the aim" { "\u{2717}" },
                                            None => span.neither {},
                                        }
                                    }
                                }
                                td.aim { (row.figure.aim.map_or("", |(words, _)| words)) }
                            }
                        }
                    }
                }
            }
        }))
        @if !unknown.is_empty() {
            p.missing { "Not recorded: " (unknown.join(", ")) "." }
        }
    }
}

/// A table that scrolls by itself where it is wider than the screen.
fn scrolling(name: &str, table: Markup) -> Markup {
    html! {
        div.scrolling role="region" aria-label=(name) tabindex="0" { (table) }
    }
}

fn section(way: &Way<'_>, scales: &Scales) -> Result<Markup> {
    let plots = plots::all(way, scales)?;
    let why = words::why(way);
    let alone = scales.alone();
    Ok(html! {
        section.way id={ "way-" (way.index) } {
            h2 { @if alone { "What happened" } @else { (way.title) } }
            p { (words::seen(way)) }
            @if !why.is_empty() { p { (why) } }
            @for note in &way.recording.run.notes { p.note { (note) } }
            @for plot in &plots { (figure(plot)) }
            details {
                summary { "Senders" }
                (sender_table(way))
            }
            @if !way.figures.counters.is_empty() {
                details {
                    summary { "Counters of the devices, over the measured time" }
                    (counter_table(way))
                }
            }
        }
    })
}

fn figure(plot: &Plot) -> Markup {
    html! {
        figure {
            figcaption {
                h3 { (plot.title) }
                @if !plot.caption.is_empty() { p { (plot.caption) } }
                (legend(plot))
            }
            (pictures(plot))
        }
    }
}

fn legend(plot: &Plot) -> Markup {
    html! {
        @if !plot.legend.is_empty() {
            ul.legend {
                @for (key, name) in &plot.legend { li { (swatch(*key)) (name) } }
            }
        }
    }
}

fn swatch(key: Key) -> Markup {
    html! {
        svg viewBox="0 0 22 12" aria-hidden="true" {
            @match key {
                Key::Line(ink) => line x1="0" y1="6" x2="22" y2="6" stroke-width="2.5" stroke=(ink.attribute()) {},
                Key::Thin(ink) => line x1="0" y1="6" x2="22" y2="6" stroke-width="1" stroke=(ink.attribute()) {},
                Key::Fill(ink, percent) => rect width="22" height="12" opacity={ (percent) "%" } fill=(ink.attribute()) {},
            }
        }
    }
}

fn sender_table(way: &Way<'_>) -> Markup {
    let or_none = |value: Option<f64>, show: fn(f64) -> String| value.map_or("-".to_owned(), show);
    scrolling(
        "Senders",
        html! {
            table {
                thead {
                    tr {
                        th scope="col" { "Sender" }
                        th scope="col" { "Device" }
                        th.number scope="col" { "Goodput" }
                        th.number scope="col" { "Last half" }
                        th.number scope="col" { "Mean of Rc" }
                        th.number scope="col" { "Done after" }
                        th scope="col" { "Errors" }
                    }
                }
                tbody {
                    @for sender in &way.figures.senders {
                        tr {
                            th scope="row" { (sender.name) }
                            td { (sender.device) }
                            td.number { (or_none(sender.goodput_bps, rate)) }
                            td.number { (or_none(sender.goodput_last_half_bps, rate)) }
                            td.number { (or_none(sender.rc_mean_bps, rate)) }
                            td.number { (or_none(sender.completion_s, seconds)) }
                            td { @if sender.errors.is_empty() { "none" } @else { (sender.errors.join("; ")) } }
                        }
                    }
                }
            }
        },
    )
}

fn counter_table(way: &Way<'_>) -> Markup {
    let devices = &way.figures.counters;
    let names: BTreeSet<&String> = devices
        .values()
        .flat_map(|counters| counters.keys())
        .collect();
    scrolling(
        "Counters",
        html! {
            table {
                thead {
                    tr {
                        th scope="col" { "Counter" }
                        @for device in devices.keys() { th.number scope="col" { (device) } }
                    }
                }
                tbody {
                    @for name in names {
                        tr {
                            th scope="row" { code { (name) } }
                            @for counters in devices.values() {
                                td.number { (counters.get(name).map_or("-".to_owned(), |gain| count(*gain))) }
                            }
                        }
                    }
                }
            }
        },
    )
}

/// The knobs that are not the same in all ways, or not what a ConnectX starts with.
fn knob_table(ways: &[Way<'_>]) -> Markup {
    let names: BTreeSet<&String> = ways
        .iter()
        .flat_map(|way| way.recording.run.knobs.keys())
        .collect();
    let value = |way: &Way<'_>, name: &str| way.recording.run.knobs.get(name).cloned();
    let loaded = |way: &&Way<'_>| !way.recording.run.knobs.is_empty();
    let differs = |name: &&&String| {
        let default = knobs::default(name);
        ways.iter()
            .filter(loaded)
            .any(|way| value(way, name) != default)
    };
    let shown: Vec<&&String> = names.iter().filter(differs).collect();
    let without: Vec<&str> = ways
        .iter()
        .filter(|w| !loaded(w))
        .map(|w| &*w.title)
        .collect();
    html! {
        @if names.is_empty() {
            p { "No way had rxe_cc, and so no knobs." }
        } @else if shown.is_empty() {
            p { "All " (names.len()) " knobs have the values that a ConnectX starts with." }
        } @else {
            p { "Those of " (names.len()) " that differ from what a ConnectX starts with, in at least one way." }
            (scrolling("Knobs", html! {
                table {
                    thead {
                        tr {
                            th scope="col" { "Knob" }
                            th.number scope="col" { "ConnectX" }
                            @for way in ways { th.number scope="col" { (way.title) } }
                        }
                    }
                    tbody {
                        @for name in shown {
                            @let default = knobs::default(name);
                            tr {
                                th scope="row" { code { (name) } }
                                td.number { (default.clone().unwrap_or_default()) }
                                @for way in ways {
                                    @let value = value(way, name);
                                    td.number.changed[value.is_some() && value != default] {
                                        (value.unwrap_or_else(|| "-".to_owned()))
                                    }
                                }
                            }
                        }
                    }
                }
            }))
        }
        @if !without.is_empty() && !names.is_empty() {
            p.missing { "Without rxe_cc there are none: " (without.join(", ")) "." }
        }
    }
}
