// SPDX-License-Identifier: GPL-2.0

//! Many values over time, thinned out to what a plot can show.
//!
//! In come lines with as many points as were sampled, and any number of lines; out
//! come few points that look the same, or for many lines how they are spread.

use crate::analysis::series::{at_share, parts, Span};

/// One thing's values over time; between two stretches it was not there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) stretches: Vec<Vec<(f64, f64)>>,
}

impl Line {
    /// The value that holds at a time.
    fn at(&self, time_s: f64) -> Option<f64> {
        let stretch = self.stretches.iter().find(|stretch| {
            let ends = stretch.first().zip(stretch.last());
            ends.is_some_and(|(first, last)| first.0 <= time_s && time_s <= last.0)
        })?;
        let after = stretch.partition_point(|point| point.0 <= time_s);
        stretch.get(after.checked_sub(1)?).map(|point| point.1)
    }

    /// Makes something else of each value.
    pub(super) fn map(&mut self, of: fn(f64) -> f64) {
        for point in self.stretches.iter_mut().flatten() {
            point.1 = of(point.1);
        }
    }

    /// The greatest value.
    pub(super) fn most(&self) -> f64 {
        let all = self.stretches.iter().flatten();
        all.map(|point| point.1).fold(0.0, f64::max)
    }
}

/// `points` with at most four in each of `columns` parts of `time`: the first, the
/// last, the least and the greatest. Peaks stay.
pub(super) fn thinned(points: &[(f64, f64)], time: Span, columns: usize) -> Vec<(f64, f64)> {
    let width = (time.1 - time.0) / columns as f64;
    let column = |point: &(f64, f64)| ((point.0 - time.0) / width).floor();
    let mut kept = Vec::new();
    for part in points.chunk_by(|a, b| column(a) == column(b)) {
        if part.len() <= 4 {
            kept.extend_from_slice(part);
            continue;
        }
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let chosen = [
            part.first(),
            part.iter().min_by(by_value),
            part.iter().max_by(by_value),
            part.last(),
        ];
        let mut chosen: Vec<_> = chosen.into_iter().flatten().copied().collect();
        chosen.sort_by(|a, b| a.0.total_cmp(&b.0));
        chosen.dedup();
        kept.extend(chosen);
    }
    kept
}

/// How many lines are spread: at each time the least, the lower quartile, the median,
/// the upper quartile, the greatest.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) least: Vec<(f64, f64)>,
    pub(super) lower: Vec<(f64, f64)>,
    pub(super) median: Vec<(f64, f64)>,
    pub(super) upper: Vec<(f64, f64)>,
    pub(super) most: Vec<(f64, f64)>,
}

impl Spread {
    /// Of `lines`, at `columns` times.
    pub(super) fn of(lines: &[Line], time: Span, columns: usize) -> Self {
        let mut spread = Self::default();
        for part in parts(time, columns) {
            let middle = (part.0 + part.1) / 2.0;
            let mut values: Vec<f64> = lines.iter().filter_map(|l| l.at(middle)).collect();
            values.sort_by(f64::total_cmp);
            for (to, share) in [
                (&mut spread.least, 0.0),
                (&mut spread.lower, 0.25),
                (&mut spread.median, 0.5),
                (&mut spread.upper, 0.75),
                (&mut spread.most, 1.0),
            ] {
                to.extend(at_share(&values, share).map(|value| (middle, value)));
            }
        }
        spread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_ends_and_peaks_in_order() {
        let mut points: Vec<_> = (0..1000).map(|i| (f64::from(i) / 100.0, 1.0)).collect();
        points[437].1 = 99.0;
        points[441].1 = -5.0;
        let kept = thinned(&points, (0.0, 10.0), 10);
        assert!(kept.len() <= 40, "{}", kept.len());
        assert!(kept.contains(&(4.37, 99.0)) && kept.contains(&(4.41, -5.0)));
        assert_eq!((kept[0], kept[kept.len() - 1]), (points[0], points[999]));
        assert!(kept.is_sorted_by(|a, b| a.0 <= b.0));
    }

    #[test]
    fn few_points_stay_as_they_are() {
        let points = [(0.0, 1.0), (0.1, 3.0), (9.0, 2.0)];
        assert_eq!(thinned(&points, (0.0, 10.0), 10), points);
    }

    #[test]
    fn a_spread_is_of_those_that_are_there() {
        let line = |name: &str, from: f64, value: f64| Line {
            name: name.into(),
            stretches: vec![vec![(from, value), (4.0, value)]],
        };
        let lines = [
            line("a", 0.0, 1.0),
            line("b", 0.0, 2.0),
            line("c", 2.0, 30.0),
        ];
        let spread = Spread::of(&lines, (0.0, 4.0), 2);
        assert_eq!(spread.least, [(1.0, 1.0), (3.0, 1.0)]);
        assert_eq!(spread.median, [(1.0, 2.0), (3.0, 2.0)]);
        assert_eq!(spread.most, [(1.0, 2.0), (3.0, 30.0)]);
    }
}
