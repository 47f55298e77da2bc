//! The answers of numbers.
//!
//! In: bodies of requests. Out: whether the answer has what they ask for. Never: a socket.

use super::*;

fn answer(kind: Numbers, body: &str) -> Result<Answer, String> {
    kind.answer(&serde_json::from_str(body).unwrap(), 5)
}

#[test]
fn each_input_gets_its_vector_and_each_word_is_counted() {
    let cases = [
        (r#""input":"a b""#, 1, 2),
        (r#""input":["a b","c"]"#, 2, 3),
        (r#""input":[5,6,7]"#, 1, 3),
        (r#""input":[[5,6,7],[8]]"#, 2, 4),
        (
            r#""messages":[{"role":"user","content":[{"type":"text","text":"a b"}]}]"#,
            1,
            2,
        ),
    ];
    for (fields, vectors, tokens) in cases {
        let body = format!(r#"{{"model":"m",{fields},"dimensions":3}}"#);
        let Answer {
            value,
            prompt_tokens,
        } = answer(Numbers::Embeddings, &body).unwrap();
        let data = value["data"].as_array().unwrap();
        assert_eq!((data.len(), prompt_tokens), (vectors, tokens), "{body}");
        assert_eq!(value["usage"]["prompt_tokens"], tokens, "{body}");
        for vector in data {
            let numbers = vector["embedding"].as_array().unwrap();
            assert_eq!(numbers.len(), 3);
            assert!(
                numbers
                    .iter()
                    .all(|number| number.as_f64().unwrap().abs() <= 1.0)
            );
        }
    }
    let body = r#"{"model":"m","input":"a","dimensions":3,"encoding_format":"base64"}"#;
    let packed = answer(Numbers::Embeddings, body).unwrap().value;
    let bytes = STANDARD
        .decode(packed["data"][0]["embedding"].as_str().unwrap())
        .unwrap();
    assert_eq!(bytes.len(), 12);
}

#[test]
fn rankings_name_every_passage_once_and_the_best_first() {
    let cases = [
        (
            Numbers::Ranking,
            r#"{"model":"m","query":{"text":"q q"},"passages":[{"text":"a b"},{"text":"c"},{"text":"d"}]}"#,
            "rankings",
            "logit",
        ),
        (
            Numbers::Rerank,
            r#"{"model":"m","query":"q q","documents":["a b","c","d"]}"#,
            "results",
            "relevance_score",
        ),
        (
            Numbers::TeiRerank,
            r#"{"query":"q q","texts":["a b","c","d"]}"#,
            "",
            "score",
        ),
    ];
    for (kind, body, place, score) in cases {
        let Answer {
            value,
            prompt_tokens,
        } = answer(kind, body).unwrap();
        assert_eq!(prompt_tokens, 6, "{body}");
        let ranks = if place.is_empty() {
            &value
        } else {
            &value[place]
        };
        let ranks = ranks.as_array().unwrap();
        let scores: Vec<f64> = ranks
            .iter()
            .map(|rank| rank[score].as_f64().unwrap())
            .collect();
        assert!(scores.is_sorted_by(|one, next| one >= next), "{scores:?}");
        let mut indices: Vec<u64> = ranks
            .iter()
            .map(|rank| rank["index"].as_u64().unwrap())
            .collect();
        indices.sort_unstable();
        assert_eq!(indices, [0, 1, 2]);
    }
    let top = answer(
        Numbers::Rerank,
        r#"{"model":"m","query":"q","documents":["a","b","c"],"top_n":2}"#,
    );
    assert_eq!(top.unwrap().value["results"].as_array().unwrap().len(), 2);
}

#[test]
fn what_is_missing_is_named() {
    let cases = [
        (Numbers::Embeddings, r#"{"input":"a"}"#, "`model`"),
        (Numbers::Embeddings, r#"{"model":"m"}"#, "`input`"),
        (
            Numbers::Embeddings,
            r#"{"model":"m","input":[]}"#,
            "`input`",
        ),
        (
            Numbers::Embeddings,
            r#"{"model":"m","input":"a","dimensions":0}"#,
            "least is 1",
        ),
        (
            Numbers::Embeddings,
            r#"{"model":"m","input":["a","b"],"dimensions":1048576}"#,
            "the most",
        ),
        (
            Numbers::Embeddings,
            r#"{"model":"m","input":"a","encoding_format":"x"}"#,
            "float or base64",
        ),
        (
            Numbers::Embeddings,
            r#"{"model":"m","messages":[]}"#,
            "`messages`",
        ),
        (
            Numbers::Ranking,
            r#"{"model":"m","query":"q","passages":[{"text":"a"}]}"#,
            "`query`",
        ),
        (
            Numbers::Ranking,
            r#"{"model":"m","query":{"text":"q"},"passages":["a"]}"#,
            "`passages`",
        ),
        (
            Numbers::Ranking,
            r#"{"query":{"text":"q"},"passages":[{"text":"a"}]}"#,
            "`model`",
        ),
        (
            Numbers::Rerank,
            r#"{"model":"m","query":"q","documents":[]}"#,
            "`documents`",
        ),
        (
            Numbers::TeiRerank,
            r#"{"query":"q","documents":["a"]}"#,
            "`texts`",
        ),
        (Numbers::Infer, r#"{"input":[]}"#, "`input`"),
        (
            Numbers::Infer,
            r#"{"input":[{"type":"image_url","url":"ftp://x"}]}"#,
            "image_url",
        ),
    ];
    for (kind, body, word) in cases {
        let sentence = answer(kind, body).unwrap_err();
        assert!(sentence.contains(word), "{body}: {sentence}");
    }
    let boxes = answer(
        Numbers::Infer,
        r#"{"input":[{"type":"image_url","url":"data:image/png;base64,QQ=="}]}"#,
    );
    assert!(boxes.unwrap().value["data"][0]["bounding_boxes"]["table"][0]["x_min"].is_number());
}
