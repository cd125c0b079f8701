// SPDX-License-Identifier: GPL-2.0

//! RED at the congestion point: which packet gets a mark.
//!
//! In comes the backlog that an arriving packet finds, in bytes, out comes whether it
//! is marked. Two kinds:
//!
//! - *instant*, as the DCQCN paper has it: a coin for each packet, its probability
//!   rising from 0 at Kmin to Pmax at Kmax of the queue of that moment, and 1 above;
//! - *tc*, as Linux' `red` qdisc does it: the same line, but of an exponentially
//!   weighted average that is moved by each arrival; marks between the thresholds are
//!   spread evenly rather than thrown, so about twice as many as the line says.
//!
//! tc takes `burst` and `avpkt` and chooses the weight of the average from them:
//! the largest 2^-n with which a burst of that many packets into an empty queue
//! is not marked yet.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Thresholds and probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    /// Kmin, bytes.
    pub(crate) min_bytes: u64,
    /// Kmax, bytes.
    pub(crate) max_bytes: u64,
    /// Pmax, the probability at Kmax.
    pub(crate) probability: f64,
}

impl Line {
    /// Between the thresholds, 0 at Kmin and Pmax at Kmax.
    fn at(&self, bytes: f64) -> f64 {
        let span = (self.max_bytes - self.min_bytes).max(1) as f64;
        (bytes - self.min_bytes as f64) / span * self.probability
    }

    /// The queue at which the probability is `p`, bytes; above Pmax it is Kmax.
    pub(crate) fn queue_of(&self, p: f64) -> f64 {
        let span = (self.max_bytes - self.min_bytes) as f64;
        self.min_bytes as f64 + span * (p / self.probability).min(1.0)
    }
}

/// How the queue's length is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Average {
    /// As it is.
    Instant,
    /// As tc does, with these arguments of it.
    Tc {
        /// `burst`, packets.
        burst_packets: u32,
        /// `avpkt`, bytes.
        packet_bytes: u32,
    },
}

/// RED with its memory.
#[derive(Clone, Debug)]
pub(crate) struct Red {
    line: Line,
    average: Option<Ewma>,
}

impl Red {
    /// # Errors
    ///
    /// tc would refuse the burst as too short for Kmin.
    pub(crate) fn new(line: Line, average: Average) -> Result<Self, String> {
        let average = match average {
            Average::Instant => None,
            Average::Tc {
                burst_packets,
                packet_bytes,
            } => Some(Ewma::new(weight_log(line, burst_packets, packet_bytes)?)),
        };
        Ok(Self { line, average })
    }

    /// Whether the packet that finds `backlog_bytes` is marked.
    pub(crate) fn marks(&mut self, backlog_bytes: u64, random: &mut Pcg64Mcg) -> bool {
        match &mut self.average {
            Some(average) => average.marks(&self.line, backlog_bytes, random),
            None if backlog_bytes <= self.line.min_bytes => false,
            None if backlog_bytes > self.line.max_bytes => true,
            None => random.random::<f64>() < self.line.at(backlog_bytes as f64),
        }
    }
}

/// n of the weight 2^-n.
fn weight_log(line: Line, burst_packets: u32, packet_bytes: u32) -> Result<u32, String> {
    let kmin_packets = line.min_bytes as f64 / f64::from(packet_bytes.max(1));
    let spare = f64::from(burst_packets) + 1.0 - kmin_packets;
    // The average after a burst into an empty queue, in packets below its end.
    let lag = |weight: f64| (1.0 - (1.0 - weight).powf(f64::from(burst_packets))) / weight;
    (1..32)
        .find(|n| spare >= 1.0 && spare <= lag(0.5_f64.powi(*n)))
        .map(|n| n.unsigned_abs())
        .ok_or_else(|| {
            format!(
                "RED's burst of {burst_packets} packets of {packet_bytes} bytes does not fit a Kmin of {} \
                 bytes, tc would refuse it: give --red-burst {}",
                line.min_bytes,
                kmin_packets.ceil() as u64 + 1
            )
        })
}

/// tc's average. Below a tbf it never learns that the queue is empty (tbf asks only
/// for packets that are there), so it moves with arrivals alone, and here, too.
#[derive(Clone, Debug)]
struct Ewma {
    weight_log: u32,
    /// Bytes * 2^weight_log.
    average: u64,
    /// Packets since the last mark between the thresholds; none yet, or outside.
    since_mark: Option<u64>,
    /// The next mark comes when `since_mark` times the line's probability reaches it.
    next_mark: f64,
}

impl Ewma {
    fn new(weight_log: u32) -> Self {
        Self {
            weight_log,
            average: 0,
            since_mark: None,
            next_mark: 0.0,
        }
    }

    fn marks(&mut self, line: &Line, backlog_bytes: u64, random: &mut Pcg64Mcg) -> bool {
        self.average = self.average - (self.average >> self.weight_log) + backlog_bytes;
        let scale = (1_u64 << self.weight_log) as f64;
        let average = self.average as f64 / scale;
        if average < line.min_bytes as f64 {
            self.since_mark = None;
            return false;
        }
        if average >= line.max_bytes as f64 {
            self.since_mark = None;
            return true;
        }
        let Some(since) = self.since_mark else {
            self.since_mark = Some(0);
            self.next_mark = random.random();
            return false;
        };
        let since = since + 1;
        let marked = line.at(average) * since as f64 >= self.next_mark;
        self.since_mark = Some(if marked { 0 } else { since });
        if marked {
            self.next_mark = random.random();
        }
        marked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    const LINE: Line = Line {
        min_bytes: 15_000,
        max_bytes: 45_000,
        probability: 0.2,
    };
    const TC: Average = Average::Tc {
        burst_packets: 20,
        packet_bytes: 1100,
    };

    fn share_marked(average: Average, backlog_bytes: u64) -> f64 {
        let mut red = Red::new(LINE, average).unwrap();
        let mut random = Pcg64Mcg::seed_from_u64(1);
        // The average settles first.
        for _ in 0..1000 {
            red.marks(backlog_bytes, &mut random);
        }
        let marks = (0..200_000).filter(|_| red.marks(backlog_bytes, &mut random));
        marks.count() as f64 / 200_000.0
    }

    #[test]
    fn instant_red_marks_by_the_line() {
        assert_eq!(share_marked(Average::Instant, 15_000), 0.0);
        assert!((share_marked(Average::Instant, 30_000) - 0.1).abs() < 0.005);
        assert!((share_marked(Average::Instant, 45_000) - 0.2).abs() < 0.005);
        assert_eq!(share_marked(Average::Instant, 45_001), 1.0);
    }

    #[test]
    fn tc_spreads_marks_evenly_and_so_gives_twice_as_many() {
        // Between two marks lie 1 to 1/p packets, all equally likely: p = 0.02.
        assert!((share_marked(TC, 18_000) - 2.0 / 51.0).abs() < 0.002);
        assert_eq!(share_marked(TC, 14_999), 0.0);
        assert_eq!(share_marked(TC, 45_000), 1.0);
    }

    #[test]
    fn tc_chooses_the_weight_from_the_burst() {
        // What `tc -s -d qdisc` shows of these as "ewma".
        assert_eq!(weight_log(LINE, 20, 1100), Ok(3));
        assert_eq!(weight_log(LINE, 55, 1000), Ok(7));
        assert!(weight_log(LINE, 10, 1100)
            .unwrap_err()
            .contains("--red-burst 15"));
    }

    #[test]
    fn the_average_lags_behind_a_burst() {
        let mut red = Red::new(LINE, TC).unwrap();
        let mut random = Pcg64Mcg::seed_from_u64(1);
        assert!(!red.marks(100_000, &mut random), "an eighth of 100 KB");
        assert!((0..8).any(|_| red.marks(100_000, &mut random)));
    }
}
