// SPDX-License-Identifier: GPL-2.0

//! The packets that a flow holds: its two directions, each strictly first in,
//! first out.
//!
//! Requests are one direction, READ responses and the ACKs behind them the other.
//! Data (requests, READ responses) wait for the departure clock that both share;
//! an ACK is free, but not allowed to overtake a response.
//!
//! A transport that goes back repeats what is still held here. Then the held
//! copies from there on are taken out ([`Held::rewind`]), and the repetition
//! takes their place: on the wire it is what the transport meant.

use crate::{
    linux::{
        netfilter::HookState,
        skb_queue::{HeldSkb, SkbQueue},
        skbuff::SkBuff,
    },
    roce::packet::psn_after,
};

/// The direction of a packet inside a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// What the requester sends.
    Request,
    /// What the responder sends.
    Response,
}

/// What the pacer has to know of a held packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    /// When it was held.
    pub(super) since_ns: u64,
    /// Its Ethernet frame without FCS, in bytes; 0: free of charge.
    pub(super) wire_bytes: u32,
    /// Its PSN.
    pub(super) psn: u32,
}

impl Note {
    /// A packet held at `since_ns`.
    pub(super) fn new(since_ns: u64, wire_bytes: u32, psn: u32) -> Self {
        Self {
            since_ns,
            wire_bytes,
            psn,
        }
    }

    fn is_data(&self) -> bool {
        self.wire_bytes != 0
    }
}

/// One direction.
struct Line {
    packets: SkbQueue<Note>,
    /// The PSN of the last data packet in it.
    last_psn: u32,
    /// Data packets in it.
    data: u32,
}

impl Line {
    const fn new() -> Self {
        Self {
            packets: SkbQueue::new(),
            last_psn: 0,
            data: 0,
        }
    }
}

/// What a flow holds.
pub(super) struct Held {
    requests: Line,
    responses: Line,
}

impl Held {
    /// Nothing.
    pub(super) const fn new() -> Self {
        Self {
            requests: Line::new(),
            responses: Line::new(),
        }
    }

    fn line(&self, direction: Direction) -> &Line {
        match direction {
            Direction::Request => &self.requests,
            Direction::Response => &self.responses,
        }
    }

    fn line_mut(&mut self, direction: Direction) -> &mut Line {
        match direction {
            Direction::Request => &mut self.requests,
            Direction::Response => &mut self.responses,
        }
    }

    /// Packets held.
    pub(super) fn len(&self) -> u32 {
        self.requests.packets.len() + self.responses.packets.len()
    }

    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a direction holds nothing.
    pub(super) fn is_idle(&self, direction: Direction) -> bool {
        self.line(direction).packets.is_empty()
    }

    /// The memory that held responses take, in bytes.
    pub(super) fn response_bytes(&self) -> u32 {
        self.responses.packets.truesize()
    }

    /// Adds a packet at the end of a direction.
    pub(super) fn push(
        &mut self,
        direction: Direction,
        skb: SkBuff,
        state: &HookState,
        note: Note,
    ) {
        let line = self.line_mut(direction);
        if note.is_data() {
            line.last_psn = note.psn;
            line.data += 1;
        }
        line.packets.push(skb, state, note);
    }

    /// The transport sends `psn`: takes out what is held from there on, when that is
    /// something that it has sent before.
    pub(super) fn rewind(&mut self, direction: Direction, psn: u32) -> SkbQueue<Note> {
        let line = self.line_mut(direction);
        if line.data == 0 || psn_after(psn, line.last_psn) {
            return SkbQueue::new();
        }
        let (mut data, mut last_psn) = (0, line.last_psn);
        let gone = line.packets.split_at(|note| {
            let back = note.is_data() && !psn_after(psn, note.psn);
            if note.is_data() && !back {
                data += 1;
                last_psn = note.psn;
            }
            back
        });
        line.data = data;
        line.last_psn = last_psn;
        gone
    }

    /// The direction whose first packet is next: a free one at once, else the one
    /// that waits longer.
    pub(super) fn next(&self) -> Option<(Direction, Note)> {
        let request = self.requests.packets.front();
        let response = self.responses.packets.front();
        match (request, response) {
            (Some(request), Some(response))
                if response.is_data() && request.since_ns <= response.since_ns =>
            {
                Some((Direction::Request, request))
            }
            (_, Some(response)) => Some((Direction::Response, response)),
            (Some(request), None) => Some((Direction::Request, request)),
            (None, None) => None,
        }
    }

    /// The first packet of a direction.
    pub(super) fn front(&self, direction: Direction) -> Option<Note> {
        self.line(direction).packets.front()
    }

    /// Takes the first packet of a direction out.
    pub(super) fn pop(&mut self, direction: Direction) -> Option<(HeldSkb, Note)> {
        let line = self.line_mut(direction);
        let (skb, note) = line.packets.pop()?;
        line.data -= u32::from(note.is_data());
        Some((skb, note))
    }

    /// Takes everything out.
    pub(super) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }
}

#[kernel::prelude::kunit_tests(rxe_cc_rp_queue)]
mod tests {
    use super::*;
    use crate::linux::kunit::{at_hook, packet};
    use kernel::prelude::*;
    use Direction::{Request, Response};

    /// Holds a packet; `wire_bytes` 0 makes an ACK.
    fn hold(
        held: &mut Held,
        direction: Direction,
        since_ns: u64,
        wire_bytes: u32,
        psn: u32,
    ) -> Result {
        let skb = packet(&[direction as u8; 64], 64)?;
        at_hook(|state| held.push(direction, skb, state, Note::new(since_ns, wire_bytes, psn)));
        Ok(())
    }

    /// Requests with these PSNs, held one nanosecond apart.
    fn requests(psns: &[u32]) -> Result<Held> {
        let mut held = Held::new();
        for (since_ns, psn) in psns.iter().enumerate() {
            hold(&mut held, Request, since_ns as u64, 1100, *psn)?;
        }
        Ok(held)
    }

    /// The PSNs of a direction in their order; it is idle afterwards.
    fn psns(held: &mut Held, direction: Direction) -> Result<KVec<u32>> {
        let mut psns = KVec::new();
        while let Some((skb, note)) = held.pop(direction) {
            psns.push(note.psn, GFP_KERNEL)?;
            skb.discard();
        }
        Ok(psns)
    }

    #[test]
    fn each_direction_is_first_in_first_out() -> Result {
        let mut held = Held::new();
        for n in 0..20 {
            hold(&mut held, Request, n, 1100, n as u32)?;
            hold(&mut held, Response, n, 1100, 100 + n as u32)?;
        }
        assert_eq!(held.len(), 40);
        assert!(psns(&mut held, Request)?.iter().copied().eq(0..20));
        assert!(held.is_idle(Request));
        assert!(!held.is_idle(Response));
        assert!(held.response_bytes() > 0);
        assert!(psns(&mut held, Response)?.iter().copied().eq(100..120));
        assert!(held.is_empty());
        assert_eq!(held.response_bytes(), 0);
        Ok(())
    }

    #[test]
    fn the_direction_that_waits_longer_is_next() -> Result {
        let mut held = Held::new();
        assert!(held.next().is_none());
        for (since_ns, direction) in [(5, Response), (3, Request), (9, Request), (7, Response)] {
            hold(&mut held, direction, since_ns, 1100, since_ns as u32)?;
        }
        for want in [3, 5, 7, 9] {
            let Some((direction, note)) = held.next() else {
                return Err(ENOENT);
            };
            assert_eq!(note.since_ns, want);
            assert!(held.pop(direction).is_some());
        }
        assert!(held.next().is_none());
        Ok(())
    }

    #[test]
    fn an_ack_goes_before_requests_but_not_before_a_response_ahead_of_it() -> Result {
        let mut held = Held::new();
        hold(&mut held, Request, 1, 1100, 1)?;
        hold(&mut held, Response, 2, 1100, 2)?;
        hold(&mut held, Response, 3, 0, 3)?;
        let order = [(Request, 1), (Response, 2), (Response, 3)];
        for (direction, psn) in order {
            let next = held.next().map(|(direction, note)| (direction, note.psn));
            assert_eq!(next, Some((direction, psn)));
            assert!(held.pop(direction).is_some());
        }
        // With no response ahead it is free at once, however long requests have waited.
        hold(&mut held, Request, 1, 1100, 1)?;
        hold(&mut held, Response, 9, 0, 9)?;
        assert_eq!(held.next().map(|(_, note)| note.psn), Some(9));
        Ok(())
    }

    #[test]
    fn a_repetition_takes_the_place_of_what_is_held_from_there_on() -> Result {
        // Across the end of the PSNs' 24 bits.
        let all = [0xff_fffe, 0xff_ffff, 0, 1, 2];
        for (kept, from) in all.iter().enumerate() {
            let mut held = requests(&all)?;
            let gone = held.rewind(Request, *from);
            assert_eq!(gone.len() as usize, all.len() - kept);
            drop(gone);
            assert_eq!(held.len() as usize, kept);
            // The repetition goes behind what is left, and what follows it is new again.
            hold(&mut held, Request, 99, 1100, *from)?;
            assert!(held.rewind(Request, (*from + 1) & 0xff_ffff).is_empty());
            let left = psns(&mut held, Request)?;
            assert!(left.iter().copied().eq(all.into_iter().take(kept + 1)));
        }
        Ok(())
    }

    #[test]
    fn what_is_new_takes_nothing_out() -> Result {
        let mut held = requests(&[10, 11, 12])?;
        assert!(held.rewind(Request, 13).is_empty());
        assert!(held.rewind(Response, 11).is_empty());
        assert_eq!(held.len(), 3);
        // Older than all that is held: all of it is repeated.
        assert_eq!(held.rewind(Request, 5).len(), 3);
        assert!(held.is_empty());
        assert!(held.rewind(Request, 5).is_empty());
        Ok(())
    }

    #[test]
    fn a_rewind_leaves_acks_and_the_other_direction() -> Result {
        let mut held = Held::new();
        hold(&mut held, Request, 1, 1100, 7)?;
        hold(&mut held, Response, 2, 0, 50)?;
        hold(&mut held, Response, 3, 1100, 51)?;
        hold(&mut held, Response, 4, 1100, 52)?;
        assert_eq!(held.rewind(Response, 51).len(), 2);
        assert_eq!(held.len(), 2);
        assert_eq!(held.front(Request).map(|note| note.psn), Some(7));
        assert_eq!(held.front(Response).map(|note| note.psn), Some(50));
        Ok(())
    }

    #[test]
    fn taking_everything_leaves_nothing() -> Result {
        let mut held = requests(&[1, 2, 3])?;
        let taken = held.take();
        assert!(held.is_empty());
        assert_eq!(taken.len(), 3);
        hold(&mut held, Request, 1, 1100, 4)?;
        assert_eq!(held.len(), 1);
        Ok(())
    }
}
