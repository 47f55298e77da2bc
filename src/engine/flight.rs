//! One request under way.
//!
//! In: reads of its response. Out: an exchange with its body, reads and event marks. Never: an allocation on a warm flight, or a
//! look inside an event beyond its framing and `[DONE]`.

use std::mem::offset_of;

use crate::clock::Tick;
use crate::driver::{Sent, Stamp, StampSource, fetch, fetch_front};
use crate::record::{EventMark, Exchange, Outcome, Read};
use crate::wire::{ContentKind, Fault, Limits, Response, SseKind, SseScanner, Step};

use super::ahead::make_room;
use super::session::Session;

/// A request under way, with the parsers of its response. What every read needs stands first.
#[repr(C, align(64))]
pub(super) struct Flight {
    pub(super) exchange: Box<Exchange>,
    scanner: SseScanner,
    /// Which request of this engine it is.
    pub(super) serial: u64,
    /// The most tokens that the reply may have, if that is known.
    pub(super) tokens: Option<u32>,
    /// The body is scanned for events.
    scanning: bool,
    done_seen: bool,
    /// The driver has not yet sent its request whole.
    pub(super) unsent: bool,
    /// It will be cut on purpose.
    pub(super) is_to_be_cancelled: bool,
    /// It holds a prefill slot: no content has come yet.
    pub(super) prefill: bool,
    /// Events of its stream that bring nothing: comments and empty ones.
    keep_alives: usize,
    /// When something of its reply came that the idle limit counts.
    pub(super) heard: Tick,
    /// Its request could not be sent whole.
    pub(super) write_failed: bool,
    /// The read that brought the byte after the last event.
    first_read: u32,
    pub(super) response: Response,
    /// The session it belongs to; `None` only while spare.
    pub(super) session: Option<Session>,
}

/// So many bytes of a flight serve every read.
const FLIGHT_BYTES: usize = offset_of!(Flight, response) + Response::FRONT_BYTES;

/// So many bytes of a read's text are asked for ahead: an event of a token is seldom longer.
const TEXT_BYTES: usize = 256;

/// Where a flight's memory is: addresses, of which nothing is read. They may be those of memory that was given back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Near {
    exchange: usize,
    /// Where the next read, event and byte of the body will be written.
    reads: usize,
    events: usize,
    body: usize,
}

impl Near {
    /// Asks for it.
    #[inline]
    pub(super) fn fetch(self) {
        fetch(self.exchange, Exchange::FRONT_BYTES);
        fetch(self.reads, size_of::<Read>());
        fetch(self.events, size_of::<EventMark>());
        fetch(self.body, TEXT_BYTES);
    }
}

/// When what `stamp` belongs to came, by the `source` that the metrics take.
pub(super) fn arrival(stamp: Stamp, source: StampSource) -> Tick {
    match source {
        StampSource::Kernel => stamp.arrival(),
        StampSource::User => stamp.tick,
    }
}

/// Where a response stands after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It goes on.
    More,
    /// It goes on, and this read brought `[DONE]`.
    DoneSeen,
    /// It came whole.
    Whole,
    /// It is broken.
    Wrong(Fault),
}

impl Flight {
    pub(super) fn new(exchange: Box<Exchange>, limits: Limits) -> Flight {
        Flight {
            exchange,
            scanner: SseScanner::new(limits),
            serial: 0,
            tokens: None,
            scanning: false,
            done_seen: false,
            unsent: false,
            is_to_be_cancelled: false,
            prefill: false,
            keep_alives: 0,
            heard: Tick(0),
            write_failed: false,
            first_read: 0,
            response: Response::new(limits),
            session: None,
        }
    }

    /// Makes it ready for a response from the start, also when the request is sent again.
    pub(super) fn reset(&mut self) {
        self.response.reset();
        self.scanner.reset();
        self.scanning = false;
        self.done_seen = false;
        self.keep_alives = 0;
        self.write_failed = false;
        self.first_read = 0;
    }

    /// The request's bytes were handed to the kernel.
    pub(super) fn request_sent(&mut self, sent: &Sent) {
        let exchange = &mut self.exchange;
        let kept = exchange.link.ahead || exchange.ticks.connect_start == Tick::NEVER;
        if !exchange.link.resent && kept {
            // On a warm connection the request starts with its first byte; a new one starts with its connection.
            exchange.ticks.start = sent.first;
        }
        exchange.ticks.first_byte_sent = sent.first;
        exchange.link.writes += sent.writes;
        if sent.error.is_none() {
            exchange.ticks.last_byte_sent = sent.last;
            exchange.link.sent_whole = true;
        } else {
            self.write_failed = true;
        }
    }

    /// Takes one read of `data` (plaintext), which was `wire_bytes` long on the wire.
    pub(super) fn receive(
        &mut self,
        data: &[u8],
        wire_bytes: usize,
        stamp: Stamp,
        source: StampSource,
    ) -> Progress {
        let exchange = &mut *self.exchange;
        let step = self
            .response
            .feed(data, &mut exchange.head_bytes, &mut exchange.body);
        // Where a stamp was given up, the driver's stands for it, which is later; the next one may then be older than it. And what was
        // left over on the connection came before this request, which it answers all the same, as far as can be told.
        let last = exchange.reads.last();
        let before = last.map_or(exchange.ticks.start, Read::arrival);
        let stamped = stamp.kernel != Tick::NEVER && stamp.kernel >= before;
        let read = Read {
            tick: stamp.tick,
            kernel: stamp.kernel,
            parsed: Tick::NEVER,
            body_end: exchange.body.len() as u64,
            wire_bytes: u32::try_from(wire_bytes).unwrap_or(u32::MAX),
            by_kernel: source == StampSource::Kernel && stamped,
        };
        exchange.reads.push(read);
        if exchange.head.is_none()
            && let Some(head) = self.response.head()
        {
            exchange.head = Some(head);
            exchange.ticks.head_received = read.arrival();
            self.scanning = head.is_success() && head.content == ContentKind::EventStream;
        }
        let before = self.done_seen;
        if self.scanning
            && let Err(fault) = self.scan()
        {
            return Progress::Wrong(fault);
        }
        match step {
            Step::Wrong(fault) => Progress::Wrong(fault),
            Step::Done(used) => self.whole(used < data.len()),
            Step::More if self.done_seen && !before => Progress::DoneSeen,
            Step::More => Progress::More,
        }
    }

    /// Notes for the idle limit that a read came at `tick`, before which there had been `events` events. In a stream only a read
    /// that brings more than keep-alives, and more than framing, is heard, unless `whatever` it brings counts.
    pub(super) fn hear(&mut self, events: usize, tick: Tick, whatever: bool) {
        let exchange = &self.exchange;
        let kept_alive = std::mem::take(&mut self.keep_alives);
        if self.scanning && !whatever && exchange.events.len() == events + kept_alive {
            // At most the LF of a closing CR LF stands behind the last event.
            let end = exchange.events.last().map_or(0, |event| event.end);
            let reads = exchange.reads.as_slice();
            let grew = match reads {
                [.., before, last] => last.body_end > before.body_end,
                _ => true,
            };
            let open = exchange.body.len() as u64 > end + 1;
            if !grew || (kept_alive > 0 && !open) {
                return;
            }
        }
        self.heard = tick;
    }

    /// A read waits to be marked as parsed.
    pub(super) fn is_unmarked(&self) -> bool {
        let last = self.exchange.reads.last();
        last.is_some_and(|read| read.parsed == Tick::NEVER)
    }

    /// Asks for what [`Flight::receive`] works on, the exchange left out.
    #[inline]
    pub(super) fn fetch(&self) {
        fetch_front(self, FLIGHT_BYTES);
    }

    /// Where the exchange is, and where its next read will be written.
    #[inline]
    pub(super) fn near(&self) -> Near {
        let exchange = &*self.exchange;
        Near {
            exchange: std::ptr::from_ref(exchange).addr(),
            reads: exchange.reads.as_ptr_range().end.addr(),
            events: exchange.events.as_ptr_range().end.addr(),
            body: exchange.body.as_ptr_range().end.addr(),
        }
    }

    /// The peer closed its side. `tls_cut`: without saying so inside TLS.
    pub(super) fn end_of_stream(&mut self, tls_cut: bool) -> Outcome {
        match self.response.eof() {
            // Only the end of the connection ends this body, and anybody can forge that below TLS.
            Ok(()) if tls_cut => Outcome::Fault(Fault::Truncated),
            Ok(()) => match self.whole(false) {
                Progress::Wrong(fault) => Outcome::Fault(fault),
                _ => Outcome::Success,
            },
            Err(fault) => Outcome::Fault(fault),
        }
    }

    /// The connection can serve another request.
    pub(super) fn keeps_connection(&self) -> bool {
        self.exchange.link.sent_whole && self.exchange.head.is_some_and(|head| head.keep_alive)
    }

    /// The latest read was neither the first nor, by `[DONE]`, the stream's last.
    pub(super) fn in_stream(&self) -> bool {
        self.exchange.reads.len() > 1 && !self.done_seen
    }

    /// `[DONE]` has come, so that an end without the body's own end is no loss.
    pub(super) fn done_seen(&self) -> bool {
        self.done_seen
    }

    fn whole(&mut self, surplus: bool) -> Progress {
        if self.scanning {
            match self.scanner.finish(&self.exchange.body) {
                Step::Done(event) => self.mark(event.begin, event.end),
                Step::Wrong(fault) => return Progress::Wrong(fault),
                Step::More => {}
            }
        }
        if surplus {
            // The response itself was whole, but what follows answers nothing: this connection is out of step.
            if let Some(head) = &mut self.exchange.head {
                head.keep_alive = false;
            }
        }
        Progress::Whole
    }

    fn scan(&mut self) -> Result<(), Fault> {
        loop {
            match self.scanner.next(&self.exchange.body) {
                Step::Done(event) => {
                    self.done_seen |= event.kind == SseKind::Done;
                    self.keep_alives += usize::from(event.kind == SseKind::KeepAlive);
                    self.mark(event.begin, event.end);
                }
                Step::More => return Ok(()),
                Step::Wrong(fault) => return Err(fault),
            }
        }
    }

    fn mark(&mut self, begin: u64, end: u64) {
        let exchange = &mut *self.exchange;
        if let (true, Some(tokens)) = (exchange.events.is_empty(), self.tokens) {
            make_room(exchange, tokens, end - begin);
        }
        while exchange
            .reads
            .get(self.first_read as usize)
            .is_some_and(|read| read.body_end <= begin)
        {
            self.first_read += 1;
        }
        let read = u32::try_from(exchange.reads.len() - 1).unwrap_or(u32::MAX);
        exchange.events.push(EventMark {
            begin,
            end,
            read,
            first_read: self.first_read.min(read),
        });
    }
}
