// SPDX-License-Identifier: GPL-2.0

//! What arrives of each sender: nft counts bytes by source address.
//!
//! In: the network namespace of a receiver. Out: bytes of IP packets to UDP port
//! 4791 so far, by source address. A table of its own holds one dynamic set for each
//! family, whose elements count; it is made by one `nft`, read by netlink, and
//! removed when the recording ends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{bail, Context, Result};
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::netlink::{attribute, attributes, encode, Socket};
use crate::system::Namespace;

/// NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETSETELEM.
const GET_ELEMENTS: u16 = 10 << 8 | 13;
const NFPROTO_INET: u8 = 1;

const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
const NFTA_SET_ELEM_LIST_SET: u16 = 2;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_SET_ELEM_EXPR: u16 = 7;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_COUNTER_BYTES: u16 = 1;

const SETS: [&str; 2] = ["v4", "v6"];

/// A receiver whose arrivals are counted.
pub(super) struct Receiver {
    namespace: Arc<Namespace>,
    table: String,
    socket: Socket,
}

impl Receiver {
    /// Counts in `namespace` from now on.
    ///
    /// # Errors
    ///
    /// There is no nft, or the kernel refuses the table.
    pub(super) fn open(namespace: Arc<Namespace>) -> Result<Self> {
        // Recorders beside each other do not meet.
        let table = format!("rxecc_{}", std::process::id());
        nft(
            &namespace,
            &format!(
                "table inet {table} {{
                    set v4 {{ type ipv4_addr; size 65535; flags dynamic; }}
                    set v6 {{ type ipv6_addr; size 65535; flags dynamic; }}
                    chain in {{
                        type filter hook input priority -300;
                        meta nfproto ipv4 udp dport 4791 update @v4 {{ ip saddr counter }}
                        meta nfproto ipv6 udp dport 4791 update @v6 {{ ip6 saddr counter }}
                    }}
                }}"
            ),
        )?;
        let socket = namespace.enter(|| Ok(Socket::open(NETLINK_NETFILTER)?))?;
        Ok(Self {
            namespace,
            table,
            socket,
        })
    }

    /// Bytes so far by source address.
    pub(super) fn sample(&mut self) -> io::Result<Vec<(IpAddr, u64)>> {
        let mut found = Vec::new();
        for set in SETS {
            let request = [
                // struct nfgenmsg: family, version, resource.
                vec![NFPROTO_INET, 0, 0, 0],
                encode(NFTA_SET_ELEM_LIST_TABLE, &text(&self.table)),
                encode(NFTA_SET_ELEM_LIST_SET, &text(set)),
            ]
            .concat();
            self.socket.dump(GET_ELEMENTS, &request, |payload| {
                found.extend(elements(payload));
            })?;
        }
        Ok(found)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // The namespace may be gone, and the table with it.
        let _ = nft(
            &self.namespace,
            &format!("delete table inet {}", self.table),
        );
    }
}

/// Runs a script of nft's inside a namespace.
fn nft(namespace: &Namespace, script: &str) -> Result<()> {
    let done = namespace.enter(|| {
        Command::new("nft")
            .arg(script)
            .stdin(Stdio::null())
            .output()
            .context("cannot run nft: install nftables, or record without --goodput")
    })?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        bail!("nft: {}", said.lines().next().unwrap_or("failed").trim());
    }
    Ok(())
}

fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

/// Addresses and bytes in one message of a dump.
fn elements(payload: &[u8]) -> Vec<(IpAddr, u64)> {
    let list = payload
        .get(4..)
        .and_then(|all| attribute(all, NFTA_SET_ELEM_LIST_ELEMENTS))
        .unwrap_or_default();
    attributes(list)
        .filter_map(|(_, one)| element(one))
        .collect()
}

fn element(bytes: &[u8]) -> Option<(IpAddr, u64)> {
    let key = attribute(attribute(bytes, NFTA_SET_ELEM_KEY)?, NFTA_DATA_VALUE)?;
    let address = match key.len() {
        4 => Ipv4Addr::from(*key.first_chunk::<4>()?).into(),
        16 => Ipv6Addr::from(*key.first_chunk::<16>()?).into(),
        _ => return None,
    };
    let expression = attribute(bytes, NFTA_SET_ELEM_EXPR)?;
    if attribute(expression, NFTA_EXPR_NAME)? != b"counter\0" {
        return None;
    }
    let counter = attribute(expression, NFTA_EXPR_DATA)?;
    let count = attribute(counter, NFTA_COUNTER_BYTES)?;
    Some((address, u64::from_be_bytes(*count.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(key: &[u8], name: &[u8], bytes: u64) -> Vec<u8> {
        let counter = encode(NFTA_COUNTER_BYTES, &bytes.to_be_bytes());
        let expression = [
            encode(NFTA_EXPR_NAME, name),
            encode(NFTA_EXPR_DATA | 1 << 15, &counter),
        ]
        .concat();
        let element = [
            encode(NFTA_SET_ELEM_KEY | 1 << 15, &encode(NFTA_DATA_VALUE, key)),
            encode(NFTA_SET_ELEM_EXPR | 1 << 15, &expression),
        ]
        .concat();
        [
            vec![NFPROTO_INET, 0, 0, 0],
            encode(
                NFTA_SET_ELEM_LIST_ELEMENTS | 1 << 15,
                &encode(1 | 1 << 15, &element),
            ),
        ]
        .concat()
    }

    #[test]
    fn both_families_and_big_counts_are_read() {
        let v4 = sample(&[10, 0, 0, 1], b"counter\0", 1 << 40);
        assert_eq!(elements(&v4), [("10.0.0.1".parse().unwrap(), 1 << 40)]);
        let v6: Ipv6Addr = "fd00::3".parse().unwrap();
        let message = sample(&v6.octets(), b"counter\0", 7);
        assert_eq!(elements(&message), [(v6.into(), 7)]);
    }

    #[test]
    fn elements_that_do_not_count_are_left_out() {
        assert_eq!(elements(&sample(&[10, 0, 0, 1], b"limit\0", 1)), []);
        assert_eq!(elements(&sample(&[10, 0, 1], b"counter\0", 1)), []);
        assert_eq!(elements(&[]), []);
    }
}
