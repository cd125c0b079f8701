// SPDX-License-Identifier: GPL-2.0

void rxe_cc_init_kthread_delayed_work(struct kthread_delayed_work *work,
				      kthread_work_func_t func)
{
	kthread_init_delayed_work(work, func);
}

struct kthread_worker *rxe_cc_create_rt_worker(const char *name)
{
	struct kthread_worker *worker = kthread_run_worker(0, "%s", name);

	if (!IS_ERR(worker))
		sched_set_fifo_low(worker->task);
	return worker;
}

bool rxe_cc_kthread_queue_delayed_work(struct kthread_worker *worker,
				       struct kthread_delayed_work *work,
				       unsigned long ms)
{
	return kthread_queue_delayed_work(worker, work, msecs_to_jiffies(ms));
}
