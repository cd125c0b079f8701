// SPDX-License-Identifier: GPL-2.0
/*
 * Moves the contents of a file through an RC QP, so that a test can compare what
 * arrives with what was sent.
 *
 * In: `rp_copy DEVICE GID_INDEX BYTES`, then one command a line on stdin. Out: one
 * line for each, "ok ..." or "error ...". First comes "ok QPN RKEY ADDRESS". The
 * buffer is of BYTES; transfers move all of it, in messages of SIZE.
 *
 *   connect GID QPN
 *   load FILE | save FILE        the buffer's contents
 *   recv SIZE                    post receive buffers for a whole transfer
 *   write|read RKEY ADDRESS SIZE     wait for the last completion
 *   send SIZE
 *   received                     wait for the last receive
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEPTH		512
#define FIRST_PSN	0xfffff0	/* wraps on the way */
#define PATIENCE	120

static struct ibv_qp *qp;
static struct ibv_cq *send_cq, *recv_cq;
static struct ibv_mr *mr;
static char *buffer;
static unsigned int length, gid_index, receives;

static int fail(const char *what, const char *why)
{
	printf("error %s: %s\n", what, why);
	fflush(stdout);
	return 1;
}

static int fine(void)
{
	puts("ok");
	fflush(stdout);
	return 0;
}

static int open_all(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	struct ibv_pd *pd;

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	if (!context)
		return -1;
	pd = ibv_alloc_pd(context);
	buffer = aligned_alloc(4096, (length + 4095) & ~4095u);
	if (!pd || !buffer)
		return -1;
	memset(buffer, 0, length);
	mr = ibv_reg_mr(pd, buffer, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	send_cq = init.send_cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	recv_cq = init.recv_cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	if (!mr || !send_cq || !recv_cq)
		return -1;
	qp = ibv_create_qp(pd, &init);
	if (!qp)
		return -1;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int connect_qp(const char *gid, unsigned int qpn)
{
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qpn,
		.rq_psn = FIRST_PSN,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 1,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .sgid_index = gid_index, .hop_limit = 64 },
		},
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = FIRST_PSN,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 16,
	};

	if (inet_pton(AF_INET6, gid, &rtr.ah_attr.grh.dgid) != 1)
		return EINVAL;
	return ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ?:
	       ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Waits for one completion; NULL when it is a good one. */
static const char *completion(struct ibv_cq *cq)
{
	struct timespec nap = { 0, 1000000 };
	time_t end = time(NULL) + PATIENCE;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) {
		if (time(NULL) > end)
			return "timeout";
		nanosleep(&nap, NULL);
	}
	if (n < 0)
		return "poll";
	return wc.status ? ibv_wc_status_str(wc.status) : NULL;
}

static const char *transfer(enum ibv_wr_opcode opcode, unsigned int rkey, unsigned long long address, unsigned int size)
{
	unsigned int posted = 0, done = 0, count = (length + size - 1) / size;
	const char *bad;

	while (done < count) {
		while (posted < count && posted - done < DEPTH / 2) {
			unsigned int at = posted * size;
			struct ibv_sge sge = { (uintptr_t)buffer + at, length - at < size ? length - at : size, mr->lkey };
			struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad_wr;

			wr.wr.rdma.rkey = rkey;
			wr.wr.rdma.remote_addr = address + at;
			if (ibv_post_send(qp, &wr, &bad_wr))
				return "post";
			posted++;
		}
		bad = completion(send_cq);
		if (bad)
			return bad;
		done++;
	}
	return NULL;
}

static int post_receives(unsigned int size)
{
	for (unsigned int at = 0; at < length; at += size, receives++) {
		struct ibv_sge sge = { (uintptr_t)buffer + at, length - at < size ? length - at : size, mr->lkey };
		struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

		if (ibv_post_recv(qp, &wr, &bad))
			return -1;
	}
	return 0;
}

static int file(const char *path, int save)
{
	FILE *stream = fopen(path, save ? "w" : "r");
	size_t done;

	if (!stream)
		return -1;
	done = save ? fwrite(buffer, 1, length, stream) : fread(buffer, 1, length, stream);
	return fclose(stream) || done != length ? -1 : 0;
}

static int obey(const char *line)
{
	char command[16] = "", word[256] = "";
	unsigned int a = 0, b = 0;
	unsigned long long address = 0;
	const char *bad = NULL;

	sscanf(line, "%15s", command);
	if (!strcmp(command, "connect") && sscanf(line, "%*s %255s %u", word, &a) == 2)
		bad = connect_qp(word, a) ? strerror(errno) : NULL;
	else if (sscanf(line, "load %255s", word) == 1 || sscanf(line, "save %255s", word) == 1)
		bad = file(word, command[0] == 's') ? "file" : NULL;
	else if (sscanf(line, "recv %u", &a) == 1 && a)
		bad = post_receives(a) ? "post" : NULL;
	else if (sscanf(line, "write %u %llu %u", &a, &address, &b) == 3 && b)
		bad = transfer(IBV_WR_RDMA_WRITE, a, address, b);
	else if (sscanf(line, "read %u %llu %u", &a, &address, &b) == 3 && b)
		bad = transfer(IBV_WR_RDMA_READ, a, address, b);
	else if (sscanf(line, "send %u", &a) == 1 && a)
		bad = transfer(IBV_WR_SEND, 0, 0, a);
	else if (!strcmp(command, "received"))
		for (; receives && !bad; receives--)
			bad = completion(recv_cq);
	else
		bad = "what is that?";
	return bad ? fail(command, bad) : fine();
}

int main(int argc, char **argv)
{
	char line[512];

	if (argc != 4) {
		fprintf(stderr, "usage: rp_copy DEVICE GID_INDEX BYTES\n");
		return 2;
	}
	gid_index = atoi(argv[2]);
	length = atoi(argv[3]);
	if (open_all(argv[1]))
		return fail(argv[1], strerror(errno));
	printf("ok %u %u %llu\n", qp->qp_num, mr->rkey, (unsigned long long)(uintptr_t)buffer);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	return 0;
}
