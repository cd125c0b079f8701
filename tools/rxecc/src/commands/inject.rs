// SPDX-License-Identifier: GPL-2.0

//! `rxecc inject`: its options, and what it tells about what it did.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail, Result};
use clap::{Args, ValueEnum};
use rxe_cc::roce::{
    cnp::{DEFAULT_DSCP, DEFAULT_TTL},
    opcode::{self, Service},
    packet::{Ecn, PSN_MASK, QPN_MASK},
};

use crate::inject::{
    packet::{parse_number, parse_opcode, request_of, Packet},
    target::{self, to_addr, Target, Wish},
    wire::{self, parse_mac, Mac, Wire},
};
use crate::system::{Device, System};
use crate::text::print;

/// How long counters may take to show the last packet.
const SETTLE: Duration = Duration::from_millis(300);

/// The UDP source port of data, as good as any.
const DATA_SPORT: u16 = 49152;

const EXAMPLES: &str = "\
Examples, with a stream from h1 to h2 running (rxecc status lists its QPs):
  rxecc inject ce --to rxe2 --qpn 18                     one marked packet to a QP of rxe2
  rxecc inject ce --to rxe2 --qpn 18 --count 2000 --interval-us 1000
  rxecc inject cnp --to rxe1 --qpn 17                    slow a QP of rxe1 down
  rxecc inject cnp --to rxe1 --qpn 17 --bad-icrc         one that must be ignored
  rxecc inject cnp --to rxe1 --qpn 17 --source 10.0.0.9  one of a stranger
  rxecc inject ce --from h1 --to 10.0.0.2 --qpn 0x77 --psn 0";

/// What to send, and to whom.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A data packet with a CE mark, or a congestion notification.
    kind: Kind,

    /// Receiver: RDMA device, network namespace, or IP address.
    #[arg(long, value_name = "DEV|NETNS|ADDR")]
    to: String,

    /// Sender: RDMA device or network namespace. Without it the host of the QP's peer.
    #[arg(long, value_name = "DEV|NETNS")]
    from: Option<String>,

    /// The receiver's QP, decimal or 0x....
    #[arg(long, value_parser = parse_qpn)]
    qpn: u32,

    /// How many packets.
    #[arg(long, default_value_t = 1)]
    count: u64,

    /// Time between two packets; 0: back to back.
    #[arg(long, default_value_t = 0)]
    interval_us: u64,

    /// MAC address of the next hop, if the neighbour table should not be asked.
    #[arg(long, value_name = "MAC", value_parser = parse_mac)]
    peer: Option<Mac>,

    /// Source address, the sender's own or not.
    #[arg(long, value_name = "ADDR")]
    source: Option<IpAddr>,

    /// PSN. Without it one that the QP has had already: the packet is then a duplicate,
    /// which changes nothing. One that the QP does not expect yet is answered by a NAK.
    #[arg(long, value_parser = parse_psn)]
    psn: Option<u32>,

    /// Name or number. Without it SEND_ONLY of the QP's service, or CNP.
    #[arg(long, value_parser = parse_opcode)]
    opcode: Option<u8>,

    /// QPN of the sender, in UD packets. Without it the peer's.
    #[arg(long, value_parser = parse_qpn)]
    source_qpn: Option<u32>,

    /// Bytes of payload.
    #[arg(long, default_value_t = 64)]
    payload: u16,

    /// P_Key.
    #[arg(long, value_parser = parse_u16, default_value = "0xffff")]
    pkey: u16,

    /// TOS or traffic class byte: DSCP and ECN. Without it 3 (CE), or DSCP 48 and
    /// ECT(0) of a CNP.
    #[arg(long, value_parser = parse_u8)]
    tos: Option<u8>,

    /// TTL or hop limit.
    #[arg(long, default_value_t = DEFAULT_TTL)]
    ttl: u8,

    /// UDP source port. Without it 49152, or 0 of a CNP.
    #[arg(long)]
    sport: Option<u16>,

    /// Transport header version; only 0 exists.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    tver: u8,

    /// Spoil the ICRC.
    #[arg(long)]
    bad_icrc: bool,

    /// Set all reserved bits of the BTH, and the reserved bytes of a CNP.
    #[arg(long)]
    reserved: bool,

    /// Leave so many bytes off the end.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    truncate: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A data packet with a CE mark: the receiver's notification point answers with a CNP.
    Ce,
    /// A congestion notification packet: the receiver's reaction point cuts the QP's rate.
    Cnp,
}

/// Sends, and tells what was sent and what the receiver counted.
pub(crate) fn run(options: &Options, system: &System) -> Result<bool> {
    let wish = Wish {
        to: options.to.clone(),
        from: options.from.clone(),
        qpn: options.qpn,
        source: options.source,
    };
    let target = target::find(system, &wish)?;
    let before = counters(target.device.as_ref());
    let (packet, length) = target.sender.enter(|| send(options, &target))?;

    for note in &target.notes {
        eprintln!("rxecc: note: {note}");
    }
    let every = match options.interval_us {
        0 => String::new(),
        us => format!(", one every {us} us"),
    };
    let mut text = format!(
        "{} {}, {length} bytes of IP, TOS 0x{:02x}, {} -> {} QP {} (0x{:x}), PSN {}, from {}{every}\n",
        options.count,
        packet.name(),
        packet.tos,
        show(packet.src),
        show(packet.dst),
        packet.dest_qp,
        packet.dest_qp,
        packet.psn,
        target.sender.title(),
    );
    if let (Some(device), Some(before)) = (&target.device, before) {
        thread::sleep(SETTLE);
        let gained = gained(&before, &device.counters()?);
        text += &format!("{}: {gained}\n", device.name);
    }
    print(&text)?;
    Ok(true)
}

/// In the sender's network namespace.
fn send(options: &Options, target: &Target) -> Result<(Packet, usize)> {
    let route = wire::route(target.destination)?;
    let wire = Wire::open(&route.netdev)?;
    let source = target.source.or(route.source).ok_or_else(|| {
        anyhow!(
            "{} has no address to send from: give one with --source",
            route.netdev
        )
    })?;
    let packet = packet(options, target, source)?;
    let bytes = packet.to_bytes()?;
    let to = match options.peer {
        Some(mac) => mac,
        None => wire::neighbour(&route.netdev, route.next_hop)?,
    };
    let frame = wire.frame(to, &bytes);
    wire.send(
        &frame,
        options.count,
        Duration::from_micros(options.interval_us),
    )?;
    Ok((packet, bytes.len()))
}

fn packet(options: &Options, target: &Target, source: IpAddr) -> Result<Packet> {
    let opcode = options.opcode.unwrap_or(match options.kind {
        Kind::Ce => request_of(target.service.unwrap_or(Service::Rc)),
        Kind::Cnp => opcode::CNP,
    });
    let is_cnp = options.kind == Kind::Cnp;
    let psn = match (options.psn, target.stale_psn) {
        (Some(psn), _) => psn,
        (None, _) if is_cnp || target.service == Some(Service::Ud) => 0,
        (None, Some(stale)) => stale,
        (None, None) => bail!(
            "what PSN QP {} expects is not known here: give one with --psn, behind what it \
             expects (one ahead of that makes it send NAKs)",
            options.qpn
        ),
    };
    let tos = match options.kind {
        Kind::Ce => Ecn::Ce.bits(),
        Kind::Cnp => Ecn::Ect0.in_tos(DEFAULT_DSCP << 2),
    };
    Ok(Packet {
        src: to_addr(source),
        dst: to_addr(target.destination),
        tos: options.tos.unwrap_or(tos),
        ttl: options.ttl,
        udp_sport: options.sport.unwrap_or(if is_cnp { 0 } else { DATA_SPORT }),
        opcode,
        tver: options.tver,
        pkey: options.pkey,
        dest_qp: options.qpn,
        psn,
        source_qp: options.source_qpn.or(target.peer_qpn).unwrap_or(0),
        payload_len: options.payload.into(),
        reserved: options.reserved,
        bad_icrc: options.bad_icrc,
        truncate: options.truncate,
    })
}

fn show(address: rxe_cc::roce::packet::Addr) -> IpAddr {
    match address {
        rxe_cc::roce::packet::Addr::V4(bytes) => bytes.into(),
        rxe_cc::roce::packet::Addr::V6(bytes) => bytes.into(),
    }
}

/// What the receiver has counted so far; nothing where no module counts.
fn counters(device: Option<&Device>) -> Option<BTreeMap<String, u64>> {
    device?.counters().ok()
}

fn gained(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> String {
    let words: Vec<String> = after
        .iter()
        .filter_map(|(name, now)| {
            let gain = now
                .checked_sub(*before.get(name)?)
                .filter(|gain| *gain > 0)?;
            Some(format!("{name} +{gain}"))
        })
        .collect();
    if words.is_empty() {
        return "no counter moved".to_owned();
    }
    words.join(", ")
}

fn parse_up_to(text: &str, most: u32) -> Result<u32, String> {
    parse_number(text)
        .filter(|number| *number <= most)
        .ok_or_else(|| format!("a number 0..{most} (or 0x0..0x{most:x})"))
}

fn parse_qpn(text: &str) -> Result<u32, String> {
    parse_up_to(text, QPN_MASK)
}

fn parse_psn(text: &str) -> Result<u32, String> {
    parse_up_to(text, PSN_MASK)
}

fn parse_u16(text: &str) -> Result<u16, String> {
    parse_up_to(text, u16::MAX.into()).map(|number| number as u16)
}

fn parse_u8(text: &str) -> Result<u8, String> {
    parse_up_to(text, u8::MAX.into()).map(|number| number as u8)
}
