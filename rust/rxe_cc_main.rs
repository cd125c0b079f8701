// SPDX-License-Identifier: GPL-2.0

//! DCQCN for soft-RoCE.

use kernel::prelude::*;

pub mod dcqcn;
mod linux;
pub mod roce;

module! {
    type: RxeCc,
    name: "rxe_cc",
    authors: ["rxe_cc developers"],
    description: "DCQCN congestion control for soft-RoCE (rdma_rxe)",
    license: "GPL",
}

struct RxeCc;

impl kernel::Module for RxeCc {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(RxeCc)
    }
}
