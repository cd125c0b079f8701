// SPDX-License-Identifier: GPL-2.0

//! The reader of whole packets: any bytes, as they come from the wire. What it takes
//! lies within them, agrees with itself, and is covered by its ICRC.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rxe_cc::roce::{
    icrc::Table,
    opcode::{self, Service},
    packet::{Bth, View, BTH_LEN, ICRC_LEN, UDP_LEN, UDP_PORT},
};
use rxe_cc_fuzz::{ip_len, is_masked};

fuzz_target!(|bytes: &[u8]| {
    if let Some(bth) = bytes.first_chunk::<BTH_LEN>() {
        assert_eq!(Bth::parse(bth).to_bytes(), *bth, "a BTH is written as read");
    }
    let Ok(view) = View::parse(bytes) else {
        return;
    };
    let transport_at = ip_len(view.src) + UDP_LEN;
    let end = transport_at + view.transport.len();
    assert_eq!(bytes.get(transport_at..end), Some(view.transport));
    assert!(view.transport.len() >= BTH_LEN + ICRC_LEN);
    assert_eq!(view.udp_dport, UDP_PORT);
    assert_eq!(ip_len(view.src), ip_len(view.dst));
    assert_eq!(view.ecn().in_tos(view.dscp() << 2), view.tos);

    structure(&view);
    integrity(&view, bytes, end);
});

/// The verdict about the form, and what is read by it.
fn structure(view: &View<'_>) {
    let info = opcode::info(view.bth.opcode);
    match (view.check(), view.payload()) {
        (Ok(found), Some(payload)) => {
            assert_eq!(Some(found), info);
            assert_eq!(view.bth.tver, 0);
            let pad = if found.payload { view.bth.pad } else { 0 };
            let parts = usize::from(found.header_len) + payload.len() + usize::from(pad) + ICRC_LEN;
            assert_eq!(parts, view.transport.len(), "nothing is left over");
            assert!(found.payload || payload.is_empty());
            assert_eq!(view.deth().is_some(), found.service == Service::Ud);
        }
        (Err(_), None) => {}
        (check, payload) => panic!("{check:?}, but the payload is {payload:?}"),
    }
}

/// One byte changed behind a right ICRC: seen, unless the ICRC leaves it out.
fn integrity(view: &View<'_>, bytes: &[u8], end: usize) {
    let mut packet = bytes.to_vec();
    packet[end - ICRC_LEN..end].copy_from_slice(&view.computed_icrc::<Table>());
    let right = View::parse(&packet).expect("only its ICRC was changed");
    assert!(right.icrc_matches::<Table>());

    // Which one and how: from bytes that mean little else.
    let (at, flip) = match view.icrc() {
        [high, low, _, flip] => (usize::from(high) << 8 | usize::from(low), flip),
    };
    let at = 1 + at % (end - 1);
    packet[at] ^= flip;
    // With another length it is another packet.
    if let Ok(changed) = View::parse(&packet) {
        if changed.transport.len() == view.transport.len() {
            let unseen = flip == 0 || is_masked(view.src, at);
            assert_eq!(
                changed.icrc_matches::<Table>(),
                unseen,
                "byte {at}, {flip:#x}"
            );
        }
    }
}
