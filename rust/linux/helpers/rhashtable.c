// SPDX-License-Identifier: GPL-2.0

/* Of a constant length a key is hashed and compared without calls and loops. */
#define LOOKUP(words)							\
static int differs_##words(struct rhashtable_compare_arg *arg,		\
			   const void *obj)				\
{									\
	const struct rxe_cc_table_entry *entry = obj;			\
									\
	return memcmp(entry->key, arg->key, (words) * sizeof(u32));	\
}									\
									\
static void *lookup_##words(struct rhashtable *ht, const void *key)	\
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

/* For keys that nobody outside the kernel chooses. */
u32 rxe_cc_hash_address(const void *key, u32 len, u32 seed)
{
	return hash_64(get_unaligned((const u64 *)key), 32);
}

static int differs_address(struct rhashtable_compare_arg *arg, const void *obj)
{
	const struct rxe_cc_table_entry *entry = obj;

	return get_unaligned((const u64 *)entry->key) !=
	       get_unaligned((const u64 *)arg->key);
}

void *rxe_cc_rhashtable_lookup_address(struct rhashtable *ht, const void *key)
{
	const struct rhashtable_params params = {
		.key_len = sizeof(u64),
		.key_offset = offsetof(struct rxe_cc_table_entry, key),
		.head_offset = offsetof(struct rxe_cc_table_entry, head),
		.automatic_shrinking = true,
		.hashfn = rxe_cc_hash_address,
		.obj_cmpfn = differs_address,
	};

	return rhashtable_lookup(ht, key, params);
}

void *rxe_cc_rhashtable_lookup(struct rhashtable *ht, const void *key,
			       unsigned int words)
{
	switch (words) {
	case 2:
		return lookup_2(ht, key);
	case 6:
		return lookup_6(ht, key);
	case 7:
		return lookup_7(ht, key);
	default:
		return rhashtable_lookup(ht, key, ht->p);
	}
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
