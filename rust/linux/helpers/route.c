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
