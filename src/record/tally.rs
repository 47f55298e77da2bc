//! Tokens by event.
//!
//! In: the totals that a server tells with its events (continuous usage). Out: tokens of each event, where that is known. Never: a
//! count that the server did not tell, or one that is spread over events.

/// What each event of a stream told, in order.
#[derive(Debug, Default)]
pub(super) struct TokenTally {
    events: Vec<Told>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    /// Completion tokens so far, where the event has a usage of its own.
    total: Option<u64>,
    /// It carried content.
    content: bool,
}

impl TokenTally {
    /// The next event.
    pub(super) fn push(&mut self, total: Option<u64>, content: bool) {
        self.events.push(Told { total, content });
    }

    /// Tokens of each event. Unknown are those of an event without a total; of the first total after content without one, since
    /// it covers more than its own event; and of a total below the one before. A server whose last total is less than its
    /// content events does not tell totals, and nothing is known.
    pub(super) fn by_event(&self) -> Vec<Option<u32>> {
        let content = self.events.iter().filter(|told| told.content).count();
        let last = self.events.iter().rev().find_map(|told| told.total);
        if last.is_none_or(|last| last < content as u64) {
            return vec![None; self.events.len()];
        }
        let (mut before, mut uncounted) = (0, false);
        let one = |told: &Told| {
            let Some(total) = told.total else {
                uncounted |= told.content;
                return None;
            };
            let known = !std::mem::replace(&mut uncounted, false) && total >= before;
            let tokens = total.saturating_sub(std::mem::replace(&mut before, total));
            known.then(|| u32::try_from(tokens).unwrap_or(u32::MAX))
        };
        self.events.iter().map(one).collect()
    }

    /// Tokens of each content event, with those of events without content (an empty delta that tells a token) added to the next
    /// one that has.
    pub(super) fn by_content(&self) -> Vec<Option<u32>> {
        let mut carried = 0_u32;
        let all = self.events.iter().zip(self.by_event());
        all.filter_map(|(told, tokens)| {
            if told.content {
                let carried = std::mem::take(&mut carried);
                Some(tokens.map(|tokens| tokens.saturating_add(carried)))
            } else {
                carried = carried.saturating_add(tokens.unwrap_or(0));
                None
            }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Totals of events, `-` for none; a leading `.` marks an event without content.
    fn tally(line: &str) -> TokenTally {
        let mut tally = TokenTally::default();
        for word in line.split_whitespace() {
            tally.push(
                word.trim_start_matches('.').parse().ok(),
                !word.starts_with('.'),
            );
        }
        tally
    }

    fn words(tokens: &[Option<u32>]) -> String {
        let word = |tokens: &Option<u32>| tokens.map_or_else(|| "-".to_owned(), |n| n.to_string());
        tokens.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn tokens_are_known_where_totals_tell_them() {
        for (told, by_event, by_content) in [
            // Continuous usage, with the last usage in an event of its own.
            ("1 2 3 .3", "1 1 1 0", "1 1 1"),
            ("4 8 12", "4 4 4", "4 4 4"),
            ("5 6 7 8", "5 1 1 1", "5 1 1 1"),
            // An event may bring no token yet.
            ("1 3 3 8", "1 2 0 5", "1 2 0 5"),
            // A role without usage, and one with.
            (".- 1 2", "- 1 1", "1 1"),
            (".0 1 2", "0 1 1", "1 1"),
            // Empty deltas that tell tokens: those belong to the next content.
            (".1 .2 .3 4 .5 7", "1 1 1 1 1 2", "4 3"),
            // One total at the end says nothing of the events.
            ("- - - .3", "- - - -", "- - -"),
            // A hole: what comes after it covers two events, the next is known again.
            ("1 - 3 4", "1 - - 1", "1 - - 1"),
            // Totals that go back.
            ("3 1 2 4", "3 - 1 2", "3 - 1 2"),
            // Each event tells its own count and no total.
            ("1 1 1 1", "- - - -", "- - - -"),
            ("", "", ""),
        ] {
            let tally = tally(told);
            assert_eq!(words(&tally.by_event()), by_event, "{told}");
            assert_eq!(words(&tally.by_content()), by_content, "{told}");
        }
    }

    #[test]
    fn an_absurd_total_is_bounded() {
        let tally = tally(".18446744073709551615 18446744073709551615");
        assert_eq!(tally.by_content(), [Some(u32::MAX)]);
    }

    proptest! {
        /// Rising totals of every event are told back in full, whatever has content.
        #[test]
        fn all_tokens_are_dealt(steps in prop::collection::vec((1..9_u64, any::<bool>()), 1..40)) {
            let mut tally = TokenTally::default();
            let mut total = 0;
            for &(step, content) in &steps {
                total += step;
                tally.push(Some(total), content);
            }
            let dealt: u64 = tally.by_event().iter().map(|n| u64::from(n.unwrap())).sum();
            prop_assert_eq!(dealt, total);
            prop_assert_eq!(tally.by_content().len(), steps.iter().filter(|s| s.1).count());
        }
    }
}
