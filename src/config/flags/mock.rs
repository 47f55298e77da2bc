//! Flags of `tokenring mock-server`.
//!
//! In: nothing. Out: rows of the flag table. Never: reads a command line.

use super::{Flag, Kind::*, MOST, Status, working_table};

/// Flags of the built-in server.
pub const MOCK: &[Flag] = working_table! {
    "Mock server" {
        ["--host"] Text, "127.0.0.1", "Address to listen on, IPv4 or IPv6; ::1 is loopback's, a link-local one says on which interface it is (fe80::1%eth0). It serves anybody who can reach it.";
        ["--port"] Integer(0, 65_535), "0", "Port on that address; 0 picks a free one.";
        ["--ttft"] Between(0.0, 86_400_000.0), "50", "Milliseconds from a request's last byte to its first content event.";
        ["--itl"] Between(0.0, 86_400_000.0), "10", "Milliseconds for each further token.";
        ["--tokens"] Integer(1, 1 << 24), "100", "Output tokens when the request sets no limit.";
        ["--tokens-per-chunk"] Integer(1, 1 << 24), "1", "Tokens in each content event.";
        ["--events-per-write"] Integer(1, 1 << 16), "1", "Content events written at once, when the first of them is due.";
        ["--seed"] Integer(0, MOST), "0", "Seed of the words it says.";
        ["--threads"] Integer(1, 4096), "one for each core", "Threads.";
        ["--cpus"] Cores, "", "Cores to pin the threads to, such as 0,2-3.";
        ["--model", "-m"] List, "mock-model", "Model names listed by /v1/models; requests may name any.";
        ["--log"] Path, "", "Append one line for each content event to this file: connection, request, event, and by the monotonic clock in nanoseconds: before the send, due, after the send, request received.";
        ["--pace"] Choice(&["sleep", "spin"]), "sleep", "Until an event is due: sleep, or poll without rest, which costs a core and sends within microseconds.";
        ["--spread"] Integer(1, 1 << 20), "", "Keep the events of so many connections evenly apart, by delaying first tokens by less than one gap.";
    }
};
