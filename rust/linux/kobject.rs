// SPDX-License-Identifier: GPL-2.0

//! Directories of sysfs files under a net device.
//!
//! In comes a tree of names, and a [`Files`] that says what a file shows and what
//! becomes of a text written to it; out come those directories, each a kobject of
//! its own. What the files mean is left to [`Files`].
//!
//! # Lifetime
//!
//! A [`Directory`] owns its subdirectories. Dropping it removes the files first,
//! which waits for the callbacks that run and lets no other start, and returns when
//! nothing in the kernel refers to the tree any more: after that neither the data
//! nor the module's code is reached through it. The net device may go first, or be
//! renamed; it may also hold the RTNL while it waits for a callback of ours, so
//! a [`Files`] must not take the RTNL.
//!
//! # Ownership
//!
//! Files and directories belong to whom their parent belongs to: under a net device
//! that is root of the user namespace that owns its network namespace.
//!
//! C headers: [`include/linux/kobject.h`](srctree/include/linux/kobject.h),
//! [`include/linux/sysfs.h`](srctree/include/linux/sysfs.h).

use super::{bindings, netdevice::NetDeviceRef};
use core::{
    fmt::{self, Write},
    slice,
};
use kernel::{
    error::{from_result, to_result},
    page::PAGE_SIZE,
    prelude::*,
    str::{CString, Formatter},
    sync::{Arc, Completion},
    types::Opaque,
};

/// Files that can be read by everyone and written by their owner.
const MODE: bindings::umode_t = 0o644;

/// What the files of a directory do. Called from any number of threads at once; must
/// not take the RTNL.
pub(crate) trait Files: Send + Sync + 'static {
    /// What tells one file from the others.
    type Key: Send + Sync + 'static;

    /// Writes what the file shows, without the newline behind it.
    fn show(&self, key: &Self::Key, out: &mut dyn Write) -> fmt::Result;

    /// Takes the text that was written to the file.
    fn store(&self, key: &Self::Key, text: &[u8]) -> Result;
}

/// A directory in sysfs with its files and subdirectories; dropping it removes them.
///
/// # Invariants
///
/// The node's kobject is initialised, and the reference from that is ours. The node is
/// pinned: it is never moved out of its box.
pub(crate) struct Directory {
    // Dropped by hand, before the node.
    children: KVec<Directory>,
    node: KBox<dyn AnyNode>,
}

impl Directory {
    /// Makes the directory `name` of a net device, with `files`: their names and keys.
    pub(crate) fn under_net_device<T: Files, N: fmt::Display>(
        dev: &NetDeviceRef,
        name: &str,
        files: impl IntoIterator<Item = (N, T::Key)>,
        data: Arc<T>,
    ) -> Result<Self> {
        // SAFETY: The device is alive by the contract of its type, and with it its kobject.
        let parent = unsafe { bindings::rxe_cc_netdev_kobj(dev.as_ptr()) };
        // SAFETY: As above.
        unsafe { Self::create(parent, name, files, data) }
    }

    /// Makes a subdirectory, with `files`: their names and keys.
    pub(crate) fn add<T: Files, N: fmt::Display>(
        &mut self,
        name: &str,
        files: impl IntoIterator<Item = (N, T::Key)>,
        data: Arc<T>,
    ) -> Result<&mut Directory> {
        // SAFETY: Our kobject lives as long as `self`.
        let child = unsafe { Self::create(self.node.kobject(), name, files, data) }?;
        self.children.push(child, GFP_KERNEL)?;
        self.children.last_mut().ok_or(ENOENT)
    }

    /// # Safety
    ///
    /// `parent` must point to a kobject that lives during the call.
    unsafe fn create<T: Files, N: fmt::Display>(
        parent: *mut bindings::kobject,
        name: &str,
        files: impl IntoIterator<Item = (N, T::Key)>,
        data: Arc<T>,
    ) -> Result<Self> {
        let directory = CString::try_from_fmt(format_args!("{name}"))?;
        let mut list = KVec::new();
        for (name, key) in files {
            list.push(File::new(&name, key)?, GFP_KERNEL)?;
        }
        let node = KBox::pin_init(Node::new(list, data), GFP_KERNEL)?;
        let attrs = node.attrs()?;
        // INVARIANT: `Node::new()` initialised the kobject. From here on an error drops it.
        // SAFETY: The node stays in its box; a pinned one would have to keep its type.
        let node = unsafe { Pin::into_inner_unchecked(node) } as KBox<dyn AnyNode>;
        let this = Self {
            children: KVec::new(),
            node,
        };
        let kobject = this.node.kobject();
        // SAFETY: The kobject was initialised and never added; `parent` is alive by the caller's
        // promise, and kept so by the reference that the kobject takes on it.
        to_result(unsafe {
            bindings::kobject_add(
                kobject,
                parent,
                c"%s".as_char_ptr(),
                directory.as_char_ptr(),
            )
        })?;
        for attr in attrs {
            // SAFETY: The kobject was added. The attribute and its name stay where they are until
            // the node is freed, which is after the file was removed.
            to_result(unsafe { bindings::sysfs_create_file_ns(kobject, attr, core::ptr::null()) })?;
        }
        Ok(this)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // From the leaves to the root: a subdirectory holds a reference on its parent.
        self.children.clear();
        let kobject = self.node.kobject();
        // SAFETY: Initialised and ours by the invariant; one that was never added, or whose parent
        // is gone, may be deleted too.
        unsafe {
            bindings::kobject_del(kobject);
            bindings::kobject_put(kobject);
        }
        // Ours was the last reference but for a kernel that delays releases to find bugs
        // (CONFIG_DEBUG_KOBJECT_RELEASE).
        self.node.released().wait_for_completion();
    }
}

/// A node whose files nobody needs to know.
trait AnyNode: Send + Sync {
    fn kobject(&self) -> *mut bindings::kobject;
    fn released(&self) -> &Completion;
}

/// What a directory consists of.
///
/// # Invariants
///
/// The kobject is initialised with our type. While its directory or one of its files exists in
/// sysfs, `files` is not touched.
#[pin_data]
struct Node<T: Files> {
    #[pin]
    kobject: Opaque<bindings::kobject>,
    #[pin]
    released: Completion,
    files: KVec<File<T::Key>>,
    data: Arc<T>,
}

// SAFETY: A kobject belongs to no thread; the other fields are `Send`, `File` by its key.
unsafe impl<T: Files> Send for Node<T> {}
// SAFETY: The C side locks what it changes in a kobject and an attribute; the other fields are
// `Sync`, `File` by its key.
unsafe impl<T: Files> Sync for Node<T> {}

impl<T: Files> AnyNode for Node<T> {
    fn kobject(&self) -> *mut bindings::kobject {
        self.kobject.get()
    }

    fn released(&self) -> &Completion {
        &self.released
    }
}

impl<T: Files> Node<T> {
    const OPS: bindings::sysfs_ops = bindings::sysfs_ops {
        show: Some(Self::show),
        store: Some(Self::store),
    };

    const TYPE: bindings::kobj_type = bindings::kobj_type {
        release: Some(Self::release),
        sysfs_ops: &Self::OPS,
        get_ownership: Some(get_ownership),
        ..pin_init::zeroed()
    };

    fn new(files: KVec<File<T::Key>>, data: Arc<T>) -> impl PinInit<Self> {
        pin_init!(Self {
            // INVARIANT: Initialised here; nobody else has `files`.
            kobject <- Opaque::ffi_init(|place: *mut bindings::kobject| {
                // SAFETY: `place` is valid for writes, and stays in place until the kobject is
                // released: `Directory::drop()` waits for that.
                unsafe {
                    place.write(bindings::kobject::default());
                    bindings::kobject_init(place, &Self::TYPE);
                }
            }),
            released <- Completion::new(),
            files,
            data,
        })
    }

    /// The attributes of the files, one by one.
    fn attrs(&self) -> Result<KVec<*const bindings::attribute>> {
        let mut attrs = KVec::with_capacity(self.files.len(), GFP_KERNEL)?;
        for file in &self.files {
            attrs.push(file.attr.get().cast_const(), GFP_KERNEL)?;
        }
        Ok(attrs)
    }

    /// # Safety
    ///
    /// Both must come from sysfs, for a file of a node of this type.
    unsafe fn from_callback<'a>(
        kobject: *mut bindings::kobject,
        attr: *mut bindings::attribute,
    ) -> (&'a T, &'a T::Key) {
        // SAFETY: They are fields of a `Node` and of one of its `File`s; both live until the file
        // is removed, and removing it waits for the callback.
        unsafe {
            let node =
                kernel::container_of!(kobject.cast::<Opaque<bindings::kobject>>(), Self, kobject);
            let file = kernel::container_of!(
                attr.cast::<Opaque<bindings::attribute>>(),
                File<T::Key>,
                attr
            );
            (&(*node).data, &(*file).key)
        }
    }

    /// # Safety
    ///
    /// Called by sysfs, for a file of a node of this type.
    unsafe extern "C" fn show(
        kobject: *mut bindings::kobject,
        attr: *mut bindings::attribute,
        page: *mut kernel::ffi::c_char,
    ) -> isize {
        // SAFETY: What sysfs hands over is what both functions want.
        unsafe {
            let (data, key) = Self::from_callback(kobject, attr);
            emit(page, |out| data.show(key, out))
        }
    }

    /// # Safety
    ///
    /// Called by sysfs, for a file of a node of this type.
    unsafe extern "C" fn store(
        kobject: *mut bindings::kobject,
        attr: *mut bindings::attribute,
        text: *const kernel::ffi::c_char,
        len: usize,
    ) -> isize {
        // SAFETY: As in `show()`; the text has `len` bytes and is nobody else's meanwhile.
        let ((data, key), text) = unsafe {
            (
                Self::from_callback(kobject, attr),
                slice::from_raw_parts(text.cast::<u8>(), len),
            )
        };
        from_result(|| {
            data.store(key, text)?;
            Ok(len as isize)
        })
    }

    /// # Safety
    ///
    /// Called when the last reference to the kobject of a node of this type is gone.
    unsafe extern "C" fn release(kobject: *mut bindings::kobject) {
        // SAFETY: The node lives until `Directory::drop()` has seen the completion.
        unsafe {
            let node =
                kernel::container_of!(kobject.cast::<Opaque<bindings::kobject>>(), Self, kobject);
            (*node).released.complete_all();
        }
    }
}

/// One file.
struct File<K> {
    attr: Opaque<bindings::attribute>,
    key: K,
    // `attr` has a pointer to it.
    _name: CString,
}

impl<K> File<K> {
    fn new(name: &dyn fmt::Display, key: K) -> Result<Self> {
        let name = CString::try_from_fmt(format_args!("{name}"))?;
        let attr = Opaque::zeroed();
        // SAFETY: The attribute is ours. It has a pointer to the name, which stays where it is when
        // both are moved.
        unsafe { bindings::rxe_cc_sysfs_attr_init(attr.get(), name.as_char_ptr(), MODE) };
        Ok(Self {
            attr,
            key,
            _name: name,
        })
    }
}

/// Lets the parent say who owns a kobject.
///
/// # Safety
///
/// `kobject` must be alive, and with it its parent; `uid` and `gid` must be valid for writes.
unsafe extern "C" fn get_ownership(
    kobject: *const bindings::kobject,
    uid: *mut bindings::kuid_t,
    gid: *mut bindings::kgid_t,
) {
    // SAFETY: By the caller's promise; a kobject holds a reference on its parent, and every kobject
    // in sysfs has a type. Without an answer it stays with what the caller put there, global root.
    unsafe {
        let parent = (*kobject).parent;
        if parent.is_null() {
            return;
        }
        if let Some(ask) = (*(*parent).ktype).get_ownership {
            ask(parent, uid, gid);
        }
    }
}

/// Writes what a file shows, and a newline, to the page that sysfs handed over. Returns what sysfs
/// wants back: how many bytes that is, or an error.
///
/// # Safety
///
/// `page` must point to `PAGE_SIZE` initialised bytes that are nobody else's.
pub(super) unsafe fn emit(
    page: *mut kernel::ffi::c_char,
    show: impl FnOnce(&mut Formatter<'_>) -> fmt::Result,
) -> isize {
    // SAFETY: By the caller's promise. sysfs takes a full page for an error: leave one byte.
    let page = unsafe { slice::from_raw_parts_mut(page.cast::<u8>(), PAGE_SIZE - 1) };
    let mut out = Formatter::new(page);
    from_result(|| {
        show(&mut out)?;
        out.write_str("\n")?;
        Ok(out.bytes_written() as isize)
    })
}

#[kunit_tests(rxe_cc_kobject)]
mod tests {
    use super::*;
    use crate::linux::kunit::loopback;
    use core::sync::atomic::{AtomicU32, Ordering};

    /// Numbers in files; one is too long to be shown.
    struct Numbers([AtomicU32; 2]);

    impl Files for Numbers {
        type Key = usize;

        fn show(&self, key: &usize, out: &mut dyn Write) -> fmt::Result {
            match self.0.get(*key) {
                Some(number) => write!(out, "{}", number.load(Ordering::Relaxed)),
                None => (0..=PAGE_SIZE).try_for_each(|_| out.write_str("x")),
            }
        }

        fn store(&self, key: &usize, text: &[u8]) -> Result {
            let number = self.0.get(*key).ok_or(EACCES)?;
            let text = core::str::from_utf8(text).map_err(|_| EINVAL)?;
            let value = text.trim().parse().map_err(|_| EINVAL)?;
            number.store(value, Ordering::Relaxed);
            Ok(())
        }
    }

    fn numbers() -> Result<(Directory, Arc<Numbers>)> {
        let data = Arc::new(Numbers([AtomicU32::new(7), AtomicU32::new(8)]), GFP_KERNEL)?;
        let files = [("one", 0), ("two", 1), ("long", 2)];
        let directory =
            Directory::under_net_device(loopback(), "rxe_cc_kunit", files, data.clone())?;
        Ok((directory, data))
    }

    /// Whether sysfs has an entry below a kobject.
    ///
    /// # Safety
    ///
    /// `kobject` must be in sysfs.
    unsafe fn has(kobject: *mut bindings::kobject, name: &CStr) -> bool {
        // SAFETY: By the caller's promise; what is found comes with a reference.
        unsafe {
            let found = bindings::rxe_cc_sysfs_get_dirent((*kobject).sd, name.as_char_ptr());
            if !found.is_null() {
                bindings::kernfs_put(found);
            }
            !found.is_null()
        }
    }

    fn loopback_has(name: &CStr) -> bool {
        // SAFETY: The loopback device is always there.
        unsafe { has(bindings::rxe_cc_netdev_kobj(loopback().as_ptr()), name) }
    }

    /// What sysfs would get for a file: its text, or an error.
    fn show(directory: &Directory, file: usize) -> Result<KVec<u8>> {
        let mut page = KVec::from_elem(0_u8, PAGE_SIZE, GFP_KERNEL)?;
        let kobject = directory.node.kobject();
        // SAFETY: The node is of this type, has three files, and lives; the page is one.
        let len = unsafe {
            let node = kernel::container_of!(
                kobject.cast::<Opaque<bindings::kobject>>(),
                Node<Numbers>,
                kobject
            );
            let attr = (&(*node).files)[file].attr.get();
            Node::<Numbers>::show(kobject, attr, page.as_mut_ptr().cast())
        };
        let len = usize::try_from(len).map_err(|_| Error::from_errno(len as i32))?;
        page.truncate(len);
        Ok(page)
    }

    /// What sysfs would get for a text written to a file.
    fn store(directory: &Directory, file: usize, text: &[u8]) -> isize {
        let kobject = directory.node.kobject();
        // SAFETY: As in `show()`; the text is not written to.
        unsafe {
            let node = kernel::container_of!(
                kobject.cast::<Opaque<bindings::kobject>>(),
                Node<Numbers>,
                kobject
            );
            let attr = (&(*node).files)[file].attr.get();
            Node::<Numbers>::store(kobject, attr, text.as_ptr().cast(), text.len())
        }
    }

    #[test]
    fn a_directory_is_in_sysfs_as_long_as_it_is_owned() -> Result {
        let (mut directory, data) = numbers()?;
        directory.add("inner", [("three", 0)], data.clone())?;
        assert!(loopback_has(c"rxe_cc_kunit"));
        let kobject = directory.node.kobject();
        // SAFETY: Ours, and in sysfs.
        unsafe {
            for name in [c"one", c"two", c"long", c"inner"] {
                assert!(has(kobject, name));
            }
            assert!(!has(kobject, c"three"));
            assert!(has(directory.children[0].node.kobject(), c"three"));
        }
        drop(directory);
        assert!(!loopback_has(c"rxe_cc_kunit"));
        // Nobody else keeps what the files showed.
        assert!(Arc::into_unique_or_drop(data).is_some());
        Ok(())
    }

    #[test]
    fn files_show_lines_and_take_texts() -> Result {
        let (directory, data) = numbers()?;
        assert_eq!(&show(&directory, 0)?[..], b"7\n");
        assert_eq!(&show(&directory, 1)?[..], b"8\n");
        assert_eq!(store(&directory, 1, b"4000000000\n"), 11);
        assert_eq!(&show(&directory, 1)?[..], b"4000000000\n");
        assert_eq!(data.0[0].load(Ordering::Relaxed), 7);
        Ok(())
    }

    #[test]
    fn errors_reach_the_writer() -> Result {
        let (directory, _data) = numbers()?;
        assert_eq!(store(&directory, 0, b"seven"), EINVAL.to_errno() as isize);
        assert_eq!(store(&directory, 0, b"\xff"), EINVAL.to_errno() as isize);
        assert_eq!(store(&directory, 2, b"1"), EACCES.to_errno() as isize);
        assert_eq!(&show(&directory, 0)?[..], b"7\n");
        Ok(())
    }

    #[test]
    fn more_than_a_page_is_an_error_and_stays_in_the_page() -> Result {
        let (directory, _data) = numbers()?;
        assert!(show(&directory, 2).is_err());
        Ok(())
    }
}
