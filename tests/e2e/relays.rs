//! What may stand between the program and a server: a socket of the file system, a proxy.
//!
//! In: the server's address. Out: the same bytes, over another way, and how often it was taken. Never: reads what passes, but for the head
//! of a CONNECT.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// A socket of the file system that leads to a server.
pub struct UnixRelay {
    folder: tempfile::TempDir,
}

impl UnixRelay {
    pub fn start(to: SocketAddr) -> UnixRelay {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("server")).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(near), Ok(far)) = (stream, TcpStream::connect(to)) else {
                    return;
                };
                join(near, far);
            }
        });
        UnixRelay { folder }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("server")
    }
}

/// A proxy that knows nothing but CONNECT.
pub struct Proxy {
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Leads every tunnel to `to`, whatever name is asked for, after `status`; any but 200 leads nowhere.
    pub fn start(to: SocketAddr, status: &str) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::default());
        let (status, log) = (status.to_owned(), Arc::clone(&heads));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(near) = stream else { return };
                let (status, log) = (status.clone(), Arc::clone(&log));
                std::thread::spawn(move || serve(near, to, &status, &log));
            }
        });
        Proxy { address, heads }
    }

    /// Heads of all CONNECTs so far.
    pub fn heads(&self) -> MutexGuard<'_, Vec<String>> {
        self.heads.lock().unwrap()
    }
}

fn serve(near: TcpStream, to: SocketAddr, status: &str, log: &Mutex<Vec<String>>) {
    let mut reader = BufReader::with_capacity(1, near.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    log.lock().unwrap().push(head);
    if status == "silent" {
        // Until the client goes away.
        let _ = reader.read(&mut [0]);
        return;
    }
    // In two pieces, so that a client that reads but once has only half of it.
    let (first, rest) = (
        "HTTP/1.1 ",
        format!("{status} Whatever\r\nVia: 1.1 test\r\n\r\n"),
    );
    (&near).write_all(first.as_bytes()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2));
    (&near).write_all(rest.as_bytes()).unwrap();
    if status == "200"
        && let Ok(far) = TcpStream::connect(to)
    {
        join(near, far);
    }
}

/// Both ends of a connection.
trait Ends: Read + Write + Send + Sized + 'static {
    fn twin(&self) -> Self;
    fn end(&self);
}

impl Ends for TcpStream {
    fn twin(&self) -> Self {
        self.set_nodelay(true).unwrap();
        self.try_clone().unwrap()
    }
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Ends for UnixStream {
    fn twin(&self) -> Self {
        self.try_clone().unwrap()
    }
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

fn join(one: impl Ends, other: impl Ends) {
    let (back, forth) = (one.twin(), other.twin());
    std::thread::spawn(move || copy(one, forth));
    std::thread::spawn(move || copy(other, back));
}

fn copy(mut from: impl Ends, mut into: impl Ends) {
    let _ = std::io::copy(&mut from, &mut into);
    into.end();
}
