//! What is left of descriptors, while drivers work and after they have ended.
//!
//! In: loads that open many connections. Out: counts of this process's descriptors. Never: a reply that is waited for where none comes.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokenring::config::ConnectionReuse;
use tokenring::engine::Stop;
use tokenring::record::Outcome;

use crate::server::{Play, Server};
use crate::{Load, all_are, drive, let_go_again, open_descriptors, turn, ways};

/// More than Linux ends in a hundred waits, which run 20 operations each from 6.13 on.
const STREAMS: usize = 2_500;

/// As many of [`STREAMS`] as this machine lets one process have open and one listener keep.
fn streams() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = limit.map_or(usize::MAX, |most| usize::try_from(most).unwrap());
    let queue = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let queue: usize = queue.trim().parse().unwrap();
    STREAMS
        .min(files.saturating_sub(200))
        .min(queue - queue / 10)
}

#[test]
fn thousands_of_streams_cut_at_once_are_all_let_go() {
    let _turn = turn();
    let count = streams();
    for way in ways() {
        let before = open_descriptors();
        // The kernel takes the connections; nobody ever accepts one.
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any = std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        listener.bind(&any.into()).unwrap();
        listener.listen(4_096).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let load = Load {
            stop: Stop::Now,
            stop_at: count as u64,
            ..Load::new(address, 2 * count as u64, count)
        };
        let left = drive(&way, &load);
        let name = way.name();
        all_are(&left, Outcome::Interrupted, &name);
        assert_eq!(left.exchanges.len(), count, "{name}");
        drop(listener);
        let_go_again(before, &name);
    }
}

#[test]
fn no_more_descriptors_are_open_than_connections() {
    const AT_ONCE: usize = 20;
    let _turn = turn();
    for way in ways() {
        let server = Server::start(Play::Reply(10));
        let before = open_descriptors();
        let (most, over) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let watcher = std::thread::spawn({
            let (most, over) = (Arc::clone(&most), Arc::clone(&over));
            move || {
                while !over.load(Ordering::Relaxed) {
                    most.fetch_max(open_descriptors(), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let load = Load {
            reuse: ConnectionReuse::Never,
            ..Load::new(server.address, 2_000, AT_ONCE)
        };
        let left = drive(&way, &load);
        over.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
        let name = way.name();
        all_are(&left, Outcome::Success, &name);
        assert_eq!(left.counts.connects, 2_000, "{name}");
        // Both ends are in this process, those just closed may linger, and the driver has a few of its own.
        let more = most.load(Ordering::Relaxed).saturating_sub(before);
        assert!(more <= 10 * AT_ONCE, "{name}: {more} descriptors more");
        drop(server);
    }
}
