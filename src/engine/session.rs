//! One playing of a conversation.
//!
//! In: what was made for it during the run, or the workload. Out: what its turns are, from either. Never: sends, or waits.

use std::sync::Arc;

use crate::clock::Nanos;
use crate::driver::ConnId;
use crate::endpoint::{History, Made, Reply};
use crate::record::ReplyReader;
use crate::schedule::Course;

use super::Workload;

/// One playing of a conversation.
#[derive(Debug)]
pub(super) struct Session {
    /// Number within its phase over all workers.
    pub(super) number: u64,
    pub(super) uuid: u128,
    pub(super) conversation: u32,
    pub(super) turn: u32,
    pub(super) turn_count: u32,
    pub(super) url: u16,
    /// What is said, where it was made during the run; else the workload says it.
    pub(super) made: Option<Arc<Made>>,
    /// What was said in earlier turns; kept only where a later turn needs it.
    pub(super) history: History,
    /// The next turn's body, where it hangs on replies.
    pub(super) body: Option<Arc<[u8]>>,
    /// Reads the reply to the turn under way, where a later one needs it.
    pub(super) reader: Option<ReplyReader>,
    /// Its own connection, with sticky sessions.
    pub(super) conn: Option<ConnId>,
    /// When its turns are due, with users.
    pub(super) course: Option<Course>,
}

impl Session {
    /// The turn under way is its last.
    pub(super) fn is_last_turn(&self) -> bool {
        self.turn + 1 >= self.turn_count
    }

    /// The connection kept for its next turn, which may have been closed since.
    pub(super) fn own_connection(&self) -> Option<ConnId> {
        self.conn
    }

    /// Its next turn goes out on `conn`.
    pub(super) fn keep(&mut self, conn: ConnId) {
        self.conn = Some(conn);
    }

    /// The most tokens that the reply to this turn may have, where the request says so.
    pub(super) fn reply_tokens(&self, workload: &dyn Workload) -> Option<u32> {
        match &self.made {
            Some(made) => made.max_tokens(self.turn),
            None => workload.reply_tokens(self.conversation, self.turn),
        }
    }

    /// When `turn` is due after the phase's start, where it has a time of its own.
    pub(super) fn own_time(&self, workload: &dyn Workload, turn: u32) -> Option<Nanos> {
        match &self.made {
            Some(made) => {
                let ms = made.timestamp_ms(turn)?;
                Some(Nanos::from_seconds(ms / 1e3))
            }
            None => workload.own_time(self.conversation, turn),
        }
    }

    /// Think time before this turn.
    pub(super) fn delay(&self, workload: &dyn Workload) -> Nanos {
        match &self.made {
            Some(made) => Nanos::from_seconds(made.delay_ms(self.turn) / 1e3),
            None => workload.delay(self.conversation, self.turn),
        }
    }

    /// Later turns need what the server said in earlier ones.
    pub(super) fn needs_reply(&self, workload: &dyn Workload) -> bool {
        match &self.made {
            Some(made) => made.needs_reply(),
            None => workload.needs_reply(self.conversation),
        }
    }

    /// This turn was answered with `reply`, or failed.
    pub(super) fn remember(&mut self, workload: &dyn Workload, reply: Option<Reply>) {
        match &self.made {
            Some(made) => made.remember(self.turn, reply, &mut self.history),
            None => workload.remember(self.conversation, self.turn, reply, &mut self.history),
        }
    }

    /// Makes this turn's body, where it was not known before what came before it.
    pub(super) fn make_body(&mut self, workload: &dyn Workload) {
        let (conversation, turn) = (self.conversation, self.turn);
        self.body = match &self.made {
            Some(made) => made
                .body(turn)
                .is_none()
                .then(|| made.live_body(turn, &self.history)),
            None => workload
                .body(conversation, turn)
                .is_none()
                .then(|| workload.live_body(conversation, turn, &self.history)),
        };
    }
}
