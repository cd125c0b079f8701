// SPDX-License-Identifier: GPL-2.0

//! `rxecc calibrate`: what a soft-RoCE device here can send, and the knobs that depend
//! on it.
//!
//! perftest sends from one device to another for a few seconds; the rate is what the
//! netdev's own counters say of the wire, headers and all, not what perftest prints.
//! It becomes `line_rate`, and `dilation` follows from it, or from the bottleneck.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Context, Result};
use clap::Args;
use rxe_cc::dcqcn::params::Id;

use super::preset::dilation_for;
use crate::program;
use crate::system::{is_root, names, read, Device, Knob, Namespace, System};
use crate::text::{parse_rate, print, rate};

const EXAMPLES: &str = "\
Examples:
  rxecc calibrate --from rxe1 --to rxe2 --dry-run             measure alone
  rxecc calibrate --from h1 --to h2 --bottleneck 40mbit --all  for an experiment at 40 Mb/s
  rxecc calibrate --from rxe0 --to 192.0.2.7                  to another machine, where this runs:
                                  ib_write_bw -d rxe0 -x GID -F -s 65536 -q 1 -D 30 -p 18515

Measure before the port is slowed down, and while nothing else sends.";

/// The way to measure, and what to set.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Sender: RDMA device, netdev, or network namespace. Needed unless there are two devices.
    #[arg(long, value_name = "DEV")]
    from: Option<String>,

    /// Receiver: the same, or the address of another machine on which ib_write_bw waits.
    #[arg(long, value_name = "DEV|ADDR")]
    to: Option<String>,

    /// The slowest link of the experiment (40mbit, 2.5gbit): dilation goes by it, and
    /// not by the rate that is measured.
    #[arg(long, value_name = "RATE")]
    bottleneck: Option<String>,

    /// How long to measure.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,

    /// QPs that send.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    qps: u32,

    /// TCP port on which perftest's two sides find each other.
    #[arg(long, default_value_t = 18515)]
    port: u16,

    /// Set the knobs of all devices here, not of these two alone.
    #[arg(short, long)]
    all: bool,

    /// Measure, and set nothing.
    #[arg(long)]
    dry_run: bool,
}

/// perftest's test: one-sided, so that the receiver's program has nothing to do.
const TOOL: &str = "ib_write_bw";

/// How long connecting and the first packets may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// From the first packets on, until rates are steady.
const WARM_UP: Duration = Duration::from_secs(1);

/// perftest sends longer than is measured, so that a slow start does no harm.
const MARGIN: Duration = Duration::from_secs(4);

/// A stream that counts as begun, packets.
const BEGUN: u64 = 100;

/// Messages that wait at once, one of which fills what rxe has in flight. What still
/// waits when perftest ends must be sent before rxe lets the QP go, or the kernel warns
/// of it after 50 s.
const DEPTH: &str = "4";

/// Half a second: longer than those packets take on a link of 1 Mb/s, so that nothing
/// is sent twice there.
const ACK_TIMEOUT: &str = "17";

/// What was measured.
struct Measured {
    seconds: f64,
    bytes: u64,
    packets: u64,
    /// What the two devices' counters gained meanwhile.
    sender: BTreeMap<String, u64>,
}

impl Measured {
    fn bps(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds
    }
}

/// Measures and sets, and tells both.
pub(crate) fn run(options: &Options, system: &System) -> Result<bool> {
    if !is_root() {
        bail!("calibrating takes root (network namespaces, knobs): run this with sudo");
    }
    let bottleneck_bps = options.bottleneck.as_deref().map(parse_rate).transpose()?;
    let (from, to) = ends(options, system)?;
    let devices = match options.all {
        true => system.devices(),
        false => [Some(&from), to.device()]
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
    };
    // Better now than after the measurement.
    for device in &devices {
        device.knob(Knob::Param(Id::LineRate))?;
    }

    let measured = measure(options, &from, &to)?;
    let mut text = format!(
        "{} -> {}: {} on the wire in {:.1} s, {} bytes a packet, {} QP{}\n",
        from.title(),
        to.title(),
        rate(measured.bps()),
        measured.seconds,
        measured.bytes / measured.packets.max(1),
        options.qps,
        if options.qps == 1 { "" } else { "s" },
    );
    for note in notes(&measured) {
        text += &format!("note: {note}\n");
    }

    let line_mbps = (measured.bps() / 1e6)
        .round()
        .clamp(1.0, f64::from(u32::MAX)) as u32;
    let (slowest_bps, whose) = match bottleneck_bps {
        Some(bps) => (bps, "the bottleneck"),
        None => (f64::from(line_mbps) * 1e6, "the line"),
    };
    let dilation = dilation_for(slowest_bps);
    let will = if options.dry_run {
        "would become"
    } else {
        "->"
    };
    for device in &devices {
        let mut changes = Vec::new();
        for (id, value) in [(Id::LineRate, line_mbps), (Id::Dilation, dilation)] {
            let knob = Knob::Param(id);
            let old = device.knob(knob)?;
            if !options.dry_run {
                device.set_knob(knob, value)?;
            }
            changes.push(format!(
                "{} {} {will} {}",
                knob.name(),
                knob.show(old),
                knob.show_with_unit(value)
            ));
        }
        text += &format!("{}: {}\n", device.title(), changes.join(", "));
    }
    text += &format!(
        "dilation: 40 Gb/s over the {} of {whose}\n",
        rate(slowest_bps)
    );
    print(&text)?;
    Ok(true)
}

/// The receiver.
enum To {
    Here(Device),
    Elsewhere(IpAddr),
}

impl To {
    fn device(&self) -> Option<&Device> {
        match self {
            To::Here(device) => Some(device),
            To::Elsewhere(_) => None,
        }
    }

    fn title(&self) -> String {
        match self {
            To::Here(device) => device.title(),
            To::Elsewhere(address) => address.to_string(),
        }
    }
}

fn ends(options: &Options, system: &System) -> Result<(Device, To)> {
    let one = |name: &str| -> Result<Device> {
        let found = system.select(Some(name))?.into_iter().next();
        found.ok_or_else(|| anyhow!("there is no device {name}"))
    };
    let (from, to) = match (&options.from, &options.to) {
        (Some(from), Some(to)) => (one(from)?, to),
        (None, None) => {
            let devices = system.select(None)?;
            return match <[Device; 2]>::try_from(devices) {
                Ok([from, to]) => Ok((from, To::Here(to))),
                Err(devices) => bail!(
                    "there are {} devices: say which sends and which receives (--from and --to)",
                    devices.len()
                ),
            };
        }
        _ => bail!("--from and --to go together"),
    };
    let address: Option<IpAddr> = to.parse().ok();
    let to = match address {
        None => To::Here(one(to)?),
        Some(address) => {
            let here = system
                .devices()
                .into_iter()
                .find(|device| device.addresses().contains(&address));
            here.map_or(To::Elsewhere(address), To::Here)
        }
    };
    if to.device().is_some_and(|device| device.name == from.name) {
        bail!("a device that sends to itself sends nothing: name two devices");
    }
    Ok((from, to))
}

/// A program that ends with this value.
struct Running {
    child: Child,
    what: String,
}

impl Running {
    /// Starts perftest in a namespace, its output kept.
    fn start(namespace: &Arc<Namespace>, arguments: &[String]) -> Result<Self> {
        let child = namespace.enter(|| {
            // perftest polls: behind everything else, or rxe's own tasks wait for it.
            Command::new("nice")
                .args(["-n", "19", TOOL])
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .map_err(|error| program::cannot_run("nice", &error))
        })?;
        Ok(Self {
            child,
            what: format!("{TOOL} {}", arguments.join(" ")),
        })
    }

    /// That it still runs.
    ///
    /// # Errors
    ///
    /// It does not, with what it said.
    fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait().context("cannot wait for perftest")? else {
            return Ok(());
        };
        const NOT_FOUND: i32 = 127;
        if status.code() == Some(NOT_FOUND) {
            return Err(program::cannot_run(
                TOOL,
                &std::io::ErrorKind::NotFound.into(),
            ));
        }
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            // Nothing said is said, too.
            let _unreadable = stderr.read_to_string(&mut said);
        }
        let line = said.lines().map(str::trim).find(|line| !line.is_empty());
        bail!(
            "{} ended with {status}: {}",
            self.what,
            line.unwrap_or("without a word")
        );
    }

    /// Waits for its end, for a while.
    fn finish(&mut self) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < MARGIN + PATIENCE {
            if self
                .child
                .try_wait()
                .context("cannot wait for perftest")?
                .is_some()
            {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn measure(options: &Options, from: &Device, to: &To) -> Result<Measured> {
    let sender = &from.netdev()?.namespace;
    let receiver_addresses = match to {
        To::Here(device) => device.addresses(),
        To::Elsewhere(address) => vec![*address],
    };
    let (source, address) = pair(&from.addresses(), &receiver_addresses).ok_or_else(|| {
        anyhow!(
            "{} and {} have no addresses of one IP version",
            from.title(),
            to.title()
        )
    })?;
    let duration = WARM_UP.as_secs() + options.seconds + MARGIN.as_secs();
    let arguments = |device: &Device, address: IpAddr| -> Result<Vec<String>> {
        let gid = gid_index(device, address)?.to_string();
        let (qps, port, seconds) = (
            options.qps.to_string(),
            options.port.to_string(),
            duration.to_string(),
        );
        let words = [
            "-d",
            &device.name,
            "-x",
            &gid,
            "-F",
            "-s",
            "65536",
            "-q",
            &qps,
            "-p",
            &port,
            "-D",
            &seconds,
            "-t",
            DEPTH,
            "-u",
            ACK_TIMEOUT,
        ];
        Ok(words.iter().map(|word| (*word).to_owned()).collect())
    };

    let mut programs = Vec::new();
    if let To::Here(device) = to {
        let namespace = &device.netdev()?.namespace;
        let mut server = Running::start(namespace, &arguments(device, address)?)?;
        wait_for("perftest's server", || {
            server.check()?;
            namespace.enter(|| Ok(listens(options.port).then_some(())))
        })?;
        programs.push(server);
    }
    let mut client = arguments(from, source)?;
    client.push(address.to_string());
    programs.push(Running::start(sender, &client)?);

    let sent = |device: &Device| device.rxe_counters().get("sent_pkts").copied().unwrap_or(0);
    let at_first = sent(from);
    wait_for("data of perftest's", || {
        for program in &mut programs {
            program.check()?;
        }
        Ok((sent(from) >= at_first + BEGUN).then_some(()))
    })?;
    thread::sleep(WARM_UP);

    let before = (Instant::now(), wire(from)?, counters(from));
    thread::sleep(Duration::from_secs(options.seconds));
    for program in &mut programs {
        program.check()?;
    }
    let after = (Instant::now(), wire(from)?, counters(from));
    // Of their own accord: a QP that is killed in the middle of it may hang in the
    // kernel while its last packets wait in a slow queue.
    for program in &mut programs {
        program.finish()?;
    }
    let gain = |name: &str| {
        Some((
            name.to_owned(),
            after.2.get(name)?.saturating_sub(*before.2.get(name)?),
        ))
    };
    Ok(Measured {
        seconds: after.0.duration_since(before.0).as_secs_f64(),
        bytes: after.1 .0 - before.1 .0,
        packets: after.1 .1 - before.1 .1,
        sender: after.2.keys().filter_map(|name| gain(name)).collect(),
    })
}

/// What the reader should know about the figure.
fn notes(measured: &Measured) -> Vec<String> {
    let gained = |name: &str| measured.sender.get(name).copied().unwrap_or(0);
    let mut notes = Vec::new();
    let cnps = gained("rp_cnp_handled");
    if cnps > 0 {
        notes.push(format!(
            "{cnps} CNPs slowed the sender down: this is the rate of a congested way, not what the host can \
             send (measure before the port is slowed down)"
        ));
    }
    let repeated = gained("completer_retry_err") + gained("rcvd_seq_err");
    if repeated * 1000 > measured.packets {
        notes.push(format!(
            "packets were lost on the way ({repeated} times the transport went back), so the way carries less \
             than the host can send"
        ));
    }
    notes
}

/// Bytes and packets that left the device's netdev.
fn wire(device: &Device) -> Result<(u64, u64)> {
    let dir = device.netdev()?.dir().join("statistics");
    let number = |name: &str| -> Result<u64> {
        let text = read(&dir.join(name))?;
        text.parse()
            .with_context(|| format!("{name} of {}", device.title()))
    };
    Ok((number("tx_bytes")?, number("tx_packets")?))
}

fn counters(device: &Device) -> BTreeMap<String, u64> {
    let mut all = device.rxe_counters();
    all.extend(device.counters().unwrap_or_default());
    all
}

/// The first two addresses of one IP version, link-local ones aside.
fn pair(ours: &[IpAddr], theirs: &[IpAddr]) -> Option<(IpAddr, IpAddr)> {
    let usable = |address: &&IpAddr| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => !v6.is_unicast_link_local(),
    };
    theirs.iter().filter(usable).find_map(|their| {
        let our = ours
            .iter()
            .filter(usable)
            .find(|our| our.is_ipv4() == their.is_ipv4())?;
        Some((*our, *their))
    })
}

/// The place of an address in the device's GID table.
fn gid_index(device: &Device, address: IpAddr) -> Result<u32> {
    let gids = device
        .namespace
        .sys()
        .join("class/infiniband")
        .join(&device.name)
        .join("ports/1/gids");
    let gid = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let is_it = |index: &String| read(&gids.join(index)).is_ok_and(|text| text.parse() == Ok(gid));
    let index = names(&gids)
        .into_iter()
        .find(is_it)
        .and_then(|index| index.parse().ok());
    index.ok_or_else(|| anyhow!("{} has no GID for {address}", device.title()))
}

/// Whether somebody in the thread's network namespace listens on this TCP port.
fn listens(port: u16) -> bool {
    const LISTEN: &str = "0A";
    let end = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let text =
            fs::read_to_string(Path::new("/proc/thread-self/net").join(table)).unwrap_or_default();
        text.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().is_some_and(|local| local.ends_with(&end))
                && fields.nth(1) == Some(LISTEN)
        })
    })
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> Result<Option<()>>) -> Result<()> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if is_there()?.is_some() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(50));
    }
    bail!("within {} s no {what}", PATIENCE.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn two_ends_meet_at_addresses_of_one_version_that_are_not_link_local() {
        let (one, other) = (
            addresses(&["fe80::1", "10.0.0.1", "fd00::1"]),
            addresses(&["fe80::2", "fd00::2"]),
        );
        assert_eq!(
            pair(&one, &other),
            Some(("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()))
        );
        assert_eq!(
            pair(&addresses(&["10.0.0.1"]), &addresses(&["fd00::2"])),
            None
        );
    }

    #[test]
    fn a_rate_under_congestion_or_loss_is_told_as_such() {
        let measured = |sender: &[(&str, u64)]| Measured {
            seconds: 2.0,
            bytes: 25_000_000,
            packets: 20_000,
            sender: sender
                .iter()
                .map(|(name, gain)| ((*name).to_owned(), *gain))
                .collect(),
        };
        assert_eq!(measured(&[]).bps(), 100e6);
        assert!(notes(&measured(&[("rp_cnp_handled", 0), ("rcvd_seq_err", 0)])).is_empty());
        assert!(notes(&measured(&[("rp_cnp_handled", 3)]))[0].contains("congested"));
        assert!(notes(&measured(&[("rcvd_seq_err", 3)])).is_empty());
        assert!(notes(&measured(&[("rcvd_seq_err", 30)]))[0].contains("lost"));
    }
}
