//! A run over every dataset file.
//!
//! In: the files of `tests/datasets`. Out: that the server saw each body, in the dataset's order. Never: what a body should be; the text
//! beside the file says it.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::server::{Script, Server};
use super::tool::Tool;

/// Runs the program over a file in the one format, one request after the other.
fn run(path: &str, format: &str) {
    let text = fs::read_to_string(format!("{path}.txt")).unwrap();
    // A body may stand in several lines.
    let wanted: Vec<Value> = text
        .split("\nbody ")
        .skip(1)
        .map(|body| {
            let mut values = serde_json::Deserializer::from_str(body).into_iter();
            values.next().unwrap().unwrap()
        })
        .collect();
    let server = Server::start(Script::always("whole alpha beta"));
    let run = Tool::profile(&format!(
        "--model m --url {} --tokenizer gpt2 --artifact-dir out --ui-type none --input-file {path} --custom-dataset-type {format} \
         --random-seed 1 --num-dataset-entries 3 --no-fixed-schedule --dataset-sampling-strategy sequential --concurrency 1 \
         --request-count {} --workers-max 1",
        server.url(),
        wanted.len()
    ))
    .run();
    let count = wanted.len();
    assert_eq!(run.counts(), [count, count, 0, 0], "{path}\n{run}");
    let log = server.log();
    // Live replies stand between the turns of a talk; random draws have other seeds in each program.
    let bare = |body: &Value| {
        let mut body = body.clone();
        if let Some(messages) = body["messages"].as_array_mut() {
            messages.retain(|message| message["content"] != "alpha beta");
        }
        body
    };
    let seen: Vec<Value> = log.load().iter().map(|seen| bare(&seen.body)).collect();
    let wanted: Vec<Value> = wanted.iter().map(bare).collect();
    assert_eq!(seen, wanted, "{path}");
}

#[test]
fn every_dataset_file_is_sent() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/datasets");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let texts = paths
        .iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "txt"));
    let mut count = 0;
    for text in texts {
        let path = text.with_extension("");
        let name = path.file_name().unwrap().to_string_lossy();
        let format = name.split(['-', '.']).next().unwrap().to_owned();
        run(path.to_str().unwrap(), &format);
        count += 1;
    }
    assert!(count > 10, "{count}");
}
