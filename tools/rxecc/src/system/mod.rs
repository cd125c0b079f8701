// SPDX-License-Identifier: GPL-2.0

//! This machine: its RDMA devices of soft-RoCE, their knobs, counters and QPs.
//!
//! What comes in: sysfs and debugfs below a root that tests move. What goes out:
//! [`Device`]s with what they say of themselves, and knobs written. What it means is
//! left to the subcommands.
//!
//! A device's files are in up to three places. Its counters are where the RDMA device
//! is: the initial network namespace, unless `rdma system` says `exclusive`. Its knobs
//! are where its netdev is, and visible there alone. Its QPs are in debugfs, which root
//! alone may read. So [`System`] looks into every network namespace that it may enter.

mod device;
mod knob;
mod namespace;
mod qps;

use std::cmp::Ordering;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{bail, Context, Result};

#[cfg(test)]
pub(crate) use self::qps::{Np, Rp};
pub(crate) use self::{
    device::Device,
    knob::Knob,
    namespace::{Namespace, Tree},
    qps::Qp,
};

/// Whether an error, whatever was told about it since, is the kernel's refusal for
/// want of privilege.
pub(crate) fn needs_root(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// Whether this process is root, as far as files and namespaces are concerned.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// One file's text without the newline.
///
/// # Errors
///
/// With the path; the [`std::io::Error`] stays inside for [`needs_root`].
pub(crate) fn read(path: &Path) -> Result<String> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.trim_end_matches('\n').to_owned())
}

/// The names in a directory, numbers in them in the order of numbers; none if there is
/// no such directory.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_by(|one, other| natural_order(one, other));
    names
}

/// `rxe2` before `rxe10`.
pub(crate) fn natural_order(one: &str, other: &str) -> Ordering {
    fn split(name: &str) -> (&str, Option<u64>) {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        (stem, name[stem.len()..].parse().ok())
    }
    split(one).cmp(&split(other)).then_with(|| one.cmp(other))
}

/// The machine as it was when it was opened.
pub(crate) struct System {
    root: PathBuf,
    namespaces: Vec<Arc<Namespace>>,
    closed: Vec<String>,
    debug: Arc<Tree>,
}

impl System {
    /// `root` is `/`, or a tree of files with the same layout, made by a test: there
    /// `run/netns/NAME` is a directory with a `sys` of its own.
    ///
    /// # Errors
    ///
    /// There is no such tree.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        if !root.join("sys").is_dir() {
            bail!(
                "there is no sysfs at {}: mount it (mount -t sysfs sysfs /sys)",
                root.join("sys").display()
            );
        }
        let (namespaces, closed) = namespace::all(root);
        Ok(Self {
            debug: Arc::new(namespace::debugfs(root)),
            root: root.to_owned(),
            namespaces: namespaces.into_iter().map(Arc::new).collect(),
            closed,
        })
    }

    /// The network namespaces that could be looked into; the one that this process is
    /// in first.
    pub(crate) fn namespaces(&self) -> &[Arc<Namespace>] {
        &self.namespaces
    }

    /// Names of those that could not, which takes root.
    pub(crate) fn closed_namespaces(&self) -> &[String] {
        &self.closed
    }

    /// The network namespace with this name.
    ///
    /// # Errors
    ///
    /// There is none, or it takes root.
    pub(crate) fn namespace(&self, name: &str) -> Result<Arc<Namespace>> {
        if let Some(found) = self.namespaces.iter().find(|known| known.name == name) {
            return Ok(found.clone());
        }
        if self.closed.iter().any(|closed| closed == name) {
            bail!("only root may enter the network namespace {name}: run this with sudo");
        }
        bail!("there is no network namespace {name} (ip netns list names them)")
    }

    /// Whether the kernel has this module now, built in or loaded.
    pub(crate) fn has_module(&self, name: &str) -> bool {
        self.root.join("sys/module").join(name).is_dir()
    }

    /// All soft-RoCE devices, in the order of their names.
    pub(crate) fn devices(&self) -> Vec<Device> {
        let mut found: Vec<Device> = Vec::new();
        for namespace in &self.namespaces {
            let class = namespace.sys().join("class/infiniband");
            for name in names(&class) {
                let Some(device) = Device::open(&name, namespace, self) else {
                    continue;
                };
                match found.iter_mut().find(|known| known.name == name) {
                    None => found.push(device),
                    // A device that all namespaces share has its counters in one of them.
                    Some(known) if device.is_full() && !known.is_full() => *known = device,
                    Some(_) => {}
                }
            }
        }
        found.sort_by(|one, other| natural_order(&one.name, &other.name));
        device::settle(found, &self.namespaces)
    }

    /// The devices that `wanted` means: the name of an RDMA device (`rxe1`), of a
    /// netdev (`eth0`), of a netdev in a namespace (`h1/eth0`), or of a namespace with
    /// one device (`h1`). Without it all.
    ///
    /// # Errors
    ///
    /// There is no such device, or several, or no soft-RoCE at all.
    pub(crate) fn select(&self, wanted: Option<&str>) -> Result<Vec<Device>> {
        let devices = self.devices();
        if devices.is_empty() {
            bail!("{}", self.why_no_device());
        }
        let Some(wanted) = wanted else {
            return Ok(devices);
        };
        let all: Vec<String> = devices.iter().map(Device::title).collect();
        let mut found: Vec<Device> = devices
            .into_iter()
            .filter(|device| device.is_called(wanted))
            .collect();
        // A device's own name is never ambiguous, whatever netdevs are called.
        if let Some(place) = found.iter().position(|device| device.name == wanted) {
            return Ok(vec![found.swap_remove(place)]);
        }
        match found.len() {
            0 => bail!(
                "there is no soft-RoCE device {wanted}; there is {}",
                all.join(", ")
            ),
            1 => Ok(found),
            _ => {
                let titles: Vec<String> = found.iter().map(Device::title).collect();
                bail!(
                    "{wanted} may be {}: name the RDMA device",
                    titles.join(" or ")
                )
            }
        }
    }

    /// A sentence on what is missing before there is a device.
    fn why_no_device(&self) -> String {
        let add = "rdma link add rxe0 type rxe netdev eth0";
        if !self.has_module("rdma_rxe") {
            return format!("rdma_rxe is not loaded: modprobe rdma_rxe, then {add}");
        }
        format!("there is no soft-RoCE device: make one ({add})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_in_the_order_of_numbers() {
        let mut names = vec!["rxe10", "rxe2", "eth0", "rxe", "rxe1"];
        names.sort_by(|one, other| natural_order(one, other));
        assert_eq!(names, ["eth0", "rxe", "rxe1", "rxe2", "rxe10"]);
    }
}
