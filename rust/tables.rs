// SPDX-License-Identifier: GPL-2.0

//! The tables that the hooks look into, and the worker that keeps them true.
//!
//! Devices are found by their net device, QPs by device and QPN, NP flows by
//! device and what `cnp_moderation` says. All lookups are under RCU. The worker
//! asks the RDMA core for the contexts of QPs (see [`crate::qp`]) and removes
//! what is no longer used; it runs only while there is something to do.

use crate::{
    device::{Device, DeviceEntry},
    linux::{
        address_table::Table as AddressTable,
        hrtimer::now_ns,
        kthread::{impl_has_rt_worker, RtWorker},
        rhashtable::Table,
        workqueue::{impl_has_worker, Worker},
    },
    np::{self, Flow},
    qp::{self, Qp, Queue, Seen},
    rp,
};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use kernel::{
    prelude::*,
    sync::{rcu, Arc},
};

/// All that the hooks and the worker share.
#[pin_data]
pub(crate) struct Tables {
    // First, for they are dropped first: they use the others.
    #[pin]
    worker: Worker<Tables>,
    #[pin]
    held_worker: RtWorker<Tables>,
    /// Devices, by net device.
    #[pin]
    pub(crate) devices: AddressTable<Device>,
    /// Contexts of QPs, by device and QPN.
    #[pin]
    pub(crate) qps: Table<2, Qp>,
    /// NP flows that were marked lately.
    #[pin]
    pub(crate) flows: Table<6, Flow>,
    /// RP flows that have a state.
    #[pin]
    pub(crate) rp_flows: Table<7, rp::flow::Flow>,
    /// QPNs that were addressed lately.
    pub(crate) seen: Seen,
    /// QPs whose context is to be asked for.
    #[pin]
    pub(crate) queue: Queue,
    /// The number of the next device.
    pub(crate) next_number: AtomicU32,
    /// When the last sweep was.
    swept_ns: AtomicU64,
    /// There may be QPNs that are known not to exist: to be forgotten soon.
    pub(crate) absent: AtomicBool,
    /// The module goes: nothing may be held.
    draining: AtomicBool,
}

impl_has_worker! {
    impl HasWorker for Tables { self.worker, Tables::work }
}

impl_has_rt_worker! {
    impl HasRtWorker for Tables { self.held_worker, rp::doorbell::watch }
}

/// How often the worker looks for what is no longer used.
const SWEEP_MS: usize = 1000;
/// The same while there are QPNs that are known not to exist.
const ABSENT_SWEEP_MS: usize = 200;

impl Tables {
    /// Makes empty tables.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                worker <- Worker::new(c"rxe_cc"),
                held_worker <- RtWorker::new(c"rxe_cc_held"),
                devices <- AddressTable::new(),
                qps <- Table::new(),
                flows <- Table::new(),
                rp_flows <- Table::new(),
                seen: Seen::new(),
                queue <- Queue::new(),
                next_number: AtomicU32::new(1),
                swept_ns: AtomicU64::new(0),
                absent: AtomicBool::new(false),
                draining: AtomicBool::new(false),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Lets the worker run: there are QPs in the queue. Any context.
    pub(crate) fn kick(&self) {
        self.worker.kick();
    }

    /// Lets the worker sweep later: there is something in the tables.
    pub(crate) fn sweep_later(&self) {
        self.worker.kick_in_ms(self.sweep_ms());
    }

    fn sweep_ms(&self) -> usize {
        if self.absent.load(Ordering::Relaxed) {
            ABSENT_SWEEP_MS
        } else {
            SWEEP_MS
        }
    }

    /// Has the worker look after the QPs whose packets are held. Any context.
    pub(crate) fn watch_held(&self) {
        self.held_worker.kick_in_ms(rp::doorbell::START_MS);
    }

    /// Whether the module goes, and nothing may be held.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Lets all packets go that are held, in order, and holds no more. Sleeps.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        rp::drain(self);
    }

    fn work(&self) {
        crate::device::read_line_rates(self);
        self.queue.resolve(self);
        let now_ns = now_ns();
        let sweep_ns = self.sweep_ms() as u64 * 1_000_000;
        if now_ns.saturating_sub(self.swept_ns.load(Ordering::Relaxed)) >= sweep_ns {
            self.swept_ns.store(now_ns, Ordering::Relaxed);
            let absent = qp::sweep(self);
            self.absent.store(absent, Ordering::Relaxed);
            np::sweep(self);
            rp::flow::sweep(self);
        }
        if !self.queue.is_done() {
            self.kick();
        } else if !self.qps.is_empty() || !self.flows.is_empty() || !self.rp_flows.is_empty() {
            self.sweep_later();
        }
    }

    /// Forgets a device with all its QPs and flows. The hooks no longer find it
    /// when this returns.
    pub(crate) fn remove_device(&self, device: &DeviceEntry) {
        self.devices.remove(device);
        // From here on the worker takes out again what it puts in for this device.
        device.gone.store(true, Ordering::SeqCst);
        // A hook that found the device before may still add a QP or a flow.
        rcu::synchronize_rcu();
        self.queue.forget(|qp| qp.device.number == device.number);
        while self.remove_if(|owner| owner.number == device.number) {}
    }

    /// Something was put into a table for a device: takes it out again if the device
    /// was removed meanwhile.
    pub(crate) fn check_gone(&self, device: &Device) {
        // Pairs with `remove_device()`: it sees the entry, or this the mark.
        core::sync::atomic::fence(Ordering::SeqCst);
        if device.gone.load(Ordering::SeqCst) {
            self.remove_if(|owner| owner.number == device.number);
        }
    }

    /// Forgets everything, so that nothing refers to the tables any more but the
    /// caller. The hooks must be gone and the devices removed. Sleeps.
    pub(crate) fn clear(&self) {
        loop {
            self.queue.forget(|_| true);
            while self.remove_if(|_| true) {}
            while let Some(device) = self.devices.find(|_| true) {
                self.devices.remove(&device);
            }
            // The timers of flows end with them, and with both the workers get no more
            // work; what a last run of theirs put into the tables goes in the next round.
            rcu::rcu_barrier();
            self.worker.cancel();
            self.held_worker.cancel();
            let empty = self.queue.is_empty()
                && self.flows.is_empty()
                && self.rp_flows.is_empty()
                && self.qps.is_empty()
                && self.devices.is_empty();
            if empty {
                break;
            }
        }
    }

    /// Removes QPs and flows of devices that are `wanted`; whether there were any. A
    /// walk may miss some while a table is being resized.
    fn remove_if(&self, wanted: impl Fn(&Device) -> bool) -> bool {
        let mut found = rp::flow::forget_if(self, &wanted);
        self.flows.for_each(|flow| {
            if wanted(&flow.device) {
                found |= self.flows.remove(&flow);
            }
        });
        self.qps.for_each(|qp| {
            if wanted(&qp.device) {
                found |= self.qps.remove(&qp);
            }
        });
        found
    }
}
