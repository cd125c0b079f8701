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
        // SAFETY: Valid by the invariant, so `data_len` is part of `len`; as many bytes as the rest
        // are initialised at `data`, and nobody moves them while the buffer is borrowed.
        unsafe {
            let skb = self.as_ptr();
            slice::from_raw_parts(
                (*skb).data,
                (*skb).len.wrapping_sub((*skb).data_len) as usize,
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

    /// The first `N` bytes from the network header, to be changed where they are; `None` when
    /// they are shared with another buffer, or not in one piece.
    #[inline(always)]
    pub(crate) fn own_head_mut<const N: usize>(&mut self) -> Option<&mut [u8; N]> {
        // SAFETY: Valid by the invariant. Memory that no other buffer shares is the buffer's own.
        unsafe {
            let skb = self.as_ptr();
            if self.linear().len() < N || (*skb).cloned() != 0 {
                return None;
            }
            Some(&mut *(*skb).data.cast::<[u8; N]>())
        }
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

#[kernel::prelude::kunit_tests(rxe_cc_skbuff)]
mod tests {
    use super::*;
    use crate::linux::kunit::{clone, packet, pattern};
    use kernel::prelude::*;

    const LEN: usize = 700;
    /// Packets in one piece, in two, and in pages but for a few bytes.
    const LINEAR: [usize; 4] = [LEN, 300, 20, 0];

    #[test]
    fn a_read_gives_the_bytes_at_its_offset() -> Result {
        let bytes = pattern::<LEN>();
        for linear in LINEAR {
            let skb = packet(&bytes, linear)?;
            for offset in 0..=LEN - 12 {
                assert_eq!(
                    skb.read::<12>(offset as u32).as_ref().map(|read| &read[..]),
                    bytes.get(offset..offset + 12)
                );
            }
        }
        Ok(())
    }

    #[test]
    fn a_read_past_the_end_gives_nothing() -> Result {
        for linear in LINEAR {
            let skb = packet(&pattern::<LEN>(), linear)?;
            for offset in LEN as u32 - 11..LEN as u32 + 20 {
                assert!(skb.read::<12>(offset).is_none());
            }
            for offset in [
                i32::MAX as u32,
                i32::MAX as u32 + 1,
                u32::MAX - 11,
                u32::MAX,
            ] {
                assert!(skb.read::<12>(offset).is_none());
            }
            assert!(skb.read::<0>(LEN as u32).is_some());
        }
        Ok(())
    }

    #[test]
    fn pieces_in_their_order_are_the_packet() -> Result {
        let bytes = pattern::<LEN>();
        for linear in LINEAR {
            let skb = packet(&bytes, linear)?;
            for (offset, len) in [(0, LEN), (0, 0), (1, 256), (299, 2), (19, 600), (LEN, 0)] {
                let mut at = offset;
                let mut alike = true;
                let all = skb.for_each_piece(offset as u32, len as u32, |piece| {
                    alike &= bytes.get(at..at + piece.len()) == Some(piece);
                    at += piece.len();
                });
                assert!(all.is_some());
                assert!(alike);
                assert_eq!(at, offset + len);
            }
        }
        Ok(())
    }

    #[test]
    fn pieces_past_the_end_are_refused() -> Result {
        for linear in LINEAR {
            let skb = packet(&pattern::<LEN>(), linear)?;
            for (offset, len) in [
                (0, LEN as u32 + 1),
                (LEN as u32, 1),
                (LEN as u32 + 1, 0),
                (1, u32::MAX),
                (u32::MAX, 1),
                (i32::MAX as u32, 256),
            ] {
                let mut seen = 0;
                let all = skb.for_each_piece(offset, len, |piece| seen += piece.len());
                // Nothing can be read where nothing is, but a length of 0.
                assert!(all.is_none() || len == 0);
                assert!(seen <= LEN);
            }
        }
        Ok(())
    }

    #[test]
    fn what_is_changed_is_changed_in_this_packet_alone() -> Result {
        let bytes = pattern::<LEN>();
        for linear in LINEAR {
            let mut skb = packet(&bytes, linear)?;
            let other = clone(&skb)?;
            match skb.head_mut::<40>() {
                Some(head) => head[33] ^= 0xff,
                None => return Err(ENOMEM),
            }
            assert_eq!(skb.read::<1>(33), Some([bytes[33] ^ 0xff]));
            assert_eq!(other.read::<1>(33), Some([bytes[33]]));
            assert_eq!(skb.read::<1>(34), Some([bytes[34]]));
            assert_eq!(skb.len(), LEN as u32);
        }
        Ok(())
    }

    #[test]
    fn a_head_is_changed_in_place_only_if_it_is_the_packets_own() -> Result {
        for linear in LINEAR {
            let mut skb = packet(&pattern::<LEN>(), linear)?;
            let own = skb.own_head_mut::<40>().map(|head| head[33] ^= 0xff);
            assert_eq!(own.is_some(), linear >= 40);
            let changed = if own.is_some() { 0xff } else { 0 };
            assert_eq!(skb.read::<1>(33), Some([pattern::<LEN>()[33] ^ changed]));
            let mut other = clone(&skb)?;
            assert!(skb.own_head_mut::<1>().is_none());
            assert!(other.own_head_mut::<1>().is_none());
        }
        Ok(())
    }

    #[test]
    fn a_head_longer_than_the_packet_is_refused() -> Result {
        let mut skb = packet(&pattern::<39>(), 39)?;
        assert!(skb.head_mut::<40>().is_none());
        assert!(skb.head_mut::<39>().is_some());
        Ok(())
    }

    /// An IPv6 header, then extension headers, then UDP.
    fn ipv6(first: u8, extensions: &[u8]) -> Result<SkBuff> {
        let mut bytes = [0; 200];
        bytes[0] = 0x60;
        bytes[4..6].copy_from_slice(&160_u16.to_be_bytes());
        bytes[6] = first;
        bytes[7] = 64;
        for (place, byte) in bytes[40..].iter_mut().zip(extensions) {
            *place = *byte;
        }
        packet(&bytes, 40)
    }

    const HOP_BY_HOP: u8 = 0;
    const UDP: u8 = 17;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;

    #[test]
    fn a_header_is_found_behind_ipv6_extension_headers() -> Result {
        assert_eq!(ipv6(UDP, &[])?.ipv6_header(UDP), Some(40));
        assert_eq!(
            ipv6(HOP_BY_HOP, &[UDP, 0, 1, 4])?.ipv6_header(UDP),
            Some(48)
        );
        // 24 bytes of destination options behind 8 hop by hop.
        let two = [DESTINATION, 0, 1, 4, 0, 0, 0, 0, UDP, 2, 1, 20];
        assert_eq!(ipv6(HOP_BY_HOP, &two)?.ipv6_header(UDP), Some(72));
        Ok(())
    }

    #[test]
    fn a_fragment_and_a_broken_chain_have_no_header() -> Result {
        // The first fragment, a later one, and an atomic one.
        assert_eq!(ipv6(FRAGMENT, &[UDP, 0, 0, 1])?.ipv6_header(UDP), None);
        assert_eq!(ipv6(FRAGMENT, &[UDP, 0, 1, 0])?.ipv6_header(UDP), None);
        assert_eq!(ipv6(FRAGMENT, &[UDP, 0, 0, 0])?.ipv6_header(UDP), None);
        // Options longer than the packet; no next header; another protocol.
        assert_eq!(ipv6(HOP_BY_HOP, &[UDP, 255])?.ipv6_header(UDP), None);
        assert_eq!(ipv6(59, &[])?.ipv6_header(UDP), None);
        assert_eq!(ipv6(6, &[])?.ipv6_header(UDP), None);
        Ok(())
    }
}
