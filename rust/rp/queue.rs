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
        state: &HookState<'_>,
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
