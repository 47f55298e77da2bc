//! Chat templates beside Python's Jinja.
//!
//! In: `tests/template` (templates, dialogues, and what Python's Jinja made of them), and installed models where a variable names them.
//! Out: the same bytes, or a refusal where Jinja refuses. Never: a model's own files in this repository.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value;
use tokenring::tokenizer::{ChatTemplate, Dialogue, read_chat_template};

type Expected = BTreeMap<String, BTreeMap<String, Option<String>>>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/template")
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The moment that `expect.py` takes for now.
fn now() -> jiff::ZonedDateTime {
    let moment: jiff::Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
    moment.to_zoned_datetime(jiff::tz::TimeZone::UTC)
}

/// Dialogues by name, each with whether the answer is to begin.
fn dialogues() -> BTreeMap<String, (Dialogue, bool)> {
    let all: BTreeMap<String, Value> =
        serde_json::from_str(&text(&folder().join("dialogues.json"))).unwrap();
    let dialogue = |value: &Value| Dialogue {
        messages: value["messages"].as_array().unwrap().clone(),
        tools: value.get("tools").cloned(),
        variables: value["variables"].as_object().cloned().unwrap_or_default(),
    };
    let prompt = |value: &Value| value["add_generation_prompt"] != false;
    let pairs = all.into_iter();
    pairs
        .map(|(name, value)| (name, (dialogue(&value), prompt(&value))))
        .collect()
}

/// Where two texts part, with what stands around.
fn difference(ours: &str, right: &str) -> String {
    let same = ours
        .chars()
        .zip(right.chars())
        .take_while(|(a, b)| a == b)
        .count();
    let around = |text: &str| -> String {
        text.chars()
            .skip(same.saturating_sub(30))
            .take(70)
            .collect()
    };
    format!(
        "at {same}\n  jinja {:?}\n  ours  {:?}",
        around(right),
        around(ours)
    )
}

/// Compares one template with what Jinja made; every difference is a sentence.
fn compare(
    name: &str,
    template: &ChatTemplate,
    expected: &BTreeMap<String, Option<String>>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (title, (dialogue, prompt)) in dialogues() {
        let right = &expected[&title];
        let ours = template.render_as_given(&dialogue, prompt);
        match (&ours, right) {
            (Ok(ours), Some(right)) if ours == right => {}
            (Err(_), None) => {}
            (Ok(ours), Some(right)) => {
                wrong.push(format!("{name}, {title}: {}", difference(ours, right)));
            }
            _ => wrong.push(format!("{name}, {title}: jinja {right:?}, ours {ours:?}")),
        }
    }
    wrong
}

#[test]
fn templates_print_what_pythons_jinja_prints() {
    let expected: Expected = serde_json::from_str(&text(&folder().join("expected.json"))).unwrap();
    assert!(expected.len() >= 6, "templates are missing");
    let tokens = [("bos_token", "<bos>"), ("eos_token", "<eos>")]
        .map(|(name, token)| (name.to_owned(), token.to_owned()));
    let mut wrong = Vec::new();
    for (name, expected) in &expected {
        let source = text(&folder().join(format!("templates/{name}.jinja")));
        let template = ChatTemplate::new(&source, &tokens, now()).unwrap();
        wrong.extend(compare(name, &template, expected));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `tests/peers/chat_templates.py` sets the variable to a file of expectations, made from models that it installed.
#[test]
fn installed_models_print_what_pythons_jinja_prints() {
    let Some(path) = std::env::var_os("TOKENRING_TEMPLATE_EXPECTATIONS") else {
        println!("skipped: python3 tests/peers/chat_templates.py installs models and runs this");
        return;
    };
    let expected: Expected = serde_json::from_str(&text(Path::new(&path))).unwrap();
    let mut wrong = Vec::new();
    for (name, expected) in &expected {
        let template = read_chat_template(Path::new(name), now()).unwrap();
        let differing = compare(name, &template, expected);
        println!("{name}: {} of {} differ", differing.len(), expected.len());
        wrong.extend(differing);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn dialogue_of(content: &str) -> Dialogue {
    Dialogue {
        messages: vec![serde_json::json!({"role": "user", "content": content})],
        ..Dialogue::default()
    }
}

#[test]
fn a_template_that_does_not_end_is_stopped() {
    let endless = "{% macro again(n) %}{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}{% endmacro %}{{ again(1) }}";
    let refused =
        ChatTemplate::new(endless, &[], now()).map(|template| template.render(&dialogue_of("x")));
    let error = refused.unwrap().unwrap_err();
    assert!(error.contains("does not end"), "{error}");
    let deep = "{% macro again(n) %}{{ again(n + 1) }}{% endmacro %}{{ again(1) }}";
    let refused = ChatTemplate::new(deep, &[], now())
        .unwrap()
        .render(&dialogue_of("x"));
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn errors_say_the_line_and_what_the_template_said() {
    let template = "line\n{{ raise_exception('Only ' ~ 1 ~ ' message') }}";
    let template = ChatTemplate::new(template, &[], now()).unwrap();
    let error = template.render(&dialogue_of("x")).unwrap_err();
    assert_eq!(error, "line 2 of the chat template: Only 1 message");
    let error = ChatTemplate::new("a\nb {% for %}", &[], now()).unwrap_err();
    assert!(
        error.starts_with("line 2 of the chat template: "),
        "{error}"
    );
    let long = "x".repeat((1 << 20) + 1);
    let error = ChatTemplate::new(&long, &[], now()).unwrap_err();
    assert!(error.contains("1048577 bytes"), "{error}");
}

/// One line a body in `template/bodies.jsonl`: messages, tools and variables as a template is to get them.
#[test]
fn bodies_of_every_api_say_the_same() {
    let lines = text(&folder().join("bodies.jsonl"));
    for line in lines.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let name = case["name"].as_str().unwrap();
        let body = serde_json::to_vec(&case["body"]).unwrap();
        let said = tokenring::endpoint::dialogue(&body);
        let said = said.map_or(Value::Null, |said| {
            serde_json::json!({
                "messages": said.messages,
                "tools": said.tools,
                "variables": said.variables,
            })
        });
        assert_eq!(said, case["said"], "{name}");
    }
    assert!(lines.lines().count() >= 8, "cases are missing");
    assert!(tokenring::endpoint::dialogue(b"{\"messages\": [").is_none());
}

/// Servers hand arguments over as objects, and contents as one text, unless the template wants otherwise.
#[test]
fn messages_are_prepared_as_servers_do() {
    let call = |arguments: &str| Dialogue {
        messages: vec![serde_json::json!({
            "role": "assistant",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            "tool_calls": [{"function": {"name": "f", "arguments": arguments}}],
        })],
        ..Dialogue::default()
    };
    let each = "{% for c in messages[0].tool_calls %}";
    let cases = [
        (
            "{{ c.function.arguments | tojson }}",
            r#"{"x":[1]}"#,
            r#"{"x": [1]}"#,
        ),
        (
            "{{ 'args ' + c.function.arguments }}",
            r#"{"x":[1]}"#,
            r#"args {"x":[1]}"#,
        ),
        (
            "{{ c.function.arguments | tojson }}",
            "not json",
            r#""not json""#,
        ),
        ("{{ c.function.arguments | tojson }}", "[1]", r#""[1]""#),
        ("{{ messages[0].content }}", "", "a\nb"),
        (
            "{% for part in messages[0].content %}<{{ part.text }}>{% endfor %}",
            "",
            "<a><b>",
        ),
    ];
    for (inside, arguments, right) in cases {
        // A template that has no calls to walk through is tried with a plain message when it is read.
        let source = format!(
            "{each}{inside}{{% endfor %}}{{% if not messages[0].tool_calls %}}{inside}{{% endif %}}"
        );
        let source = if inside.contains("c.") {
            format!("{each}{inside}{{% endfor %}}")
        } else {
            source
        };
        let template = ChatTemplate::new(&source, &[], now()).unwrap();
        assert_eq!(
            template.render(&call(arguments)).unwrap(),
            right,
            "{inside}"
        );
    }
}

/// Pieces of templates, put together in any order.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "\\PC{0,8}",
        prop::sample::select(vec![
            "{%",
            "%}",
            "{{",
            "}}",
            "{#",
            "#}",
            "{%-",
            "-%}",
            "{{-",
            "-}}",
            "{% raw %}",
            "{% endraw %}",
            "{% generation %}",
            "{%- endgeneration -%}",
            "{% for m in messages %}",
            "{% endfor %}",
            "{% if messages %}",
            "{% else %}",
            "{% endif %}",
            "{% set x = messages %}",
            "{% macro m(a) %}",
            "{% endmacro %}",
            "{% break %}",
            "{{ m(messages) }}",
            "{{ x }}",
            "{{ messages | tojson(indent=3) }}",
            "{{ messages[0]['content'] | trim }}",
            "{{ strftime_now('%Y %Q') }}",
            "{{ strftime_now(x) }}",
            "{{ x ~ x }}",
            "{{ messages[::-1] }}",
            "{{ 'a' * 3 }}",
            "{{ [x] * 9 }}",
            "'",
            "\"",
            "\\",
            "\r\n",
            "{{ 'a'.split(x) }}",
            "{{ 1 // 0 }}",
            "{{ x | join(x) }}",
            "{{ namespace(a=x) }}",
            "{% include 'x' %}",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever stands in a template, it is refused or it prints, and it ends.
    #[test]
    fn any_template_ends_without_a_panic(source in pieces(), content in "\\PC{0,40}") {
        let tokens = [("bos_token".to_owned(), "<b>".to_owned())];
        if let Ok(template) = ChatTemplate::new(&source, &tokens, now()) {
            let _ = template.render(&dialogue_of(&content));
        }
    }

    /// A text without a template's signs is printed as it stands, with one end of line less at its end.
    #[test]
    fn plain_text_stays(text in "[a-zA-Z0-9 .,\n<>|&'\"-]{0,200}") {
        let template = ChatTemplate::new(&text, &[], now()).unwrap();
        let right = text.strip_suffix('\n').unwrap_or(&text);
        prop_assert_eq!(template.render(&dialogue_of("x")).unwrap(), right);
    }

    /// What a message says comes through unchanged, whatever it is.
    #[test]
    fn a_message_is_printed_as_it_stands(content in any::<String>()) {
        let template = ChatTemplate::new("<{{ messages[0].content }}>", &[], now()).unwrap();
        prop_assert_eq!(template.render(&dialogue_of(&content)).unwrap(), format!("<{content}>"));
    }

    /// `tojson` writes JSON that means what it was given, for every text.
    #[test]
    fn json_means_what_was_given(content in any::<String>(), ascii in any::<bool>(), indent in 0..4_usize) {
        let indent = if indent == 0 { "none".to_owned() } else { indent.to_string() };
        let source = format!("{{{{ messages | tojson(ensure_ascii={ascii}, indent={indent}) }}}}");
        let template = ChatTemplate::new(&source, &[], now()).unwrap();
        let said = dialogue_of(&content);
        let written: Value = serde_json::from_str(&template.render(&said).unwrap()).unwrap();
        prop_assert_eq!(written, Value::from(said.messages));
    }
}
