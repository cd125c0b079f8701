// SPDX-License-Identifier: GPL-2.0

//! The two netfilter entry points: find the RoCE packets of rxe devices, let most of
//! them pass after one look, and hand the others to the NP, the RP or the sender's side.
//!
//! Anything that is not UDP to port 4791 on a net device with an rxe device
//! passes untouched and uncounted.

use crate::{
    counters::Counter,
    device::{self, DeviceEntry},
    ect,
    linux::{
        crc32::KernelCrc32,
        netdevice::NetDeviceRef,
        netfilter::{Family, HookState, NetfilterHooks, Verdict},
        skbuff::SkBuff,
    },
    np, qp,
    roce::{
        icrc::Icrc,
        opcode,
        packet::{Addr, Bth, Ecn, BTH_LEN, ICRC_LEN, IPV4_LEN, IPV6_LEN, QP1, UDP_LEN, UDP_PORT},
    },
    rp,
    tables::Tables,
};
use kernel::sync::ArcBorrow;

/// UDP, in the IP header.
const IPPROTO_UDP: u8 = 17;
/// Offset and the more-fragments flag, in the IPv4 header.
const FRAGMENT: u16 = 0x3fff;

/// The bytes of a UDP header and a BTH.
const ROCE_LEN: usize = UDP_LEN + BTH_LEN;

/// What the first bytes of a packet say.
enum Glance<'a> {
    /// A packet to UDP port 4791: its TOS byte and its BTH.
    Roce(u8, &'a [u8; BTH_LEN]),
    /// Something else.
    Other,
    /// Options, extension headers, or too few bytes in one piece: [`Packet::parse`] tells.
    Unclear,
}

/// A look at the headers of nearly all packets, which lie in one piece and are of fixed
/// lengths; so the hooks are done with most packets at little cost.
#[inline(always)]
fn glance(skb: &SkBuff, family: Family) -> Glance<'_> {
    let (tos, roce): (u8, Option<&[u8; ROCE_LEN]>) = match family {
        Family::V4 => {
            let Some(head) = skb.linear().first_chunk::<{ IPV4_LEN + ROCE_LEN }>() else {
                return Glance::Unclear;
            };
            if head[9] != IPPROTO_UDP {
                return Glance::Other;
            }
            let [high, low] = FRAGMENT.to_be_bytes();
            if head[0] != 0x45 || head[6] & high != 0 || head[7] & low != 0 {
                return Glance::Unclear;
            }
            (head[1], head.last_chunk())
        }
        Family::V6 => {
            let Some(head) = skb.linear().first_chunk::<{ IPV6_LEN + ROCE_LEN }>() else {
                return Glance::Unclear;
            };
            if head[6] != IPPROTO_UDP {
                return Glance::Unclear;
            }
            (head[0] << 4 | head[1] >> 4, head.last_chunk())
        }
    };
    match roce {
        Some(roce) if [roce[2], roce[3]] != UDP_PORT.to_be_bytes() => Glance::Other,
        Some(roce) => roce
            .last_chunk()
            .map_or(Glance::Unclear, |bth| Glance::Roce(tos, bth)),
        None => Glance::Unclear,
    }
}

/// A packet to UDP port 4791.
pub(crate) struct Packet<'a> {
    skb: &'a SkBuff,
    family: Family,
    /// Where the UDP header begins.
    udp_at: u32,
    /// The length of the UDP header and of what follows, as the header says.
    udp_len: u16,
    /// Differentiated services and ECN.
    pub(crate) tos: u8,
}

impl<'a> Packet<'a> {
    /// `None`: something else, or no whole UDP header, or a fragment. IP has seen to it
    /// that its header is in one piece.
    #[inline(always)]
    fn parse(skb: &'a SkBuff, family: Family) -> Option<Self> {
        let (udp_at, tos) = match family {
            Family::V4 => {
                let ip: &[u8; IPV4_LEN] = skb.linear().first_chunk()?;
                let fragment = u16::from_be_bytes([ip[6], ip[7]]) & FRAGMENT != 0;
                if ip[9] != IPPROTO_UDP || fragment {
                    return None;
                }
                (u32::from(ip[0] & 0xf) * 4, ip[1])
            }
            Family::V6 => {
                let ip: &[u8; IPV6_LEN] = skb.linear().first_chunk()?;
                let udp_at = if ip[6] == IPPROTO_UDP {
                    IPV6_LEN as u32
                } else {
                    skb.ipv6_header(IPPROTO_UDP)?
                };
                (udp_at, ip[0] << 4 | ip[1] >> 4)
            }
        };
        let udp: [u8; UDP_LEN] = skb.read(udp_at)?;
        (u16::from_be_bytes([udp[2], udp[3]]) == UDP_PORT).then_some(Self {
            skb,
            family,
            udp_at,
            udp_len: u16::from_be_bytes([udp[4], udp[5]]),
            tos,
        })
    }

    /// The sender's address.
    pub(crate) fn source(&self) -> Addr {
        self.addr(12, 8)
    }

    /// The destination's address.
    pub(crate) fn dest(&self) -> Addr {
        self.addr(16, 24)
    }

    /// The address at this place of an IPv4 or IPv6 header, which is whole.
    fn addr(&self, v4_at: u32, v6_at: u32) -> Addr {
        match self.family {
            Family::V4 => Addr::V4(self.skb.read(v4_at).unwrap_or_default()),
            Family::V6 => Addr::V6(self.skb.read(v6_at).unwrap_or_default()),
        }
    }

    /// The ECN field.
    pub(crate) fn ecn(&self) -> Ecn {
        Ecn::from_tos(self.tos)
    }

    /// The DSCP.
    pub(crate) fn dscp(&self) -> u8 {
        self.tos >> 2
    }

    /// The priority (`skb->priority`).
    pub(crate) fn priority(&self) -> u32 {
        self.skb.priority()
    }

    /// Bytes from the BTH to the end of the ICRC, as the UDP header says; `None`
    /// when the packet is shorter than that or has no room for a BTH.
    pub(crate) fn transport_len(&self) -> Option<u32> {
        let udp_len = u32::from(self.udp_len);
        if udp_len < (UDP_LEN + BTH_LEN) as u32
            || self.udp_at.checked_add(udp_len)? > self.skb.len()
        {
            return None;
        }
        Some(udp_len - UDP_LEN as u32)
    }

    /// Reads `N` bytes at `offset` from the BTH.
    pub(crate) fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let at = self.udp_at.checked_add((UDP_LEN + offset) as u32)?;
        self.skb.read(at)
    }

    /// The BTH; `None` when the packet ends before.
    #[inline(always)]
    pub(crate) fn bth(&self) -> Option<Bth> {
        Some(Bth::parse(&self.read(0)?))
    }

    /// Whether the ICRC is right. It never is with IP options or extension headers,
    /// which RoCEv2 has not.
    pub(crate) fn icrc_matches(&self) -> bool {
        self.computed_icrc()
            .is_some_and(|(computed, sent)| computed == sent)
    }

    fn computed_icrc(&self) -> Option<([u8; ICRC_LEN], [u8; ICRC_LEN])> {
        let bth = self.read::<BTH_LEN>(0)?;
        let udp = self.skb.read(self.udp_at)?;
        let mut icrc: Icrc<KernelCrc32> = match self.family {
            Family::V4 if self.udp_at == IPV4_LEN as u32 => {
                Icrc::start_v4(&self.skb.read(0)?, &udp, &bth)
            }
            Family::V6 if self.udp_at == IPV6_LEN as u32 => {
                Icrc::start_v6(&self.skb.read(0)?, &udp, &bth)
            }
            _ => return None,
        };
        let body = self
            .transport_len()?
            .checked_sub((BTH_LEN + ICRC_LEN) as u32)?;
        let body_at = self.udp_at + (UDP_LEN + BTH_LEN) as u32;
        self.skb
            .for_each_piece(body_at, body, |piece| icrc.update(piece))?;
        Some((icrc.finish(), self.skb.read(body_at + body)?))
    }
}

/// A received RoCE packet of an rxe device.
pub(crate) struct Received<'a> {
    /// All devices, QPs and flows.
    pub(crate) tables: &'a Tables,
    /// The device.
    pub(crate) device: ArcBorrow<'a, DeviceEntry>,
    /// The net device by which it came: the device's own, or a VLAN device on it.
    pub(crate) in_dev: &'a NetDeviceRef,
    /// Its headers up to UDP.
    pub(crate) packet: &'a Packet<'a>,
}

/// A RoCE packet that an rxe device sends, to a QP of its own kind: not QP0 or QP1.
pub(crate) struct Sending<'a> {
    /// Its headers up to UDP.
    pub(crate) packet: Packet<'a>,
    /// Its BTH.
    pub(crate) bth: Bth,
    /// What its opcode means.
    pub(crate) opcode: &'static opcode::Info,
}

impl<'a> Sending<'a> {
    #[inline(always)]
    fn parse(packet: Packet<'a>) -> Option<Self> {
        let bth = packet.bth()?;
        let opcode = opcode::info(bth.opcode)?;
        (bth.dest_qp > QP1).then_some(Self {
            packet,
            bth,
            opcode,
        })
    }
}

impl Tables {
    /// Whether nothing is to be done about a received packet.
    #[inline(always)]
    fn is_usual(&self, tos: u8, bth: &[u8; BTH_LEN], state: &HookState) -> bool {
        Ecn::from_tos(tos) != Ecn::Ce
            && bth[0] != opcode::CNP
            && state
                .in_dev()
                .is_some_and(|dev| self.seen.has(dev, Bth::parse(bth).dest_qp))
    }

    /// A received packet that one look did not settle.
    #[inline(never)]
    fn received(&self, skb: SkBuff, state: &HookState) -> Verdict {
        if self.uses_up(&skb, state) {
            Verdict::Stolen
        } else {
            Verdict::Accept(skb)
        }
    }

    /// Does what a received packet is for; whether it is used up by that.
    fn uses_up(&self, skb: &SkBuff, state: &HookState) -> bool {
        let Some(packet) = Packet::parse(skb, state.family()) else {
            return false;
        };
        let Some(in_dev) = state.in_dev() else {
            return false;
        };
        let Some(device) = device::find(self, in_dev, state) else {
            return false;
        };
        let received = Received {
            tables: self,
            device,
            in_dev,
            packet: &packet,
        };
        let bth = packet.bth();
        if packet.ecn() == Ecn::Ce {
            np::marked(&received, bth.as_ref());
        }
        match bth {
            Some(bth) if bth.opcode == opcode::CNP => {
                rp::cnp_received(&received, &bth);
                true
            }
            Some(bth) => {
                qp::touch(self, device, in_dev, bth.dest_qp);
                false
            }
            // rxe would drop it, too, but a CNP is never its business.
            None if packet.read(0) == Some([opcode::CNP]) => {
                device.count(Counter::RpCnpMalformed);
                true
            }
            None => false,
        }
    }

    /// What a packet to be sent needs by its first bytes.
    #[inline(always)]
    fn need(&self, tos: u8, bth: &[u8; BTH_LEN], state: &HookState) -> Need {
        let no_flows = self.rp_flows.is_empty();
        if no_flows && Ecn::from_tos(tos) == Ecn::Ect0 {
            return Need::Nothing;
        }
        let Some(opcode) = opcode::info(bth[0]) else {
            return Need::Look;
        };
        let settled = ect::is_settled(opcode.kind, tos);
        if no_flows && settled {
            return Need::Nothing;
        }
        let device = state
            .out_dev()
            .and_then(|dev| device::find_own(self, dev, state));
        match device {
            Some(device) if !device.rp.has_flows() && Bth::parse(bth).dest_qp > QP1 => {
                if settled {
                    Need::Nothing
                } else if ect::is_rewriting(&device) {
                    Need::Ect0(Ecn::Ect0.in_tos(tos))
                } else {
                    Need::Look
                }
            }
            _ => Need::Look,
        }
    }

    /// A packet to be sent that one look did not settle.
    #[inline(never)]
    fn sent(&self, mut skb: SkBuff, state: &HookState) -> Verdict {
        let family = state.family();
        let seen = Packet::parse(&skb, family).and_then(|packet| {
            let device = device::find(self, state.out_dev()?, state)?;
            let sending = Sending::parse(packet)?;
            Some((
                ect::to_do(&device, sending.opcode.kind, sending.packet.tos),
                rp::leaving(&device, &sending),
            ))
        });
        let Some((tos, leaving)) = seen else {
            return Verdict::Accept(skb);
        };
        if let Some(tos) = tos {
            ect::set_tos(&mut skb, family, tos);
        }
        match leaving {
            Some(leaving) => rp::send(self, leaving, skb, state),
            None => Verdict::Accept(skb),
        }
    }
}

/// What a packet to be sent needs.
enum Need {
    /// Nothing: it goes on.
    Nothing,
    /// This TOS byte, and nothing else.
    Ect0(u8),
    /// Another look.
    Look,
}

impl NetfilterHooks for Tables {
    #[inline(always)]
    fn local_in(&self, skb: SkBuff, state: &HookState) -> Verdict {
        match glance(&skb, state.family()) {
            Glance::Other => Verdict::Accept(skb),
            Glance::Roce(tos, bth) if self.is_usual(tos, bth, state) => Verdict::Accept(skb),
            _ => self.received(skb, state),
        }
    }

    #[inline(always)]
    fn local_out(&self, mut skb: SkBuff, state: &HookState) -> Verdict {
        let family = state.family();
        let need = match glance(&skb, family) {
            Glance::Other => Need::Nothing,
            Glance::Roce(tos, bth) => self.need(tos, bth, state),
            Glance::Unclear => Need::Look,
        };
        let settled = match need {
            Need::Nothing => true,
            Need::Ect0(tos) => ect::set_own_tos(&mut skb, family, tos),
            Need::Look => false,
        };
        if settled {
            Verdict::Accept(skb)
        } else {
            self.sent(skb, state)
        }
    }
}
