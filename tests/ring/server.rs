//! A small server that plays one part on every connection.
//!
//! In: requests on a loopback socket. Out: the part that was asked for. Never: more of HTTP than a length and a blank line.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};

/// What is done with each request.
#[derive(Clone, Debug)]
pub(crate) enum Play {
    /// Answered with a body of so many bytes; the connection is kept.
    Reply(usize),
    /// Reset after half of the answer.
    Reset,
    /// Closed after half of the answer.
    CloseEarly,
    /// Read in small pieces, checked, answered.
    ReadSlowly,
    /// Read, and never answered.
    Stall,
    /// Not even read.
    NeverRead,
}

/// The bytes that bodies are made of.
pub(crate) fn body(length: usize) -> Vec<u8> {
    (b'a'..=b'w').cycle().take(length).collect()
}

/// Most bytes that the kernel buffers for a socket that sends, by the last number of `tcp_wmem`; 4 MiB where that cannot be read.
pub(crate) fn most_buffered() -> usize {
    let limits = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap_or_default();
    let most = limits.split_whitespace().last();
    most.and_then(|most| most.parse().ok()).unwrap_or(4 << 20)
}

struct Shared {
    play: Play,
    over: AtomicBool,
    requests: AtomicU64,
    wrong_bodies: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A server at work; ends when dropped, after its clients have gone.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(play: Play) -> Server {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        if matches!(play, Play::ReadSlowly | Play::NeverRead) {
            socket.set_recv_buffer_size(16 << 10).unwrap();
        }
        socket
            .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())
            .unwrap();
        socket.listen(1_024).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let shared = Arc::new(Shared {
            play,
            over: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            wrong_bodies: AtomicU64::new(0),
            threads: Mutex::default(),
        });
        let ours = Arc::clone(&shared);
        let accepting = std::thread::spawn(move || {
            while let Ok((socket, _)) = socket.accept() {
                if ours.over.load(Ordering::Acquire) {
                    return;
                }
                let shared = Arc::clone(&ours);
                let thread = std::thread::Builder::new().stack_size(64 << 10);
                // A client that went away in between is its own affair.
                let thread = thread.spawn(move || drop(serve(&shared, socket.into())));
                ours.threads.lock().unwrap().push(thread.unwrap());
            }
        });
        Server {
            address,
            shared,
            accepting: Some(accepting),
        }
    }

    /// Requests read to their end.
    pub(crate) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Acquire)
    }

    /// Requests whose body was not [`body`].
    pub(crate) fn wrong_bodies(&self) -> u64 {
        self.shared.wrong_bodies.load(Ordering::Acquire)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        // Wakes the accepting thread.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.accepting.take() {
            thread.join().unwrap();
        }
        for thread in self.shared.threads.lock().unwrap().drain(..) {
            thread.join().unwrap();
        }
    }
}

fn serve(shared: &Shared, mut socket: TcpStream) -> std::io::Result<()> {
    if matches!(shared.play, Play::NeverRead) {
        // Until the client is gone: an error or the end shows only after its bytes, so they are peeked at.
        while !shared.over.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(5));
        }
        return Ok(());
    }
    let mut read = Vec::new();
    loop {
        let request = read_request(shared, &mut socket, &mut read)?;
        if let Play::ReadSlowly = shared.play {
            let wrong = request != body(request.len());
            shared
                .wrong_bodies
                .fetch_add(u64::from(wrong), Ordering::AcqRel);
        }
        shared.requests.fetch_add(1, Ordering::AcqRel);
        let reply = |length: usize, bytes: &[u8]| {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"
            );
            [head.as_bytes(), bytes].concat()
        };
        match shared.play {
            Play::Reply(length) => socket.write_all(&reply(length, &body(length)))?,
            Play::ReadSlowly => socket.write_all(&reply(2, b"{}"))?,
            Play::Reset | Play::CloseEarly => {
                socket.write_all(&reply(100, &body(50)))?;
                // The client has read what came before the reset.
                std::thread::sleep(Duration::from_millis(20));
                if matches!(shared.play, Play::Reset) {
                    SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
                } else {
                    socket.shutdown(Shutdown::Write)?;
                }
                return Ok(());
            }
            Play::Stall | Play::NeverRead => {}
        }
    }
}

/// The body of the next request; an error when the client is gone.
fn read_request(
    shared: &Shared,
    socket: &mut TcpStream,
    read: &mut Vec<u8>,
) -> std::io::Result<Vec<u8>> {
    let mut piece = vec![0; 64 << 10];
    loop {
        if let Some(head) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&read[..head]).to_ascii_lowercase();
            let length = text
                .split("content-length:")
                .nth(1)
                .and_then(|rest| rest.lines().next()?.trim().parse::<usize>().ok());
            let end = head + 4 + length.unwrap_or(0);
            while read.len() < end {
                if let Play::ReadSlowly = shared.play {
                    std::thread::sleep(Duration::from_micros(200));
                }
                take(socket, &mut piece, read)?;
            }
            let body = read[head + 4..end].to_vec();
            read.drain(..end);
            return Ok(body);
        }
        take(socket, &mut piece, read)?;
    }
}

fn take(socket: &mut TcpStream, piece: &mut [u8], read: &mut Vec<u8>) -> std::io::Result<()> {
    match socket.read(piece)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        length => {
            read.extend_from_slice(&piece[..length]);
            Ok(())
        }
    }
}
