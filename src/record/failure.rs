//! Why a request failed, in words.
//!
//! In: the outcome, the head and what was read of the reply. Out: [`ErrorDetails`] in AIPerf's form. Never: decides on text that
//! the peer did not send.

use super::class::{Cause, ErrorClass};
use super::reading::Reading;
use super::{ErrorDetails, Exchange, Outcome};
use crate::wire::Fault;

/// Most characters kept of a message.
const MESSAGE_LIMIT: usize = 4096;
/// Most bytes of a body that a message is made of: no character has more than four.
const BODY_LIMIT: usize = 4 * MESSAGE_LIMIT;
/// Most characters kept of a `Retry-After`; a date has 29.
const RETRY_LIMIT: usize = 64;
/// Status that AIPerf gives to a request that was cut by the run.
const CANCELLED: u16 = 499;
/// Status that AIPerf gives to an error inside a 2xx reply.
const BAD_REPLY: u16 = 502;

/// Details of the failure; `None` for a success. The run's own cut comes first, then a status that is no 2xx (its body may be cut
/// as well), then a broken exchange, then what the reply says.
pub(super) fn failure(exchange: &Exchange, reading: &Reading) -> Option<ErrorDetails> {
    let refused = exchange.head.filter(|head| !head.is_success());
    let details = match (exchange.outcome, refused) {
        (Outcome::Cancelled, _) => details(
            Cause::Cut,
            Some(CANCELLED),
            "RequestCancellationError",
            "cancelled on purpose, as --request-cancellation-rate asked",
        ),
        (Outcome::GraceEnded, _) => cancelled("the grace period ended", exchange, reading),
        (Outcome::Interrupted, _) => cancelled("the run was interrupted", exchange, reading),
        (_, Some(head)) => {
            let body = &exchange.body[..exchange.body.len().min(BODY_LIMIT)];
            let message = match redirect(exchange) {
                Some(target) => format!(
                    "The server redirects to {target}, and redirects are not followed: give the final address in --url."
                ),
                None => String::from_utf8_lossy(body).into_owned(),
            };
            // HTTP allows an empty reason phrase; a group of errors needs a name.
            let reason = match reason_phrase(&exchange.head_bytes) {
                empty if empty.is_empty() => format!("HTTP {}", head.status),
                reason => reason,
            };
            details(
                Cause::Status(head.status),
                Some(head.status),
                &reason,
                &message,
            )
        }
        // Failures are grouped by their message, so it holds nothing that differs from request to request.
        (Outcome::Timeout, None) => details(
            Cause::RequestLimit,
            None,
            "RequestTimeout",
            "The whole-request limit ran out.",
        ),
        (Outcome::Fault(fault), None) => {
            let message = match (fault, header(exchange, "content-encoding")) {
                (Fault::UnaskedEncoding, Some(coding)) => format!(
                    "The response has the content coding {coding:?}; of gzip, deflate, br and zstd one at a time is understood, and none was asked for."
                ),
                _ => fault.message().to_owned(),
            };
            let code = match fault {
                Fault::ProxyAuthentication | Fault::ProxyRefused => status(&exchange.head_bytes),
                _ => None,
            };
            details(Cause::Fault(fault), code, fault.name(), &message)
        }
        (Outcome::Success, None) => return reply_failure(reading),
    };
    Some(details)
}

fn reply_failure(reading: &Reading) -> Option<ErrorDetails> {
    if let Some(error) = &reading.error {
        let kind = match (&error.kind, reading.error_event) {
            (Some(kind), _) if !kind.is_empty() => kind,
            (_, true) => "SSEError",
            (_, false) => "ServerError",
        };
        let code = if reading.error_event {
            BAD_REPLY
        } else {
            error.code.unwrap_or(BAD_REPLY)
        };
        return Some(details(
            Cause::ErrorInReply,
            Some(code),
            kind,
            &error.message,
        ));
    }
    if reading.pieces.is_empty() {
        return Some(details(
            Cause::NoContent,
            None,
            "InvalidInferenceResultError",
            "The reply has no content.",
        ));
    }
    // A proxy that loses its server closes the body as it should; what came may be half an answer, and a fast one.
    reading.truncated.map(|missed| {
        let message = format!("The stream was truncated: it ended {missed}.");
        details(Cause::Unfinished, None, "Truncated", &message)
    })
}

/// A request that the run cut; these are in no group, so each may say how far it came.
fn cancelled(why: &str, exchange: &Exchange, reading: &Reading) -> ErrorDetails {
    let (events, bytes) = (reading.event_count, exchange.body.len());
    details(
        Cause::Cut,
        Some(CANCELLED),
        "RequestCancellationError",
        &format!("{why}; {events} events and {bytes} body bytes had arrived"),
    )
}

fn details(cause: Cause, code: Option<u16>, kind: &str, message: &str) -> ErrorDetails {
    ErrorDetails {
        code,
        kind: kind.to_owned(),
        message: message.chars().take(MESSAGE_LIMIT).collect(),
        class: ErrorClass::of(cause),
    }
}

/// Status of a head that is no server's.
fn status(head: &[u8]) -> Option<u16> {
    let digits = head.get(9..12)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Where a 3xx reply leads: its `Location` without what may be secret, a user and a query.
fn redirect(exchange: &Exchange) -> Option<String> {
    exchange
        .head
        .filter(|head| (300..400).contains(&head.status))?;
    let location = header(exchange, "location")?;
    let (place, query) = match location.find(['?', '#']) {
        Some(at) => (&location[..at], "?..."),
        None => (&location[..], ""),
    };
    let host = place.find("//").map_or(0, |at| at + 2);
    let end = place[host..].find('/').map_or(place.len(), |at| host + at);
    let user = place[host..end].rfind('@').map_or(host, |at| host + at + 1);
    Some(format!("{}{}{query}", &place[..host], &place[user..]))
}

/// `Retry-After` of a reply that is no 2xx.
pub(super) fn retry_after(exchange: &Exchange) -> Option<String> {
    exchange.head.filter(|head| !head.is_success())?;
    let value = header(exchange, "retry-after")?;
    Some(value.chars().take(RETRY_LIMIT).collect())
}

/// The value of the first field `name` in the reply's head.
fn header(exchange: &Exchange, name: &str) -> Option<String> {
    let mut lines = header_lines(&exchange.head_bytes).into_iter();
    let (_, value) = lines.find(|(found, _)| found.eq_ignore_ascii_case(name))?;
    Some(value)
}

/// Reason phrase of a response head; empty when there is none.
pub(super) fn reason_phrase(head: &[u8]) -> String {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut words = line.trim_ascii().splitn(3, |&byte| byte == b' ');
    String::from_utf8_lossy(words.nth(2).unwrap_or_default()).into_owned()
}

/// Header lines of a head without its first line.
pub(super) fn header_lines(head: &[u8]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes.trim_ascii()).into_owned();
    head.split(|&byte| byte == b'\n')
        .skip(1)
        .filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            Some((text(&line[..colon]), text(&line[colon + 1..])))
        })
        .collect()
}
