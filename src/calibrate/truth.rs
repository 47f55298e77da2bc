//! The server's log: what was really sent when.
//!
//! In: the text of a log of `mock-server --log`. Out: requests with their events, or the line that is wrong. Never: fills a gap.

use std::collections::BTreeMap;

/// One request as the server saw it. Times are of the monotonic clock, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedRequest {
    /// When the kernel had received its last byte; where the kernel did not tell, when that had been read.
    pub received: u64,
    /// Its content events, in order.
    pub events: Vec<SentEvent>,
}

/// One content event that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentEvent {
    /// When it was to be sent.
    pub due: u64,
    /// Just before the system call that sent it.
    pub sent: u64,
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the server's log: {reason}")]
pub struct LogError {
    /// From 1.
    pub line: usize,
    /// What is wrong with it, and what would be right.
    pub reason: String,
}

/// The columns that are needed, by the names in the log's first line: request, event, time before the send, due, received.
const COLUMNS: [&str; 5] = ["request", "event", "monotonic_ns", "due_ns", "received_ns"];

/// Reads a log; requests by their numbers.
pub fn read(text: &str) -> Result<BTreeMap<u64, ServedRequest>, LogError> {
    let mut requests: BTreeMap<u64, ServedRequest> = BTreeMap::new();
    let mut places = None;
    for (index, line) in text.lines().enumerate() {
        let wrong = |reason: String| LogError {
            line: index + 1,
            reason,
        };
        if let Some(header) = line.strip_prefix('#') {
            places = Some(columns(header).map_err(wrong)?);
            continue;
        }
        let places = places.ok_or_else(|| {
            wrong(
                "no line with the columns' names, such as \"# request ...\", stands above"
                    .to_owned(),
            )
        })?;
        let words: Vec<&str> = line.split(' ').collect();
        let field = |column: usize| -> Result<u64, LogError> {
            let word = words.get(places[column]).copied().unwrap_or_default();
            word.parse().map_err(|_| {
                wrong(format!(
                    "{} is {word:?}, not a whole number",
                    COLUMNS[column]
                ))
            })
        };
        let (event, sent, due) = (field(1)?, field(2)?, field(3)?);
        let request = requests.entry(field(0)?).or_default();
        let expected = request.events.len() as u64;
        if event != expected {
            return Err(wrong(format!(
                "event {event} of request {} stands where event {expected} should",
                field(0)?
            )));
        }
        request.received = field(4)?;
        request.events.push(SentEvent { due, sent });
    }
    Ok(requests)
}

/// Where the columns stand.
fn columns(header: &str) -> Result<[usize; 5], String> {
    let names: Vec<&str> = header.split_whitespace().collect();
    let mut places = [0; 5];
    for (place, wanted) in places.iter_mut().zip(COLUMNS) {
        *place = names
            .iter()
            .position(|name| *name == wanted)
            .ok_or_else(|| format!("there is no column {wanted} among {names:?}"))?;
    }
    Ok(places)
}
