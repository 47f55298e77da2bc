//! Replies whose text is known, in the dialects that most servers speak.
//!
//! In: requests of a simulation. Out: answers, and what each of them said. Never: a reply that no server gives, but for the faults on its way.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tokenring::clock::{Anchor, Calibration, Nanos, Tick};
use tokenring::config::{Command, EndpointKind, Plan, parse};
use tokenring::dataset::Corpus;
use tokenring::driver::simulated::{Answer, Chance, SeenRequest, Server};
use tokenring::endpoint::{Api, Bodies};
use tokenring::metric::Context;
use tokenring::record::{Exchange, Interpreter, Record, reply_of};

use crate::byte_tokenizer::ByteTokenizer;

/// What an answer says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// Its words.
    pub(crate) text: String,
    /// It is a reply and no error, and says where it ends.
    pub(crate) good: bool,
}

/// A dialect, and what was said in it.
pub(crate) struct Replies {
    pub(crate) kind: EndpointKind,
    pub(crate) streaming: bool,
    said: Arc<Mutex<BTreeMap<Vec<u8>, Said>>>,
}

impl Replies {
    /// Either dialect, streamed or not.
    pub(crate) fn random(chance: &mut Chance) -> Replies {
        Replies {
            kind: [EndpointKind::Chat, EndpointKind::Completions][chance.index(2)],
            streaming: chance.below(4) > 0,
            said: Arc::default(),
        }
    }

    /// A server that answers every request, mostly well, and remembers what it said.
    pub(crate) fn server(&self) -> Server {
        let (kind, streaming, said) = (self.kind, self.streaming, Arc::clone(&self.said));
        Box::new(move |seen: &SeenRequest, chance: &mut Chance| {
            let (answer, words) = answer(kind, streaming, chance);
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            // The last answer to a request is the one that counts: earlier ones were lost with their connection.
            said.insert(seen.head.clone(), words);
            answer
        })
    }

    /// What was said to the request of `exchange`.
    pub(crate) fn said(&self, exchange: &Exchange) -> Option<Said> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.get(&exchange.request_head).cloned()
    }

    /// What a later turn would hold of the reply in `exchange`.
    pub(crate) fn heard(&self, exchange: &Exchange) -> Option<String> {
        let (plan, _) = plan(self.kind, self.streaming);
        reply_of(&api(&plan), exchange).map(|reply| reply.text)
    }

    /// What metrics of such replies depend on.
    pub(crate) fn context(&self) -> Context {
        Context::of(&plan(self.kind, self.streaming).0)
    }

    /// Reads exchanges as a run does.
    pub(crate) fn reader(&self) -> impl FnMut(&Exchange) -> Record + use<> {
        let (plan, bodies) = plan(self.kind, self.streaming);
        let api = api(&plan);
        let start = Anchor {
            tick: Tick(0),
            raw_ns: 0,
            monotonic_ns: 0,
            wall_ns: 0,
            width: 0,
        };
        let calibration = Calibration::from_start(start, 1.0);
        let corpus = Arc::default();
        let mut interpreter = Interpreter::new(plan, api, corpus, bodies, Arc::new(ByteTokenizer));
        move |exchange| interpreter.interpret(exchange, &calibration, true)
    }
}

/// What a run of `kind` is asked with, and its bodies, of which there are none. Made once: they cost as much as to play a short run.
fn plan(kind: EndpointKind, streaming: bool) -> (Arc<Plan>, Arc<Bodies>) {
    static PLANS: LazyLock<Vec<(Arc<Plan>, Arc<Bodies>)>> = LazyLock::new(|| {
        let kinds = [EndpointKind::Chat, EndpointKind::Completions];
        let all = kinds
            .into_iter()
            .flat_map(|kind| [(kind, false), (kind, true)]);
        let plans = all.map(|(kind, streaming)| {
            let plan = read_plan(kind, streaming);
            let bodies = Bodies::render_all(&api(&plan), &Corpus::default());
            (Arc::new(plan), Arc::new(bodies))
        });
        plans.collect()
    });
    let place = 2 * usize::from(kind == EndpointKind::Completions) + usize::from(streaming);
    PLANS[place].clone()
}

fn api(plan: &Plan) -> Api {
    Api::new(&plan.endpoint).expect("these dialects have no settings of their own")
}

fn read_plan(kind: EndpointKind, streaming: bool) -> Plan {
    let words = [
        "--model",
        "m",
        "--url",
        "10.0.0.1:80",
        "--endpoint-type",
        kind.name(),
    ];
    let streaming = streaming.then_some("--streaming");
    let words = words.into_iter().chain(streaming);
    match parse(["profile"].into_iter().chain(words).map(Into::into)) {
        Ok(Command::Profile(plan)) => *plan,
        _ => panic!("the words are right"),
    }
}

/// An answer, and what it says.
fn answer(kind: EndpointKind, streaming: bool, chance: &mut Chance) -> (Answer, Said) {
    let mut shape = Answer::random(chance);
    let refusal = chance.below(16) == 0;
    if refusal {
        let status = [400, 404, 429, 500, 503][chance.index(5)];
        let body = r#"{"error":{"message":"not now","type":"refusal"}}"#;
        shape.status = status;
        shape.content_type = "application/json";
        shape.pieces = vec![(Nanos(0), body.as_bytes().to_vec())];
        return (shape, Said::default());
    }
    shape.status = 200;
    let words = words(chance);
    let mut said = Said {
        text: words.concat(),
        good: !words.is_empty(),
    };
    if streaming {
        shape.content_type = "text/event-stream";
        shape.pieces = stream(kind, &words, &mut said, chance);
    } else {
        shape.content_type = "application/json";
        let text = &said.text;
        let body = match kind {
            EndpointKind::Chat => format!(
                r#"{{"choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}]}}"#
            ),
            _ => {
                format!(r#"{{"choices":[{{"index":0,"text":"{text}","finish_reason":"length"}}]}}"#)
            }
        };
        shape.pieces = vec![(Nanos(0), body.into_bytes())];
    }
    (shape, said)
}

/// None to a dozen words, some of several bytes a letter.
fn words(chance: &mut Chance) -> Vec<String> {
    let known = ["one ", "zwei ", "trois, ", "четыре ", "五", "🙂 ", "sete. "];
    let count = chance.below(13);
    (0..count)
        .map(|_| format!("{}{} ", known[chance.index(known.len())], chance.below(100)))
        .collect()
}

/// The events of a streamed reply, each with the time since the one before.
fn stream(
    kind: EndpointKind,
    words: &[String],
    said: &mut Said,
    chance: &mut Chance,
) -> Vec<(Nanos, Vec<u8>)> {
    let line_end = ["\n", "\r\n", "\r"][chance.index(3)];
    let gap = |chance: &mut Chance| Nanos(chance.below(2_000_000) * chance.below(2));
    let event = |data: &str| format!("data: {data}{line_end}{line_end}");
    let mut events = Vec::new();
    if kind == EndpointKind::Chat && chance.below(2) == 0 {
        events.push(event(
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
        ));
    }
    for word in words {
        if chance.below(10) == 0 {
            events.push(format!(": keep-alive{line_end}{line_end}"));
        }
        events.push(event(&match kind {
            EndpointKind::Chat => {
                format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{word}"}}}}]}}"#)
            }
            _ => format!(r#"{{"choices":[{{"index":0,"text":"{word}"}}]}}"#),
        }));
    }
    if chance.below(24) == 0 {
        said.good = false;
        events.push(event(r#"{"error":{"message":"out of memory","code":500}}"#));
    }
    let (finish, done) = [(true, true), (true, false), (false, true), (false, false)]
        [chance.index(16).saturating_sub(12)];
    said.good &= finish || done;
    if finish {
        events.push(event(
            r#"{"choices":[{"index":0,"delta":{},"text":"","finish_reason":"stop"}]}"#,
        ));
    }
    if chance.below(2) == 0 {
        events.push(event(
            r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":5}}"#,
        ));
    }
    if done {
        events.push(event("[DONE]"));
    }
    let paced = events
        .into_iter()
        .map(|event| (gap(chance), event.into_bytes()));
    paced.collect()
}
