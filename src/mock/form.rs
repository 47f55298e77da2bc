//! A reading of forms with a file in them: `/v1/audio/transcriptions`.
//!
//! In: a content type and a body. Out: the fields, or a sentence about what is wrong. Never: a look at the sound.

/// One part of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub(super) name: &'a str,
    pub(super) content: &'a [u8],
}

/// The parts of a `multipart/form-data` body (RFC 7578), in order.
pub(super) fn parts<'a>(content_type: &str, body: &'a [u8]) -> Result<Vec<Part<'a>>, String> {
    let boundary = boundary(content_type)?;
    let between = format!("\r\n--{boundary}");
    // RFC 2046 section 5.1.1: what stands before the first delimiter is no part, and the first has no line end before it if the body
    // begins with it.
    let mut rest = match body.strip_prefix(&between.as_bytes()[2..]) {
        Some(rest) => rest,
        None => {
            split(body, between.as_bytes())
                .ok_or("the form's boundary is not in the body")?
                .1
        }
    };
    let mut parts = Vec::new();
    loop {
        if rest.starts_with(b"--") {
            return Ok(parts);
        }
        let inner = rest
            .strip_prefix(b"\r\n")
            .ok_or("a boundary must end its line, or the form with --")?;
        let (part, after) =
            split(inner, between.as_bytes()).ok_or("the form has no closing boundary")?;
        let (head, content) = split(part, b"\r\n\r\n")
            .ok_or("a part of the form has no empty line after its head")?;
        let name = name(head)
            .ok_or("a part of the form has no Content-Disposition: form-data with a name")?;
        parts.push(Part { name, content });
        rest = after;
    }
}

/// The content of the first part of this name.
pub(super) fn field<'a>(parts: &[Part<'a>], name: &str) -> Option<&'a [u8]> {
    let mut same = parts.iter().filter(|part| part.name == name);
    same.next().map(|part| part.content)
}

fn boundary(content_type: &str) -> Result<&str, String> {
    let mut pieces = content_type.split(';').map(str::trim);
    let kind = pieces.next().unwrap_or_default();
    if !kind.eq_ignore_ascii_case("multipart/form-data") {
        return Err(format!(
            "the Content-Type must be multipart/form-data, and it is {kind:?}"
        ));
    }
    let given = pieces.find_map(|piece| {
        let (name, value) = piece.split_once('=')?;
        name.eq_ignore_ascii_case("boundary")
            .then_some(value.trim_matches('"'))
    });
    // RFC 2046 section 5.1.1 allows 1 to 70 characters.
    given
        .filter(|boundary| (1..=70).contains(&boundary.len()))
        .ok_or_else(|| "the Content-Type must have a boundary of 1 to 70 characters".to_owned())
}

/// The name that a part's head gives.
fn name(head: &[u8]) -> Option<&str> {
    let head = std::str::from_utf8(head).ok()?;
    let line = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-disposition")
            .then_some(value.trim())
    })?;
    let (kind, rest) = line.split_once(';')?;
    let named = rest
        .split(';')
        .find_map(|piece| piece.trim().strip_prefix("name="))?;
    (kind == "form-data").then_some(named.trim_matches('"'))
}

/// What stands before and after the first `between`.
fn split<'a>(bytes: &'a [u8], between: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memchr::memmem::find(bytes, between)?;
    Some((&bytes[..at], &bytes[at + between.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &str = "multipart/form-data; boundary=\"b\"";
    const FORM: &str = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\nx\r\n--c\r\n\
                        \r\n--b\r\ncontent-disposition: form-data; name=model\r\n\r\nm\r\n--b--\r\n";

    #[test]
    fn parts_are_what_stands_between_the_boundaries() {
        let found = parts(KIND, FORM.as_bytes()).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(field(&found, "file"), Some(&b"x\r\n--c\r\n"[..]));
        assert_eq!(field(&found, "model"), Some(&b"m"[..]));
        assert_eq!(field(&found, "other"), None);
        let before = format!("a preamble\r\n{FORM}");
        assert_eq!(parts(KIND, before.as_bytes()).unwrap(), found);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("application/json", FORM, "multipart/form-data"),
            ("multipart/form-data", FORM, "a boundary"),
            (
                "multipart/form-data; boundary=other",
                FORM,
                "not in the body",
            ),
            (KIND, "--b\r\n\r\nx", "closing"),
            (KIND, "--b\r\nx\r\n--b--", "empty line"),
            (KIND, "--b\r\nA: b\r\n\r\nx\r\n--b--", "a name"),
            (KIND, "--bx\r\n\r\n--b--", "end its line"),
        ];
        for (kind, body, word) in cases {
            let sentence = parts(kind, body.as_bytes()).unwrap_err();
            assert!(sentence.contains(word), "{body:?}: {sentence}");
        }
        assert_eq!(parts(KIND, b"--b--\r\n").unwrap(), []);
    }
}
