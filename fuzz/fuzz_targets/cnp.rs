// SPDX-License-Identifier: GPL-2.0

//! The CNP's writer and the check of those that come: what is written reads as it was
//! meant, over both IP versions; of what comes, the form alone decides.

#![no_main]

use libfuzzer_sys::{
    arbitrary::{Result, Unstructured},
    fuzz_target,
};
use rxe_cc::roce::{
    cnp::{check_cnp, Cnp, WrongIpVersion, CNP_TRANSPORT_LEN, CNP_V4_LEN, CNP_V6_LEN},
    icrc::Table,
    opcode,
    packet::{ipv4_checksum, Addr, Bth, Ecn, View, BTH_LEN, QPN_MASK},
};
use rxe_cc_fuzz::is_masked;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(view) = View::parse(bytes) {
        received(&view.bth, view.transport.len());
        if view.check().is_ok() && view.bth.opcode == opcode::CNP {
            written(&fields_of(&view, bytes), 0, 0);
        }
    }
    let mut u = Unstructured::new(bytes);
    let Ok((bth, len)) = bth(&mut u) else { return };
    received(&bth, len);
    if let Ok((cnp, at, flip)) = cnp(&mut u) {
        written(&cnp, at, flip);
    }
});

fn bth(u: &mut Unstructured<'_>) -> Result<(Bth, usize)> {
    let mut bytes: [u8; BTH_LEN] = u.arbitrary()?;
    if u.arbitrary()? {
        bytes[0] = opcode::CNP;
    }
    Ok((Bth::parse(&bytes), u.int_in_range(0..=70_000)?))
}

fn cnp(u: &mut Unstructured<'_>) -> Result<(Cnp, usize, u8)> {
    let addr = |u: &mut Unstructured<'_>, v6| -> Result<Addr> {
        Ok(if v6 {
            Addr::V6(u.arbitrary()?)
        } else {
            Addr::V4(u.arbitrary()?)
        })
    };
    let v6 = u.arbitrary()?;
    let cnp = Cnp {
        src: addr(u, v6)?,
        dst: addr(u, v6)?,
        dscp: u.int_in_range(0..=63)?,
        ecn: Ecn::from_tos(u.arbitrary()?),
        ttl: u.arbitrary()?,
        ip_id: u.arbitrary()?,
        flow_label: u.int_in_range(0..=0xf_ffff)?,
        udp_sport: u.arbitrary()?,
        pkey: u.arbitrary()?,
        dest_qp: u.int_in_range(0..=QPN_MASK)?,
    };
    Ok((cnp, u.arbitrary::<u16>()?.into(), u.arbitrary()?))
}

/// A CNP that came, as the fields of one to be written.
fn fields_of(view: &View<'_>, bytes: &[u8]) -> Cnp {
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    Cnp {
        src: view.src,
        dst: view.dst,
        dscp: view.dscp(),
        ecn: view.ecn(),
        ttl: view.ttl,
        ip_id: word(4),
        flow_label: u32::from(bytes[1] & 0xf) << 16 | u32::from(word(2)),
        udp_sport: view.udp_sport,
        pkey: view.bth.pkey,
        dest_qp: view.bth.dest_qp,
    }
}

/// Opcode, length and header version decide, and nothing else.
fn received(bth: &Bth, len: usize) {
    let is_cnp = bth.opcode == opcode::CNP && len == CNP_TRANSPORT_LEN && bth.tver == 0;
    assert_eq!(check_cnp(bth, len).is_ok(), is_cnp);
}

/// Writes it, reads it, changes a byte of it.
fn written(cnp: &Cnp, at: usize, flip: u8) {
    let (mut v4, mut v6) = ([0x5a; CNP_V4_LEN], [0x5a; CNP_V6_LEN]);
    let results = (
        cnp.write_v4::<Table>(&mut v4),
        cnp.write_v6::<Table>(&mut v6),
    );
    let packet: &mut [u8] = match cnp.src {
        Addr::V4(_) => {
            assert_eq!(results, (Ok(()), Err(WrongIpVersion)));
            assert!(v6.iter().all(|byte| *byte == 0x5a), "nothing was written");
            let checksum = u16::from_be_bytes([v4[10], v4[11]]);
            assert_eq!(checksum, ipv4_checksum(&v4[..20]));
            &mut v4
        }
        Addr::V6(_) => {
            assert_eq!(results, (Err(WrongIpVersion), Ok(())));
            assert!(v4.iter().all(|byte| *byte == 0x5a), "nothing was written");
            &mut v6
        }
    };

    let view = View::parse(packet).expect("we write what we can read");
    assert_eq!((view.src, view.dst), (cnp.src, cnp.dst));
    assert_eq!((view.tos, view.ttl), (cnp.tos(), cnp.ttl));
    assert_eq!(view.udp_sport, cnp.udp_sport);
    let expected = Bth {
        opcode: opcode::CNP,
        pkey: cnp.pkey,
        becn: true,
        resv8a: 0x40,
        dest_qp: cnp.dest_qp,
        ..Bth::default()
    };
    assert_eq!(view.bth, expected);
    assert_eq!(check_cnp(&view.bth, view.transport.len()), Ok(()));
    assert!(view.icrc_matches::<Table>());
    let again = fields_of(&view, packet);
    match cnp.src {
        Addr::V4(_) => assert_eq!(again.ip_id, cnp.ip_id),
        Addr::V6(_) => assert_eq!(again.flow_label, cnp.flow_label),
    }

    let (src, len) = (view.src, view.transport.len());
    let at = 1 + at % (packet.len() - 1);
    packet[at] ^= flip;
    if let Ok(changed) = View::parse(packet) {
        if changed.transport.len() == len {
            let unseen = flip == 0 || is_masked(src, at);
            assert_eq!(
                changed.icrc_matches::<Table>(),
                unseen,
                "byte {at}, {flip:#x}"
            );
        }
    }
}
