//! A trace's own times.
//!
//! In: when each conversation of a trace begins. Out: who is due next on this worker. Never: a timer or a task for an entry that waits, or
//! an order that depends on the number of workers.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::clock::{Nanos, Rate, Tick};

/// When each conversation of a trace begins, in the order in which they begin; shared by all workers.
///
/// An entry that waits is 12 bytes: a time and a number. Nothing else exists of it before it is due.
///
/// ```
/// use tokenring::clock::Nanos;
/// use tokenring::schedule::Timeline;
///
/// let timeline = Timeline::new([(Nanos(20), 0), (Nanos(10), 1), (Nanos(20), 2)]);
/// assert_eq!(timeline.len(), 3);
/// assert_eq!([0, 1, 2].map(|session| timeline.conversation(session)), [Some(1), Some(0), Some(2)]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Nanoseconds after the phase's start, ascending.
    due: Vec<u64>,
    /// Who begins then.
    conversation: Vec<u32>,
}

impl Timeline {
    /// Sorts `firsts`: the time of each conversation's first turn after the phase's start, and its number in the corpus. Equal times
    /// keep the order in which they come.
    #[must_use]
    pub fn new(firsts: impl IntoIterator<Item = (Nanos, u32)>) -> Timeline {
        let mut firsts: Vec<(u64, u32)> = firsts
            .into_iter()
            .map(|(after, conversation)| (after.0, conversation))
            .collect();
        firsts.sort_by_key(|&(after, _)| after);
        Timeline {
            due: firsts.iter().map(|first| first.0).collect(),
            conversation: firsts.iter().map(|first| first.1).collect(),
        }
    }

    /// Conversations, which are the sessions of the phase.
    #[must_use]
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// There is nothing to play.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// The conversation that session number `session` of the phase plays.
    #[must_use]
    pub fn conversation(&self, session: u64) -> Option<u32> {
        let at = usize::try_from(session).ok()?;
        self.conversation.get(at).copied()
    }

    /// Bytes that this takes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.due.capacity() * size_of::<u64>() + self.conversation.capacity() * size_of::<u32>()
    }
}

/// The sessions of one worker, and its turns whose time has come.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    timeline: Arc<Timeline>,
    clock: Rate,
    start: Tick,
    /// Due times of later turns that may be sent now; the one ready longest first.
    ready: VecDeque<Tick>,
}

impl Replay {
    pub(super) fn new(timeline: &Arc<Timeline>, clock: Rate, start: Tick) -> Replay {
        Replay {
            timeline: Arc::clone(timeline),
            clock,
            start,
            ready: VecDeque::new(),
        }
    }

    /// What is due first: a turn that is ready, or the beginning of `session`, and whether it is the latter. `None` when there is
    /// neither. Of equal times the turn goes first, since its session holds a slot already.
    pub(super) fn first(&self, session: Option<u64>) -> Option<(Tick, bool)> {
        let begins = session.and_then(|session| self.begins(session));
        let turn = self.ready.front().copied();
        match (turn, begins) {
            (Some(turn), Some(begins)) if begins < turn => Some((begins, true)),
            (Some(turn), _) => Some((turn, false)),
            (None, begins) => begins.map(|due| (due, true)),
        }
    }

    /// The turn that is ready longest.
    pub(super) fn turn(&self) -> Option<Tick> {
        self.ready.front().copied()
    }

    /// It is sent.
    pub(super) fn take_turn(&mut self) {
        self.ready.pop_front();
    }

    /// A turn that is due at `due` may be sent.
    pub(super) fn turn_ready(&mut self, due: Tick) {
        self.ready.push_back(due);
    }

    /// Turns that are ready.
    pub(super) fn ready_count(&self) -> u64 {
        self.ready.len() as u64
    }

    /// When `session` begins.
    pub(super) fn begins(&self, session: u64) -> Option<Tick> {
        let at = usize::try_from(session).ok()?;
        self.timeline
            .due
            .get(at)
            .map(|&after| self.at(Nanos(after)))
    }

    /// `after` the phase's start.
    pub(super) fn at(&self, after: Nanos) -> Tick {
        self.start.plus(self.clock.ticks(after))
    }

    /// The conversation of `session`.
    pub(super) fn conversation(&self, session: u64) -> Option<u32> {
        self.timeline.conversation(session)
    }
}
