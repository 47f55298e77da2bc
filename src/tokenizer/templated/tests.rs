//! Tokenizers with their model's chat template.
//!
//! In: folders as models have them. Out: overheads and refusals. Never: the network.

use std::path::Path;

use super::super::tests::tiny_json;
use super::super::{Dialogue, Environment, Tokenizer, load};
use crate::config::TokenizerPlan;

const TEMPLATE: &str =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";

/// Loads the tokenizer of a folder that holds `files` beside a `tokenizer.json`.
fn loaded(files: &[(&str, &str)]) -> Result<std::sync::Arc<dyn Tokenizer>, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), tiny_json()).unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    load_named(&folder.path().to_string_lossy())
}

fn load_named(name: &str) -> Result<std::sync::Arc<dyn Tokenizer>, String> {
    let plan = TokenizerPlan {
        apply_chat_template: true,
        name: Some(name.to_owned()),
        revision: "main".to_owned(),
    };
    let environment = Environment {
        offline: true,
        ..Environment::default()
    };
    load(&plan, &[], &environment)
        .map(|loaded| loaded.tokenizer)
        .map_err(|error| error.to_string())
}

fn configuration(template: &serde_json::Value) -> String {
    serde_json::json!({
        "bos_token": {"content": "<b>", "lstrip": false},
        "chat_template": template,
    })
    .to_string()
}

fn hello() -> Dialogue {
    Dialogue {
        messages: vec![serde_json::json!({"role": "user", "content": "Hello"})],
        ..Dialogue::default()
    }
}

#[test]
fn the_overhead_is_all_that_stands_around_a_prompt() {
    let text = configuration(&TEMPLATE.into());
    let tokenizer = loaded(&[("tokenizer_config.json", &text)]).unwrap();
    let template = tokenizer.chat_template().unwrap();
    assert_eq!(template.render(&hello()).unwrap(), "<b>[user]Hello");
    let around = tokenizer.count("<b>[user]Hello") - tokenizer.count("Hello");
    assert_eq!(tokenizer.prompt_overhead(), around);
    assert!(around > tokenizer.added_special_count());
}

#[test]
fn the_file_beside_comes_before_the_configuration() {
    let text = configuration(&"from the configuration".into());
    let files = [
        ("tokenizer_config.json", text.as_str()),
        ("chat_template.jinja", "{{ bos_token }}from the file"),
    ];
    let tokenizer = loaded(&files).unwrap();
    let template = tokenizer.chat_template().unwrap();
    assert_eq!(template.render(&hello()).unwrap(), "<b>from the file");
}

#[test]
fn of_named_templates_the_default_is_taken() {
    let named = |name: &str| {
        configuration(&serde_json::json!([
            {"name": "tool_use", "template": "tools"},
            {"name": name, "template": "plain"},
        ]))
    };
    let tokenizer = loaded(&[("tokenizer_config.json", &named("default"))]).unwrap();
    let template = tokenizer.chat_template().unwrap();
    assert_eq!(template.render(&hello()).unwrap(), "plain");
    let error = loaded(&[("tokenizer_config.json", &named("rag"))])
        .err()
        .unwrap();
    assert!(error.contains("tool_use, rag"), "{error}");
}

#[test]
fn without_a_usable_template_the_flag_is_named() {
    let cases: [(&[(&str, &str)], &str); 5] = [
        (&[], "no chat template"),
        (&[("tokenizer_config.json", "{}")], "no chat template"),
        (&[("tokenizer_config.json", "{")], "is no JSON"),
        (
            &[("chat_template.jinja", "a\n{% if %}")],
            "line 2 of the chat template",
        ),
        (
            &[("chat_template.jinja", "{{ raise_exception('never') }}")],
            "never",
        ),
    ];
    for (files, part) in cases {
        let error = loaded(files).err().unwrap();
        assert!(
            error.starts_with("--apply-chat-template: ") && error.contains(part),
            "{error}"
        );
    }
    let error = load_named("gpt2").err().unwrap();
    assert!(
        error.starts_with("--apply-chat-template: tokenizer gpt2: ")
            && error.contains("folder or hub id"),
        "{error}"
    );
    assert!(
        !Path::new("gpt2").exists(),
        "the case above means the shipped one"
    );
}
