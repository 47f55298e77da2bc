//! The corpus as an engine sees it.
//!
//! In: sessions and turns. Out: conversations, bodies, heads. Never: a copy of a body for each request.

use std::sync::Arc;

use crate::clock::Nanos;
use crate::config::Plan;
use crate::dataset::{ContextMode, Corpus, Sampler, Streamed};
use crate::endpoint::{Api, Bodies, HeaderTemplate, History, Made, Reply};
use crate::engine::Workload;
use crate::record::{Exchange, ReplyReader, RequestId, reply_of};
use crate::schedule::Timeline;
use crate::wire::write_request_head;

use super::feeder::WorkerFeed;
use super::marks::Marks;

/// What every worker reads and none writes.
pub(super) struct Material {
    /// The plan.
    pub(super) plan: Arc<Plan>,
    /// Its endpoint.
    pub(super) api: Api,
    /// Conversations; where the dataset is streamed, those of the warmup.
    pub(super) corpus: Arc<Corpus>,
    /// What a feeder makes requests of.
    pub(super) streamed: Option<Arc<Streamed>>,
    /// Their bodies.
    pub(super) bodies: Arc<Bodies>,
    /// What marks the bodies.
    pub(super) marks: Option<Marks>,
    /// Header fields.
    pub(super) headers: HeaderTemplate,
    /// When conversations begin, with a fixed schedule.
    pub(super) timeline: Arc<Timeline>,
    /// Root seed.
    pub(super) seed: u64,
}

/// One worker's workload.
pub(super) struct CorpusWorkload {
    material: Arc<Material>,
    sampler: Sampler,
    /// What the feeder makes, where the dataset is streamed.
    feed: Option<WorkerFeed>,
}

impl CorpusWorkload {
    /// A workload over `material`, or over what `feed` brings.
    pub(super) fn new(material: &Arc<Material>, feed: Option<WorkerFeed>) -> CorpusWorkload {
        // A streamed dataset is played in its schedule's order.
        let count = material.corpus.conversations.len().max(1);
        let sampling = material.plan.dataset.sampling;
        CorpusWorkload {
            sampler: Sampler::new(sampling, count, material.seed, 0),
            material: Arc::clone(material),
            feed,
        }
    }
}

impl Workload for CorpusWorkload {
    fn go_on(&mut self, _phase: usize, used: u64) {
        self.sampler.go_on(used);
    }

    fn pick(&mut self, _phase: usize, session: u64) -> u32 {
        self.sampler.pick(session)
    }

    fn made_below(&self) -> Option<u64> {
        self.feed.as_ref().map(WorkerFeed::made_below)
    }

    fn take_made(&mut self, session: u64) -> Option<Arc<Made>> {
        self.feed.as_mut()?.take(session)
    }

    fn turn_count(&self, conversation: u32) -> u32 {
        let turns = self.material.corpus.conversations[conversation as usize]
            .turns
            .len();
        u32::try_from(turns).unwrap_or(u32::MAX)
    }

    fn delay(&self, conversation: u32, turn: u32) -> Nanos {
        let turns = &self.material.corpus.conversations[conversation as usize].turns;
        Nanos::from_seconds(turns[turn as usize].delay_ms / 1e3)
    }

    fn timeline(&self) -> Arc<Timeline> {
        Arc::clone(&self.material.timeline)
    }

    fn own_time(&self, conversation: u32, turn: u32) -> Option<Nanos> {
        // One that is streamed has one turn, whose time stands in the timeline.
        let conversation = self
            .material
            .corpus
            .conversations
            .get(conversation as usize)?;
        conversation.turns[turn as usize].own_time()
    }

    fn reply_tokens(&self, conversation: u32, turn: u32) -> Option<u32> {
        let turns = &self.material.corpus.conversations[conversation as usize].turns;
        turns[turn as usize].max_tokens
    }

    fn body(&self, conversation: u32, turn: u32) -> Option<Arc<[u8]>> {
        self.material.bodies.body(conversation, turn).cloned()
    }

    fn live_body(&self, conversation: u32, turn: u32, history: &History) -> Arc<[u8]> {
        let material = &*self.material;
        let of = &material.corpus.conversations[conversation as usize];
        let number = (conversation, of);
        material.bodies.live(&material.api, number, turn, history)
    }

    fn own_body(&self, id: &RequestId, body: &[u8]) -> Option<Arc<[u8]>> {
        self.material.marks.as_ref()?.marked(id, body)
    }

    fn needs_reply(&self, conversation: u32) -> bool {
        self.material.corpus.conversations[conversation as usize].context
            == ContextMode::LiveReplies
    }

    fn reader(&self) -> Option<ReplyReader> {
        Some(ReplyReader::new(&self.material.api))
    }

    fn reply(&self, exchange: &Exchange, reader: Option<ReplyReader>) -> Option<Reply> {
        match reader {
            Some(reader) => reader.finish(exchange),
            None => reply_of(&self.material.api, exchange),
        }
    }

    fn remember(&self, conversation: u32, turn: u32, reply: Option<Reply>, history: &mut History) {
        let material = &*self.material;
        material
            .bodies
            .remember(&material.api, conversation, turn, reply, history);
    }

    fn shows_content(&self, data: &[u8]) -> bool {
        self.material.api.shows_content(data)
    }

    fn write_head(
        &self,
        out: &mut Vec<u8>,
        id: &RequestId,
        request_uuid: u128,
        body_length: usize,
    ) {
        let headers = &self.material.headers;
        let url = &self.material.plan.endpoint.urls[usize::from(id.url)];
        // A conversation that is streamed has none of its own.
        let conversation = self
            .material
            .corpus
            .conversations
            .get(id.conversation as usize);
        let turn = conversation.and_then(|found| found.turns.get(id.turn as usize));
        let of_turn = turn.map_or(&[][..], |turn| &turn.headers);
        let own;
        let host = match headers.host_override() {
            Some(host) => host,
            None => {
                own = url.host_header();
                &own
            }
        };
        let fields = |out: &mut Vec<u8>| headers.write(out, request_uuid, id.session_uuid, of_turn);
        write_request_head(out, "POST", &url.target, host, fields, body_length);
    }
}
