// SPDX-License-Identifier: GPL-2.0

//! Packets that were held back on their way out, in order, each with what it
//! takes to send it on and a note of the holder's.
//!
//! The note and the hook's continuation lie in the part of the buffer's control
//! block that IP output does not use, so holding a packet takes no memory.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h).

use super::{bindings, netfilter::HookState, skbuff::SkBuff};
use core::{marker::PhantomData, mem, ptr};

type Okfn = Option<
    unsafe extern "C" fn(
        *mut bindings::net,
        *mut bindings::sock,
        *mut bindings::sk_buff,
    ) -> core::ffi::c_int,
>;

/// What lies in the control block of a held packet.
#[derive(Clone, Copy)]
#[repr(C)]
struct ControlBlock<N: Copy> {
    okfn: Okfn,
    note: N,
}

/// Where IP's own part of the control block ends (helpers/skbuff.c checks it).
const AT: usize = bindings::RXE_CC_CB_OFFSET as usize;

/// # Safety
///
/// `skb` must be valid.
unsafe fn control_block<N: Copy>(skb: *mut bindings::sk_buff) -> *mut ControlBlock<N> {
    const {
        assert!(AT + mem::size_of::<ControlBlock<N>>() <= 48);
        assert!(mem::align_of::<ControlBlock<N>>() <= 8);
    }
    // SAFETY: The control block of 48 bytes is aligned to 8, as is the offset.
    unsafe { (&raw mut (*skb).cb).byte_add(AT).cast() }
}

/// A packet that was taken out of a [`SkbQueue`], to be sent on.
pub(crate) struct HeldSkb(SkBuff, Okfn);

impl HeldSkb {
    /// Sends the packet on its way. The caller holds no lock.
    pub(crate) fn send(self) {
        let Self(skb, okfn) = self;
        let Some(okfn) = okfn else {
            return;
        };
        let skb = skb.into_raw();
        // SAFETY: The packet goes on where the hook took it, as netfilter does it: with its route,
        // which keeps the device, and its socket, if it still has one.
        unsafe { bindings::rxe_cc_skb_resume(okfn as *mut core::ffi::c_void, skb) };
    }

    /// Drops the packet.
    pub(crate) fn discard(self) {
        self.0.discard();
    }
}

/// Held packets, first in, first out, each with a note.
///
/// # Invariants
///
/// A singly linked list (`skb->next`) of buffers that are ours, from `head` to
/// `tail`, both null or neither; each with an initialised [`ControlBlock`].
pub(crate) struct SkbQueue<N: Copy> {
    head: *mut bindings::sk_buff,
    tail: *mut bindings::sk_buff,
    len: u32,
    truesize: u32,
    _note: PhantomData<N>,
}

// SAFETY: Socket buffers may be handled by any thread, and notes that are `Send`, too.
unsafe impl<N: Copy + Send> Send for SkbQueue<N> {}

impl<N: Copy> SkbQueue<N> {
    /// An empty queue.
    pub(crate) const fn new() -> Self {
        Self {
            head: ptr::null_mut(),
            tail: ptr::null_mut(),
            len: 0,
            truesize: 0,
            _note: PhantomData,
        }
    }

    /// Packets in the queue.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory that the packets take, in bytes.
    pub(crate) fn truesize(&self) -> u32 {
        self.truesize
    }

    /// Adds a packet from the output hook at the end.
    pub(crate) fn push(&mut self, skb: SkBuff, state: &HookState, note: N) {
        self.truesize = self.truesize.saturating_add(skb.truesize());
        self.len += 1;
        let skb = skb.into_raw();
        // SAFETY: The buffer is ours; nobody else uses its list pointers, and the output path
        // neither keeps its part of the control block nor reads it across the hook. The device
        // carries no reference, so it is not kept.
        // INVARIANT: The list goes on to the new buffer.
        unsafe {
            control_block(skb).write(ControlBlock {
                okfn: state.okfn(),
                note,
            });
            bindings::rxe_cc_skb_detach(skb);
            if self.tail.is_null() {
                self.head = skb;
            } else {
                bindings::rxe_cc_skb_set_next(self.tail, skb);
            }
        }
        self.tail = skb;
    }

    /// The note of the first packet.
    pub(crate) fn front(&self) -> Option<N> {
        // SAFETY: By the invariant a head that is not null is a buffer with a control block.
        (!self.head.is_null()).then(|| unsafe { (*control_block::<N>(self.head)).note })
    }

    /// Takes the first packet out.
    pub(crate) fn pop(&mut self) -> Option<(HeldSkb, N)> {
        let skb = self.head;
        if skb.is_null() {
            return None;
        }
        // SAFETY: By the invariant the head is a buffer of ours with a control block.
        // INVARIANT: The list begins with the next one; the reference is the new `SkBuff`'s.
        unsafe {
            self.head = bindings::rxe_cc_skb_next(skb);
            if self.head.is_null() {
                self.tail = ptr::null_mut();
            }
            bindings::rxe_cc_skb_set_next(skb, ptr::null_mut());
            let block: ControlBlock<N> = control_block(skb).read();
            let skb = SkBuff::from_raw(ptr::NonNull::new_unchecked(skb));
            self.len -= 1;
            self.truesize = self.truesize.saturating_sub(skb.truesize());
            Some((HeldSkb(skb, block.okfn), block.note))
        }
    }

    /// Takes the first packet that `at` says and all behind it out.
    pub(crate) fn split_at(&mut self, mut at: impl FnMut(&N) -> bool) -> Self {
        let mut kept = Self::new();
        let mut skb = self.head;
        // SAFETY: By the invariant: a walk over buffers with control blocks, to the end. Each list
        // gets the buffers that its counts say.
        // INVARIANT: The list is cut in two before `skb`.
        unsafe {
            while !skb.is_null() && !at(&(*control_block::<N>(skb)).note) {
                kept.len += 1;
                kept.truesize = kept
                    .truesize
                    .saturating_add(bindings::rxe_cc_skb_truesize(skb));
                if kept.head.is_null() {
                    kept.head = skb;
                }
                kept.tail = skb;
                skb = bindings::rxe_cc_skb_next(skb);
            }
            if !kept.tail.is_null() {
                bindings::rxe_cc_skb_set_next(kept.tail, ptr::null_mut());
            }
        }
        let rest = Self {
            head: skb,
            tail: if skb.is_null() {
                ptr::null_mut()
            } else {
                self.tail
            },
            len: self.len - kept.len,
            truesize: self.truesize.saturating_sub(kept.truesize),
            _note: PhantomData,
        };
        mem::forget(mem::replace(self, kept));
        rest
    }
}

impl<N: Copy> Drop for SkbQueue<N> {
    fn drop(&mut self) {
        while let Some((skb, _)) = self.pop() {
            skb.discard();
        }
    }
}

#[kernel::prelude::kunit_tests(rxe_cc_skb_queue)]
mod tests {
    use super::*;
    use crate::linux::kunit::{at_hook, packet};
    use kernel::prelude::*;

    /// A queue of packets that are numbered in their bytes and in their notes.
    fn numbered(count: u8) -> Result<SkbQueue<u64>> {
        let mut queue = SkbQueue::new();
        for number in 0..count {
            let skb = packet(&[number; 100], 100)?;
            at_hook(|state| queue.push(skb, state, u64::from(number) << 40));
        }
        Ok(queue)
    }

    /// The numbers, in the order in which the packets come out; `None` where note and
    /// packet do not belong together.
    fn empty(mut queue: SkbQueue<u64>) -> Option<KVec<u8>> {
        let mut numbers = KVec::new();
        while let Some((HeldSkb(skb, _), note)) = queue.pop() {
            let [number] = skb.read::<1>(99)?;
            if note != u64::from(number) << 40 {
                return None;
            }
            numbers.push(number, GFP_KERNEL).ok()?;
        }
        (queue.len() == 0 && queue.truesize() == 0).then_some(numbers)
    }

    #[test]
    fn first_in_first_out_each_with_its_note() -> Result {
        let queue = numbered(50)?;
        assert_eq!(queue.len(), 50);
        assert_eq!(queue.front(), Some(0));
        assert!(empty(queue).is_some_and(|out| out.iter().copied().eq(0..50)));
        Ok(())
    }

    #[test]
    fn a_queue_that_was_emptied_fills_again() -> Result {
        let mut queue = numbered(1)?;
        assert!(queue.pop().is_some());
        assert!(queue.pop().is_none());
        assert!(queue.is_empty());
        let skb = packet(&[7; 100], 0)?;
        at_hook(|state| queue.push(skb, state, 7 << 40));
        assert!(empty(queue).is_some_and(|out| out.iter().copied().eq(7..8)));
        Ok(())
    }

    #[test]
    fn a_split_leaves_all_packets_in_order_and_counted() -> Result {
        for at in [0, 1, 5, 9, 10] {
            let mut front = numbered(10)?;
            let all = front.truesize();
            let back = front.split_at(|note| *note >= at << 40);
            assert_eq!(front.len() + back.len(), 10);
            assert_eq!(front.len(), at as u32);
            assert_eq!(front.truesize() + back.truesize(), all);
            // The end of what is left takes new packets.
            let skb = packet(&[99; 100], 100)?;
            at_hook(|state| front.push(skb, state, 99 << 40));
            let at = at as u8;
            let left = Iterator::chain(0..at, [99]);
            assert!(empty(front).is_some_and(|out| out.iter().copied().eq(left)));
            assert!(empty(back).is_some_and(|out| out.iter().copied().eq(at..10)));
        }
        Ok(())
    }
}
