// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/net/<netdev>/ecn/`: a file for every knob.
//!
//! In comes who has the knobs, out come the directories, and every text written to
//! a file as a call of [`KnobOwner::knob_changed`]. The layout is that of mlx5, with
//! a directory of our own beside it:
//!
//! ```text
//! ecn/roce_np/<knob>   ecn/roce_np/enable/0..7
//! ecn/roce_rp/<knob>   ecn/roce_rp/enable/0..7
//! ecn/rxe_cc/<knob>
//! ```

use crate::{
    dcqcn::params::{Group, PARAMS, PRIORITIES},
    knobs::{KnobId, KnobOwner},
    linux::{
        kobject::{Directory, Files},
        netdevice::NetDeviceRef,
    },
};
use core::fmt::{self, Write};
use kernel::{prelude::*, sync::Arc};

/// The directory `ecn` of a net device; dropping it removes it, and waits for the
/// readers and writers of its files.
pub(crate) struct Ecn {
    _root: Directory,
}

impl Ecn {
    /// Makes the directory with all that is in it. The owner is kept for as long.
    pub(crate) fn create<D: KnobOwner>(dev: &NetDeviceRef, owner: Arc<D>) -> Result<Self> {
        const NO_FILES: [(&str, KnobId); 0] = [];

        let mut root = Directory::under_net_device(dev, "ecn", NO_FILES, owner.clone())?;
        for group in Group::ALL {
            let knobs = PARAMS
                .iter()
                .filter(|param| param.group == group)
                .map(|param| (param.name, KnobId::Param(param.id)));
            let directory = root.add(group.name(), knobs, owner.clone())?;
            if let Some(switch) = switch(group) {
                let switches = (0..PRIORITIES).map(|priority| (priority, switch(priority)));
                directory.add("enable", switches, owner.clone())?;
            }
        }
        Ok(Self { _root: root })
    }
}

/// What a file of a group's `enable` switches, for the groups that have that.
fn switch(group: Group) -> Option<fn(u8) -> KnobId> {
    match group {
        Group::RoceNp => Some(KnobId::NpEnable),
        Group::RoceRp => Some(KnobId::RpEnable),
        Group::RxeCc => None,
    }
}

impl<D: KnobOwner> Files for D {
    type Key = KnobId;

    fn show(&self, &knob: &KnobId, out: &mut dyn Write) -> fmt::Result {
        write!(out, "{}", knob.show(self.knobs().read(knob)))
    }

    fn store(&self, &knob: &KnobId, text: &[u8]) -> Result {
        let value = knob.parse(text)?;
        self.knobs().write(knob, value);
        self.knob_changed(knob);
        Ok(())
    }
}
