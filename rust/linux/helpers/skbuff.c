// SPDX-License-Identifier: GPL-2.0

unsigned char *rxe_cc_skb_data(const struct sk_buff *skb)
{
	return skb->data;
}

unsigned int rxe_cc_skb_headlen(const struct sk_buff *skb)
{
	return skb_headlen(skb);
}

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
