// SPDX-License-Identifier: GPL-2.0

//! debugfs, below `rxe_cc/<ibdev>/`: `qps`, a line for each QP whose context is
//! known, with the state of its flows at the moment of reading; `latency`, how long
//! answers to marks took, and held packets waited.
//!
//! Reading `qps` takes each flow's lock for a moment and no other, reading `latency`
//! none.

use crate::{
    dcqcn::rp::Phase,
    device::DeviceEntry,
    latency::{self, Interval, BUCKETS},
    linux::{
        hrtimer::now_ns,
        rdma::{QpContext, QpType},
    },
    np,
    qp::{self, QpEntry},
    roce::packet::Addr,
    rp::flow::{self, Snapshot},
};
use kernel::{
    debugfs::{Dir, File},
    fmt,
    prelude::*,
    sync::Arc,
};

/// The files of one device; they go with the value.
pub(crate) struct Files {
    _qps: Pin<KBox<File<Arc<DeviceEntry>>>>,
    _latency: Pin<KBox<File<Arc<DeviceEntry>>>>,
}

impl Files {
    /// Makes the files of the RDMA device `name` below `root`.
    pub(crate) fn new(root: &Dir, name: &CStr, device: Arc<DeviceEntry>) -> Result<Self> {
        let dir = root.subdir(name);
        let owner = Ok::<_, Error>(device.clone());
        let qps = dir.read_callback_file(c"qps", owner, &show_qps);
        let owner = Ok::<_, Error>(device);
        let latency = dir.read_callback_file(c"latency", owner, &show_latency);
        Ok(Self {
            _qps: KBox::pin_init(qps, GFP_KERNEL)?,
            _latency: KBox::pin_init(latency, GFP_KERNEL)?,
        })
    }
}

/// An address as people write it.
struct Shown(Addr);

impl core::fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Addr::V4(bytes) => core::fmt::Display::fmt(&core::net::Ipv4Addr::from(bytes), f),
            Addr::V6(bytes) => core::fmt::Display::fmt(&core::net::Ipv6Addr::from(bytes), f),
        }
    }
}

/// A line for each row of the histograms.
fn show_latency(device: &Arc<DeviceEntry>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("# from_us")?;
    for interval in Interval::ALL {
        write!(f, " {}", interval.name())?;
    }
    f.write_str("\n")?;
    for bucket in 0..BUCKETS {
        write!(f, "{}", latency::from_us(bucket))?;
        for interval in Interval::ALL {
            write!(f, " {}", device.latencies.get(interval, bucket))?;
        }
        f.write_str("\n")?;
    }
    Ok(())
}

fn show_qps(device: &Arc<DeviceEntry>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "# qpn type peer_qpn peer | rp: prio phase rc_kbps rt_kbps model_rc_kbps alpha/1024 \
         time_stage byte_stage held cnps cuts since_cut_us | np: window marks cnps"
    )?;
    let now_ns = now_ns();
    let mut result = Ok(());
    qp::for_each(&device.tables, device, |qp, context| {
        result = result.and_then(|()| show_qp(f, qp, context, now_ns));
    });
    result
}

fn show_qp(
    f: &mut fmt::Formatter<'_>,
    qp: &QpEntry,
    context: &QpContext,
    now_ns: u64,
) -> fmt::Result {
    let service = match context.service {
        QpType::Rc => "RC",
        QpType::Uc => "UC",
        QpType::Ud => "UD",
        QpType::Other => return Ok(()),
    };
    write!(f, "{} {service} ", qp::number(qp))?;
    match context.service {
        QpType::Ud => f.write_str("- -")?,
        _ => write!(f, "{} {}", context.dest_qpn, Shown(context.peer()))?,
    }
    let tables = &qp.device.tables;
    match flow::snapshot(tables, qp, context, now_ns) {
        Some(flow) => show_rp(f, &flow)?,
        None => f.write_str(" | -")?,
    }
    match np::snapshot(tables, qp, now_ns) {
        Some(np::Snapshot {
            marks,
            cnps,
            open,
            holding,
        }) => {
            let window = match (holding, open) {
                (true, _) => "holding",
                (false, true) => "open",
                (false, false) => "quiet",
            };
            writeln!(f, " | {window} {marks} {cnps}")
        }
        None => f.write_str(" | -\n"),
    }
}

fn show_rp(f: &mut fmt::Formatter<'_>, flow: &Snapshot) -> fmt::Result {
    let view = &flow.view;
    let phase = match (view.limited, view.phase) {
        (false, _) => "unlimited",
        (true, Phase::FastRecovery) => "fast_recovery",
        (true, Phase::AdditiveIncrease) => "additive_increase",
        (true, Phase::HyperIncrease) => "hyper_increase",
    };
    write!(
        f,
        " | {} {phase} {} {} {} {} {} {} {} {} {} {}",
        flow.priority,
        view.rc_real / 1000,
        view.rt_real / 1000,
        view.rc / 1000,
        view.alpha,
        view.time_stage,
        view.byte_stage,
        flow.held,
        flow.cnps,
        flow.cuts,
        flow.since_cut_ns / 1000,
    )
}
