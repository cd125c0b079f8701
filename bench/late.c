// SPDX-License-Identifier: GPL-2.0
/*
 * How late one CPU wakes what sleeps: `late CPU US` sleeps US microseconds at a time,
 * above all other processes, and writes a line for each time it slept half a millisecond
 * too long: begin of the sleep (ns of the wall clock), lateness (ns), CPU.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#define WORTH_NS	500000LL

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int argc, char **argv)
{
	struct sched_param priority = { 60 };
	long long before, late, nap_ns;
	struct timespec nap = { 0 };
	cpu_set_t set;
	int cpu;

	if (argc != 3 || atoi(argv[2]) <= 0 || atoi(argv[2]) >= 1000000) {
		fprintf(stderr, "usage: late CPU US\n");
		return 2;
	}
	cpu = atoi(argv[1]);
	nap.tv_nsec = nap_ns = atoi(argv[2]) * 1000LL;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) || sched_setscheduler(0, SCHED_FIFO, &priority)) {
		perror("late");
		return 1;
	}
	prctl(PR_SET_TIMERSLACK, 1);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (;;) {
		before = now_ns();
		nanosleep(&nap, NULL);
		late = now_ns() - before - nap_ns;
		if (late > WORTH_NS)
			printf("%lld %lld %d\n", before, late, cpu);
	}
}
