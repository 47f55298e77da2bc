//! The `{% generation %}` tag.
//!
//! In: a template. Out: the same without that tag, which marks what a model is trained on and prints nothing. Never: a change
//! inside a text, a comment or a raw block.

/// `{% generation %}` becomes `{% with %}`, which like it is a scope of its own, and the end likewise; signs that eat white space stay.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let (before, tail) = rest.split_at(at);
        out.push_str(before);
        let end = match tail.as_bytes().get(1) {
            Some(b'#') => past(tail, "#}"),
            Some(b'{') => past_quoted(tail, "}}"),
            Some(b'%') => past_quoted(tail, "%}"),
            _ => 1,
        };
        let (piece, tail) = tail.split_at(end);
        rest = tail;
        match tag_name(piece) {
            Some("raw") => {
                let end = end_of_raw(rest);
                out.push_str(piece);
                out.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            Some("generation") => out.push_str(&piece.replacen("generation", "with", 1)),
            Some("endgeneration") => out.push_str(&piece.replacen("endgeneration", "endwith", 1)),
            _ => out.push_str(piece),
        }
    }
    out.push_str(rest);
    out
}

/// The first word of a block's tag; `None` for what is no block.
fn tag_name(piece: &str) -> Option<&str> {
    let inner = piece.strip_prefix("{%")?.strip_suffix("%}")?;
    let inner = inner.trim_start_matches(['-', '+']).trim_start();
    let end = inner
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(inner.len());
    Some(&inner[..end])
}

/// Where `text` goes on after the first `end`.
fn past(text: &str, end: &str) -> usize {
    text.find(end).map_or(text.len(), |at| at + end.len())
}

/// The same, but an `end` between quotes does not count.
fn past_quoted(text: &str, end: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 2;
    let mut quote = None;
    while at < bytes.len() {
        let byte = bytes[at];
        match quote {
            Some(_) if byte == b'\\' => at += 1,
            Some(open) if byte == open => quote = None,
            Some(_) => {}
            None if byte == b'\'' || byte == b'"' => quote = Some(byte),
            None if bytes[at..].starts_with(end.as_bytes()) => return at + end.len(),
            None => {}
        }
        at += 1;
    }
    text.len()
}

/// Where the end tag of a raw block begins.
fn end_of_raw(text: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find("{%") {
        let begin = from + at;
        let end = begin + past(&text[begin..], "%}");
        if tag_name(&text[begin..end]) == Some("endraw") {
            return begin;
        }
        from = begin + 2;
    }
    text.len()
}
