// SPDX-License-Identifier: GPL-2.0

//! The live state of QPs, from `rxe_cc/<device>/qps` in debugfs.
//!
//! The first line names the fields, in three parts: the QP, its RP, its NP. Fields are
//! found by these names, so that more of them, or another order, harm nobody.

use std::str::FromStr;

use anyhow::{anyhow, Context, Result};
use serde::Serialize;

/// One QP that packets came for lately.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Qp {
    pub(crate) qpn: u32,
    /// `RC`, `UC` or `UD`.
    pub(crate) service: String,
    pub(crate) peer_qpn: Option<u32>,
    /// The peer's address.
    pub(crate) peer: Option<String>,
    /// Its sending side, from the first CNP on.
    pub(crate) rp: Option<Rp>,
    /// Its receiving side, from the first mark on.
    pub(crate) np: Option<Np>,
}

/// A QP's sending side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Rp {
    /// The priority of its traffic.
    pub(crate) priority: u8,
    /// `unlimited`, `fast_recovery`, `additive_increase` or `hyper_increase`.
    pub(crate) phase: String,
    /// Current rate Rc, real bit/s.
    pub(crate) rc_bps: u64,
    /// Target rate Rt, real bit/s.
    pub(crate) rt_bps: u64,
    /// Rc in the scale of the knobs, bit/s.
    pub(crate) model_rc_bps: u64,
    /// 0..1.
    pub(crate) alpha: f64,
    pub(crate) time_stage: u64,
    pub(crate) byte_stage: u64,
    /// Packets that wait.
    pub(crate) held: u64,
    /// CNPs accepted.
    pub(crate) cnps: u64,
    pub(crate) cuts: u64,
    pub(crate) since_cut_us: u64,
}

impl Rp {
    /// Whether its rate is limited now.
    pub(crate) fn is_limited(&self) -> bool {
        self.phase != "unlimited"
    }
}

/// A QP's receiving side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Np {
    /// `quiet`, `open` or `holding`.
    pub(crate) window: String,
    /// Valid CE marks.
    pub(crate) marks: u64,
    /// CNPs for them.
    pub(crate) cnps: u64,
}

/// One part of a line, and the names of its fields.
struct Part<'a> {
    names: &'a [&'a str],
    fields: Vec<&'a str>,
}

impl<'a> Part<'a> {
    fn text(&self, name: &str) -> Result<&'a str> {
        let place = self.names.iter().position(|known| *known == name);
        place
            .and_then(|place| self.fields.get(place).copied())
            .ok_or_else(|| anyhow!("the field {name} is missing"))
    }

    fn number<N: FromStr>(&self, name: &str) -> Result<N> {
        let text = self.text(name)?;
        text.parse()
            .map_err(|_| anyhow!("{name} is {text:?}, which is no number"))
    }

    /// `-` is none.
    fn maybe(&self, name: &str) -> Result<Option<&'a str>> {
        Ok(Some(self.text(name)?).filter(|text| *text != "-"))
    }
}

/// The names of the fields of the three parts.
fn head(line: &str) -> Vec<Vec<&str>> {
    line.trim_start_matches('#')
        .split('|')
        .map(|part| {
            part.split_whitespace()
                .filter(|name| !name.ends_with(':'))
                .collect()
        })
        .collect()
}

/// The whole file.
///
/// # Errors
///
/// It is not what the module of this tool's version or a later one writes.
pub(super) fn parse(text: &str) -> Result<Vec<Qp>> {
    let mut lines = text.lines();
    let Some(first) = lines.next() else {
        return Ok(Vec::new());
    };
    let head = head(first);
    lines
        .map(|line| parse_line(&head, line).with_context(|| format!("in the line {line:?}")))
        .collect()
}

fn parse_line(head: &[Vec<&str>], line: &str) -> Result<Qp> {
    let fields: Vec<Vec<&str>> = line
        .split('|')
        .map(|part| part.split_whitespace().collect())
        .collect();
    let part = |place: usize| -> Option<Part<'_>> {
        let (names, fields) = (head.get(place)?, fields.get(place)?);
        (fields[..] != ["-"]).then(|| Part {
            names,
            fields: fields.clone(),
        })
    };
    let qp = part(0).ok_or_else(|| anyhow!("there is no QP"))?;
    let peer_qpn = match qp.maybe("peer_qpn")? {
        Some(_) => Some(qp.number("peer_qpn")?),
        None => None,
    };
    Ok(Qp {
        qpn: qp.number("qpn")?,
        service: qp.text("type")?.to_owned(),
        peer_qpn,
        peer: qp.maybe("peer")?.map(str::to_owned),
        rp: part(1).map(|part| rp(&part)).transpose()?,
        np: part(2).map(|part| np(&part)).transpose()?,
    })
}

fn rp(part: &Part<'_>) -> Result<Rp> {
    let bps = |name| Ok::<u64, anyhow::Error>(part.number::<u64>(name)?.saturating_mul(1000));
    Ok(Rp {
        priority: part.number("prio")?,
        phase: part.text("phase")?.to_owned(),
        rc_bps: bps("rc_kbps")?,
        rt_bps: bps("rt_kbps")?,
        model_rc_bps: bps("model_rc_kbps")?,
        alpha: part.number::<f64>("alpha/1024")? / 1024.0,
        time_stage: part.number("time_stage")?,
        byte_stage: part.number("byte_stage")?,
        held: part.number("held")?,
        cnps: part.number("cnps")?,
        cuts: part.number("cuts")?,
        since_cut_us: part.number("since_cut_us")?,
    })
}

fn np(part: &Part<'_>) -> Result<Np> {
    Ok(Np {
        window: part.text("window")?.to_owned(),
        marks: part.number("marks")?,
        cnps: part.number("cnps")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# qpn type peer_qpn peer | rp: prio phase rc_kbps rt_kbps model_rc_kbps \
        alpha/1024 time_stage byte_stage held cnps cuts since_cut_us | np: window marks cnps\n";

    #[test]
    fn a_line_has_a_qp_its_sending_and_its_receiving_side() {
        let text = HEAD.to_owned()
            + "21 RC 19 10.0.0.2 | 0 additive_increase 15606 15646 15606352 512.000 127 0 44 7 6 7022230 | -\n\
               19 UD - - | - | quiet 10 8\n";
        let qps = parse(&text).unwrap();
        assert_eq!(qps.len(), 2);
        assert_eq!(
            (qps[0].peer_qpn, qps[0].peer.as_deref()),
            (Some(19), Some("10.0.0.2"))
        );
        let rp = qps[0].rp.as_ref().unwrap();
        assert_eq!(
            (rp.rc_bps, rp.rt_bps, rp.held, rp.cnps, rp.cuts),
            (15_606_000, 15_646_000, 44, 7, 6)
        );
        assert_eq!(rp.alpha, 0.5);
        assert!(rp.is_limited() && qps[0].np.is_none());
        assert_eq!(
            (qps[1].peer_qpn, &qps[1].peer, &qps[1].rp),
            (None, &None, &None)
        );
        let np = qps[1].np.as_ref().unwrap();
        assert_eq!((&*np.window, np.marks, np.cnps), ("quiet", 10, 8));
    }

    #[test]
    fn more_fields_and_another_order_harm_nobody() {
        let head = HEAD
            .replace("peer_qpn peer", "state peer peer_qpn")
            .replace("window marks", "marks ecn window");
        let qps = parse(&(head + "21 RC RTS fd00::2 19 | - | 3 1 open 2\n")).unwrap();
        assert_eq!(
            (qps[0].peer_qpn, qps[0].peer.as_deref()),
            (Some(19), Some("fd00::2"))
        );
        let np = qps[0].np.as_ref().unwrap();
        assert_eq!((&*np.window, np.marks, np.cnps), ("open", 3, 2));
    }

    #[test]
    fn a_field_that_is_missing_is_named() {
        let error = parse("# qpn type | rp: | np:\n21 RC | - | -\n").unwrap_err();
        assert!(format!("{error:#}").contains("peer_qpn"), "{error:#}");
        assert_eq!(parse("").unwrap(), []);
        assert_eq!(parse(HEAD).unwrap(), []);
    }
}
