//! AIPerf's flags that stay out.
//!
//! In: nothing. Out: rows of the flag table, each with what AIPerf uses it for and what to do instead. Never: a flag that does
//! something.

use super::{Flag, Kind::*, Status, refused_table};

/// Flags that will not come, grouped by the sentence that refuses them.
pub const NEVER: &[Flag] = refused_table! {
    Never "AIPerf measures video generation with it, which is no LLM traffic" {
        ["--download-video-content"] Switch;
    }
    Never "AIPerf makes videos with it, by FFmpeg, which tokenring does not bring along; give the URLs or data URLs of videos of your own in --input-file" {
        ["--video-batch-size", "--batch-size-video"] Text;
        ["--video-duration"] Text;
        ["--video-fps"] Text;
        ["--video-width"] Text;
        ["--video-height"] Text;
        ["--video-synth-type"] Text;
        ["--video-format"] Text;
        ["--video-codec"] Text;
        ["--video-audio-sample-rate"] Text;
        ["--video-audio-num-channels"] Text;
        ["--video-audio-codec"] Text;
        ["--video-audio-depth"] Text;
    }
    Never "AIPerf replays Weka agent traces with it, which this program does not" {
        ["--hf-weka-dataset"] Text;
        ["--use-think-time-only"] Switch;
        ["--max-context-length"] Text;
        ["--trace-idle-gap-cap-seconds"] Text;
    }
    Never "AIPerf filters its agent datasets with it; filter the file yourself" {
        ["--dataset-filter"] List;
    }
    Never "AIPerf tunes its agentic replay with it, which this program does not do" {
        ["--allow-dataset-wrap", "--no-allow-dataset-wrap"] Switch;
        ["--trajectory-start-min-ratio"] Text;
        ["--trajectory-start-max-ratio"] Text;
        ["--burst-phase-starts"] Switch;
        ["--system-idle-gap-cap-seconds"] Text;
        ["--agentic-cache-warmup-duration"] Text;
        ["--agentic-warmup-grace-period"] Text;
    }
    Never "AIPerf draws plots after the run with it; the CSV and JSON files hold the numbers" {
        ["--auto-plot", "--no-auto-plot"] Switch;
        ["--plot-required"] Switch;
    }
    Never "AIPerf streams metrics to OpenTelemetry with it; read the JSON files instead" {
        ["--otel-url"] Text;
        ["--stream"] List;
        ["--otel-resource-attributes"] List;
        ["--gen-ai-provider"] Text;
    }
    Never "AIPerf uploads results to MLflow with it; upload the artifact folder yourself" {
        ["--mlflow-tracking-uri"] Text;
        ["--mlflow-experiment"] Text;
        ["--mlflow-run-name"] Text;
        ["--mlflow-tag"] List;
        ["--mlflow-parent-run-id"] Text;
        ["--mlflow-artifact-glob"] List;
    }
    Never "AIPerf uploads results to Weights & Biases with it; upload the artifact folder yourself" {
        ["--wandb-project"] Text;
        ["--wandb-entity"] Text;
        ["--wandb-run-name"] Text;
        ["--wandb-tag"] List;
    }
    Never "AIPerf runs Python code from a model's repository with it; this program runs no Python" {
        ["--tokenizer-trust-remote-code"] Switch;
    }
    Never "AIPerf locks settings to a contest scenario with it; give the settings as flags" {
        ["--scenario"] Text;
        ["--unsafe-override"] Switch;
    }
    Never "AIPerf sizes its record processes with it; records are handled inside one process here" {
        ["--record-processor-service-count", "--record-processors"] Text;
    }
    Never "AIPerf serves a control API with it; progress goes to the terminal here" {
        ["--api-port"] Text;
        ["--api-host"] Text;
    }
    Never "AIPerf sets up its internal message bus with it; there is none here" {
        ["--zmq-host"] Text;
        ["--zmq-ipc-path"] Text;
        ["--zmq-dual-bind"] Switch;
    }
    Never "AIPerf grades answers with it; this program measures load, not quality" {
        ["--accuracy-benchmark"] Text;
        ["--accuracy-tasks"] List;
        ["--accuracy-n-shots"] Text;
        ["--accuracy-enable-cot", "--accuracy-no-enable-cot"] Switch;
        ["--accuracy-grader"] Text;
        ["--accuracy-system-prompt"] Text;
        ["--accuracy-verbose"] Switch;
    }
    Never "AIPerf tunes its Python search planner with it, which this program does not have" {
        ["--optuna-sampler"] Text;
        ["--optuna-acquisition"] Text;
        ["--optuna-terminator"] Text;
        ["--bo-constraint-mode"] Text;
    }
};
