// SPDX-License-Identifier: GPL-2.0

void rxe_cc_dst_release(struct dst_entry *dst)
{
	dst_release(dst);
}

struct net_device *rxe_cc_dst_dev(const struct dst_entry *dst)
{
	return dst->dev;
}

void rxe_cc_local_bh_disable(void)
{
	local_bh_disable();
}

void rxe_cc_local_bh_enable(void)
{
	local_bh_enable();
}

struct dst_entry *rxe_cc_rtable_dst(struct rtable *rt)
{
	return &rt->dst;
}

int rxe_cc_dst_error(const struct dst_entry *dst)
{
	return dst->error;
}
