// SPDX-License-Identifier: GPL-2.0

//! Recording a run on this machine.
//!
//! In: which port, receivers and devices to watch, how often, and for how long: until
//! a command ends, a time has passed, or a signal comes. Out: a directory as
//! [`crate::recording`] describes it. What the figures mean is left to the report.
//!
//! A sample costs some reads of files and a netlink dump for each namespace, and
//! starts no process. What cannot be recorded for want of privilege or of the module
//! is said, noted in the recording, and left out.

mod counters;
mod goodput;
mod netlink;
mod port;
mod senders;
mod stalls;
mod trace;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{bail, Context, Result};
use rustix::process::{kill_process, Pid, Signal};
use rustix::time::{clock_gettime, ClockId};

use self::counters::Counters;
use self::goodput::Receiver;
use self::port::Port;
use self::senders::Senders;
use self::stalls::Stalls;
use self::trace::Trace;
use crate::recording::{
    CounterSample, Event, FlowSample, GoodputSample, QueueSample, Row, Run, Writer,
};
use crate::system::{is_root, read, Device, System};

/// A port, as `--port` names it: the namespace (empty: this one) and the netdev.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PortName {
    pub(crate) namespace: String,
    pub(crate) device: String,
}

/// What to record.
pub(crate) struct Plan {
    pub(crate) output: PathBuf,
    pub(crate) title: String,
    pub(crate) seed: Option<u64>,
    /// The command line that repeats it.
    pub(crate) command_line: String,
    pub(crate) port: Option<PortName>,
    /// Namespaces of receivers.
    pub(crate) goodput: Vec<String>,
    /// Names of devices; none for all.
    pub(crate) devices: Vec<String>,
    /// Between two samples of the queue.
    pub(crate) interval: Duration,
    pub(crate) rates_interval: Duration,
    pub(crate) counters_interval: Duration,
    /// Names of tracepoints, none for the usual ones; or not to trace.
    pub(crate) events: Option<Vec<String>>,
    pub(crate) measure_from_s: Option<f64>,
    pub(crate) duration: Option<Duration>,
    /// Program and arguments; may be empty.
    pub(crate) program: Vec<String>,
}

/// Seconds of a clock.
fn seconds(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// One of the recording's files, made with its first row.
struct Table<R> {
    file: Option<csv::Writer<BufWriter<File>>>,
    rows: u64,
    _row: std::marker::PhantomData<R>,
}

impl<R: Row> Table<R> {
    fn new() -> Self {
        Self {
            file: None,
            rows: 0,
            _row: std::marker::PhantomData,
        }
    }

    fn add(&mut self, writer: &Writer, row: &R) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(writer.table::<R>()?),
        };
        file.serialize(row)
            .with_context(|| format!("cannot write {}", R::FILE))?;
        self.rows += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        match &mut self.file {
            Some(file) => file
                .flush()
                .with_context(|| format!("cannot write {}", R::FILE)),
            None => Ok(()),
        }
    }
}

/// What is watched.
struct Sources {
    devices: Vec<Device>,
    senders: Senders,
    counters: Counters,
    port: Option<Port>,
    receivers: Vec<Receiver>,
    trace: Option<Trace>,
    notes: Vec<String>,
    qps_readable: bool,
}

impl Sources {
    fn open(plan: &Plan, system: &System) -> Result<Self> {
        let mut notes = Vec::new();
        let devices = select(plan, system, &mut notes)?;
        let with_module = system.has_module("rxe_cc");
        if !with_module {
            notes.push("rxe_cc was not loaded: no rates, and no counters of it".to_owned());
        }
        let port = plan.port.as_ref().map(|name| {
            let namespace = namespace(system, &name.namespace)?;
            Port::open(&namespace, &name.device)
        });
        let port = tolerate(port.transpose(), &mut notes)?.flatten();
        let mut receivers = Vec::new();
        for name in &plan.goodput {
            let receiver = namespace(system, name).and_then(Receiver::open);
            receivers.extend(tolerate(receiver, &mut notes)?);
        }
        let qps_readable = match devices.first().map(Device::qps) {
            Some(Err(error)) if with_module => {
                notes.push(format!("no rates: {error:#}"));
                false
            }
            Some(_) => with_module,
            None => false,
        };
        Ok(Self {
            senders: Senders::of(&system.devices()),
            counters: Counters::of(&devices),
            devices,
            port,
            receivers,
            trace: None,
            notes,
            qps_readable,
        })
    }

    /// Listens to tracepoints from now on, if the plan says so.
    fn trace(&mut self, plan: &Plan, system: &System) -> Result<()> {
        if let Some(wanted) = &plan.events {
            if system.has_module("rxe_cc") {
                self.trace = tolerate(Trace::open(wanted), &mut self.notes)?;
            }
        }
        Ok(())
    }

    /// The sending sides of all QPs.
    fn flows(&mut self, time_s: f64) -> Vec<FlowSample> {
        let mut rows = Vec::new();
        if !self.qps_readable {
            return rows;
        }
        for device in &self.devices {
            // One that is gone meanwhile has no QPs.
            for qp in device.qps().unwrap_or_default() {
                let Some(rp) = qp.rp else {
                    continue;
                };
                let row = FlowSample {
                    time_s,
                    sender: self.senders.with_device(&device.name),
                    device: device.name.clone(),
                    qpn: qp.qpn,
                    peer_qpn: qp.peer_qpn,
                    rc_bps: rp.rc_bps as f64,
                    rt_bps: rp.rt_bps as f64,
                    alpha: (rp.alpha * 1e6).round() / 1e6,
                    phase: rp.phase,
                    time_stage: rp.time_stage,
                    byte_stage: rp.byte_stage,
                    held: rp.held,
                    cnps: rp.cnps,
                    cuts: rp.cuts,
                };
                self.senders.note(&row);
                rows.push(row);
            }
        }
        rows
    }

    fn goodput(&mut self, time_s: f64) -> Result<Vec<GoodputSample>> {
        let mut totals = Vec::new();
        for receiver in &mut self.receivers {
            totals.extend(receiver.sample().context("cannot read nft's set")?);
        }
        Ok(self.senders.rows(time_s, &totals))
    }

    /// The knobs that all devices agree on, and of others the first device's.
    fn knobs(&mut self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let mut differ = Vec::new();
        for device in &self.devices {
            for (knob, value) in device.knobs().unwrap_or_default() {
                let (path, value) = (knob.path(), knob.show(value));
                match all.get(&path) {
                    None => {
                        all.insert(path, value);
                    }
                    Some(first) if *first != value => {
                        differ.push(format!("{path} is {value} on {}", device.title()));
                    }
                    Some(_) => {}
                }
            }
        }
        if !differ.is_empty() {
            let first = self.devices.first().map(Device::title).unwrap_or_default();
            self.notes.push(format!(
                "the knobs are those of {first}; {}",
                differ.join(", ")
            ));
        }
        all
    }
}

/// The devices to watch. None at all is no error: queue and goodput can be recorded.
fn select(plan: &Plan, system: &System, notes: &mut Vec<String>) -> Result<Vec<Device>> {
    let mut devices = Vec::new();
    for name in &plan.devices {
        devices.extend(system.select(Some(name))?);
    }
    if plan.devices.is_empty() {
        match system.select(None) {
            Ok(all) => devices = all,
            Err(error) => notes.push(format!("no counters and no rates: {error:#}")),
        }
    }
    Ok(devices)
}

fn namespace(system: &System, name: &str) -> Result<Arc<crate::system::Namespace>> {
    match (name, system.namespaces().first()) {
        ("", Some(own)) => Ok(own.clone()),
        _ => system.namespace(name),
    }
}

/// Root is told that what it asked for cannot be had; others get what they may have,
/// and a note.
fn tolerate<T>(result: Result<T>, notes: &mut Vec<String>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_root() => Err(error),
        Err(error) => {
            notes.push(format!("{error:#}"));
            Ok(None)
        }
    }
}

/// The tables, and what goes into them.
struct Recorder {
    sources: Sources,
    writer: Writer,
    started: f64,
    flows: Table<FlowSample>,
    goodput: Table<GoodputSample>,
    queue: Table<QueueSample>,
    counters: Table<CounterSample>,
    events: Table<Event>,
}

impl Recorder {
    fn elapsed(&self) -> f64 {
        // Microseconds are enough for a table.
        ((seconds(ClockId::Monotonic) - self.started) * 1e6).round() / 1e6
    }

    fn sample_queue(&mut self) -> Result<()> {
        let writer = &self.writer;
        if let Some(port) = &mut self.sources.port {
            let now = ((seconds(ClockId::Monotonic) - self.started) * 1e6).round() / 1e6;
            if let Some(row) = port.sample(now).context("cannot read the port's queue")? {
                self.queue.add(writer, &row)?;
            }
        }
        Ok(())
    }

    fn sample_rates(&mut self) -> Result<()> {
        let now = self.elapsed();
        for row in self.sources.goodput(now)? {
            self.goodput.add(&self.writer, &row)?;
        }
        let now = self.elapsed();
        for row in self.sources.flows(now) {
            self.flows.add(&self.writer, &row)?;
        }
        if let Some(trace) = &mut self.sources.trace {
            let (events, writer) = (&mut self.events, &self.writer);
            trace.read(self.started, |event| events.add(writer, &event))?;
        }
        Ok(())
    }

    fn sample(&mut self) -> Result<()> {
        self.sample_counters()?;
        self.sample_queue()?;
        self.sample_rates()
    }

    fn sample_counters(&mut self) -> Result<()> {
        let now = self.elapsed();
        for row in self.sources.counters.changes(now) {
            self.counters.add(&self.writer, &row)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.flows.flush()?;
        self.goodput.flush()?;
        self.queue.flush()?;
        self.counters.flush()?;
        self.events.flush()
    }

    /// Nothing but `run.json` would be written.
    fn is_pointless(&self) -> bool {
        let sources = &self.sources;
        sources.port.is_none() && sources.receivers.is_empty() && sources.devices.is_empty()
    }
}

/// Records; whether the command, if there was one, ended well.
///
/// # Errors
///
/// What root asked for cannot be watched, there is nothing to watch at all, or the
/// files cannot be written.
pub(crate) fn record(plan: &Plan, system: &System) -> Result<bool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot catch signals")?;
    }
    let writer = Writer::create(&plan.output)?;
    let mut sources = Sources::open(plan, system)?;
    let knobs = sources.knobs();
    sources.trace(plan, system)?;
    let mut recorder = Recorder {
        sources,
        writer,
        started: seconds(ClockId::Monotonic),
        flows: Table::new(),
        goodput: Table::new(),
        queue: Table::new(),
        counters: Table::new(),
        events: Table::new(),
    };
    if recorder.is_pointless() {
        bail!(
            "there is nothing to record: {}",
            recorder.sources.notes.join("; ")
        );
    }
    let mut run = Run {
        title: plan.title.clone(),
        source: "kernel".to_owned(),
        started: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
        command: plan.command_line.clone(),
        seed: plan.seed,
        versions: versions(),
        knobs,
        ..Run::default()
    };
    for note in &recorder.sources.notes {
        eprintln!("rxecc: {note}");
    }
    run.notes.clone_from(&recorder.sources.notes);
    recorder.writer.run(&run)?;
    recorder.sample()?;
    recorder.flush()?;
    let mut child = start(&plan.program)?;
    eprintln!("rxecc: recording into {}", plan.output.display());
    let stalls = Stalls::watch();
    let ended = watch(&mut recorder, plan, &stop, child.as_mut());
    let status = match (&ended, child) {
        (Ok(Some(status)), _) => Some(*status),
        (_, Some(mut child)) => Some(finish(&mut child)?),
        _ => None,
    };
    ended?;
    recorder.sample()?;
    recorder.flush()?;
    let end = recorder.elapsed();
    run.measured = plan.measure_from_s.map(|from| (from.min(end), end));
    run.senders = recorder.sources.senders.sent();
    run.bottleneck = recorder
        .sources
        .port
        .as_ref()
        .map(|port| port.bottleneck().clone());
    run.notes.extend(closing_notes(&recorder, plan, status));
    run.notes.extend(stalls.sentence());
    recorder.writer.run(&run)?;
    eprintln!(
        "rxecc: recorded {end:.1} s with {:.2} s of CPU: {} samples of flows, {} of the queue, {} of goodput, {} events",
        seconds(ClockId::ProcessCPUTime),
        recorder.flows.rows,
        recorder.queue.rows,
        recorder.goodput.rows,
        recorder.events.rows,
    );
    Ok(status.is_none_or(|status| status.success()))
}

/// Samples until the end; the command's status if that was it.
fn watch(
    recorder: &mut Recorder,
    plan: &Plan,
    stop: &AtomicBool,
    mut child: Option<&mut Child>,
) -> Result<Option<ExitStatus>> {
    let interval = plan.interval.as_secs_f64();
    let counters_interval = plan.counters_interval.as_secs_f64();
    let limit = plan
        .duration
        .map_or(f64::INFINITY, |limit| limit.as_secs_f64());
    let rates_interval = plan.rates_interval.as_secs_f64();
    let (mut due, mut rates_due, mut counters_due) = (interval, rates_interval, counters_interval);
    loop {
        let next = due.min(rates_due).min(limit);
        while !stop.load(Ordering::Relaxed) && recorder.elapsed() < next {
            // A signal does not end a sleep: in pieces, where the interval is long.
            let wait = (next - recorder.elapsed()).clamp(0.0, 0.2);
            thread::sleep(Duration::from_secs_f64(wait));
        }
        if stop.load(Ordering::Relaxed) || recorder.elapsed() >= limit {
            return Ok(None);
        }
        // Moments that were missed stay missed.
        let behind = |now: f64, interval: f64| ((now / interval).floor() + 1.0) * interval;
        if recorder.elapsed() >= due {
            recorder.sample_queue()?;
            due = behind(recorder.elapsed(), interval);
        }
        if recorder.elapsed() >= rates_due {
            recorder.sample_rates()?;
            rates_due = behind(recorder.elapsed(), rates_interval);
        }
        if recorder.elapsed() >= counters_due {
            recorder.sample_counters()?;
            recorder.flush()?;
            counters_due = behind(recorder.elapsed(), counters_interval);
        }
        if let Some(child) = &mut child {
            if let Some(status) = child.try_wait().context("cannot wait for the command")? {
                return Ok(Some(status));
            }
        }
    }
}

fn start(program: &[String]) -> Result<Option<Child>> {
    let Some((name, arguments)) = program.split_first() else {
        return Ok(None);
    };
    Command::new(name)
        .args(arguments)
        .spawn()
        .map(Some)
        .with_context(|| format!("cannot run {name}"))
}

/// Ends the command: first by asking.
fn finish(child: &mut Child) -> Result<ExitStatus> {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
    for _ in 0..50 {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(100));
    }
    child.kill()?;
    Ok(child.wait()?)
}

fn versions() -> BTreeMap<String, String> {
    let files = [
        ("kernel", "/proc/sys/kernel/osrelease"),
        ("rxe_cc", "/sys/module/rxe_cc/version"),
        ("rxe_cc source", "/sys/module/rxe_cc/srcversion"),
    ];
    let mut found: BTreeMap<String, String> = files
        .into_iter()
        .filter_map(|(name, path)| Some((name.to_owned(), read(path.as_ref()).ok()?)))
        .collect();
    found.insert("rxecc".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    found
}

fn closing_notes(recorder: &Recorder, plan: &Plan, status: Option<ExitStatus>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(status) = status.filter(|status| !status.success()) {
        notes.push(format!("the command ended with {status}"));
    }
    let lost = recorder.sources.trace.as_ref().map_or(0, Trace::lost);
    if lost > 0 {
        notes.push(format!(
            "{lost} events are missing: more came than the trace's buffer holds"
        ));
    }
    let possible = recorder.elapsed() / plan.interval.as_secs_f64();
    let taken = recorder.queue.rows as f64;
    if recorder.sources.port.is_some() && taken < possible * 0.8 {
        notes.push(format!(
            "the queue was sampled {taken:.0} times of {possible:.0}: the machine was busy"
        ));
    }
    notes
}
