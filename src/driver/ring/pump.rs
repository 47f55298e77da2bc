//! The loop of the ring driver.
//!
//! In: a ring and an engine. Out: the engine, when it has finished, and what the ring went through. Never: parses before all ready
//! completions are stamped, or sleeps past what the engine waits for.
//!
//! A connect or a send enters the kernel at once, so that its stamp lies right before the bytes and not before a whole batch of
//! them; receives are armed and ended with the next entry, whatever it is for.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use socket2::Socket;

use crate::clock::{Clock, KernelClock, Tick};
use crate::driver::socket::{SocketOptions, Sockets};
use crate::driver::waiting::{Lateness, Waiting};
use crate::driver::window::Windows;
use crate::driver::{
    AHEAD_MOST, CloseReason, ConnId, Op, Pause, RingTally, Sent, Stamp, ports, reason_of, stamping,
    wake_on_time,
};
use crate::engine::Engine;

use super::links::{Links, State};
use super::operations::{Kind, Memory};
use super::{Completion, Mode, Ring, Wait};

mod ending;
mod sockets;

/// Spinning workers let the network card's queue be polled this long for each look at a socket.
const BUSY_POLL_MICROS: u32 = 50;

/// With so many completions at hand, or connections closed, what has completed is looked at before more is done: a long list of connects
/// must not keep replies waiting, nor one of closes fill the queue.
const READY_MOST: usize = 256;

/// Runs `engine` to its end on this thread, which must be the one that opened `ring`. Reads carry the kernel's stamp.
pub fn run(
    ring: Ring,
    engine: Engine,
    clock: &Clock,
    waiting: Waiting,
    options: &Arc<SocketOptions>,
) -> io::Result<(Engine, RingTally)> {
    wake_on_time();
    // Without it the run goes on; reads without a stamp are counted.
    let stamping = stamping::begin().ok();
    // Where each read wakes the thread anyway, reads are taken at once.
    let windowed = ring.layout().mode == Mode::Deferred;
    let mut pump = Pump {
        links: Links::default(),
        opener: Sockets::new(options),
        clock: clock.clone(),
        kernel: KernelClock::new(clock),
        stamping,
        ready: Vec::with_capacity(ring.layout().completions as usize),
        spare: Vec::with_capacity(ring.layout().completions as usize),
        failed: Vec::new(),
        rearm: Vec::new(),
        tally: RingTally::default(),
        waiting,
        lateness: Lateness::default(),
        windows: windowed.then(|| Windows::new(clock.rate(), waiting.window, clock.now())),
        engine,
        ring,
    };
    pump.turns()?;
    pump.close_all()?;
    pump.tally.overflows = pump.ring.overflows();
    if let Some(windows) = &pump.windows {
        pump.tally.windows = windows.count();
        pump.tally.window_ns = windows.longest().0;
    }
    pump.tally.steps = pump.kernel.steps();
    pump.tally.mapping_error_ns = pump.kernel.error().0;
    Ok((pump.engine, pump.tally))
}

pub(super) struct Pump {
    pub(super) ring: Ring,
    links: Links,
    opener: Sockets,
    pub(super) engine: Engine,
    pub(super) clock: Clock,
    pub(super) waiting: Waiting,
    pub(super) lateness: Lateness,
    /// How long reads may be left; `None` where that does harm.
    pub(super) windows: Option<Windows>,
    kernel: KernelClock,
    /// Held, never used.
    #[expect(dead_code, reason = "it is there to stay open")]
    stamping: Option<Socket>,
    /// Completions, stamped and not yet handed on.
    ready: Vec<Completion>,
    spare: Vec<Completion>,
    /// Connections that failed before they reached the ring.
    failed: Vec<(ConnId, CloseReason, Tick)>,
    /// Links whose receive has ended in mid-stream.
    rearm: Vec<u32>,
    tally: RingTally,
}

impl Pump {
    fn turns(&mut self) -> io::Result<()> {
        while let Some(pause) = self.carry_out()? {
            self.wait(pause)?;
            self.deliver()?;
        }
        Ok(())
    }

    /// Does what the engine wants; `None` when it has finished, else what it waits for.
    fn carry_out(&mut self) -> io::Result<Option<Pause>> {
        let mut closed = 0;
        loop {
            let now = self.clock.now();
            match self.engine.next(now) {
                Op::Connect { conn, address } => self.connect(conn, address)?,
                Op::Send { conn, bytes } => self.send(conn, bytes)?,
                Op::Close { conn } => {
                    closed += 1;
                    self.close(conn)?;
                }
                Op::Wait {
                    until,
                    send_due,
                    sending,
                } => {
                    let pause = Pause {
                        until,
                        send_due,
                        sending,
                    };
                    return Ok(Some(pause));
                }
                Op::Finished => return Ok(None),
            }
            if self.ready.len().max(closed) >= READY_MOST {
                self.engine.looked(now);
                return Ok(Some(Pause {
                    until: now,
                    send_due: true,
                    sending: true,
                }));
            }
        }
    }

    /// There is something to hand to the engine.
    pub(super) fn has_news(&self) -> bool {
        !self.ready.is_empty() || !self.failed.is_empty()
    }

    /// Enters, then stamps what has completed.
    pub(super) fn enter(&mut self, wait: Wait) -> io::Result<()> {
        self.ring.enter(wait)?;
        self.ring.reap(&self.clock, &mut self.ready);
        if self.ring.lost() > 0 {
            return Err(io::Error::other(
                "the kernel lost completions for want of memory",
            ));
        }
        Ok(())
    }

    fn connect(&mut self, conn: ConnId, address: SocketAddr) -> io::Result<()> {
        let mut tries = self.opener.tries(address);
        let (socket, address) = match self.new_socket(address, &mut tries) {
            Ok(opened) => opened,
            Err(error) => {
                let tick = self.clock.now();
                self.failed.push((conn, reason_of(&error), tick));
                return Ok(());
            }
        };
        let started = self.clock.now();
        let place = self.links.open(conn, socket, started);
        if let Some(link) = self.links.at(place) {
            link.narrowed = ports::narrow(&link.socket);
            link.tries = tries;
        }
        self.begin_connect(place, address)?;
        self.enter(Wait::No)
    }

    fn send(&mut self, conn: ConnId, bytes: Vec<u8>) -> io::Result<()> {
        let first = self.clock.now();
        let sent = Sent {
            first,
            last: first,
            writes: 0,
            error: None,
        };
        let place = self.links.find(conn);
        let Some((place, link)) = place.and_then(|place| Some((place, self.links.at(place)?)))
        else {
            let error = Some(CloseReason::Io);
            self.engine.on_sent(conn, bytes, Sent { error, ..sent });
            return Ok(());
        };
        link.sending = Some((sent, 0));
        link.gaps.request();
        link.operations += 1;
        link.other = Some(self.ring.send(place, &link.socket, bytes, 0)?);
        self.enter(Wait::No)
    }

    /// Ends what goes on on `conn`; the socket is closed after the last completion.
    fn close(&mut self, conn: ConnId) -> io::Result<()> {
        match self.links.find(conn) {
            Some(place) => self.close_place(place),
            None => Ok(()),
        }
    }

    fn close_place(&mut self, place: u32) -> io::Result<()> {
        if self.links.close(place)
            && let Some(link) = self.links.at(place)
        {
            for key in [link.receive.take(), link.other.take()]
                .into_iter()
                .flatten()
            {
                link.operations += 1;
                self.ring.cancel(place, key)?;
            }
        }
        Ok(())
    }

    /// Hands what completed to the engine. Everything in the batch was stamped before this.
    fn deliver(&mut self) -> io::Result<()> {
        let mut batch = std::mem::replace(&mut self.ready, std::mem::take(&mut self.spare));
        // All stamps in the batch were taken between the last look at the wall clock and this one.
        let steady = !batch.is_empty() && self.kernel.is_steady();
        for near in batch.chunks(AHEAD_MOST) {
            self.look_ahead(near);
            for &completion in near {
                self.complete(completion, steady)?;
            }
        }
        batch.clear();
        self.spare = batch;
        for (conn, reason, tick) in std::mem::take(&mut self.failed) {
            self.engine.on_closed(conn, reason, tick);
        }
        self.ring.publish();
        for place in std::mem::take(&mut self.rearm) {
            self.arm(place)?;
        }
        Ok(())
    }

    /// Asks for what the reads of `batch` will need, step by step: what one step is to find was asked for in the one before.
    fn look_ahead(&self, batch: &[Completion]) {
        let (ring, links) = (&self.ring, &self.links);
        for completion in batch {
            ring.fetch(completion);
        }
        let places = batch.iter().filter_map(|c| ring.link_of(c));
        places.clone().for_each(|place| links.fetch(place));
        self.engine
            .look_ahead(places.filter_map(|place| links.conn(place)));
    }

    fn complete(&mut self, completion: Completion, steady: bool) -> io::Result<()> {
        let buffer = completion.buffer.filter(|&id| self.ring.claim(id));
        let Some(operation) = self.ring.operation(&completion) else {
            self.tally.stale += 1;
            if let Some(id) = buffer {
                self.ring.give_back(id);
            }
            return Ok(());
        };
        let place = operation.link;
        match operation.kind {
            Kind::Receive => self.received(place, completion, buffer, steady)?,
            Kind::Connect => self.connected(place, completion, operation.memory)?,
            Kind::Send => self.sent(place, completion, operation.memory)?,
            Kind::Cancel | Kind::Nothing => self.cancelled(place, completion),
        }
        if let Some(id) = buffer {
            self.ring.give_back(id);
        }
        if !completion.more {
            self.links.ended(place);
        }
        Ok(())
    }

    fn received(
        &mut self,
        place: u32,
        completion: Completion,
        buffer: Option<u16>,
        steady: bool,
    ) -> io::Result<()> {
        let Some(link) = self.links.at(place) else {
            return Ok(());
        };
        if link.state != State::Open {
            return Ok(());
        }
        let (conn, tick) = (link.conn, completion.tick);
        if !completion.more {
            link.receive = None;
        }
        if completion.result < 0 {
            match -completion.result {
                libc::ENOBUFS => {
                    self.tally.exhausted += 1;
                    self.rearm.push(place);
                }
                libc::EAGAIN | libc::EINTR | libc::ECANCELED => self.rearm.push(place),
                error => {
                    let reason = reason_of(&io::Error::from_raw_os_error(error));
                    self.engine.on_closed(conn, reason, tick);
                }
            }
            return Ok(());
        }
        let message = buffer.and_then(|id| self.ring.message(id, completion.result));
        match message {
            None => self.engine.on_closed(conn, CloseReason::Io, tick),
            Some(message) if message.bytes.is_empty() => {
                self.engine.on_closed(conn, CloseReason::Eof, tick);
            }
            Some(message) => {
                let kernel = match message.wall_ns {
                    // The stamp cannot lie after the completion; what the mapping is off by must not make it so.
                    Some(wall_ns) if steady => self.kernel.stamp(wall_ns, tick),
                    _ => Tick::NEVER,
                };
                self.tally.reads += 1;
                let unstamped = kernel == Tick::NEVER && !self.opener.is_local();
                self.tally.unstamped += u64::from(unstamped);
                let stamp = Stamp { tick, kernel };
                if let Some(windows) = &mut self.windows {
                    windows.read(&mut link.gaps, stamp.arrival());
                }
                let taken = self.engine.on_received(conn, message.bytes, stamp);
                if taken < message.bytes.len() {
                    self.go_on(conn, buffer, completion.result, stamp, taken)?;
                }
                if !completion.more {
                    self.rearm.push(place);
                }
            }
        }
        Ok(())
    }

    /// Hands over the rest of a read, from its byte `from` on, and looks at what has completed before each part of it.
    fn go_on(
        &mut self,
        conn: ConnId,
        buffer: Option<u16>,
        result: i32,
        stamp: Stamp,
        mut from: usize,
    ) -> io::Result<()> {
        loop {
            // Buffers that are done with are what the kernel may need now.
            self.ring.publish();
            if self.ring.has_something() {
                self.enter(Wait::No)?;
            }
            let message = buffer.and_then(|id| self.ring.message(id, result));
            let Some(rest) = message.and_then(|message| message.bytes.get(from..)) else {
                return Ok(());
            };
            let taken = self.engine.on_received(conn, rest, stamp);
            if taken == rest.len() {
                return Ok(());
            }
            from += taken;
        }
    }

    /// Receives again on a link whose receive has ended; buffers were given back before.
    fn arm(&mut self, place: u32) -> io::Result<()> {
        match self.links.at(place) {
            Some(link) if link.state == State::Open => {
                self.tally.rearms += 1;
                link.operations += 1;
                link.receive = Some(self.ring.receive(place, &link.socket)?);
            }
            _ => {}
        }
        Ok(())
    }

    fn connected(&mut self, place: u32, completion: Completion, memory: Memory) -> io::Result<()> {
        let Some(link) = self.links.at(place) else {
            return Ok(());
        };
        let State::Connecting(started) = link.state else {
            return Ok(());
        };
        let conn = link.conn;
        if let (true, Memory::Address(address)) =
            (completion.result == -libc::EADDRNOTAVAIL, memory)
            && self.connect_again(place, *address)?
        {
            return Ok(());
        }
        if completion.result < 0 {
            let error = io::Error::from_raw_os_error(-completion.result);
            self.links.close(place);
            self.engine
                .on_closed(conn, reason_of(&error), completion.tick);
            return Ok(());
        }
        let Some(link) = self.links.at(place) else {
            return Ok(());
        };
        link.state = State::Open;
        link.other = None;
        link.operations += 1;
        link.receive = Some(self.ring.receive(place, &link.socket)?);
        let address = link.socket.local_addr().ok().and_then(|a| a.as_socket());
        let port = address.map_or(0, |address| address.port());
        self.engine
            .on_connected(conn, port, started, completion.tick);
        Ok(())
    }

    fn sent(&mut self, place: u32, completion: Completion, memory: Memory) -> io::Result<()> {
        let Memory::Bytes(bytes) = memory else {
            return Ok(());
        };
        let Some(link) = self.links.at(place) else {
            return Ok(());
        };
        let Some((mut sent, from)) = link.sending.take() else {
            return Ok(());
        };
        let written = usize::try_from(completion.result).unwrap_or(0);
        let from = from + written;
        link.other = None;
        sent.last = completion.tick;
        sent.writes += u32::from(written > 0);
        let passing = [-libc::EAGAIN, -libc::EINTR].contains(&completion.result);
        let goes_on = link.state == State::Open && from < bytes.len() && (written > 0 || passing);
        if goes_on {
            link.sending = Some((sent, from));
            link.operations += 1;
            link.other = Some(self.ring.send(place, &link.socket, bytes, from)?);
            return Ok(());
        }
        if completion.result < 0 {
            let error = io::Error::from_raw_os_error(-completion.result);
            sent.error = Some(reason_of(&error));
        } else if from < bytes.len() {
            sent.error = Some(CloseReason::Io);
        }
        self.opener.acknowledge_quickly(&link.socket);
        self.engine.on_sent(link.conn, bytes, sent);
        Ok(())
    }

    fn cancelled(&mut self, place: u32, completion: Completion) {
        // What could not be ended (it is just running) ends when the socket is shut down.
        if completion.result < 0
            && let Some(link) = self.links.at(place)
        {
            // An error means that the peer was first.
            let _ = link.socket.shutdown(std::net::Shutdown::Both);
        }
    }
}
