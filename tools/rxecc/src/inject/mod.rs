// SPDX-License-Identifier: GPL-2.0

//! `rxecc inject`: packets that no QP sent, to see what a QP's host makes of them.
//!
//! Fields come in ([`packet`]), the ends of an existing QP are found ([`target`]), and
//! frames leave ([`wire`]). What the options mean stands in
//! [`crate::commands::inject`].

pub(crate) mod packet;
pub(crate) mod target;
pub(crate) mod wire;
