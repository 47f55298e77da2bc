//! Local ports that are taken.
//!
//! In: the kernel's lists of TCP sockets, ways to servers. Out: for each way, how many ports of a range cannot be had. Never: more than
//! [`LINES_MOST`] lines of a list, or a port counted twice.
//!
//! A connection takes its port from others to the same server from the same address alone. A port that somebody listens on is given to no
//! connection at all (`__inet_hash_connect` passes over ports that were bound to).

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;

/// Most lines that are read of each list: a quarter of a second. A machine with more sockets is told of fewer than it has.
const LINES_MOST: usize = 1 << 20;

/// Longest line that is looked at; the kernel's have some 150 bytes, or 180.
const LINE_BYTES: usize = 1 << 10;

/// States of a socket, as the lists write them.
const TIME_WAIT: &[u8] = b"06";
const LISTEN: &[u8] = b"0A";

/// The unit of a timer: `USER_HZ`, which no Linux has otherwise.
const TIMER_HZ: u64 = 100;

/// A port that can be used again can so when its 60 s of `TIME_WAIT` have so many left: after the first (`net.ipv4.tcp_tw_reuse_delay`).
const REUSED_BELOW: u64 = 59 * TIMER_HZ;

/// How connections go to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// From this address; `None` where the system chooses: then the ports of all its addresses count, each once.
    pub from: Option<IpAddr>,
    /// To this one.
    pub to: SocketAddr,
}

/// Local ports of a range that a way cannot use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// With a connection on the way, or listened on.
    pub in_use: u64,
    /// In `TIME_WAIT`, and not to be used before that is over.
    pub resting: u64,
    /// Seconds until the last of those is free, rounded up.
    pub rest_s: u64,
}

/// A set of ports.
#[derive(Clone, Debug)]
pub(super) struct Ports(Vec<u64>);

impl Ports {
    pub(super) fn new() -> Ports {
        Ports(vec![0; 1 << 10])
    }

    pub(super) fn insert(&mut self, port: u16) {
        self.0[usize::from(port >> 6)] |= 1 << (port & 63);
    }

    pub(super) fn has(&self, port: u16) -> bool {
        self.0[usize::from(port >> 6)] >> (port & 63) & 1 == 1
    }

    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Puts all of `other` in.
    fn join(&mut self, other: &Ports) {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    /// How many are not in `other`.
    fn beside(&self, other: &Ports) -> u64 {
        let words = self.0.iter().zip(&other.0);
        words.map(|(a, b)| u64::from((a & !b).count_ones())).sum()
    }
}

/// What one way has.
struct Found {
    from: Option<IpAddr>,
    in_use: Ports,
    resting: Ports,
    rest_s: u64,
}

/// Ports of `range` that are taken for each of `ways`, in their order; those of `reserved` are not looked at. `reused` says of a server's
/// address whether a port in `TIME_WAIT` towards it can be used again before that is over.
pub(super) fn taken(
    root: &Path,
    ways: &[Way],
    range: &RangeInclusive<u16>,
    reserved: &Ports,
    reused: impl Fn(IpAddr) -> bool,
) -> Vec<Taken> {
    let mut found: Vec<Found> = ways
        .iter()
        .map(|way| Found {
            from: way.from.map(|from| from.to_canonical()),
            in_use: Ports::new(),
            resting: Ports::new(),
            rest_s: 0,
        })
        .collect();
    let mut by_server: HashMap<(IpAddr, u16), Vec<usize>> = HashMap::new();
    for (index, way) in ways.iter().enumerate() {
        let server = (way.to.ip().to_canonical(), way.to.port());
        by_server.entry(server).or_default().push(index);
    }
    let mut listened = Ports::new();
    let mut note = |socket: &Socket| {
        let port = socket.local.1;
        if !range.contains(&port) || reserved.has(port) {
            return;
        }
        if socket.listens {
            listened.insert(port);
            return;
        }
        for &index in by_server.get(&socket.remote).into_iter().flatten() {
            let way = &mut found[index];
            if way.from.is_some_and(|from| from != socket.local.0) {
                continue;
            }
            let Some(left) = socket.rests else {
                way.in_use.insert(port);
                continue;
            };
            let left = if reused(socket.remote.0) {
                left.saturating_sub(REUSED_BELOW)
            } else {
                left.max(1)
            };
            if left > 0 {
                way.resting.insert(port);
                way.rest_s = way.rest_s.max(left.div_ceil(TIMER_HZ));
            }
        }
    };
    for list in ["net/tcp", "net/tcp6"] {
        read(&root.join(list), &mut note);
    }
    let told = found.into_iter().map(|mut way| {
        way.in_use.join(&listened);
        Taken {
            in_use: way.in_use.count(),
            resting: way.resting.beside(&way.in_use),
            rest_s: way.rest_s,
        }
    });
    told.collect()
}

/// One line of a list.
struct Socket {
    local: (IpAddr, u16),
    remote: (IpAddr, u16),
    listens: bool,
    /// In `TIME_WAIT` for so long, in units of the timer.
    rests: Option<u64>,
}

/// Shows each socket of a list to `note`; none where the list cannot be read.
fn read(list: &Path, mut note: impl FnMut(&Socket)) {
    let Ok(file) = File::open(list) else { return };
    let mut lines = BufReader::with_capacity(LINE_BYTES, file);
    let mut line = Vec::with_capacity(LINE_BYTES);
    for _ in 0..LINES_MOST {
        line.clear();
        match lines.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => socket(&line).iter().for_each(&mut note),
        }
    }
}

/// Reads ` 0: 0100007F:9C60 0302010A:0050 06 00000000:00000000 03:000016A8`; the header line is none.
fn socket(line: &[u8]) -> Option<Socket> {
    let mut fields = line
        .split(u8::is_ascii_whitespace)
        .filter(|f| !f.is_empty());
    let local = place(fields.nth(1)?)?;
    let remote = place(fields.next()?)?;
    let state = fields.next()?;
    let timer = fields.nth(1).and_then(|field| field.get(3..));
    let left = timer.and_then(hexadecimal).unwrap_or(0);
    Some(Socket {
        local,
        remote,
        listens: state == LISTEN,
        rests: (state == TIME_WAIT).then_some(left),
    })
}

/// Address and port; the address is in words of four bytes, each printed as a number of this machine.
fn place(field: &[u8]) -> Option<(IpAddr, u16)> {
    let colon = field.iter().position(|&byte| byte == b':')?;
    let (words, port) = (&field[..colon], &field[colon + 1..]);
    let mut octets = [0; 16];
    for (word, into) in words.chunks(8).zip(octets.chunks_exact_mut(4)) {
        let word = u32::try_from(hexadecimal(word)?).ok()?;
        into.copy_from_slice(&word.to_ne_bytes());
    }
    let [a, b, c, d, ..] = octets;
    let ip = match words.len() {
        8 => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        32 => Ipv6Addr::from(octets).to_canonical(),
        _ => return None,
    };
    Some((ip, u16::try_from(hexadecimal(port)?).ok()?))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
#[path = "taken/tests.rs"]
mod tests;
