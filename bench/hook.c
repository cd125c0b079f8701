// SPDX-License-Identifier: GPL-2.0
/*
 * What a packet costs on its way through the output hook. A raw IP socket sends
 * headers of its own making, which pass LOCAL_OUT like anybody's; nothing of RDMA is
 * involved but their form.
 *
 * In: `hook CPU SOURCE DESTINATION`, then a line for each measurement: "UDP_PORT FIRST_QPN
 * COUNT MILLISECONDS": RC SENDs to that port, to COUNT QPNs from FIRST_QPN on, in an order
 * that jumps about. Out: "ok NS PACKETS": the median, over batches of 64 packets, of the
 * time that one took.
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

#define BATCH		64
#define MOST_BATCHES	100000
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
static double times[MOST_BATCHES];

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
		p->tos = 2;
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

static void measure(int fd, unsigned int port, unsigned int first, unsigned int count, double ns)
{
	unsigned int step = step_for(count), at = 0, batches = 0;
	static unsigned int psn;
	double end = now_ns() + ns, begin;

	while (batches < MOST_BATCHES && now_ns() < end) {
		for (int i = 0; i < BATCH; i++) {
			packets[i].dest_port = htons(port);
			packets[i].dest_qp = htonl(first + at);
			packets[i].psn = htonl(psn++ & 0xffffff);
			at = (at + step) % count;
		}
		begin = now_ns();
		for (int sent = 0, n; sent < BATCH; sent += n) {
			n = sendmmsg(fd, messages + sent, BATCH - sent, 0);
			if (n < 0 && errno != ENOBUFS) {
				printf("error sendmmsg: %s\n", strerror(errno));
				return;
			}
			if (n < 0)
				n = 1;
		}
		times[batches++] = (now_ns() - begin) / BATCH;
	}
	qsort(times, batches, sizeof(times[0]), ascending);
	printf("ok %.1f %u\n", times[batches / 2], batches * BATCH);
}

int main(int argc, char **argv)
{
	struct sockaddr_in dest = { .sin_family = AF_INET };
	unsigned int port, first, count;
	char line[128];
	double ms;
	cpu_set_t set;
	int fd;

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
		if (sscanf(line, "%u %u %u %lf", &port, &first, &count, &ms) != 4 || !count)
			printf("error what is: %s", line);
		else
			measure(fd, port, first, count, ms * 1e6);
		fflush(stdout);
	}
	return 0;
}
