// SPDX-License-Identifier: GPL-2.0

//! What the kernel crate lacks, one C concept a file: safe types over netfilter,
//! socket buffers, net devices and namespaces, RDMA, sysfs.
//!
//! All `unsafe` of the module lives here; nothing above this room names
//! `bindings`. Each file is shaped so that it could be proposed upstream.

pub(crate) mod address_table;
mod bindings;
pub(crate) mod crc32;
pub(crate) mod hrtimer;
pub(crate) mod ip_output;
pub(crate) mod kobject;
pub(crate) mod kthread;
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) mod kunit;
pub(crate) mod netdevice;
pub(crate) mod netfilter;
pub(crate) mod percpu;
pub(crate) mod port_attrs;
pub(crate) mod rdma;
pub(crate) mod rhashtable;
pub(crate) mod skb_queue;
pub(crate) mod skbuff;
pub(crate) mod tracepoint;
pub(crate) mod workqueue;
