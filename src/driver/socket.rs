//! How sockets to servers are made, the same for both real drivers.
//!
//! In: what the user wants of sockets, an address. Out: a socket ready to connect, and where to. Never: waits, or connects.
#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "IP_BIND_ADDRESS_NO_PORT has no safe wrapper")
)]

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// What the user wants of sockets; the default asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// All connections go to this socket of the file system, whatever address is asked for.
    pub unix_path: Option<PathBuf>,
    /// Connections come from these addresses, in turn among those of the family asked for; the ports are 0, and the interface of a link-local one
    /// is its scope. Empty: the system chooses.
    pub local_addresses: Vec<SocketAddr>,
    /// They are bound to this network interface.
    pub interface: Option<String>,
    /// Small segments wait for acknowledgements (no `TCP_NODELAY`).
    pub nagle: bool,
    /// What arrives is acknowledged at once.
    pub quick_ack: bool,
    /// `SO_RCVBUF`.
    pub receive_buffer_bytes: Option<usize>,
    /// `SO_SNDBUF`.
    pub send_buffer_bytes: Option<usize>,
}

/// What the kernel gives where a size of a buffer was asked for. It doubles what is asked, for its own bookkeeping, and has a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenBuffers {
    /// As `SO_RCVBUF` reads.
    pub receive_bytes: Option<usize>,
    /// As `SO_SNDBUF` reads.
    pub send_bytes: Option<usize>,
}

/// A wish that this machine does not grant; names the flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RefusedOption(String);

impl SocketOptions {
    /// Makes a socket for each wish, to see that it can be had; says what the kernel made of the sizes. `addresses` are those of the
    /// servers.
    ///
    /// # Errors
    ///
    /// The first wish that is refused.
    pub fn try_out(&self, addresses: &[SocketAddr]) -> Result<GivenBuffers, RefusedOption> {
        if let Some(path) = &self.unix_path {
            let shown = path.display();
            let refused = |why: &str| Err(RefusedOption(format!("--unix-socket {shown}: {why}")));
            match std::fs::metadata(path) {
                Err(error) => return refused(&format!("{error}; start the server first")),
                Ok(found) if !is_socket(&found) => {
                    return refused("this is no socket; give the path that the server listens on");
                }
                Ok(_) => {}
            }
        }
        for &local in &self.local_addresses {
            let shown = shown(&local);
            let one = SocketOptions {
                local_addresses: vec![local],
                interface: None,
                ..self.clone()
            };
            Sockets::new(&Arc::new(one)).open_from(local, 0).map_err(|error| {
                RefusedOption(format!(
                    "--local-address {shown}: {error}; give an address that this machine has (`ip address` lists them)"
                ))
            })?;
            // Without this an address of another family would never be used, in silence.
            let used = addresses.iter().any(|a| a.is_ipv4() == local.is_ipv4());
            if !used && !addresses.is_empty() {
                return Err(RefusedOption(format!(
                    "--local-address {shown}: no server's address is of its IP version; leave it out"
                )));
            }
        }
        let place = addresses.first().copied();
        let place = place.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        let (socket, _) = Sockets::new(&Arc::new(self.clone()))
            .open_from(place, 0)
            .map_err(|error| self.blame(&error))?;
        let given = |asked: Option<usize>, given: io::Result<usize>| asked.and(given.ok());
        Ok(GivenBuffers {
            receive_bytes: given(self.receive_buffer_bytes, socket.recv_buffer_size()),
            send_bytes: given(self.send_buffer_bytes, socket.send_buffer_size()),
        })
    }

    /// The flag behind an error of a socket whose addresses are good.
    fn blame(&self, error: &io::Error) -> RefusedOption {
        RefusedOption(match &self.interface {
            Some(name) => format!(
                "--interface {name}: {error}; give one of this machine (`ip link` lists them), and the right to bind to it (CAP_NET_RAW) where the system asks for that"
            ),
            None => format!("a socket cannot be made: {error}"),
        })
    }

    /// The addresses of `all` that can be reached from the local addresses.
    #[must_use]
    pub fn reachable(&self, all: &[SocketAddr]) -> Vec<SocketAddr> {
        let same = |a: &SocketAddr| {
            self.local_addresses
                .iter()
                .any(|l| l.is_ipv4() == a.is_ipv4())
        };
        let free = self.local_addresses.is_empty();
        all.iter().copied().filter(|a| free || same(a)).collect()
    }
}

/// A local address without its port.
fn shown(local: &SocketAddr) -> String {
    match local {
        SocketAddr::V6(v6) if v6.scope_id() > 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        _ => local.ip().to_string(),
    }
}

#[cfg(unix)]
fn is_socket(found: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    found.file_type().is_socket()
}

#[cfg(not(unix))]
fn is_socket(_: &std::fs::Metadata) -> bool {
    false
}

/// A local address has no port left, or is gone: another may be better off.
pub(super) fn is_out_of_ports(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
}

/// Local addresses that a connection is still to be tried from.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tries {
    nth: usize,
    left: usize,
}

impl Tries {
    /// The latest failed for want of a port, and another local address is untried.
    pub(super) fn go_on(&self, error: &io::Error) -> bool {
        self.are_left() && is_out_of_ports(error)
    }

    /// Another local address is untried.
    pub(super) fn are_left(&self) -> bool {
        self.left > 0
    }
}

/// Makes the sockets of one worker.
#[derive(Debug)]
pub(super) struct Sockets {
    options: Arc<SocketOptions>,
    /// Which local address is next.
    turn: usize,
}

impl Sockets {
    pub(super) fn new(options: &Arc<SocketOptions>) -> Sockets {
        Sockets {
            options: Arc::clone(options),
            turn: 0,
        }
    }

    /// They are sockets of the file system.
    pub(super) fn is_local(&self) -> bool {
        self.options.unix_path.is_some()
    }

    /// A new connection to `address` will be tried from these local addresses. Connections take turns in which is the first.
    pub(super) fn tries(&mut self, address: SocketAddr) -> Tries {
        let count = self.fitting(address).count();
        let nth = self.turn;
        if count > 0 {
            self.turn = self.turn.wrapping_add(1);
        }
        Tries {
            nth,
            left: count.max(1),
        }
    }

    /// Local addresses of the family of `address`; none for a socket of the file system.
    fn fitting(&self, address: SocketAddr) -> impl Iterator<Item = SocketAddr> {
        let local = match &self.options.unix_path {
            Some(_) => &[][..],
            None => &self.options.local_addresses,
        };
        let same = move |local: &SocketAddr| local.is_ipv4() == address.is_ipv4();
        local.iter().copied().filter(same)
    }

    /// A socket towards `address`, bound where that is wished, and what it is to connect to. One that cannot be bound for want of ports
    /// is made from the next local address.
    pub(super) fn open(
        &self,
        address: SocketAddr,
        tries: &mut Tries,
    ) -> io::Result<(Socket, SockAddr)> {
        loop {
            let outcome = self.open_from(address, tries.nth);
            tries.nth = tries.nth.wrapping_add(1);
            tries.left = tries.left.saturating_sub(1);
            match outcome {
                Err(error) if tries.go_on(&error) => {}
                outcome => return outcome,
            }
        }
    }

    /// The same from the `nth` local address, counted round and round.
    fn open_from(&self, address: SocketAddr, nth: usize) -> io::Result<(Socket, SockAddr)> {
        let options = &self.options;
        if let Some(path) = &options.unix_path {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            self.size(&socket)?;
            return Ok((socket, SockAddr::unix(path)?));
        }
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_tcp_nodelay(!options.nagle)?;
        // Before the connection is there: the window's scale is agreed on with its first segment.
        self.size(&socket)?;
        if let Some(interface) = &options.interface {
            bind_to_interface(&socket, interface)?;
        }
        let count = self.fitting(address).count();
        if let Some(local) = self.fitting(address).nth(nth % count.max(1)) {
            choose_port_late(&socket);
            socket.bind(&local.into())?;
        }
        self.acknowledge_quickly(&socket);
        Ok((socket, address.into()))
    }

    /// The kernel gives the wish up with each segment that is sent, so it is said again after each request.
    pub(super) fn acknowledge_quickly(&self, socket: &Socket) {
        #[cfg(target_os = "linux")]
        if self.options.quick_ack {
            // A connection that has just ended needs none.
            let _ = socket.set_tcp_quickack(true);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = socket;
    }

    fn size(&self, socket: &Socket) -> io::Result<()> {
        if let Some(bytes) = self.options.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.options.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn bind_to_interface(socket: &Socket, name: &str) -> io::Result<()> {
    socket.bind_device(Some(name.as_bytes()))
}

#[cfg(not(target_os = "linux"))]
fn bind_to_interface(_: &Socket, _: &str) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// The port is chosen at the connect, when the peer is known, so that one port serves connections to several peers; else each bound
/// address has some 28,000 connections in all. Where the kernel has no such option, it stays at that.
#[cfg(target_os = "linux")]
fn choose_port_late(socket: &Socket) {
    use std::os::fd::AsRawFd;
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).unwrap_or(0);
    // SAFETY: the option's value is an int, which outlives the call, and its length is given.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            length,
        )
    };
}

#[cfg(not(target_os = "linux"))]
fn choose_port_late(_: &Socket) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn opened(options: SocketOptions, address: &str, count: usize) -> Vec<Socket> {
        let mut sockets = Sockets::new(&Arc::new(options));
        let address = address.parse().expect("an address");
        (0..count)
            .map(|_| {
                let mut tries = sockets.tries(address);
                sockets.open(address, &mut tries).expect("a socket").0
            })
            .collect()
    }

    /// Says so where the machine has no IPv6.
    fn has_ipv6() -> bool {
        let has = std::net::TcpListener::bind("[::1]:0").is_ok();
        if !has {
            eprintln!("not tested: this machine has no ::1");
        }
        has
    }

    #[test]
    fn sockets_are_what_was_asked_for() {
        let plain = &opened(SocketOptions::default(), "127.0.0.1:1", 1)[0];
        assert!(plain.tcp_nodelay().unwrap());
        assert!(
            plain
                .local_addr()
                .unwrap()
                .as_socket()
                .unwrap()
                .ip()
                .is_unspecified()
        );
        let options = SocketOptions {
            nagle: true,
            quick_ack: true,
            interface: Some("lo".to_owned()),
            receive_buffer_bytes: Some(4_096),
            send_buffer_bytes: Some(8_192),
            ..SocketOptions::default()
        };
        let given = options.try_out(&[]).unwrap();
        let socket = &opened(options, "127.0.0.1:1", 1)[0];
        assert!(!socket.tcp_nodelay().unwrap());
        assert_eq!(socket.device().unwrap().as_deref(), Some(&b"lo"[..]));
        // The kernel doubles what is asked for.
        assert_eq!(given.receive_bytes, Some(8_192));
        assert_eq!(given.send_bytes, Some(16_384));
        assert_eq!(socket.recv_buffer_size().unwrap(), 8_192);
    }

    #[test]
    fn local_addresses_take_turns_within_a_family() {
        if !has_ipv6() {
            return;
        }
        let locals = ["127.0.0.2:0", "[::1]:0", "127.0.0.3:0"];
        let options = SocketOptions {
            local_addresses: locals.iter().map(|text| text.parse().unwrap()).collect(),
            ..SocketOptions::default()
        };
        let ends = |address: &str| -> Vec<SocketAddr> {
            let sockets = opened(options.clone(), address, 3);
            let ends = sockets.iter().map(|socket| socket.local_addr().unwrap());
            ends.map(|end| end.as_socket().unwrap()).collect()
        };
        // Port 0: it is chosen when the peer is known.
        let right = ["127.0.0.2:0", "127.0.0.3:0", "127.0.0.2:0"];
        assert_eq!(ends("127.0.0.1:1"), right.map(|text| text.parse().unwrap()));
        assert_eq!(
            ends("[::1]:1"),
            ["[::1]:0"; 3].map(|text| text.parse().unwrap())
        );
        let both: Vec<SocketAddr> = ["1.1.1.1:1", "[::1]:1"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        assert_eq!(options.reachable(&both), both);
        let one = SocketOptions {
            local_addresses: vec!["[::1]:0".parse().unwrap()],
            ..SocketOptions::default()
        };
        assert_eq!(one.reachable(&both), both[1..]);
        let refused = one.try_out(&both[..1]).unwrap_err().to_string();
        assert!(
            refused.starts_with("--local-address ::1: no server's"),
            "{refused}"
        );
    }

    #[test]
    fn each_local_address_is_tried_once_whatever_others_take_meanwhile() {
        let locals = ["127.0.0.2", "127.0.0.3", "127.0.0.4", "::1"];
        let local = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 0);
        let options = SocketOptions {
            local_addresses: locals.iter().map(|ip| local(ip)).collect(),
            ..SocketOptions::default()
        };
        let mut sockets = Sockets::new(&Arc::new(options));
        let to = "127.0.0.1:1".parse().unwrap();
        let gone = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let mut all = [sockets.tries(to), sockets.tries(to)];
        let mut from = [Vec::new(), Vec::new()];
        for _ in 0..3 {
            for (tries, from) in all.iter_mut().zip(&mut from) {
                assert!(from.is_empty() || tries.go_on(&gone));
                let (socket, _) = sockets.open(to, tries).unwrap();
                let end = socket.local_addr().unwrap().as_socket().unwrap();
                from.push(end.ip().to_string());
            }
        }
        assert_eq!(from[0], locals[..3]);
        assert_eq!(from[1], ["127.0.0.3", "127.0.0.4", "127.0.0.2"]);
        assert!(!all[0].go_on(&gone));
        assert!(
            !sockets
                .tries(to)
                .go_on(&io::ErrorKind::ConnectionRefused.into())
        );
        assert_eq!(Sockets::new(&Arc::default()).tries(to).left, 1);
    }

    #[test]
    fn a_local_address_that_is_gone_is_passed_over() {
        let options = SocketOptions {
            local_addresses: vec![
                "192.0.2.1:0".parse().unwrap(),
                "127.0.0.2:0".parse().unwrap(),
            ],
            ..SocketOptions::default()
        };
        for socket in opened(options, "127.0.0.1:1", 3) {
            let end = socket.local_addr().unwrap().as_socket().unwrap();
            assert_eq!(end.ip().to_string(), "127.0.0.2");
        }
    }

    #[test]
    fn what_the_machine_does_not_grant_is_named() {
        let of = |change: fn(&mut SocketOptions)| {
            let mut options = SocketOptions::default();
            change(&mut options);
            options.try_out(&[]).unwrap_err().to_string()
        };
        let text = of(|o| o.local_addresses = vec!["192.0.2.1:0".parse().unwrap()]);
        assert!(text.starts_with("--local-address 192.0.2.1: "), "{text}");
        let text = of(|o| o.interface = Some("none".to_owned()));
        assert!(text.starts_with("--interface none: "), "{text}");
        let text = of(|o| o.unix_path = Some("Cargo.toml".into()));
        assert!(text.contains("no socket"), "{text}");
    }
}
