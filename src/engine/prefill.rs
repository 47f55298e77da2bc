//! When a request's prefill is over.
//!
//! In: the events of a read. Out: whether one of them brought content. Never: a look at a reply that holds no prefill slot.

use super::Workload;
use super::flight::Flight;
use crate::wire::fields;

/// One of the events from the `first` on brought content. Until a reply's first content each of its events is looked at once; what
/// is no event stream shows nothing before its end.
pub(super) fn is_over(flight: &Flight, first: usize, workload: &dyn Workload) -> bool {
    let exchange = &*flight.exchange;
    exchange.events[first..].iter().any(|mark| {
        let place = usize::try_from(mark.begin)
            .ok()
            .zip(usize::try_from(mark.end).ok());
        let bytes = place.and_then(|(begin, end)| exchange.body.get(begin..end));
        let fields = fields(bytes.unwrap_or_default());
        let data = fields.data.as_deref().unwrap_or_default();
        workload.shows_content(data.trim_ascii())
    })
}
