//! What dataset files become.
//!
//! In: the files of `tests/datasets`. Out: agreement with the text beside each, with the file packed and through other doors. Never: a format
//! that is tested by code of its own.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a failed step fails the test"
)]

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use tokenring::config::{Command, DatasetSource, Plan, parse};
use tokenring::dataset::{Corpus, build};
use tokenring::endpoint::Api;
use tokenring::tokenizer::ShippedTokenizer;

/// Files that cannot be told from another format, and the one they are taken for.
const TAKEN_FOR: &[(&str, &str)] = &[("random_pool", "SingleTurn")];

fn cases() -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = fs::read_dir("tests/datasets")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let ending = path.extension().and_then(|ending| ending.to_str());
            !matches!(ending, Some("txt" | "md"))
        })
        .collect();
    cases.sort();
    assert!(cases.len() > 10);
    cases
}

fn format_of(path: &Path) -> String {
    let name = path.file_name().unwrap().to_string_lossy();
    name.split(['-', '.']).next().unwrap().to_owned()
}

fn plan(path: &Path, more: &str) -> Result<Plan, String> {
    let words = format!(
        "profile --model m --url h --input-file {} {more}",
        path.display()
    );
    match parse(words.split_whitespace().map(Into::into)) {
        Ok(Command::Profile(plan)) => Ok(*plan),
        Ok(_) => panic!("{words}"),
        Err(problems) => Err(problems.to_string()),
    }
}

fn read(path: &Path, more: &str) -> Result<(Plan, Corpus, Vec<String>), String> {
    let plan = plan(path, more)?;
    let tokenizer = ShippedTokenizer::new("gpt2").unwrap();
    let (corpus, notes) = build(&plan, &tokenizer, 1).map_err(|error| error.to_string())?;
    Ok((plan, corpus, notes))
}

fn found(path: &Path) -> Result<String, String> {
    let plan = plan(path, "")?;
    let DatasetSource::File(file) = plan.dataset.source else {
        panic!("no file");
    };
    Ok(format!("{:?}", file.format))
}

fn shown(path: &Path, more: &str) -> String {
    let (plan, corpus, notes) = read(path, more).unwrap();
    let mut text = String::new();
    for conversation in &corpus.conversations {
        let (id, context) = (&conversation.id, conversation.context);
        let _ = writeln!(
            text,
            "conversation {id} {context:?} {:?}",
            conversation.system
        );
        for turn in &conversation.turns {
            let _ = write!(text, "  turn {:?}", turn.texts);
            if !turn.text_names.is_empty() {
                let _ = write!(text, " called {:?}", turn.text_names);
            }
            let limit = turn.max_tokens;
            let _ = writeln!(
                text,
                " limit {limit:?} delay {} at {:?}",
                turn.delay_ms, turn.timestamp_ms
            );
        }
    }
    for note in notes {
        let _ = writeln!(text, "note {note}");
    }
    let api = Api::new(&plan.endpoint).unwrap();
    for conversation in &corpus.conversations {
        for turn in 0..conversation.turns.len() {
            let body = api.render(conversation, turn, &[]);
            // One that is sent as the file has it may stand on several lines.
            let body = String::from_utf8(body).unwrap().replace('\n', " ");
            let _ = writeln!(text, "body {body}");
        }
    }
    text
}

#[test]
fn files_become_what_the_text_beside_them_says() {
    let mut wrong = Vec::new();
    for path in cases() {
        let format = format_of(&path);
        let mut text = match found(&path) {
            Ok(found) => format!("taken for {found}\n"),
            Err(sentence) => format!("{sentence}\n"),
        };
        text += &shown(
            &path,
            &format!("--num-dataset-entries 3 --custom-dataset-type {format}"),
        );
        let beside = PathBuf::from(format!("{}.txt", path.display()));
        if std::env::var_os("BLESS").is_some() {
            fs::write(&beside, &text).unwrap();
        }
        if fs::read_to_string(&beside).unwrap_or_default() != text {
            wrong.push(format!("{}:\n{text}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each file is known by its first record, and is taken for no other format.
#[test]
fn files_are_known_for_what_they_are() {
    for path in cases() {
        let format = format_of(&path);
        let known = |(name, _): &&(&str, &str)| *name == format && path.is_file();
        let right = match TAKEN_FOR.iter().find(known) {
            Some((_, other)) => (*other).to_owned(),
            None => format
                .replace("speed_bench_math", "speed_bench")
                .replace('_', ""),
        };
        let found = found(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(
            found.to_lowercase(),
            right.to_lowercase(),
            "{}",
            path.display()
        );
    }
}

/// Packed, with a byte order mark, or with the line ends of another system: the same conversations.
#[test]
fn packing_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for path in cases().into_iter().filter(|path| path.is_file()) {
        let more = format!(
            "--num-dataset-entries 3 --custom-dataset-type {}",
            format_of(&path)
        );
        let lines = |text: String| -> Vec<String> {
            let of_file = |line: &&str| !line.starts_with("note ");
            text.lines().filter(of_file).map(str::to_owned).collect()
        };
        let right = lines(shown(&path, &more));
        let plain = fs::read(&path).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&plain).unwrap();
        let zstd = ruzstd::encoding::compress_to_vec(
            plain.as_slice(),
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for (ending, bytes) in [
            (".gz", gzip.finish().unwrap()),
            (".zst", zstd),
            ("", [b"\xef\xbb\xbf", plain.as_slice()].concat()),
        ] {
            let copy = folder.path().join(format!("{name}{ending}"));
            fs::write(&copy, bytes).unwrap();
            assert_eq!(lines(shown(&copy, &more)), right, "{}", copy.display());
        }
    }
}

/// What is in a file, the flags, and what is said of it.
const REFUSALS: &[(&str, &str, &str)] = &[
    (
        "{\"captureData\": {}}",
        "",
        "looks like sagemaker_data_capture: tokenring does not read captures",
    ),
    (
        "{\"session_id\": \"a\", \"turns\": [], \"forks\": []}",
        "",
        "looks like dag_jsonl",
    ),
    (
        "{\"text\": \"a\"}",
        "--custom-dataset-type baseten_trace",
        "does not read Parquet or Arrow: write its rows as a mooncake_trace",
    ),
    (
        "{\"text\": \"a\"}",
        "--custom-dataset-type tracelab",
        "tracelab: tokenring plays no agents' traces",
    ),
    (
        "{\"text\": \"a\"}",
        "--custom-dataset-type weka_trace",
        "weka_trace: tokenring plays no agents' traces",
    ),
    (
        "{\"text\": \"a\"}",
        "--custom-dataset-type dag_jsonl",
        "dag_jsonl: tokenring plays no forks and spawns",
    ),
    ("PAR1", "", "is a Parquet file"),
    (
        "\u{feff}{\"text\": \"a\"}\n{\"text\": 1}",
        "",
        ":2: field text: 1 is not a string",
    ),
    (
        "[{\"text\": \"a\"}, {\"text\": \"b\"",
        "",
        "the file ends inside the record",
    ),
    (
        "{\"text\": \"a\"}",
        "--custom-dataset-type sharegpt",
        ":1: field conversations: missing",
    ),
    (
        "{\"text\": \"a\"}",
        "--custom-dataset-type inputs_json",
        "no list called data",
    ),
    (
        "{\"text\": \"a\"}",
        "--custom-dataset-type raw_payload",
        ":1: field messages: missing",
    ),
    (
        "{\"text\": \"a\", \"delay\": 1}",
        "--custom-dataset-type random_pool",
        ":1: field delay: entries are drawn at random",
    ),
    (
        "{\"question_id\": 1, \"category\": \"qa\", \"messages\": [\"a\"]}",
        "--custom-dataset-type speed_bench_math",
        "no question is of the category math; the file has qa",
    ),
    (
        "prompt,output_tokens\na,many\n",
        "--custom-dataset-type prompts",
        ":2: field output_tokens: \"many\" is not a whole number",
    ),
    (
        "prompt,output_tokens\na\n",
        "--custom-dataset-type prompts",
        ":2: 1 cells, but 2 columns",
    ),
    (
        "{\"text\": \"a\"}",
        "--public-dataset sharegpt --custom-dataset-type sharegpt",
        "exclude each other",
    ),
    (
        "{\"text\": \"a\"}",
        "--prompt-batch-size 3",
        "draws texts from a random_pool in one file",
    ),
    (
        "a word",
        "",
        "has none of the fields by which a format is known",
    ),
];

#[test]
fn what_cannot_be_read_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.jsonl");
    for (bytes, more, sentence) in REFUSALS {
        fs::write(&path, bytes).unwrap();
        let told = read(&path, more).map(|_| ()).unwrap_err();
        assert!(told.contains(sentence), "{bytes} {more}: {told}");
    }
}

#[test]
fn bad_lines_are_skipped_and_counted_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.jsonl");
    fs::write(
        &path,
        b"{\"text\": \"a\"}\n{\n{\"text\": \"\xff\"}\n{\"text\": \"b\"}\n",
    )
    .unwrap();
    let (_, corpus, notes) = read(&path, "--skip-bad-lines").unwrap();
    assert_eq!((corpus.conversations.len(), corpus.bad_lines), (2, 2));
    assert!(
        notes[0].contains("2 bad lines are left out; the first: ")
            && notes[0].contains("in.jsonl:2: not JSON"),
        "{notes:?}"
    );
    let told = read(&path, "").map(|_| ()).unwrap_err();
    assert!(
        told.contains("in.jsonl:3: not UTF-8 from byte 11"),
        "{told}"
    );
}

/// A pool: as many conversations as entries, others for another seed, batches of texts.
#[test]
fn pools_are_drawn_from_by_seed() {
    let path = Path::new("tests/datasets/random_pool.jsonl");
    let drawn = |more: &str, seed| {
        let more = format!("--custom-dataset-type random_pool --num-dataset-entries 50 {more}");
        let plan = plan(path, &more).unwrap();
        let tokenizer = ShippedTokenizer::new("gpt2").unwrap();
        let (corpus, _) = build(&plan, &tokenizer, seed).unwrap();
        let turns = corpus
            .conversations
            .into_iter()
            .map(|one| one.turns[0].texts.clone());
        turns.collect::<Vec<_>>()
    };
    let (one, again, other) = (drawn("", 1), drawn("", 1), drawn("", 2));
    assert_eq!((one.len(), &one), (50, &again));
    assert_ne!(one, other);
    assert!(one.iter().any(|texts| texts.len() == 2) && one.iter().any(|texts| texts.len() == 1));
    assert!(
        drawn("--prompt-batch-size 4", 1)
            .iter()
            .all(|texts| texts.len() == 4)
    );
}
