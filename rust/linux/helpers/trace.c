// SPDX-License-Identifier: GPL-2.0

#define CREATE_TRACE_POINTS
#include "../rxe_cc_trace.h"

void rxe_cc_trace_ce(const struct rxe_cc_trace_flow *flow, u8 verdict)
{
	trace_ce(flow, verdict);
}

void rxe_cc_trace_cnp_tx(const struct rxe_cc_trace_flow *flow, bool deferred,
			 int status)
{
	trace_cnp_tx(flow, deferred, status);
}

void rxe_cc_trace_cnp_rx(const struct rxe_cc_trace_flow *flow, u8 verdict)
{
	trace_cnp_rx(flow, verdict);
}

bool rxe_cc_trace_enabled(void)
{
	return trace_ce_enabled() || trace_cnp_tx_enabled() ||
	       trace_cnp_rx_enabled() || trace_rate_cut_enabled() ||
	       trace_rate_increase_enabled() || trace_limiter_enabled() ||
	       trace_hold_enabled() || trace_release_enabled();
}

void rxe_cc_trace_rate_cut(const struct rxe_cc_trace_flow *flow,
			   const struct rxe_cc_trace_rate *rate)
{
	trace_rate_cut(flow, rate);
}

void rxe_cc_trace_rate_increase(const struct rxe_cc_trace_flow *flow,
				const struct rxe_cc_trace_rate *rate)
{
	trace_rate_increase(flow, rate);
}

void rxe_cc_trace_limiter(const struct rxe_cc_trace_flow *flow,
			  const struct rxe_cc_trace_rate *rate, bool on)
{
	trace_limiter(flow, rate, on);
}

void rxe_cc_trace_hold(const struct rxe_cc_trace_flow *flow, u32 psn,
		       u32 wire_bytes, bool response, u32 held)
{
	trace_hold(flow, psn, wire_bytes, response, held);
}

void rxe_cc_trace_release(const struct rxe_cc_trace_flow *flow, u32 psn,
			  u32 wire_bytes, bool response, u64 held_ns)
{
	trace_release(flow, psn, wire_bytes, response, held_ns);
}
