// SPDX-License-Identifier: GPL-2.0

//! One soft-RoCE device: where it and its netdev are, its knobs, counters and QPs.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{anyhow, bail, Context, Result};
use rxe_cc::dcqcn::params::{Id, UNKNOWN_LINE_RATE_MBPS};

use super::namespace::{Namespace, Tree};
use super::{is_root, names, qps, read, Knob, Qp, System};

/// The counters that the module adds to rxe's own `hw_counters`.
const STANDARD: [&str; 4] = [
    "np_ecn_marked_roce_packets",
    "np_cnp_sent",
    "rp_cnp_handled",
    "rp_cnp_ignored",
];

/// So many empty places in a row end the table of GIDs.
const WIDEST_GAP: u32 = 16;

/// A soft-RoCE device.
#[derive(Clone)]
pub(crate) struct Device {
    /// `rxe1`.
    pub(crate) name: String,
    /// What it calls its netdev; empty if it has lost it.
    pub(crate) netdev_name: String,
    /// The netdev, if it is in a namespace that could be looked into.
    pub(crate) netdev: Option<Netdev>,
    /// Where the RDMA device is: its counters are seen there.
    pub(crate) namespace: Arc<Namespace>,
    dir: PathBuf,
    debug: Arc<Tree>,
}

/// A netdev, which has the knobs.
#[derive(Clone)]
pub(crate) struct Netdev {
    pub(crate) name: String,
    /// Where it is.
    pub(crate) namespace: Arc<Namespace>,
    dir: PathBuf,
}

impl Device {
    /// The RDMA device `name` as `namespace` shows it; nothing if it is no soft-RoCE.
    pub(super) fn open(name: &str, namespace: &Arc<Namespace>, system: &System) -> Option<Self> {
        let dir = namespace.sys().join("class/infiniband").join(name);
        // Only rxe's devices name a parent.
        let netdev_name = read(&dir.join("parent")).ok()?;
        Some(Self {
            name: name.to_owned(),
            netdev_name,
            netdev: None,
            namespace: namespace.clone(),
            dir,
            debug: system.debug.clone(),
        })
    }

    /// Where devices are shared, each namespace shows all of them, one with counters.
    pub(super) fn is_full(&self) -> bool {
        self.port().join("hw_counters").is_dir()
    }

    fn port(&self) -> PathBuf {
        self.dir.join("ports/1")
    }

    /// For people: `rxe1 (h1/eth0)`.
    pub(crate) fn title(&self) -> String {
        match (&self.netdev, &*self.netdev_name) {
            (Some(netdev), _) => format!("{} ({})", self.name, netdev.title()),
            (None, "") => self.name.clone(),
            (None, name) => format!("{} ({name})", self.name),
        }
    }

    /// Whether a person may mean this device by `name`.
    pub(super) fn is_called(&self, name: &str) -> bool {
        let by_netdev = self.netdev.as_ref().is_some_and(|netdev| {
            let namespace = &netdev.namespace.name;
            !namespace.is_empty() && name == namespace || name == netdev.title()
        });
        name == self.name || name == self.netdev_name || by_netdev
    }

    /// The netdev with the knobs.
    ///
    /// # Errors
    ///
    /// It is in a namespace that only root may look into, or in one without a name.
    pub(crate) fn netdev(&self) -> Result<&Netdev> {
        match &self.netdev {
            Some(netdev) => Ok(netdev),
            None if is_root() => bail!(
                "the netdev of {} ({}) is in a network namespace without a name: run this inside it (nsenter -n)",
                self.name,
                self.netdev_name
            ),
            None => bail!(
                "the netdev of {} ({}) is in another network namespace, which only root may look into: run this with sudo",
                self.name,
                self.netdev_name
            ),
        }
    }

    /// A knob's value.
    ///
    /// # Errors
    ///
    /// The netdev or its knobs are not there; the sentence says what to do.
    pub(crate) fn knob(&self, knob: Knob) -> Result<u32> {
        let path = self.knob_path(knob)?;
        let text = read(&path)?;
        knob.parse(&text)
            .with_context(|| format!("{} is not of this version's module", path.display()))
    }

    /// Writes a knob; the value was checked by [`Knob::parse`].
    ///
    /// # Errors
    ///
    /// As [`Device::knob`], and only root may write.
    pub(crate) fn set_knob(&self, knob: Knob, value: u32) -> Result<()> {
        let path = self.knob_path(knob)?;
        fs::write(&path, knob.show(value)).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                anyhow!("only root may write knobs: run this with sudo")
            }
            _ => anyhow!(error).context(format!(
                "{} of {} refuses {}",
                knob.path(),
                self.title(),
                knob.show(value)
            )),
        })
    }

    /// All knobs and their values, in the order of [`Knob::all`].
    ///
    /// # Errors
    ///
    /// As [`Device::knob`].
    pub(crate) fn knobs(&self) -> Result<Vec<(Knob, u32)>> {
        Knob::all()
            .into_iter()
            .map(|knob| Ok((knob, self.knob(knob)?)))
            .collect()
    }

    fn knob_path(&self, knob: Knob) -> Result<PathBuf> {
        let netdev = self.netdev()?;
        let ecn = netdev.dir.join("ecn");
        if !ecn.is_dir() {
            bail!(
                "rxe_cc is not loaded, so {} has no knobs: modprobe rxe_cc (or insmod rxe_cc.ko)",
                self.title()
            );
        }
        Ok(ecn.join(knob.path()))
    }

    /// The rate that the module takes the link for, Mb/s: the knob, else what the
    /// netdev says, else the module's guess.
    ///
    /// # Errors
    ///
    /// As [`Device::knob`].
    pub(crate) fn line_rate_mbps(&self) -> Result<u32> {
        match self.knob(Knob::Param(Id::LineRate))? {
            0 => self.netdev_rate_mbps(),
            rate => Ok(rate),
        }
    }

    /// The same as if the knob were 0.
    ///
    /// # Errors
    ///
    /// As [`Device::netdev`].
    pub(crate) fn netdev_rate_mbps(&self) -> Result<u32> {
        let speed = self.netdev()?.speed_mbps();
        Ok(speed.unwrap_or(UNKNOWN_LINE_RATE_MBPS))
    }

    /// The module's counters: its four in `hw_counters`, and its own directory.
    ///
    /// # Errors
    ///
    /// The module is not loaded.
    pub(crate) fn counters(&self) -> Result<BTreeMap<String, u64>> {
        let own = self.port().join("rxe_cc");
        if !own.is_dir() {
            bail!(
                "rxe_cc is not loaded, so {} has no counters of it: modprobe rxe_cc (or insmod rxe_cc.ko)",
                self.name
            );
        }
        let mut counters = read_counters(&own);
        let theirs = self.rxe_counters();
        for name in STANDARD {
            if let Some(value) = theirs.get(name) {
                counters.insert(name.to_owned(), *value);
            }
        }
        Ok(counters)
    }

    /// All of `hw_counters`: rxe's own, and the module's four if it is loaded.
    pub(crate) fn rxe_counters(&self) -> BTreeMap<String, u64> {
        read_counters(&self.port().join("hw_counters"))
    }

    /// The QPs that packets came for lately.
    ///
    /// # Errors
    ///
    /// Only root may read debugfs ([`super::needs_root`] tells), or the module is not
    /// loaded.
    pub(crate) fn qps(&self) -> Result<Vec<Qp>> {
        let path = self
            .debug
            .path()
            .join("rxe_cc")
            .join(&self.name)
            .join("qps");
        qps::parse(&read(&path)?).with_context(|| format!("cannot understand {}", path.display()))
    }

    /// The addresses that its QPs may have, in the order of the GIDs.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        let gids = self.port().join("gids");
        let mut found = Vec::new();
        // The table has 1024 places, the first of which are in use: what was deleted
        // leaves a gap, but not a wide one.
        let mut empty = 0;
        for index in 0..1024 {
            let Ok(gid) = read(&gids.join(index.to_string())) else {
                break;
            };
            let Ok(gid) = gid.parse::<Ipv6Addr>() else {
                continue;
            };
            if gid.is_unspecified() {
                empty += 1;
                if empty == WIDEST_GAP {
                    break;
                }
                continue;
            }
            empty = 0;
            let address = match gid.to_ipv4_mapped() {
                Some(address) => IpAddr::V4(address),
                None => IpAddr::V6(gid),
            };
            if !found.contains(&address) {
                found.push(address);
            }
        }
        found
    }

    /// The GUID, which rxe makes of the netdev's MAC address.
    fn guid(&self) -> Option<String> {
        read(&self.dir.join("node_guid")).ok()
    }
}

impl Netdev {
    fn open(name: &str, namespace: &Arc<Namespace>) -> Option<Self> {
        let dir = namespace.sys().join("class/net").join(name);
        dir.is_dir().then(|| Self {
            name: name.to_owned(),
            namespace: namespace.clone(),
            dir,
        })
    }

    /// For people, and for `-d`: `h1/eth0`.
    pub(crate) fn title(&self) -> String {
        match &*self.namespace.name {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }

    /// Its directory in sysfs.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// What it claims its link carries, Mb/s; nothing where it makes no claim.
    pub(crate) fn speed_mbps(&self) -> Option<u32> {
        let speed: i64 = read(&self.dir.join("speed")).ok()?.parse().ok()?;
        u32::try_from(speed).ok().filter(|speed| *speed > 0)
    }

    /// `xx:xx:xx:xx:xx:xx` as the GUID `xxxx:xxff:fexx:xxxx` of an rxe device on it.
    fn guid(&self) -> Option<String> {
        let address = read(&self.dir.join("address")).ok()?;
        let mac: Vec<u8> = address
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16).ok())
            .collect::<Option<_>>()?;
        let [a, b, c, d, e, f] = mac[..] else {
            return None;
        };
        // EUI-64 with the universal/local bit turned.
        let a = a ^ 2;
        Some(format!("{a:02x}{b:02x}:{c:02x}ff:fe{d:02x}:{e:02x}{f:02x}"))
    }
}

/// Finds the netdev of each device. A device tells the netdev's name alone, and every
/// namespace may have an `eth0`: the MAC address decides, or that there is only one
/// left (a MAC address may have been changed since).
pub(super) fn settle(mut devices: Vec<Device>, namespaces: &[Arc<Namespace>]) -> Vec<Device> {
    let candidates = |name: &str| -> Vec<Netdev> {
        namespaces
            .iter()
            .filter_map(|namespace| Netdev::open(name, namespace))
            .collect()
    };
    let same = |one: &Netdev, other: &Netdev| {
        Arc::ptr_eq(&one.namespace, &other.namespace) && one.name == other.name
    };
    for device in &mut devices {
        let guid = device.guid();
        let mut found = candidates(&device.netdev_name);
        found.retain(|netdev| guid.is_some() && netdev.guid() == guid);
        if found.len() == 1 {
            device.netdev = found.pop();
        }
    }
    for place in 0..devices.len() {
        if devices[place].netdev.is_some() {
            continue;
        }
        let mut found = candidates(&devices[place].netdev_name);
        found.retain(|netdev| {
            !devices.iter().any(|device| {
                device
                    .netdev
                    .as_ref()
                    .is_some_and(|taken| same(taken, netdev))
            })
        });
        // Where knobs are, there is a device.
        if found.iter().any(|netdev| netdev.dir.join("ecn").is_dir()) {
            found.retain(|netdev| netdev.dir.join("ecn").is_dir());
        }
        if found.len() == 1 {
            devices[place].netdev = found.pop();
        }
    }
    devices
}

fn read_counters(dir: &Path) -> BTreeMap<String, u64> {
    names(dir)
        .into_iter()
        .filter_map(|name| {
            let value = read(&dir.join(&name)).ok()?.parse().ok()?;
            Some((name, value))
        })
        .collect()
}
