//! Replies of an API.
//!
//! In: arbitrary bytes. Out: a panic when two readings of them disagree. Never: HTTP, or the framing of events.

use std::sync::OnceLock;

use crate::config::{EndpointKind, EndpointPlan};
use crate::endpoint::{Api, Parsed};

/// Reads the lines behind the first byte as the events of one reply in the dialect that the first byte picks: the quick reading of an
/// event says what the thorough one says, and where a dialect does not look back at earlier events, a reader that has seen them says
/// what one says that has not. What only reads on must take whatever is there.
///
/// # Panics
/// When an invariant of the readers breaks.
pub fn reply(data: &[u8]) {
    static APIS: OnceLock<Vec<Api>> = OnceLock::new();
    let Some((pick, bytes)) = data.split_first() else {
        return;
    };
    let apis = APIS.get_or_init(|| {
        let plans = EndpointKind::ALL.iter().copied().map(EndpointPlan::plain);
        plans.filter_map(|plan| Api::new(&plan).ok()).collect()
    });
    let Some(api) = apis.get(usize::from(*pick) % apis.len().max(1)) else {
        return;
    };
    let forgetful = matches!(api.kind(), EndpointKind::Chat | EndpointKind::Completions);
    let (mut chunks, mut builder) = (api.chunks(), api.reply_builder());
    for line in bytes.split(|&byte| byte == b'\n') {
        let alone = api.parse(line);
        let thorough = api.parse_thoroughly(line);
        // A field that nobody reads may hold what no tree can, such as a number beyond all bounds.
        if thorough != Parsed::NotJson {
            assert_eq!(alone, thorough, "the quick reading and the thorough one");
        }
        let later = chunks.parse(line);
        if forgetful {
            assert_eq!(later, alone, "after other events, and alone");
        }
        builder.push(line);
        let _ = api.shows_content(line);
    }
    let _ = (builder.is_complete(), builder.finish(), api.input(bytes));
}
