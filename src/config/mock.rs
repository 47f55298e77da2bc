//! What the built-in server is to do.
//!
//! In: nothing; this is a type. Out: [`MockPlan`]. Never: read by a run but to start that server.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use super::pace::Pace;
use super::zone::ZonedAddress;
use crate::clock::Nanos;

/// `tokenring mock-server`.
#[derive(Clone, Debug, PartialEq)]
pub struct MockPlan {
    /// Address to listen on; a link-local one has its zone.
    pub host: ZonedAddress,
    /// Port there; 0 picks a free one.
    pub port: u16,
    /// From the last byte of a request to its first content event.
    pub time_to_first_token: Nanos,
    /// From one content event's tokens to the next: a chunk of k tokens comes k times this after its predecessor.
    pub inter_token_latency: Nanos,
    /// Output tokens when the request sets no limit.
    pub tokens: u32,
    /// Tokens in each content event.
    pub tokens_per_chunk: u32,
    /// Content events written at once, when the first of them is due; the mean rate stays the same.
    pub events_per_write: u32,
    /// Seed of the words it says.
    pub seed: u64,
    /// Threads; `None` is one for each core in the mask (or in `cpus`).
    pub threads: Option<usize>,
    /// Cores to pin the threads to, in order.
    pub cpus: Vec<usize>,
    /// Model ids listed by `/v1/models`; any model is accepted in requests.
    pub models: Vec<String>,
    /// Append one line per sent event to this file; its first line names the columns.
    pub log: Option<PathBuf>,
    /// What it does until the next event is due.
    pub pace: Pace,
    /// Into how many parts the time between two events is cut, to keep connections apart; `None` leaves them as they come.
    pub spread: Option<u32>,
}

impl Default for MockPlan {
    fn default() -> Self {
        MockPlan {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST).into(),
            port: 0,
            time_to_first_token: Nanos::from_millis(50),
            inter_token_latency: Nanos::from_millis(10),
            tokens: 100,
            tokens_per_chunk: 1,
            events_per_write: 1,
            seed: 0,
            threads: None,
            cpus: Vec::new(),
            models: vec!["mock-model".to_owned()],
            log: None,
            pace: Pace::default(),
            spread: None,
        }
    }
}
