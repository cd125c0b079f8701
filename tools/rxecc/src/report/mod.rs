// SPDX-License-Identifier: GPL-2.0

//! Recordings as something to look at.
//!
//! In come recordings, the ways of running one experiment; out come one HTML file
//! that needs nothing else ([`page`]), a table for the terminal, JSON and CSV
//! ([`table`]). Plots are [`plots`]'s, what is said about them [`words`]'. The figures
//! are computed in [`crate::analysis`].

mod lines;
mod page;
mod palette;
mod plots;
mod svg;
pub(crate) mod table;
mod words;

use anyhow::Result;

use crate::analysis::series::Span;
use crate::analysis::{whole, Figures, Tables};
use crate::recording::{Bottleneck, Recording};

/// One way of running the experiment.
pub(crate) struct Way<'a> {
    /// Its place, from 0.
    pub(crate) index: usize,
    /// Different from all others'.
    pub(crate) title: String,
    /// The directory that it was read from.
    pub(crate) directory: String,
    pub(crate) recording: &'a Recording,
    pub(crate) tables: Tables<'a>,
    pub(crate) figures: Figures,
    pub(crate) whole: Span,
}

impl<'a> Way<'a> {
    /// The ways that were read from these directories.
    pub(crate) fn all(recordings: &'a [(String, Recording)]) -> Vec<Self> {
        let shared = shared(recordings);
        let titles: Vec<String> = recordings
            .iter()
            .map(|(_, recording)| {
                let parts = parts(recording).filter(|part| !shared.contains(part));
                parts.collect::<Vec<_>>().join(", ")
            })
            .collect();
        let title = |index: usize| {
            let (title, directory) = (&titles[index], &recordings[index].0);
            match titles.iter().filter(|other| *other == title).count() {
                _ if title.is_empty() => directory.clone(),
                1 => title.clone(),
                _ => format!("{title} ({directory})"),
            }
        };
        let of = |(index, read): (usize, &'a (String, Recording))| {
            let recording = &read.1;
            let tables = Tables::of(recording);
            Self {
                index,
                title: title(index),
                directory: read.0.clone(),
                recording,
                figures: Figures::of(recording, &tables),
                tables,
                whole: whole(recording),
            }
        };
        recordings.iter().enumerate().map(of).collect()
    }

    fn bottleneck(&self) -> Option<&Bottleneck> {
        self.recording.run.bottleneck.as_ref()
    }

    /// What the bottleneck carries, bit/s.
    fn link(&self) -> Option<f64> {
        let rate = self.bottleneck()?.rate_bps;
        (rate > 0.0).then_some(rate)
    }

    /// What each of `among` would get, bit/s.
    fn share_of(&self, among: usize) -> Option<f64> {
        (among > 0).then_some(self.link()? / among as f64)
    }

    fn flow_count(&self) -> usize {
        self.tables.flows.len()
    }
}

/// What a title is made of.
fn parts(recording: &Recording) -> impl Iterator<Item = &str> {
    let parts = recording.run.title.split(", ").map(str::trim);
    parts.filter(|part| !part.is_empty())
}

/// The parts that all titles have, where there are several: they name the experiment,
/// and not the ways.
fn shared(recordings: &[(String, Recording)]) -> Vec<&str> {
    let Some(((_, first), others)) = recordings.split_first() else {
        return Vec::new();
    };
    let everywhere = |part: &&str| others.iter().all(|(_, r)| parts(r).any(|p| p == *part));
    let found = parts(first).filter(everywhere);
    found.filter(|_| !others.is_empty()).collect()
}

/// What the experiment is called.
fn experiment(recordings: &[(String, Recording)]) -> String {
    match (recordings, &shared(recordings)[..]) {
        ([(directory, only)], _) => match only.run.title.trim() {
            "" => directory.clone(),
            title => title.to_owned(),
        },
        (_, []) => format!("{} ways of one experiment", recordings.len()),
        (_, shared) => shared.join(", "),
    }
}

/// The report on the ways of `recordings`, an HTML document.
pub(crate) fn html(
    title: Option<&str>,
    recordings: &[(String, Recording)],
    ways: &[Way<'_>],
) -> Result<String> {
    page::page(
        &title.map_or_else(|| experiment(recordings), str::to_owned),
        ways,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(titles: &[&str]) -> Vec<(String, Recording)> {
        let of = |(at, title): (usize, &&str)| {
            let mut recording = Recording::default();
            recording.run.title = (*title).into();
            (format!("dir{at}"), recording)
        };
        titles.iter().enumerate().map(of).collect()
    }

    fn titles(of: &[&str]) -> Vec<String> {
        let recordings = recorded(of);
        let ways = Way::all(&recordings);
        ways.into_iter().map(|way| way.title).collect()
    }

    #[test]
    fn what_all_titles_say_is_the_experiment() {
        let both = [
            "incast, 4 flows, paper, dilation=9",
            "incast, 4 flows, connectx",
        ];
        assert_eq!(titles(&both), ["paper, dilation=9", "connectx"]);
        assert_eq!(experiment(&recorded(&both)), "incast, 4 flows");
        assert_eq!(titles(&both[..1]), both[..1]);
        assert_eq!(experiment(&recorded(&both[..1])), both[0]);
        assert_eq!(
            experiment(&recorded(&["a", "b"])),
            "2 ways of one experiment"
        );
    }

    #[test]
    fn every_way_has_a_title_of_its_own() {
        assert_eq!(titles(&["a", "a"]), ["dir0", "dir1"]);
        assert_eq!(titles(&["", "a"]), ["dir0", "a"]);
        assert_eq!(
            titles(&["a, b", "a, b", "a"]),
            ["b (dir0)", "b (dir1)", "dir2"]
        );
    }
}
