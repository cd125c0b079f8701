// SPDX-License-Identifier: GPL-2.0

//! The tracepoints of `rxe_cc_trace.h`, each as a safe function. While all are off
//! an event costs a call with patched-out jumps, see [`enabled`].
//!
//! C header: [`include/linux/tracepoint.h`](srctree/include/linux/tracepoint.h).

use super::bindings;

/// Bytes of a device's name, with its terminator.
pub(crate) const NAME_LEN: usize = bindings::RXE_CC_NAME_LEN as usize;

/// What every event says of its flow.
pub(crate) struct TraceFlow<'a> {
    /// The RDMA device's name, terminated.
    pub(crate) ibdev: &'a [u8; NAME_LEN],
    /// The peer's GID.
    pub(crate) peer: &'a [u8; 16],
    /// Our QPN.
    pub(crate) qpn: u32,
    /// The peer's QPN; 0 when nobody knows.
    pub(crate) peer_qpn: u32,
}

impl TraceFlow<'_> {
    fn raw(&self) -> bindings::rxe_cc_trace_flow {
        bindings::rxe_cc_trace_flow {
            ibdev: self.ibdev.as_ptr().cast(),
            peer: self.peer.as_ptr(),
            qpn: self.qpn,
            peer_qpn: self.peer_qpn,
        }
    }
}

/// What events about the rate say.
pub(crate) type TraceRate = bindings::rxe_cc_trace_rate;

/// `rxe_cc:ce`.
pub(crate) fn ce(flow: &TraceFlow<'_>, verdict: u8) {
    // SAFETY: The references are valid for the call and for the lengths that the event copies.
    unsafe { bindings::rxe_cc_trace_ce(&flow.raw(), verdict) };
}

/// `rxe_cc:cnp_tx`.
pub(crate) fn cnp_tx(flow: &TraceFlow<'_>, deferred: bool, status: i32) {
    // SAFETY: As in `ce()`.
    unsafe { bindings::rxe_cc_trace_cnp_tx(&flow.raw(), deferred, status) };
}

/// `rxe_cc:cnp_rx`.
pub(crate) fn cnp_rx(flow: &TraceFlow<'_>, verdict: u8) {
    // SAFETY: As in `ce()`.
    unsafe { bindings::rxe_cc_trace_cnp_rx(&flow.raw(), verdict) };
}

/// Whether somebody listens to any event.
#[inline]
pub(crate) fn enabled() -> bool {
    // SAFETY: No requirements.
    unsafe { bindings::rxe_cc_trace_enabled() }
}

/// `rxe_cc:rate_cut`.
pub(crate) fn rate_cut(flow: &TraceFlow<'_>, rate: &TraceRate) {
    // SAFETY: As in `ce()`.
    unsafe { bindings::rxe_cc_trace_rate_cut(&flow.raw(), rate) };
}

/// `rxe_cc:rate_increase`.
pub(crate) fn rate_increase(flow: &TraceFlow<'_>, rate: &TraceRate) {
    // SAFETY: As in `ce()`.
    unsafe { bindings::rxe_cc_trace_rate_increase(&flow.raw(), rate) };
}

/// `rxe_cc:limiter`.
pub(crate) fn limiter(flow: &TraceFlow<'_>, rate: &TraceRate, on: bool) {
    // SAFETY: As in `ce()`.
    unsafe { bindings::rxe_cc_trace_limiter(&flow.raw(), rate, on) };
}

/// `rxe_cc:hold`.
pub(crate) fn hold(flow: &TraceFlow<'_>, psn: u32, wire_bytes: u32, response: bool, held: u32) {
    // SAFETY: As in `ce()`.
    unsafe { bindings::rxe_cc_trace_hold(&flow.raw(), psn, wire_bytes, response, held) };
}

/// `rxe_cc:release`.
pub(crate) fn release(
    flow: &TraceFlow<'_>,
    psn: u32,
    wire_bytes: u32,
    response: bool,
    held_ns: u64,
) {
    // SAFETY: As in `ce()`.
    unsafe { bindings::rxe_cc_trace_release(&flow.raw(), psn, wire_bytes, response, held_ns) };
}
