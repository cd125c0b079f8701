// SPDX-License-Identifier: GPL-2.0

//! What the figures say, in sentences.
//!
//! In come [`Way`]s; out come, for each, what is seen and why ([`seen`], [`why`]), and
//! how they differ ([`differences`]). Every sentence follows from figures of the
//! recordings; what is not recorded is not spoken of.

use super::Way;
use crate::analysis::knobs::Constants;
use crate::analysis::units::{bytes, count, seconds, show};
use crate::analysis::{Id, CONVERGED};
use crate::commands::preset::dilation_for;
use crate::text::rate;

/// alpha that is left is too little for a cut to be felt.
const GONE: f64 = 0.1;

fn percent(share: f64) -> String {
    show(crate::analysis::Unit::Share, share)
}

/// `1 packet was`, `5 packets were`.
fn packets(number: f64) -> String {
    match number {
        1.0 => "1 packet was".to_owned(),
        _ => format!("{} packets were", count(number)),
    }
}

/// What each of several gets: `9.75 Mb/s to 10.1 Mb/s each`.
pub(super) fn each(least: f64, most: f64) -> String {
    match (rate(least), rate(most)) {
        (least, most) if least == most => format!("{least} each"),
        (least, most) => format!("{least} to {most} each"),
    }
}

/// What is seen of a way.
pub(super) fn seen(way: &Way<'_>) -> String {
    let figure = |id| way.figures.get(id);
    let mut said = Vec::new();
    if let (Some(least), Some(most), Some(all)) = (
        figure(Id::GoodputLeast),
        figure(Id::GoodputMost),
        figure(Id::Goodput),
    ) {
        let mut text = match way.figures.senders.len() {
            1 => format!("The sender got {}", rate(all)),
            n => format!("The {n} senders got {}", each(least, most)),
        };
        if let (Some(jain), true) = (figure(Id::Jain), way.figures.senders.len() > 1) {
            text += &format!(" (Jain's index {jain:.3})");
        }
        if let Some(used) = figure(Id::Utilisation) {
            text += &format!("; the bottleneck was {} used", percent(used));
        }
        said.push(text + ".");
    }
    match figure(Id::Convergence) {
        Some(never) if never.is_infinite() => said.push(format!(
            "They did not settle within {} of their fair share.",
            percent(CONVERGED)
        )),
        Some(0.0) => said.push(format!(
            "Each stayed within {} of its fair share all the time.",
            percent(CONVERGED)
        )),
        Some(time) => said.push(format!(
            "From {} on each stayed within {} of its fair share.",
            seconds(time),
            percent(CONVERGED)
        )),
        None => {}
    }
    said.extend(queue(way));
    said.extend(loss(way));
    said.join(" ")
}

fn queue(way: &Way<'_>) -> Option<String> {
    let (mean, p99) = (
        way.figures.get(Id::QueueMean)?,
        way.figures.get(Id::QueueP99)?,
    );
    let mut text = format!(
        "The queue held {} on average and at most {} for 99% of the time",
        bytes(mean),
        bytes(p99)
    );
    if let Some(kmax) = way.bottleneck().and_then(|b| b.red_max_bytes) {
        text += &match (p99 <= kmax, mean <= kmax) {
            (true, _) => format!(", within Kmax ({}).", bytes(kmax)),
            (false, true) => format!(", at times beyond Kmax ({}).", bytes(kmax)),
            (false, false) => format!(": mostly beyond Kmax ({}).", bytes(kmax)),
        };
    } else {
        text.push('.');
    }
    Some(text)
}

fn loss(way: &Way<'_>) -> Option<String> {
    let drops = way.figures.get(Id::Drops)?;
    if drops == 0.0 {
        return Some("No packet was dropped.".to_owned());
    }
    let mut text = format!("{} dropped", packets(drops));
    if let Some(later) = way.figures.get(Id::DropsLater) {
        text += &match later {
            0.0 => ", all in the first half second".to_owned(),
            _ if later == drops => ", all after the first half second".to_owned(),
            _ => format!(", {} of them after the first half second", count(later)),
        };
    }
    if let Some(twice) = way.figures.get(Id::Duplicates).filter(|n| *n > 0.0) {
        text += &format!("; {} received twice", packets(twice));
    }
    Some(text + ".")
}

/// Why it is so.
pub(super) fn why(way: &Way<'_>) -> String {
    let mut said = mechanism(way);
    let failed: Vec<String> = way
        .figures
        .senders
        .iter()
        .filter_map(|s| Some(format!("{}: {}", s.name, s.errors.first()?)))
        .collect();
    if !failed.is_empty() {
        let all = way.figures.senders.len();
        said.push(format!(
            "{} of {all} senders ended with an error ({}).",
            failed.len(),
            failed.join("; ")
        ));
    }
    said.join(" ")
}

fn mechanism(way: &Way<'_>) -> Vec<String> {
    let figure = |id| way.figures.get(id);
    let constants = Constants::of(&way.recording.run.knobs);
    let controlled = constants.is_some() || figure(Id::CnpsHandled).is_some();
    if !controlled {
        return uncontrolled(way);
    }
    let (set, received) = (figure(Id::Marks), figure(Id::MarksReceived));
    if [set, received].into_iter().flatten().reduce(f64::max) == Some(0.0) {
        return vec![
            "No packet was marked, so there was nothing to react to: the queue stayed below \
             Kmin, or the data is not ECN-capable (ect_mode), or nothing marks there; `rxecc \
             doctor` looks for the reason."
                .to_owned(),
        ];
    }
    if received == Some(0.0) {
        return vec![
            "Packets were marked, but none arrived with its mark: something on the way clears \
             it."
            .to_owned(),
        ];
    }
    if figure(Id::CnpsSent) == Some(0.0) {
        return vec![
            "Marks arrived, but no CNP was sent: the notification point is off for this \
             priority, or the marks were not valid (np_ce_* counters)."
                .to_owned(),
        ];
    }
    match figure(Id::CnpsHandled) {
        Some(0.0) if figure(Id::CnpsSent).is_some() => vec![
            "CNPs were sent, but none reached a rate limiter: they are lost on the way (a \
             firewall on port 4791?), or ignored by the reaction point (rp_cnp_* counters)."
                .to_owned(),
        ],
        _ => match (figure(Id::CnpGap), constants) {
            (Some(gap), Some(constants)) => controlled_by(way, gap, &constants),
            _ => Vec::new(),
        },
    }
}

fn uncontrolled(way: &Way<'_>) -> Vec<String> {
    let mut said = vec![
        "Nothing answers congestion here: a CE mark causes no CNP, and no rate is cut. Only \
         the 64 packets that a queue pair may have in flight bound what stands in the queue."
            .to_owned(),
    ];
    if way.figures.get(Id::DropsLater).is_some_and(|n| n > 0.0) {
        said.push(
            "What its limit does not hold is dropped, throughout, and each loss makes rxe go \
             back and send again what was on its way."
                .to_owned(),
        );
    }
    said
}

/// CNPs come, `gap_s` apart for each flow.
fn controlled_by(way: &Way<'_>, gap_s: f64, constants: &Constants) -> Vec<String> {
    let half = constants.half_life_s();
    let raised = gap_s / constants.timer_s;
    let left = constants.left_after(gap_s);
    let gap = seconds(gap_s);
    if left < GONE {
        let mut text = format!(
            "The time constants are shorter than the gaps between CNPs. A flow got one every \
             {gap} on average, while alpha halves every {} without one: little or nothing of \
             it is left when the next CNP comes, so a cut takes almost nothing from the rate",
            seconds(half)
        );
        if raised >= 2.0 {
            text += &format!(
                ", and the timer ({}) raises it {} times in between",
                seconds(constants.timer_s),
                count(raised)
            );
        }
        let mut said = vec![text + "."];
        if let Some(wanted) = way.link().map(dilation_for) {
            if f64::from(wanted) > constants.dilation {
                said.push(format!(
                    "Such parameters are made for links of 40 Gb/s, where packets come much \
                     closer together: slow the algorithm down with dilation {wanted} (40 Gb/s \
                     over the bottleneck's rate), and take the paper's parameters."
                ));
            }
        }
        return said;
    }
    let mut text = format!(
        "A flow got a CNP every {gap} on average, and alpha needs {} to halve without one: it \
         outlives the gaps and measures how congested the link is",
        seconds(half)
    );
    if let Some(alpha) = way.figures.get(Id::Alpha) {
        text += &format!(". Its median is {alpha:.3}");
        if way
            .recording
            .run
            .knobs
            .get("roce_rp/rpg_gd")
            .is_none_or(|gd| gd == "11")
        {
            text += &format!(
                ", so that a cut takes about {} of the rate",
                percent(alpha / 2.0)
            );
        }
    }
    if raised >= 1.0 {
        text += &format!(
            "; between two CNPs the timer ({}) gives it back in about {} steps",
            seconds(constants.timer_s),
            count(raised)
        );
    }
    let mut said = vec![text + "."];
    if constants.dilation > 1.0 {
        said.push(format!(
            "Dilation {} makes it so: without it alpha would halve every {}.",
            constants.dilation,
            seconds(half / constants.dilation)
        ));
    }
    said
}

/// Figures by which ways are compared, and what they are called in a sentence.
const COMPARED: [(Id, &str); 6] = [
    (Id::QueueP99, "queue for 99% of the time"),
    (Id::DropsLater, "drops after the first half second"),
    (Id::Duplicates, "packets received twice"),
    (Id::Utilisation, "bottleneck used"),
    (Id::JainLastHalf, "Jain's index"),
    (Id::Errors, "completion errors"),
];

/// How the ways differ: what they reach, and each against the first one.
pub(super) fn differences(ways: &[Way<'_>]) -> Vec<String> {
    let Some((first, others)) = ways.split_first().filter(|(_, others)| !others.is_empty()) else {
        return Vec::new();
    };
    let mut said = Vec::new();
    let judged: Vec<String> = ways.iter().filter_map(reached).collect();
    if !judged.is_empty() {
        said.push(judged.join(" "));
    }
    for other in others {
        let change = |(id, name): &(Id, &str)| {
            let (a, b) = (first.figures.get(*id)?, other.figures.get(*id)?);
            let unit = id.figure().unit;
            (a != 0.0 || b != 0.0)
                .then(|| format!("{name} {} \u{2192} {}", show(unit, a), show(unit, b)))
        };
        let changes: Vec<String> = COMPARED.iter().filter_map(change).collect();
        if !changes.is_empty() {
            said.push(format!(
                "{} \u{2192} {}: {}.",
                quoted(&first.title),
                quoted(&other.title),
                changes.join("; ")
            ));
        }
    }
    said.extend(time_scales(ways));
    said
}

/// How long alpha lives in each way, against the gaps that it must outlive.
fn time_scales(ways: &[Way<'_>]) -> Option<String> {
    let of = |way: &Way<'_>| {
        let half = Constants::of(&way.recording.run.knobs)?.half_life_s();
        let gap = way.figures.get(Id::CnpGap)?;
        let title = quoted(&way.title);
        Some(format!("{title}: {} and {}", seconds(half), seconds(gap)))
    };
    let all: Vec<String> = ways.iter().filter_map(of).collect();
    (!all.is_empty()).then(|| {
        format!(
            "Congestion control works where alpha outlives the gap between two CNPs of a flow. \
             Half-life and gap in {}.",
            all.join("; in ")
        )
    })
}

fn quoted(title: &str) -> String {
    format!("\u{201c}{title}\u{201d}")
}

/// Which aims a way meets, of those that can be told.
fn reached(way: &Way<'_>) -> Option<String> {
    let judge = |(id, name): &(Id, &'static str)| {
        let (words, meets) = id.figure().aim?;
        let good = meets(&way.recording.run, way.figures.get(*id)?)?;
        Some((good, format!("{name} ({words})")))
    };
    let judged: Vec<(bool, String)> = COMPARED.iter().filter_map(judge).collect();
    let missed = judged
        .iter()
        .filter(|(good, _)| !good)
        .map(|(_, name)| &**name);
    let missed: Vec<&str> = missed.collect();
    let title = quoted(&way.title);
    match (missed.len(), judged.len()) {
        (_, 0) => None,
        (0, all) => Some(format!("{title} meets all {all} aims of the table.")),
        (n, all) => Some(format!(
            "{title} misses {n} of {all} aims: {}.",
            missed.join(", ")
        )),
    }
}
