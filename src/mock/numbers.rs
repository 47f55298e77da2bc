//! APIs that answer with numbers: embeddings, rankings, places in pictures.
//!
//! In: a JSON body. Out: the whole answer. Never: a stream, or an answer that two equal bodies would not share.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::api::{count, model, words};
use super::script::random;

/// Numbers of a vector when the body names no `dimensions`.
const DIMENSIONS: u64 = 256;

/// Most numbers in one answer.
const NUMBERS_MAX: u64 = 1 << 20;

/// The paths that answer with numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// `/v1/embeddings`, for texts or for messages.
    Embeddings,
    /// `/v1/ranking` of NIM.
    Ranking,
    /// Cohere's `/v2/rerank`.
    Rerank,
    /// `/rerank` of text-embeddings-inference.
    TeiRerank,
    /// `/v1/infer` of NIM, for pictures.
    Infer,
}

/// An answer, and what was read for it.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) value: Value,
    /// Words between white space in all texts; for token ids, their number.
    pub(super) prompt_tokens: u64,
}

impl Numbers {
    /// Answers a body whose numbers are drawn from `seed`. The error is a sentence for the client.
    pub(super) fn answer(self, body: &Value, seed: u64) -> Result<Answer, String> {
        let value = match self {
            Numbers::Embeddings => return embeddings(body, seed),
            Numbers::Ranking | Numbers::Rerank | Numbers::TeiRerank => {
                return self.ranks(body, seed);
            }
            Numbers::Infer => infer(body, seed)?,
        };
        Ok(Answer {
            value,
            prompt_tokens: 0,
        })
    }

    /// The best passage first.
    fn ranks(self, body: &Value, seed: u64) -> Result<Answer, String> {
        let (query, name) = match self {
            Numbers::Ranking => (&body["query"]["text"], "passages"),
            Numbers::Rerank => (&body["query"], "documents"),
            _ => (&body["query"], "texts"),
        };
        if !query.is_string() {
            return Err(match self {
                Numbers::Ranking => "`query` must be an object with a `text`",
                _ => "`query` must be a string",
            }
            .to_owned());
        }
        let passages = list(body, name)?;
        let fits = |passage: &Value| match self {
            Numbers::Ranking => passage["text"].is_string(),
            _ => passage.is_string(),
        };
        if !passages.iter().all(fits) {
            return Err(match self {
                Numbers::Ranking => format!("`{name}` must be objects with a `text` each"),
                _ => format!("`{name}` must be strings"),
            });
        }
        let most = count(body, "top_n")?.unwrap_or(u64::MAX);
        let mut scores: Vec<(u64, f64)> = (0..).zip(unit_numbers(seed, passages.len())).collect();
        scores.sort_by(|one, other| other.1.total_cmp(&one.1));
        scores.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        let ranked = |score_name: &str| -> Value {
            let one = |&(index, score)| json!({"index": index, score_name: score});
            scores.iter().map(one).collect()
        };
        let prompt_tokens = words(query) + passages.iter().map(words).sum::<u64>();
        let value = match self {
            Numbers::Ranking => {
                model(body)?;
                json!({"rankings": ranked("logit"), "usage": usage(prompt_tokens)})
            }
            Numbers::Rerank => json!({
                "id": format!("rerank-{seed:016x}"), "model": model(body)?, "results": ranked("relevance_score"),
                "usage": usage(prompt_tokens),
            }),
            _ => ranked("score"),
        };
        Ok(Answer {
            value,
            prompt_tokens,
        })
    }
}

/// One vector for each text, list of token ids, or conversation.
fn embeddings(body: &Value, seed: u64) -> Result<Answer, String> {
    let model = model(body)?;
    let (items, prompt_tokens) = match &body["input"] {
        Value::Null if body.get("messages").is_some() => {
            let messages = list(body, "messages")?;
            (1, messages.iter().map(words).sum())
        }
        Value::String(_) => (1, words(&body["input"])),
        Value::Array(items) if items.first().is_some_and(Value::is_number) => {
            (1, items.len() as u64)
        }
        Value::Array(items) if items.iter().all(|item| item.is_string() || item.is_array()) => (
            list(body, "input")?.len() as u64,
            items.iter().map(words).sum(),
        ),
        _ => return Err("`input` must be a string, a list of strings, or token ids".to_owned()),
    };
    let dimensions = count(body, "dimensions")?.unwrap_or(DIMENSIONS);
    if dimensions == 0 || items.saturating_mul(dimensions) > NUMBERS_MAX {
        return Err(format!(
            "{items} vectors of {dimensions} numbers are asked for; the most is {NUMBERS_MAX} numbers, and the least is 1 for each vector"
        ));
    }
    let plain = match body["encoding_format"].as_str() {
        None | Some("float") => true,
        Some("base64") => false,
        Some(_) => return Err("`encoding_format` must be float or base64".to_owned()),
    };
    let vector = |index: u64| {
        let count = usize::try_from(dimensions).unwrap_or(0);
        let numbers = unit_numbers(seed ^ index, count).map(|number| 2.0 * number - 1.0);
        let embedding = if plain {
            numbers.collect::<Value>()
        } else {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the format has 32 bits a number"
            )]
            let bytes: Vec<u8> = numbers
                .flat_map(|number| (number as f32).to_le_bytes())
                .collect();
            Value::from(STANDARD.encode(bytes))
        };
        json!({"object": "embedding", "index": index, "embedding": embedding})
    };
    let value = json!({
        "object": "list", "data": (0..items).map(vector).collect::<Value>(), "model": model, "usage": usage(prompt_tokens),
    });
    Ok(Answer {
        value,
        prompt_tokens,
    })
}

/// One table in each picture.
fn infer(body: &Value, seed: u64) -> Result<Value, String> {
    let pictures = list(body, "input")?;
    let mut data = Vec::new();
    let mut bytes = 0;
    for (index, picture) in (0u64..).zip(pictures) {
        let url = picture["url"]
            .as_str()
            .filter(|_| picture["type"] == "image_url");
        let Some(url) = url.filter(|url| url.starts_with("data:image/") || url.starts_with("http"))
        else {
            return Err("`input` must be objects of the type image_url with a `url`, of data:image/ or http".to_owned());
        };
        bytes += url.len();
        let mut places: Vec<f64> = unit_numbers(seed ^ index, 5).collect();
        let confidence = places.pop();
        let table = json!({
            "x_min": places[0] / 2.0, "y_min": places[1] / 2.0, "x_max": 0.5 + places[2] / 2.0, "y_max": 0.5 + places[3] / 2.0,
            "confidence": confidence,
        });
        data.push(
            json!({"index": index, "bounding_boxes": {"table": [table], "chart": [], "title": []}}),
        );
    }
    #[expect(clippy::cast_precision_loss, reason = "a body has 64 MiB at most")]
    let megabytes = bytes as f64 / 1e6;
    Ok(json!({"data": data, "usage": {"images_size_mb": megabytes}}))
}

fn list<'a>(body: &'a Value, name: &str) -> Result<&'a Vec<Value>, String> {
    match &body[name] {
        Value::Array(items) if !items.is_empty() => Ok(items),
        _ => Err(format!("`{name}` must be a list with at least one entry")),
    }
}

/// Nothing is said, so all tokens are the prompt's.
fn usage(prompt_tokens: u64) -> Value {
    json!({"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens})
}

/// Numbers from 0 to 1, in steps of 2^-14, so that they are short in text.
fn unit_numbers(seed: u64, count: usize) -> impl Iterator<Item = f64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        #[expect(clippy::cast_precision_loss, reason = "14 bits")]
        let number = (random(&mut state) >> 50) as f64;
        number / f64::from(1 << 14)
    })
    .take(count)
}

#[cfg(test)]
mod tests;
