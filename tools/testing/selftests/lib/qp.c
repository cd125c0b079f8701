// SPDX-License-Identifier: GPL-2.0
/*
 * QPs to talk to: one process that makes, connects, uses and destroys QPs of one
 * device as it is told.
 *
 * In: `qp DEVICE GID_INDEX`, then one command a line on stdin. Out: one line for
 * each, "ok ..." or "error ...". Tests get QPs in exactly the state they ask for,
 * peers included that do not exist; perftest stands for the traffic of real ones.
 *
 *   new rc|uc|ud [closed]   a QP in INIT           -> ok ID QPN
 *                           closed: to RDMA WRITE, READ and atomics
 *   rtr ID GID QPN [TCLASS [SL]]  connected        (ud: GID and QPN are ignored)
 *   rts ID [TIMEOUT]        TIMEOUT: ack timeout, 4.096 us * 2^TIMEOUT (14)
 *   state ID reset|init|sqd|err
 *   query ID                                       -> ok STATE
 *   memory                                         -> ok RKEY ADDRESS LENGTH
 *   recv ID N               post N receive buffers
 *   post ID write|send|read N SIZE RKEY ADDRESS    (send: RKEY and ADDRESS are ignored)
 *   ud ID GID QPN N SIZE [TCLASS]   N datagrams
 *   poll ID N SECONDS       wait for N send completions -> ok N | error ...
 *   join ID GID             multicast
 *   destroy ID
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_QPS		4096
#define QKEY		0x11111111
#define FIRST_PSN	1000
#define BUFFER		(1 << 20)
#define DEPTH		256

struct slot {
	struct ibv_qp *qp;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	int type;
	int access;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char *buffer;
static int gid_index;
static struct slot slots[MAX_QPS];
static int slot_count;

static void reply(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

static void result(const char *what, int error)
{
	if (error)
		reply("error %s: %s", what, strerror(error < 0 ? errno : error));
	else
		reply("ok");
}

static int modify(struct slot *slot, struct ibv_qp_attr *attr, int mask)
{
	return ibv_modify_qp(slot->qp, attr, mask);
}

static int to_init(struct slot *slot)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = slot->access,
		.qkey = QKEY,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	if (slot->type == IBV_QPT_UD)
		mask |= IBV_QP_QKEY;
	else
		mask |= IBV_QP_ACCESS_FLAGS;
	return modify(slot, &attr, mask);
}

static void new_qp(const char *type, int closed)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct slot *slot = &slots[slot_count];
	int error;

	if (slot_count == MAX_QPS) {
		reply("error too many QPs");
		return;
	}
	slot->type = !strcmp(type, "ud") ? IBV_QPT_UD : !strcmp(type, "uc") ? IBV_QPT_UC : IBV_QPT_RC;
	slot->access = closed ? 0 : IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	init.qp_type = slot->type;
	slot->send_cq = init.send_cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	slot->recv_cq = init.recv_cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	if (!init.send_cq || !init.recv_cq) {
		reply("error create_cq: %s", strerror(errno));
		return;
	}
	slot->qp = ibv_create_qp(pd, &init);
	if (!slot->qp) {
		reply("error create_qp: %s", strerror(errno));
		return;
	}
	error = to_init(slot);
	if (error) {
		reply("error init: %s", strerror(error));
		return;
	}
	reply("ok %d %u", slot_count++, slot->qp->qp_num);
}

static int to_rtr(struct slot *slot, const char *gid, unsigned int qpn, unsigned int tclass, unsigned int sl)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qpn,
		.rq_psn = FIRST_PSN,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 1,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.sl = sl,
			.grh = { .sgid_index = gid_index, .hop_limit = 64, .traffic_class = tclass },
		},
	};
	int mask = IBV_QP_STATE;

	if (slot->type == IBV_QPT_UD)
		return modify(slot, &attr, mask);
	if (inet_pton(AF_INET6, gid, &attr.ah_attr.grh.dgid) != 1)
		return EINVAL;
	mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (slot->type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return modify(slot, &attr, mask);
}

static int to_rts(struct slot *slot, unsigned int timeout)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = FIRST_PSN,
		.timeout = timeout,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 16,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (slot->type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return modify(slot, &attr, mask);
}

static int to_state(struct slot *slot, const char *name)
{
	struct ibv_qp_attr attr = { 0 };

	if (!strcmp(name, "init"))
		return to_init(slot);
	attr.qp_state = !strcmp(name, "reset") ? IBV_QPS_RESET : !strcmp(name, "sqd") ? IBV_QPS_SQD : IBV_QPS_ERR;
	return modify(slot, &attr, IBV_QP_STATE);
}

static void query(struct slot *slot)
{
	static const char *const names[] = { "reset", "init", "rtr", "rts", "sqd", "sqe", "err" };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(slot->qp, &attr, IBV_QP_STATE, &init) || (unsigned int)attr.qp_state > IBV_QPS_ERR)
		reply("error query");
	else
		reply("ok %s", names[attr.qp_state]);
}

static int receive(struct slot *slot, int count)
{
	struct ibv_sge sge = { (uintptr_t)buffer, 4096, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	int error = 0;

	while (!error && count-- > 0)
		error = ibv_post_recv(slot->qp, &wr, &bad);
	return error;
}

static int post(struct slot *slot, const char *kind, int count, unsigned int size, unsigned int rkey,
		unsigned long long address)
{
	struct ibv_sge sge = { (uintptr_t)buffer, size, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	int error = 0;

	wr.opcode = !strcmp(kind, "write") ? IBV_WR_RDMA_WRITE : !strcmp(kind, "read") ? IBV_WR_RDMA_READ : IBV_WR_SEND;
	wr.wr.rdma.rkey = rkey;
	wr.wr.rdma.remote_addr = address;
	while (!error && count-- > 0)
		error = ibv_post_send(slot->qp, &wr, &bad);
	return error;
}

static int datagrams(struct slot *slot, const char *gid, unsigned int qpn, int count, unsigned int size,
		     unsigned int tclass)
{
	struct ibv_ah_attr ah_attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .sgid_index = gid_index, .hop_limit = 64, .traffic_class = tclass },
	};
	struct ibv_sge sge = { (uintptr_t)buffer, size, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_ah *ah;
	int error = 0;

	if (inet_pton(AF_INET6, gid, &ah_attr.grh.dgid) != 1)
		return EINVAL;
	ah = ibv_create_ah(pd, &ah_attr);
	if (!ah)
		return errno;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = QKEY;
	while (!error && count-- > 0)
		error = ibv_post_send(slot->qp, &wr, &bad);
	/* The handle stays: the packets may not have left yet. */
	return error;
}

static void poll_cq(struct slot *slot, int count, int seconds)
{
	time_t end = time(NULL) + seconds;
	struct timespec nap = { 0, 1000000 };
	struct ibv_wc wc;
	int got = 0, n;

	while (got < count) {
		n = ibv_poll_cq(slot->send_cq, 1, &wc);
		if (n < 0) {
			reply("error poll");
			return;
		}
		if (n == 0) {
			if (time(NULL) > end) {
				reply("error timeout after %d completions", got);
				return;
			}
			nanosleep(&nap, NULL);
			continue;
		}
		if (wc.status) {
			reply("error completion %d: %s", got, ibv_wc_status_str(wc.status));
			return;
		}
		got++;
	}
	reply("ok %d", got);
}

static int destroy(struct slot *slot)
{
	int error = ibv_destroy_qp(slot->qp);

	if (error)
		return error;
	slot->qp = NULL;
	ibv_destroy_cq(slot->send_cq);
	ibv_destroy_cq(slot->recv_cq);
	return 0;
}

static int open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	if (!context)
		return -1;
	pd = ibv_alloc_pd(context);
	buffer = aligned_alloc(4096, BUFFER);
	if (!pd || !buffer)
		return -1;
	memset(buffer, 0, BUFFER);
	mr = ibv_reg_mr(pd, buffer, BUFFER,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	return mr ? 0 : -1;
}

static void obey(const char *line)
{
	char command[16] = "", word[64] = "", kind[16] = "";
	unsigned int id, qpn = 0, tclass = 0, sl = 0, count = 0, size = 0, rkey = 0, timeout = 14;
	unsigned long long address = 0;
	struct slot *slot;
	union ibv_gid gid;

	if (sscanf(line, "%15s", command) != 1)
		return;
	if (!strcmp(command, "new") && sscanf(line, "%*s %15s %63s", kind, word) >= 1) {
		new_qp(kind, !strcmp(word, "closed"));
		return;
	}
	if (!strcmp(command, "memory")) {
		reply("ok %u %llu %d", mr->rkey, (unsigned long long)(uintptr_t)buffer, BUFFER);
		return;
	}
	if (sscanf(line, "%*s %u", &id) != 1 || id >= (unsigned int)slot_count || !slots[id].qp) {
		reply("error no such QP");
		return;
	}
	slot = &slots[id];
	if (!strcmp(command, "rtr") && sscanf(line, "%*s %*u %63s %u %u %u", word, &qpn, &tclass, &sl) >= 2)
		result("rtr", to_rtr(slot, word, qpn, tclass, sl));
	else if (!strcmp(command, "rts") && sscanf(line, "%*s %*u %u", &timeout) >= -1)
		result("rts", to_rts(slot, timeout));
	else if (!strcmp(command, "state") && sscanf(line, "%*s %*u %15s", kind) == 1)
		result(kind, to_state(slot, kind));
	else if (!strcmp(command, "query"))
		query(slot);
	else if (!strcmp(command, "recv") && sscanf(line, "%*s %*u %u", &count) == 1)
		result("recv", receive(slot, count));
	else if (!strcmp(command, "post") &&
		 sscanf(line, "%*s %*u %15s %u %u %u %llu", kind, &count, &size, &rkey, &address) >= 3)
		result("post", post(slot, kind, count, size, rkey, address));
	else if (!strcmp(command, "ud") &&
		 sscanf(line, "%*s %*u %63s %u %u %u %u", word, &qpn, &count, &size, &tclass) >= 4)
		result("ud", datagrams(slot, word, qpn, count, size, tclass));
	else if (!strcmp(command, "poll") && sscanf(line, "%*s %*u %u %u", &count, &timeout) == 2)
		poll_cq(slot, count, timeout);
	else if (!strcmp(command, "join") && sscanf(line, "%*s %*u %63s", word) == 1 &&
		 inet_pton(AF_INET6, word, &gid) == 1)
		result("join", ibv_attach_mcast(slot->qp, &gid, 0));
	else if (!strcmp(command, "destroy"))
		result("destroy", destroy(slot));
	else
		reply("error what is: %s", command);
}

int main(int argc, char **argv)
{
	char line[256];

	if (argc != 3) {
		fprintf(stderr, "usage: qp DEVICE GID_INDEX\n");
		return 2;
	}
	gid_index = atoi(argv[2]);
	if (open_device(argv[1])) {
		reply("error cannot open %s: %s", argv[1], strerror(errno));
		return 1;
	}
	reply("ok");
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	/* Exit without destroying: the kernel cleans up, as after a crash. */
	return 0;
}
