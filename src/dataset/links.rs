//! Which entries of a streamed file are one conversation.
//!
//! In: the entries in the order of the file, and whose they are. Out: the entries of any conversation. Never: a byte for an entry where each
//! is a conversation of one turn.

/// No entry.
const NONE: u32 = u32::MAX;

/// Conversations are numbered in the order in which they begin in the file, entries in their own; both from 0.
#[derive(Debug, Default)]
pub(super) struct Links {
    entries: u32,
    conversations: u32,
    /// From the first conversation on that is not one entry of one turn: 4 bytes an entry and 8 a conversation, 12 while it is filled.
    listed: Option<Listed>,
}

#[derive(Debug, Default)]
struct Listed {
    /// The first entry of each conversation.
    first: Vec<u32>,
    /// The last one of each conversation so far.
    last: Vec<u32>,
    /// Turns of each conversation; in the end, of all conversations before it.
    turns: Vec<u32>,
    /// Of each entry, the next one of its conversation.
    next: Vec<u32>,
}

impl Links {
    /// The next entry begins a conversation, whose number is returned. It has so many turns.
    pub(super) fn begin(&mut self, turns: u32) -> u32 {
        if turns != 1 {
            self.list();
        }
        let (conversation, entry) = (self.conversations, self.entries);
        self.conversations += 1;
        self.entries += 1;
        if let Some(listed) = &mut self.listed {
            listed.first.push(entry);
            listed.last.push(entry);
            listed.turns.push(turns);
            listed.next.push(NONE);
        }
        conversation
    }

    /// The next entry, of so many turns, goes on with `conversation`; `anew`: in the place of all its entries before.
    pub(super) fn go_on(&mut self, conversation: u32, turns: u32, anew: bool) {
        let entry = self.pass();
        let listed = self.list();
        let at = conversation as usize;
        listed.turns[at] += turns;
        let before = std::mem::replace(&mut listed.last[at], entry);
        if anew {
            listed.first[at] = entry;
        } else {
            listed.next[before as usize] = entry;
        }
    }

    /// The next entry, whose number is returned, is left out.
    pub(super) fn pass(&mut self) -> u32 {
        self.list().next.push(NONE);
        self.entries += 1;
        self.entries - 1
    }

    /// All entries are told.
    pub(super) fn finish(&mut self) {
        let Some(listed) = &mut self.listed else {
            return;
        };
        listed.last = Vec::new();
        let mut before = 0_u32;
        for turns in &mut listed.turns {
            let own = std::mem::replace(turns, before);
            before = before.saturating_add(own);
        }
        listed.first.shrink_to_fit();
        listed.turns.shrink_to_fit();
        listed.next.shrink_to_fit();
    }

    /// Entries so far, also those that were left out.
    pub(super) fn entry_count(&self) -> u32 {
        self.entries
    }

    /// Conversations so far.
    pub(super) fn conversation_count(&self) -> u32 {
        self.conversations
    }

    /// Some conversation has several entries, or one of several turns.
    pub(super) fn is_listed(&self) -> bool {
        self.listed.is_some()
    }

    /// The entries of `conversation`, in order.
    pub(super) fn entries(&self, conversation: u32) -> impl Iterator<Item = u32> + '_ {
        let first = match &self.listed {
            Some(listed) => listed.first[conversation as usize],
            None => conversation,
        };
        std::iter::successors(Some(first), |&entry| {
            let next = self.listed.as_ref()?.next[entry as usize];
            (next != NONE).then_some(next)
        })
    }

    /// Turns of all conversations before `conversation`, once all entries are told.
    pub(super) fn turns_before(&self, conversation: u32) -> u64 {
        let turns = match &self.listed {
            Some(listed) => listed.turns[conversation as usize],
            None => conversation,
        };
        u64::from(turns)
    }

    fn list(&mut self) -> &mut Listed {
        // Up to here each conversation is the entry of its number.
        let count = self.conversations;
        self.listed.get_or_insert_with(|| Listed {
            first: (0..count).collect(),
            last: (0..count).collect(),
            turns: vec![1; count as usize],
            next: vec![NONE; count as usize],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Entries go to one of a few conversations or to a new one, are left out, or take the place of those before.
        #[test]
        fn entries_and_turns_are_those_that_were_told(told in prop::collection::vec((0_u8..6, 0_u32..8, 1_u32..3), 0..60)) {
            let mut links = Links::default();
            let mut model: Vec<(Vec<u32>, u32)> = Vec::new();
            for (entry, (kind, whose, turns)) in (0..).zip(told) {
                let known = model.len().checked_sub(1).map(|last| last.min(whose as usize));
                match (kind, known) {
                    (0, _) => {
                        prop_assert_eq!(links.pass(), entry);
                    }
                    (1 | 2, Some(at)) => {
                        let anew = kind == 2;
                        links.go_on(u32::try_from(at).unwrap(), turns, anew);
                        if anew {
                            model[at].0.clear();
                        }
                        model[at].0.push(entry);
                        model[at].1 += turns;
                    }
                    _ => {
                        let number = links.begin(turns);
                        prop_assert_eq!(number as usize, model.len());
                        model.push((vec![entry], turns));
                    }
                }
            }
            links.finish();
            prop_assert_eq!(links.conversation_count() as usize, model.len());
            let mut before = 0;
            for (number, (entries, turns)) in (0..).zip(model) {
                prop_assert_eq!(links.entries(number).collect::<Vec<_>>(), entries);
                prop_assert_eq!(links.turns_before(number), before);
                before += u64::from(turns);
            }
        }
    }
}
