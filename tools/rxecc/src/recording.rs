// SPDX-License-Identifier: GPL-2.0

//! A recording: what was seen of one run of an experiment, as a directory of
//! small tables that any other program can read, too.
//!
//! `rxecc record` and `rxecc simulate` write recordings, `rxecc report` and
//! `rxecc assert` read them, and so do spreadsheets and pandas:
//!
//! | file | one row is |
//! |---|---|
//! | `run.json` | the run: [`Run`] |
//! | `flows.csv` | a flow's rate limiter at one moment: [`FlowSample`] |
//! | `goodput.csv` | what arrived of a sender so far: [`GoodputSample`] |
//! | `queue.csv` | the bottleneck's queue at one moment: [`QueueSample`] |
//! | `counters.csv` | a device's counter when it had changed: [`CounterSample`] |
//! | `events.csv` | one tracepoint: [`Event`] |
//!
//! A table that nothing was recorded for is missing. Times are seconds since the
//! run's start on one monotonic clock; rates are bit/s of the real network (not the
//! model's scale, see dilation); alpha is 0..1; sizes are bytes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Raised when a reader of the old tables would misread the new ones.
pub(crate) const FORMAT: u32 = 1;

/// What was run, and what it came to: `run.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Run {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// One line: which way of running it this was ("rxe_cc, paper, dilation 1000").
    pub(crate) title: String,
    /// Where the figures come from: `kernel` or `simulation`.
    pub(crate) source: String,
    /// When it began, RFC 3339.
    pub(crate) started: String,
    /// The command line, or lines, that repeat it.
    pub(crate) command: String,
    /// The seed of everything random in it, if there was anything.
    pub(crate) seed: Option<u64>,
    /// Kernel release, versions of module and tools: name, version.
    pub(crate) versions: BTreeMap<String, String>,
    /// The knobs by their path below `ecn/` (`roce_rp/rpg_ai_rate`), and their
    /// values; empty where no module was loaded.
    pub(crate) knobs: BTreeMap<String, String>,
    /// The slow link.
    pub(crate) bottleneck: Option<Bottleneck>,
    /// The seconds that figures are taken from; without it the whole run.
    pub(crate) measured: Option<(f64, f64)>,
    /// The senders.
    pub(crate) senders: Vec<Sender>,
    /// What the reader should know ("another guest ran meanwhile").
    pub(crate) notes: Vec<String>,
}

/// The link that flows compete for, and its queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Bottleneck {
    /// Its name: a netdev, or the simulated port.
    pub(crate) name: String,
    /// What it carries, bit/s of Ethernet frames without FCS.
    pub(crate) rate_bps: f64,
    /// RED starts to mark here (Kmin), bytes.
    pub(crate) red_min_bytes: Option<f64>,
    /// RED marks with `red_probability` here, and everything above (Kmax), bytes.
    pub(crate) red_max_bytes: Option<f64>,
    /// RED's probability at Kmax, 0..1 (Pmax).
    pub(crate) red_probability: Option<f64>,
    /// The queue holds this much, bytes.
    pub(crate) limit_bytes: Option<f64>,
}

/// One sender and how it fared. All its QPs together where it has several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sender {
    /// Its name in the tables (`h1`).
    pub(crate) name: String,
    /// Its address, as `goodput.csv` counts it.
    pub(crate) address: String,
    /// Its RDMA device (`rxe1`).
    pub(crate) device: String,
    /// QPs that send.
    pub(crate) qps: u32,
    /// When it began to send, seconds.
    pub(crate) begin_s: Option<f64>,
    /// How long its work took, seconds, where it had a fixed amount.
    pub(crate) completion_s: Option<f64>,
    /// The completion errors and exit statuses of its program, empty for none.
    pub(crate) errors: Vec<String>,
}

/// A row of `flows.csv`: the RP of one QP at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FlowSample {
    pub(crate) time_s: f64,
    /// [`Sender::name`] where there is one, else the device.
    pub(crate) sender: String,
    pub(crate) device: String,
    pub(crate) qpn: u32,
    pub(crate) peer_qpn: Option<u32>,
    /// Current rate Rc and target rate Rt.
    pub(crate) rc_bps: f64,
    pub(crate) rt_bps: f64,
    pub(crate) alpha: f64,
    /// `unlimited`, `fast_recovery`, `additive_increase` or `hyper_increase`.
    pub(crate) phase: String,
    pub(crate) time_stage: u64,
    pub(crate) byte_stage: u64,
    /// Packets that wait to be sent.
    pub(crate) held: u64,
    /// CNPs accepted and cuts, so far.
    pub(crate) cnps: u64,
    pub(crate) cuts: u64,
}

/// A row of `goodput.csv`: bytes of IP packets to UDP port 4791 that the receiver
/// got from one sender so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct GoodputSample {
    pub(crate) time_s: f64,
    pub(crate) sender: String,
    pub(crate) bytes: u64,
}

/// A row of `queue.csv`: the bottleneck. Counts are totals so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct QueueSample {
    pub(crate) time_s: f64,
    /// [`Bottleneck::name`].
    pub(crate) port: String,
    pub(crate) backlog_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) drops: u64,
    pub(crate) marks: u64,
}

/// A row of `counters.csv`: written at the start and whenever it changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CounterSample {
    pub(crate) time_s: f64,
    pub(crate) device: String,
    pub(crate) counter: String,
    pub(crate) value: u64,
}

/// A row of `events.csv`: a tracepoint `rxe_cc:*` or its like in a simulation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Event {
    pub(crate) time_s: f64,
    /// The tracepoint's name: `ce`, `cnp_tx`, `cnp_rx`, `rate_cut`, ...
    pub(crate) event: String,
    pub(crate) device: String,
    pub(crate) qpn: u32,
    pub(crate) peer_qpn: Option<u32>,
    pub(crate) rc_bps: Option<f64>,
    pub(crate) rt_bps: Option<f64>,
    pub(crate) alpha: Option<f64>,
    /// What else it says: `verdict=valid`, `held_us=1200`.
    pub(crate) detail: String,
}

/// A table's file.
pub(crate) trait Row: Serialize + DeserializeOwned {
    const FILE: &'static str;
}

macro_rules! rows {
    ($($row:ty: $file:literal),* $(,)?) => {
        $(impl Row for $row {
            const FILE: &'static str = $file;
        })*
    };
}

rows! {
    FlowSample: "flows.csv",
    GoodputSample: "goodput.csv",
    QueueSample: "queue.csv",
    CounterSample: "counters.csv",
    Event: "events.csv",
}

const RUN_FILE: &str = "run.json";

/// A recording that is being written.
pub(crate) struct Writer {
    dir: PathBuf,
}

impl Writer {
    /// In `dir`, which is made, and whose tables of an earlier recording go.
    pub(crate) fn create(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let files = [
            RUN_FILE,
            FlowSample::FILE,
            GoodputSample::FILE,
            QueueSample::FILE,
            CounterSample::FILE,
            Event::FILE,
        ];
        for file in files {
            match fs::remove_file(dir.join(file)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error)
                        .with_context(|| format!("cannot replace {file} in {}", dir.display()))
                }
                _ => {}
            }
        }
        Ok(Self {
            dir: dir.to_owned(),
        })
    }

    /// One table's rows, to be written as they come; flushed when dropped.
    pub(crate) fn table<R: Row>(&self) -> Result<csv::Writer<BufWriter<File>>> {
        let path = self.dir.join(R::FILE);
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(csv::Writer::from_writer(BufWriter::new(file)))
    }

    /// `run.json`; may be written again when more is known.
    pub(crate) fn run(&self, run: &Run) -> Result<()> {
        let path = self.dir.join(RUN_FILE);
        let mut text = serde_json::to_string_pretty(&Run {
            format: FORMAT,
            ..run.clone()
        })?;
        text.push('\n');
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A recording, whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Recording {
    pub(crate) run: Run,
    pub(crate) flows: Vec<FlowSample>,
    pub(crate) goodput: Vec<GoodputSample>,
    pub(crate) queue: Vec<QueueSample>,
    pub(crate) counters: Vec<CounterSample>,
    pub(crate) events: Vec<Event>,
}

impl Recording {
    /// Reads `dir`.
    ///
    /// # Errors
    ///
    /// There is no recording, it is of another format, or a table is damaged: the
    /// file and line are named.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(RUN_FILE);
        let text = fs::read_to_string(&path).with_context(|| {
            format!("{} is no recording: cannot read {RUN_FILE}", dir.display())
        })?;
        let run: Run = serde_json::from_str(&text)
            .with_context(|| format!("{} is damaged", path.display()))?;
        if run.format != FORMAT {
            bail!(
                "{} has format {}, this rxecc reads format {FORMAT}",
                path.display(),
                run.format
            );
        }
        Ok(Self {
            run,
            flows: read_table(dir)?,
            goodput: read_table(dir)?,
            queue: read_table(dir)?,
            counters: read_table(dir)?,
            events: read_table(dir)?,
        })
    }
}

fn read_table<R: Row>(dir: &Path) -> Result<Vec<R>> {
    let path = dir.join(R::FILE);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    csv::Reader::from_reader(BufReader::new(file))
        .deserialize()
        .collect::<Result<_, _>>()
        .with_context(|| format!("{} is damaged", path.display()))
}
