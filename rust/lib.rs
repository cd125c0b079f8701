// SPDX-License-Identifier: GPL-2.0

//! The rooms of `rxe_cc.ko` that need no kernel, as a crate for the host.
//!
//! [`roce`] knows the wire formats, [`dcqcn`] the algorithm. The module's crate
//! root (`rxe_cc_main.rs`) names the same files, so tests, tools and fuzzers run
//! the very code that runs in the kernel.

#![no_std]

pub mod dcqcn;
pub mod roce;
