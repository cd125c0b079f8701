// SPDX-License-Identifier: GPL-2.0

void rxe_cc_this_cpu_add_u64(u64 __percpu *base, unsigned int index, u64 n)
{
	this_cpu_add(base[index], n);
}

u64 rxe_cc_percpu_sum_u64(const u64 __percpu *base, unsigned int index)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu_ptr(base, cpu)[index]);
	return sum;
}

void __percpu *rxe_cc_alloc_percpu(size_t size, size_t align)
{
	return __alloc_percpu(size, align);
}

u32 rxe_cc_this_cpu(void)
{
	return raw_smp_processor_id();
}
