// SPDX-License-Identifier: GPL-2.0

//! Values over time, as they were sampled, and what can be asked of them.
//!
//! In come pairs of time and value in the order of time; out come gains, means and
//! quantiles between two times. What the values mean is left to others. Where
//! nothing was sampled the answer is `None`, never a guess.

/// From and to, seconds.
pub(crate) type Span = (f64, f64);

/// A total that only grows. One that falls has started anew, and goes on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Total {
    points: Vec<(f64, f64)>,
    shown: f64,
}

impl Total {
    /// The total as it was shown at a time not before the last one.
    pub(crate) fn push(&mut self, time_s: f64, shown: f64) {
        let grown = if shown < self.shown {
            shown
        } else {
            shown - self.shown
        };
        // The first value is where counting starts, not a gain.
        let value = self.points.last().map_or(shown, |last| last.1 + grown);
        self.shown = shown;
        self.points.push((time_s, value));
    }

    /// What was gained in `span`, the total being interpolated between samples: for
    /// what flows steadily.
    pub(crate) fn gained(&self, span: Span) -> f64 {
        self.interpolated(span.1) - self.interpolated(span.0)
    }

    /// What was gained in `span`, the total being that of the last sample: for what
    /// is written whenever it changes.
    pub(crate) fn stepped(&self, span: Span) -> f64 {
        self.held(span.1) - self.held(span.0)
    }

    fn held(&self, time_s: f64) -> f64 {
        let after = self.points.partition_point(|point| point.0 <= time_s);
        match self.points.get(after.saturating_sub(1)) {
            Some(point) => point.1,
            None => 0.0,
        }
    }

    fn interpolated(&self, time_s: f64) -> f64 {
        let after = self.points.partition_point(|point| point.0 <= time_s);
        match (
            after.checked_sub(1).and_then(|i| self.points.get(i)),
            self.points.get(after),
        ) {
            (Some(left), Some(right)) => {
                left.1 + (right.1 - left.1) * (time_s - left.0) / (right.0 - left.0)
            }
            (Some(only), None) | (None, Some(only)) => only.1,
            (None, None) => 0.0,
        }
    }
}

/// A level: each sample holds until the next one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Level {
    points: Vec<(f64, f64)>,
}

impl FromIterator<(f64, f64)> for Level {
    fn from_iter<I: IntoIterator<Item = (f64, f64)>>(points: I) -> Self {
        Self {
            points: points.into_iter().collect(),
        }
    }
}

impl Level {
    /// The values in `span` and how long each of them held. Before the first sample
    /// and after the last nothing is known.
    fn weighted(&self, span: Span) -> Vec<(f64, f64)> {
        let mut found: Vec<_> = self
            .points
            .windows(2)
            .filter_map(|pair| {
                let seconds = pair[1].0.min(span.1) - pair[0].0.max(span.0);
                (seconds > 0.0).then_some((pair[0].1, seconds))
            })
            .collect();
        if found.is_empty() {
            found = self
                .points
                .iter()
                .filter(|point| span.0 <= point.0 && point.0 <= span.1)
                .map(|point| (point.1, 1.0))
                .collect();
        }
        found
    }

    /// The mean over time.
    pub(crate) fn mean(&self, span: Span) -> Option<f64> {
        let all = self.weighted(span);
        let seconds: f64 = all.iter().map(|(_, seconds)| seconds).sum();
        (!all.is_empty()).then(|| all.iter().map(|(v, s)| v * s).sum::<f64>() / seconds)
    }

    /// The least value that was not exceeded for `share` (0..1) of the time.
    pub(crate) fn quantile(&self, share: f64, span: Span) -> Option<f64> {
        let mut all = self.weighted(span);
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let seconds: f64 = all.iter().map(|(_, seconds)| seconds).sum();
        // Sums of many small numbers are a little off: 99% of 100 equal ones are 99.
        let wanted = seconds * (share - 1e-9);
        let mut passed = 0.0;
        for (value, held) in &all {
            passed += held;
            if passed >= wanted {
                return Some(*value);
            }
        }
        all.last().map(|(value, _)| *value)
    }

    /// The greatest value.
    pub(crate) fn most(&self, span: Span) -> Option<f64> {
        self.quantile(1.0, span)
    }
}

/// Jain's fairness index, (sum x)^2 / (n * sum x^2): 1 when all are equal, 1/n when
/// one has everything. Nothing for nobody, and when all have nothing.
pub(crate) fn jain(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|v| v * v).sum();
    (squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

/// `span` in `count` equal parts.
pub(crate) fn parts(span: Span, count: usize) -> Vec<Span> {
    let at = |i: usize| span.0 + (span.1 - span.0) * i as f64 / count as f64;
    (0..count).map(|i| (at(i), at(i + 1))).collect()
}

/// The value in the middle of sorted ones, and its like at other shares.
pub(crate) fn at_share(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share).round() as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(points: &[(f64, f64)]) -> Total {
        let mut total = Total::default();
        for (time, value) in points {
            total.push(*time, *value);
        }
        total
    }

    #[test]
    fn a_gain_is_interpolated_between_samples() {
        let total = total(&[(0.0, 100.0), (2.0, 300.0), (3.0, 300.0)]);
        assert_eq!(total.gained((0.5, 1.5)), 100.0);
        assert_eq!(total.gained((1.0, 3.0)), 100.0);
    }

    #[test]
    fn nothing_is_gained_outside_of_the_samples() {
        let total = total(&[(1.0, 100.0), (2.0, 300.0)]);
        assert_eq!(total.gained((0.0, 1.0)), 0.0);
        assert_eq!(total.gained((2.0, 9.0)), 0.0);
        assert_eq!(Total::default().gained((0.0, 1.0)), 0.0);
        assert_eq!(Total::default().stepped((0.0, 1.0)), 0.0);
    }

    #[test]
    fn a_stepped_total_changes_when_it_is_written() {
        let total = total(&[(0.0, 7.0), (1.0, 9.0), (4.0, 20.0)]);
        assert_eq!(total.stepped((0.0, 3.9)), 2.0);
        assert_eq!(total.stepped((1.0, 4.0)), 11.0);
        assert_eq!(total.stepped((0.0, 0.9)), 0.0);
    }

    #[test]
    fn a_total_that_falls_has_started_anew() {
        let total = total(&[(0.0, 50.0), (1.0, 60.0), (2.0, 4.0), (3.0, 5.0)]);
        assert_eq!(total.stepped((0.0, 3.0)), 15.0);
    }

    #[test]
    fn a_level_counts_as_long_as_it_holds() {
        let level = Level::from_iter([(0.0, 10.0), (1.0, 30.0), (4.0, 0.0)]);
        assert_eq!(level.mean((0.0, 4.0)), Some(25.0));
        assert_eq!(level.mean((0.5, 1.5)), Some(20.0));
        assert_eq!(level.most((0.0, 1.0)), Some(10.0));
        assert_eq!(level.most((0.0, 4.0)), Some(30.0));
        assert_eq!(level.mean((5.0, 6.0)), None);
        assert_eq!(level.quantile(0.99, (5.0, 6.0)), None);
    }

    #[test]
    fn a_quantile_is_the_least_value_not_exceeded_for_that_share_of_time() {
        // 1 .. 100, a second each, and a last sample that ends the hundredth.
        let level = Level::from_iter((0..=100).map(|i| (f64::from(i), f64::from(i + 1))));
        assert_eq!(level.quantile(0.99, (0.0, 100.0)), Some(99.0));
        assert_eq!(level.quantile(0.5, (0.0, 100.0)), Some(50.0));
        assert_eq!(level.quantile(1.0, (0.0, 100.0)), Some(100.0));
    }

    #[test]
    fn one_sample_is_a_level_too() {
        let level = Level::from_iter([(1.0, 8.0)]);
        assert_eq!(level.mean((0.0, 2.0)), Some(8.0));
        assert_eq!(level.quantile(0.99, (0.0, 2.0)), Some(8.0));
    }

    #[test]
    fn jain_is_1_for_equals_and_1_nth_for_one_that_has_all() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[1.0, 2.0]), Some(0.9));
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0.0, 0.0]), None);
    }
}
