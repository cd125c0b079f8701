// SPDX-License-Identifier: GPL-2.0

//! How often this machine stood still: a thread that sleeps, and how late it woke.
//!
//! A virtual machine's CPUs stop when the host has other work. Timers, pacers and the
//! link's bucket all come late together then, and make up for it in a burst, which is
//! seen in a queue and explained by nothing else in a recording.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Short enough to hit every pause that is told of, long enough to cost nothing.
const SLEEP: Duration = Duration::from_millis(5);
/// What is told of.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    pauses: AtomicU64,
    longest_us: AtomicU64,
}

impl Seen {
    fn woke(&self, late: Duration) {
        if late >= PAUSE {
            let us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
            self.pauses.fetch_add(1, Ordering::Relaxed);
            self.longest_us.fetch_max(us, Ordering::Relaxed);
        }
    }

    fn sentence(&self) -> Option<String> {
        let pauses = self.pauses.load(Ordering::Relaxed);
        let longest = self.longest_us.load(Ordering::Relaxed) as f64 / 1e3;
        (pauses > 0).then(|| {
            format!(
                "a thread of the recorder woke up more than {} ms late {pauses} times, at most {longest:.0} ms: \
                 the machine had other work, or stood still",
                PAUSE.as_millis()
            )
        })
    }
}

/// Watches until it is dropped.
pub(super) struct Stalls {
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

impl Stalls {
    /// From now on.
    pub(super) fn watch() -> Self {
        let seen = Arc::new(Seen::default());
        let theirs = seen.clone();
        let thread = thread::spawn(move || {
            while !theirs.stop.load(Ordering::Relaxed) {
                let asleep = Instant::now();
                thread::sleep(SLEEP);
                theirs.woke(asleep.elapsed().saturating_sub(SLEEP));
            }
        });
        Self {
            seen,
            thread: Some(thread),
        }
    }

    /// What was seen so far, if there was anything.
    pub(super) fn sentence(&self) -> Option<String> {
        self.seen.sentence()
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.seen.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_pauses_are_told_and_the_longest_is_kept() {
        let seen = Seen::default();
        seen.woke(Duration::from_millis(9));
        assert_eq!(seen.sentence(), None);
        for late in [12, 40, 11] {
            seen.woke(Duration::from_millis(late));
        }
        let said = seen.sentence().unwrap();
        assert!(said.contains("3 times, at most 40 ms"), "{said}");
    }
}
