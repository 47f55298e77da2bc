//! In: plans. Out: what their corpora must hold. Never: a file, or the network.

use serde_json::Value;

use super::fit::Fitter;
use super::pieces::Pieces;
use super::*;
use crate::clock::Nanos;
use crate::config::*;
use crate::tokenizer::{JsonTokenizer, ShippedTokenizer};

/// A plan whose dataset part matters only.
pub(super) fn plan(synthetic: SyntheticPlan, entries: usize) -> Plan {
    Plan {
        models: vec!["first".to_owned(), "second".to_owned()],
        model_selection: ModelSelection::RoundRobin,
        endpoint: EndpointPlan {
            streaming: true,
            built_in_server: true,
            request_timeout: Nanos::from_millis(1_000),
            time_limits: crate::config::TimeLimits::default(),
            ..EndpointPlan::plain(EndpointKind::Chat)
        },
        tokenizer: TokenizerPlan {
            apply_chat_template: false,
            name: None,
            revision: "main".to_owned(),
        },
        dataset: DatasetPlan {
            source: DatasetSource::Synthetic(synthetic),
            entries,
            sampling: Sampling::Sequential,
            output_tokens: None,
            system_prompt: None,
            prompts: PromptPlan::default(),
            fixed_schedule: None,
            trace: crate::config::TracePlan::default(),
            streaming: Streaming::Auto,
        },
        phases: Vec::new(),
        goodput: Vec::new(),
        output: OutputPlan {
            directory: PathBuf::new(),
            prefix: None,
            level: ExportLevel::Summary,
            outputs_json: false,
            http_trace: false,
            show_trace_timing: false,
            ui: UiKind::None,
            log_level: LogLevel::Info,
            stats_interval: None,
            slices: None,
        },
        workers: WorkerPlan::default(),
        random_seed: None,
        failed_request_threshold: None,
        cancellation: None,
        cli_command: String::new(),
        input_config: Value::Null,
    }
}

pub(super) fn synthetic(tokens: f64) -> SyntheticPlan {
    SyntheticPlan {
        input_tokens: Length::constant(tokens),
        pairs: Vec::new(),
        batch_size: 1,
        rankings: None,
        corpus: CorpusKind::Sonnet,
        turns: Length::constant(1.0),
        delay_ms: Length::constant(0.0),
        delay_ratio: 1.0,
        prefix_pool: 0,
        prefix_tokens: 0,
        shared_system_tokens: None,
        user_context_tokens: None,
    }
}

/// Lengths tested: all up to 300 and a spread to 8,192; every one with `TOKENRING_FULL=1`.
fn lengths() -> Vec<usize> {
    if std::env::var_os("TOKENRING_FULL").is_some_and(|value| value == "1") {
        return (1..=8_192).collect();
    }
    (1..=300)
        .chain([511, 777, 1_024, 2_047, 4_096, 8_191, 8_192])
        .collect()
}

#[test]
fn every_length_is_hit_exactly_with_every_shipped_tokenizer() {
    for name in ["gpt2", "p50k_base", "cl100k_base", "o200k_base"] {
        let tokenizer = ShippedTokenizer::new(name).unwrap();
        for kind in [CorpusKind::Sonnet, CorpusKind::Coding, CorpusKind::Random] {
            let pieces = Pieces::new(kind, &tokenizer, 1, 0);
            let fitter = Fitter {
                pieces: &pieces,
                tokenizer: &tokenizer,
            };
            let mut missed = Vec::new();
            for length in lengths() {
                let fitted = fitter.fit("", length * 7_919, length);
                let ids = tokenizer.encode(&fitted.text);
                if ids.len() != length
                    || fitted.off_by != 0
                    || tokenizer.decode(&ids) != fitted.text
                {
                    missed.push((length, ids.len(), fitted.off_by));
                }
            }
            assert!(missed.is_empty(), "{name} {kind:?}: {missed:?}");
        }
    }
}

fn built(plan: &Plan, seed: u64) -> (Corpus, Vec<String>) {
    static TOKENIZER: std::sync::LazyLock<ShippedTokenizer> =
        std::sync::LazyLock::new(|| ShippedTokenizer::new("gpt2").unwrap());
    build(plan, &*TOKENIZER, seed).unwrap()
}

fn count(text: &str) -> usize {
    static TOKENIZER: std::sync::LazyLock<ShippedTokenizer> =
        std::sync::LazyLock::new(|| ShippedTokenizer::new("gpt2").unwrap());
    TOKENIZER.count(text)
}

/// A tokenizer whose tokens are single bytes, or `width` bytes at once, over any border of words.
struct Blocks {
    width: usize,
    added: usize,
}

impl Tokenizer for Blocks {
    fn name(&self) -> &str {
        "blocks"
    }
    fn encode(&self, text: &str) -> Vec<u32> {
        text.as_bytes()
            .chunks(self.width)
            .map(|block| block.iter().fold(1, |id, byte| id << 8 | u32::from(*byte)))
            .collect()
    }
    fn decode(&self, ids: &[u32]) -> String {
        let bytes = ids
            .iter()
            .flat_map(|id| id.to_be_bytes())
            .filter(|byte| *byte > 1);
        String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
    }
    fn vocabulary_size(&self) -> u32 {
        256
    }
    fn added_special_count(&self) -> usize {
        self.added
    }
}

/// Knows no token at all.
struct Silent;

impl Tokenizer for Silent {
    fn name(&self) -> &str {
        "silent"
    }
    fn encode(&self, _text: &str) -> Vec<u32> {
        Vec::new()
    }
    fn decode(&self, _ids: &[u32]) -> String {
        String::new()
    }
    fn vocabulary_size(&self) -> u32 {
        0
    }
}

#[test]
fn odd_tokenizers_get_exact_lengths_or_a_note() {
    for (width, kind) in [
        (1, CorpusKind::Sonnet),
        (1, CorpusKind::Random),
        (2, CorpusKind::Coding),
        (3, CorpusKind::Sonnet),
    ] {
        let tokenizer = Blocks { width, added: 0 };
        for length in [1_u16, 2, 3, 7, 50, 333] {
            let mut synthetic = synthetic(f64::from(length));
            synthetic.corpus = kind;
            let (corpus, notes) = build(&plan(synthetic, 20), &tokenizer, 3).unwrap();
            let counts: Vec<usize> = corpus
                .conversations
                .iter()
                .map(|one| tokenizer.count(&one.turns[0].texts[0]))
                .collect();
            let missed = counts
                .iter()
                .filter(|count| **count != usize::from(length))
                .count();
            assert!(missed == 0, "width {width} length {length}: {counts:?}");
            assert!(notes.is_empty(), "{notes:?}");
        }
    }
    let error = build(&plan(synthetic(5.0), 1), &Silent, 3).unwrap_err();
    assert!(error.to_string().contains("--tokenizer silent"), "{error}");
}

#[test]
fn a_length_that_cannot_be_hit_is_said_with_its_distance() {
    /// Every text has an even number of tokens.
    struct Even;
    impl Tokenizer for Even {
        fn name(&self) -> &str {
            "even"
        }
        fn encode(&self, text: &str) -> Vec<u32> {
            text.split_ascii_whitespace()
                .flat_map(|word| [short_id(word), 0])
                .collect()
        }
        fn decode(&self, ids: &[u32]) -> String {
            format!("{ids:?}")
        }
        fn vocabulary_size(&self) -> u32 {
            100
        }
    }
    fn short_id(word: &str) -> u32 {
        u32::try_from(word.len()).unwrap()
    }
    let (corpus, notes) = build(&plan(synthetic(7.0), 10), &Even, 3).unwrap();
    assert!(
        corpus
            .conversations
            .iter()
            .all(|one| Even.count(&one.turns[0].texts[0]).abs_diff(7) == 1)
    );
    assert!(
        notes[0].starts_with("10 of 10 prompts") && notes[0].ends_with("1 tokens"),
        "{notes:?}"
    );
    let (_, notes) = build(&plan(synthetic(8.0), 10), &Even, 3).unwrap();
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn a_corpus_depends_on_the_seed_and_not_on_threads() {
    for kind in [CorpusKind::Sonnet, CorpusKind::Coding, CorpusKind::Random] {
        let mut shape = synthetic(60.0);
        shape.corpus = kind;
        shape.input_tokens.stddev = 20.0;
        shape.turns = Length {
            mean: 3.0,
            stddev: 1.0,
        };
        shape.batch_size = 2;
        shape.prefix_pool = 3;
        shape.prefix_tokens = 10;
        let mut plan = plan(shape.clone(), 17);
        plan.model_selection = ModelSelection::Random;
        let tokenizer = ShippedTokenizer::new("gpt2").unwrap();
        let shown = |threads, seed| {
            let (corpus, _) =
                synthetic::build_with_threads(&plan, &shape, &tokenizer, seed, threads).unwrap();
            format!("{corpus:?}")
        };
        let one = shown(1, 9);
        for threads in [2, 3, 16, 100] {
            assert!(shown(threads, 9) == one, "{kind:?} with {threads} threads");
        }
        assert!(shown(1, 10) != one, "{kind:?}");
    }
}

#[test]
fn conversations_have_the_asked_shape() {
    let mut shape = synthetic(40.0);
    shape.turns = Length {
        mean: 4.0,
        stddev: 2.0,
    };
    shape.delay_ms = Length {
        mean: 100.0,
        stddev: 10.0,
    };
    shape.delay_ratio = 0.5;
    shape.batch_size = 3;
    shape.shared_system_tokens = Some(25);
    shape.user_context_tokens = Some(12);
    let mut plan = plan(shape, 60);
    plan.dataset.output_tokens = Some(Length {
        mean: 20.7,
        stddev: 5.0,
    });
    let (corpus, notes) = built(&plan, 5);
    assert!(notes.is_empty());
    assert_eq!(corpus.conversations.len(), 60);
    let ids: std::collections::HashSet<&str> = corpus
        .conversations
        .iter()
        .map(|one| one.id.as_str())
        .collect();
    assert_eq!(ids.len(), 60);
    assert!(
        ids.iter()
            .all(|id| uuid::Uuid::parse_str(id).is_ok_and(|uuid| uuid.get_version_num() == 4))
    );
    let system = corpus.conversations[0].system.clone().unwrap();
    assert_eq!(count(&system), 25);
    let mut turn_counts = std::collections::HashSet::new();
    let mut overall = 0;
    for one in &corpus.conversations {
        assert_eq!(one.system.as_ref(), Some(&system));
        assert_eq!(count(one.user_context.as_ref().unwrap()), 12);
        assert_eq!(one.context, ContextMode::LiveReplies);
        turn_counts.insert(one.turns.len());
        for (number, turn) in one.turns.iter().enumerate() {
            assert_eq!(turn.texts.len(), 3);
            assert!(turn.texts.iter().all(|text| count(text) == 40));
            assert_eq!(turn.role, "user");
            assert_eq!(turn.model, ["first", "second"][overall % 2]);
            assert!((1..60).contains(&turn.max_tokens.unwrap()));
            assert!(
                if number == 0 {
                    turn.delay_ms == 0.0
                } else {
                    (25.0..75.0).contains(&turn.delay_ms)
                },
                "{}",
                turn.delay_ms
            );
            overall += 1;
        }
    }
    assert!(turn_counts.len() > 3, "{turn_counts:?}");
    let contexts: std::collections::HashSet<_> = corpus
        .conversations
        .iter()
        .map(|one| &one.user_context)
        .collect();
    assert!(contexts.len() > 50);
}

#[test]
fn prefixes_come_from_the_pool_and_add_to_the_length_of_first_turns_only() {
    let mut shape = synthetic(30.0);
    shape.turns = Length::constant(2.0);
    shape.prefix_pool = 3;
    shape.prefix_tokens = 20;
    let (corpus, _) = built(&plan(shape, 40), 5);
    let mut openings = std::collections::HashMap::new();
    for one in &corpus.conversations {
        assert_eq!(count(&one.turns[0].texts[0]), 50);
        assert_eq!(count(&one.turns[1].texts[0]), 30);
        let opening: String = one.turns[0].texts[0].chars().take(40).collect();
        *openings.entry(opening).or_insert(0) += 1;
    }
    assert_eq!(openings.len(), 3, "{openings:?}");
}

#[test]
fn markers_have_their_room_and_their_tokens() {
    let gpt2 = ShippedTokenizer::new("gpt2").unwrap();
    let cost = cache_bust::marker_tokens(&gpt2);
    assert!((6..20).contains(&cost), "{cost}");
    let mut shape = synthetic(60.0);
    shape.turns = Length::constant(2.0);
    let room = cache_bust::MARKER_ROOM;
    for (target, system) in [
        (CacheBust::SystemPrefix, None),
        (CacheBust::SystemSuffix, Some("Be brief.")),
        (CacheBust::FirstTurnPrefix, Some("Be brief.")),
        (CacheBust::FirstTurnSuffix, None),
    ] {
        let mut plan = plan(shape.clone(), 5);
        plan.dataset.system_prompt = system.map(str::to_owned);
        plan.dataset.prompts.cache_bust = Some(target);
        let (corpus, _) = built(&plan, 5);
        for one in &corpus.conversations {
            let (first, second) = (&one.turns[0].texts[0], &one.turns[1].texts[0]);
            let system = one.system.as_deref();
            let bare = match target {
                CacheBust::SystemPrefix => {
                    assert_eq!(system, Some(room));
                    Some(first.as_str())
                }
                CacheBust::SystemSuffix => {
                    assert_eq!(system, Some(format!("Be brief.\n\n{room}").as_str()));
                    Some(first.as_str())
                }
                CacheBust::FirstTurnPrefix => first.strip_prefix(&format!("{room}\n\n")),
                _ => first.strip_suffix(&format!("\n\n{room}")),
            };
            assert_eq!(count(bare.unwrap()), 60 - cost, "{target:?}");
            assert_eq!(count(second), 60, "{target:?}");
        }
    }
}

#[test]
fn room_for_a_marker_is_made_in_every_turn_that_stands_alone() {
    let turn = |texts: &[&str]| Turn {
        texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        ..Turn::default()
    };
    let mut corpus = Corpus {
        conversations: vec![Conversation {
            turns: vec![turn(&["a", "b"]), turn(&[])],
            context: ContextMode::SelfContained,
            ..Conversation::default()
        }],
        ..Corpus::default()
    };
    cache_bust::make_room(CacheBust::FirstTurnPrefix, &mut corpus).unwrap();
    let room = cache_bust::MARKER_ROOM;
    let turns = &corpus.conversations[0].turns;
    assert_eq!(turns[0].texts, [&format!("{room}\n\na"), "b"]);
    assert_eq!(turns[1].texts, [room]);
    corpus.conversations[0].turns[1].payload = Some("{}".into());
    let error = cache_bust::make_room(CacheBust::FirstTurnPrefix, &mut corpus).unwrap_err();
    assert!(error.to_string().starts_with("--cache-bust: "), "{error}");
}

#[test]
fn a_verbatim_system_prompt_stays_as_it_is() {
    let mut plan = plan(synthetic(5.0), 2);
    plan.dataset.system_prompt = Some("Be brief.".to_owned());
    let (corpus, _) = built(&plan, 5);
    assert!(
        corpus
            .conversations
            .iter()
            .all(|one| one.system.as_deref() == Some("Be brief."))
    );
}

#[test]
fn pairs_give_both_lengths_in_one_draw() {
    let mut shape = synthetic(999.0);
    let pair = |input, output, percent| LengthPair {
        input: Length::constant(input),
        output: Length::constant(output),
        percent,
    };
    shape.pairs = vec![pair(10.0, 100.0, 75.0), pair(20.0, 200.0, 25.0)];
    let mut plan = plan(shape, 400);
    plan.dataset.output_tokens = Some(Length::constant(7.0));
    let (corpus, _) = built(&plan, 5);
    let mut short = 0;
    for one in &corpus.conversations {
        let turn = &one.turns[0];
        match count(&turn.texts[0]) {
            10 => {
                assert_eq!(turn.max_tokens, Some(100));
                short += 1;
            }
            20 => assert_eq!(turn.max_tokens, Some(200)),
            other => panic!("{other} tokens"),
        }
    }
    // Five standard deviations of a binomial count with mean 300.
    assert!((256..344).contains(&short), "{short}");
}

#[test]
fn a_window_gives_both_lengths() {
    let mut plan = plan(synthetic(100.0), 600);
    plan.dataset.output_tokens = Some(Length::constant(40.0));
    plan.dataset.prompts.ranges = Some(RangePlan {
        input: 0.25,
        output: 0.5,
    });
    let (corpus, _) = built(&plan, 5);
    let turns = corpus.conversations.iter().map(|one| &one.turns[0]);
    let (inputs, outputs): (Vec<usize>, Vec<u32>) = turns
        .map(|turn| (count(&turn.texts[0]), turn.max_tokens.unwrap()))
        .unzip();
    let ends = |of: &[usize]| (*of.iter().min().unwrap(), *of.iter().max().unwrap());
    assert_eq!(ends(&inputs), (75, 125));
    let outputs: Vec<usize> = outputs.into_iter().map(|n| n as usize).collect();
    assert_eq!(ends(&outputs), (20, 60));
}

#[test]
fn random_prompts_differ_by_style_and_share_nothing() {
    let mut shape = synthetic(50.0);
    shape.corpus = CorpusKind::Random;
    let mut plan = plan(shape, 200);
    for style in [RandomStyle::Vllm, RandomStyle::Sglang] {
        plan.dataset.prompts.style = style;
        let (corpus, notes) = built(&plan, 5);
        assert!(notes.is_empty(), "{notes:?}");
        let mut openings = std::collections::HashSet::new();
        for one in &corpus.conversations {
            let text = &one.turns[0].texts[0];
            assert_eq!(count(text), 50, "{text}");
            openings.insert(text.chars().take(20).collect::<String>());
        }
        assert!(openings.len() > 195, "{} of 200 differ", openings.len());
    }
}

#[test]
fn token_ids_stand_in_the_texts_place() {
    let mut shape = synthetic(33.0);
    shape.batch_size = 2;
    let mut plan = plan(shape, 9);
    let (texts, _) = built(&plan, 5);
    plan.dataset.prompts.token_ids = true;
    let (ids, _) = built(&plan, 5);
    let gpt2 = ShippedTokenizer::new("gpt2").unwrap();
    for (one, other) in texts.conversations.iter().zip(&ids.conversations) {
        let (text, ids) = (&one.turns[0].texts, &other.turns[0].token_ids);
        assert!(other.turns[0].texts.is_empty());
        assert_eq!(ids.iter().map(Vec::len).collect::<Vec<_>>(), [33, 33]);
        let back: Vec<String> = ids.iter().map(|ids| gpt2.decode(ids)).collect();
        assert_eq!(&back, text);
    }
}

#[test]
fn lengths_follow_the_distribution_and_special_tokens_are_taken_off() {
    let mut shape = synthetic(100.0);
    shape.input_tokens.stddev = 10.0;
    let (corpus, _) = built(&plan(shape, 500), 5);
    let lengths: Vec<f64> = corpus
        .conversations
        .iter()
        .map(|one| count(&one.turns[0].texts[0]) as f64)
        .collect();
    let mean = lengths.iter().sum::<f64>() / 500.0;
    assert!((mean - 100.5).abs() < 2.3, "{mean}");
    let tokenizer = Blocks { width: 1, added: 2 };
    let (corpus, _) = build(&plan(synthetic(100.0), 1), &tokenizer, 5).unwrap();
    assert_eq!(corpus.conversations[0].turns[0].texts[0].len(), 98);
}

#[test]
fn prompts_longer_than_the_corpus_go_round() {
    let mut shape = synthetic(150_000.0);
    shape.corpus = CorpusKind::Coding;
    let (corpus, notes) = built(&plan(shape, 1), 5);
    assert_eq!(count(&corpus.conversations[0].turns[0].texts[0]), 150_000);
    assert!(notes.is_empty());
}

#[test]
fn no_entries_is_an_error_that_names_the_flag() {
    let error = build(&plan(synthetic(5.0), 0), &Blocks { width: 1, added: 0 }, 1).unwrap_err();
    assert!(
        error.to_string().contains("--num-dataset-entries"),
        "{error}"
    );
}

#[test]
fn a_file_gets_models_limits_and_the_system_prompt_of_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.jsonl");
    std::fs::write(
        &path,
        "{\"text\": \"a\", \"output_length\": 3}\n{\"text\": \"b\"}\n",
    )
    .unwrap();
    let mut plan = plan(synthetic(1.0), 1);
    plan.dataset.source = DatasetSource::File(FilePlan::new(path.clone(), FileFormat::SingleTurn));
    plan.dataset.output_tokens = Some(Length::constant(9.0));
    plan.dataset.system_prompt = Some("S".to_owned());
    let (corpus, _) = built(&plan, 1);
    let shown: Vec<_> = corpus
        .conversations
        .iter()
        .map(|one| {
            (
                one.turns[0].model.as_str(),
                one.turns[0].max_tokens,
                one.system.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("first", Some(3), Some("S")),
            ("second", Some(9), Some("S"))
        ]
    );
    plan.dataset.source = DatasetSource::File(FilePlan::new(
        path.with_extension("missing"),
        FileFormat::SingleTurn,
    ));
    let error = build(&plan, &Silent, 1).unwrap_err().to_string();
    assert!(
        error.starts_with("--input-file ") && error.contains("in.missing"),
        "{error}"
    );
}

/// `TOKENRING_TOKENIZER_FILES` may name more files of the same format, with colons between them.
#[test]
fn tokenizers_from_files_get_exact_lengths_too() {
    let more = std::env::var("TOKENRING_TOKENIZER_FILES").unwrap_or_default();
    let mut texts = vec![("tiny".to_owned(), crate::tokenizer::tests::tiny_json())];
    for path in more.split(':').filter(|path| !path.is_empty()) {
        texts.push((path.to_owned(), std::fs::read_to_string(path).unwrap()));
    }
    let gpt2 = ShippedTokenizer::new("gpt2").unwrap();
    for (name, text) in texts {
        let tokenizer = JsonTokenizer::parse(&name, &text).unwrap();
        for kind in [CorpusKind::Sonnet, CorpusKind::Coding, CorpusKind::Random] {
            let pieces = Pieces::new(kind, &tokenizer, 1, 0);
            let fitter = Fitter {
                pieces: &pieces,
                tokenizer: &tokenizer,
            };
            let mut missed = Vec::new();
            for length in (1..=100).chain([500, 1_000, 8_192]) {
                let fitted = fitter.fit("", length * 7_919, length);
                if tokenizer.count(&fitted.text) != length {
                    missed.push((length, fitted.off_by));
                }
                if name.contains("gpt2") {
                    assert_eq!(
                        tokenizer.encode(&fitted.text),
                        gpt2.encode(&fitted.text),
                        "{kind:?}"
                    );
                }
            }
            assert!(missed.is_empty(), "{name} {kind:?}: {missed:?}");
        }
    }
}
