// SPDX-License-Identifier: GPL-2.0

//! Whom a crafted packet is for, and who it comes from: names of devices and a QPN
//! come in, addresses, the sender's network namespace and what is known of the QP go
//! out.
//!
//! The module's own view of a QP (debugfs) knows the peer's address, but only once a
//! packet came for that QP. Before that the RDMA core knows the peer's QPN, and which
//! device of this machine has that one with this as its peer.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{anyhow, bail, Context, Result};
use rxe_cc::roce::{
    opcode::Service,
    packet::{Addr, PSN_MASK, QP1},
};
use serde::Deserialize;

use crate::program;
use crate::system::{Device, Namespace, System};

/// A QP as the RDMA core knows it: a line of `rdma -j resource show qp`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct CoreQp {
    pub(crate) ifname: String,
    pub(crate) lqpn: u32,
    pub(crate) rqpn: Option<u32>,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) state: String,
    pub(crate) rq_psn: Option<u32>,
}

/// Every QP that the RDMA core tells of here.
///
/// # Errors
///
/// `rdma` is missing or fails.
pub(crate) fn core_qps() -> Result<Vec<CoreQp>> {
    read_core_qps(&program::output("rdma", &["-j", "resource", "show", "qp"])?)
}

fn read_core_qps(text: &str) -> Result<Vec<CoreQp>> {
    match text.trim() {
        "" => Ok(Vec::new()),
        text => serde_json::from_str(text).context("rdma -j resource show qp"),
    }
}

/// A device's addresses, link-local ones last.
fn addresses(device: &Device) -> Vec<IpAddr> {
    let mut found = device.addresses();
    found.sort_by_key(is_link_local);
    found
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// As the crate's packets want it.
pub(crate) fn to_addr(address: IpAddr) -> Addr {
    match address {
        IpAddr::V4(v4) => Addr::V4(v4.octets()),
        IpAddr::V6(v6) => Addr::V6(v6.octets()),
    }
}

/// What a person said about the two ends.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// Device, namespace or address of the receiver.
    pub(crate) to: String,
    /// Device or namespace of the sender.
    pub(crate) from: Option<String>,
    /// The receiver's QPN.
    pub(crate) qpn: u32,
    /// Another source address than the sender's own.
    pub(crate) source: Option<IpAddr>,
}

/// The two ends, found.
pub(crate) struct Target {
    /// Where frames leave.
    pub(crate) sender: Arc<Namespace>,
    /// None: what the sender's route says.
    pub(crate) source: Option<IpAddr>,
    pub(crate) destination: IpAddr,
    /// The receiver's device, if it is on this machine.
    pub(crate) device: Option<Device>,
    /// The receiving QP's service, where it is known.
    pub(crate) service: Option<Service>,
    /// The QPN of its peer, where it has one.
    pub(crate) peer_qpn: Option<u32>,
    /// A PSN that the QP has seen: one behind what it expects.
    pub(crate) stale_psn: Option<u32>,
    /// What the reader should know about how this was found.
    pub(crate) notes: Vec<String>,
}

/// What is known of one QP of a device, from both who know something.
#[derive(Default)]
struct Known {
    service: Option<Service>,
    peer_qpn: Option<u32>,
    peer: Option<IpAddr>,
    rq_psn: Option<u32>,
    exists: bool,
}

fn service(name: &str) -> Option<Service> {
    match name {
        "RC" => Some(Service::Rc),
        "UC" => Some(Service::Uc),
        "UD" => Some(Service::Ud),
        _ => None,
    }
}

fn known(device: &Device, qpn: u32, core: &[CoreQp]) -> Known {
    let mut known = Known::default();
    if let Some(qp) = core
        .iter()
        .find(|qp| qp.ifname == device.name && qp.lqpn == qpn)
    {
        known.exists = true;
        known.service = service(&qp.kind);
        known.peer_qpn = qp.rqpn;
        known.rq_psn = qp.rq_psn;
    }
    // Without root, or before its first packet, there is nothing here.
    if let Some(qp) = device
        .qps()
        .ok()
        .and_then(|qps| qps.into_iter().find(|qp| qp.qpn == qpn))
    {
        known.exists = true;
        known.service = known.service.or_else(|| service(&qp.service));
        known.peer_qpn = known.peer_qpn.or(qp.peer_qpn);
        known.peer = qp.peer.and_then(|peer| peer.parse().ok());
    }
    known
}

/// Finds the two ends.
///
/// # Errors
///
/// A name that means nothing, or an end that this machine does not know: the sentence
/// says which option tells it.
pub(crate) fn find(system: &System, wish: &Wish) -> Result<Target> {
    let devices = system.devices();
    let asked_address: Option<IpAddr> = wish.to.parse().ok();
    let device = match asked_address {
        Some(address) => devices
            .iter()
            .find(|device| addresses(device).contains(&address))
            .cloned(),
        None => system.select(Some(&wish.to))?.into_iter().next(),
    };
    let mut notes = Vec::new();
    let core = core_qps().unwrap_or_else(|error| {
        notes.push(format!("QPs are known by packets alone: {error:#}"));
        Vec::new()
    });
    let known = device
        .as_ref()
        .map_or_else(Known::default, |device| known(device, wish.qpn, &core));
    if let (Some(device), false, true) = (&device, known.exists, wish.qpn > QP1) {
        notes.push(format!("{} has no QP {}", device.name, wish.qpn));
    }

    let peer_device = || -> Option<&Device> {
        let others = devices.iter().filter(|other| {
            device
                .as_ref()
                .is_none_or(|device| device.name != other.name)
        });
        match known.peer {
            Some(peer) => others
                .into_iter()
                .find(|other| addresses(other).contains(&peer)),
            None => only(others.filter(|other| {
                core.iter().any(|qp| {
                    qp.ifname == other.name
                        && Some(qp.lqpn) == known.peer_qpn
                        && qp.rqpn == Some(wish.qpn)
                })
            })),
        }
    };
    let sender = match &wish.from {
        Some(from) => namespace(system, from)?,
        None => match peer_device() {
            Some(peer) => peer.netdev()?.namespace.clone(),
            None => bail!(
                "the peer of QP {} is not known on this machine: say who sends with --from \
                 (a device or a network namespace)",
                wish.qpn
            ),
        },
    };

    let source = wish.source.or(known.peer);
    let same_family =
        |address: &IpAddr| source.is_none_or(|source| source.is_ipv4() == address.is_ipv4());
    let destination = match (asked_address, &device) {
        (Some(address), _) => address,
        (None, Some(device)) => own_address(device, &devices, &known, wish.qpn)
            .filter(same_family)
            .or_else(|| addresses(device).into_iter().find(same_family))
            .ok_or_else(|| {
                anyhow!(
                    "{} has no address: ip address add ... dev {}",
                    device.name,
                    device.netdev_name
                )
            })?,
        (None, None) => bail!("there is no device {}", wish.to),
    };
    if known.exists && known.peer.is_none() && known.peer_qpn.is_some() && wish.source.is_none() {
        notes.push(format!(
            "no packet came for QP {} yet, so its peer's address is a guess (--source and --to tell it)",
            wish.qpn
        ));
    }
    Ok(Target {
        sender,
        source,
        destination,
        device,
        service: known.service,
        peer_qpn: known.peer_qpn,
        stale_psn: known.rq_psn.map(|psn| psn.wrapping_sub(1) & PSN_MASK),
        notes,
    })
}

/// The receiver's address as its peer knows it.
fn own_address(device: &Device, devices: &[Device], known: &Known, qpn: u32) -> Option<IpAddr> {
    let peer_qpn = known.peer_qpn?;
    devices
        .iter()
        .filter(|other| other.name != device.name)
        .filter_map(|other| other.qps().ok())
        .flatten()
        .filter(|qp| qp.qpn == peer_qpn && qp.peer_qpn == Some(qpn))
        .filter_map(|qp| qp.peer?.parse().ok())
        .find(|address| addresses(device).contains(address))
}

/// The network namespace that `name` means: of a device's netdev, or by its own name.
fn namespace(system: &System, name: &str) -> Result<Arc<Namespace>> {
    match system.select(Some(name)) {
        Ok(devices) => match devices.first() {
            Some(device) => Ok(device.netdev()?.namespace.clone()),
            None => system.namespace(name),
        },
        Err(no_device) => system.namespace(name).map_err(|_| no_device),
    }
}

/// The one there is, if there is one only.
fn only<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cores_qps_are_read_with_what_is_missing_left_out() {
        let text = r#"[{"ifindex":0,"ifname":"rxe1","port":1,"lqpn":17,"rqpn":18,"type":"RC","state":"RTS","rq-psn":5,"sq-psn":9,"path-mig-state":"MIGRATED","pid":77,"comm":"ib_write_bw"},
            {"ifindex":0,"ifname":"rxe1","port":1,"lqpn":1,"type":"GSI","state":"RTS","sq-psn":0,"comm":"ib_core"}]"#;
        let qps = read_core_qps(text).unwrap();
        assert_eq!(
            (qps[0].lqpn, qps[0].rqpn, qps[0].rq_psn),
            (17, Some(18), Some(5))
        );
        assert_eq!(
            (qps[1].lqpn, qps[1].rqpn, qps[1].kind.as_str()),
            (1, None, "GSI")
        );
        assert_eq!(read_core_qps("").unwrap(), []);
    }
}
