// SPDX-License-Identifier: GPL-2.0

//! Who sends: names for addresses and devices, and what is known of each sender at
//! the end.
//!
//! A sender is called as the network namespace that its device's netdev is in, and
//! as the device where that has no name or has several devices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::recording::{FlowSample, GoodputSample, Sender};
use crate::system::{natural_order, Device};

/// What arrived of somebody until then, and when that was first more than nothing.
#[derive(Default)]
struct Arrived {
    address: String,
    begin_s: Option<f64>,
    bytes: u64,
}

/// All that may send, and those that did.
pub(super) struct Senders {
    /// Device to name.
    devices: BTreeMap<String, String>,
    addresses: BTreeMap<IpAddr, String>,
    qps: BTreeMap<String, BTreeSet<u32>>,
    arrived: BTreeMap<String, Arrived>,
    /// When the last sample was.
    before_s: f64,
}

impl Senders {
    /// The names of `devices` and of their addresses.
    pub(super) fn of(devices: &[Device]) -> Self {
        let place = |device: &Device| {
            let netdev = device.netdev.as_ref()?;
            Some(netdev.namespace.name.clone()).filter(|name| !name.is_empty())
        };
        let mut found = Self {
            devices: BTreeMap::new(),
            addresses: BTreeMap::new(),
            qps: BTreeMap::new(),
            arrived: BTreeMap::new(),
            before_s: 0.0,
        };
        for device in devices {
            let mine = place(device);
            let shared = devices.iter().filter(|other| place(other) == mine).count() > 1;
            let name = mine
                .filter(|_| !shared)
                .unwrap_or_else(|| device.name.clone());
            for address in device.addresses() {
                found.addresses.insert(address, name.clone());
            }
            found.devices.insert(device.name.clone(), name);
        }
        found
    }

    /// The sender that has this device.
    pub(super) fn with_device(&self, device: &str) -> String {
        self.devices
            .get(device)
            .cloned()
            .unwrap_or_else(|| device.to_owned())
    }

    /// Notes that a QP sends.
    pub(super) fn note(&mut self, flow: &FlowSample) {
        let known = self.qps.entry(flow.sender.clone()).or_default();
        known.insert(flow.qpn);
    }

    /// Totals by address, of all receivers, as rows by sender. One that is new had
    /// nothing before, which is a row as well.
    pub(super) fn rows(&mut self, time_s: f64, totals: &[(IpAddr, u64)]) -> Vec<GoodputSample> {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (address, bytes) in totals {
            let text = address.to_string();
            let name = self.addresses.get(address).unwrap_or(&text).clone();
            self.arrived.entry(name.clone()).or_insert_with(|| Arrived {
                address: text,
                ..Arrived::default()
            });
            *sums.entry(name).or_default() += bytes;
        }
        let mut rows = Vec::new();
        for (sender, bytes) in sums {
            let Some(known) = self.arrived.get_mut(&sender) else {
                continue;
            };
            if bytes > 0 && known.begin_s.is_none() {
                known.begin_s = Some(self.before_s);
                rows.push(GoodputSample {
                    time_s: self.before_s,
                    sender: sender.clone(),
                    bytes: 0,
                });
            }
            known.bytes = bytes;
            rows.push(GoodputSample {
                time_s,
                sender,
                bytes,
            });
        }
        self.before_s = time_s;
        rows
    }

    /// Those that sent, in the order of their names.
    pub(super) fn sent(&self) -> Vec<Sender> {
        let names: BTreeSet<&String> = self.arrived.keys().chain(self.qps.keys()).collect();
        let mut all: Vec<Sender> = names
            .into_iter()
            .map(|name| {
                let arrived = self.arrived.get(name);
                let address = arrived.map(|arrived| arrived.address.clone()).or_else(|| {
                    let mut known = self.addresses.iter();
                    let (address, _) = known.find(|(_, owner)| *owner == name)?;
                    Some(address.to_string())
                });
                let mut device = self.devices.iter();
                let device = device.find(|(_, owner)| *owner == name);
                Sender {
                    name: name.clone(),
                    address: address.unwrap_or_default(),
                    device: device.map(|(device, _)| device.clone()).unwrap_or_default(),
                    qps: self
                        .qps
                        .get(name)
                        .and_then(|qps| u32::try_from(qps.len()).ok())
                        .unwrap_or(0),
                    begin_s: arrived.and_then(|arrived| arrived.begin_s),
                    ..Sender::default()
                }
            })
            .collect();
        all.sort_by(|one, other| natural_order(&one.name, &other.name));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn senders() -> Senders {
        let mut senders = Senders::of(&[]);
        for (device, name, address) in [("rxe1", "h1", "10.0.0.1"), ("rxe2", "h2", "10.0.0.2")] {
            senders.devices.insert(device.into(), name.into());
            senders
                .addresses
                .insert(address.parse().unwrap(), name.into());
        }
        senders
            .addresses
            .insert("fd00::1".parse().unwrap(), "h1".into());
        senders
    }

    fn row(time_s: f64, sender: &str, bytes: u64) -> GoodputSample {
        GoodputSample {
            time_s,
            sender: sender.into(),
            bytes,
        }
    }

    #[test]
    fn the_first_bytes_of_a_sender_come_after_a_row_of_none() {
        let mut senders = senders();
        let h1: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(senders.rows(0.0, &[]), []);
        assert_eq!(senders.rows(1.0, &[(h1, 0)]), [row(1.0, "h1", 0)]);
        assert_eq!(
            senders.rows(2.0, &[(h1, 9)]),
            [row(1.0, "h1", 0), row(2.0, "h1", 9)]
        );
        assert_eq!(senders.rows(3.0, &[(h1, 12)]), [row(3.0, "h1", 12)]);
        assert_eq!(senders.sent()[0].begin_s, Some(1.0));
    }

    #[test]
    fn a_sender_is_one_whatever_addresses_and_receivers_it_has() {
        let mut senders = senders();
        let totals = [
            ("10.0.0.1", 5),
            ("fd00::1", 7),
            ("10.0.0.1", 1),
            ("10.0.0.9", 3),
        ]
        .map(|(address, bytes)| (address.parse().unwrap(), bytes));
        let rows = senders.rows(1.0, &totals);
        assert_eq!(rows.last(), Some(&row(1.0, "h1", 13)));
        assert!(rows.contains(&row(1.0, "10.0.0.9", 3)));
        let sent = senders.sent();
        let names: Vec<&str> = sent.iter().map(|sender| &*sender.name).collect();
        assert_eq!(names, ["10.0.0.9", "h1"]);
        assert_eq!(sent[1].device, "rxe1");
    }

    #[test]
    fn qps_are_counted_once_each() {
        let mut senders = senders();
        for qpn in [17, 18, 17] {
            senders.note(&FlowSample {
                sender: "h2".into(),
                qpn,
                ..FlowSample::default()
            });
        }
        let sent = senders.sent();
        assert_eq!((sent[0].qps, &*sent[0].address), (2, "10.0.0.2"));
    }
}
