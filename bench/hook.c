// SPDX-License-Identifier: GPL-2.0
/*
 * What a packet costs on its way through the output hook. A raw IP socket sends
 * headers of its own making, which pass LOCAL_OUT like anybody's; nothing of RDMA is
 * involved but their form.
 *
 * In: `hook CPU SOURCE DESTINATION`, then a line for each measurement: "MILLISECONDS", and
 * up to four times "TOS UDP_PORT FIRST_QPN COUNT": RC SENDs with that TOS byte to that port, to
 * COUNT QPNs from FIRST_QPN on, in an order that jumps about; the kinds take turns, 32 packets each.
 * Out: "ok NS ...", the time of a packet of each kind: the first quartile of its batches,
 * for whatever else the machine does only adds to it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define BATCH		32
#define MOST_BATCHES	20000
#define MOST_KINDS	4
#define PAYLOAD		64

struct packet {
	uint8_t version_ihl, tos;
	uint16_t length, id, fragment;
	uint8_t ttl, protocol;
	uint16_t checksum;
	uint32_t source, dest;
	uint16_t source_port, dest_port, udp_length, udp_checksum;
	uint8_t opcode, flags;
	uint16_t pkey;
	uint32_t dest_qp, psn;
	uint8_t payload[PAYLOAD], icrc[4];
} __attribute__((packed));

static struct packet packets[BATCH];
static struct iovec pieces[BATCH];
static struct mmsghdr messages[BATCH];
static struct kind {
	unsigned int tos, port, first, count, step, at;
	double times[MOST_BATCHES];
} kinds[MOST_KINDS];

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	double one = *(const double *)a, two = *(const double *)b;

	return (one > two) - (one < two);
}

static void fill(const char *source, const char *dest)
{
	for (int i = 0; i < BATCH; i++) {
		struct packet *p = &packets[i];

		p->version_ihl = 0x45;
		p->length = htons(sizeof(*p));
		p->fragment = htons(0x4000);
		p->ttl = 64;
		p->protocol = IPPROTO_UDP;
		inet_pton(AF_INET, source, &p->source);
		inet_pton(AF_INET, dest, &p->dest);
		p->source_port = htons(49152);
		p->udp_length = htons(sizeof(*p) - 20);
		p->opcode = 0x04;
		p->pkey = 0xffff;
		pieces[i].iov_base = p;
		pieces[i].iov_len = sizeof(*p);
		messages[i].msg_hdr.msg_iov = &pieces[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
}

/* A step that visits all of `count` before it comes back. */
static unsigned int step_for(unsigned int count)
{
	unsigned int step = count * 5 / 8 + 1, a, b, rest;

	for (;; step++) {
		for (a = step, b = count; b; a = b, b = rest)
			rest = a % b;
		if (a == 1)
			return step;
	}
}

/* A batch of one kind; the time of a packet, or below 0. */
static double batch(int fd, struct kind *kind)
{
	static unsigned int psn;
	double begin;

	for (int i = 0; i < BATCH; i++) {
		packets[i].tos = kind->tos;
		packets[i].dest_port = htons(kind->port);
		packets[i].dest_qp = htonl(kind->first + kind->at);
		packets[i].psn = htonl(psn++ & 0xffffff);
		kind->at = (kind->at + kind->step) % kind->count;
	}
	begin = now_ns();
	for (int sent = 0, n; sent < BATCH; sent += n) {
		n = sendmmsg(fd, messages + sent, BATCH - sent, 0);
		if (n < 0 && errno != ENOBUFS)
			return -1;
		if (n < 0)
			n = 1;
	}
	return (now_ns() - begin) / BATCH;
}

static void measure(int fd, int kind_count, double ns)
{
	double end = now_ns() + ns, time;
	unsigned int batches = 0;

	for (; batches < MOST_BATCHES && now_ns() < end; batches++)
		for (int k = 0; k < kind_count; k++) {
			time = batch(fd, &kinds[k]);
			if (time < 0) {
				printf("error sendmmsg: %s\n", strerror(errno));
				return;
			}
			kinds[k].times[batches] = time;
		}
	printf("ok");
	for (int k = 0; k < kind_count; k++) {
		qsort(kinds[k].times, batches, sizeof(double), ascending);
		printf(" %.1f", kinds[k].times[batches / 4]);
	}
	printf("\n");
}

/* "TOS PORT FIRST COUNT" ...; how many, or 0. */
static int read_kinds(const char *line)
{
	int n = 0, length;

	for (; n < MOST_KINDS; n++, line += length) {
		struct kind *kind = &kinds[n];

		if (sscanf(line, "%u %u %u %u%n", &kind->tos, &kind->port, &kind->first, &kind->count, &length) != 4)
			break;
		if (!kind->count)
			return 0;
		kind->at = 0;
		kind->step = step_for(kind->count);
	}
	return n;
}

int main(int argc, char **argv)
{
	struct sockaddr_in dest = { .sin_family = AF_INET };
	char line[256];
	cpu_set_t set;
	double ms;
	int fd, kind_count, length;

	if (argc != 4 || inet_pton(AF_INET, argv[3], &dest.sin_addr) != 1) {
		fprintf(stderr, "usage: hook CPU SOURCE DESTINATION\n");
		return 2;
	}
	CPU_ZERO(&set);
	CPU_SET(atoi(argv[1]), &set);
	fd = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
	if (sched_setaffinity(0, sizeof(set), &set) || fd < 0 || connect(fd, (struct sockaddr *)&dest, sizeof(dest))) {
		perror("hook");
		return 1;
	}
	fill(argv[2], argv[3]);
	while (fgets(line, sizeof(line), stdin)) {
		kind_count = sscanf(line, "%lf%n", &ms, &length) == 1 ? read_kinds(line + length) : 0;
		if (kind_count)
			measure(fd, kind_count, ms * 1e6);
		else
			printf("error what is: %s", line);
		fflush(stdout);
	}
	return 0;
}
