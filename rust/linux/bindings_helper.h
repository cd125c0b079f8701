/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel headers that rust/linux/ needs and the kernel crate's own bindings
 * lack: netfilter, IP, socket buffers, RDMA, sysfs, net namespaces.
 */
#ifndef RXE_CC_BINDINGS_HELPER_H
#define RXE_CC_BINDINGS_HELPER_H

#include <linux/crc32.h>
#include <linux/ethtool.h>
#include <linux/hrtimer.h>
#include <linux/if_vlan.h>
#include <linux/kobject.h>
#include <linux/kthread.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/percpu.h>
#include <linux/rculist.h>
#include <linux/rhashtable.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/sysfs.h>
#include <linux/workqueue.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/route.h>
#include <rdma/ib_sysfs.h>
#include <rdma/ib_verbs.h>
#include <rdma/restrack.h>

/* Exported by ib_core, declared in its private header only. */
int ib_port_register_client_groups(struct ib_device *ibdev, u32 port_num,
				   const struct attribute_group **groups);
void ib_port_unregister_client_groups(struct ib_device *ibdev, u32 port_num,
				      const struct attribute_group **groups);

#include "helpers/helpers.h"

#endif
