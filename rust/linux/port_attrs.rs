// SPDX-License-Identifier: GPL-2.0

//! Read-only files of an RDMA device's port: a directory of our own, and files that
//! join those of a directory that the port has already (`hw_counters`).
//!
//! In come the names of both, and a [`PortFiles`] that says what a file shows; out
//! come those files. What they mean is left to [`PortFiles`].
//!
//! # Lifetime
//!
//! [`PortGroups`] holds the device's registration, so the port is there as long as
//! the files: unregistering the device waits until they are dropped. So that must
//! happen in the client's `remove` at the latest. Dropping waits for the readers.
//!
//! # Where the port is found
//!
//! The core keeps a port's kobject to itself, but hands it to the `is_visible`
//! callback of every group that a client registers. With it files can be merged
//! into the port's other groups.
//!
//! C headers: [`include/rdma/ib_sysfs.h`](srctree/include/rdma/ib_sysfs.h),
//! [`include/linux/sysfs.h`](srctree/include/linux/sysfs.h).

use super::{bindings, kobject::emit, rdma::IbDeviceRef};
use core::{
    fmt::{self, Write},
    ptr,
    ptr::NonNull,
    sync::atomic::{AtomicPtr, Ordering},
};
use kernel::{error::to_result, prelude::*, str::CString, sync::Arc, types::Opaque};

/// Files that everyone can read.
const MODE: bindings::umode_t = 0o444;

/// What the files of a port show. Called from any number of threads at once; must
/// not wait for the device to be unregistered.
pub(crate) trait PortFiles: Send + Sync + 'static {
    /// What tells one file from the others.
    type Key: Send + Sync + 'static;

    /// Writes what the file shows, without the newline behind it.
    fn show(&self, key: &Self::Key, out: &mut dyn Write) -> fmt::Result;
}

/// The files of one port; dropping it removes them.
pub(crate) struct PortGroups<T: PortFiles> {
    // In the order in which they have to go.
    _merged: Merged<T>,
    _own: Own<T>,
    _dev: Registered,
}

impl<T: PortFiles> PortGroups<T> {
    /// Makes the files of the directory `own` and adds those of `merged` to that
    /// directory, which must be there: (the directory, (names and keys)).
    ///
    /// # Errors
    ///
    /// `ENODEV`: the device is being unregistered. `ENOENT`: the port has no
    /// directory `merged`. `EEXIST`: it has a file of one of the names.
    pub(crate) fn new<N: fmt::Display>(
        dev: &IbDeviceRef,
        port: u32,
        own: (&'static CStr, impl IntoIterator<Item = (N, T::Key)>),
        merged: (&'static CStr, impl IntoIterator<Item = (N, T::Key)>),
        data: Arc<T>,
    ) -> Result<Self> {
        let dev = Registered::get(dev)?;
        let own = Own::new(&dev, port, Group::new(own.0, own.1, &data)?)?;
        let merged = Merged::new(own.port_kobject()?, Group::new(merged.0, merged.1, &data)?)?;
        Ok(Self {
            _merged: merged,
            _own: own,
            _dev: dev,
        })
    }
}

/// A device that cannot be unregistered meanwhile.
///
/// # Invariants
///
/// Holds a reference of `ib_device_try_get()`.
struct Registered(NonNull<bindings::ib_device>);

// SAFETY: The reference may be released from any thread.
unsafe impl Send for Registered {}
// SAFETY: Nothing can be done with a shared reference.
unsafe impl Sync for Registered {}

impl Registered {
    fn get(dev: &IbDeviceRef) -> Result<Self> {
        // SAFETY: The device is alive by the contract of its type.
        if !unsafe { bindings::rxe_cc_ib_device_try_get(dev.as_ptr()) } {
            return Err(ENODEV);
        }
        // INVARIANT: Just taken.
        NonNull::new(dev.as_ptr()).map(Self).ok_or(ENODEV)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: Ours by the invariant.
        unsafe { bindings::ib_device_put(self.0.as_ptr()) };
    }
}

/// A group that has a directory of its own.
///
/// # Invariants
///
/// The group is registered with the port of the device, which stays registered for
/// as long as `self`: [`PortGroups`] drops them in that order.
struct Own<T: PortFiles> {
    group: Group<T>,
    dev: NonNull<bindings::ib_device>,
    port: u32,
}

// SAFETY: The device may be used from any thread; `Group` is `Send`.
unsafe impl<T: PortFiles> Send for Own<T> {}
// SAFETY: As above, and `Group` is `Sync`.
unsafe impl<T: PortFiles> Sync for Own<T> {}

impl<T: PortFiles> Own<T> {
    fn new(dev: &Registered, port: u32, group: Group<T>) -> Result<Self> {
        let raw = group.as_raw(Some(Group::<T>::is_visible));
        let mut list = [&raw const raw, ptr::null()];
        // SAFETY: The device is registered. What the core keeps of the group is its attributes,
        // which stay where they are until `drop()` has removed them.
        to_result(unsafe {
            bindings::ib_port_register_client_groups(dev.0.as_ptr(), port, list.as_mut_ptr())
        })?;
        // INVARIANT: Just registered.
        Ok(Self {
            group,
            dev: dev.0,
            port,
        })
    }

    /// The port's kobject, which lives as long as the device is registered.
    fn port_kobject(&self) -> Result<NonNull<bindings::kobject>> {
        let file = self.group.files.first().ok_or(EINVAL)?;
        NonNull::new(file.port.load(Ordering::Relaxed)).ok_or(ENODEV)
    }
}

impl<T: PortFiles> Drop for Own<T> {
    fn drop(&mut self) {
        let raw = self.group.as_raw(None);
        let mut list = [&raw const raw, ptr::null()];
        // SAFETY: Registered by the invariant, under the same name. After this no callback runs.
        unsafe {
            bindings::ib_port_unregister_client_groups(
                self.dev.as_ptr(),
                self.port,
                list.as_mut_ptr(),
            )
        };
    }
}

/// A group whose files are in a directory that the port had before.
///
/// # Invariants
///
/// The group is merged into the port's, which lives as long as `self`, see [`Own`].
struct Merged<T: PortFiles> {
    group: Group<T>,
    port: NonNull<bindings::kobject>,
}

// SAFETY: The kobject may be used from any thread; `Group` is `Send`.
unsafe impl<T: PortFiles> Send for Merged<T> {}
// SAFETY: As above, and `Group` is `Sync`.
unsafe impl<T: PortFiles> Sync for Merged<T> {}

impl<T: PortFiles> Merged<T> {
    fn new(port: NonNull<bindings::kobject>, group: Group<T>) -> Result<Self> {
        // SAFETY: The port's kobject is alive and in sysfs: its device is registered.
        let directory = unsafe { Entry::find((*port.as_ptr()).sd, group.name) }.ok_or(ENOENT)?;
        // Merging over a file that is there already would remove it.
        for file in &group.files {
            // SAFETY: `directory` is a reference on a directory.
            if unsafe { Entry::find(directory.0.as_ptr(), &file.name) }.is_some() {
                return Err(EEXIST);
            }
        }
        let raw = group.as_raw(None);
        // SAFETY: As above; what sysfs keeps of the group is its attributes, which stay where they
        // are until `drop()` has removed them.
        to_result(unsafe { bindings::sysfs_merge_group(port.as_ptr(), &raw) })?;
        // INVARIANT: Just merged.
        Ok(Self { group, port })
    }
}

impl<T: PortFiles> Drop for Merged<T> {
    fn drop(&mut self) {
        let raw = self.group.as_raw(None);
        // SAFETY: Merged by the invariant, under the same names. After this no callback runs.
        unsafe { bindings::sysfs_unmerge_group(self.port.as_ptr(), &raw) };
    }
}

/// A reference on a file or directory in sysfs.
///
/// # Invariants
///
/// The reference is ours.
struct Entry(NonNull<bindings::kernfs_node>);

impl Entry {
    /// Looks for `name` in a directory.
    ///
    /// # Safety
    ///
    /// `parent` must point to a directory that lives during the call.
    unsafe fn find(parent: *mut bindings::kernfs_node, name: &CStr) -> Option<Self> {
        // SAFETY: By the caller's promise; a `CStr` is terminated.
        // INVARIANT: What is found comes with a reference.
        NonNull::new(unsafe { bindings::rxe_cc_sysfs_get_dirent(parent, name.as_char_ptr()) })
            .map(Self)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: Ours by the invariant.
        unsafe { bindings::kernfs_put(self.0.as_ptr()) };
    }
}

/// A named group of files.
struct Group<T: PortFiles> {
    name: &'static CStr,
    /// A list of the files' attributes, terminated.
    attrs: KVec<*mut bindings::attribute>,
    files: KVec<File<T>>,
}

// SAFETY: The pointers are to `files`; these are `Send` by key and data.
unsafe impl<T: PortFiles> Send for Group<T> {}
// SAFETY: The C side locks what it changes in an attribute; files are `Sync` by key and data.
unsafe impl<T: PortFiles> Sync for Group<T> {}

impl<T: PortFiles> Group<T> {
    fn new<N: fmt::Display>(
        name: &'static CStr,
        names: impl IntoIterator<Item = (N, T::Key)>,
        data: &Arc<T>,
    ) -> Result<Self> {
        let mut files = KVec::new();
        for (name, key) in names {
            files.push(File::new(&name, key, data.clone())?, GFP_KERNEL)?;
        }
        let mut attrs = KVec::with_capacity(files.len() + 1, GFP_KERNEL)?;
        for file in &files {
            attrs.push(file.as_attribute(), GFP_KERNEL)?;
        }
        attrs.push(ptr::null_mut(), GFP_KERNEL)?;
        Ok(Self { name, attrs, files })
    }

    /// The group as C wants it, for one call.
    fn as_raw(&self, is_visible: Option<IsVisible>) -> bindings::attribute_group {
        let mut raw = bindings::attribute_group::default();
        // SAFETY: `raw` is valid for writes. The list of attributes is not written to.
        unsafe {
            bindings::rxe_cc_attribute_group_init(
                &mut raw,
                self.name.as_char_ptr(),
                self.attrs.as_ptr().cast_mut(),
                is_visible,
            )
        };
        raw
    }

    /// Every file is visible; keeps the port's kobject.
    ///
    /// # Safety
    ///
    /// Called by sysfs, for a file of a group of this type.
    unsafe extern "C" fn is_visible(
        kobject: *mut bindings::kobject,
        attr: *mut bindings::attribute,
        _index: kernel::ffi::c_int,
    ) -> bindings::umode_t {
        // SAFETY: The attribute is a file's, which lives until it is removed.
        let file = unsafe { &*File::<T>::from_raw(attr.cast()) };
        file.port.store(kobject, Ordering::Relaxed);
        MODE
    }
}

type IsVisible = unsafe extern "C" fn(
    *mut bindings::kobject,
    *mut bindings::attribute,
    kernel::ffi::c_int,
) -> bindings::umode_t;

/// One file.
struct File<T: PortFiles> {
    attr: Opaque<bindings::ib_port_attribute>,
    /// The port that the file is in, once that is known.
    port: AtomicPtr<bindings::kobject>,
    key: T::Key,
    data: Arc<T>,
    // `attr` has a pointer to it.
    name: CString,
}

impl<T: PortFiles> File<T> {
    fn new(name: &dyn fmt::Display, key: T::Key, data: Arc<T>) -> Result<Self> {
        let name = CString::try_from_fmt(format_args!("{name}"))?;
        let attr = Opaque::zeroed();
        // SAFETY: The attribute is ours. It has a pointer to the name, which stays where it is when
        // both are moved.
        unsafe {
            bindings::rxe_cc_ib_port_attr_init(
                attr.get(),
                name.as_char_ptr(),
                MODE,
                Some(Self::show),
            )
        };
        Ok(Self {
            attr,
            port: AtomicPtr::new(ptr::null_mut()),
            key,
            data,
            name,
        })
    }

    /// The `attr` of the `ib_port_attribute`, its first field.
    fn as_attribute(&self) -> *mut bindings::attribute {
        const { assert!(core::mem::offset_of!(bindings::ib_port_attribute, attr) == 0) };
        self.attr.get().cast()
    }

    /// # Safety
    ///
    /// `attr` must be the attribute of a file of this type.
    unsafe fn from_raw(attr: *mut bindings::ib_port_attribute) -> *mut Self {
        // SAFETY: By the caller's promise it is that field.
        unsafe {
            kernel::container_of!(
                attr.cast::<Opaque<bindings::ib_port_attribute>>(),
                Self,
                attr
            )
        }
    }

    /// # Safety
    ///
    /// Called by the core for a file of this type.
    unsafe extern "C" fn show(
        _dev: *mut bindings::ib_device,
        _port: u32,
        attr: *mut bindings::ib_port_attribute,
        page: *mut kernel::ffi::c_char,
    ) -> isize {
        // SAFETY: The file lives until it is removed, and removing it waits for this call; the
        // page is what sysfs handed over.
        unsafe {
            let file = Self::from_raw(attr);
            emit(page, |out| (*file).data.show(&(*file).key, out))
        }
    }
}
