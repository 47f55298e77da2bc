//! The first record of a file, as far as it shows what the file is.
//!
//! In: a path. Out: fields. Never: more of a file than that record, however large it is.

use std::fs;
use std::io::BufReader;
use std::path::Path;

use serde_json::{Map, Value};

use super::cutter::Cutter;
use super::table::Table;
use super::{RECORD_BYTES_MOST, Source, Trouble, object, unpack};

/// Longest field whose value is looked at.
const FIELD_BYTES_MOST: usize = 1 << 20;

/// The fields of the first record: of the object with which the file begins, of the first item of its list, or of the first row under
/// its columns. Fields that are null are there. An object that is longer than a record may be shows only its first fields, and a value
/// longer than 1 MiB is null. `None`: there is nothing.
pub fn first(path: &Path) -> Result<Option<Map<String, Value>>, Trouble> {
    let file = fs::File::open(path).map_err(Trouble::Unreadable)?;
    first_of(Box::new(BufReader::new(file)))
}

/// As [`first`], of bytes.
pub(super) fn first_of(bytes: Source) -> Result<Option<Map<String, Value>>, Trouble> {
    let mut cutter = Cutter::new(unpack::plain(bytes)?);
    match cutter.peek()? {
        None => Ok(None),
        Some(b'[') => {
            cutter.take(b'[')?;
            match cutter.item(true)? {
                None => Ok(None),
                Some((line, bytes)) => {
                    let fields = object(&String::from_utf8_lossy(bytes));
                    let fields = fields.map_err(|reason| Trouble::Broken { line, reason })?;
                    Ok(Some(fields))
                }
            }
        }
        Some(b'{') => members(&mut cutter).map(Some),
        Some(_) => {
            let mut table = Table::new(cutter.into_bytes())?;
            let row = match table.row() {
                Ok(row) => row.map(|(_, fields)| fields),
                Err(Trouble::Record { .. }) => None,
                Err(trouble) => return Err(trouble),
            };
            let mut fields = row.unwrap_or_default();
            for name in table.columns() {
                fields.entry(name).or_insert(Value::Null);
            }
            Ok(Some(fields))
        }
    }
}

/// The fields of the object that comes next.
fn members(cutter: &mut Cutter) -> Result<Map<String, Value>, Trouble> {
    let mut fields = Map::new();
    cutter.take(b'{')?;
    let mut read = 0;
    while cutter.peek()? == Some(b'"') {
        if read > RECORD_BYTES_MOST {
            return Ok(fields);
        }
        let line = cutter.line();
        let name = cutter.value(FIELD_BYTES_MOST)?;
        let name = serde_json::from_slice::<String>(name);
        let name = name.map_err(|error| Trouble::Broken {
            line,
            reason: format!("not JSON: {error}"),
        })?;
        cutter.take(b':')?;
        cutter.peek()?;
        let wrong = |error: serde_json::Error| Trouble::Broken {
            line,
            reason: format!("not JSON: {error}"),
        };
        let value = cutter.value(FIELD_BYTES_MOST).map(|bytes| {
            read += bytes.len();
            serde_json::from_slice(bytes).map_err(wrong)
        });
        let value = match value {
            Ok(value) => value?,
            // It was cut off in the middle, so nothing behind it can be told apart.
            Err(_) if cutter.is_cut() => Value::Null,
            Err(trouble) => return Err(trouble),
        };
        if cutter.is_cut() {
            fields.insert(name, value);
            return Ok(fields);
        }
        fields.insert(name, value);
        if cutter.peek()? == Some(b',') {
            cutter.take(b',')?;
        }
    }
    if cutter.peek()? != Some(b'}') {
        return Err(Trouble::Broken {
            line: cutter.line(),
            reason: "not JSON: the object does not end".to_owned(),
        });
    }
    Ok(fields)
}
