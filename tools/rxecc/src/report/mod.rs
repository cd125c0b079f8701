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
        let title = |(directory, recording): &(String, Recording)| {
            let title = recording.run.title.trim();
            let same = |(_, other): &&(String, Recording)| other.run.title.trim() == title;
            match (title, recordings.iter().filter(same).count()) {
                ("", _) => directory.clone(),
                (_, 1) => title.to_owned(),
                _ => format!("{title} ({directory})"),
            }
        };
        let of = |(index, read): (usize, &'a (String, Recording))| {
            let recording = &read.1;
            let tables = Tables::of(recording);
            Self {
                index,
                title: title(read),
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

/// The report on `ways`, an HTML document.
pub(crate) fn html(title: Option<&str>, ways: &[Way<'_>]) -> Result<String> {
    page::page(title, ways)
}
