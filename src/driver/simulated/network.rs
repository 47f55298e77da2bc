//! Connections of a simulation, and what their servers do.
//!
//! In: what the engine sends, and the time. Out: bytes and ends for the engine, in order, torn as the faults want.
//! Never: touches an engine.

use std::collections::VecDeque;

use crate::clock::{Nanos, Tick};
use crate::driver::{CloseReason, ConnId};

use super::SeenRequest;
use super::answer::{Answer, Delimiter, Ending};
use super::faults::strikes;
use super::peer::{HeadAndBody, Peer};
use super::world::{Event, World};

/// One connection, both ends.
pub(super) struct Link {
    pub(super) engine: usize,
    pub(super) conn: ConnId,
    pub(super) peer: Peer,
    /// The engine closed it, or it never came to be.
    pub(super) closed: bool,
    /// The engine closed it.
    pub(super) closed_by_engine: bool,
    /// The peer's host has reset it.
    broken: bool,
    /// The peer knows that.
    gone: bool,
    pub(super) sending: bool,
    /// It is not yet known whether it will be open.
    pub(super) opening: bool,
    /// All reads take at most three bytes.
    pub(super) bytewise: bool,
    /// Came to the engine's side and was not read.
    pub(super) unread: Vec<u8>,
    /// Lengths of its segments, and when each came.
    pub(super) segments: VecDeque<(usize, Tick)>,
    /// How the peer's side ended; read after `unread`.
    pub(super) ended: Option<CloseReason>,
    /// A read is coming.
    pub(super) reading: bool,
    /// Nothing overtakes: when the newest bytes come, there and here.
    last_there: Tick,
    last_here: Tick,
}

impl Link {
    pub(super) fn new(engine: usize, conn: ConnId, peer: Peer, bytewise: bool) -> Link {
        Link {
            engine,
            conn,
            peer,
            closed: false,
            closed_by_engine: false,
            broken: false,
            gone: false,
            sending: false,
            opening: true,
            bytewise,
            unread: Vec::new(),
            segments: VecDeque::new(),
            ended: None,
            reading: false,
            last_there: Tick(0),
            last_here: Tick(0),
        }
    }

    /// Bytes came to the engine's side.
    pub(super) fn arrive(&mut self, bytes: &[u8], now: Tick) {
        self.unread.extend_from_slice(bytes);
        self.segments.push_back((bytes.len(), now));
    }

    /// Takes the first `count` unread bytes, and when the newest of them came.
    pub(super) fn take(&mut self, count: usize) -> (Vec<u8>, Tick) {
        let rest = self.unread.split_off(count);
        let bytes = std::mem::replace(&mut self.unread, rest);
        let (mut left, mut newest) = (count, Tick(0));
        while left > 0
            && let Some((length, at)) = self.segments.front_mut()
        {
            newest = *at;
            let used = left.min(*length);
            left -= used;
            *length -= used;
            if *length == 0 {
                self.segments.pop_front();
            }
        }
        (bytes, newest)
    }

    /// What was not read is lost.
    pub(super) fn lose_unread(&mut self) {
        self.unread.clear();
        self.segments.clear();
    }
}

impl World {
    /// Bytes set out to the peer.
    pub(super) fn send_to_peer(&mut self, link: usize, bytes: Vec<u8>) {
        let at = self.travel();
        let at = at.max(self.links[link].last_there);
        self.links[link].last_there = at;
        self.schedule(at, Event::AtPeer { link, bytes });
    }

    /// The engine's close sets out to the peer.
    pub(super) fn close_to_peer(&mut self, link: usize) {
        let at = self.travel().max(self.links[link].last_there);
        self.schedule(at, Event::GoneAtPeer { link });
    }

    /// Bytes set out to the engine.
    fn send_to_engine(&mut self, link: usize, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let at = self.travel().max(self.links[link].last_here);
        self.links[link].last_here = at;
        self.schedule(at, Event::Arrive { link, bytes });
    }

    /// The end sets out to the engine.
    fn end_to_engine(&mut self, link: usize, reason: CloseReason) {
        self.links[link].peer.ended = true;
        self.set_answering(link, false);
        let at = self.travel().max(self.links[link].last_here);
        self.links[link].last_here = at;
        self.schedule(at, Event::ArriveEnd { link, reason });
    }

    /// The peer closes in order.
    fn close_by_peer(&mut self, link: usize) {
        if !(self.links[link].peer.speaks_tls() && strikes!(self, no_close_notify)) {
            let peer = &mut self.links[link].peer;
            let (bytes, after) = (peer.farewell(), std::mem::take(&mut peer.after_end));
            self.send_to_engine(link, bytes);
            self.send_to_engine(link, after);
        }
        self.links[link].peer.deaf = strikes!(self, half_close);
        self.end_to_engine(link, CloseReason::Eof);
    }

    /// The connection breaks, whatever goes on.
    pub(super) fn break_link(&mut self, link: usize) {
        let state = &self.links[link];
        if !state.gone && !state.closed && !state.broken {
            self.links[link].broken = true;
            self.links[link].peer.script.clear();
            self.end_to_engine(link, CloseReason::Reset);
        }
    }

    fn travel(&mut self) -> Tick {
        let mut at = self.now.plus(self.latency.0);
        if strikes!(self, slow) {
            at = at.plus(self.chance.below(3_000_000));
        }
        at
    }

    /// A connection was accepted.
    pub(super) fn accepted(&mut self, link: usize) {
        if strikes!(self, early_close) {
            let reason = [CloseReason::Eof, CloseReason::Reset][self.chance.index(2)];
            self.end_to_engine(link, reason);
        } else if strikes!(self, reset_any) {
            let at = self.now.plus(self.chance.below(40_000_000));
            self.schedule(at, Event::Break { link });
        }
    }

    pub(super) fn gone_at_peer(&mut self, link: usize) {
        self.set_answering(link, false);
        let state = &mut self.links[link];
        state.gone = true;
        state.peer.script.clear();
    }

    pub(super) fn at_peer(&mut self, link: usize, bytes: &[u8]) {
        let peer = &mut self.links[link].peer;
        if peer.ended && peer.deaf {
            return;
        }
        if peer.ended {
            // A closed socket answers with a reset.
            return self.end_to_engine(link, CloseReason::Reset);
        }
        if peer.proxy.is_some() {
            return self.at_proxy(link, bytes);
        }
        if !peer.receive(bytes) {
            let alert = peer.outgoing();
            self.send_to_engine(link, alert);
            return self.end_to_engine(link, CloseReason::Eof);
        }
        let handshake = peer.outgoing();
        let begins = peer.served == 0 && !peer.has_bytes() && !handshake.is_empty();
        if begins && strikes!(self, mute) {
            self.links[link].peer.mute = true;
        }
        let peer = &mut self.links[link].peer;
        if peer.mute {
            return;
        }
        let raced = peer.served > 0 && peer.has_bytes() && !peer.answering;
        self.send_to_engine(link, handshake);
        if raced && strikes!(self, close_on_request) {
            let reason = [CloseReason::Eof, CloseReason::Reset][self.chance.index(2)];
            return self.end_to_engine(link, reason);
        }
        self.take_requests(link);
    }

    /// Bytes reach what stands before the peer.
    fn at_proxy(&mut self, link: usize, bytes: &[u8]) {
        let proxy = &mut self.links[link].peer.proxy;
        match proxy.as_mut().map_or(Ok(None), |proxy| proxy.feed(bytes)) {
            Ok(None) => {}
            Ok(Some((answer, opens))) => {
                *proxy = None;
                if strikes!(self, mute) {
                    self.links[link].peer.mute = true;
                    return;
                }
                self.send_to_engine(link, answer);
                if !opens {
                    self.end_to_engine(link, CloseReason::Eof);
                }
            }
            Err(breach) => self.breaches.push(breach),
        }
    }

    /// Answers what has come, one after the other.
    fn take_requests(&mut self, link: usize) {
        let peer = &mut self.links[link].peer;
        if peer.answering || peer.ended {
            return;
        }
        if let Some(request) = peer.take_request() {
            return self.answer(link, request, false);
        }
        let has_head = peer.head().is_some();
        if has_head
            && strikes!(self, early_answer)
            && let Some(request) = self.links[link].peer.take_early()
        {
            self.answer(link, request, true);
        }
    }

    fn answer(&mut self, link: usize, (head, body): HeadAndBody, early: bool) {
        let state = &mut self.links[link];
        let mut seen = SeenRequest {
            engine: state.engine,
            connection: link,
            earlier: state.peer.served,
            at: self.now,
            head,
            body,
            answer: None,
        };
        state.peer.served += 1;
        self.set_answering(link, true);
        let mut answer = (self.server)(&seen, &mut self.chance);
        self.spoil(&mut answer);
        if early {
            answer.early = true;
            answer.keep_alive = false;
        }
        let peer = &mut self.links[link].peer;
        peer.script = answer.render().into();
        peer.ending = answer.ending;
        peer.closes = answer.closes();
        peer.after_end.clone_from(&answer.after_end);
        seen.answer = Some(answer);
        self.requests.push(seen);
        self.next_piece(link);
    }

    /// At most one thing is wrong with an answer.
    fn spoil(&mut self, answer: &mut Answer) {
        let length = answer.wire_length();
        let until_close = matches!(answer.delimiter, Delimiter::Close | Delimiter::OldClose);
        if strikes!(self, drip) {
            answer.drip = Some(Nanos(1 + self.chance.below(20_000)));
        }
        if strikes!(self, late_end) {
            answer.end_delay = Nanos(self.chance.below(3_000_000_000));
        }
        if strikes!(self, mute) {
            answer.ending = Ending::Stall(0);
        } else if strikes!(self, stall) {
            answer.ending = Ending::Stall(self.chance.index(length));
        } else if strikes!(self, reset) {
            answer.ending = Ending::Reset(self.chance.index(length) * self.chance.index(2));
        } else if self.cuts(until_close) {
            answer.ending = Ending::Close(self.chance.index(length));
        } else if strikes!(self, garbage) {
            answer.garbage_head = true;
        } else if answer.delimiter == Delimiter::Chunked && strikes!(self, bad_chunk) {
            answer.bad_chunk = answer
                .pieces
                .first()
                .is_some_and(|(_, piece)| !piece.is_empty());
        } else if !until_close && strikes!(self, surplus) {
            answer.surplus = b"HTTP/1.1 408 Too Late\r\n\r\n".to_vec();
        } else if strikes!(self, open_body) {
            answer.ending = Ending::Open;
        }
    }

    /// An answer ends early in order, which HTTP shows or, where only the end of the connection ends it, does not.
    fn cuts(&mut self, until_close: bool) -> bool {
        match until_close {
            true => strikes!(self, cut_close),
            false => strikes!(self, truncate),
        }
    }

    /// Lays down when the next piece of the answer, or its end, comes.
    fn next_piece(&mut self, link: usize) {
        let gap = self.links[link]
            .peer
            .script
            .front()
            .map_or(Nanos(0), |(gap, _)| *gap);
        self.schedule(self.now.plus(gap.0), Event::Emit { link });
    }

    /// The next piece goes out, or the answer is over.
    pub(super) fn emit(&mut self, link: usize) {
        let state = &mut self.links[link];
        if state.gone || state.peer.ended {
            return;
        }
        if let Some((_, piece)) = state.peer.script.pop_front() {
            let bytes = state.peer.say(&piece);
            self.send_to_engine(link, bytes);
            if !self.links[link].peer.script.is_empty() {
                return self.next_piece(link);
            }
        }
        match self.links[link].peer.ending {
            Ending::Whole if self.links[link].peer.closes => self.close_by_peer(link),
            Ending::Whole => {
                self.set_answering(link, false);
                if strikes!(self, idle_close) {
                    let at = self.now.plus(self.chance.below(20_000_000));
                    let served = self.links[link].peer.served;
                    self.schedule(at, Event::IdleClose { link, served });
                }
                self.take_requests(link);
            }
            Ending::Notify => {
                let bytes = self.links[link].peer.farewell();
                self.send_to_engine(link, bytes);
            }
            Ending::Open | Ending::Stall(_) => {}
            Ending::Reset(_) => self.end_to_engine(link, CloseReason::Reset),
            Ending::Close(_) => self.close_by_peer(link),
        }
    }

    /// The peer closes a connection that has served `served` requests and waits for another.
    pub(super) fn idle_close(&mut self, link: usize, served: u32) {
        let peer = &self.links[link].peer;
        if !peer.answering && !peer.ended && peer.served == served {
            self.close_by_peer(link);
        }
    }

    fn set_answering(&mut self, link: usize, answering: bool) {
        let before = std::mem::replace(&mut self.links[link].peer.answering, answering);
        match (before, answering) {
            (false, true) => self.at_once += 1,
            (true, false) => self.at_once -= 1,
            _ => {}
        }
        self.most_at_once = self.most_at_once.max(self.at_once);
    }
}
