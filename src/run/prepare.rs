//! What is made before the first request.
//!
//! In: a plan. Out: a tokenizer, a corpus, bodies, addresses. Never: leaves anything for a worker to look up.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::clock::{Nanos, Rate};
use crate::config::{
    Arrivals, LogLevel, PhasePlan, Plan, Problem, Problems, bracketed, check_goodput,
};
use crate::dataset::{self, Begins, Corpus, Dataset};
use crate::driver::StampSource;
use crate::endpoint::{Api, Bodies, HeaderTemplate};
use crate::engine::{ConnectRules, Setup, Target, TlsTarget};
use crate::metric::{Context, slo};
use crate::report::Log;
use crate::schedule::{Players, Timeline, url_order};
use crate::tokenizer::{self, Environment, Tokenizer};
use crate::wire::{Limits, connect_head};

use super::RunError;
use super::marks::Marks;
use super::names;
use super::refresh::{self, Published, Refresher};
use super::tls;
use super::workload::Material;

/// Grace for requests in flight after the first Ctrl-C, in a phase that has none of its own: AIPerf's default grace.
const STOP_GRACE: Nanos = Nanos::from_millis(30_000);

/// A run, ready to start.
pub(super) struct Prepared {
    /// What workers read.
    pub(super) material: Arc<Material>,
    /// Counts the tokens.
    pub(super) tokenizer: Arc<dyn Tokenizer>,
    /// Addresses of each URL.
    pub(super) addresses: Vec<Vec<SocketAddr>>,
    /// What TLS connections begin with.
    tls: tls::Origin,
    /// What the user should know before the run.
    pub(super) notes: Vec<String>,
}

impl Prepared {
    /// Loads, generates, renders and resolves.
    pub(super) fn new(plan: Plan, seed: u64) -> Result<Prepared, RunError> {
        let context = Context::of(&plan);
        let problems = check_goodput(&plan, &slo::applicable_tags(&context));
        if !problems.is_empty() {
            return Err(Problems(problems).into());
        }
        let api = Api::new(&plan.endpoint)?;
        let addresses = names::addresses(&plan.endpoint)?;
        let loaded = tokenizer::load(&plan.tokenizer, &plan.models, &Environment::from_process())?;
        let (dataset, corpus_notes) = dataset::open(&plan, &*loaded.tokenizer, seed)?;
        let (mut corpus, streamed, timeline) = match dataset {
            Dataset::Loaded(corpus) => {
                check_users(&plan, &corpus)?;
                api.check(&corpus, plan.dataset.source.path())?;
                let timeline = Timeline::new(corpus.begins());
                (corpus, None, timeline)
            }
            Dataset::Streamed(streamed, begins) => {
                let corpus = streamed.before_replay(&plan, &*loaded.tokenizer, &begins)?;
                let Begins { due, first, listed } = begins;
                let players = listed.map_or(Players::From(first), Players::Listed);
                let timeline = Timeline::of(due, players);
                (corpus, Some(Arc::from(streamed)), timeline)
            }
        };
        let timeline = Arc::new(timeline);
        let bodies = Arc::new(Bodies::take_all(&api, &mut corpus));
        let headers = HeaderTemplate::new(&api);
        let (plan, corpus) = (Arc::new(plan), Arc::new(corpus));
        Ok(Prepared {
            material: Arc::new(Material {
                marks: Marks::of(&plan, &api),
                plan,
                api,
                corpus,
                streamed,
                bodies,
                headers,
                timeline,
                seed,
            }),
            tokenizer: loaded.tokenizer,
            addresses,
            tls: tls::Origin::default(),
            notes: loaded.note.into_iter().chain(corpus_notes).collect(),
        })
    }

    /// Has names looked up again while the load is on, where the plan asks for it.
    pub(super) fn refresh_names(
        &self,
        names: &Arc<Published>,
    ) -> Result<Option<Refresher>, RunError> {
        let Some(every) = self.material.plan.endpoint.network.refresh else {
            return Ok(None);
        };
        let plan = Arc::clone(&self.material.plan);
        let look_up = move || names::still(&plan.endpoint);
        refresh::start(every, names, self.addresses.clone(), look_up).map(Some)
    }

    /// All addresses that connections may go to.
    pub(super) fn all_addresses(&self) -> Vec<SocketAddr> {
        self.addresses.iter().flatten().copied().collect()
    }

    /// Where requests go, with a TLS session cache of their own.
    pub(super) fn targets(&self) -> Result<Vec<Target>, RunError> {
        let endpoint = &self.material.plan.endpoint;
        let mut targets = Vec::with_capacity(endpoint.urls.len());
        let tls_config = endpoint
            .urls
            .iter()
            .any(|url| url.tls)
            .then(|| self.tls.config(&endpoint.tls))
            .transpose()?;
        for (url, addresses) in endpoint.urls.iter().zip(&self.addresses) {
            let tls = match (&tls_config, url.tls) {
                (Some(config), true) => {
                    let asked = endpoint.tls.server_name.as_ref().unwrap_or(&url.host);
                    let name = rustls::pki_types::ServerName::try_from(asked.clone());
                    let name = name.map_err(|_| RunError::ServerName(asked.clone()))?;
                    Some(TlsTarget {
                        config: Arc::clone(config),
                        name,
                    })
                }
                _ => None,
            };
            targets.push(Target {
                addresses: addresses.clone(),
                tunnel: endpoint.network.proxy.as_ref().map(|proxy| {
                    let authority = format!("{}:{}", bracketed(&url.host), url.port);
                    connect_head(&authority, proxy.authorization.as_deref())
                }),
                tls,
            });
        }
        Ok(targets)
    }

    /// What an engine needs; one for each worker, since TLS sessions are not shared. `stamps` says when bytes arrived.
    pub(super) fn setup(&self, rate: Rate, stamps: StampSource) -> Result<Setup, RunError> {
        let endpoint = &self.material.plan.endpoint;
        Ok(Setup {
            phases: self.phases(),
            targets: self.targets()?,
            url_order: url_order(&endpoint.url_strategy, endpoint.urls.len()),
            reuse: endpoint.reuse,
            connects: ConnectRules {
                head_start: endpoint.network.head_start,
                idle: endpoint.network.keepalive_idle,
            },
            request_timeout: endpoint.request_timeout,
            time_limits: endpoint.time_limits,
            cancellation: self.material.plan.cancellation,
            stop_grace: STOP_GRACE,
            limits: Limits::default(),
            seed: self.material.seed,
            rate,
            stamps,
        })
    }

    /// The plan's phases, with what only the dataset knows.
    fn phases(&self) -> Vec<PhasePlan> {
        let mut phases = self.material.plan.phases.clone();
        let turns = mean_turns(&self.material.corpus);
        for phase in &mut phases {
            if let Arrivals::Users(users) = &mut phase.arrivals {
                users.turns = turns;
            }
        }
        phases
    }

    /// What `--verbose` asks to see in the log.
    pub(super) fn log_details(&self, log: &Log) {
        let material = &self.material;
        let conversations = match material.streamed {
            Some(_) => material.timeline.len(),
            None => material.corpus.conversations.len(),
        };
        let seed = material.seed;
        log.line(
            LogLevel::Debug,
            &format!("dataset: {conversations} conversations, seed {seed}"),
        );
        for (url, addresses) in material.plan.endpoint.urls.iter().zip(&self.addresses) {
            let url = &url.base;
            log.line(LogLevel::Debug, &format!("{url}: addresses {addresses:?}"));
        }
    }

    /// The body of a turn as `inputs.json` shows it: without live replies.
    pub(super) fn body(&self, conversation: usize, turn: usize) -> Option<Cow<'_, [u8]>> {
        let material = &self.material;
        let known = material
            .bodies
            .body(u32::try_from(conversation).ok()?, u32::try_from(turn).ok()?);
        match known {
            Some(body) => Some(Cow::Borrowed(body)),
            None => {
                let conversation = material.corpus.conversations.get(conversation)?;
                Some(Cow::Owned(material.api.render(conversation, turn, &[])))
            }
        }
    }
}

/// Users who have nothing to say after their first turn are no users; only the dataset shows it.
fn check_users(plan: &Plan, corpus: &Corpus) -> Result<(), Problems> {
    let of_users = |phase: &PhasePlan| matches!(phase.arrivals, Arrivals::Users(_));
    let holds = corpus.conversations.iter().any(|c| c.turns.len() > 1);
    if holds || !plan.phases.iter().any(of_users) {
        return Ok(());
    }
    Err(Problems(vec![Problem(
        "--user-centric-rate needs conversations of at least 2 turns, and those of the dataset have one each; use --request-rate"
            .to_owned(),
    )]))
}

/// Turns of a conversation in the mean, rounded with halves to the even number, as AIPerf rounds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, which is meant"
)]
fn mean_turns(corpus: &Corpus) -> u32 {
    let conversations = &corpus.conversations;
    let turns: usize = conversations.iter().map(|c| c.turns.len()).sum();
    (turns as f64 / conversations.len().max(1) as f64).round_ties_even() as u32
}
