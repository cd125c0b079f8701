// SPDX-License-Identifier: GPL-2.0

//! Figures as people read and write them.
//!
//! In comes a number in the unit of the tables (bit/s, bytes, seconds), out comes
//! text with three significant digits and a prefix, or the other way round. KB are
//! 1000 bytes, as everywhere here. Rates are [`crate::text`]'s.

use anyhow::{bail, Context, Result};

use super::Unit;
use crate::text::rate;

/// `value` in the unit's own words.
pub(crate) fn show(unit: Unit, value: f64) -> String {
    match unit {
        Unit::BitsPerSecond => rate(value),
        Unit::Bytes => bytes(value),
        Unit::Seconds if value.is_infinite() => "not within the run".to_owned(),
        Unit::Seconds => seconds(value),
        Unit::Count => count(value),
        Unit::Share => format!("{}%", digits(value * 100.0)),
        Unit::Index => format!("{value:.3}"),
    }
}

/// As `18.2 KB`.
pub(crate) fn bytes(bytes: f64) -> String {
    let (scale, unit) = byte_scale(bytes);
    format!("{} {unit}", digits(bytes / scale))
}

/// As `4.20 ms`.
pub(crate) fn seconds(seconds: f64) -> String {
    let (scale, unit) = match seconds.abs() {
        0.0 => (1.0, "s"),
        s if s < 1e-3 => (1e-6, "us"),
        s if s < 1.0 => (1e-3, "ms"),
        _ => (1.0, "s"),
    };
    format!("{} {unit}", digits(seconds / scale))
}

/// As `12,345`.
pub(crate) fn count(number: f64) -> String {
    let plain = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (at, digit) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    match number <= -0.5 {
        true => format!("-{text}"),
        false => text,
    }
}

/// The unit that values up to `most` bit/s are best shown in, and its size.
pub(crate) fn rate_scale(most: f64) -> (f64, &'static str) {
    match most.abs() {
        r if r >= 1e9 => (1e9, "Gb/s"),
        r if r >= 1e6 => (1e6, "Mb/s"),
        r if r >= 1e3 => (1e3, "kb/s"),
        _ => (1.0, "bit/s"),
    }
}

/// The unit that values up to `most` bytes are best shown in, and its size.
pub(crate) fn byte_scale(most: f64) -> (f64, &'static str) {
    match most.abs() {
        b if b >= 1e6 => (1e6, "MB"),
        b if b >= 1e3 => (1e3, "KB"),
        _ => (1.0, "bytes"),
    }
}

/// Three significant digits, or a whole number as it is.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 || (v - v.round()).abs() < 1e-9 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// A number and the letters behind it.
fn split(text: &str) -> Result<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number
        .parse()
        .with_context(|| format!("`{text}` does not begin with a number"))?;
    Ok((number, unit.trim()))
}

/// As `45000`, `45k`, `45KB`: bytes.
pub(crate) fn parse_bytes(text: &str) -> Result<f64> {
    let (number, unit) = split(text)?;
    let scale = match &*unit.to_ascii_lowercase() {
        "" | "b" | "byte" | "bytes" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        _ => bail!("`{text}` is no number of bytes: say 45000 or 45k"),
    };
    Ok(number * scale)
}

/// As `95` or `95%`: a share of 1.
pub(crate) fn parse_percent(text: &str) -> Result<f64> {
    match split(text)? {
        (number, "" | "%") => Ok(number / 100.0),
        _ => bail!("`{text}` is no percentage: say 95%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_prefix() {
        assert_eq!(bytes(18_240.0), "18.2 KB");
        assert_eq!(bytes(0.0), "0 bytes");
        assert_eq!(show(Unit::Share, 0.98996), "99.0%");
        assert_eq!(seconds(0.0042), "4.20 ms");
        assert_eq!(seconds(0.00012), "120 us");
        assert_eq!(seconds(100.0), "100 s");
        assert_eq!(count(1_234_567.0), "1,234,567");
        assert_eq!(count(999.0), "999");
        assert_eq!(show(Unit::Share, 0.984), "98.4%");
        assert_eq!(show(Unit::Seconds, f64::INFINITY), "not within the run");
    }

    #[test]
    fn bytes_and_percentages_are_read() {
        assert_eq!(parse_bytes("45k").unwrap(), 45_000.0);
        assert_eq!(parse_bytes("45000").unwrap(), 45_000.0);
        assert!(parse_bytes("45 KiB").is_err());
        assert_eq!(parse_percent("95%").unwrap(), 0.95);
        assert!(parse_percent("95 apples").is_err());
    }
}
