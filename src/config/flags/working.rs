//! Flags that do something.
//!
//! In: nothing. Out: rows of the flag table. Never: a flag that is read but has no effect, except the few whose help says that
//! they state what is so anyway.

use super::super::cache_bust::TARGETS as CACHE_BUST_TARGETS;
use super::{Flag, Kind::*, MOST, Status, working_table};

/// Names of rate patterns; `concurrency_burst` is what runs without a rate, and at a rate means `poisson`, as in AIPerf.
const PATTERNS: &[&str] = &["concurrency_burst", "constant", "gamma", "poisson"];

/// API dialects that AIPerf has; those that `config/dialect.rs` has a row for work.
const ENDPOINT_TYPES: &[&str] = &[
    "audio_transcription",
    "chat",
    "cohere_rankings",
    "completions",
    "responses",
    "messages",
    "chat_embeddings",
    "embeddings",
    "hf_tei_rankings",
    "huggingface_generate",
    "image_generation",
    "image_edit",
    "video_generation",
    "image_retrieval",
    "nim_embeddings",
    "nim_rankings",
    "solido_rag",
    "raw",
    "template",
];

/// File formats by name: AIPerf's, and `prompts` and `sharegpt` of our own.
const DATASET_TYPES: &[&str] = &[
    "burst_gpt_trace",
    "bailian_trace",
    "baseten_trace",
    "mooncake_trace",
    "raw_payload",
    "inputs_json",
    "dag_jsonl",
    "sagemaker_data_capture",
    "multi_turn",
    "random_pool",
    "single_turn",
    "prompts",
    "sharegpt",
    "tracelab",
    "weka_trace",
    "speed_bench_qualitative",
    "speed_bench_coding",
    "speed_bench_humanities",
    "speed_bench_math",
    "speed_bench_multilingual",
    "speed_bench_qa",
    "speed_bench_rag",
    "speed_bench_reasoning",
    "speed_bench_roleplay",
    "speed_bench_stem",
    "speed_bench_summarization",
    "speed_bench_writing",
    "speed_bench_throughput_1k",
    "speed_bench_throughput_1k_low_entropy",
    "speed_bench_throughput_1k_mixed",
    "speed_bench_throughput_1k_high_entropy",
    "speed_bench_throughput_2k",
    "speed_bench_throughput_2k_low_entropy",
    "speed_bench_throughput_2k_mixed",
    "speed_bench_throughput_2k_high_entropy",
    "speed_bench_throughput_8k",
    "speed_bench_throughput_8k_low_entropy",
    "speed_bench_throughput_8k_mixed",
    "speed_bench_throughput_8k_high_entropy",
    "speed_bench_throughput_16k",
    "speed_bench_throughput_16k_low_entropy",
    "speed_bench_throughput_16k_mixed",
    "speed_bench_throughput_16k_high_entropy",
    "speed_bench_throughput_32k",
    "speed_bench_throughput_32k_low_entropy",
    "speed_bench_throughput_32k_mixed",
    "speed_bench_throughput_32k_high_entropy",
];

/// Flags of `profile` that work.
pub const WORKING: &[Flag] = working_table! {
    "Endpoint" {
        ["--model-names", "--model", "-m"] List, "", "Model names sent in requests; the first names the artifact folder.";
        ["--model-selection-strategy"] Choice(&["round_robin", "random", "weighted"]), "round-robin", "How a model is picked for a turn when there are several: in turn, or at random.";
        ["--custom-endpoint", "--endpoint"] Text, "", "Path (and query) that replaces the default path of the endpoint type.";
        ["--endpoint-type"] Choice(ENDPOINT_TYPES), "chat", "API dialect; all work but image_generation, image_edit and video_generation.";
        ["--streaming"] Switch, "", "Ask for streamed replies.";
        ["--url", "-u"] List, "the built-in server", "Base URLs; --url-strategy says which a session goes to.";
        ["--url-strategy"] Choice(&["round_robin", "weighted"]), "round-robin", "How a URL is picked for a session: round-robin, or weighted in turn by --url-weights.";
        ["--url-weights"] List, "", "Weight of each --url, such as 3,1: of four sessions the first URL gets three.";
        ["--request-timeout-seconds"] Above(0.0), "21600", "Whole-request limit in seconds, connecting included.";
        ["--connect-timeout-seconds"] Above(0.0), "none", "Longest wait for a connection in seconds, TLS included.";
        ["--first-byte-timeout-seconds"] Above(0.0), "none", "Longest wait for the reply's first byte in seconds, from the request's last byte.";
        ["--idle-timeout-seconds"] Above(0.0), "none", "Longest wait between bytes of a reply in seconds; keep-alives of a stream do not count.";
        ["--keep-alive-resets-idle"] Switch, "", "Comments and empty events of a stream begin the idle limit anew.";
        ["--wait-for-model-timeout"] AtLeast(0.0), "0", "Probe the server for up to this many seconds before the run; 0 does not.";
        ["--wait-for-model-mode"] Choice(&["models", "inference", "both"]), "inference", "What the probe asks: the model list, a one-token request, or both.";
        ["--wait-for-model-interval"] Above(0.0), "5", "Seconds between probes.";
        ["--api-key"] Text, "", "Sent as Authorization: Bearer KEY; never written to a file.";
        ["--api-key-env"] Text, "", "Name of the environment variable that holds the key.";
        ["--api-key-file"] Path, "", "File that holds the key.";
        ["--transport", "--transport-type"] Choice(&["http"]), "http", "How requests travel; there is one way.";
        ["--use-legacy-max-tokens"] Switch, "", "Chat: send max_tokens rather than max_completion_tokens.";
        ["--use-server-token-count"] Switch, "", "Take token counts from the reply's usage.";
        ["--per-chunk-usage"] Switch, "", "Ask for usage in every chunk and leave the first chunk's tokens out of the inter-token latency.";
        ["--insecure"] Switch, "", "Take any certificate of the server.";
        ["--cacert"] Path, "the system's", "PEM file with the authorities to trust, and no others.";
        ["--cert"] Path, "", "PEM file with a certificate of the client's own, for servers that ask for one.";
        ["--key"] Path, "", "PEM file with that certificate's private key.";
        ["--tls-server-name"] Text, "the URL's host", "Name to ask for over TLS (SNI), which the server's certificate must hold.";
        ["--connection-reuse-strategy"] Choice(&["pooled", "never", "sticky_user_sessions"]), "pooled", "Keep-alive pool, a new connection for each request, or one for each session.";
        ["--keepalive-idle-seconds"] Above(0.0), "300", "Close a kept connection that no request came for in so many seconds.";
        ["--resolve"] List, "", "HOST:PORT:ADDRESS: connect to this address in place of the name's own; a comma separates several. HOST may be *.";
        ["--dns-refresh-seconds"] Between(0.1, 1e6), "once, before the run", "Seconds after which names are looked up again while the load is on; new connections go to what they are then.";
        ["--ip-version"] Choice(&["auto", "4", "6"]), "auto", "Addresses of a name that are used: all, IPv4 first, or those of one version.";
        ["--happy-eyeballs-timeout-ms"] Integer(1, 60_000), "250", "Milliseconds after which a connection attempt that is not answered gets another beside it, to the name's next address.";
        ["--unix-socket"] Path, "", "Connect to this socket of the file system; the URL only names the host.";
        ["--proxy"] Text, "", "HTTP proxy, http://[USER:PASSWORD@]HOST:PORT, asked by CONNECT also for http URLs; http_proxy and the like are ignored.";
        ["--local-address"] List, "", "Addresses of this machine that connections come from, in turn; each has some 28,000 ports for a server's address.";
        ["--interface"] Text, "", "Network interface that connections go through (SO_BINDTODEVICE).";
        ["--tcp-nodelay"] Choice(&["on", "off"]), "on", "Send small segments at once; off lets them wait for acknowledgements (Nagle).";
        ["--tcp-quickack"] Switch, "", "Acknowledge what arrives at once (TCP_QUICKACK, asked for again after each request).";
        ["--so-rcvbuf"] Integer(1024, 1 << 30), "the system's", "Bytes of each socket's receive buffer; what the kernel gave is told.";
        ["--so-sndbuf"] Integer(1024, 1 << 30), "the system's", "Bytes of each socket's send buffer.";
        ["--request-content-type"] Choice(&["application/json", "multipart/form_data", "application_json", "multipart_form_data"]), "as the endpoint type needs", "Content type of bodies: only audio_transcription sends forms, and it sends nothing else.";
        ["--session-header"] Text, "X-Correlation-ID", "Name of the header that carries the session's id.";
    }
    "Input" {
        ["--uuid-and-strip"] Switch, "", "Send a picture of a single_turn file once a session; later turns have its id of image_uuids alone.";
        ["--extra-inputs"] Pairs, "", "Extra top-level body fields, as name:value or a JSON object; they win over built-in ones.";
        ["--header", "-H"] Pairs, "", "Extra request headers, as Name:Value or a JSON object.";
        ["--input-file"] Path, "", "Dataset file, plain or packed with gzip or zstd; for some formats a folder.";
        ["--custom-dataset-type"] Choice(DATASET_TYPES), "from the first line", "Format of the dataset file: single-turn, multi-turn, random-pool, mooncake-trace, bailian-trace, burst-gpt-trace, raw-payload, inputs-json, prompts, sharegpt or a speed-bench name.";
        ["--public-dataset"] Choice(&["sharegpt"]), "", "A well-known dataset, read from --input-file.";
        ["--skip-bad-lines"] Switch, "", "Leave bad lines of the dataset file out and count them, rather than refuse the file.";
        ["--stream-input"] Choice(&["auto", "always", "never"]), "auto", "Make the requests of a long trace while it is replayed, in bounded memory: auto does from 64 MiB on, or 8 MiB packed.";
        ["--dataset-sampling-strategy"] Choice(&["random", "sequential", "shuffle"]), "sequential", "Order in which conversations are drawn.";
        ["--random-seed"] Integer(0, u64::MAX), "from the system", "Root of everything random; the same seed gives the same run.";
        ["--fixed-schedule"] Switch, "on for a trace", "Send at the dataset's own timestamps; on by itself for a file that is named a trace and begins with one.";
        ["--no-fixed-schedule"] Switch, "", "Do not follow a trace's timestamps.";
        ["--fixed-schedule-auto-offset"] Switch, "on without a start offset", "The first timestamp is the schedule's zero.";
        ["--fixed-schedule-start-offset"] Integer(0, MOST), "", "Leave out what has an earlier timestamp, in milliseconds; this is the schedule's zero.";
        ["--fixed-schedule-end-offset"] Integer(0, MOST), "", "Leave out what has a later timestamp, in milliseconds.";
        ["--ignore-trace-delays"] Switch, "", "Follow neither timestamps nor delays of a trace.";
        ["--inter-turn-delay-cap-seconds"] Between(0.0, 1e9), "", "Longest delay before a later turn of a file, in seconds.";
    }
    "Synthesis" {
        ["--synthesis-speedup-ratio"] Between(0.0, 1e9), "1", "Divide a trace's timestamps by this.";
        ["--synthesis-prefix-len-multiplier"] Between(0.0, 1e4), "1", "Stretch or shrink the leading blocks that lines of a trace share.";
        ["--synthesis-prefix-root-multiplier"] Integer(1, 1 << 20), "1", "Spread a trace over this many independent copies of its shared blocks.";
        ["--synthesis-prompt-len-multiplier"] Between(0.0, 1e4), "1", "Scale what is behind the shared blocks.";
        ["--synthesis-output-len-multiplier"] Between(0.0, 1e4), "1", "Scale the output lengths of a trace.";
        ["--synthesis-max-isl"] Integer(1, 1 << 24), "", "Leave out lines with more prompt tokens.";
        ["--synthesis-max-osl"] Integer(1, 1 << 24), "", "Cut longer outputs of a trace to this.";
    }
    "Goodput" {
        ["--goodput"] Objectives, "", "Objectives that a good request meets, such as 'time_to_first_token:100 inter_token_latency:10'.";
    }
    "Output" {
        ["--output-artifact-dir", "--artifact-dir"] Path, "artifacts/NAME", "Folder for all files, exactly.";
        ["--profile-export-prefix", "--profile-export-file"] Path, "", "Common base name of the exported files.";
        ["--export-level", "--profile-export-level"] Choice(&["summary", "records", "raw"]), "records", "How much is written: the summary, each request, or each request with its bodies.";
        ["--export-outputs-json"] Switch, "", "Write outputs.json with the text of the replies.";
        ["--export-http-trace"] Switch, "", "Add trace_data to each record.";
        ["--slice-duration"] AtLeast(0.001), "", "Write timeslice files: the metrics of each slice of this many seconds.";
        ["--slice-attribution"] Choice(&["aiperf", "arrival"]), "aiperf", "To which slice tokens belong: that in which their request started, as in AIPerf, or that in which they arrived.";
        ["--show-trace-timing"] Switch, "", "Print the HTTP trace table.";
    }
    "Tokenizer" {
        ["--tokenizer"] Text, "the first model", "Hub id, folder, tokenizer.json, builtin, or the name of a tiktoken encoding.";
        ["--tokenizer-revision"] Text, "main", "Hub revision.";
        ["--apply-chat-template"] Switch, "", "Count input as the model's chat template writes it, and make synthetic prompts shorter by what that adds.";
    }
    "Load" {
        ["--benchmark-duration"] Above(0.0), "", "Stop sending after this many seconds.";
        ["--benchmark-grace-period"] AtLeast(0.0), "30", "Seconds that requests in flight may go on after the duration; inf waits for all.";
        ["--concurrency"] Integer(1, 1 << 24), "1 without a rate", "Most sessions open at once.";
        ["--concurrency-ramp-duration"] Above(0.0), "", "Seconds over which the limit on open sessions grows from 1 to --concurrency.";
        ["--prefill-concurrency"] Integer(1, 1 << 24), "", "Most requests that wait for their first token.";
        ["--prefill-concurrency-ramp-duration"] Above(0.0), "", "Seconds over which that limit grows from 1.";
        ["--pre-connect"] AutoOr(1 << 24), "0", "Connections opened before a phase starts, so that no first request waits for one: a number, or auto for as many as the concurrency.";
        ["--request-rate"] Above(0.0), "", "Requests per second.";
        ["--arrival-pattern", "--request-rate-mode"] Choice(PATTERNS), "poisson", "Gaps between requests at a rate: constant, poisson or gamma.";
        ["--arrival-smoothness", "--vllm-burstiness"] Above(0.0), "1", "Shape of gamma gaps: 1 is poisson, more is more even, less is burstier.";
        ["--request-rate-ramp-duration"] Above(0.0), "", "Seconds over which the rate grows to --request-rate.";
        ["--request-rate-series"] Path, "", "JSON file with a rate that changes: [{\"time_s\": 0, \"qps\": 5}, ...].";
        ["--late-policy"] Choice(&["send", "skip"]), "send", "What becomes of a request at a rate that could not be sent in time: sent late, or left out and counted when over 10 ms late.";
        ["--request-count", "--num-requests"] Integer(1, MOST), "10 without another stop", "Stop after this many requests.";
        ["--failed-request-threshold"] Between(0.0, 1.0), "", "Abort when this share of requests has failed.";
    }
    "Warmup" {
        ["--warmup-request-count", "--num-warmup-requests"] Integer(1, MOST), "", "Warm up with this many requests.";
        ["--warmup-duration"] Above(0.0), "", "Warm up for this many seconds.";
        ["--num-warmup-sessions"] Integer(1, MOST), "", "Warm up with this many sessions.";
        ["--warmup-concurrency"] Integer(1, 1 << 24), "--concurrency", "Most sessions open at once during warmup.";
        ["--warmup-concurrency-ramp-duration"] Above(0.0), "--concurrency-ramp-duration", "Seconds over which the warmup's limit on open sessions grows from 1.";
        ["--warmup-prefill-concurrency"] Integer(1, 1 << 24), "--prefill-concurrency", "Most requests that wait for their first token during warmup.";
        ["--warmup-prefill-concurrency-ramp-duration"] Above(0.0), "--prefill-concurrency-ramp-duration", "Seconds over which that limit grows from 1.";
        ["--warmup-request-rate"] Above(0.0), "--request-rate", "Requests per second during warmup.";
        ["--warmup-request-rate-ramp-duration"] Above(0.0), "--request-rate-ramp-duration", "Seconds over which the warmup's rate grows.";
        ["--warmup-arrival-pattern"] Choice(PATTERNS), "--arrival-pattern", "Gaps between requests during warmup.";
        ["--warmup-grace-period"] AtLeast(0.0), "inf", "Seconds that requests in flight may go on after the warmup duration.";
        ["--warmup-seamless"] Switch, "", "Begin the run when the warmup has stopped sending, without waiting for its requests in flight.";
    }
    "User-Centric Rate" {
        ["--user-centric-rate"] Above(0.0), "", "Requests per second of all users together; each sends his next turn users / rate after his last.";
        ["--num-users"] Integer(1, 1 << 20), "", "Users at a time.";
    }
    "Request Cancellation" {
        ["--request-cancellation-rate"] Between(0.0, 100.0), "", "Percent of profiling requests to cancel on purpose.";
        ["--request-cancellation-delay"] Between(0.0, 1e9), "0", "Seconds from the last byte of a request sent to its cancellation.";
    }
    "Conversation" {
        ["--conversation-num", "--num-conversations", "--num-sessions"] Integer(1, MOST), "", "Stop after this many sessions; also the size of a synthetic dataset.";
        ["--num-dataset-entries", "--num-prompts"] Integer(1, 1 << 24), "sessions, requests or 100", "Unique conversations in a synthetic dataset.";
        ["--conversation-turn-mean", "--session-turns-mean"] Integer(1, 1 << 20), "1", "Mean turns of a conversation.";
        ["--conversation-turn-stddev", "--session-turns-stddev"] Integer(0, 1 << 20), "0", "Standard deviation of the turns.";
        ["--conversation-turn-delay-mean", "--session-turn-delay-mean"] Between(0.0, 1e12), "0", "Mean think time before later turns, in milliseconds.";
        ["--conversation-turn-delay-stddev", "--session-turn-delay-stddev"] Between(0.0, 1e12), "0", "Standard deviation of the think time.";
        ["--conversation-turn-delay-ratio", "--session-delay-ratio"] Between(0.0, 1e9), "1", "Multiplier on think time.";
    }
    "Prompt" {
        ["--prompt-input-tokens-mean", "--synthetic-input-tokens-mean", "--isl"] Integer(1, 1 << 24), "550", "Mean prompt tokens.";
        ["--prompt-input-tokens-stddev", "--synthetic-input-tokens-stddev", "--isl-stddev"] Between(0.0, 16_777_216.0), "0", "Standard deviation of the prompt tokens.";
        ["--seq-dist", "--sequence-distribution"] Text, "", "Mix of prompt and output lengths, such as '256,128:60;512|10,256|5:40' (percent).";
        ["--prompt-output-tokens-mean", "--output-tokens-mean", "--osl"] Integer(1, 1 << 24), "no limit sent", "Mean output limit.";
        ["--prompt-output-tokens-stddev", "--output-tokens-stddev", "--osl-stddev"] Between(0.0, 16_777_216.0), "0", "Standard deviation of the output limit.";
        ["--prompt-input-tokens-block-size", "--synthetic-input-tokens-block-size", "--isl-block-size"] Integer(1, 1 << 24), "512; bailian 16", "Tokens that each hash id of a trace stands for.";
        ["--prompt-batch-size", "--batch-size-text", "--batch-size", "-b"] Integer(1, 1 << 20), "1", "Texts in each turn.";
        ["--random-range-ratio"] Text, "", "Draw prompt and output lengths evenly from a window about their means: a number, or {\"input\":A,\"output\":B}.";
        ["--random-corpus-style"] Choice(&["vllm", "sglang"]), "vllm", "Whose window and whose random tokens: vllm (means x (1 +- R), no special tokens) or sglang (from R x mean to the mean, all tokens).";
        ["--prompt-corpus"] Choice(&["sonnet", "coding", "random"]), "sonnet", "Source of the words.";
        ["--tokenize-prompt"] Switch, "", "Completions: send prompts as token ids, so that the server's tokenizer changes no length.";
        ["--system-prompt"] Text, "", "System message, word for word.";
        ["--system-prompt-file"] Path, "", "File with the system message.";
        ["--cache-bust"] Choice(CACHE_BUST_TARGETS), "none", "Mark prompts so that a server's prefix cache holds none of them: each session's, or those of the warmup.";
        ["--prompt-prefix-pool-size", "--prefix-prompt-pool-size", "--num-prefix-prompts"] Integer(0, 1 << 24), "0", "Number of random prefixes.";
        ["--prompt-prefix-length", "--prefix-prompt-length"] Integer(0, 1 << 24), "0", "Tokens in each prefix.";
        ["--shared-system-prompt-length"] Integer(1, 1 << 24), "", "Tokens of one made-up system message shared by all conversations.";
        ["--user-context-prompt-length"] Integer(1, 1 << 24), "", "Tokens of an extra first user message of each conversation.";
    }
    "Rankings" {
        ["--rankings-passages-mean"] Integer(1, 1 << 20), "1", "Mean number of passages that a query is put beside.";
        ["--rankings-passages-stddev"] Integer(0, 1 << 20), "0", "Standard deviation of that number.";
        ["--rankings-passages-prompt-token-mean"] Integer(1, 1 << 24), "550", "Mean tokens of a passage.";
        ["--rankings-passages-prompt-token-stddev"] Integer(0, 1 << 24), "0", "Standard deviation of a passage's tokens.";
        ["--rankings-query-prompt-token-mean"] Integer(1, 1 << 24), "550", "Mean tokens of a query.";
        ["--rankings-query-prompt-token-stddev"] Integer(0, 1 << 24), "0", "Standard deviation of a query's tokens.";
    }
    "Image" {
        ["--image-width-mean"] Between(0.0, 65_535.0), "0", "Mean width of made-up pictures; with a height above 0 too, every turn has some.";
        ["--image-width-stddev"] Between(0.0, 65_535.0), "0", "Standard deviation of the width.";
        ["--image-height-mean"] Between(0.0, 65_535.0), "0", "Mean height.";
        ["--image-height-stddev"] Between(0.0, 65_535.0), "0", "Standard deviation of the height.";
        ["--image-batch-size", "--batch-size-image"] Integer(0, 1 << 16), "1", "Pictures in each turn; 0 for none.";
        ["--image-format"] Choice(&["png", "jpeg", "random"]), "png", "How pictures are encoded; random draws one of the two for each.";
        ["--image-source"] Text, "noise", "What pictures show: noise, or those of a folder, resized.";
        ["--image-source-sampling"] Choice(&["random_with_replacement", "shuffle_cycle", "sequential_cycle"]), "random-with-replacement", "Order in which the pictures of a folder are taken.";
    }
    "Audio" {
        ["--audio-length-mean"] Between(0.0, 86_400.0), "0", "Mean length of made-up sounds in seconds; above 0 every turn has some.";
        ["--audio-length-stddev"] Between(0.0, 86_400.0), "0", "Standard deviation of the length.";
        ["--audio-batch-size", "--batch-size-audio"] Integer(0, 1 << 16), "1", "Sounds in each turn; 0 for none.";
        ["--audio-format"] Choice(&["wav", "mp3"]), "wav", "How sounds are encoded.";
        ["--audio-depths"] List, "16", "Bits of a sample (8, 16, 24, 32); one is drawn for each sound.";
        ["--audio-sample-rates"] List, "16", "Sample rates in kHz, or in Hz above 96; one is drawn for each sound.";
        ["--audio-num-channels"] Integer(1, 2), "1", "1 for mono, 2 for stereo.";
    }
    "Program" {
        ["--log-level"] Choice(&["trace", "debug", "info", "notice", "warning", "success", "error", "critical"]), "info", "Verbosity of the log file.";
        ["--verbose", "-v"] Switch, "", "Log details.";
        ["--extra-verbose", "-vv"] Switch, "", "Log everything; short form -vv.";
        ["--stats-interval"] Between(0.0, 1000.0), "30", "Seconds between live lines; 0 shows none.";
        ["--ui-type", "--ui"] Choice(&["dashboard", "none", "simple"]), "simple", "What is shown while running; dashboard shows what simple does.";
        ["--workers-max", "--max-workers"] Integer(1, 4096), "", "Most worker threads.";
        ["--cpus"] Cores, "", "Cores for the workers, such as 0,2-3.";
        ["--driver"] Choice(&["auto", "ring", "portable"]), "auto", "How workers reach the kernel: a ring of their own (Linux), the portable driver, or the ring where the kernel allows it.";
        ["--timestamp-source"] Choice(&["user", "kernel", "nic"]), "kernel where there is one", "Which stamp says when bytes arrived: the kernel's on receipt, or the worker's on reading.";
        ["--wait-mode"] Choice(&["sleep", "hybrid", "spin"]), "hybrid", "How workers wait: asleep, asleep but spinning shortly before a send is due, or spinning all the time.";
        ["--spin-us"] Between(0.0, 1_000_000.0), "100", "Microseconds that a hybrid worker spins before a send.";
        ["--reap-window-us"] AutoOr(1_000_000), "auto", "Microseconds for which arrivals may be left in the kernel, which has stamped them, so that one wake-up takes many; 0 reads at once.";
        ["--realtime"] Switch, "", "Give workers real-time priority (SCHED_FIFO) and lock the memory.";
        ["--require-trusted"] Switch, "", "Exit with 3 unless the client's own health is judged trusted.";
        ["--no-server-metrics"] Switch, "", "Do not scrape the server's metrics; they are never scraped.";
        ["--no-gpu-telemetry"] Switch, "", "Do not read GPU telemetry; it is never read.";
    }
};
