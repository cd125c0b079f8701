/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tracepoints rxe_cc:*. Rates are in bit/s, real unless they say model;
 * alpha is in 1/1024, with three decimals. Addresses are GIDs: an IPv4 address is
 * shown as ::ffff:a.b.c.d.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rxe_cc

#if !defined(_RXE_CC_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _RXE_CC_TRACE_H

#include <linux/tracepoint.h>

#define RXE_CC_FLOW_FIELDS					\
	__array(char, ibdev, RXE_CC_NAME_LEN)			\
	__array(u8, peer, 16)					\
	__field(u32, qpn)					\
	__field(u32, peer_qpn)

#define RXE_CC_FLOW_ASSIGN						\
	do {								\
		memcpy(__entry->ibdev, flow->ibdev, RXE_CC_NAME_LEN);	\
		memcpy(__entry->peer, flow->peer, 16);			\
		__entry->qpn = flow->qpn;				\
		__entry->peer_qpn = flow->peer_qpn;			\
	} while (0)

#define RXE_CC_FLOW_FORMAT "ibdev=%s qpn=%u peer=%pI6c peer_qpn=%u"
#define RXE_CC_FLOW_ARGS \
	__entry->ibdev, __entry->qpn, __entry->peer, __entry->peer_qpn

/* As in rust/trace.rs. */
TRACE_EVENT(ce,
	TP_PROTO(const struct rxe_cc_trace_flow *flow, u8 verdict),
	TP_ARGS(flow, verdict),
	TP_STRUCT__entry(
		RXE_CC_FLOW_FIELDS
		__field(u8, verdict)
	),
	TP_fast_assign(
		RXE_CC_FLOW_ASSIGN;
		__entry->verdict = verdict;
	),
	TP_printk(RXE_CC_FLOW_FORMAT " verdict=%s", RXE_CC_FLOW_ARGS,
		  __print_symbolic(__entry->verdict,
				   { 0, "valid" },
				   { 1, "disabled" },
				   { 2, "not_data" },
				   { 3, "invalid" },
				   { 4, "unresolved" }))
);

TRACE_EVENT(cnp_tx,
	TP_PROTO(const struct rxe_cc_trace_flow *flow, bool deferred, int status),
	TP_ARGS(flow, deferred, status),
	TP_STRUCT__entry(
		RXE_CC_FLOW_FIELDS
		__field(bool, deferred)
		__field(int, status)
	),
	TP_fast_assign(
		RXE_CC_FLOW_ASSIGN;
		__entry->deferred = deferred;
		__entry->status = status;
	),
	TP_printk(RXE_CC_FLOW_FORMAT " %s status=%d", RXE_CC_FLOW_ARGS,
		  __entry->deferred ? "deferred" : "immediate", __entry->status)
);

TRACE_EVENT(cnp_rx,
	TP_PROTO(const struct rxe_cc_trace_flow *flow, u8 verdict),
	TP_ARGS(flow, verdict),
	TP_STRUCT__entry(
		RXE_CC_FLOW_FIELDS
		__field(u8, verdict)
	),
	TP_fast_assign(
		RXE_CC_FLOW_ASSIGN;
		__entry->verdict = verdict;
	),
	TP_printk(RXE_CC_FLOW_FORMAT " verdict=%s", RXE_CC_FLOW_ARGS,
		  __print_symbolic(__entry->verdict,
				   { 0, "handled" },
				   { 1, "disabled" },
				   { 2, "malformed" },
				   { 3, "bad_icrc" },
				   { 4, "unknown_qp" },
				   { 5, "wrong_peer" },
				   { 6, "no_memory" },
				   { 7, "unresolved" }))
);

#define RXE_CC_RATE_FIELDS		\
	__field(u64, rate_bps)		\
	__field(u64, target_bps)	\
	__field(u64, model_rate_bps)	\
	__field(u64, time_stage)	\
	__field(u64, byte_stage)	\
	__field(u32, alpha_milli)	\
	__field(u32, events)

#define RXE_CC_RATE_ASSIGN						\
	do {								\
		__entry->rate_bps = rate->rate_bps;			\
		__entry->target_bps = rate->target_bps;			\
		__entry->model_rate_bps = rate->model_rate_bps;		\
		__entry->time_stage = rate->time_stage;			\
		__entry->byte_stage = rate->byte_stage;			\
		__entry->alpha_milli = rate->alpha_milli;		\
		__entry->events = rate->events;				\
	} while (0)

#define RXE_CC_RATE_FORMAT						\
	" rate=%llu target=%llu model_rate=%llu alpha=%u.%03u"		\
	" time_stage=%llu byte_stage=%llu"
#define RXE_CC_RATE_ARGS						\
	__entry->rate_bps, __entry->target_bps,				\
	__entry->model_rate_bps, __entry->alpha_milli / 1000,		\
	__entry->alpha_milli % 1000, __entry->time_stage,		\
	__entry->byte_stage

/* `events`: cuts or stages that are told of at once, with the state after them. */
DECLARE_EVENT_CLASS(rxe_cc_rate,
	TP_PROTO(const struct rxe_cc_trace_flow *flow,
		 const struct rxe_cc_trace_rate *rate),
	TP_ARGS(flow, rate),
	TP_STRUCT__entry(
		RXE_CC_FLOW_FIELDS
		RXE_CC_RATE_FIELDS
	),
	TP_fast_assign(
		RXE_CC_FLOW_ASSIGN;
		RXE_CC_RATE_ASSIGN;
	),
	TP_printk(RXE_CC_FLOW_FORMAT RXE_CC_RATE_FORMAT " events=%u",
		  RXE_CC_FLOW_ARGS, RXE_CC_RATE_ARGS, __entry->events)
);

DEFINE_EVENT(rxe_cc_rate, rate_cut,
	TP_PROTO(const struct rxe_cc_trace_flow *flow,
		 const struct rxe_cc_trace_rate *rate),
	TP_ARGS(flow, rate));

DEFINE_EVENT(rxe_cc_rate, rate_increase,
	TP_PROTO(const struct rxe_cc_trace_flow *flow,
		 const struct rxe_cc_trace_rate *rate),
	TP_ARGS(flow, rate));

TRACE_EVENT(limiter,
	TP_PROTO(const struct rxe_cc_trace_flow *flow,
		 const struct rxe_cc_trace_rate *rate, bool on),
	TP_ARGS(flow, rate, on),
	TP_STRUCT__entry(
		RXE_CC_FLOW_FIELDS
		RXE_CC_RATE_FIELDS
		__field(bool, on)
	),
	TP_fast_assign(
		RXE_CC_FLOW_ASSIGN;
		RXE_CC_RATE_ASSIGN;
		__entry->on = on;
	),
	TP_printk(RXE_CC_FLOW_FORMAT " %s" RXE_CC_RATE_FORMAT, RXE_CC_FLOW_ARGS,
		  __entry->on ? "on" : "off", RXE_CC_RATE_ARGS)
);

TRACE_EVENT(hold,
	TP_PROTO(const struct rxe_cc_trace_flow *flow, u32 psn, u32 wire_bytes,
		 bool response, u32 held),
	TP_ARGS(flow, psn, wire_bytes, response, held),
	TP_STRUCT__entry(
		RXE_CC_FLOW_FIELDS
		__field(u32, psn)
		__field(u32, wire_bytes)
		__field(u32, held)
		__field(bool, response)
	),
	TP_fast_assign(
		RXE_CC_FLOW_ASSIGN;
		__entry->psn = psn;
		__entry->wire_bytes = wire_bytes;
		__entry->held = held;
		__entry->response = response;
	),
	TP_printk(RXE_CC_FLOW_FORMAT " %s psn=%u wire_bytes=%u held=%u",
		  RXE_CC_FLOW_ARGS,
		  __entry->response ? "response" : "request", __entry->psn,
		  __entry->wire_bytes, __entry->held)
);

TRACE_EVENT(release,
	TP_PROTO(const struct rxe_cc_trace_flow *flow, u32 psn, u32 wire_bytes,
		 bool response, u64 held_ns),
	TP_ARGS(flow, psn, wire_bytes, response, held_ns),
	TP_STRUCT__entry(
		RXE_CC_FLOW_FIELDS
		__field(u64, held_ns)
		__field(u32, psn)
		__field(u32, wire_bytes)
		__field(bool, response)
	),
	TP_fast_assign(
		RXE_CC_FLOW_ASSIGN;
		__entry->held_ns = held_ns;
		__entry->psn = psn;
		__entry->wire_bytes = wire_bytes;
		__entry->response = response;
	),
	TP_printk(RXE_CC_FLOW_FORMAT " %s psn=%u wire_bytes=%u held_us=%llu",
		  RXE_CC_FLOW_ARGS,
		  __entry->response ? "response" : "request", __entry->psn,
		  __entry->wire_bytes, __entry->held_ns / 1000)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE rxe_cc_trace
#include <trace/define_trace.h>
