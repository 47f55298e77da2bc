//! In: plans. Out: what their corpora must hold. Never: a file, or the network.

use serde_json::Value;

use super::fit::Fitter;
use super::pieces::Pieces;
use super::*;
use crate::clock::Nanos;
use crate::config::*;
use crate::tokenizer::ShippedTokenizer;

/// A plan whose dataset part matters only.
fn plan(synthetic: SyntheticPlan, entries: usize) -> Plan {
    Plan {
        models: vec!["first".to_owned(), "second".to_owned()],
        model_selection: ModelSelection::RoundRobin,
        endpoint: EndpointPlan {
            kind: EndpointKind::Chat,
            streaming: true,
            urls: Vec::new(),
            built_in_server: true,
            custom_path: None,
            request_timeout: Nanos::from_millis(1_000),
            api_key: None,
            headers: Vec::new(),
            session_header: None,
            extra_inputs: Map::new(),
            use_legacy_max_tokens: false,
            use_server_token_count: false,
            per_chunk_usage: false,
            reuse: ConnectionReuse::Pooled,
            wait_for_model: None,
        },
        tokenizer: TokenizerPlan {
            name: None,
            revision: "main".to_owned(),
        },
        dataset: DatasetPlan {
            source: DatasetSource::Synthetic(synthetic),
            entries,
            sampling: Sampling::Sequential,
            output_tokens: None,
            system_prompt: None,
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
        },
        workers: WorkerPlan::default(),
        random_seed: None,
        failed_request_threshold: None,
        cli_command: String::new(),
        input_config: Value::Null,
    }
}

fn synthetic(tokens: f64) -> SyntheticPlan {
    SyntheticPlan {
        input_tokens: Length::constant(tokens),
        pairs: Vec::new(),
        batch_size: 1,
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
