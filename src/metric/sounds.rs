//! Metrics of requests that carry sounds.
//!
//! In: a record and its latency. Out: how long the sounds last, and how much faster than that the reply came. Never: a value of a request
//! without sounds, or one for sounds whose length is not known.

use super::request::index;
use crate::clock::Nanos;
use crate::record::Record;

/// Seconds of sound, and those over the request's latency: 10 means that an hour of sound takes six minutes. AIPerf's formulas.
pub(super) fn sounds(record: &Record, latency: Option<Nanos>, one: &mut impl FnMut(usize, f64)) {
    if record.sound.0 == 0 {
        return;
    }
    let seconds = record.sound.seconds();
    one(index!("audio_duration"), seconds);
    if let Some(latency) = latency.filter(|latency| latency.0 > 0) {
        one(index!("rtfx"), seconds / latency.seconds());
    }
}
