// SPDX-License-Identifier: GPL-2.0

//! A hash table of a few reference counted objects that are found by an address, under RCU.
//!
//! For what every packet looks up: of a fixed size, so that a lookup is a few instructions
//! where it stands. As in [`super::rhashtable`] the table holds one reference of each entry
//! and gives it up one grace period after the entry was removed.
//!
//! C header: [`include/linux/rculist.h`](srctree/include/linux/rculist.h).

use super::{bindings, rhashtable::ReadSide};
use core::{
    marker::PhantomData,
    ops::Deref,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};
use kernel::{
    alloc::Flags,
    container_of,
    prelude::*,
    sync::{
        new_spinlock,
        rcu::{self, rcu_barrier},
        Arc, ArcBorrow, SpinLock,
    },
    types::Opaque,
};

/// One object of a [`Table`], with its address.
#[pin_data]
pub(crate) struct Entry<T> {
    #[pin]
    node: Opaque<bindings::hlist_node>,
    #[pin]
    rcu: Opaque<bindings::callback_head>,
    address: usize,
    #[pin]
    value: T,
}

// SAFETY: `node` and `rcu` are touched only by the table's functions, which work from any thread.
unsafe impl<T: Send> Send for Entry<T> {}
// SAFETY: As above.
unsafe impl<T: Sync> Sync for Entry<T> {}

impl<T> Deref for Entry<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A hash table with addresses as keys.
///
/// # Invariants
///
/// The buckets are lists of `node`s of [`Entry`]s inside [`Arc`]s, one reference of which belongs
/// to the table; they change under `writers` only, and so that RCU's readers may walk them.
#[pin_data(PinnedDrop)]
pub(crate) struct Table<T: Send + Sync> {
    buckets: [Opaque<bindings::hlist_head>; 1 << BITS],
    #[pin]
    writers: SpinLock<()>,
    _entries: PhantomData<Arc<Entry<T>>>,
}

/// Buckets, as a power of two.
const BITS: u32 = 6;

// SAFETY: By the invariant the lists may be read while somebody writes; the entries are `Send` and
// `Sync`.
unsafe impl<T: Send + Sync> Send for Table<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

/// A pointer of a list that may be changed meanwhile.
///
/// # Safety
///
/// `place` must be valid.
#[inline(always)]
unsafe fn follow(place: *mut *mut bindings::hlist_node) -> Option<NonNull<bindings::hlist_node>> {
    // SAFETY: Valid by the contract; C writes it by stores of whole words, too.
    NonNull::new(unsafe { AtomicPtr::from_ptr(place) }.load(Ordering::Acquire))
}

impl<T: Send + Sync> Table<T> {
    /// Makes an empty table.
    pub(crate) fn new() -> impl PinInit<Self> {
        // INVARIANT: All buckets are empty.
        pin_init!(Self {
            buckets: [const { Opaque::zeroed() }; 1 << BITS],
            writers <- new_spinlock!((), "rxe_cc_address_table"),
            _entries: PhantomData,
        })
    }

    /// The bucket of an address: the kernel's `hash_64()`.
    #[inline(always)]
    fn bucket(&self, address: usize) -> Option<*mut bindings::hlist_head> {
        let hash = (address as u64).wrapping_mul(bindings::GOLDEN_RATIO_64) >> (u64::BITS - BITS);
        self.buckets.get(hash as usize).map(Opaque::get)
    }

    /// The first entry of a bucket that is `wanted`.
    ///
    /// # Safety
    ///
    /// `bucket` must be one of a table of this type, and RCU be held for `'a`.
    #[inline(always)]
    unsafe fn first<'a>(
        bucket: *mut bindings::hlist_head,
        mut wanted: impl FnMut(&Entry<T>) -> bool,
    ) -> Option<ArcBorrow<'a, Entry<T>>> {
        // SAFETY: By the contract and the type's invariant each node is that of an entry in an
        // `Arc`; the table's reference is given up only a grace period after its removal.
        unsafe {
            let mut next = follow(&raw mut (*bucket).first);
            while let Some(node) = next {
                let entry: *mut Entry<T> = container_of!(
                    node.as_ptr().cast::<Opaque<bindings::hlist_node>>(),
                    Entry<T>,
                    node
                );
                if wanted(&*entry) {
                    return Some(ArcBorrow::from_raw(entry));
                }
                next = follow(&raw mut (*node.as_ptr()).next);
            }
        }
        None
    }

    /// Finds an entry.
    #[inline(always)]
    pub(crate) fn get<'a>(
        &'a self,
        address: usize,
        _held: &'a impl ReadSide,
    ) -> Option<ArcBorrow<'a, Entry<T>>> {
        // SAFETY: A bucket of this table; RCU is held for as long as the result may live.
        unsafe { Self::first(self.bucket(address)?, |entry| entry.address == address) }
    }

    /// An entry that is `wanted`.
    pub(crate) fn find(&self, mut wanted: impl FnMut(&Entry<T>) -> bool) -> Option<Arc<Entry<T>>> {
        let _guard = rcu::read_lock();
        let found = self.buckets.iter().find_map(|bucket| {
            // SAFETY: A bucket of this table; RCU is held until there is a reference.
            unsafe { Self::first(bucket.get(), &mut wanted) }
        });
        found.map(Arc::from)
    }

    /// Whether the table has no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.find(|_| true).is_none()
    }

    /// Puts an entry in. Sleeps as `flags` say.
    ///
    /// # Errors
    ///
    /// `EEXIST` when the address has one already, `ENOMEM`; others as `value` gives them.
    pub(crate) fn insert(
        &self,
        address: usize,
        value: impl PinInit<T, Error>,
        flags: Flags,
    ) -> Result<Arc<Entry<T>>> {
        let bucket = self.bucket(address).ok_or(EINVAL)?;
        let entry = Arc::pin_init(
            try_pin_init!(Entry {
                node: Opaque::zeroed(),
                rcu: Opaque::zeroed(),
                address,
                value <- value,
            }? Error),
            flags,
        )?;
        let guard = rcu::read_lock();
        let _writing = self.writers.lock();
        if self.get(address, &guard).is_some() {
            return Err(EEXIST);
        }
        // SAFETY: A bucket of this table, under its lock; the entry is in none, and the table gets
        // a reference.
        unsafe {
            let raw = Arc::into_raw(entry.clone());
            bindings::rxe_cc_hlist_add(Opaque::cast_into(&raw const (*raw).node), bucket);
        }
        Ok(entry)
    }

    /// Takes an entry out; `false` when it is not (any more) in the table.
    ///
    /// Readers may use it for one more grace period.
    pub(crate) fn remove(&self, entry: &Entry<T>) -> bool {
        {
            let guard = rcu::read_lock();
            let _writing = self.writers.lock();
            let present = self.get(entry.address, &guard);
            if !present.is_some_and(|present| ptr::eq(&*present, entry)) {
                return false;
            }
            // SAFETY: The entry is in a bucket of this table, which is locked.
            unsafe { bindings::rxe_cc_hlist_del(entry.node.get()) };
        }
        // SAFETY: Removed once, so this head is used once; the callback owns the table's reference.
        unsafe { bindings::call_rcu(entry.rcu.get(), Some(Self::release)) };
        true
    }

    /// # Safety
    ///
    /// `head` must be the `rcu` field of an entry whose table reference is the callback's.
    unsafe extern "C" fn release(head: *mut bindings::callback_head) {
        // SAFETY: By the contract.
        unsafe {
            let entry: *mut Entry<T> = container_of!(
                head.cast::<Opaque<bindings::callback_head>>(),
                Entry<T>,
                rcu
            );
            drop(Arc::from_raw(entry.cast_const()));
        }
    }
}

#[pinned_drop]
impl<T: Send + Sync> PinnedDrop for Table<T> {
    fn drop(self: Pin<&mut Self>) {
        while let Some(entry) = self.find(|_| true) {
            self.remove(&entry);
        }
        rcu_barrier();
    }
}

#[kunit_tests(rxe_cc_address_table)]
mod tests {
    use super::*;
    use crate::linux::kunit::Drops;

    /// More than there are buckets.
    const COUNT: usize = 300;

    fn address(n: usize) -> usize {
        0x8000_0000 + n * 4096
    }

    #[test]
    fn each_of_many_is_found_by_its_address() -> Result {
        let table = KBox::pin_init(Table::new(), GFP_KERNEL)?;
        assert!(table.is_empty());
        for n in 0..COUNT {
            table.insert(address(n), Ok(n), GFP_KERNEL)?;
        }
        let guard = rcu::read_lock();
        for n in 0..COUNT {
            let found = table.get(address(n), &guard);
            assert_eq!(found.map(|entry| **entry), Some(n));
            assert!(table.get(address(n) + 1, &guard).is_none());
            assert!(table.find(|entry| **entry == n).is_some());
        }
        assert!(table.get(address(COUNT), &guard).is_none());
        assert!(table.find(|entry| **entry == COUNT).is_none());
        assert!(!table.is_empty());
        Ok(())
    }

    #[test]
    fn an_address_has_one_entry_the_first() -> Result {
        let drops = Drops::new()?;
        let table = KBox::pin_init(Table::new(), GFP_KERNEL)?;
        table.insert(7, Ok(drops.value(70)), GFP_KERNEL)?;
        let second = table.insert(7, Ok(drops.value(71)), GFP_KERNEL);
        assert_eq!(second.err(), Some(EEXIST));
        assert_eq!(drops.count(), 1);
        assert_eq!(table.find(|_| true).map(|entry| entry.0), Some(70));
        Ok(())
    }

    #[test]
    fn what_was_removed_lives_as_long_as_it_is_used() -> Result {
        let drops = Drops::new()?;
        let table = KBox::pin_init(Table::new(), GFP_KERNEL)?;
        let entry = table.insert(7, Ok(drops.value(70)), GFP_KERNEL)?;
        assert!(table.remove(&entry));
        assert!(!table.remove(&entry));
        // Its place is free for another, which is not removed in its stead.
        table.insert(7, Ok(drops.value(71)), GFP_KERNEL)?;
        assert!(!table.remove(&entry));
        assert_eq!(drops.count(), 0);
        assert_eq!(entry.0, 70);
        drop(entry);
        assert_eq!(drops.count(), 1);
        {
            let guard = rcu::read_lock();
            let Some(entry) = table.get(7, &guard) else {
                return Err(ENOENT);
            };
            assert!(table.remove(&entry));
            assert_eq!(entry.0, 71);
            assert_eq!(drops.so_far(), 1);
        }
        assert_eq!(drops.count(), 2);
        assert!(table.is_empty());
        Ok(())
    }

    #[test]
    fn a_table_takes_its_entries_along() -> Result {
        let drops = Drops::new()?;
        let table = KBox::pin_init(Table::new(), GFP_KERNEL)?;
        for n in 0..COUNT {
            table.insert(address(n), Ok(drops.value(n as u32)), GFP_KERNEL)?;
        }
        drop(table);
        assert_eq!(drops.so_far(), COUNT as u32);
        Ok(())
    }
}
