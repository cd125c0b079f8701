// SPDX-License-Identifier: GPL-2.0

//! Tracepoints `rxe_cc:*`: a tracefs instance of our own in, [`Event`]s out.
//!
//! An instance has its own buffer, clock and set of enabled events, so neither
//! trace-cmd nor perf is disturbed, and it goes when the recording ends. The events'
//! text is parsed, which stays readable for as long as `Documentation/tracing.md` is
//! true; fields that are not known here are kept in `detail`.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use rustix::fs::OFlags;

use crate::recording::Event;
use crate::system::names;

const TRACEFS: &str = "/sys/kernel/tracing";

/// Twice a packet: only when asked for.
const PER_PACKET: [&str; 2] = ["hold", "release"];

/// alpha is traced in 1/1024.
const ALPHA_UNITS: f64 = 1024.0;

/// A trace that goes on.
pub(super) struct Trace {
    dir: PathBuf,
    pipe: File,
    bytes: Vec<u8>,
    rest: Vec<u8>,
    lost: u64,
}

impl Trace {
    /// Listens to `wanted` events; to all but the two that come with every packet if
    /// there is none named, to those as well for `all`.
    ///
    /// # Errors
    ///
    /// The module is not loaded, tracefs is not there, or this is not root.
    pub(super) fn open(wanted: &[String]) -> Result<Self> {
        let tracefs = Path::new(TRACEFS);
        let instances = tracefs.join("instances");
        if !instances.is_dir() {
            bail!("cannot trace: {TRACEFS} is not mounted, or not yours to read (sudo mount -t tracefs tracefs {TRACEFS})");
        }
        let known: Vec<String> = names(&tracefs.join("events/rxe_cc"))
            .into_iter()
            .filter(|name| !matches!(&**name, "enable" | "filter"))
            .collect();
        if known.is_empty() {
            bail!("there are no events rxe_cc:*: load the module (modprobe rxe_cc)");
        }
        let chosen = choose(&known, wanted)?;
        let dir = instances.join(format!("rxecc-{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Self::start(&dir, &chosen).inspect_err(|_| {
            let _ = fs::remove_dir(&dir);
        })
    }

    fn start(dir: &Path, events: &[&str]) -> Result<Self> {
        let set = |file: &str, value: &str| {
            fs::write(dir.join(file), value)
                .with_context(|| format!("cannot set {file} to {value}"))
        };
        // The clock of the other tables.
        set("trace_clock", "mono")?;
        set("buffer_size_kb", "4096")?;
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits())?;
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(nonblocking)
            .open(dir.join("trace_pipe"))
            .context("cannot open trace_pipe")?;
        for event in events {
            set(&format!("events/rxe_cc/{event}/enable"), "1")?;
        }
        Ok(Self {
            dir: dir.to_owned(),
            pipe,
            bytes: vec![0; 1 << 16],
            rest: Vec::new(),
            lost: 0,
        })
    }

    /// What came since the last call. `started` is the run's start in seconds of the
    /// monotonic clock.
    pub(super) fn read(
        &mut self,
        started: f64,
        mut each: impl FnMut(Event) -> Result<()>,
    ) -> Result<()> {
        loop {
            let length = match self.pipe.read(&mut self.bytes) {
                Ok(0) => return Ok(()),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("cannot read trace_pipe"),
            };
            self.rest
                .extend_from_slice(self.bytes.get(..length).unwrap_or_default());
            let mut at = 0;
            while let Some(end) = self.rest[at..].iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&self.rest[at..at + end]);
                self.lost += lost(&line);
                // What came while the recording was being prepared is not of it.
                if let Some(event) = parse(&line, started).filter(|event| event.time_s >= 0.0) {
                    each(event)?;
                }
                at += end + 1;
            }
            self.rest.drain(..at);
        }
    }

    /// Events that the kernel had no room for.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = fs::write(self.dir.join("events/enable"), "0");
        // An instance whose pipe is open cannot be removed.
        if let Ok(null) = File::open("/dev/null") {
            self.pipe = null;
        }
        let _ = fs::remove_dir(&self.dir);
    }
}

fn choose<'a>(known: &'a [String], wanted: &[String]) -> Result<Vec<&'a str>> {
    let all = wanted.iter().any(|name| name == "all");
    for name in wanted {
        if name != "all" && !known.contains(name) {
            bail!(
                "there is no event rxe_cc:{name}; there are {}, and all",
                known.join(", ")
            );
        }
    }
    Ok(known
        .iter()
        .map(String::as_str)
        .filter(|name| {
            all || wanted.iter().any(|wanted| wanted == name)
                || (wanted.is_empty() && !PER_PACKET.contains(name))
        })
        .collect())
}

/// How many events a line "CPU:1 [LOST 123 EVENTS]" speaks of.
fn lost(line: &str) -> u64 {
    line.split_once("[LOST ")
        .and_then(|(_, rest)| rest.split(' ').next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// One line of a trace:
/// `comm-PID [CPU] FLAGS SECONDS: EVENT: ibdev=rxe1 qpn=17 peer=::ffff:10.0.0.2 ...`.
fn parse(line: &str, started: f64) -> Option<Event> {
    // A program's name may hold anything, so from the event backwards.
    let (head, fields) = line.split_once(": ibdev=")?;
    let (head, event) = head.rsplit_once(": ")?;
    let seconds: f64 = head.split_whitespace().next_back()?.parse().ok()?;
    let mut words = fields.split(' ');
    let mut found = Event {
        // In microseconds, as the trace has it.
        time_s: ((seconds - started) * 1e6).round() / 1e6,
        event: event.to_owned(),
        device: words.next()?.to_owned(),
        ..Event::default()
    };
    let mut detail = Vec::new();
    for word in words {
        let number = |value: &str| value.parse::<f64>().ok();
        match word.split_once('=') {
            Some(("qpn", value)) => found.qpn = value.parse().ok()?,
            Some(("peer_qpn", value)) => {
                found.peer_qpn = value.parse().ok().filter(|qpn| *qpn != 0)
            }
            Some(("rate", value)) => found.rc_bps = number(value),
            Some(("target", value)) => found.rt_bps = number(value),
            Some(("alpha", value)) => found.alpha = number(value).map(|alpha| alpha / ALPHA_UNITS),
            _ if word.is_empty() => {}
            _ => detail.push(word),
        }
    }
    found.detail = detail.join(" ");
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_cut_is_read_whatever_the_program_is_called() {
        let line = "  a: odd] [x-1234    [001] ..s2.   125.500250: rate_cut: ibdev=rxe1 qpn=17 \
                    peer=::ffff:10.0.0.2 peer_qpn=18 rate=10000000 target=20000000 \
                    model_rate=10000000000 alpha=512.000 time_stage=0 byte_stage=0 events=1";
        let event = parse(line, 120.0).unwrap();
        assert_eq!(
            event,
            Event {
                time_s: 5.50025,
                event: "rate_cut".into(),
                device: "rxe1".into(),
                qpn: 17,
                peer_qpn: Some(18),
                rc_bps: Some(1e7),
                rt_bps: Some(2e7),
                alpha: Some(0.5),
                detail:
                    "peer=::ffff:10.0.0.2 model_rate=10000000000 time_stage=0 byte_stage=0 events=1"
                        .into(),
            }
        );
    }

    #[test]
    fn a_mark_has_no_rate_and_an_unknown_peer_no_number() {
        let line = "<idle>-0 [000] ..s.. 9.000001: ce: ibdev=rxe5 qpn=20 peer=fd00::1 peer_qpn=0 verdict=unresolved";
        let event = parse(line, 10.0).unwrap();
        assert_eq!(
            (event.time_s, event.peer_qpn, event.rc_bps),
            (-0.999999, None, None)
        );
        assert_eq!(event.detail, "peer=fd00::1 verdict=unresolved");
    }

    #[test]
    fn other_lines_are_no_events_and_losses_are_counted() {
        assert_eq!(parse("CPU:1 [LOST 123 EVENTS]", 0.0), None);
        assert_eq!(lost("CPU:1 [LOST 123 EVENTS]"), 123);
        assert_eq!(lost("anything else"), 0);
        assert_eq!(
            parse("x-1 [000] ..s.. soon: ce: ibdev=rxe5 qpn=1", 0.0),
            None
        );
    }

    #[test]
    fn packets_are_traced_only_when_asked_for() {
        let known: Vec<String> = ["ce", "hold", "release"].map(String::from).into();
        let chosen = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).into()).collect();
            choose(&known, &wanted).map(|chosen| chosen.join(" ")).ok()
        };
        assert_eq!(chosen(&[]).unwrap(), "ce");
        assert_eq!(chosen(&["all"]).unwrap(), "ce hold release");
        assert_eq!(chosen(&["hold"]).unwrap(), "hold");
        assert_eq!(chosen(&["helo"]), None);
    }
}
