//! A trace's own times.
//!
//! In: when each conversation of a trace begins. Out: who is due next on this worker. Never: a timer or a task for an entry that waits, or
//! an order that depends on the number of workers.

use std::collections::VecDeque;
use std::sync::Arc;

use super::deal::Deal;
use super::{Pace, Schedule, Shard, Verdict, wait_for};
use crate::clock::{Nanos, Rate, Tick};
use crate::config::PhasePlan;

/// When each conversation of a trace begins, in the order in which they begin; shared by all workers.
///
/// An entry that waits is 12 bytes, a time and a number, or the 8 of its time where conversations begin in the order of their numbers.
/// Nothing else need exist of it before it is due.
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
    due: Vec<Nanos>,
    /// Who begins then.
    conversations: Players,
}

/// Who begins at each time.
#[derive(Clone, Debug)]
pub enum Players {
    /// This one, the next one, and so on.
    From(u32),
    /// These, one for each time.
    Listed(Vec<u32>),
}

impl Default for Players {
    fn default() -> Players {
        Players::From(0)
    }
}

impl Players {
    /// Number `at` of them.
    #[must_use]
    pub fn at(&self, at: usize) -> Option<u32> {
        match self {
            Players::From(first) => first.checked_add(u32::try_from(at).ok()?),
            Players::Listed(listed) => listed.get(at).copied(),
        }
    }
}

/// How soon a beginning is asked for again whose request is still being made.
const AGAIN: Nanos = Nanos(200_000);

impl Timeline {
    /// Sorts `firsts`: the time of each conversation's first turn after the phase's start, and its number in the corpus. Equal times
    /// keep the order in which they come.
    #[must_use]
    pub fn new(firsts: impl IntoIterator<Item = (Nanos, u32)>) -> Timeline {
        let mut firsts: Vec<(Nanos, u32)> = firsts.into_iter().collect();
        firsts.sort_by_key(|&(after, _)| after);
        Timeline {
            due: firsts.iter().map(|first| first.0).collect(),
            conversations: Players::Listed(firsts.iter().map(|first| first.1).collect()),
        }
    }

    /// The same of `due`, the time of each of `conversations`. Takes what it is given, and 12 bytes an entry more while it sorts what
    /// is not in order.
    ///
    /// # Panics
    ///
    /// When there are more than `u32::MAX`, or a list is not as long as the times.
    #[must_use]
    pub fn of(due: Vec<Nanos>, conversations: Players) -> Timeline {
        if due.is_sorted() {
            return Timeline { due, conversations };
        }
        let count = u32::try_from(due.len()).expect("conversations have 32-bit numbers");
        let mut order: Vec<u32> = (0..count).collect();
        // With the place as the second key, equal times keep their order without the memory of a stable sort.
        order.sort_unstable_by_key(|&place| (due[place as usize], place));
        let sorted = order.iter().map(|&place| due[place as usize]).collect();
        for place in &mut order {
            *place = conversations
                .at(*place as usize)
                .expect("each time is somebody's");
        }
        Timeline {
            due: sorted,
            conversations: Players::Listed(order),
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
        (at < self.due.len()).then(|| self.conversations.at(at))?
    }

    /// When that is, after the phase's start.
    #[must_use]
    pub fn due(&self, session: u64) -> Option<Nanos> {
        self.due.get(usize::try_from(session).ok()?).copied()
    }

    /// Conversations from the lowest number up.
    #[must_use]
    pub fn conversations(&self) -> Players {
        let mut conversations = self.conversations.clone();
        if let Players::Listed(listed) = &mut conversations {
            listed.sort_unstable();
        }
        conversations
    }

    /// Bytes that this takes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let listed = match &self.conversations {
            Players::From(_) => 0,
            Players::Listed(listed) => listed.capacity(),
        };
        self.due.capacity() * size_of::<Nanos>() + listed * size_of::<u32>()
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
    /// Sessions from this one on are still being made.
    made: u64,
}

impl Replay {
    pub(super) fn new(timeline: &Arc<Timeline>, clock: Rate, start: Tick) -> Replay {
        Replay {
            timeline: Arc::clone(timeline),
            clock,
            start,
            ready: VecDeque::new(),
            made: u64::MAX,
        }
    }

    /// What can be sent first at `now`: a turn that is ready, or the beginning of `session`, and whether it is the latter. Of two that
    /// can, the one due earlier; of equal ones the turn, since its session holds a slot already. A beginning that waits for a slot
    /// does not hold up the turns that will free one. [`Verdict::Done`] when there is neither.
    pub(super) fn pull(
        &mut self,
        session: Option<u64>,
        deadline: Option<Tick>,
        (slot_free, prefill_free): (Tick, Tick),
        now: Tick,
    ) -> Result<(Tick, bool), Verdict> {
        let begins = session.and_then(|session| self.begins(session));
        // Past the deadline nothing begins any more.
        let begins = begins.filter(|&due| deadline.is_none_or(|end| due < end));
        let turn = self.ready.front().copied();
        let turn_from = turn.map_or(Tick::NEVER, |due| due.max(prefill_free));
        let mut begins_from =
            begins.map_or(Tick::NEVER, |due| due.max(slot_free).max(prefill_free));
        if session.is_some_and(|session| session >= self.made) {
            // It is looked for again when it is due, then every so often; turns go on meanwhile.
            begins_from = begins_from.max(now.plus(self.clock.ticks(AGAIN)));
        }
        let (due, starts) = match (turn, begins) {
            (None, None) => return Err(Verdict::Done),
            (Some(turn), None) => (turn, false),
            (None, Some(begins)) => (begins, true),
            (Some(turn), Some(begins)) => {
                let starts = if turn_from <= now && begins_from <= now {
                    begins < turn
                } else {
                    begins_from < turn_from
                };
                (if starts { begins } else { turn }, starts)
            }
        };
        wait_for(if starts { begins_from } else { turn_from }, now)?;
        if !starts {
            self.ready.pop_front();
        }
        Ok((due, starts))
    }

    /// A turn that is due at `due` may be sent.
    pub(super) fn turn_ready(&mut self, due: Tick) {
        self.ready.push_back(due);
    }

    /// Turns that are ready.
    pub(super) fn ready_count(&self) -> u64 {
        self.ready.len() as u64
    }

    /// When `session` begins; none that the trace does not have.
    pub(super) fn begins(&self, session: u64) -> Option<Tick> {
        let at = usize::try_from(session).ok()?;
        self.timeline.due.get(at).map(|&after| self.at(after))
    }

    /// `after` the phase's start.
    fn at(&self, after: Nanos) -> Tick {
        self.start.plus(self.clock.ticks(after))
    }
}

impl Schedule {
    /// The part of `timeline` that falls to `shard`: worker i of n has the sessions i, i + n, ... of it, so that all together begin
    /// what one worker alone would, at the same times. Every session is played once, to its end; the phase's concurrency is a cap.
    #[must_use]
    pub fn replay(
        phase: &PhasePlan,
        timeline: &Arc<Timeline>,
        shard: Shard,
        rate: Rate,
        start: Tick,
    ) -> Schedule {
        let concurrency = phase.concurrency.map(|most| most as u64);
        let prefill = phase.slots.prefill.map(|most| most as u64);
        let deal = Deal::by_arrivals(shard, concurrency, prefill);
        let pace = Pace::Replay(Replay::new(timeline, rate, start));
        let mut schedule = Schedule::build(phase, shard, (rate, start), (deal, pace, concurrency));
        let sessions = deal.share(timeline.len() as u64);
        let asked = schedule.session_limit.unwrap_or(sessions);
        schedule.session_limit = Some(asked.min(sessions));
        schedule
    }

    /// Of a replay whose requests are made while it runs: sessions below `session` can begin. One that cannot when it is due begins late.
    pub fn made_below(&mut self, session: u64) {
        if let Pace::Replay(replay) = &mut self.pace {
            replay.made = session;
        }
    }

    /// The sessions of a replay of `count` that fall to `shard`, in order.
    pub fn replayed(
        phase: &PhasePlan,
        shard: Shard,
        count: u64,
    ) -> impl Iterator<Item = u64> + use<> {
        let concurrency = phase.concurrency.map(|most| most as u64);
        let prefill = phase.slots.prefill.map(|most| most as u64);
        let deal = Deal::by_arrivals(shard, concurrency, prefill);
        (0..deal.share(count)).map(move |nth| deal.number(nth))
    }

    /// The conversation that `session` plays, where the schedule says it: in a replay.
    #[must_use]
    pub fn conversation(&self, session: u64) -> Option<u32> {
        match &self.pace {
            Pace::Replay(replay) => replay.timeline.conversation(session),
            Pace::Slots { .. } | Pace::Arrivals { .. } | Pace::Users(_) => None,
        }
    }

    /// The conversations that this worker has begun, in order; `None` where the schedule does not say which they are.
    #[must_use]
    pub fn begun(&self) -> Option<impl Iterator<Item = u32> + '_> {
        let Pace::Replay(replay) = &self.pace else {
            return None;
        };
        let own = (0..self.started).map(|nth| self.deal.number(nth));
        Some(own.filter_map(|session| replay.timeline.conversation(session)))
    }

    /// The tick of a later turn's own time, `after` the phase's start, where such times are followed: in a replay. It may be past:
    /// the turn is then late from the beginning, and says so.
    #[must_use]
    pub fn own_time(&self, after: Nanos) -> Option<Tick> {
        match &self.pace {
            Pace::Replay(replay) => Some(replay.at(after)),
            Pace::Slots { .. } | Pace::Arrivals { .. } | Pace::Users(_) => None,
        }
    }
}
