// SPDX-License-Identifier: GPL-2.0

//! DCQCN for soft-RoCE: the notification point and the reaction point that
//! `rdma_rxe` lacks, beside an unmodified `rdma_rxe`.
//!
//! Packets come in by [`hooks`]; [`np`] answers CE marks with CNPs, [`rp`] takes
//! CNPs, [`ect`] makes what is sent markable. [`device`] follows the rxe devices,
//! [`qp`] knows the contexts of their QPs, [`tables`] holds both, [`sysfs`] shows
//! [`knobs`] and [`counters`]. [`roce`] and [`dcqcn`] are the wire formats and the
//! algorithm, without a kernel; [`linux`] is the kernel, as the rest sees it.

use kernel::{debugfs, prelude::*, sync::Arc};

mod counters;
pub mod dcqcn;
mod debug;
mod device;
mod ect;
mod hooks;
mod knobs;
mod latency;
mod linux;
mod np;
mod qp;
pub mod roce;
mod rp;
mod sysfs;
mod tables;
mod trace;

use linux::{netdevice::NotifierRegistration, netfilter::NetHooks, rdma::ClientRegistration};

module! {
    type: RxeCc,
    name: "rxe_cc",
    authors: ["The rxe_cc developers"],
    description: "DCQCN congestion control for soft-RoCE (rdma_rxe)",
    license: "GPL",
}

/// The module: what is registered, in the order in which it must go.
struct RxeCc {
    client: Option<Pin<KBox<ClientRegistration<device::Client>>>>,
    watcher: Option<Pin<KBox<NotifierRegistration<device::Watcher>>>>,
    hooks: Option<Arc<NetHooks<tables::Tables>>>,
    tables: Arc<tables::Tables>,
}

impl kernel::Module for RxeCc {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let mut module = Self {
            client: None,
            watcher: None,
            hooks: None,
            tables: tables::Tables::new()?,
        };
        let tables = module.tables.clone();
        let hooks = Arc::pin_init(NetHooks::new(tables.clone()), GFP_KERNEL)?;
        module.hooks = Some(hooks.clone());
        let directories = Arc::pin_init(device::Directories::new(), GFP_KERNEL)?;
        let watcher = device::Watcher::new(tables.clone(), directories.clone());
        module.watcher = Some(KBox::pin_init(
            NotifierRegistration::new(watcher),
            GFP_KERNEL,
        )?);
        let client = device::Client {
            tables,
            hooks,
            directories,
            debug: debugfs::Dir::new(c"rxe_cc"),
        };
        module.client = Some(KBox::pin_init(
            ClientRegistration::new(c"rxe_cc", client),
            GFP_KERNEL,
        )?);
        Ok(module)
    }
}

impl Drop for RxeCc {
    fn drop(&mut self) {
        // Packets that are held go out first, in order, and no more are held.
        self.tables.drain();
        self.client = None;
        self.watcher = None;
        self.hooks = None;
        // What is left refers to the tables only from inside them.
        self.tables.clear();
    }
}
