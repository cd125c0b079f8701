// SPDX-License-Identifier: GPL-2.0

//! Text for people: rates in and out, columns, and writing it all to stdout.

use std::fmt;
use std::io::{self, ErrorKind, Write};

use anyhow::{bail, Context, Result};

/// Nobody reads what is written: `| head` has seen enough. No error, but the end.
#[derive(Debug)]
pub(crate) struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads the output any more")
    }
}

impl std::error::Error for ReaderGone {}

/// Writes to stdout.
///
/// # Errors
///
/// [`ReaderGone`], a full disk and the like.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        other => other.context("cannot write to stdout"),
    }
}

/// A rate in three digits or so: `15.6 Mb/s`.
pub(crate) fn rate(bps: f64) -> String {
    let (value, unit) = match bps {
        bps if bps >= 999.5e6 => (bps / 1e9, "Gb/s"),
        bps if bps >= 999.5e3 => (bps / 1e6, "Mb/s"),
        bps if bps >= 999.5 => (bps / 1e3, "kb/s"),
        bps => (bps, "b/s"),
    };
    let decimals = match value {
        value if value >= 99.95 || value == value.round() => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

/// A rate as people type it, in bit/s: `40mbit`, `2.5G`, `40 Mb/s`, as in tc; a number
/// alone is Mb/s, as in the knobs.
///
/// # Errors
///
/// It is no rate, or none above 0.
pub(crate) fn parse_rate(text: &str) -> Result<f64> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim_start().to_ascii_lowercase();
    let scale = match &*unit {
        "bit" | "b/s" | "bit/s" => 1.0,
        "k" | "kbit" | "kb/s" | "kbit/s" => 1e3,
        "" | "m" | "mbit" | "mb/s" | "mbit/s" => 1e6,
        "g" | "gbit" | "gb/s" | "gbit/s" => 1e9,
        "t" | "tbit" | "tb/s" | "tbit/s" => 1e12,
        _ => bail!("{text:?} is no rate: say it in Mb/s, or as 40mbit or 2.5gbit"),
    };
    match number.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value * scale),
        _ => bail!("{text:?} is no rate: say it in Mb/s, or as 40mbit or 2.5gbit"),
    }
}

/// How a column stands below its head.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows in columns, two spaces between them, each line behind `indent`.
pub(crate) fn columns(indent: &str, align: &[Align], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..align.len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(align.iter().zip(&widths));
        let cells: Vec<String> = cells
            .map(|(cell, (align, width))| match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            })
            .collect();
        text += format!("{indent}{}", cells.join("  ")).trim_end();
        text.push('\n');
    }
    text
}

/// `text` in lines of at most `width` characters where it has spaces, each line behind
/// `indent`.
pub(crate) fn wrap(indent: &str, width: usize, text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("one is there");
        if line.is_empty() {
            *line = format!("{indent}{word}");
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("{indent}{word}"));
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits_or_so() {
        let shown: Vec<String> = [0.0, 999.0, 1.5e6, 15.606e6, 999.9e6, 40e9, 312.55e6]
            .into_iter()
            .map(rate)
            .collect();
        assert_eq!(
            shown,
            [
                "0 b/s",
                "999 b/s",
                "1.50 Mb/s",
                "15.6 Mb/s",
                "1.00 Gb/s",
                "40 Gb/s",
                "313 Mb/s"
            ]
        );
    }

    #[test]
    fn rates_are_read_as_tc_and_the_knobs_write_them() {
        for (text, bps) in [
            ("40", 40e6),
            ("40mbit", 40e6),
            ("2.5G", 2.5e9),
            ("40 Mb/s", 40e6),
            ("500kbit", 5e5),
        ] {
            assert_eq!(parse_rate(text).unwrap(), bps, "{text}");
        }
        for text in ["", "0", "-1", "40mbps", "fast", "1.2.3", "mbit", "."] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn text_is_wrapped_at_spaces() {
        assert_eq!(wrap("  ", 10, "one two three"), "  one two\n  three\n");
        assert_eq!(wrap("", 3, "longword x"), "longword\nx\n");
    }
}
