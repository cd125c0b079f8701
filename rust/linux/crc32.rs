// SPDX-License-Identifier: GPL-2.0

//! The kernel's CRC-32.
//!
//! C header: [`include/linux/crc32.h`](srctree/include/linux/crc32.h).

use super::bindings;
use crate::roce::icrc::Crc32;

/// `crc32_le()`, with whatever instructions this processor has for it.
pub(crate) struct KernelCrc32;

impl Crc32 for KernelCrc32 {
    #[inline]
    fn update(crc: u32, data: &[u8]) -> u32 {
        // SAFETY: The slice is readable for its length.
        unsafe { bindings::crc32_le(crc, data.as_ptr().cast(), data.len()) }
    }
}
