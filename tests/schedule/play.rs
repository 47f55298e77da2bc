//! Plays a schedule against an imagined server in virtual time.
//!
//! In: a plan, a number of workers, service and think times. Out: what each worker sent, and when.
//! Never: a real clock, an engine, or a socket.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use tokenring::clock::{Rate, Tick};
use tokenring::config::PhasePlan;
use tokenring::schedule::{Counts, Course, IntentKind, Schedule, Shard, Verdict};

/// One request that a worker sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) session: u64,
    pub(crate) turn: u64,
    pub(crate) due: Tick,
    pub(crate) at: Tick,
    /// When its first content came, where prefills are limited.
    pub(crate) content: Tick,
}

/// What one worker did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Played {
    pub(crate) sent: Vec<Sent>,
    /// Most sessions open at once.
    pub(crate) peak_open: u64,
    /// At the first `Done`.
    pub(crate) counts: Counts,
    pub(crate) unsent: u64,
}

/// The imagined world, each answer a pure function of its argument.
pub(crate) struct World {
    /// Turns of a session, at least 1.
    pub(crate) turns: fn(session: u64) -> u64,
    /// When the reply to a request sent at the tick ends; not before it.
    pub(crate) reply: fn(number: u64, sent: Tick) -> Tick,
    /// Think time after a request.
    pub(crate) think: fn(number: u64) -> u64,
}

/// Spreads an integer over 64 bits (the finaliser of MurmurHash3), to make irregular but repeatable worlds.
pub(crate) fn scatter(value: u64) -> u64 {
    let mut x = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// Plays all workers of a run; they share nothing, so one after the other.
pub(crate) fn play(plan: &PhasePlan, seed: u64, workers: usize, world: &World) -> Vec<Played> {
    (0..workers)
        .map(|index| {
            let shard = Shard {
                index,
                count: workers,
            };
            Player::new(plan, seed, shard, world).run()
        })
        .collect()
}

/// What happens later: a reply ends, or a think time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Later {
    Content,
    Reply { number: u64, session: u64 },
    Ready { session: u64 },
}

struct Player<'a> {
    schedule: Schedule,
    world: &'a World,
    later: BinaryHeap<Reverse<(Tick, Later)>>,
    ready: VecDeque<u64>,
    next_turn: HashMap<u64, u64>,
    courses: HashMap<u64, Course>,
    played: Played,
    over: bool,
}

/// A run that needs more steps than this hangs.
const STEPS_MAX: usize = 1_000_000;

impl<'a> Player<'a> {
    fn new(plan: &PhasePlan, seed: u64, shard: Shard, world: &'a World) -> Player<'a> {
        Player {
            schedule: Schedule::new(plan, seed, shard, Rate::NANOS, Tick(0)),
            world,
            later: BinaryHeap::new(),
            ready: VecDeque::new(),
            next_turn: HashMap::new(),
            courses: HashMap::new(),
            played: Played {
                sent: Vec::new(),
                peak_open: 0,
                counts: Counts::default(),
                unsent: 0,
            },
            over: false,
        }
    }

    fn run(mut self) -> Played {
        let mut now = Tick(0);
        for _ in 0..STEPS_MAX {
            let wake = match self.schedule.next(now) {
                Verdict::Send(intent) => {
                    assert!(!self.over, "something was sent after Done");
                    self.send(intent.due, intent.kind, now);
                    continue;
                }
                Verdict::WaitUntil(until) => {
                    assert!(until > now, "a wait for the past would spin");
                    until
                }
                Verdict::WaitForSlot => Tick::NEVER,
                Verdict::NeedTurns { session } => {
                    let turns = (self.world.turns)(session);
                    let turns = u32::try_from(turns).expect("sessions are short");
                    self.schedule.tell_turns(turns);
                    continue;
                }
                Verdict::Done => {
                    if !self.over {
                        self.over = true;
                        self.played.counts = self.schedule.counts();
                        self.played.unsent = self.schedule.unsent_arrivals(now);
                    }
                    Tick::NEVER
                }
            };
            let event = self.later.peek().map_or(Tick::NEVER, |e| e.0.0);
            if event <= wake && event < Tick::NEVER {
                now = event;
                self.happen(now);
            } else if wake < Tick::NEVER {
                now = wake;
            } else {
                assert!(
                    self.over,
                    "the schedule waits for something that never comes"
                );
                return self.played;
            }
        }
        panic!("the schedule did not end in {STEPS_MAX} steps");
    }

    fn send(&mut self, due: Tick, kind: IntentKind, now: Tick) {
        let counted = self.schedule.next_request_number();
        let session = match kind {
            IntentKind::Start { session } => {
                let before = self.next_turn.insert(session, 0);
                assert_eq!(before, None, "session {session} was started twice");
                if let Some(course) = self.schedule.course() {
                    assert_eq!(course.session, session);
                    self.courses.insert(session, course);
                }
                session
            }
            IntentKind::Continue => self.ready.pop_front().expect("a turn was ready"),
        };
        let turn = &self.next_turn[&session];
        let number = match self.courses.get(&session) {
            Some(course) => course.number(u32::try_from(*turn).expect("sessions are short")),
            None => counted,
        };
        let end = (self.world.reply)(number, now);
        let content = now.plus(end.since(now) / 3);
        if self.schedule.limits_prefill() {
            self.later.push(Reverse((content, Later::Content)));
        }
        self.played.sent.push(Sent {
            content,
            number,
            session,
            turn: *turn,
            due,
            at: now,
        });
        self.next_turn.entry(session).and_modify(|turn| *turn += 1);
        let open = self.schedule.counts().open_sessions;
        self.played.peak_open = self.played.peak_open.max(open);
        self.later
            .push(Reverse((end, Later::Reply { number, session })));
    }

    fn happen(&mut self, now: Tick) {
        let Some(Reverse((_, event))) = self.later.pop() else {
            return;
        };
        match event {
            Later::Content => self.schedule.prefill_ended(now),
            Later::Reply { number, session } => {
                let turn = self.next_turn[&session];
                let course = self.courses.get_mut(&session);
                let turns = course
                    .as_ref()
                    .map_or_else(|| (self.world.turns)(session), |c| u64::from(c.turns));
                if turn < turns && !self.over {
                    let at = match course {
                        Some(course) => {
                            let turn = u32::try_from(turn).expect("sessions are short");
                            course.next_due(turn, now)
                        }
                        None => now.plus((self.world.think)(number)),
                    };
                    self.later.push(Reverse((at, Later::Ready { session })));
                } else {
                    self.schedule.session_ended(now);
                }
            }
            Later::Ready { .. } if self.over => self.schedule.session_ended(now),
            Later::Ready { session } => {
                self.ready.push_back(session);
                self.schedule.turn_ready(now);
            }
        }
    }
}
