// SPDX-License-Identifier: GPL-2.0

/* Of a constant length a key is hashed and compared without calls and loops. */
#define LOOKUP(words)							\
static __always_inline int						\
differs_##words(struct rhashtable_compare_arg *arg, const void *obj)	\
{									\
	const struct rxe_cc_table_entry *entry = obj;			\
									\
	return memcmp(entry->key, arg->key,				\
		      (words) * sizeof(u32)) != 0;			\
}									\
									\
static void *find_##words(struct rhashtable *ht, const void *key)	\
{									\
	const struct rhashtable_params params = {			\
		.key_len = (words) * sizeof(u32),			\
		.key_offset = offsetof(struct rxe_cc_table_entry, key),	\
		.head_offset = offsetof(struct rxe_cc_table_entry, head), \
		.automatic_shrinking = true,				\
		.obj_cmpfn = differs_##words,				\
	};								\
									\
	return rhashtable_lookup(ht, key, params);			\
}

LOOKUP(2)
LOOKUP(6)
LOOKUP(7)

void *rxe_cc_rhashtable_lookup(struct rhashtable *ht, const void *key,
			       unsigned int words)
{
	switch (words) {
	case 2:
		return find_2(ht, key);
	case 6:
		return find_6(ht, key);
	case 7:
		return find_7(ht, key);
	default:
		return rhashtable_lookup(ht, key, ht->p);
	}
}

void rxe_cc_prefetch(const void *object, size_t size)
{
	const void *end = object + size;

	for (; object < end; object += L1_CACHE_BYTES)
		prefetch(object);
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
