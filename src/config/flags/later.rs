//! AIPerf's flags that are planned.
//!
//! In: nothing. Out: rows of the flag table, each with the sentence that refuses it. Never: a flag that does something.

use super::{Flag, Kind::*, Status, refused_table};

/// Flags refused until their part is built, grouped by the sentence that says so.
pub const LATER: &[Flag] = refused_table! {
    Later "clearing the server's prefix cache before a run is planned; send the request yourself beforehand" {
        ["--reset-kv-cache"] Switch;
        ["--reset-kv-cache-timeout-seconds"] Text;
        ["--reset-kv-cache-path"] Text;
    }
    Later "starting and stopping the server's own profiler is planned; send the requests yourself" {
        ["--server-profiler"] Switch;
        ["--server-profiler-timeout-seconds"] Text;
        ["--server-profiler-start-path"] Text;
        ["--server-profiler-stop-path"] Text;
    }
    Later "the only public dataset that is read, sharegpt, has no subsets; give a file of your own with --input-file" {
        ["--hf-subset"] Text;
    }
    Later "only a baseten_trace has it, which is not read; --synthesis-speedup-ratio divides the times of other traces" {
        ["--replay-speedup"] Text;
    }
    Later "only a baseten_trace has it, which is not read; mooncake_trace, bailian_trace and burst_gpt_trace are" {
        ["--trace-session-sample-ratio"] Text;
        ["--max-idle-gap-cap-seconds"] Text;
        ["--open-loop-replay", "--no-open-loop-replay"] Switch;
        ["--open-loop-strict"] Switch;
        ["--omit-kv-hints"] Switch;
        ["--force-min-tokens", "--no-force-min-tokens"] Switch;
    }
    Later "YAML configuration is planned; give the settings as flags" {
        ["--config", "-f"] Text;
    }
    Later "scraping the server's Prometheus metrics is planned; --no-server-metrics is accepted" {
        ["--server-metrics"] List;
        ["--server-metrics-formats"] List;
    }
    Later "network latency probes are planned; connection times are in the HTTP trace" {
        ["--network-latency-automatic"] Switch;
        ["--network-latency-mean"] Text;
        ["--network-latency-ping-interval"] Text;
    }
    Later "GPU telemetry is planned; --no-gpu-telemetry is accepted" {
        ["--gpu-telemetry"] List;
    }
    Later "repeated runs are planned; run the command once for each" {
        ["--num-profile-runs"] Text;
        ["--profile-run-cooldown-seconds"] Text;
        ["--confidence-level"] Text;
        ["--profile-run-disable-warmup-after-first", "--no-profile-run-disable-warmup-after-first"] Switch;
        ["--set-consistent-seed", "--no-set-consistent-seed"] Switch;
        ["--vary-seed-per-trial", "--no-vary-seed-per-trial"] Switch;
        ["--convergence-metric"] Text;
        ["--convergence-stat"] Text;
        ["--convergence-threshold"] Text;
        ["--convergence-mode"] Text;
    }
    Later "sweeps are planned; run one load at a time" {
        ["--parameter-sweep-cooldown-seconds"] Text;
        ["--parameter-sweep-same-seed", "--no-parameter-sweep-same-seed"] Switch;
        ["--parameter-sweep-mode"] Text;
        ["--sweep-type"] Text;
        ["--no-sweep-table"] Switch;
        ["--variant", "--sweep-variant"] List;
    }
    Later "searching for the best load is planned; run one load at a time" {
        ["--search-space"] List;
        ["--search-metric"] Text;
        ["--search-stat"] Text;
        ["--search-direction"] Text;
        ["--search-max-iterations"] Text;
        ["--search-initial-points"] Text;
        ["--search-random-seed"] Text;
        ["--search-planner"] Text;
        ["--search-percentile-pooling"] Text;
        ["--search-sla"] List;
        ["--search-sla-tier"] List;
        ["--search-recipe"] Text;
        ["--ttft-sla-ms"] Text;
        ["--isl-osl-pairs"] Text;
        ["--itl-sla-ms"] Text;
        ["--tpot-sla-ms"] Text;
        ["--e2e-sla-ms"] Text;
        ["--error-rate-sla"] Text;
        ["--slo-attainment-fraction"] Text;
        ["--search-style"] Text;
        ["--degradation-threshold"] Text;
        ["--degradation-metric-tag"] Text;
        ["--degradation-stat"] Text;
        ["--isl-min"] Text;
        ["--isl-max"] Text;
        ["--isl-steps"] Text;
        ["--concurrency-min"] Text;
        ["--concurrency-max"] Text;
        ["--concurrency-steps"] Text;
        ["--osl-min"] Text;
        ["--osl-max"] Text;
        ["--osl-steps"] Text;
    }
};
