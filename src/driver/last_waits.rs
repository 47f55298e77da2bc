//! How long a driver waits at its end for what is still under way.
//!
//! In: how much was under way before a wait and after it. Out: whether to wait once more. Never: an end while things go on ending, or
//! waits without an end.

use std::time::Duration;

/// Waits are given up when nothing has ended for so long.
const IN_VAIN: Duration = Duration::from_secs(1);

/// Waits of one length, one after the other.
pub(super) struct LastWaits {
    each: Duration,
    in_vain: Duration,
}

impl LastWaits {
    /// Each wait is to take `each`.
    pub(super) fn new(each: Duration) -> LastWaits {
        let in_vain = Duration::ZERO;
        LastWaits { each, in_vain }
    }

    /// How long the next one is; `None` when it is not worth it any more.
    pub(super) fn next(&self) -> Option<Duration> {
        (self.in_vain < IN_VAIN).then_some(self.each)
    }

    /// A wait is over: `before` it so much was under way, and so much is `left`.
    pub(super) fn over(&mut self, before: usize, left: usize) {
        self.in_vain = match left < before {
            true => Duration::ZERO,
            false => self.in_vain + self.each,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waits_in_which_nothing_ends_are_counted() {
        let mut waits = LastWaits::new(Duration::from_millis(10));
        for left in (0..500).rev() {
            assert!(waits.next().is_some());
            waits.over(left + 1, left);
        }
        for _ in 0..100 {
            assert_eq!(waits.next(), Some(Duration::from_millis(10)));
            waits.over(7, 7);
        }
        assert_eq!(waits.next(), None);
    }
}
