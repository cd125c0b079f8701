// SPDX-License-Identifier: GPL-2.0

//! The NP's window: at most one CNP per flow and `min_time_between_cnps`.
//!
//! In come valid CE marks of one flow, and the firing of the flow's close timer,
//! each with its time; out comes whether a CNP leaves now and when the timer is
//! to fire. Which packets are valid marks, what a flow is (`cnp_moderation`),
//! the CNP itself, the timer and the counters are left to others.
//!
//! ```text
//!            mark: CNP (immediate)          mark: held, timer armed
//!   quiet ------------------------> open -----------------------> holding
//!     ^                              | ^                             |
//!     |     end passes, no mark      | |  end: CNP (deferred)        |
//!     +------------------------------+ +-----------------------------+
//! ```
//!
//! A window starts at the instant its CNP is sent and lasts one period; its end
//! belongs to the next window. The mark that a deferred CNP answers is the one
//! held, never the one that opened the window, so the ICRC is checked until a
//! mark is held: a forged mark causes no CNP.
//!
//! When the close timer is late and a mark comes first, the mark does the
//! timer's work: the deferred CNP leaves at once and opens the next window, and
//! the mark is held in that ([`Mark::SendLate`]). So two CNPs are never closer
//! than a period, none is lost, and every mark is counted once: [`SendNow`] as
//! immediate, [`Suppressed`] and [`SendLate`] as suppressed; and so is every
//! CNP: [`SendNow`] as immediate, [`SendLate`] and [`Close::Send`] as deferred.
//!
//! Times are nanoseconds of one monotonic clock. The period may differ from call
//! to call: the open window ends at its start plus the period of the moment, or
//! at once if that has passed.
//!
//! [`SendNow`]: Mark::SendNow
//! [`Suppressed`]: Mark::Suppressed
//! [`SendLate`]: Mark::SendLate

/// The window of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// When the last CNP was sent.
    start_ns: u64,
    /// A CNP was sent at `start_ns`; nothing was ever sent otherwise.
    started: bool,
    /// A valid mark waits for the close.
    holding: bool,
}

/// What a valid mark leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Mark {
    /// Send a CNP now, the answer to this mark.
    SendNow,
    /// Folded into the open window, whose CNP leaves when it closes.
    Suppressed {
        /// When the window closes.
        close_at_ns: u64,
        /// It is the first mark held: arm the close timer.
        first: bool,
    },
    /// The close timer is late: send now the CNP that was due for the marks held,
    /// and arm the timer anew. This mark is held in the window that opens now.
    SendLate {
        /// When the window that opens now closes.
        close_at_ns: u64,
    },
}

/// What the close timer has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Close {
    /// Send a CNP now, the answer to the marks held; the timer may rest.
    Send,
    /// The window is still open and holds a mark: fire again then.
    Later {
        /// When the window closes.
        at_ns: u64,
    },
    /// No mark is held: nothing to do.
    Quiet,
}

impl Window {
    /// The window of a flow that was never marked.
    pub const fn new() -> Self {
        Window {
            start_ns: 0,
            started: false,
            holding: false,
        }
    }

    /// Whether the ICRC of a mark that comes at `now_ns` has to be checked: it
    /// may cause a CNP, because no mark is held that causes it anyway.
    #[must_use]
    pub const fn needs_icrc(&self, now_ns: u64, period_ns: u64) -> bool {
        !(self.holding && self.is_open(now_ns, period_ns))
    }

    /// Whether a CNP was sent less than a period before `now_ns`.
    pub const fn is_open(&self, now_ns: u64, period_ns: u64) -> bool {
        self.started && now_ns < self.end_ns(period_ns)
    }

    /// When the close timer has to fire, if it has to: for arming it anew after
    /// the period was changed. The instant may have passed.
    pub const fn close_at_ns(&self, period_ns: u64) -> Option<u64> {
        if self.holding {
            Some(self.end_ns(period_ns))
        } else {
            None
        }
    }

    /// A valid mark.
    pub fn on_mark(&mut self, now_ns: u64, period_ns: u64) -> Mark {
        if self.is_open(now_ns, period_ns) {
            let first = !self.holding;
            self.holding = true;
            return Mark::Suppressed {
                close_at_ns: self.end_ns(period_ns),
                first,
            };
        }
        // With period 0 nothing is held back; a mark held under an earlier
        // period is still owed its CNP, which the timer sends.
        let late = self.holding && period_ns != 0;
        self.start(now_ns);
        if late {
            Mark::SendLate {
                close_at_ns: self.end_ns(period_ns),
            }
        } else {
            Mark::SendNow
        }
    }

    /// The close timer fired, or the period was changed.
    pub fn on_close(&mut self, now_ns: u64, period_ns: u64) -> Close {
        if !self.holding {
            return Close::Quiet;
        }
        if self.is_open(now_ns, period_ns) {
            return Close::Later {
                at_ns: self.end_ns(period_ns),
            };
        }
        self.holding = false;
        self.start(now_ns);
        Close::Send
    }

    const fn end_ns(&self, period_ns: u64) -> u64 {
        self.start_ns.saturating_add(period_ns)
    }

    fn start(&mut self, now_ns: u64) {
        self.started = true;
        self.start_ns = now_ns;
    }
}
