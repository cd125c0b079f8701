// SPDX-License-Identifier: GPL-2.0

struct workqueue_struct *rxe_cc_alloc_workqueue(const char *name)
{
	return alloc_workqueue("%s", WQ_UNBOUND | WQ_HIGHPRI | WQ_MEM_RECLAIM,
			       0, name);
}

void rxe_cc_init_delayed_work(struct delayed_work *work, work_func_t func)
{
	INIT_DELAYED_WORK(work, func);
}

bool rxe_cc_queue_delayed_work(struct workqueue_struct *wq,
			       struct delayed_work *work, unsigned long ms)
{
	return queue_delayed_work(wq, work, msecs_to_jiffies(ms));
}

bool rxe_cc_mod_delayed_work(struct workqueue_struct *wq,
			     struct delayed_work *work, unsigned long ms)
{
	return mod_delayed_work(wq, work, msecs_to_jiffies(ms));
}
