// SPDX-License-Identifier: GPL-2.0

const char *rxe_cc_ib_device_name(const struct ib_device *dev)
{
	return dev_name(&dev->dev);
}

struct ib_qp *rxe_cc_restrack_to_qp(struct rdma_restrack_entry *res)
{
	return container_of(res, struct ib_qp, res);
}

bool rxe_cc_ib_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}

int rxe_cc_ring_doorbell(struct ib_qp *qp)
{
	const struct ib_send_wr *bad;

	return ib_post_send(qp, NULL, &bad);
}
