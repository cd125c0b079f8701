// SPDX-License-Identifier: GPL-2.0
/*
 * All helpers as one object; one file a concept.
 */
#include "../bindings_helper.h"

#include "kobject.c"
#include "kthread.c"
#include "kunit.c"
#include "netdevice.c"
#include "percpu.c"
#include "rculist.c"
#include "rdma.c"
#include "rhashtable.c"
#include "route.c"
#include "skbuff.c"
#include "trace.c"
#include "workqueue.c"
