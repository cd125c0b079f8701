// SPDX-License-Identifier: GPL-2.0

//! Socket buffers, as far as a packet filter needs them: bounded reads of what
//! may be paged, a few fields, and the right to drop or keep the buffer.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h).

use super::{bindings, netdevice::NetDeviceRef};
use core::{mem, ptr::NonNull, slice};

/// A socket buffer that is ours.
///
/// # Invariants
///
/// The pointer owns one reference of a valid `struct sk_buff` whose data begin at
/// the network header.
pub(crate) struct SkBuff(NonNull<bindings::sk_buff>);

// SAFETY: A socket buffer may be handled and freed by any thread.
unsafe impl Send for SkBuff {}

impl SkBuff {
    /// Takes over a buffer.
    ///
    /// # Safety
    ///
    /// `ptr` must satisfy the invariant.
    pub(super) unsafe fn from_raw(ptr: NonNull<bindings::sk_buff>) -> Self {
        // INVARIANT: By the caller's promise.
        Self(ptr)
    }

    /// Gives the buffer up to C.
    pub(super) fn into_raw(self) -> *mut bindings::sk_buff {
        let ptr = self.0.as_ptr();
        mem::forget(self);
        ptr
    }

    /// The C pointer.
    pub(super) fn as_ptr(&self) -> *mut bindings::sk_buff {
        self.0.as_ptr()
    }

    /// Bytes from the network header to the end.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        // SAFETY: Valid by the invariant.
        unsafe { (*self.as_ptr()).len }
    }

    /// The part that lies in one piece, from the network header on.
    #[inline]
    pub(crate) fn linear(&self) -> &[u8] {
        // SAFETY: Valid by the invariant; `len - data_len` bytes at `data` are initialised, and
        // nobody moves them while the buffer is borrowed.
        unsafe {
            let skb = self.as_ptr();
            slice::from_raw_parts(
                (*skb).data,
                (*skb).len.saturating_sub((*skb).data_len) as usize,
            )
        }
    }

    /// Copies `N` bytes at `offset` from the network header; `None` past the end.
    #[inline]
    pub(crate) fn read<const N: usize>(&self, offset: u32) -> Option<[u8; N]> {
        let start = offset as usize;
        if let Some(bytes) = self.linear().get(start..start.checked_add(N)?) {
            return bytes.try_into().ok();
        }
        let mut bytes = [0; N];
        self.copy(offset, &mut bytes)?;
        Some(bytes)
    }

    /// Copies the bytes at `offset` into `out`, linear or not; `None` past the end.
    fn copy(&self, offset: u32, out: &mut [u8]) -> Option<()> {
        let (offset, len) = (i32::try_from(offset).ok()?, i32::try_from(out.len()).ok()?);
        // SAFETY: Valid by the invariant; `out` takes `len` bytes; the function checks both against
        // the buffer's length.
        let status =
            unsafe { bindings::skb_copy_bits(self.as_ptr(), offset, out.as_mut_ptr().cast(), len) };
        (status == 0).then_some(())
    }

    /// Hands the `len` bytes at `offset` to `f`, piece by piece; `None` past the end
    /// (`f` may then have seen a part).
    pub(crate) fn for_each_piece(
        &self,
        offset: u32,
        len: u32,
        mut f: impl FnMut(&[u8]),
    ) -> Option<()> {
        let (start, end) = (offset as usize, offset.checked_add(len)? as usize);
        if let Some(bytes) = self.linear().get(start..end) {
            f(bytes);
            return Some(());
        }
        let mut piece = [0; 256];
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let bytes = piece.get_mut(..(end - at).min(256) as usize)?;
            self.copy(at, bytes)?;
            f(bytes);
            at += bytes.len() as u32;
        }
        Some(())
    }

    /// The first `N` bytes from the network header, made private to this buffer so
    /// that they may be changed; `None` without memory, or past the end.
    pub(crate) fn head_mut<const N: usize>(&mut self) -> Option<&mut [u8; N]> {
        // SAFETY: Valid by the invariant. On success the bytes are linear and not shared.
        unsafe {
            let skb = self.as_ptr();
            if (*skb).len < N as u32 || bindings::skb_ensure_writable(skb, N as u32) != 0 {
                return None;
            }
            Some(&mut *(*skb).data.cast::<[u8; N]>())
        }
    }

    /// The memory that the buffer takes, in bytes.
    pub(crate) fn truesize(&self) -> u32 {
        // SAFETY: Valid by the invariant.
        unsafe { bindings::rxe_cc_skb_truesize(self.as_ptr()) }
    }

    /// The length of the Ethernet frame, without FCS, in which a buffer with a route
    /// will leave; 0 without a route.
    pub(crate) fn wire_len(&self) -> u32 {
        match self.route_dev() {
            // SAFETY: Valid by the invariant, with a route.
            Some(_) => unsafe { bindings::rxe_cc_skb_wire_len(self.as_ptr()) },
            None => 0,
        }
    }

    /// Parts the buffer from the socket that sent it.
    pub(crate) fn orphan(&mut self) {
        // SAFETY: Valid by the invariant.
        unsafe { bindings::rxe_cc_skb_orphan(self.as_ptr()) };
    }

    /// Drops the packet, which is lost by that.
    pub(crate) fn discard(self) {
        // SAFETY: The reference is ours by the invariant, and given up here.
        unsafe { bindings::rxe_cc_kfree_skb(self.into_raw()) };
    }

    /// The priority (`skb->priority`).
    pub(crate) fn priority(&self) -> u32 {
        // SAFETY: Valid by the invariant.
        unsafe { bindings::rxe_cc_skb_priority(self.as_ptr()) }
    }

    /// Where the first header of `protocol` begins behind an IPv6 header and its
    /// extension headers, from the network header. `None`: there is none, or the
    /// packet is a fragment.
    pub(crate) fn ipv6_header(&self, protocol: u8) -> Option<u32> {
        let (mut offset, mut fragment, mut flags) = (0, 0, 0);
        // SAFETY: Valid by the invariant; the results are plain integers.
        let found = unsafe {
            bindings::ipv6_find_hdr(
                self.as_ptr(),
                &mut offset,
                i32::from(protocol),
                &mut fragment,
                &mut flags,
            )
        };
        // IP6_FH_F_FRAG: some fragment, be it the first.
        const FRAGMENT: i32 = 1;
        (found == i32::from(protocol) && fragment == 0 && flags & FRAGMENT == 0).then_some(offset)
    }

    /// The device by which the buffer's route leaves, if it has a route.
    pub(crate) fn route_dev(&self) -> Option<&NetDeviceRef> {
        // SAFETY: Valid by the invariant; its route holds a reference on the device.
        unsafe {
            NonNull::new(bindings::rxe_cc_skb_dst_dev(self.as_ptr()))
                .map(|dev| NetDeviceRef::from_raw(dev.as_ptr()))
        }
    }
}

impl Drop for SkBuff {
    fn drop(&mut self) {
        // SAFETY: The reference is ours by the invariant. The buffer was used up, not lost: a
        // drop monitor need not hear of it.
        unsafe { bindings::consume_skb(self.as_ptr()) };
    }
}
