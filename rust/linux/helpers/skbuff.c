// SPDX-License-Identifier: GPL-2.0

struct net_device *rxe_cc_skb_dst_dev(const struct sk_buff *skb)
{
	return skb_dst(skb) ? skb_dst(skb)->dev : NULL;
}

struct sk_buff *rxe_cc_alloc_skb(unsigned int size, gfp_t flags)
{
	return alloc_skb(size, flags);
}

void rxe_cc_skb_reserve(struct sk_buff *skb, int len)
{
	skb_reserve(skb, len);
}

void rxe_cc_skb_reset_network_header(struct sk_buff *skb)
{
	skb_reset_network_header(skb);
}

void rxe_cc_skb_set_transport_header(struct sk_buff *skb, int offset)
{
	skb_set_transport_header(skb, offset);
}

void rxe_cc_skb_dst_set(struct sk_buff *skb, struct dst_entry *dst)
{
	skb_dst_set(skb, dst);
}

unsigned int rxe_cc_ll_reserved_space(const struct net_device *dev)
{
	return LL_RESERVED_SPACE(dev);
}

u32 rxe_cc_skb_priority(const struct sk_buff *skb)
{
	return skb->priority;
}

gfp_t rxe_cc_gfp_atomic(void)
{
	return GFP_ATOMIC;
}

void rxe_cc_skb_set_output(struct sk_buff *skb, struct net_device *dev,
			   u32 priority, bool ipv6)
{
	skb->dev = dev;
	skb->priority = priority;
	skb->protocol = htons(ipv6 ? ETH_P_IPV6 : ETH_P_IP);
}
