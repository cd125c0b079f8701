// SPDX-License-Identifier: GPL-2.0

//! RoCEv2 wire formats.
//!
//! Bytes of a packet come in, fields and verdicts on its form go out; and, for
//! CNPs, fields come in and a whole packet goes out. What a packet means for a
//! flow (is the QP alive, is the sender its peer, is a CNP due) is left to the
//! rooms above. Nothing here allocates, panics or needs a kernel: every byte is
//! taken to be a stranger's.
//!
//! The formats are those of the InfiniBand Architecture Specification, volume 1
//! (transport headers: chapter 9) and its Annex A17 (RoCEv2: UDP encapsulation,
//! ICRC, CNP), carried over IPv4 (RFC 791) and IPv6 (RFC 8200).

pub mod cnp;
pub mod icrc;
pub mod opcode;
pub mod packet;
