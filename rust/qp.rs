// SPDX-License-Identifier: GPL-2.0

//! The contexts of the QPs that packets address, as the RDMA core knows them.
//!
//! A context is asked for when the first packet for a QPN is seen, by the worker,
//! for that sleeps. Then it is kept, verified while packets come, and dropped
//! when the QP is gone:
//!
//! ```text
//!   packet for an unknown QPN --> asked for --> known --(gone)--> absent --> forgotten
//!                                    ^            |
//!                                    +-- stale <--+   not verified for STALE_NS
//! ```
//!
//! What comes for a QP whose context is not known at that moment (a CE mark, a
//! CNP) is remembered with the sender's address and judged when the answer is
//! there. The number of QPNs without a context is bounded for each device, so a
//! stranger who makes QPNs up costs a bounded number of lookups.
//!
//! What a mark or a CNP leads to is the business of [`crate::np`] and
//! [`crate::rp`].

use crate::{
    device::{Device, DeviceEntry},
    linux::{
        hrtimer::{coarse_ticks, now_ns},
        netdevice::NetDeviceRef,
        rdma::{QpContext, QpType},
        rhashtable::Entry,
    },
    np,
    roce::{
        opcode::Service,
        packet::{Addr, QP1},
    },
    rp,
    tables::Tables,
};
use core::{
    mem,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};
use kernel::{
    prelude::*,
    sync::{new_spinlock_irq, rcu, Arc, ArcBorrow, SpinLockIrq},
    time::{delay::fsleep, Delta},
};

/// A shared [`Qp`], as its table holds it.
pub(crate) type QpEntry = Entry<2, Qp>;

/// A context that was not verified for so long says nothing any more.
const STALE_NS: u64 = 200_000_000;
/// From this age on a context is verified when a packet comes. With [`SEEN_HZ`]
/// and the worker's latency this is well before it is stale.
const VERIFY_NS: u64 = 60_000_000;
/// A packet from another address than the peer's makes a context that is older
/// than this be verified at once: the QP may have been connected anew.
const MISMATCH_NS: u64 = 20_000_000;
/// How long it is remembered that a QPN does not exist.
const ABSENT_NS: u64 = STALE_NS;
/// How long a context of a QP without packets may go unverified before the sweep
/// looks whether the QP still exists.
const IDLE_NS: u64 = 5_000_000_000;
/// The same while its rate is limited.
pub(crate) const LIMITED_IDLE_NS: u64 = 1_000_000_000;
/// Packets of one QPN are looked at for its context so often a second.
const SEEN_HZ: u64 = 30;
/// QPNs of one device without a context at one time.
const UNRESOLVED_MAX: u32 = 1024;
/// QPs in the worker's queue, a page of them; the worker finds more than that, but has to
/// look for them.
const QUEUE_MAX: usize = 512;
/// Senders whose packets for one QP are remembered until its context is known.
const PENDING_MAX: usize = 4;
/// Two answers this far apart must agree before a new context is believed: the
/// driver copies it without a lock.
const AGREE: Delta = Delta::from_millis(1);
/// How often two answers may disagree.
const AGREE_TRIES: usize = 5;

/// Which QPNs of which net devices were addressed in the last moments: a cheap way to
/// keep contexts fresh while packets come, without a lookup for each.
pub(crate) struct Seen([AtomicU64; Seen::SLOTS]);

impl Seen {
    const SLOTS: usize = 1024;

    /// None yet.
    pub(crate) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; Self::SLOTS])
    }

    /// What stands for a packet for the QPN in this tick, and where. A net device that is
    /// many gigabytes away in memory may look the same, and a tick of half an hour ago: then a
    /// context is asked for a tick later.
    #[inline(always)]
    fn mark(&self, dev: &NetDeviceRef, qpn: u32) -> (u64, Option<&AtomicU64>) {
        let dev = dev.id().as_address() as u64 >> 10 & 0xff_ffff;
        let tick = coarse_ticks::<SEEN_HZ>() & 0xffff;
        let slot = self.0.get((u64::from(qpn) ^ dev) as usize % Self::SLOTS);
        (u64::from(qpn) << 40 | dev << 16 | tick, slot)
    }

    /// Whether a packet for the QPN came in this tick.
    #[inline(always)]
    pub(crate) fn has(&self, dev: &NetDeviceRef, qpn: u32) -> bool {
        let (mark, slot) = self.mark(dev, qpn);
        slot.is_some_and(|slot| slot.load(Ordering::Relaxed) == mark)
    }

    /// A packet for the QPN came; whether it is the first in this tick.
    fn add(&self, dev: &NetDeviceRef, qpn: u32) -> bool {
        let (mark, slot) = self.mark(dev, qpn);
        slot.is_some_and(|slot| slot.swap(mark, Ordering::Relaxed) != mark)
    }
}

/// What is remembered for one sender until the context is known.
struct Pending {
    source: Addr,
    /// CE marks of valid packets; the first one's ICRC was checked.
    marks: u32,
    /// Where the CNP for the marks goes; also the CNP due at a window's close.
    target: Option<np::Target>,
    /// A window closed on a mark and the CNP waits for the context.
    close: bool,
    /// CNPs received.
    cnps: u32,
}

/// What is to be remembered.
pub(crate) enum Notice {
    /// A valid CE mark.
    Mark(np::Target),
    /// The CNP due at a window's close.
    Close(np::Target),
    /// A well-formed CNP.
    Cnp,
}

struct Inner {
    /// `None`: the QP does not exist, or nobody knows yet.
    context: Option<QpContext>,
    /// When the answer was true; 0 before the first.
    checked_ns: u64,
    /// It is in the worker's queue.
    queued: bool,
    /// It counts in the device's `unresolved`.
    unresolved: bool,
    pending: KVec<Pending>,
}

/// A QP, or a QPN that somebody made up.
#[pin_data]
pub(crate) struct Qp {
    /// The device.
    pub(crate) device: Arc<DeviceEntry>,
    #[pin]
    inner: SpinLockIrq<Inner>,
}

/// What is known of a QP at this moment.
pub(crate) enum Knowledge {
    /// Its context, which may be that of a QP that takes no part.
    Known(QpContext),
    /// There is no such QP.
    Absent,
    /// Nothing that could be relied on. A mark's ICRC must be checked before it is
    /// remembered unless `marked`.
    Unknown {
        /// A mark of this sender is remembered already.
        marked: bool,
    },
}

fn key(device: &Device, qpn: u32) -> [u32; 2] {
    [device.number, qpn]
}

impl QpContext {
    /// The peer's address (RC, UC).
    pub(crate) fn peer(&self) -> Addr {
        Addr::from_gid(self.peer_gid)
    }

    /// Whether this is a QP that takes part in congestion control at this moment.
    pub(crate) fn is_controlled(&self) -> bool {
        self.service != QpType::Other && self.state.is_live()
    }

    /// Whether packets of a service from an address belong to this QP.
    pub(crate) fn takes(&self, service: Option<Service>, source: Addr) -> bool {
        let (own, connected) = match self.service {
            QpType::Rc => (Service::Rc, true),
            QpType::Uc => (Service::Uc, true),
            QpType::Ud => (Service::Ud, false),
            QpType::Other => return false,
        };
        self.is_controlled()
            && service.is_none_or(|service| service == own)
            && (!connected || self.peer() == source)
    }
}

impl Qp {
    fn new(device: Arc<DeviceEntry>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            device,
            inner <- new_spinlock_irq!(
                Inner {
                    context: None,
                    checked_ns: 0,
                    queued: false,
                    unresolved: true,
                    pending: KVec::new(),
                },
                "rxe_cc_qp"
            ),
        }? Error)
    }
}

/// The number of the QP.
pub(crate) fn number(qp: &QpEntry) -> u32 {
    let [_, qpn] = *qp.key();
    qpn
}

/// Calls `f` for the QPs of a device whose context is known. `f` must not sleep.
pub(crate) fn for_each(tables: &Tables, device: &Device, mut f: impl FnMut(&QpEntry, &QpContext)) {
    tables.qps.for_each(|qp| {
        if qp.device.number == device.number {
            let context = qp.inner.lock().context;
            if let Some(context) = context {
                f(&qp, &context);
            }
        }
    });
}

/// A packet for `qpn` came by `dev`: sees to it that its context is known and fresh.
pub(crate) fn touch(
    tables: &Tables,
    device: ArcBorrow<'_, DeviceEntry>,
    dev: &NetDeviceRef,
    qpn: u32,
) {
    if qpn > QP1 && tables.seen.add(dev, qpn) {
        if let Some(qp) = find(tables, device, qpn) {
            consult(tables, &qp, None, now_ns());
        }
    }
}

/// The QP, known or not; `None` when it is not known and too many are asked for.
pub(crate) fn find(
    tables: &Tables,
    device: ArcBorrow<'_, DeviceEntry>,
    qpn: u32,
) -> Option<Arc<QpEntry>> {
    let key = key(&device, qpn);
    if let Some(qp) = tables.qps.get(&key, &rcu::read_lock()) {
        return Some(Arc::from(qp));
    }
    if device.unresolved.fetch_add(1, Ordering::Relaxed) >= UNRESOLVED_MAX {
        device.unresolved.fetch_sub(1, Ordering::Relaxed);
        return None;
    }
    match tables
        .qps
        .get_or_insert(key, Qp::new(Arc::from(device)), GFP_ATOMIC)
    {
        Ok((qp, true)) => {
            tables.sweep_later();
            Some(qp)
        }
        other => {
            device.unresolved.fetch_sub(1, Ordering::Relaxed);
            other.ok().map(|(qp, _)| qp)
        }
    }
}

/// What is known of a QP, when a packet from `source` came for it. Has the worker
/// ask when that is little or old.
pub(crate) fn consult(
    tables: &Tables,
    qp: &Arc<QpEntry>,
    source: Option<Addr>,
    now_ns: u64,
) -> Knowledge {
    let mut inner = qp.inner.lock();
    let age_ns = now_ns.saturating_sub(inner.checked_ns);
    let stranger = |context: &QpContext| {
        source.is_some_and(|source| !context.takes(None, source)) && age_ns > MISMATCH_NS
    };
    let knowledge = match inner.context {
        _ if inner.checked_ns == 0 || age_ns > STALE_NS => None,
        Some(context) if stranger(&context) => None,
        Some(context) => Some(Knowledge::Known(context)),
        None => Some(Knowledge::Absent),
    };
    let ask = knowledge.is_none() || (inner.context.is_some() && age_ns > VERIFY_NS);
    let knowledge = knowledge.unwrap_or_else(|| Knowledge::Unknown {
        marked: inner
            .pending
            .iter()
            .any(|pending| Some(pending.source) == source && pending.marks > 0),
    });
    let ask = ask && !mem::replace(&mut inner.queued, true);
    drop(inner);
    if ask {
        tables.queue.push(tables, qp);
    }
    knowledge
}

/// Has the worker ask for a context that was not verified for `unverified_ns`.
pub(crate) fn verify(tables: &Tables, qp: &Arc<QpEntry>, unverified_ns: u64, now_ns: u64) {
    let mut inner = qp.inner.lock();
    let old = now_ns.saturating_sub(inner.checked_ns) > unverified_ns;
    let ask = old && !mem::replace(&mut inner.queued, true);
    drop(inner);
    if ask {
        tables.queue.push(tables, qp);
    }
}

/// Remembers what came from `source` for a QP that is not known at this moment.
///
/// `false`: refused, too much is remembered already.
pub(crate) fn remember(tables: &Tables, qp: &Arc<QpEntry>, source: Addr, notice: Notice) -> bool {
    let mut inner = qp.inner.lock();
    let known = inner
        .pending
        .iter()
        .position(|pending| pending.source == source);
    let index = match known {
        Some(index) => index,
        None if inner.pending.len() >= PENDING_MAX => return false,
        None => {
            let new = Pending {
                source,
                marks: 0,
                target: None,
                close: false,
                cnps: 0,
            };
            if inner.pending.push(new, GFP_ATOMIC).is_err() {
                return false;
            }
            inner.pending.len() - 1
        }
    };
    let Some(pending) = inner.pending.get_mut(index) else {
        return false;
    };
    match notice {
        Notice::Mark(target) => {
            pending.marks = pending.marks.saturating_add(1);
            pending.target = Some(target);
        }
        Notice::Close(target) => {
            pending.close = true;
            pending.target.get_or_insert(target);
        }
        Notice::Cnp => pending.cnps = pending.cnps.saturating_add(1),
    }
    let ask = !mem::replace(&mut inner.queued, true);
    drop(inner);
    if ask {
        tables.queue.push(tables, qp);
    }
    true
}

/// The worker has an answer that was true at `checked_ns`.
fn answer(tables: &Tables, qp: &Arc<QpEntry>, context: Option<QpContext>, checked_ns: u64) {
    let mut inner = qp.inner.lock();
    let old = mem::replace(&mut inner.context, context);
    inner.checked_ns = checked_ns.max(1);
    let pending = mem::take(&mut inner.pending);
    let resolved = context.is_some() && mem::take(&mut inner.unresolved);
    drop(inner);

    if resolved {
        qp.device.unresolved.fetch_sub(1, Ordering::Relaxed);
    }
    if context.is_none() {
        tables.absent.store(true, Ordering::Relaxed);
    }
    if old.map(identity) != context.map(identity) {
        np::forget(tables, qp);
        rp::flow::context_changed(tables, qp, old.as_ref(), context.as_ref());
    }
    for pending in pending {
        let Pending {
            source,
            marks,
            target,
            close,
            cnps,
        } = pending;
        if let Some(target) = target {
            np::answered(tables, qp, context, target, marks, close);
        }
        if cnps > 0 {
            rp::answered(tables, qp, context, source, cnps);
        }
    }
}

/// What makes a QP another one although it has the same number.
fn identity(context: QpContext) -> (QpType, u32, [u8; 16]) {
    (context.service, context.dest_qpn, context.peer_gid)
}

/// QPs whose context the worker is to ask for.
#[pin_data]
pub(crate) struct Queue {
    #[pin]
    qps: SpinLockIrq<KVVec<Arc<QpEntry>>>,
    /// It was full: there are QPs marked as queued that are not in it.
    overflowed: AtomicBool,
}

impl Queue {
    /// Makes an empty queue.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            qps <- new_spinlock_irq!(KVVec::with_capacity(QUEUE_MAX, GFP_KERNEL)?, "rxe_cc_queue"),
            overflowed: AtomicBool::new(false),
        }? Error)
    }

    /// Adds a QP that was just marked as queued. Where it finds no place the worker looks
    /// for it by that mark.
    fn push(&self, tables: &Tables, qp: &Arc<QpEntry>) {
        if self.qps.lock().push_within_capacity(qp.clone()).is_err() {
            self.overflowed.store(true, Ordering::Release);
        }
        tables.kick();
    }

    /// Whether no QP is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.qps.lock().is_empty()
    }

    /// Whether nothing is to be done.
    pub(crate) fn is_done(&self) -> bool {
        self.is_empty() && !self.overflowed.load(Ordering::Relaxed)
    }

    /// Takes QPs out, whoever waits for them.
    pub(crate) fn forget(&self, wanted: impl Fn(&Qp) -> bool) {
        // Dropped after the lock.
        let Ok(mut gone) = KVVec::with_capacity(QUEUE_MAX, GFP_KERNEL) else {
            return;
        };
        self.qps.lock().retain(|qp| {
            let wanted = wanted(qp);
            if wanted {
                let _ = gone.push_within_capacity(qp.clone());
            }
            !wanted
        });
    }

    /// Asks for the contexts of all that is queued. The worker's part; sleeps.
    pub(crate) fn resolve(&self, tables: &Tables) {
        if !self.is_empty() {
            let Ok(empty) = KVVec::with_capacity(QUEUE_MAX, GFP_KERNEL) else {
                return;
            };
            let batch = mem::replace(&mut *self.qps.lock(), empty);
            Self::ask_all(tables, batch);
        }
        if self.overflowed.swap(false, Ordering::Acquire) {
            let others = tables.qps.collect(|qp| qp.inner.lock().queued);
            // As long as there are any, or no memory to look for them, the next run looks again.
            if !others.as_ref().is_ok_and(|others| others.is_empty()) {
                self.overflowed.store(true, Ordering::Relaxed);
            }
            if let Ok(others) = others {
                Self::ask_all(tables, others);
            }
        }
    }

    /// Asks for the contexts of these. Sleeps.
    fn ask_all(tables: &Tables, batch: KVVec<Arc<QpEntry>>) {
        let mut doubtful: KVVec<(Arc<QpEntry>, Option<QpContext>)> = KVVec::new();
        for qp in batch {
            let now_ns = now_ns();
            let known = {
                let mut inner = qp.inner.lock();
                inner.queued = false;
                inner.context
            };
            let Ok(asked) = ask(&qp) else {
                continue;
            };
            if asked.is_none() || asked == known {
                answer(tables, &qp, asked, now_ns);
            } else if let Err(error) = doubtful.push((qp.clone(), asked), GFP_KERNEL) {
                let _: kernel::alloc::AllocError = error;
                answer(tables, &qp, None, now_ns);
            }
        }
        for tries in 0.. {
            if doubtful.is_empty() {
                break;
            }
            fsleep(AGREE);
            doubtful.retain(|(qp, before)| {
                let now_ns = now_ns();
                let Ok(asked) = ask(qp) else {
                    return false;
                };
                if asked == *before || tries == AGREE_TRIES {
                    answer(tables, qp, asked, now_ns);
                    return false;
                }
                *before = asked;
                true
            });
        }
    }
}

/// Asks the RDMA core; `None`: there is no such QP. Sleeps.
///
/// # Errors
///
/// `ENODEV` while the device comes or goes: that says nothing about the QP, whose
/// packets go on when it is only this module that goes.
fn ask(qp: &QpEntry) -> Result<Option<QpContext>> {
    let device = qp.device.ib.get().ok_or(ENODEV)?;
    Ok(device.query_qp(number(qp)).ok())
}

/// Has idle contexts verified and forgets what does not exist; whether some of that
/// is left. The worker's part.
pub(crate) fn sweep(tables: &Tables) -> bool {
    let now_ns = now_ns();
    let mut left = false;
    tables.qps.for_each(|qp| {
        let mut inner = qp.inner.lock();
        let age_ns = now_ns.saturating_sub(inner.checked_ns);
        if inner.checked_ns != 0 && inner.context.is_none() && !inner.queued {
            if age_ns > ABSENT_NS {
                let unresolved = mem::take(&mut inner.unresolved);
                drop(inner);
                if unresolved {
                    qp.device.unresolved.fetch_sub(1, Ordering::Relaxed);
                }
                tables.qps.remove(&qp);
            } else {
                left = true;
            }
        } else {
            drop(inner);
            if age_ns > IDLE_NS {
                verify(tables, &Arc::from(qp), IDLE_NS, now_ns);
            }
        }
    });
    left
}
