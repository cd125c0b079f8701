// SPDX-License-Identifier: GPL-2.0

void *rxe_cc_rhashtable_lookup(struct rhashtable *ht, const void *key)
{
	return rhashtable_lookup(ht, key, ht->p);
}

void *rxe_cc_rhashtable_lookup_get_insert(struct rhashtable *ht,
					  struct rhash_head *obj)
{
	return rhashtable_lookup_get_insert_fast(ht, obj, ht->p);
}

int rxe_cc_rhashtable_remove(struct rhashtable *ht, struct rhash_head *obj)
{
	return rhashtable_remove_fast(ht, obj, ht->p);
}

int rxe_cc_rhashtable_init(struct rhashtable *ht,
			   const struct rhashtable_params *params)
{
	return rhashtable_init(ht, params);
}

unsigned int rxe_cc_rhashtable_nelems(struct rhashtable *ht)
{
	return atomic_read(&ht->nelems);
}
