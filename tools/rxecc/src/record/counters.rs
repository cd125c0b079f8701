// SPDX-License-Identifier: GPL-2.0

//! Counters of devices: rxe's own and the module's, told when they changed.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use crate::recording::CounterSample;
use crate::system::{names, Device};

/// Below a device's `ports/1`.
const DIRECTORIES: [&str; 2] = ["hw_counters", "rxe_cc"];

/// No counters: how rxe may keep its own.
const NO_COUNTERS: [&str; 1] = ["lifespan"];

struct Counter {
    device: String,
    name: String,
    path: PathBuf,
    last: Option<u64>,
}

/// The counters of some devices. Which there are is looked up once: a sample opens
/// files and lists no directory.
pub(super) struct Counters {
    all: Vec<Counter>,
    text: String,
}

impl Counters {
    /// Those of `devices`, as far as there are any.
    pub(super) fn of(devices: &[Device]) -> Self {
        let mut all = Vec::new();
        for device in devices {
            let class = device.namespace.sys().join("class/infiniband");
            for directory in DIRECTORIES {
                let dir = class.join(&device.name).join("ports/1").join(directory);
                for name in names(&dir) {
                    if !NO_COUNTERS.contains(&&*name) {
                        all.push(Counter {
                            device: device.name.clone(),
                            path: dir.join(&name),
                            name,
                            last: None,
                        });
                    }
                }
            }
        }
        Self {
            all,
            text: String::new(),
        }
    }

    /// Those that changed since the last call; at the first call all.
    pub(super) fn changes(&mut self, time_s: f64) -> Vec<CounterSample> {
        let mut changed = Vec::new();
        for counter in &mut self.all {
            self.text.clear();
            let read =
                File::open(&counter.path).and_then(|mut file| file.read_to_string(&mut self.text));
            // Gone with its device or the module: its last value stands.
            let (Ok(_), Ok(value)) = (read, self.text.trim_end().parse()) else {
                continue;
            };
            if counter.last.replace(value) != Some(value) {
                changed.push(CounterSample {
                    time_s,
                    device: counter.device.clone(),
                    counter: counter.name.clone(),
                    value,
                });
            }
        }
        changed
    }
}
