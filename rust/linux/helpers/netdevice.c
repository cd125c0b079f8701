// SPDX-License-Identifier: GPL-2.0

void rxe_cc_dev_put(struct net_device *dev)
{
	dev_put(dev);
}

struct net *rxe_cc_dev_net(const struct net_device *dev)
{
	return dev_net(dev);
}

bool rxe_cc_is_vlan_dev(const struct net_device *dev)
{
	return is_vlan_dev(dev);
}

int rxe_cc_dev_ifindex(const struct net_device *dev)
{
	return READ_ONCE(dev->ifindex);
}

bool rxe_cc_dev_is_registered(const struct net_device *dev)
{
	return dev->reg_state == NETREG_REGISTERED;
}

u32 rxe_cc_dev_speed(struct net_device *dev)
{
	struct ethtool_link_ksettings settings;

	return __ethtool_get_link_ksettings(dev, &settings) ?
		       (u32)SPEED_UNKNOWN : settings.base.speed;
}
