//! The server's threads where there is no epoll: one for each connection.
//!
//! In: a listener. Out: replies written at their due times. Never: used for measurements on Linux; a thread for each stream does
//! not carry thousands of them.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::connection::{Connection, Moment, Shared};
use super::log::Entry;

/// Longest wait before the stop flag is looked at again.
const STEP: Duration = Duration::from_millis(20);
/// A client that takes no byte for this long is given up.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Threads at work. Dropping it ends and joins them.
#[derive(Debug)]
pub(super) struct Crew {
    stop: Arc<AtomicBool>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

impl Crew {
    /// Starts the thread that accepts; the number of threads follows the connections, so `_count` and the plan's cores are not
    /// used.
    pub(super) fn start(
        shared: &Arc<Shared>,
        listener: TcpListener,
        _count: usize,
        log: Option<&File>,
    ) -> std::io::Result<Crew> {
        let stop = Arc::new(AtomicBool::new(false));
        let address = listener.local_addr()?;
        let (shared, flag) = (Arc::clone(shared), Arc::clone(&stop));
        let log = log.map(File::try_clone).transpose()?;
        let acceptor = std::thread::Builder::new()
            .name("mock-accept".to_owned())
            .spawn(move || accept(&listener, &shared, &flag, log.as_ref()))?;
        Ok(Crew {
            stop,
            address,
            acceptor: Some(acceptor),
        })
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The acceptor waits for a connection; this one lets it see the flag.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the origin of the server's times"
)]
fn accept(listener: &TcpListener, shared: &Shared, stop: &AtomicBool, log: Option<&File>) {
    let origin = Instant::now();
    std::thread::scope(|scope| {
        for socket in listener.incoming() {
            if stop.load(Ordering::Acquire) {
                return;
            }
            let Ok(socket) = socket else { continue };
            let number = shared.tally.connections.fetch_add(1, Ordering::Relaxed) + 1;
            scope.spawn(move || {
                let server = Server {
                    shared,
                    stop,
                    log,
                    origin,
                };
                // An error here is the client's end.
                let _ = server.serve(&socket, number);
            });
        }
    });
}

/// What a connection's thread sees.
struct Server<'a> {
    shared: &'a Shared,
    stop: &'a AtomicBool,
    log: Option<&'a File>,
    origin: Instant,
}

impl Server<'_> {
    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn serve(&self, mut socket: &TcpStream, number: u64) -> std::io::Result<()> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(STEP))?;
        socket.set_write_timeout(Some(WRITE_LIMIT))?;
        let mut connection = Connection::new(number);
        let mut bytes = vec![0; 64 * 1024];
        while !self.stop.load(Ordering::Acquire) && !connection.is_finished() {
            if let Some(due) = connection.due() {
                self.speak(&mut connection, socket, due)?;
                continue;
            }
            match socket.read(&mut bytes) {
                Ok(0) => connection.end_input(),
                Ok(count) => {
                    connection.receive(&bytes[..count], Moment::at(self.now()), self.shared);
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error),
            }
            flush(&mut connection, socket)?;
        }
        Ok(())
    }

    /// Waits for the event due, a step at most, and writes it.
    #[expect(clippy::disallowed_methods, reason = "this is the server's pacing")]
    fn speak(
        &self,
        connection: &mut Connection,
        socket: &TcpStream,
        due: u64,
    ) -> std::io::Result<()> {
        let wait = Duration::from_nanos(due.saturating_sub(self.now()));
        std::thread::sleep(wait.min(STEP));
        let Some(mark) = connection.speak(self.now()) else {
            return Ok(());
        };
        let before = self.now();
        flush(connection, socket)?;
        if let Some(mut log) = self.log {
            let after = self.now();
            let mut line = Vec::new();
            let entry = Entry {
                mark,
                before,
                after,
            };
            entry.line(&mut line);
            log.write_all(&line)?;
        }
        connection.settle(self.now(), self.shared);
        flush(connection, socket)
    }
}

fn flush(connection: &mut Connection, mut socket: &TcpStream) -> std::io::Result<()> {
    socket.write_all(&connection.out)?;
    connection.out.clear();
    Ok(())
}
