// SPDX-License-Identifier: GPL-2.0

/*
 * Members and layout of these structs depend on the configuration. Attributes
 * have two functions, so that lockdep has one class a kind of file.
 */
void rxe_cc_sysfs_attr_init(struct attribute *attr, const char *name,
			    umode_t mode)
{
	*attr = (struct attribute) { .name = name, .mode = mode };
	sysfs_attr_init(attr);
}

void rxe_cc_ib_port_attr_init(struct ib_port_attribute *attr, const char *name,
			      umode_t mode,
			      ssize_t (*show)(struct ib_device *dev, u32 port,
					      struct ib_port_attribute *attr,
					      char *buf))
{
	*attr = (struct ib_port_attribute) {
		.attr = { .name = name, .mode = mode },
		.show = show,
	};
	sysfs_attr_init(&attr->attr);
}

void rxe_cc_attribute_group_init(struct attribute_group *group,
				 const char *name, struct attribute **attrs,
				 umode_t (*is_visible)(struct kobject *kobj,
						       struct attribute *attr,
						       int index))
{
	*group = (struct attribute_group) {
		.name = name,
		.is_visible = is_visible,
		.attrs = attrs,
	};
}

struct kobject *rxe_cc_netdev_kobj(struct net_device *dev)
{
	return &dev->dev.kobj;
}

struct kernfs_node *rxe_cc_sysfs_get_dirent(struct kernfs_node *parent,
					    const char *name)
{
	return sysfs_get_dirent(parent, name);
}
