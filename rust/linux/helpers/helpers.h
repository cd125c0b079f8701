/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Static inlines and macros of the kernel headers as functions that Rust can
 * call. One call each, no logic but what a table hashes and compares.
 */
#ifndef RXE_CC_HELPERS_H
#define RXE_CC_HELPERS_H

/* netdevice, net namespace */
void rxe_cc_dev_put(struct net_device *dev);
struct net *rxe_cc_dev_net(const struct net_device *dev);
u32 rxe_cc_dev_speed(struct net_device *dev);
int rxe_cc_dev_ifindex(const struct net_device *dev);
bool rxe_cc_dev_is_registered(const struct net_device *dev);
bool rxe_cc_is_vlan_dev(const struct net_device *dev);

/* skbuff */
/* Where IPv4's and IPv6's part of skb->cb ends. */
#define RXE_CC_CB_OFFSET	24
u32 rxe_cc_skb_truesize(const struct sk_buff *skb);
struct sk_buff *rxe_cc_skb_next(const struct sk_buff *skb);
void rxe_cc_skb_set_next(struct sk_buff *skb, struct sk_buff *next);
void rxe_cc_skb_detach(struct sk_buff *skb);
void rxe_cc_skb_orphan(struct sk_buff *skb);
void rxe_cc_kfree_skb(struct sk_buff *skb);
unsigned int rxe_cc_skb_wire_len(const struct sk_buff *skb);
void rxe_cc_skb_resume(void *okfn, struct sk_buff *skb);
struct net_device *rxe_cc_skb_dst_dev(const struct sk_buff *skb);
u32 rxe_cc_skb_priority(const struct sk_buff *skb);
struct sk_buff *rxe_cc_alloc_skb(unsigned int size, gfp_t flags);
void rxe_cc_skb_reserve(struct sk_buff *skb, int len);
void rxe_cc_skb_reset_network_header(struct sk_buff *skb);
void rxe_cc_skb_set_transport_header(struct sk_buff *skb, int offset);
gfp_t rxe_cc_gfp_atomic(void);
void rxe_cc_skb_set_output(struct sk_buff *skb, struct net_device *dev,
			   u32 priority, bool ipv6);
void rxe_cc_skb_dst_set(struct sk_buff *skb, struct dst_entry *dst);
unsigned int rxe_cc_ll_reserved_space(const struct net_device *dev);

/* routes */
void rxe_cc_dst_release(struct dst_entry *dst);
struct net_device *rxe_cc_dst_dev(const struct dst_entry *dst);
struct dst_entry *rxe_cc_rtable_dst(struct rtable *rt);
int rxe_cc_dst_error(const struct dst_entry *dst);
void rxe_cc_local_bh_disable(void);
void rxe_cc_local_bh_enable(void);

/* per-CPU counters */
void rxe_cc_this_cpu_add_u64(u64 __percpu *base, unsigned int index, u64 n);
u64 rxe_cc_percpu_sum_u64(const u64 __percpu *base, unsigned int index);
u32 rxe_cc_this_cpu(void);
void __percpu *rxe_cc_alloc_percpu(size_t size, size_t align);

/* kobjects, sysfs */
void rxe_cc_sysfs_attr_init(struct attribute *attr, const char *name,
			    umode_t mode);
void rxe_cc_ib_port_attr_init(struct ib_port_attribute *attr, const char *name,
			      umode_t mode,
			      ssize_t (*show)(struct ib_device *dev, u32 port,
					      struct ib_port_attribute *attr,
					      char *buf));
void rxe_cc_attribute_group_init(struct attribute_group *group,
				 const char *name, struct attribute **attrs,
				 umode_t (*is_visible)(struct kobject *kobj,
						       struct attribute *attr,
						       int index));
struct kobject *rxe_cc_netdev_kobj(struct net_device *dev);
struct kernfs_node *rxe_cc_sysfs_get_dirent(struct kernfs_node *parent,
					    const char *name);

/* RDMA */
const char *rxe_cc_ib_device_name(const struct ib_device *dev);
int rxe_cc_ring_doorbell(struct ib_qp *qp);
bool rxe_cc_ib_device_try_get(struct ib_device *dev);
struct ib_qp *rxe_cc_restrack_to_qp(struct rdma_restrack_entry *res);

/* lists that RCU's readers walk */
void rxe_cc_hlist_add(struct hlist_node *node, struct hlist_head *head);
void rxe_cc_hlist_del(struct hlist_node *node);

/* rhashtable: parameters are those that the table was made with */
/* How an object of a table begins; its key has `words` words. */
struct rxe_cc_table_entry {
	struct rhash_head head;
	struct rcu_head rcu;
	u32 key[];
};
void *rxe_cc_rhashtable_lookup(struct rhashtable *ht, const void *key,
			       unsigned int words);
void rxe_cc_prefetch(const void *object, size_t size);
void *rxe_cc_rhashtable_lookup_get_insert(struct rhashtable *ht,
					  struct rhash_head *obj);
int rxe_cc_rhashtable_remove(struct rhashtable *ht, struct rhash_head *obj);
int rxe_cc_rhashtable_init(struct rhashtable *ht,
			   const struct rhashtable_params *params);

/* work queues */
struct workqueue_struct *rxe_cc_alloc_workqueue(const char *name);
void rxe_cc_init_delayed_work(struct delayed_work *work, work_func_t func);
bool rxe_cc_queue_delayed_work(struct workqueue_struct *wq,
			       struct delayed_work *work, unsigned long ms);
bool rxe_cc_mod_delayed_work(struct workqueue_struct *wq,
			     struct delayed_work *work, unsigned long ms);


/* tracepoints; names are of RXE_CC_NAME_LEN bytes, addresses are GIDs */
#define RXE_CC_NAME_LEN	64
struct rxe_cc_trace_flow {
	const char *ibdev;
	const u8 *peer;
	u32 qpn;
	u32 peer_qpn;
};

struct rxe_cc_trace_rate {
	u64 rate_bps;
	u64 target_bps;
	u64 model_rate_bps;
	u64 time_stage;
	u64 byte_stage;
	u32 alpha_milli;
	u32 events;
};

void rxe_cc_trace_ce(const struct rxe_cc_trace_flow *flow, u8 verdict);
void rxe_cc_trace_cnp_tx(const struct rxe_cc_trace_flow *flow, bool deferred,
			 int status);
void rxe_cc_trace_cnp_rx(const struct rxe_cc_trace_flow *flow, u8 verdict);
bool rxe_cc_trace_enabled(void);
void rxe_cc_trace_rate_cut(const struct rxe_cc_trace_flow *flow,
			   const struct rxe_cc_trace_rate *rate);
void rxe_cc_trace_rate_increase(const struct rxe_cc_trace_flow *flow,
				const struct rxe_cc_trace_rate *rate);
void rxe_cc_trace_limiter(const struct rxe_cc_trace_flow *flow,
			  const struct rxe_cc_trace_rate *rate, bool on);
void rxe_cc_trace_hold(const struct rxe_cc_trace_flow *flow, u32 psn,
		       u32 wire_bytes, bool response, u32 held);
void rxe_cc_trace_release(const struct rxe_cc_trace_flow *flow, u32 psn,
			  u32 wire_bytes, bool response, u64 held_ns);

#if IS_BUILTIN(CONFIG_KUNIT)
/* what the KUnit suites work on */
struct sk_buff *rxe_cc_kunit_packet(const u8 *bytes, u32 len, u32 linear);
struct sk_buff *rxe_cc_kunit_clone(struct sk_buff *skb);
u16 rxe_cc_kunit_ip_checksum(const u8 *header);
struct net_device *rxe_cc_kunit_loopback(void);
#endif

/* real-time worker threads */
void rxe_cc_init_kthread_delayed_work(struct kthread_delayed_work *work,
				      kthread_work_func_t func);
struct kthread_worker *rxe_cc_create_rt_worker(const char *name);
bool rxe_cc_kthread_queue_delayed_work(struct kthread_worker *worker,
				       struct kthread_delayed_work *work,
				       unsigned long ms);

#endif
