// SPDX-License-Identifier: GPL-2.0

//! The rxe devices and what the module keeps for each: knobs, counters, files,
//! the way to the RDMA core.
//!
//! RDMA and net devices come and go here; the hooks find a device by the net
//! device of a packet. A device is added and removed by the RDMA core, its knobs
//! and hooks also go when its net device is unregistered, whichever is first.
//! The RTNL orders the two.

use crate::{
    counters::{Counter, CounterSource, Counters},
    debug,
    knobs::{KnobId, KnobOwner, Knobs},
    latency::Latencies,
    linux::{
        address_table::Entry,
        netdevice::{
            NetDevice, NetDeviceEvent, NetDeviceId, NetDeviceNotifier, NetDeviceRef, Rtnl,
        },
        netfilter::NetHooks,
        rdma::{IbDeviceHandle, IbDeviceRef, RdmaClient},
        rhashtable::ReadSide,
    },
    np, rp,
    sysfs::{counters::PortCounters, knobs::Ecn},
    tables::Tables,
    trace,
};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use kernel::{
    debugfs,
    prelude::*,
    sync::{new_mutex, rcu, Arc, ArcBorrow, Mutex},
};

/// A shared [`Device`], as its table holds it.
pub(crate) type DeviceEntry = Entry<Device>;

/// An rxe device.
#[pin_data]
pub(crate) struct Device {
    /// All devices, QPs and flows. The cycle of references ends when the device
    /// is removed from there.
    pub(crate) tables: Arc<Tables>,
    /// Tells this device's QPs and flows from those of any other, ever.
    pub(crate) number: u32,
    /// The net device under it.
    pub(crate) netdev: NetDevice,
    /// The way to the RDMA core.
    #[pin]
    pub(crate) ib: IbDeviceHandle,
    /// The RDMA device's name, for traces.
    pub(crate) name: trace::Name,
    /// What its users set.
    pub(crate) knobs: Knobs,
    /// What it counted.
    pub(crate) counters: Counters,
    /// How long things took.
    pub(crate) latencies: Latencies,
    /// QPNs of the device whose context is asked for or known not to exist.
    pub(crate) unresolved: AtomicU32,
    /// It was removed: nothing may be added to the tables for it.
    pub(crate) gone: AtomicBool,
    /// The speed of its link is to be read again.
    pub(crate) line_rate_stale: AtomicBool,
    /// Its reaction point.
    #[pin]
    pub(crate) rp: rp::port::Port,
}

impl Device {
    /// Adds one to a counter.
    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.counters.inc(counter);
    }

    /// Adds to a counter.
    pub(crate) fn count_many(&self, counter: Counter, n: u32) {
        self.counters.add(counter, u64::from(n));
    }
}

/// The rxe device of the net device itself.
#[inline(always)]
pub(crate) fn find_own<'a>(
    tables: &'a Tables,
    dev: &NetDeviceRef,
    held: &'a impl ReadSide,
) -> Option<ArcBorrow<'a, DeviceEntry>> {
    tables.devices.get(dev.id().as_address(), held)
}

/// The rxe device that a packet on `dev` belongs to: that of the device itself
/// or, for a VLAN device, of the device under it.
#[inline]
pub(crate) fn find<'a>(
    tables: &'a Tables,
    dev: &NetDeviceRef,
    held: &'a impl ReadSide,
) -> Option<ArcBorrow<'a, DeviceEntry>> {
    find_own(tables, dev, held).or_else(|| find_own(tables, dev.vlan_real_dev()?, held))
}

/// What sysfs needs to know of a device.
pub(crate) struct Owner(Arc<DeviceEntry>);

impl KnobOwner for Owner {
    fn knobs(&self) -> &Knobs {
        &self.0.knobs
    }

    fn knob_changed(&self, id: KnobId) {
        np::knob_changed(&self.0, id);
        rp::knob_changed(&self.0, id);
    }
}

impl CounterSource for Owner {
    fn counters(&self) -> &Counters {
        &self.0.counters
    }

    fn read(&self, counter: Counter) -> u64 {
        match counter {
            Counter::RpLimitedQps => self.0.rp.limited_qps(),
            Counter::RpHeldPackets => self.0.rp.held_packets(),
            Counter::RpHeldMaxUs => self.0.rp.held_max_us(),
            counter => self.0.counters.get(counter),
        }
    }
}

/// The directories `ecn/` of the net devices that have an rxe device. They go
/// with the net device, so they are kept apart from what goes with the rxe.
#[pin_data]
pub(crate) struct Directories {
    #[pin]
    ecn: Mutex<KVec<(NetDeviceId, Ecn)>>,
}

impl Directories {
    /// None yet.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            ecn <- new_mutex!(KVec::new(), "rxe_cc_ecn"),
        })
    }

    fn remove(&self, dev: NetDeviceId, _rtnl: &Rtnl) {
        let mut ecn = self.ecn.lock();
        if let Some(index) = ecn.iter().position(|(id, _)| *id == dev) {
            let gone = ecn.remove(index);
            drop(ecn);
            drop(gone);
        }
    }
}

/// Removes what a net device carries when it goes.
#[pin_data]
pub(crate) struct Watcher {
    tables: Arc<Tables>,
    directories: Arc<Directories>,
}

impl Watcher {
    /// A watcher for these devices and directories.
    pub(crate) fn new(
        tables: Arc<Tables>,
        directories: Arc<Directories>,
    ) -> impl PinInit<Self, Error> {
        try_pin_init!(Self { tables, directories }? Error)
    }
}

impl NetDeviceNotifier for Watcher {
    fn notify(&self, event: NetDeviceEvent, dev: &NetDeviceRef, rtnl: &Rtnl) {
        if event == NetDeviceEvent::Unregister {
            self.directories.remove(dev.id(), rtnl);
        }
        let device = find_own(&self.tables, dev, &rcu::read_lock()).map(Arc::from);
        let Some(device): Option<Arc<DeviceEntry>> = device else {
            return;
        };
        rp::netdev_event(&device, event);
        if matches!(event, NetDeviceEvent::Up | NetDeviceEvent::Change) {
            device.line_rate_stale.store(true, Ordering::Relaxed);
            self.tables.kick();
        }
    }
}

/// The module as a client of the RDMA core.
pub(crate) struct Client {
    /// All devices, QPs and flows.
    pub(crate) tables: Arc<Tables>,
    /// The netfilter hooks.
    pub(crate) hooks: Arc<NetHooks<Tables>>,
    /// The knobs' directories.
    pub(crate) directories: Arc<Directories>,
    /// The module's directory in debugfs.
    pub(crate) debug: debugfs::Dir,
}

/// What the client keeps for a device: dropped in this order.
#[pin_data]
pub(crate) struct Binding {
    _files: PortCounters<Owner>,
    #[pin]
    debug: Mutex<Option<debug::Files>>,
    device: Arc<DeviceEntry>,
}

impl Client {
    /// Undoes, as far as it was done, what needs the RTNL.
    fn unbind_netdev(&self, device: &DeviceEntry, rtnl: &Rtnl) {
        let dev = device.netdev.id();
        self.directories.remove(dev, rtnl);
        self.hooks.detach(dev, rtnl);
    }

    fn bind_netdev(&self, device: &Arc<DeviceEntry>, rtnl: &Rtnl) -> Result {
        self.hooks.attach(&device.netdev, rtnl)?;
        let owner = Arc::new(Owner(device.clone()), GFP_KERNEL)?;
        let ecn = Ecn::create(&device.netdev, owner)?;
        self.directories
            .ecn
            .lock()
            .push((device.netdev.id(), ecn), GFP_KERNEL)?;
        rp::read_line_rate(device, rtnl);
        Ok(())
    }
}

impl RdmaClient for Client {
    type Data = Binding;

    fn add(&self, ib: &IbDeviceRef, name: &CStr) -> Result<Option<Pin<KBox<Binding>>>> {
        if !ib.is_rxe() {
            return Ok(None);
        }
        let netdev = ib.netdev().ok_or(ENODEV)?;
        let number = self.tables.next_number.fetch_add(1, Ordering::Relaxed);
        let address = netdev.id().as_address();
        let tables = self.tables.clone();
        let device = self.tables.devices.insert(
            address,
            try_pin_init!(Device {
                tables,
                number,
                netdev,
                ib <- IbDeviceHandle::new(),
                name: trace::Name::new(name),
                knobs: Knobs::new(),
                counters: Counters::new()?,
                latencies: Latencies::new()?,
                unresolved: AtomicU32::new(0),
                gone: AtomicBool::new(false),
                line_rate_stale: AtomicBool::new(false),
                rp <- rp::port::Port::new(&Knobs::new()),
            }? Error),
            GFP_KERNEL,
        )?;
        let bind = || {
            let owner = Arc::new(Owner(device.clone()), GFP_KERNEL)?;
            let files = debug::Files::new(&self.debug, name, device.clone())?;
            let its_device = device.clone();
            let binding = KBox::try_pin_init(
                try_pin_init!(Binding {
                    _files: PortCounters::create(ib, owner)?,
                    debug <- new_mutex!(Some(files), "rxe_cc_debug"),
                    device: its_device,
                }? Error),
                GFP_KERNEL,
            )?;
            let rtnl = Rtnl::lock();
            self.bind_netdev(&device, &rtnl)
                .inspect_err(|_| self.unbind_netdev(&device, &rtnl))?;
            Ok(Some(binding))
        };
        bind().inspect_err(|error: &Error| {
            pr_err!("{name}: not controlled: {error:?}\n");
            self.tables.remove_device(&device);
        })
    }

    fn renamed(&self, data: &Binding, name: &CStr) {
        data.device.name.set(name);
        let mut files = data.debug.lock();
        // The old ones first: another device may have got their name.
        *files = None;
        *files = debug::Files::new(&self.debug, name, data.device.clone()).ok();
    }

    fn handle(data: &Binding) -> &IbDeviceHandle {
        &data.device.ib
    }

    fn remove(&self, _ib: &IbDeviceRef, data: Pin<KBox<Binding>>) {
        if !self.tables.is_draining() {
            rp::close_device(&data.device);
        }
        {
            let rtnl = Rtnl::lock();
            self.unbind_netdev(&data.device, &rtnl);
        }
        self.tables.remove_device(&data.device);
    }
}

/// Reads the speeds of links that changed. The worker's part; sleeps.
pub(crate) fn read_line_rates(tables: &Tables) {
    let stale = |device: &DeviceEntry| device.line_rate_stale.swap(false, Ordering::Relaxed);
    while let Some(device) = tables.devices.find(stale) {
        rp::read_line_rate(&device, &Rtnl::lock());
    }
}
