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

static_assert(sizeof(struct inet_skb_parm) <= RXE_CC_CB_OFFSET);
#if IS_ENABLED(CONFIG_IPV6)
static_assert(sizeof(struct inet6_skb_parm) <= RXE_CC_CB_OFFSET);
#endif

u32 rxe_cc_skb_truesize(const struct sk_buff *skb)
{
	return skb->truesize;
}

struct sk_buff *rxe_cc_skb_next(const struct sk_buff *skb)
{
	return skb->next;
}

void rxe_cc_skb_set_next(struct sk_buff *skb, struct sk_buff *next)
{
	skb->next = next;
}

void rxe_cc_skb_detach(struct sk_buff *skb)
{
	skb->next = NULL;
	skb->dev = NULL;
}

void rxe_cc_skb_orphan(struct sk_buff *skb)
{
	skb_orphan(skb);
}

void rxe_cc_kfree_skb(struct sk_buff *skb)
{
	kfree_skb(skb);
}

unsigned int rxe_cc_skb_wire_len(const struct sk_buff *skb)
{
	return max_t(unsigned int, ETH_ZLEN, skb->len + ETH_HLEN +
		     (is_vlan_dev(skb_dst(skb)->dev) ? VLAN_HLEN : 0));
}

void rxe_cc_skb_resume(void *okfn, struct sk_buff *skb)
{
	int (*resume)(struct net *net, struct sock *sk,
		      struct sk_buff *skb) = okfn;

	local_bh_disable();
	rcu_read_lock();
	resume(dev_net(skb_dst(skb)->dev), skb->sk, skb);
	rcu_read_unlock();
	local_bh_enable();
}
