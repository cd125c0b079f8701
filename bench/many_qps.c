// SPDX-License-Identifier: GPL-2.0
/*
 * Many RC QPs of one device, in RTS, cheaply: no work is ever posted to them, and
 * their peers need not exist.
 *
 * In: `many_qps DEVICE GID_INDEX PEER_GID FIRST_PEER_QPN`, then numbers on stdin. Out:
 * for each number N a line "ok QPN ...", the QPNs of those that were made so that
 * there are N now, or "error ...". QP i is connected to QPN FIRST_PEER_QPN + i.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static union ibv_gid peer;
static unsigned int gid_index, first_peer_qpn;

static const char *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	if (!context)
		return "open the device";
	pd = ibv_alloc_pd(context);
	if (!pd)
		return "alloc_pd";
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	return cq ? NULL : "create_cq";
}

/* The QPN, or 0 with errno. */
static unsigned int connected_qp(unsigned int number)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr start = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr path = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = first_peer_qpn + number,
		.rq_psn = 1000, .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .dgid = peer, .sgid_index = gid_index, .hop_limit = 64 },
		},
	};
	struct ibv_qp_attr send = {
		.qp_state = IBV_QPS_RTS, .sq_psn = 1000, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	int error;

	if (!qp)
		return 0;
	error = ibv_modify_qp(qp, &start, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (!error)
		error = ibv_modify_qp(qp, &path, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (!error)
		error = ibv_modify_qp(qp, &send, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	errno = error;
	return error ? 0 : qp->qp_num;
}

int main(int argc, char **argv)
{
	unsigned int there = 0, wanted, qpn;
	const char *failed;

	if (argc != 5 || inet_pton(AF_INET6, argv[3], &peer) != 1) {
		fprintf(stderr, "usage: many_qps DEVICE GID_INDEX PEER_GID FIRST_PEER_QPN\n");
		return 2;
	}
	gid_index = atoi(argv[2]);
	first_peer_qpn = atoi(argv[4]);
	failed = open_device(argv[1]);
	if (failed) {
		printf("error %s: %s\n", failed, strerror(errno));
		return 1;
	}
	while (scanf("%u", &wanted) == 1) {
		qpn = 1;
		for (printf("ok"); qpn && there < wanted; ) {
			qpn = connected_qp(there);
			if (qpn) {
				printf(" %u", qpn);
				there++;
			}
		}
		if (!qpn)
			printf("\nerror QP %u: %s", there, strerror(errno));
		printf("\n");
		fflush(stdout);
	}
	return 0;
}
