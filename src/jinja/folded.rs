//! Constants that the compiler works out while it compiles.
//!
//! In: a parsed template. Out: whether one of them would be large. Never: the constant itself.

use minijinja::Error;
use minijinja::machinery::ast::Stmt;
use serde_json::Value;

use super::budget::wrong;

/// Greatest text that a template may write as a product, in bytes. A rule of a thousand dashes is one; what is larger can be built while it
/// runs, where it is counted.
const CONSTANT_BYTES_MAX: f64 = 65_536.0;

/// Refuses a template in which a multiplied constant would be large.
pub(super) fn check(tree: &Stmt<'_>) -> Result<(), Error> {
    let tree = serde_json::to_value(tree).map_err(|error| wrong(error.to_string()))?;
    bytes(&tree).map(|_| ())
}

/// At least the bytes of the constants in `node`, or the value of the number that it is.
fn bytes(node: &Value) -> Result<f64, Error> {
    match node {
        Value::Array(items) => sum(items.iter()),
        Value::Object(fields) => {
            let Some([left, right]) = operands(fields) else {
                let own = fields.get("value").map_or(0.0, literal);
                return Ok(own.max(sum(fields.values())?));
            };
            let (left, right) = (bytes(left)?, bytes(right)?);
            let product = match fields["op"].as_str() {
                Some("Mul") => left.max(1.0) * right.max(1.0),
                Some("Pow") => return Ok(left.max(1.0).powf(right)),
                _ => return Ok(left + right),
            };
            if product > CONSTANT_BYTES_MAX && has_text(node) {
                let most = CONSTANT_BYTES_MAX;
                return Err(wrong(format!(
                    "it multiplies a text to more than {most} bytes before it runs"
                )));
            }
            Ok(product)
        }
        _ => Ok(0.0),
    }
}

fn sum<'n>(mut nodes: impl Iterator<Item = &'n Value>) -> Result<f64, Error> {
    nodes.try_fold(0.0, |sum, node| bytes(node).map(|more| sum + more))
}

/// Both sides of an operation with two.
fn operands(fields: &serde_json::Map<String, Value>) -> Option<[&Value; 2]> {
    fields.get("op")?.as_str()?;
    Some([fields.get("left")?, fields.get("right")?])
}

/// A constant's length, or what a number says.
fn literal(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.len() as f64,
        Value::Number(number) => number.as_f64().map_or(0.0, f64::abs),
        Value::Bool(_) => 1.0,
        _ => 0.0,
    }
}

fn has_text(node: &Value) -> bool {
    match node {
        Value::Array(items) => items.iter().any(has_text),
        Value::Object(fields) => {
            fields.get("value").is_some_and(Value::is_string) || fields.values().any(has_text)
        }
        _ => false,
    }
}
