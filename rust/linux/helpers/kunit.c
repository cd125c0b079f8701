// SPDX-License-Identifier: GPL-2.0

#if IS_BUILTIN(CONFIG_KUNIT)

/* A packet of which the first bytes lie in one piece, the rest in pages. */
struct sk_buff *rxe_cc_kunit_packet(const u8 *bytes, u32 len, u32 linear)
{
	struct sk_buff *skb;
	int err;

	skb = alloc_skb_with_frags(linear, len - linear, 0, &err, GFP_KERNEL);
	if (!skb)
		return NULL;
	skb_reset_network_header(skb);
	skb_put(skb, linear);
	skb->data_len = len - linear;
	skb->len = len;
	if (skb_store_bits(skb, 0, bytes, len)) {
		kfree_skb(skb);
		return NULL;
	}
	return skb;
}

struct sk_buff *rxe_cc_kunit_clone(struct sk_buff *skb)
{
	return skb_clone(skb, GFP_KERNEL);
}

u16 rxe_cc_kunit_ip_checksum(const u8 *header)
{
	return (__force u16)ip_fast_csum(header, 5);
}

struct net_device *rxe_cc_kunit_loopback(void)
{
	return init_net.loopback_dev;
}

#endif
