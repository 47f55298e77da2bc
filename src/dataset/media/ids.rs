//! Pictures that a server keeps under ids.
//!
//! In: the turns of a file. Out: which pictures are sent, and which are named by their ids alone. Never: an id that the file does not give.

use std::collections::HashSet;
use std::sync::Arc;

use crate::dataset::{Conversation, Turn};

/// A picture without content can be sent only where it is named by its id.
pub(in crate::dataset) fn check_ids(turns: &[Turn], allowed: bool) -> Result<(), String> {
    let mut media = turns.iter().flat_map(|turn| &turn.media);
    match media.find(|media| media.content.is_empty()) {
        Some(media) if !allowed => Err(format!(
            "field image_uuids: the picture {:?} has no content, and only --endpoint-type chat names pictures by their ids; give it in images",
            media.uuid.as_deref().unwrap_or_default()
        )),
        _ => Ok(()),
    }
}

/// Takes the content of pictures away whose ids an earlier turn has sent with theirs. Twice in one turn it is sent twice: the server has
/// it only once that request was read.
pub(in crate::dataset) fn strip_repeated(conversation: &mut Conversation) {
    let mut sent: HashSet<Arc<str>> = HashSet::new();
    for turn in &mut conversation.turns {
        let mut new = Vec::new();
        for media in &mut turn.media {
            let Some(uuid) = &media.uuid else { continue };
            if sent.contains(uuid) {
                media.content = Arc::default();
            } else if !media.content.is_empty() {
                new.push(Arc::clone(uuid));
            }
        }
        sent.extend(new);
    }
}
