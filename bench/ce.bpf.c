// SPDX-License-Identifier: GPL-2.0
/*
 * The smallest tc program that sees what the NP sees: it matches RoCEv2 packets over
 * IPv4 with CE. tc counts the matches, by the action behind it. A rival of
 * rxe_cc for the price of looking at each packet; it answers no mark.
 */
#include <linux/bpf.h>

#define NO_MATCH	0
#define MATCH		-1
#define ETH_IP		0x0800
#define UDP		17
#define ROCE_PORT	4791
#define CE		3

#define net16(value)	((unsigned short)__builtin_bswap16(value))

__attribute__((section("classifier"), used)) int ce(struct __sk_buff *skb)
{
	unsigned char *data = (void *)(long)skb->data;
	unsigned char *end = (void *)(long)skb->data_end;

	/* Ethernet, IPv4 without options, UDP. */
	if (data + 14 + 20 + 8 > end)
		return NO_MATCH;
	if (*(unsigned short *)(data + 12) != net16(ETH_IP) || data[14] != 0x45 || data[23] != UDP)
		return NO_MATCH;
	if (*(unsigned short *)(data + 36) != net16(ROCE_PORT) || (data[15] & 3) != CE)
		return NO_MATCH;
	return MATCH;
}

char gpl[] __attribute__((section("license"), used)) = "GPL";
