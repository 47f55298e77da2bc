//! In: names, files and a small hub on this machine. Out: which tokenizer comes, or which sentence. Never: the real hub, or the
//! process's own environment.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;
use crate::config::TokenizerPlan;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn plan(name: Option<&str>) -> TokenizerPlan {
    TokenizerPlan {
        apply_chat_template: false,
        name: name.map(str::to_owned),
        revision: "main".to_owned(),
    }
}

/// A byte-level tokenizer: all bytes and a handful of merges.
pub(crate) fn tiny_json() -> String {
    let mut vocabulary = serde_json::Map::new();
    // GPT-2's table of printable stand-ins for the bytes.
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut shift = 0;
    for byte in 0..256 {
        let stand_in = if printable(byte) {
            byte
        } else {
            shift += 1;
            255 + shift
        };
        let character = char::from_u32(stand_in).unwrap();
        vocabulary.insert(character.to_string(), byte.into());
    }
    let merges = [
        ["t", "h"],
        ["th", "e"],
        ["Ġ", "the"],
        ["a", "n"],
        ["an", "d"],
        ["Ġ", "and"],
        ["i", "n"],
        ["Ġ", "a"],
    ];
    for ([left, right], id) in merges.iter().zip(256..) {
        vocabulary.insert(format!("{left}{right}"), id.into());
    }
    vocabulary.insert("<end>".to_owned(), 264.into());
    let template = serde_json::json!({"type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<end>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<end>": {"id": "<end>", "ids": [264], "tokens": ["<end>"]}}});
    serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [{"id": 264, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false,
                          "normalized": false, "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": template,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                  "vocab": vocabulary, "merges": merges}
    })
    .to_string()
}

/// One answer of the small hub.
#[derive(Clone)]
pub(super) struct Answer {
    status: &'static str,
    headers: Vec<String>,
    body: Vec<u8>,
}

/// A hub that answers paths by a function and notes the heads of the requests it gets.
pub(super) struct SmallHub {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl SmallHub {
    pub(super) fn start(answer: impl Fn(&str) -> Answer + Send + 'static) -> SmallHub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let noted = heads.clone();
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                serve(stream, &answer, &noted);
            }
        });
        SmallHub { url, heads }
    }

    pub(super) fn environment(&self, cache: &Path) -> Environment {
        Environment {
            cache: Some(cache.to_owned()),
            hub: self.url.clone(),
            token: None,
            offline: false,
        }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, answer: &impl Fn(&str) -> Answer, heads: &Mutex<Vec<String>>) {
    let mut head = String::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    heads.lock().unwrap().push(head);
    let Answer {
        status,
        headers,
        body,
    } = answer(&path);
    let mut reply = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for header in headers {
        reply.push_str(&header);
        reply.push_str("\r\n");
    }
    reply.push_str("\r\n");
    let _ = stream.write_all(reply.as_bytes());
    let _ = stream.write_all(&body);
}

pub(super) fn answer(status: &'static str, headers: &[&str], body: &str) -> Answer {
    Answer {
        status,
        headers: headers.iter().map(|header| (*header).to_owned()).collect(),
        body: body.into(),
    }
}

/// A hub with one model, `org/tiny`, at the branch `main` and at one commit.
fn hub_with_model() -> SmallHub {
    SmallHub::start(|path| {
        let named = [
            "X-Repo-Commit: 0123456789abcdef0123456789abcdef01234567",
            "ETag: \"aabbccdd\"",
        ];
        if path == "/org/tiny/resolve/main/tokenizer.json"
            || path == format!("/org/tiny/resolve/{COMMIT}/tokenizer.json")
        {
            answer("200 OK", &named, &tiny_json())
        } else if path.starts_with("/secret/") {
            answer("401 Unauthorized", &[], "")
        } else if path.starts_with("/broken/") {
            answer("500 Internal Server Error", &[], "")
        } else {
            answer("404 Not Found", &[], "")
        }
    })
}

fn load_error(plan: &TokenizerPlan, models: &[&str], environment: &Environment) -> String {
    let models: Vec<String> = models.iter().map(|model| (*model).to_owned()).collect();
    match load(plan, &models, environment) {
        Ok(loaded) => panic!("loaded {}", loaded.tokenizer.name()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn all_shipped_tokenizers_give_known_ids() {
    // Ids of these encodings as published for other programs.
    let cases: [(&str, &[u32]); 8] = [
        ("builtin", &[13225, 2375, 13]),
        ("o200k_base", &[13225, 2375, 13]),
        ("o200k_harmony", &[13225, 2375, 13]),
        ("cl100k_base", &[9906, 1917, 13]),
        ("gpt2", &[15496, 995, 13]),
        ("r50k_base", &[15496, 995, 13]),
        ("p50k_base", &[15496, 995, 13]),
        ("p50k_edit", &[15496, 995, 13]),
    ];
    assert_eq!(cases.map(|case| case.0).len(), SHIPPED.len());
    for (name, ids) in cases {
        let loaded = load(&plan(Some(name)), &[], &Environment::default()).unwrap();
        assert_eq!(loaded.tokenizer.encode("Hello world."), ids, "{name}");
        assert_eq!(loaded.tokenizer.decode(ids), "Hello world.", "{name}");
        assert_eq!(loaded.tokenizer.name(), name);
        assert_eq!(loaded.note, None);
        let greatest = loaded.tokenizer.vocabulary_size() - 1;
        assert!(
            !loaded.tokenizer.decode(&[greatest]).is_empty(),
            "{name} {greatest}"
        );
        // A special token's text is ordinary text.
        assert!(loaded.tokenizer.count("<|endoftext|>") > 1, "{name}");
    }
}

#[test]
fn shipped_tokenizers_survive_ids_they_do_not_know() {
    let tokenizer = ShippedTokenizer::new("gpt2").unwrap();
    assert_eq!(tokenizer.decode(&[15496, u32::MAX, 995]), "Hello world");
    assert_eq!(tokenizer.decode(&[]), "");
    // Half of a character.
    let half = tokenizer.encode("é😀");
    assert!(tokenizer.decode(&half[..2]).contains('\u{fffd}'));
}

#[test]
fn long_texts_have_the_ids_of_the_whole() {
    let tokenizer = ShippedTokenizer::new("cl100k_base").unwrap();
    let whole = tiktoken_rs::cl100k_base().unwrap();
    let text = "It's a fine day, isn't it? 12345 times  over;\n\tyes the end ".repeat(3_000);
    assert_eq!(tokenizer.encode(&text), whole.encode_ordinary(&text));
}

#[test]
fn endless_white_space_does_not_panic() {
    for name in ["gpt2", "cl100k_base", "o200k_base"] {
        let tokenizer = ShippedTokenizer::new(name).unwrap();
        for text in [
            " ".repeat(1_000_000),
            "\n ".repeat(300_000),
            "é".repeat(30_000),
            "a".repeat(40_000),
        ] {
            assert_eq!(tokenizer.decode(&tokenizer.encode(&text)), text, "{name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn shipped_tokenizers_round_trip_any_text(text in "\\PC{0,200}") {
        static TOKENIZER: std::sync::LazyLock<ShippedTokenizer> = std::sync::LazyLock::new(|| ShippedTokenizer::new("gpt2").unwrap());
        prop_assert_eq!(TOKENIZER.decode(&TOKENIZER.encode(&text)), text);
    }

    #[test]
    fn counts_word_by_word_are_those_of_the_whole(text in "([ a-cA-C'é1.,\n\t]|\u{301}| the| It's){0,60}") {
        static TOKENIZERS: std::sync::LazyLock<Vec<ShippedTokenizer>> = std::sync::LazyLock::new(|| {
            ["gpt2", "cl100k_base", "o200k_base"].iter().filter_map(|name| ShippedTokenizer::new(name)).collect()
        });
        for tokenizer in TOKENIZERS.iter() {
            let ids = tokenizer.encode(&text).len();
            prop_assert_eq!(tokenizer.count(&text), ids, "{}", tokenizer.name());
            prop_assert_eq!(tokenizer.count(&text), ids, "{}, remembered", tokenizer.name());
        }
    }

    #[test]
    fn a_damaged_tokenizer_json_is_an_error_or_a_tokenizer(at in 0_usize..8_000, byte: u8) {
        let mut bytes = tiny_json().into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(text) = String::from_utf8(bytes)
            && let Ok(tokenizer) = JsonTokenizer::parse("tiny", &text)
        {
            let _ = tokenizer.decode(&tokenizer.encode("the end and"));
        }
    }
}

#[test]
fn a_tokenizer_json_is_read_from_a_directory_and_as_a_file_even_offline() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    std::fs::write(&file, tiny_json()).unwrap();
    let offline = Environment {
        offline: true,
        ..Environment::default()
    };
    for path in [folder.path(), &file] {
        let loaded = load(&plan(path.to_str()), &[], &offline).unwrap();
        let tokenizer = loaded.tokenizer;
        assert_eq!(tokenizer.encode("the and the"), [257, 261, 258]);
        assert_eq!(tokenizer.decode(&[257, 261, 258]), "the and the");
        assert_eq!(tokenizer.count("é"), 2);
        assert_eq!(tokenizer.vocabulary_size(), 264);
        assert_eq!(tokenizer.added_special_count(), 1);
    }
}

#[test]
fn what_is_no_tokenizer_is_said_with_what_would_be_right() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let bad = folder.path().join("bad.json");
    std::fs::write(&bad, "{\"model\": 3}").unwrap();
    let missing = folder.path().join("missing");
    let cases = [
        (&empty, "holds no tokenizer.json"),
        (&bad, "cannot be used"),
        (&missing, "not a path that exists"),
    ];
    for (path, part) in cases {
        let message = load_error(&plan(path.to_str()), &[], &Environment::default());
        assert!(
            message.starts_with("--tokenizer ")
                && message.contains(part)
                && message.contains("gpt2"),
            "{message}"
        );
    }
}

#[test]
fn a_models_name_is_its_tokenizer_unless_it_is_a_placeholder() {
    let models = |name: &str| [name.to_owned()];
    for name in [
        "test",
        "mock",
        "fake-llama",
        "my-model",
        "mock-model",
        "Test_Model",
        "dummy",
    ] {
        let loaded = load(&plan(None), &models(name), &Environment::default()).unwrap();
        assert_eq!(loaded.tokenizer.name(), "builtin", "{name}");
        assert!(loaded.note.unwrap().contains(name), "{name}");
    }
    let loaded = load(&plan(None), &models("gpt2"), &Environment::default()).unwrap();
    assert_eq!((loaded.tokenizer.name(), loaded.note), ("gpt2", None));
    let offline = Environment {
        offline: true,
        ..Environment::default()
    };
    for name in ["testament-7b", "org/mock", "mysterious", "llama3"] {
        let message = load_error(&plan(None), &[name], &offline);
        assert!(
            message.contains(name)
                && message.contains("--tokenizer not given")
                && message.contains("HF_HUB_OFFLINE"),
            "{message}"
        );
    }
}

#[test]
fn a_models_name_may_be_a_directory_with_a_tokenizer_only() {
    let folder = tempfile::tempdir().unwrap();
    let offline = Environment {
        offline: true,
        ..Environment::default()
    };
    let name = folder.path().to_str().unwrap();
    let message = load_error(&plan(None), &[name], &offline);
    assert!(
        message.contains("not a tokenizer inside this program"),
        "{message}"
    );
    std::fs::write(folder.path().join("tokenizer.json"), tiny_json()).unwrap();
    let loaded = load(&plan(None), &[name.to_owned()], &offline).unwrap();
    assert_eq!(loaded.tokenizer.count("the and"), 2);
}

#[test]
fn a_download_is_kept_in_the_hubs_layout_and_found_again() {
    let cache = tempfile::tempdir().unwrap();
    let hub = hub_with_model();
    let mut environment = hub.environment(cache.path());
    environment.token = Some("secret-token".to_owned());
    let loaded = load(&plan(Some("org/tiny")), &[], &environment).unwrap();
    assert_eq!(loaded.tokenizer.count("the and"), 2);
    assert_eq!(loaded.note, None);
    let heads = hub.heads();
    assert_eq!(heads.len(), 3, "{heads:?}");
    assert!(
        heads[0].starts_with("GET /org/tiny/resolve/main/tokenizer.json HTTP/1.1"),
        "{heads:?}"
    );
    assert!(
        heads[0]
            .to_ascii_lowercase()
            .contains("authorization: bearer secret-token"),
        "{heads:?}"
    );
    let model = cache.path().join("models--org--tiny");
    assert_eq!(
        std::fs::read_to_string(model.join("refs/main")).unwrap(),
        COMMIT
    );
    assert_eq!(
        std::fs::read_to_string(model.join("blobs/aabbccdd")).unwrap(),
        tiny_json()
    );
    let linked = model.join("snapshots").join(COMMIT).join("tokenizer.json");
    #[cfg(unix)]
    assert_eq!(
        std::fs::read_link(&linked).unwrap(),
        Path::new("../../blobs/aabbccdd")
    );
    assert_eq!(std::fs::read_to_string(linked).unwrap(), tiny_json());
    // Again, by branch and by commit, offline: without a connection.
    environment.offline = true;
    for revision in ["main", COMMIT] {
        let plan = TokenizerPlan {
            apply_chat_template: false,
            name: Some("org/tiny".to_owned()),
            revision: revision.to_owned(),
        };
        load(&plan, &[], &environment).unwrap();
    }
    assert_eq!(hub.heads().len(), 3);
}

#[test]
fn a_revision_is_asked_for_and_a_commit_needs_no_ref() {
    let cache = tempfile::tempdir().unwrap();
    let hub = hub_with_model();
    let mut asked = plan(Some("org/tiny"));
    asked.revision = COMMIT.to_owned();
    load(&asked, &[], &hub.environment(cache.path())).unwrap();
    assert!(hub.heads()[0].contains(&format!("/org/tiny/resolve/{COMMIT}/tokenizer.json")));
    assert!(!cache.path().join("models--org--tiny/refs").exists());
    asked.revision = "refs/pr/1".to_owned();
    let message = load_error(&asked, &[], &hub.environment(cache.path()));
    assert!(message.contains("revision refs/pr/1"), "{message}");
    assert!(
        hub.heads()
            .last()
            .unwrap()
            .contains("/resolve/refs%2Fpr%2F1/")
    );
}

#[test]
fn refusals_are_told_apart() {
    let cache = tempfile::tempdir().unwrap();
    let hub = hub_with_model();
    let environment = hub.environment(cache.path());
    let cases = [
        (
            "org/missing",
            "has no tokenizer.json for it at revision main",
        ),
        ("secret/model", "HF_TOKEN"),
        ("broken/model", "answers 500"),
    ];
    for (name, part) in cases {
        let message = load_error(&plan(Some(name)), &[], &environment);
        assert!(
            message.contains(part) && message.contains("builtin"),
            "{message}"
        );
    }
    let before = hub.heads().len();
    for name in ["a/b/c", "../escape", "org/..", "-flag", "with space"] {
        let message = load_error(&plan(Some(name)), &[], &environment);
        assert!(message.contains("not a hub id"), "{message}");
    }
    assert_eq!(hub.heads().len(), before);
    // Nobody listens there.
    let mut nowhere = environment;
    nowhere.hub = "http://127.0.0.1:9".to_owned();
    let message = load_error(&plan(Some("org/tiny")), &[], &nowhere);
    assert!(message.contains("the download failed"), "{message}");
    assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 0);
}

#[test]
fn the_token_stays_with_the_hub() {
    let store = SmallHub::start(|_| answer("200 OK", &["ETag: \"of-the-store\""], &tiny_json()));
    let target = store.url.clone();
    let hub = SmallHub::start(move |path| match path {
        "/old/resolve/main/tokenizer.json" => answer(
            "307 Temporary Redirect",
            &["Location: /org/new/resolve/main/tokenizer.json"],
            "",
        ),
        "/org/new/resolve/main/tokenizer.json" => {
            let location = format!("Location: {target}/file");
            let commit = format!("X-Repo-Commit: {COMMIT}");
            answer(
                "302 Found",
                &[&location, &commit, "X-Linked-ETag: \"feed\""],
                "",
            )
        }
        _ => answer("404 Not Found", &[], ""),
    });
    let cache = tempfile::tempdir().unwrap();
    let mut environment = hub.environment(cache.path());
    environment.token = Some("secret-token".to_owned());
    load(&plan(Some("old")), &[], &environment).unwrap();
    let with_token = hub
        .heads()
        .iter()
        .filter(|head| head.contains("secret-token"))
        .count();
    assert_eq!(
        with_token, 4,
        "the name, its new name, the configuration and the template"
    );
    assert_eq!(store.heads().len(), 1);
    assert!(
        !store.heads()[0]
            .to_ascii_lowercase()
            .contains("authorization"),
        "{:?}",
        store.heads()
    );
    assert!(cache.path().join("models--old/blobs/feed").is_file());
}

#[test]
fn damaged_downloads_leave_nothing_behind() {
    let wrong = format!("ETag: \"{}\"", "0".repeat(64));
    let hub = SmallHub::start(move |_| answer("200 OK", &[&wrong], &tiny_json()));
    let cache = tempfile::tempdir().unwrap();
    let message = load_error(&plan(Some("org/tiny")), &[], &hub.environment(cache.path()));
    assert!(message.contains("SHA-256"), "{message}");
    assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 0);
    let endless = SmallHub::start(|path| answer("302 Found", &[&format!("Location: {path}")], ""));
    let message = load_error(
        &plan(Some("org/tiny")),
        &[],
        &endless.environment(cache.path()),
    );
    assert!(message.contains("redirects"), "{message}");
}

#[test]
fn a_cache_that_cannot_be_written_does_not_stop_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let occupied = folder.path().join("occupied");
    std::fs::write(&occupied, "a file, not a folder").unwrap();
    let hub = hub_with_model();
    let loaded = load(&plan(Some("org/tiny")), &[], &hub.environment(&occupied)).unwrap();
    assert!(loaded.note.unwrap().contains("cannot be kept"));
}

#[test]
fn the_environment_follows_the_hubs_rules() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, " from-file\n").unwrap();
    let home = folder.path().to_str().unwrap();
    let from = |pairs: &[(&str, &str)]| {
        Environment::from_variables(|name| {
            pairs
                .iter()
                .find(|pair| pair.0 == name)
                .map(|pair| pair.1.to_owned())
        })
    };
    let cache = |pairs: &[(&str, &str)]| from(pairs).cache;
    assert_eq!(
        cache(&[("HF_HUB_CACHE", "/c"), ("HF_HOME", "/h")]),
        Some(PathBuf::from("/c"))
    );
    assert_eq!(
        cache(&[("HF_HOME", "/h"), ("HOME", "/u")]),
        Some(PathBuf::from("/h/hub"))
    );
    assert_eq!(
        cache(&[("HOME", "/u")]),
        Some(PathBuf::from("/u/.cache/huggingface/hub"))
    );
    assert_eq!(cache(&[]), None);
    assert_eq!(from(&[]).hub, "https://huggingface.co");
    assert_eq!(
        from(&[("HF_ENDPOINT", "http://mirror:8080/")]).hub,
        "http://mirror:8080"
    );
    assert_eq!(
        from(&[("HF_TOKEN", "t"), ("HF_HOME", home)])
            .token
            .as_deref(),
        Some("t")
    );
    assert_eq!(
        from(&[("HF_TOKEN", ""), ("HF_HOME", home)])
            .token
            .as_deref(),
        Some("from-file")
    );
    assert_eq!(
        from(&[("HF_TOKEN_PATH", token_file.to_str().unwrap())])
            .token
            .as_deref(),
        Some("from-file")
    );
    assert!(!format!("{:?}", from(&[("HF_TOKEN", "hidden")])).contains("hidden"));
    for (value, offline) in [
        ("1", true),
        ("true", true),
        ("ON", true),
        ("0", false),
        ("", false),
        ("no", false),
    ] {
        assert_eq!(
            from(&[("HF_HUB_OFFLINE", value)]).offline,
            offline,
            "{value}"
        );
        assert_eq!(
            from(&[("TRANSFORMERS_OFFLINE", value)]).offline,
            offline,
            "{value}"
        );
    }
}
