// SPDX-License-Identifier: GPL-2.0

//! A resizable hash table of reference counted objects that are found under RCU.
//!
//! The table holds one reference of each entry and gives it up one grace period
//! after the entry was removed. So whoever finds an entry under an RCU guard may
//! use it until the guard ends, and may take a reference of its own to keep it
//! longer. Inserting and removing work in any context.
//!
//! C header: [`include/linux/rhashtable.h`](srctree/include/linux/rhashtable.h).

use super::bindings;
use core::{
    marker::PhantomData,
    mem,
    ops::Deref,
    ptr,
    sync::atomic::{AtomicI32, Ordering},
};
use kernel::{
    alloc::Flags,
    container_of,
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::{
        rcu::{self, rcu_barrier},
        Arc, ArcBorrow,
    },
    types::Opaque,
};

/// What shows that this is a read side of RCU: while it lives, nothing is freed that could be
/// found since it began.
///
/// # Safety
///
/// RCU must be held for the whole life of each value.
pub(crate) unsafe trait ReadSide {}

// SAFETY: That is what a guard is.
unsafe impl ReadSide for rcu::Guard {}

/// One object of a [`Table`], with its key of `W` words.
#[pin_data]
#[repr(C)]
pub(crate) struct Entry<const W: usize, T> {
    #[pin]
    head: Opaque<bindings::rhash_head>,
    #[pin]
    rcu: Opaque<bindings::callback_head>,
    key: [u32; W],
    #[pin]
    value: T,
}

// SAFETY: `head` and `rcu` are touched only by the table's functions, which work from any thread.
unsafe impl<const W: usize, T: Send> Send for Entry<W, T> {}
// SAFETY: As above.
unsafe impl<const W: usize, T: Sync> Sync for Entry<W, T> {}

impl<const W: usize, T> Entry<W, T> {
    /// The key under which the entry is (or was) in its table.
    pub(crate) fn key(&self) -> &[u32; W] {
        &self.key
    }
}

impl<const W: usize, T> Deref for Entry<W, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A hash table with keys of `W` words.
///
/// # Invariants
///
/// `table` was initialised with the parameters of [`Table::PARAMS`]; each object in it is an
/// [`Entry`] inside an [`Arc`], one reference of which belongs to the table.
#[pin_data(PinnedDrop)]
pub(crate) struct Table<const W: usize, T: Send + Sync> {
    #[pin]
    table: Opaque<bindings::rhashtable>,
    _entries: PhantomData<Arc<Entry<W, T>>>,
}

// SAFETY: The C side locks for itself; the entries are `Send` and `Sync`.
unsafe impl<const W: usize, T: Send + Sync> Send for Table<W, T> {}
// SAFETY: As above.
unsafe impl<const W: usize, T: Send + Sync> Sync for Table<W, T> {}

impl<const W: usize, T: Send + Sync> Table<W, T> {
    // The helper that looks entries up has these places built in.
    const AS_IN_C: () = {
        assert!(
            mem::offset_of!(Entry<W, T>, head)
                == mem::offset_of!(bindings::rxe_cc_table_entry, head)
        );
        assert!(
            mem::offset_of!(Entry<W, T>, key) == mem::offset_of!(bindings::rxe_cc_table_entry, key)
        );
    };

    const PARAMS: bindings::rhashtable_params = bindings::rhashtable_params {
        nelem_hint: 0,
        key_len: (W * mem::size_of::<u32>()) as u16,
        key_offset: mem::offset_of!(Entry<W, T>, key) as u16,
        head_offset: mem::offset_of!(Entry<W, T>, head) as u16,
        max_size: 0,
        min_size: 0,
        insecure_elasticity: false,
        automatic_shrinking: true,
        hashfn: None,
        obj_hashfn: None,
        obj_cmpfn: None,
    };

    /// Makes an empty table. Sleeps.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        let () = Self::AS_IN_C;
        try_pin_init!(Self {
            table <- Opaque::try_ffi_init(|place| {
                // SAFETY: `place` is valid for writes; the parameters are copied.
                to_result(unsafe { bindings::rxe_cc_rhashtable_init(place, &Self::PARAMS) })
            }),
            _entries: PhantomData,
        })
    }

    /// Finds an entry.
    #[inline(always)]
    pub(crate) fn get<'a>(
        &'a self,
        key: &[u32; W],
        _held: &'a impl ReadSide,
    ) -> Option<ArcBorrow<'a, Entry<W, T>>> {
        // SAFETY: The table is initialised; keys have the length that it was told.
        let found = unsafe {
            let key = ptr::from_ref(key).cast();
            bindings::rxe_cc_rhashtable_lookup(self.table.get(), key, W as u32)
        };
        if found.is_null() {
            return None;
        }
        // SAFETY: By the invariant this is an entry in an `Arc`; the table's reference is given up
        // only a grace period after its removal, so not while that is held.
        Some(unsafe { ArcBorrow::from_raw(found.cast::<Entry<W, T>>()) })
    }

    /// Finds an entry, all of which is about to be used: what lies in memory only is on its way
    /// to the CPU, all at once.
    #[inline]
    pub(crate) fn get_whole<'a>(
        &'a self,
        key: &[u32; W],
        held: &'a impl ReadSide,
    ) -> Option<ArcBorrow<'a, Entry<W, T>>> {
        let entry = self.get(key, held)?;
        // SAFETY: No more than a hint, about memory that is there.
        unsafe {
            bindings::rxe_cc_prefetch(
                ptr::from_ref::<Entry<W, T>>(&entry).cast(),
                mem::size_of::<Entry<W, T>>(),
            );
        }
        Some(entry)
    }

    /// Finds an entry or makes it; `true` when it is new.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; others as `value` gives them.
    pub(crate) fn get_or_insert(
        &self,
        key: [u32; W],
        value: impl PinInit<T, Error>,
        flags: Flags,
    ) -> Result<(Arc<Entry<W, T>>, bool)> {
        let entry = Arc::pin_init(
            try_pin_init!(Entry {
                head: Opaque::zeroed(),
                rcu: Opaque::zeroed(),
                key,
                value <- value,
            }? Error),
            flags,
        )?;
        let raw = Arc::into_raw(entry.clone());
        let guard = rcu::read_lock();
        // SAFETY: `raw` is an entry that is in no table, with a reference for this one.
        let other = from_err_ptr(unsafe {
            bindings::rxe_cc_rhashtable_lookup_get_insert(self.table.get(), (*raw).head.get())
        });
        match other {
            Ok(other) if other.is_null() => Ok((entry, true)),
            Ok(other) => {
                // SAFETY: Not inserted, so the reference made for the table is still ours.
                drop(unsafe { Arc::from_raw(raw) });
                // SAFETY: As in `get()`, under the guard taken above.
                let other = unsafe { ArcBorrow::from_raw(other.cast::<Entry<W, T>>()) };
                let other = Arc::from(other);
                drop(guard);
                Ok((other, false))
            }
            Err(error) => {
                // SAFETY: Not inserted, as above.
                drop(unsafe { Arc::from_raw(raw) });
                Err(error)
            }
        }
    }

    /// Takes an entry out; `false` when it is not (any more) in the table.
    ///
    /// Readers may use it for one more grace period.
    pub(crate) fn remove(&self, entry: &Entry<W, T>) -> bool {
        // SAFETY: The table is initialised, `entry` is alive; an entry that is not in the table is
        // not found by its key and hash.
        let status =
            unsafe { bindings::rxe_cc_rhashtable_remove(self.table.get(), entry.head.get()) };
        if status != 0 {
            return false;
        }
        // SAFETY: Removed once, so this head is used once; the callback owns the table's reference.
        unsafe { bindings::call_rcu(entry.rcu.get(), Some(Self::release)) };
        true
    }

    /// Calls `f` for the entries, in no order. Entries that come or go meanwhile, or a table that
    /// is being resized, may make it miss one or see one twice. `f` must not sleep.
    pub(crate) fn for_each(&self, mut f: impl FnMut(ArcBorrow<'_, Entry<W, T>>)) {
        let mut iter = bindings::rhashtable_iter::default();
        // SAFETY: The table is initialised. Between start and stop RCU is held, so what `next`
        // gives is alive as in `get()`. An error pointer says that the table was resized.
        unsafe {
            bindings::rhashtable_walk_enter(self.table.get(), &mut iter);
            bindings::rhashtable_walk_start_check(&mut iter);
            loop {
                let found = bindings::rhashtable_walk_next(&mut iter);
                if found.is_null() {
                    break;
                }
                if let Ok(found) = from_err_ptr(found) {
                    f(ArcBorrow::from_raw(found.cast::<Entry<W, T>>()));
                }
            }
            bindings::rhashtable_walk_stop(&mut iter);
            bindings::rhashtable_walk_exit(&mut iter);
        }
    }

    /// References of the entries that `pick` wants, as far as there is memory. Sleeps.
    pub(crate) fn collect(
        &self,
        mut pick: impl FnMut(&Entry<W, T>) -> bool,
    ) -> Result<KVVec<Arc<Entry<W, T>>>> {
        let mut wanted = 0;
        self.for_each(|entry| wanted += usize::from(pick(&entry)));
        // A few more may come between the two walks; others wait for the next time.
        let mut entries = KVVec::with_capacity(wanted + wanted / 8, GFP_KERNEL)?;
        self.for_each(|entry| {
            if pick(&entry) {
                let _ = entries.push_within_capacity(Arc::from(entry));
            }
        });
        Ok(entries)
    }

    /// Whether the table has no entry.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // SAFETY: The table is initialised; C counts its entries in an `atomic_t`.
        let entries = unsafe { AtomicI32::from_ptr(&raw mut (*self.table.get()).nelems.counter) };
        entries.load(Ordering::Relaxed) == 0
    }

    /// # Safety
    ///
    /// `head` must be the `rcu` field of an entry whose table reference is the callback's.
    unsafe extern "C" fn release(head: *mut bindings::callback_head) {
        // SAFETY: By the contract.
        unsafe {
            let entry: *mut Entry<W, T> = container_of!(
                head.cast::<Opaque<bindings::callback_head>>(),
                Entry<W, T>,
                rcu
            );
            drop(Arc::from_raw(entry.cast_const()));
        }
    }

    /// # Safety
    ///
    /// `entry` must be an entry whose table reference is the callback's.
    unsafe extern "C" fn free(entry: *mut core::ffi::c_void, _arg: *mut core::ffi::c_void) {
        // SAFETY: By the contract.
        unsafe { drop(Arc::from_raw(entry.cast::<Entry<W, T>>().cast_const())) };
    }
}

#[pinned_drop]
impl<const W: usize, T: Send + Sync> PinnedDrop for Table<W, T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Exclusive access, so no reader is left; what is still in the table is released
        // here, what was removed before by the callbacks that the barrier waits for.
        unsafe {
            bindings::rhashtable_free_and_destroy(
                self.table.get(),
                Some(Self::free),
                ptr::null_mut(),
            );
        }
        rcu_barrier();
    }
}

#[kunit_tests(rxe_cc_rhashtable)]
mod tests {
    use super::*;
    use crate::linux::kunit::{Drops, Value};

    struct Fixture {
        table: Pin<KBox<Table<3, Value>>>,
        drops: Drops,
    }

    impl Fixture {
        fn new() -> Result<Self> {
            Ok(Self {
                table: KBox::pin_init(Table::new(), GFP_KERNEL)?,
                drops: Drops::new()?,
            })
        }

        fn insert(&self, key: [u32; 3], value: u32) -> Result<(Arc<Entry<3, Value>>, bool)> {
            let value = self.drops.value(value);
            self.table.get_or_insert(key, Ok(value), GFP_KERNEL)
        }

        fn value(&self, key: [u32; 3]) -> Option<u32> {
            let guard = rcu::read_lock();
            self.table.get(&key, &guard).map(|entry| entry.0)
        }
    }

    #[test]
    fn a_key_has_one_entry_the_first() -> Result {
        let t = Fixture::new()?;
        assert!(t.table.is_empty());
        assert!(t.value([1, 2, 3]).is_none());
        let (first, new) = t.insert([1, 2, 3], 10)?;
        assert!(new);
        let (second, new) = t.insert([1, 2, 3], 20)?;
        assert!(!new);
        assert_eq!(second.0, 10);
        assert!(core::ptr::eq(&*first, &*second));
        assert_eq!(t.drops.count(), 1);
        // A key that differs in one word is another.
        for key in [[0, 2, 3], [1, 0, 3], [1, 2, 0]] {
            assert!(t.value(key).is_none());
        }
        assert_eq!(t.value([1, 2, 3]), Some(10));
        Ok(())
    }

    /// Some lengths of a key have code of their own.
    fn found_by_all_words_of_its_key<const W: usize>() -> Result {
        let table = KBox::pin_init(Table::<W, u32>::new(), GFP_KERNEL)?;
        for n in 0..100 {
            let key = core::array::from_fn(|i| n * W as u32 + i as u32);
            table.get_or_insert(key, Ok(n), GFP_KERNEL)?;
        }
        let guard = rcu::read_lock();
        for n in 0..100 {
            let key = core::array::from_fn(|i| n * W as u32 + i as u32);
            assert_eq!(table.get(&key, &guard).map(|entry| **entry), Some(n));
            for word in 0..W {
                let mut other = key;
                other[word] ^= 0x8000_0000;
                assert!(table.get(&other, &guard).is_none());
            }
        }
        Ok(())
    }

    #[test]
    fn a_key_of_any_length_is_found_by_all_its_words() -> Result {
        found_by_all_words_of_its_key::<2>()?;
        found_by_all_words_of_its_key::<5>()?;
        found_by_all_words_of_its_key::<6>()?;
        found_by_all_words_of_its_key::<7>()
    }

    #[test]
    fn what_was_removed_lives_as_long_as_it_is_used() -> Result {
        let t = Fixture::new()?;
        let (entry, _) = t.insert([7, 7, 7], 70)?;
        assert!(t.table.remove(&entry));
        assert!(!t.table.remove(&entry));
        assert!(t.value([7, 7, 7]).is_none());
        // Its place is free for another, which is not removed in its stead.
        assert!(t.insert([7, 7, 7], 71)?.1);
        assert!(!t.table.remove(&entry));
        assert_eq!(t.value([7, 7, 7]), Some(71));
        assert_eq!(t.drops.count(), 0);
        assert_eq!(entry.0, 70);
        drop(entry);
        assert_eq!(t.drops.count(), 1);
        Ok(())
    }

    #[test]
    fn a_reader_may_use_an_entry_that_is_removed_meanwhile() -> Result {
        let t = Fixture::new()?;
        t.insert([1, 1, 1], 11)?;
        let guard = rcu::read_lock();
        let Some(entry) = t.table.get(&[1, 1, 1], &guard) else {
            return Err(ENOENT);
        };
        assert!(t.table.remove(&entry));
        assert_eq!(entry.0, 11);
        assert_eq!(t.drops.so_far(), 0);
        drop(guard);
        assert_eq!(t.drops.count(), 1);
        Ok(())
    }

    #[test]
    fn all_of_many_entries_are_found_listed_and_dropped() -> Result {
        const COUNT: u32 = 2000;
        let t = Fixture::new()?;
        for n in 0..COUNT {
            assert!(t.insert([n, n / 7, !n], n)?.1);
        }
        for n in 0..COUNT {
            assert_eq!(t.value([n, n / 7, !n]), Some(n));
        }
        let odd = t.table.collect(|entry| entry.0 % 2 == 1)?;
        assert_eq!(odd.len(), COUNT as usize / 2);
        assert!(odd
            .iter()
            .all(|entry| entry.0 % 2 == 1 && entry.key()[0] == entry.0));
        for entry in &odd {
            assert!(t.table.remove(entry));
        }
        drop(odd);
        assert_eq!(t.drops.count(), COUNT / 2);
        let mut left = 0;
        t.table.for_each(|_| left += 1);
        assert_eq!(left, COUNT / 2);
        let Fixture { table, drops } = t;
        drop(table);
        assert_eq!(drops.so_far(), COUNT);
        Ok(())
    }
}
