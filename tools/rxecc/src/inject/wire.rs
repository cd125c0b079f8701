// SPDX-License-Identifier: GPL-2.0

//! Onto the wire: IP packets come in, Ethernet frames leave a netdev through a raw
//! socket of the packet family.
//!
//! Such frames pass neither a QP nor netfilter's output hook, where the module would
//! make an ECT(0) of every CE. Everything here concerns the network namespace that the
//! calling thread is in. Which way packets go is the kernel's to say: it is asked for
//! the route and the neighbour with `ip`.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    os::fd::{AsRawFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use anyhow::{anyhow, bail, Context, Result};
use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    sys::socket::{
        bind, send, setsockopt, socket, sockopt::SndBufForce, AddressFamily, LinkAddr, MsgFlags,
        SockFlag, SockType,
    },
};
use serde::Deserialize;

use crate::program;

/// A MAC address.
pub(crate) type Mac = [u8; 6];

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];

/// Where packets to an address leave, by the routing table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The netdev; on a VLAN that of the VLAN, which adds the tag.
    pub(crate) netdev: String,
    /// The own address that the kernel would take.
    pub(crate) source: Option<IpAddr>,
    /// Whose MAC address the frame gets: the destination or a router.
    pub(crate) next_hop: IpAddr,
}

/// One line of `ip -json route get`.
#[derive(Deserialize)]
struct RouteLine {
    #[serde(rename = "type")]
    kind: Option<String>,
    gateway: Option<IpAddr>,
    dev: Option<String>,
    prefsrc: Option<IpAddr>,
}

/// The way to `to`.
///
/// # Errors
///
/// There is none, or the address is this host's own.
pub(crate) fn route(to: IpAddr) -> Result<Route> {
    let text = program::output("ip", &["-json", "route", "get", &to.to_string()])
        .with_context(|| format!("there is no route to {to}"))?;
    read_route(&text, to)
}

fn read_route(text: &str, to: IpAddr) -> Result<Route> {
    let lines: Vec<RouteLine> = serde_json::from_str(text).context("ip -json route get")?;
    let line = lines
        .into_iter()
        .next()
        .ok_or_else(|| anyhow!("there is no route to {to}"))?;
    if line.kind.as_deref() == Some("local") {
        bail!(
            "{to} is an address of the sending host itself: what it sends to itself passes \
             neither a link nor the module, so send from another host (--from)"
        );
    }
    Ok(Route {
        netdev: line
            .dev
            .ok_or_else(|| anyhow!("the route to {to} has no netdev"))?,
        source: line.prefsrc,
        next_hop: line.gateway.unwrap_or(to),
    })
}

/// One line of `ip -json neigh show`.
#[derive(Deserialize)]
struct NeighbourLine {
    lladdr: Option<String>,
}

/// The MAC address of `next_hop`, asked for on the link if it is not known yet.
///
/// # Errors
///
/// Nobody answers within two seconds.
pub(crate) fn neighbour(netdev: &str, next_hop: IpAddr) -> Result<Mac> {
    const PATIENCE: Duration = Duration::from_secs(2);

    let started = Instant::now();
    loop {
        let to = next_hop.to_string();
        let text = program::output("ip", &["-json", "neigh", "show", "to", &to, "dev", netdev])?;
        let lines: Vec<NeighbourLine> = match text.trim() {
            "" => Vec::new(),
            text => serde_json::from_str(text).context("ip -json neigh show")?,
        };
        if let Some(known) = lines.into_iter().find_map(|line| line.lladdr) {
            return parse_mac(&known)
                .map_err(|error| anyhow!("{next_hop} has the MAC address {known}: {error}"));
        }
        if started.elapsed() > PATIENCE {
            bail!(
                "nobody on {netdev} answers for {next_hop}: is that host up? (or give its \
                 address with --peer)"
            );
        }
        // Any datagram makes the kernel ask; nobody listens to this one.
        let any = match next_hop {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        const DISCARD: u16 = 9;
        if let Ok(socket) = UdpSocket::bind((any, 0)) {
            // An unreachable neighbour is an error here, and told about above.
            let _unreachable = socket.send_to(&[0], (next_hop, DISCARD));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// A MAC address as people write it.
///
/// # Errors
///
/// A sentence: it is none.
pub(crate) fn parse_mac(text: &str) -> Result<Mac, String> {
    let bytes: Option<Vec<u8>> = text
        .split(':')
        .map(|byte| {
            u8::from_str_radix(byte, 16)
                .ok()
                .filter(|_| byte.len() == 2)
        })
        .collect();
    bytes
        .and_then(|bytes| Mac::try_from(bytes).ok())
        .ok_or_else(|| "a MAC address is six bytes: 02:cc:00:00:00:02".to_owned())
}

/// A netdev, open for frames.
pub(crate) struct Wire {
    socket: OwnedFd,
    mac: Mac,
}

impl Wire {
    /// Opens a netdev of the thread's network namespace.
    ///
    /// # Errors
    ///
    /// It takes root; or there is no such Ethernet device.
    pub(crate) fn open(netdev: &str) -> Result<Self> {
        let link = getifaddrs()
            .context("cannot list the netdevs")?
            .filter(|interface| interface.interface_name == netdev)
            .find_map(|interface| interface.address?.as_link_addr().copied())
            .ok_or_else(|| anyhow!("there is no netdev {netdev} here"))?;
        let mac = LinkAddr::addr(&link)
            .filter(|_| link.halen() == 6)
            .ok_or_else(|| anyhow!("{netdev} is no Ethernet device"))?;
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .map_err(|errno| match errno {
            Errno::EPERM => anyhow!("raw frames take root: run this with sudo"),
            errno => anyhow!("cannot open a packet socket: {errno}"),
        })?;
        // Protocol 0: this socket receives nothing.
        bind(socket.as_raw_fd(), &link).with_context(|| format!("cannot use {netdev}"))?;
        // A burst should wait for the device and not for the socket's account.
        setsockopt(&socket, SndBufForce, &(8 << 20)).context("cannot set the socket up")?;
        Ok(Self { socket, mac })
    }

    /// An Ethernet frame around an IP packet.
    pub(crate) fn frame(&self, to: Mac, packet: &[u8]) -> Vec<u8> {
        let kind = match packet.first().map(|byte| byte >> 4) {
            Some(6) => ETHERTYPE_IPV6,
            _ => ETHERTYPE_IPV4,
        };
        [&to, &self.mac, kind.as_slice(), packet].concat()
    }

    /// Sends `frame` so many times, one every `interval` or back to back. A late one is
    /// not made up for: the interval is a least one.
    ///
    /// # Errors
    ///
    /// The device does not take it; the sentence says how many it took.
    pub(crate) fn send(&self, frame: &[u8], count: u64, interval: Duration) -> Result<()> {
        let mut due = Instant::now();
        for sent in 0..count {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            self.send_one(frame)
                .with_context(|| format!("after {sent} of {count} packets"))?;
            due = due.max(Instant::now()) + interval;
        }
        Ok(())
    }

    fn send_one(&self, frame: &[u8]) -> Result<()> {
        loop {
            match send(self.socket.as_raw_fd(), frame, MsgFlags::empty()) {
                Ok(_) => return Ok(()),
                // The device's queue is full.
                Err(Errno::ENOBUFS) => thread::sleep(Duration::from_micros(200)),
                Err(Errno::EINTR) => {}
                Err(Errno::EMSGSIZE) => bail!("the packet is longer than the netdev's MTU"),
                Err(errno) => bail!("the netdev does not take the frame: {errno}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_through_a_router_names_the_router_as_the_next_hop() {
        let text = r#"[{"dst":"10.9.0.2","gateway":"10.0.0.254","dev":"eth0","prefsrc":"10.0.0.1","flags":[],"uid":0,"cache":[]}]"#;
        let route = read_route(text, "10.9.0.2".parse().unwrap()).unwrap();
        assert_eq!(route.netdev, "eth0");
        assert_eq!(route.source, Some("10.0.0.1".parse().unwrap()));
        assert_eq!(route.next_hop, "10.0.0.254".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn a_route_on_the_link_names_the_destination_as_the_next_hop() {
        let text = r#"[{"dst":"fd00::2","dev":"eth0","protocol":"kernel","prefsrc":"fd00::1","metric":256,"flags":[],"pref":"medium"}]"#;
        let route = read_route(text, "fd00::2".parse().unwrap()).unwrap();
        assert_eq!(route.next_hop, "fd00::2".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn a_packet_to_oneself_is_refused_with_what_to_do() {
        let text = r#"[{"type":"local","dst":"10.0.0.1","dev":"lo","prefsrc":"10.0.0.1","flags":[],"uid":0,"cache":["local"]}]"#;
        let error = read_route(text, "10.0.0.1".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("--from"), "{error}");
    }

    #[test]
    fn a_mac_address_is_six_bytes_of_two_digits() {
        assert_eq!(parse_mac("02:cc:00:00:00:1f"), Ok([2, 0xcc, 0, 0, 0, 0x1f]));
        for bad in [
            "",
            "02:cc:00:00:00",
            "02:cc:00:00:00:1f:00",
            "2:cc:0:0:0:1",
            "02-cc-00-00-00-1f",
        ] {
            assert!(parse_mac(bad).is_err(), "{bad}");
        }
    }
}
