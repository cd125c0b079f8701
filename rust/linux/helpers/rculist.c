// SPDX-License-Identifier: GPL-2.0

void rxe_cc_hlist_add(struct hlist_node *node, struct hlist_head *head)
{
	hlist_add_head_rcu(node, head);
}

void rxe_cc_hlist_del(struct hlist_node *node)
{
	hlist_del_rcu(node);
}
