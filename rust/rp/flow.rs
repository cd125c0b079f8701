// SPDX-License-Identifier: GPL-2.0

//! The flows that got a CNP: their rate, and the packets that wait for it.
//!
//! A flow is a QP's sending side. It is made by the first accepted CNP and
//! forgotten when the limiter is off and the last CNP long ago, or when the QP is
//! gone. The output hook finds it by what its packets carry: the peer's address
//! and QPN, or for UD the QP's own number.
//!
//! ```text
//!   output hook --may leave now--> IP output
//!        |                             ^
//!        +---> held ---timer, release--+
//! ```
//!
//! One context releases at a time, and while it does new packets queue up behind
//! it: so order holds although packets are sent without the lock.
//!
//! Held packets keep their QP's references and with them its ack timer and its
//! destruction waiting. [`super::doorbell`] takes care of both.

use super::{
    port::Gauges,
    queue::{Direction, Held, Note},
};
use crate::{
    counters::Counter,
    dcqcn::{
        pacer::{Due, Pacer},
        params::RpParams,
        rp::{Events, State, View},
    },
    device::{Device, DeviceEntry},
    latency::Interval,
    linux::{
        hrtimer::{impl_has_soft_timer, now_ns, this_cpu, SoftTimer},
        netfilter::{HookState, Verdict},
        rdma::{QpContext, QpType},
        rhashtable::Entry,
        skb_queue::SkbQueue,
        skbuff::SkBuff,
    },
    qp::{self, QpEntry},
    roce::{opcode::Kind, packet::Addr},
    tables::Tables,
    trace::{self, Ends, Waiting},
};
use core::{num::NonZeroU64, sync::atomic::Ordering};
use kernel::{
    prelude::*,
    sync::{new_spinlock_irq, rcu, Arc, ArcBorrow, SpinLockIrq},
    time::{delay::fsleep, Delta},
};

/// Two departures of waiting responses are never further apart: their ack timer is
/// the remote requester's, and nobody here can move it on.
const RESPONSE_GAP_NS: u64 = 16_000_000;
/// Memory that one flow's held responses may take.
const RESPONSE_BYTES_MAX: u32 = 4 << 20;
/// Memory that one device's held responses may take.
const DEVICE_RESPONSE_BYTES_MAX: u64 = 128 << 20;
/// From this local ack timeout on (33 ms) the doorbell moves a user's QP on in time.
const RUNG_TIMEOUT: u8 = 13;
/// How long after a departure on another CPU the next packet leaves on this one at
/// the earliest: some devices (veth) have a queue for each CPU, and the other CPU's
/// must have been emptied, or the packet overtakes.
const SETTLE_NS: u64 = 500_000;
/// Packets that are released in one go, before others get the CPU.
const RELEASE_MAX: u32 = 64;
/// How long packets of a QP under destroy are dropped.
const DYING_NS: u64 = 2_000_000_000;

/// How a flow treats packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// By its rate.
    Paced,
    /// The limiter went off: what is held goes out as fast as it can, in order.
    Draining,
    /// As `Draining`, and nothing is held ever again: the flow is to be forgotten.
    Closing,
    /// The QP is under destroy since then: everything is dropped, so that it ends.
    Dying { since_ns: u64 },
}

struct Inner {
    state: State,
    pacer: Pacer,
    params: Arc<RpParams>,
    held: Held,
    mode: Mode,
    /// Somebody releases packets at this moment.
    releasing: bool,
    /// Taken out of the table, or about to be.
    dead: bool,
    /// Priority of what the QP sends.
    priority: u8,
    /// What the device's gauges know of this flow.
    shown: Gauges,
    /// CNPs accepted.
    cnps: u64,
    /// Rate cuts.
    cuts: u64,
    /// The peer's address and QPN; a UD QP has none.
    peer: Addr,
    peer_qpn: u32,
    /// Half the ack timeout of a QP that no doorbell reaches in time.
    longest_hold_ns: Option<NonZeroU64>,
    last_request_ns: u64,
    last_ring_ns: u64,
    /// The last departures of data.
    requests_left: Departure,
    responses_left: Departure,
}

/// When and on which CPU a packet left.
#[derive(Clone, Copy, Default)]
struct Departure {
    at_ns: u64,
    cpu: u32,
}

impl Departure {
    /// When nothing can overtake it any more, on whatever CPU.
    fn settled_ns(&self) -> u64 {
        self.at_ns.saturating_add(SETTLE_NS)
    }
}

/// A flow.
#[pin_data]
pub(crate) struct Flow {
    /// The QP that sends.
    pub(crate) qp: Arc<QpEntry>,
    /// The QP's device, which each packet needs.
    device: Arc<DeviceEntry>,
    #[pin]
    inner: SpinLockIrq<Inner>,
    #[pin]
    timer: SoftTimer<Flow>,
}

impl_has_soft_timer! {
    impl HasSoftTimer for Flow { self.timer, Flow::release }
}

/// The key of a flow in [`Tables::rp_flows`].
pub(crate) type FlowKey = [u32; 7];

/// A shared [`Flow`], as its table holds it.
pub(crate) type FlowEntry = Entry<7, Flow>;

// With its reference count it fits into 512 bytes. Lock debugging adds to it.
#[cfg(not(CONFIG_DEBUG_SPINLOCK))]
const _: () = assert!(size_of::<FlowEntry>() <= 504);

/// The flow of a connected QP's packets: what they are addressed to.
pub(super) fn connected_key(device: &Device, peer: Addr, dest_qpn: u32) -> FlowKey {
    let [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3] = peer.to_gid();
    [
        device.number,
        0,
        dest_qpn,
        u32::from_ne_bytes([a0, a1, a2, a3]),
        u32::from_ne_bytes([b0, b1, b2, b3]),
        u32::from_ne_bytes([c0, c1, c2, c3]),
        u32::from_ne_bytes([d0, d1, d2, d3]),
    ]
}

/// The flow of an unconnected QP's packets: where they come from.
pub(super) fn datagram_key(device: &Device, qpn: u32) -> FlowKey {
    [device.number, 1, qpn, 0, 0, 0, 0]
}

/// The flow of a QP with this context.
fn key(qp: &QpEntry, context: &QpContext) -> FlowKey {
    match context.service {
        QpType::Ud => datagram_key(&qp.device, qp::number(qp)),
        _ => connected_key(&qp.device, context.peer(), context.dest_qpn),
    }
}

impl Inner {
    fn new(params: Arc<RpParams>, now_ns: u64) -> Self {
        Self {
            state: State::first_cnp(now_ns, &params),
            pacer: Pacer::new(),
            params,
            held: Held::new(),
            mode: Mode::Paced,
            releasing: false,
            dead: false,
            priority: 0,
            shown: Gauges::default(),
            cnps: 0,
            cuts: 0,
            peer: Addr::V4([0; 4]),
            peer_qpn: 0,
            longest_hold_ns: None,
            last_request_ns: now_ns,
            last_ring_ns: now_ns,
            requests_left: Departure::default(),
            responses_left: Departure::default(),
        }
    }

    fn set_context(&mut self, context: &QpContext, priority: u8) {
        let timed = context.service == QpType::Rc && context.ack_timeout != 0;
        let rung = context.user && context.ack_timeout >= RUNG_TIMEOUT;
        self.longest_hold_ns =
            NonZeroU64::new(ack_timeout_ns(context) / 2).filter(|_| timed && !rung);
        self.priority = priority;
        if context.service != QpType::Ud {
            self.peer = context.peer();
            self.peer_qpn = context.dest_qpn;
        }
    }

    /// Brings the state to `now_ns`.
    fn advance(&mut self, now_ns: u64) -> Events {
        let events = self.state.advance(now_ns, &self.params);
        self.pacer.accrue(&events);
        events
    }

    /// When the packet at the head of a direction must leave at the latest.
    fn floor_ns(&self, direction: Direction, note: &Note) -> Option<u64> {
        match direction {
            Direction::Request => self
                .longest_hold_ns
                .map(|longest_ns| note.since_ns.saturating_add(longest_ns.get())),
            // Each of them moves the requester's timer on, whatever waits behind it.
            Direction::Response => {
                let gap_ns = self.longest_hold_ns.map_or(RESPONSE_GAP_NS, |longest_ns| {
                    longest_ns.get().min(RESPONSE_GAP_NS)
                });
                let since_ns = self.responses_left.at_ns.max(note.since_ns);
                Some(since_ns.saturating_add(gap_ns))
            }
        }
    }

    fn left(&mut self, direction: Direction) -> &mut Departure {
        match direction {
            Direction::Request => &mut self.requests_left,
            Direction::Response => &mut self.responses_left,
        }
    }

    /// When a packet of a direction may leave on this CPU at the earliest, so as not
    /// to overtake the data that left before it.
    fn settled_ns(&self, direction: Direction) -> u64 {
        let left = match direction {
            Direction::Request => &self.requests_left,
            Direction::Response => &self.responses_left,
        };
        if left.cpu == this_cpu() {
            0
        } else {
            left.settled_ns()
        }
    }

    /// The direction from which a held packet may leave now, or when to ask again;
    /// `None` when nothing is held.
    fn due(&self, now_ns: u64) -> Option<core::result::Result<Direction, u64>> {
        let (direction, note) = self.held.next()?;
        let settled_ns = self.settled_ns(direction);
        if settled_ns > now_ns {
            return Some(Err(settled_ns));
        }
        if self.mode != Mode::Paced || note.wire_bytes == 0 {
            return Some(Ok(direction));
        }
        let mut ask_ns = match self.pacer.due(&self.state, note.wire_bytes, &self.params) {
            Due::Now => return Some(Ok(direction)),
            Due::At { at_ns } => at_ns,
        };
        for direction in [Direction::Request, Direction::Response] {
            let floor_ns = self
                .held
                .front(direction)
                .and_then(|note| self.floor_ns(direction, &note));
            match floor_ns {
                Some(floor_ns) if floor_ns <= now_ns => return Some(Ok(direction)),
                Some(floor_ns) => ask_ns = ask_ns.min(floor_ns),
                None => {}
            }
        }
        Some(Err(ask_ns))
    }

    /// A data packet leaves.
    fn depart(&mut self, direction: Direction, wire_bytes: u32, held: bool, now_ns: u64) -> Events {
        self.pacer
            .depart(&self.state, wire_bytes, held, &self.params);
        *self.left(direction) = Departure {
            at_ns: now_ns,
            cpu: this_cpu(),
        };
        let events = self.state.on_sent(now_ns, wire_bytes, &self.params);
        self.pacer.accrue(&events);
        events
    }

    /// Nothing is held or on its way, and what left can't be overtaken any more.
    fn is_idle(&self, now_ns: u64) -> bool {
        self.held.is_empty()
            && !self.releasing
            && self.requests_left.settled_ns() <= now_ns
            && self.responses_left.settled_ns() <= now_ns
    }

    /// Nothing of a direction is held or on its way: what comes now is first.
    fn is_first(&self, direction: Direction, data: bool) -> bool {
        !self.releasing
            && if data {
                // Data of both directions share the clock.
                self.held.is_empty()
            } else {
                self.held.is_idle(direction)
            }
    }
}

/// The local ack timeout, in ns; 0: none.
pub(super) fn ack_timeout_ns(context: &QpContext) -> u64 {
    match context.ack_timeout {
        0 => 0,
        // The field has five bits.
        timeout => 4096 << (timeout & 31),
    }
}

/// A packet at the output hook.
pub(super) struct Sent {
    pub(super) skb: SkBuff,
    pub(super) kind: Kind,
    pub(super) psn: u32,
    /// Its priority, where the QP's context does not say it (UD).
    pub(super) priority: Option<u8>,
}

impl Flow {
    fn new(qp: Arc<QpEntry>, params: Arc<RpParams>, now_ns: u64) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            device: qp.device.clone(),
            qp,
            inner <- new_spinlock_irq!(Inner::new(params, now_ns), "rxe_cc_rp_flow"),
            timer <- SoftTimer::new(),
        }? Error)
    }

    fn device(&self) -> &DeviceEntry {
        &self.device
    }

    fn ends(&self, inner: &Inner) -> Ends {
        Ends {
            qpn: qp::number(&self.qp),
            peer: inner.peer,
            peer_qpn: inner.peer_qpn,
        }
    }

    /// Counts what happened and brings the device's gauges up to date. Before every
    /// unlock that follows a change.
    fn settle(&self, inner: &mut Inner, events: Events) {
        let device = self.device();
        if events.cuts > 0 {
            inner.cuts += u64::from(events.cuts);
            device.count_many(Counter::RpRateCuts, events.cuts);
        }
        if events.increases > 0 {
            device
                .counters
                .add(Counter::RpRateIncreases, events.increases);
        }
        trace::rate(
            device,
            || self.ends(inner),
            &events,
            || inner.state.view(&inner.params),
        );
        let now = Gauges {
            limited: inner.state.limited() && inner.mode == Mode::Paced && !inner.dead,
            held_packets: inner.held.len(),
            response_bytes: inner.held.response_bytes(),
        };
        device.rp.gauges.replace(&inner.shown, &now);
        inner.shown = now;
    }

    /// Arms the timer for what is held, unless somebody releases it already.
    fn arm(&self, inner: &Inner, now_ns: u64) {
        if inner.releasing {
            return;
        }
        match inner.due(now_ns) {
            Some(Ok(_)) => self.timer.arm(now_ns),
            Some(Err(ask_ns)) => self.timer.arm(ask_ns),
            None => {}
        }
    }

    /// A packet of this flow wants to leave.
    pub(super) fn send(&self, sent: Sent, state: &HookState) -> Verdict {
        let device = self.device();
        let Sent {
            mut skb,
            kind,
            psn,
            priority,
        } = sent;
        let (direction, data) = match kind {
            Kind::Request => (Direction::Request, true),
            Kind::ReadResponse => (Direction::Response, true),
            Kind::Ack | Kind::AtomicAck => (Direction::Response, false),
            Kind::Cnp => return Verdict::Accept(skb),
        };
        let wire_bytes = skb.wire_len();
        let now_ns = now_ns();

        let mut inner = self.inner.lock();
        if let Mode::Dying { since_ns } = inner.mode {
            if now_ns.saturating_sub(since_ns) < DYING_NS {
                drop(inner);
                device.count(Counter::RpPurgedPackets);
                skb.discard();
                return Verdict::Stolen;
            }
            // It lives, though nobody can find it.
            inner.mode = Mode::Closing;
        }
        if direction == Direction::Request {
            inner.last_request_ns = now_ns;
        }
        if let Some(priority) = priority {
            inner.priority = priority;
        }
        let mut events = inner.advance(now_ns);
        let rewound = if data {
            inner.held.rewind(direction, psn)
        } else {
            SkbQueue::new()
        };
        device.count_many(Counter::RpRewoundPackets, rewound.len());

        let closing = inner.mode == Mode::Closing || device.tables.is_draining();
        let paced = inner.mode == Mode::Paced
            && inner.state.limited()
            && !device.rp.is_closed()
            && !closing;
        let leaves = inner.is_first(direction, data)
            && inner.settled_ns(direction) <= now_ns
            && (!data
                || !paced
                || inner.pacer.due(&inner.state, wire_bytes, &inner.params) == Due::Now);
        if leaves {
            // A flow that closes settles behind what it released, and then for good.
            if data && !closing {
                let departed = inner.depart(direction, wire_bytes, false, now_ns);
                events = events.and(departed);
            }
            self.settle(&mut inner, events);
            drop(inner);
            drop(rewound);
            return Verdict::Accept(skb);
        }

        let response = direction == Direction::Response;
        // Behind another one the timer is armed already.
        let is_head = inner.held.is_idle(direction);
        let refused = response && {
            let truesize = skb.truesize();
            inner.held.response_bytes().saturating_add(truesize) > RESPONSE_BYTES_MAX
                || device.rp.gauges.response_bytes() + u64::from(truesize)
                    > DEVICE_RESPONSE_BYTES_MAX
        };
        let refused = if refused {
            device.count(Counter::RpDroppedResponses);
            Some(skb)
        } else {
            if response {
                skb.orphan();
            }
            let charge = if data { wire_bytes } else { 0 };
            inner
                .held
                .push(direction, skb, state, Note::new(now_ns, charge, psn));
            let packet = Waiting {
                psn,
                wire_bytes: charge,
                response,
            };
            trace::hold(device, self.ends(&inner), packet, inner.held.len());
            None
        };
        self.settle(&mut inner, events);
        if is_head {
            self.arm(&inner, now_ns);
        }
        drop(inner);
        if let Some(skb) = refused {
            skb.discard();
        }
        drop(rewound);
        device.tables.watch_held();
        Verdict::Stolen
    }

    /// Sends what may leave now, and arms the timer for the rest. No lock is held.
    pub(super) fn release(&self) {
        let mut inner = self.inner.lock();
        if inner.releasing {
            return;
        }
        inner.releasing = true;
        for round in 0.. {
            let now_ns = now_ns();
            let events = inner.advance(now_ns);
            if inner.mode == Mode::Paced && !inner.state.limited() {
                inner.mode = Mode::Draining;
            }
            let next = match inner.due(now_ns) {
                Some(Ok(direction)) if round < RELEASE_MAX => inner
                    .held
                    .pop(direction)
                    .map(|(skb, note)| (direction, skb, note)),
                _ => None,
            };
            let Some((direction, skb, note)) = next else {
                inner.releasing = false;
                if inner.mode == Mode::Draining && inner.held.is_empty() {
                    inner.mode = Mode::Paced;
                }
                self.settle(&mut inner, events);
                self.arm(&inner, now_ns);
                return;
            };
            let departed = if note.wire_bytes != 0 {
                inner.depart(direction, note.wire_bytes, true, now_ns)
            } else {
                Events::default()
            };
            self.settle(&mut inner, events.and(departed));
            let ends = self.ends(&inner);
            drop(inner);
            let held_ns = now_ns.saturating_sub(note.since_ns);
            self.device().rp.held_for(held_ns);
            self.device().latencies.add(Interval::Held, held_ns);
            let packet = Waiting {
                psn: note.psn,
                wire_bytes: note.wire_bytes,
                response: direction == Direction::Response,
            };
            trace::release(self.device(), ends, packet, held_ns);
            skb.send();
            inner = self.inner.lock();
        }
    }

    /// A CNP for this flow; `false` when it is dead and another must be made.
    fn cnp(&self, context: &QpContext, priority: u8, now_ns: u64, first: bool) -> bool {
        let mut inner = self.inner.lock();
        if inner.mode == Mode::Closing && inner.held.is_empty() && !inner.releasing {
            // It was let go, and nothing is left of it: this is a first CNP again.
            inner.dead = true;
        }
        if inner.dead {
            return false;
        }
        inner.set_context(context, priority);
        inner.cnps += 1;
        let events = if first {
            Events::of_first_cnp(&inner.params)
        } else {
            let Inner {
                state,
                pacer,
                params,
                ..
            } = &mut *inner;
            let events = state.on_cnp(now_ns, params);
            pacer.accrue(&events);
            events
        };
        if inner.mode == Mode::Draining && inner.state.limited() {
            inner.mode = Mode::Paced;
        }
        self.settle(&mut inner, events);
        true
    }

    /// Takes over new parameters, at once for what is held.
    fn set_params(&self, new: &Arc<RpParams>, now_ns: u64) {
        let mut inner = self.inner.lock();
        if Arc::ptr_eq(&inner.params, new) {
            return;
        }
        let old = core::mem::replace(&mut inner.params, new.clone());
        let events = inner.state.on_params(now_ns, &old, new);
        inner.pacer.accrue(&events);
        inner.pacer.on_params(&old, new);
        self.settle(&mut inner, events);
        self.arm(&inner, now_ns);
        drop(inner);
        drop(old);
    }

    /// Drops what is held.
    pub(super) fn purge(&self, fate: Fate) {
        let mut inner = self.inner.lock();
        let gone = inner.held.take();
        match (fate, inner.mode) {
            (Fate::Live, _) | (Fate::Dying, Mode::Dying { .. }) => {}
            (Fate::Dying, _) => inner.mode = Mode::Dying { since_ns: now_ns() },
            (Fate::Closing, _) => inner.mode = Mode::Closing,
        }
        self.settle(&mut inner, Events::default());
        drop(inner);
        self.device()
            .count_many(Counter::RpPurgedPackets, gone.len());
        drop(gone);
    }

    /// Lets what is held go, all in order, and never holds anything again.
    fn close(&self) {
        let mut inner = self.inner.lock();
        if !matches!(inner.mode, Mode::Dying { .. }) {
            inner.mode = Mode::Closing;
        }
        drop(inner);
        self.release();
    }

    /// What the doorbell has to look after: something is held, or the QP is dying.
    pub(super) fn needs_watch(&self) -> bool {
        let inner = self.inner.lock();
        !inner.held.is_empty() || matches!(inner.mode, Mode::Dying { .. })
    }

    /// The QP was found alive: if it seemed to be under destroy, it is untracked for
    /// some reason and is let go its way.
    pub(super) fn found(&self) {
        let mut inner = self.inner.lock();
        if matches!(inner.mode, Mode::Dying { .. }) {
            inner.mode = Mode::Closing;
        }
    }

    /// Whether the doorbell is to be rung: no request came to the hook for a quarter
    /// of the ack timeout. Counts as rung when it is.
    pub(super) fn take_ring(&self, context: &QpContext, now_ns: u64) -> bool {
        if context.service != QpType::Rc || !context.user || context.ack_timeout == 0 {
            return false;
        }
        let mut inner = self.inner.lock();
        let last_ns = inner.last_request_ns.max(inner.last_ring_ns);
        let ring = now_ns.saturating_sub(last_ns) >= ack_timeout_ns(context) / 4;
        if ring {
            inner.last_ring_ns = now_ns;
        }
        ring
    }

    /// The flow at this moment.
    fn snapshot(&self, now_ns: u64) -> Snapshot {
        let mut inner = self.inner.lock();
        let events = inner.advance(now_ns);
        self.settle(&mut inner, events);
        self.arm(&inner, now_ns);
        let mut view = inner.state.view(&inner.params);
        // A flow that was let go is not held to its rate.
        view.limited &= inner.mode == Mode::Paced;
        Snapshot {
            view,
            priority: inner.priority,
            held: inner.held.len(),
            cnps: inner.cnps,
            cuts: inner.cuts,
            since_cut_ns: now_ns.saturating_sub(inner.state.last_cut_ns()),
        }
    }
}

/// A flow as it is seen from outside.
pub(crate) struct Snapshot {
    /// Rates, alpha, stages.
    pub(crate) view: View,
    /// The priority by which it goes.
    pub(crate) priority: u8,
    /// Packets held.
    pub(crate) held: u32,
    /// CNPs accepted.
    pub(crate) cnps: u64,
    /// Rate cuts.
    pub(crate) cuts: u64,
    /// The time since the last cut, in ns.
    pub(crate) since_cut_ns: u64,
}

/// The flow of a QP, if it has a state.
pub(crate) fn snapshot(
    tables: &Tables,
    qp: &QpEntry,
    context: &QpContext,
    now_ns: u64,
) -> Option<Snapshot> {
    let guard = rcu::read_lock();
    let flow = tables.rp_flows.get(&key(qp, context), &guard)?;
    (qp::number(&flow.qp) == qp::number(qp)).then(|| flow.snapshot(now_ns))
}

/// What becomes of a flow whose held packets are dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It goes on.
    Live,
    /// Its QP is under destroy: what it still sends is dropped, too.
    Dying,
    /// It holds nothing any more, and is to be forgotten.
    Closing,
}

/// A CNP was accepted for a QP.
///
/// # Errors
///
/// `ENOMEM` when there is no flow yet and no memory for one.
pub(super) fn cnp(tables: &Tables, qp: &Arc<QpEntry>, context: &QpContext, priority: u8) -> Result {
    let now_ns = now_ns();
    let key = key(qp, context);
    loop {
        let guard = rcu::read_lock();
        if let Some(flow) = tables.rp_flows.get(&key, &guard) {
            if qp::number(&flow.qp) == qp::number(qp) && flow.cnp(context, priority, now_ns, false)
            {
                return Ok(());
            }
            // Of a QP that is gone: the new one inherits nothing.
            forget_flow(tables, &flow);
        }
        drop(guard);
        let params = qp.device.rp.params();
        let new = Flow::new(qp.clone(), params, now_ns);
        let (flow, new) = tables.rp_flows.get_or_insert(key, new, GFP_ATOMIC)?;
        if new {
            qp.device.rp.flows.fetch_add(1, Ordering::Relaxed);
            flow.cnp(context, priority, now_ns, true);
            // A knob may have been written meanwhile.
            flow.set_params(&qp.device.rp.params(), now_ns);
            drop(flow);
            tables.check_gone(&qp.device);
            tables.sweep_later();
            return Ok(());
        }
    }
}

/// Takes a flow out of its table; whatever it holds is dropped.
fn forget_flow(tables: &Tables, flow: &FlowEntry) {
    flow.inner.lock().dead = true;
    flow.purge(Fate::Closing);
    if tables.rp_flows.remove(flow) {
        flow.device().rp.flows.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The context of a QP is another one than before, or the QP is gone.
pub(crate) fn context_changed(
    tables: &Tables,
    qp: &QpEntry,
    old: Option<&QpContext>,
    new: Option<&QpContext>,
) {
    let guard = rcu::read_lock();
    if let Some(flow) = old.and_then(|old| tables.rp_flows.get(&key(qp, old), &guard)) {
        if qp::number(&flow.qp) == qp::number(qp) {
            match new {
                None => flow.purge(Fate::Dying),
                Some(_) => forget_flow(tables, &flow),
            }
        }
    }
    if let Some(flow) = new.and_then(|new| tables.rp_flows.get(&key(qp, new), &guard)) {
        if qp::number(&flow.qp) != qp::number(qp) {
            forget_flow(tables, &flow);
        }
    }
}

/// Everything of one device.
fn for_device(tables: &Tables, device: &Device, mut f: impl FnMut(ArcBorrow<'_, FlowEntry>)) {
    tables.rp_flows.for_each(|flow| {
        if flow.device().number == device.number {
            f(flow);
        }
    });
}

/// The parameters of a device changed.
pub(super) fn params_changed(device: &Device) {
    let now_ns = now_ns();
    let params = device.rp.params();
    for_device(&device.tables, device, |flow| {
        flow.set_params(&params, now_ns);
    });
}

/// A priority was switched off: its flows are let go.
pub(super) fn priority_disabled(device: &Device) {
    for_device(&device.tables, device, |flow| {
        let priority = flow.inner.lock().priority;
        if !device.knobs.rp_enabled(priority) {
            flow.close();
        }
    });
    device.tables.kick();
}

/// The device no longer sends: what is held for it is dropped.
pub(super) fn purge_device(device: &Device) {
    for_device(&device.tables, device, |flow| flow.purge(Fate::Live));
}

/// Lets everything go, in order. [`Tables::is_draining`] must hold, so that nothing
/// more is held. Sleeps.
pub(super) fn drain(tables: &Tables) {
    loop {
        let mut idle = true;
        tables.rp_flows.for_each(|flow| {
            if !flow.inner.lock().is_idle(now_ns()) {
                idle = false;
                flow.close();
            }
        });
        if idle {
            return;
        }
        fsleep(Delta::from_nanos(SETTLE_NS as i64));
    }
}

/// Forgets all flows of devices that are `wanted`; whether there were any.
pub(crate) fn forget_if(tables: &Tables, wanted: impl Fn(&Device) -> bool) -> bool {
    let mut found = false;
    tables.rp_flows.for_each(|flow| {
        if wanted(flow.device()) {
            found = true;
            forget_flow(tables, &flow);
        }
    });
    found
}

/// Forgets flows whose limiter is off and whose last CNP is long ago, and those
/// that are to be forgotten; has it verified that limited QPs still exist. The
/// worker's part.
pub(crate) fn sweep(tables: &Tables) {
    let now_ns = now_ns();
    tables.rp_flows.for_each(|flow| {
        let mut inner = flow.inner.lock();
        let events = inner.advance(now_ns);
        let over = match inner.mode {
            Mode::Paced | Mode::Draining => inner.state.can_free(now_ns, &inner.params),
            Mode::Closing => inner.is_idle(now_ns),
            Mode::Dying { since_ns } => now_ns.saturating_sub(since_ns) > DYING_NS,
        };
        let over = over && inner.held.is_empty() && !inner.releasing;
        inner.dead = inner.dead || over;
        flow.settle(&mut inner, events);
        let limited = inner.shown.limited;
        drop(inner);
        if limited {
            qp::verify(tables, &flow.qp, qp::LIMITED_IDLE_NS, now_ns);
        }
        if over && tables.rp_flows.remove(&flow) {
            flow.device().rp.flows.fetch_sub(1, Ordering::Relaxed);
        }
    });
}
