//! Servers that close kept connections, and half of them.
//!
//! In: a moment to close at. Out: requests that succeed all the same where nothing of them can have been begun. Never: a request sent twice to a
//! server that may have begun it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokenring::record::Outcome;
use tokenring::wire::Fault;

use crate::{Load, Way, drive, turn, ways};

/// When a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Close {
    /// Right behind the first answer, which does not say so.
    AfterAnswer,
    /// The same, but the server goes on reading: half of the connection is open.
    HalfAfterAnswer,
    /// When the second request has come, without a byte of an answer.
    OnRequest,
    /// The same, by a reset.
    ResetOnRequest,
    /// When the second request has waited for longer than a close could cross it.
    LongAfterRequest,
}

/// A server that gives each connection one answer. It ends with the process.
fn serve(close: Close) -> (std::net::SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&requests);
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let count = Arc::clone(&count);
            let builder = std::thread::Builder::new().stack_size(64 << 10);
            builder.spawn(move || play(stream, close, &count)).unwrap();
        }
    });
    (address, requests)
}

fn play(mut stream: TcpStream, close: Close, requests: &AtomicU64) {
    if !take(&mut stream) {
        return;
    }
    requests.fetch_add(1, Ordering::AcqRel);
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    if stream.write_all(answer).is_err() {
        return;
    }
    match close {
        Close::AfterAnswer => return,
        Close::HalfAfterAnswer => stream.shutdown(Shutdown::Write).unwrap(),
        _ => {}
    }
    if !take(&mut stream) {
        return;
    }
    match close {
        Close::ResetOnRequest => {
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        }
        Close::LongAfterRequest => std::thread::sleep(Duration::from_millis(1_200)),
        _ => {}
    }
}

/// Reads one request with a body of two bytes; false at the end of the connection.
fn take(stream: &mut TcpStream) -> bool {
    let mut read = Vec::new();
    let mut piece = [0; 4_096];
    while !read.ends_with(b"\r\n\r\n{}") {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return false,
            Ok(count) => read.extend_from_slice(&piece[..count]),
        }
    }
    true
}

#[test]
fn a_kept_connection_that_is_closed_costs_no_request() {
    let _turn = turn();
    for close in [
        Close::AfterAnswer,
        Close::HalfAfterAnswer,
        Close::OnRequest,
        Close::ResetOnRequest,
    ] {
        for way in ways() {
            let (address, requests) = serve(close);
            let left = drive(&way, &Load::new(address, 40, 4));
            let name = format!("{close:?} on {}", way.name());
            assert_eq!(left.counts.whole, 40, "{name}: {:?}", left.counts);
            assert_eq!(
                requests.load(Ordering::Acquire),
                40,
                "{name}: answered once each"
            );
            if matches!(close, Close::OnRequest | Close::ResetOnRequest) {
                // The second request of every kept connection met its end.
                assert!(left.counts.resent >= 15, "{name}: {:?}", left.counts);
            }
            for exchange in left.exchanges.iter().filter(|e| e.link.resent) {
                assert!(!exchange.link.reused, "{name}");
                assert!(
                    exchange.ticks.start <= exchange.ticks.connect_start,
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn a_request_that_the_server_may_have_begun_is_not_sent_again() {
    let _turn = turn();
    // Side by side: each mostly waits.
    std::thread::scope(|scope| {
        for way in ways() {
            scope.spawn(move || is_not_sent_again(&way));
        }
    });
}

fn is_not_sent_again(way: &Way) {
    let (address, requests) = serve(Close::LongAfterRequest);
    let left = drive(way, &Load::new(address, 4, 2));
    let name = way.name();
    assert_eq!(left.counts.resent, 0, "{name}");
    assert_eq!((left.counts.whole, left.counts.failed), (2, 2), "{name}");
    assert_eq!(requests.load(Ordering::Acquire), 2, "{name}");
    let failed = left.exchanges.iter();
    for exchange in failed.filter(|e| e.outcome != Outcome::Success) {
        let fault = Outcome::Fault(Fault::ClosedBeforeResponse);
        assert_eq!(exchange.outcome, fault, "{name}");
    }
}
