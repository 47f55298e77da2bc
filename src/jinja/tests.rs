//! Templates that ask for too much, and those that only look so.
//!
//! In: templates. Out: what they render, or what they are told. Never: a dialogue or a body.

use super::*;

fn given() -> Value {
    minijinja::context! {
        a => "ab", list => vec![1, 2, 3], messages => vec![minijinja::context! { role => "user", content => "Hi" }],
    }
}

fn render(text: &str) -> Result<String, String> {
    let environment = Environment::new();
    let template = Jinja::new(environment, "test", text.to_owned(), false);
    template
        .and_then(|template| template.render(given()))
        .map_err(|error| error.to_string())
}

/// In a loop of `turns`, with `n.x` to grow.
fn grown(start: &str, turns: u32, step: &str) -> String {
    format!(
        "{{% set n = namespace(x={start}) %}}{{% for i in range({turns}) %}}{step}{{% endfor %}}"
    )
}

#[test]
fn what_grows_without_bound_is_refused() {
    let cases = [
        grown("a", 60, "{% set n.x = n.x ~ n.x %}"),
        grown("a", 60, "{% set n.x = n.x + n.x %}"),
        grown("a", 60, "{% set n.x = n.x * 9 %}"),
        grown("a", 60, "{% set n.x = [n.x, n.x] %}{% set y = n.x ~ '' %}"),
        grown("list", 60, "{% set n.x = n.x + n.x %}"),
        grown("list", 60, "{% set n.x = n.x * 9 %}"),
        grown("a", 60, "{% set n.x = n.x | replace('a', n.x) %}"),
        grown("a", 60, "{% set n.x = [n.x, n.x] | join(n.x) %}"),
        grown("a", 60, "{% set n.x = '%s%s' | format(n.x, n.x) %}"),
        grown(
            "a",
            60,
            "{% set n.x = ['a'] | map('replace', 'a', n.x ~ n.x) | join %}",
        ),
        grown("a", 60, "{% set n.x = {'a': n.x, 'b': n.x} %}{{ n.x }}"),
        grown(
            "a",
            60,
            "{% set x %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = x %}",
        ),
        grown(
            "a",
            60,
            "{% set x %}{% filter replace('a', n.x) %}{{ n.x }}{{ n.x }}{% endfilter %}{% endset %}{% set n.x = x %}",
        ),
        grown(
            "a",
            60,
            "{% set n.x = [n.x, n.x] %}{% if n.x == [n.x] %}{% endif %}",
        ),
        "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}".to_owned()
            + &grown("a", 60, "{% set n.x = m(n.x) %}"),
        format!(
            "{{% for i in range(99999) %}}{{% for i in range(99) %}}{}{{% endfor %}}{{% endfor %}}",
            "x".repeat(9_000)
        ),
        "{{ a | indent(99999999999) }}{{ 'a\nb' | indent(999999999999) }}".to_owned(),
        "{{ '%999999999d' | format(1) }}".to_owned(),
        "{{ list | tojson(indent=999999999) }}".to_owned(),
    ];
    for text in cases {
        let told = render(&text).expect_err(&text);
        assert!(told.contains("builds more than 512 MiB"), "{text}: {told}");
    }
}

#[test]
fn what_nests_without_bound_is_refused() {
    let cases = [
        grown("a", 2_000, "{% set n.x = [n.x] %}"),
        grown("a", 2_000, "{% set n.x = {'a': n.x} %}"),
        grown("a", 2_000, "{% set n.x = dict(a=n.x) %}"),
        grown("a", 9, "{% set n.x = n %}") + "{{ n }}",
    ];
    for text in cases {
        let told = render(&text).expect_err(&text);
        assert!(told.contains("deeper than 200 levels"), "{text}: {told}");
    }
    // Sequences that are lazy upon each other would be.
    for step in [
        "n.x[:]",
        "n.x + []",
        "n.x * 1",
        "n.x | reverse",
        "n.x | list",
        "n.x[::-1]",
    ] {
        let text =
            grown("list", 2_000, &format!("{{% set n.x = {step} %}}")) + "{{ n.x | length }}";
        assert_eq!(render(&text).as_deref(), Ok("3"), "{step}");
    }
}

#[test]
fn constants_that_the_compiler_works_out_are_bounded() {
    for text in [
        "{{ 'a' * 99999999 }}",
        "{% if 'a' * 9999 * 9999 %}{% endif %}",
        "{{ ('a' * 3000) * (5 * 5) }}",
        "{{ 'a' * 10 ** 9 }}",
        "{% macro m(x='a' * 99999999) %}{% endmacro %}",
        "{{ list | join('a' * 99999999) }}",
    ] {
        let told = render(text).expect_err(text);
        assert!(
            told.contains("65536 bytes before it runs"),
            "{text}: {told}"
        );
    }
    assert_eq!(
        render("{{ '=' * 80 ~ '-' * 80 }}").map(|text| text.len()),
        Ok(160)
    );
    assert_eq!(
        render("{{ 'ms: ' ~ 60 * 60 * 1000 }}").as_deref(),
        Ok("ms: 3600000")
    );
}

/// Templates of every kind of step, and what they render.
const STEPS: &[(&str, &str)] = &[
    (
        "{{ a[::-1] }}{{ a[1:] }}{{ list[1:] }}{{ list[-1] }}",
        "bab[2, 3]3",
    ),
    (
        "{{ 'x' if a == 'ab' else 'y' }}{{ a == ('q' if list else 'ab') }}",
        "xFalse",
    ),
    (
        "{{ a is defined and b is not defined }}{{ 2 in list }}{{ 1 < 2 < 3 }}",
        "TrueTrueTrue",
    ),
    (
        "{{ list | map('string') | join('-') }}{{ list | sum }}{{ list | batch(2) | list }}",
        "1-2-36[[1, 2], [3]]",
    ),
    (
        "{% macro m(x, y=2) %}{{ x }}:{{ y }}{% endmacro %}{{ m(1) }}{{ m(y=3, x=list) }}{{ m(*list[:2]) }}",
        "1:2[1, 2, 3]:31:2",
    ),
    (
        "{% for i in list recursive %}{{ i }}{% if i is iterable %}{% endif %}{% if loop.depth < 2 and i == 1 %}({{ loop(list) }}){% endif %}{% endfor %}",
        "1(123)23",
    ),
    (
        "{% for i in list if i != 2 %}{{ i }}{{ ',' if not loop.last }}{% else %}none{% endfor %}{% for i in [] %}{% else %}none{% endfor %}",
        "1,3none",
    ),
    (
        "{% for i in list %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% if i == 3 %}{% break %}{% endif %}{% endfor %}",
        "13",
    ),
    (
        "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t ~ m.role ~ m['content'] %}{% endfor %}{{ ns.t }}",
        "userHi",
    ),
    (
        "{% block b %}{{ a }}{% endblock %}{% with x = 1 %}{{ x }}{% endwith %}{% set x, y = [1, 2] %}{{ y }}",
        "ab12",
    ),
    (
        "{% macro m(x) %}<{{ caller(x) }}>{% endmacro %}{% call(x) m(1) %}{{ x }}!{% endcall %}",
        "<1!>",
    ),
    (
        "{{ dict(a=1)['a'] }}{{ {'a': [1, a]} | tojson }}{{ a and list and 0 or 'z' }}",
        r#"1{"a":[1,"ab"]}z"#,
    ),
    (
        "{% autoescape true %}<b>{{ '<' }}{% endautoescape %}{{ '<' }}",
        "<b>&lt;<",
    ),
    (
        "{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 ** 5 }}{{ -(list[0]) }}{{ 1.5 * 2 }}{{ not a }}",
        "3332-13.0False",
    ),
    (
        "{{ missing }}{{ missing | default('d') }}{{ a | length }}{{ list | first }}",
        "d21",
    ),
];

#[test]
fn guards_change_no_result() {
    let unguarded = |text: &str| Environment::new().render_str(text, given()).ok();
    for (text, right) in STEPS {
        assert_eq!(render(text).as_deref(), Ok(*right), "{text}");
        assert_eq!(
            unguarded(text).as_deref(),
            Some(*right),
            "{text}, unguarded"
        );
    }
}

#[test]
fn errors_name_the_line() {
    let told = Jinja::new(
        Environment::new(),
        "test",
        "a\n{{ list[:].nothing() }}".to_owned(),
        false,
    )
    .and_then(|template| template.render(Value::from_serialize(serde_json::json!({"list": []}))));
    assert_eq!(told.expect_err("no such method").line(), Some(2));
    let told = Jinja::new(
        Environment::new(),
        "test",
        "\n\n{% for %}".to_owned(),
        false,
    );
    assert_eq!(told.expect_err("no loop").line(), Some(3));
}
