//! A reading of HTTP/1.1 requests, bounded in size.
//!
//! In: bytes as they come from a socket. Out: whole requests, one at a time. Never: keeps more than one head and one body's
//! worth of bytes, guesses a length, or shares a line with `wire`.

/// Longest request head.
pub(super) const HEAD_BYTES: usize = 64 * 1024;
/// Longest request body, after chunked framing is taken off.
pub(super) const BODY_BYTES: usize = 64 * 1024 * 1024;
/// Longest line of chunk framing or trailer.
const CHUNK_LINE_BYTES: usize = 4096;

/// One request, read to its last byte.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// As sent, case kept.
    pub(super) method: String,
    /// Path without query.
    pub(super) path: String,
    /// HTTP/1.1 or later 1.x; chunked replies are allowed.
    pub(super) chunks_allowed: bool,
    /// The connection may carry another request.
    pub(super) keep_alive: bool,
    /// `Content-Type`; empty when there is none.
    pub(super) content_type: String,
    /// `Accept` names event streams.
    pub(super) accepts_events: bool,
    /// The body, unframed.
    pub(super) body: Vec<u8>,
}

/// Why a request cannot be read. The connection ends after the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Status to reply with.
    pub(super) status: u16,
    /// What was wrong and what would be right.
    pub(super) reason: &'static str,
}

const fn refuse<T>(status: u16, reason: &'static str) -> Result<T, Refusal> {
    Err(Refusal { status, reason })
}

/// What is known after the head.
#[derive(Debug)]
struct Head {
    method: String,
    path: String,
    chunks_allowed: bool,
    keep_alive: bool,
    content_type: String,
    accepts_events: bool,
    framing: Framing,
    wants_continue: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
}

/// Where the reader is in a request.
#[derive(Debug)]
enum Stage {
    Head,
    Fixed {
        head: Head,
        length: usize,
    },
    ChunkSize {
        head: Head,
        body: Vec<u8>,
    },
    ChunkData {
        head: Head,
        body: Vec<u8>,
        left: usize,
    },
    Trailer {
        head: Head,
        body: Vec<u8>,
        seen: usize,
    },
    Broken,
}

/// Collects bytes and gives requests.
#[derive(Debug)]
pub(super) struct RequestReader {
    /// Bytes read and not used yet, from `from` on.
    buffer: Vec<u8>,
    from: usize,
    /// The head's end was not found before this offset.
    searched: usize,
    stage: Stage,
}

impl RequestReader {
    pub(super) fn new() -> RequestReader {
        RequestReader {
            buffer: Vec::new(),
            from: 0,
            searched: 0,
            stage: Stage::Head,
        }
    }

    /// Adds bytes from the socket.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.from > 0 {
            self.buffer.drain(..self.from);
            self.searched = self.searched.saturating_sub(self.from);
            self.from = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes that wait to be read.
    pub(super) fn waiting(&self) -> usize {
        self.buffer.len() - self.from
    }

    /// A head that asks for `100 Continue` has been read and its body has not come yet. True once for a request.
    pub(super) fn take_continue(&mut self) -> bool {
        let empty = self.waiting() == 0;
        match &mut self.stage {
            Stage::Fixed { head, .. } | Stage::ChunkSize { head, .. } => {
                std::mem::take(&mut head.wants_continue) && empty
            }
            _ => false,
        }
    }

    /// The next whole request, `None` when more bytes are needed. After a refusal the reader stays broken.
    pub(super) fn next(&mut self) -> Result<Option<Request>, Refusal> {
        let outcome = self.advance();
        if outcome.is_err() {
            self.stage = Stage::Broken;
        }
        outcome
    }

    fn advance(&mut self) -> Result<Option<Request>, Refusal> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Broken) {
                Stage::Broken => return refuse(400, "the connection had a bad request before"),
                Stage::Head => match self.head()? {
                    None => {
                        self.stage = Stage::Head;
                        return Ok(None);
                    }
                    Some(head) => {
                        self.stage = match head.framing {
                            Framing::Length(length) => Stage::Fixed { head, length },
                            Framing::Chunked => Stage::ChunkSize {
                                head,
                                body: Vec::new(),
                            },
                        };
                    }
                },
                Stage::Fixed { head, length } => {
                    if self.waiting() < length {
                        self.stage = Stage::Fixed { head, length };
                        return Ok(None);
                    }
                    let body = self.buffer[self.from..self.from + length].to_vec();
                    self.from += length;
                    return Ok(Some(self.finish(head, body)));
                }
                Stage::ChunkSize { head, body } => match self.line(CHUNK_LINE_BYTES)? {
                    None => {
                        self.stage = Stage::ChunkSize { head, body };
                        return Ok(None);
                    }
                    Some(line) => {
                        let left = chunk_size(line)?;
                        if body.len() + left > BODY_BYTES {
                            return refuse(413, "the body is larger than 64 MB");
                        }
                        self.stage = if left == 0 {
                            Stage::Trailer {
                                head,
                                body,
                                seen: 0,
                            }
                        } else {
                            Stage::ChunkData { head, body, left }
                        };
                    }
                },
                Stage::ChunkData { head, body, left } => {
                    if !self.chunk_data(head, body, left)? {
                        return Ok(None);
                    }
                }
                Stage::Trailer { head, body, seen } => match self.line(CHUNK_LINE_BYTES)? {
                    None => {
                        self.stage = Stage::Trailer { head, body, seen };
                        return Ok(None);
                    }
                    Some([]) => return Ok(Some(self.finish(head, body))),
                    Some(line) => {
                        let seen = seen + line.len();
                        if seen > HEAD_BYTES {
                            return refuse(431, "the trailer is larger than 64 KB");
                        }
                        self.stage = Stage::Trailer { head, body, seen };
                    }
                },
            }
        }
    }

    /// Moves chunk data into the body; false when more bytes are needed.
    fn chunk_data(&mut self, head: Head, mut body: Vec<u8>, left: usize) -> Result<bool, Refusal> {
        let piece = left.min(self.waiting());
        body.extend_from_slice(&self.buffer[self.from..self.from + piece]);
        self.from += piece;
        let left = left - piece;
        let rest = &self.buffer[self.from..];
        if left > 0 || rest.len() < 2 {
            // With `left` at 0 the two bytes of the line end are awaited here.
            self.stage = Stage::ChunkData { head, body, left };
            return Ok(false);
        }
        if !rest.starts_with(b"\r\n") {
            return refuse(400, "chunk data must be followed by CR LF");
        }
        self.from += 2;
        self.stage = Stage::ChunkSize { head, body };
        Ok(true)
    }

    fn finish(&mut self, head: Head, body: Vec<u8>) -> Request {
        self.stage = Stage::Head;
        self.searched = self.from;
        Request {
            method: head.method,
            path: head.path,
            chunks_allowed: head.chunks_allowed,
            keep_alive: head.keep_alive,
            content_type: head.content_type,
            accepts_events: head.accepts_events,
            body,
        }
    }

    /// One line of chunk framing without its CR LF.
    fn line(&mut self, limit: usize) -> Result<Option<&[u8]>, Refusal> {
        let rest = &self.buffer[self.from..];
        match rest.iter().position(|&byte| byte == b'\n') {
            Some(end) if end > limit => refuse(400, "a line of chunk framing is longer than 4 KB"),
            Some(end) if end > 0 && rest[end - 1] == b'\r' => {
                let start = self.from;
                self.from += end + 1;
                Ok(Some(&self.buffer[start..start + end - 1]))
            }
            Some(_) => refuse(400, "a line must end in CR LF"),
            None if rest.len() > limit => {
                refuse(400, "a line of chunk framing is longer than 4 KB")
            }
            None => Ok(None),
        }
    }

    fn head(&mut self) -> Result<Option<Head>, Refusal> {
        // RFC 9112 section 2.2: empty lines before the request line are to be ignored.
        while self.buffer[self.from..].starts_with(b"\r\n") {
            self.from += 2;
        }
        let start = self
            .searched
            .max(self.from)
            .saturating_sub(3)
            .max(self.from);
        let found = self.buffer[start..]
            .windows(4)
            .position(|window| window == b"\r\n\r\n");
        let Some(end) = found else {
            self.searched = self.buffer.len();
            if self.waiting() > HEAD_BYTES {
                return refuse(431, "the head is larger than 64 KB");
            }
            return Ok(None);
        };
        let end = start + end;
        if end - self.from > HEAD_BYTES {
            return refuse(431, "the head is larger than 64 KB");
        }
        let head = parse_head(&self.buffer[self.from..end])?;
        self.from = end + 4;
        Ok(Some(head))
    }
}

/// `chunk-size = 1*HEXDIG`, then extensions, which are ignored.
fn chunk_size(line: &[u8]) -> Result<usize, Refusal> {
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
    let text = std::str::from_utf8(digits).unwrap_or_default().trim_end();
    if text.is_empty() || text.len() > 8 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return refuse(400, "a chunk size must be 1 to 8 hexadecimal digits");
    }
    usize::from_str_radix(text, 16).or(refuse(400, "a chunk size must be hexadecimal"))
}

fn parse_head(bytes: &[u8]) -> Result<Head, Refusal> {
    let text = std::str::from_utf8(bytes).or(refuse(400, "the head must be UTF-8"))?;
    let mut lines = text.split("\r\n");
    let mut parts = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return refuse(400, "the request line must be `METHOD target HTTP/1.1`");
    };
    if method.is_empty() || !method.bytes().all(is_token) {
        return refuse(400, "the method must be a token");
    }
    let newer = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        _ => return refuse(505, "the version must be HTTP/1.1 or HTTP/1.0"),
    };
    let fields = Fields::read(lines)?;
    if newer && fields.hosts != 1 {
        return refuse(400, "there must be one Host field");
    }
    let framing = match (fields.chunked, fields.length) {
        (true, Some(_)) => {
            return refuse(
                400,
                "Content-Length and Transfer-Encoding exclude each other",
            );
        }
        (true, None) => Framing::Chunked,
        (false, length) => Framing::Length(length.unwrap_or(0)),
    };
    Ok(Head {
        method: method.to_owned(),
        path: path_of(target)?,
        chunks_allowed: newer,
        keep_alive: !fields.close && (newer || fields.keep_alive),
        content_type: fields.content_type,
        accepts_events: fields.accepts_events,
        framing,
        wants_continue: newer && fields.wants_continue,
    })
}

/// Path of an origin-form or absolute-form target.
fn path_of(target: &str) -> Result<String, Refusal> {
    let origin = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find('/').map_or("/", |slash| &rest[slash..])
        }
        _ => target,
    };
    if !origin.starts_with('/') && origin != "*" {
        return refuse(400, "the target must begin with `/` or be a URL");
    }
    let path = origin.split(['?', '#']).next().unwrap_or_default();
    Ok(path.to_owned())
}

/// The fields that change how a request is read.
#[derive(Default)]
struct Fields {
    hosts: usize,
    length: Option<usize>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    content_type: String,
    accepts_events: bool,
    wants_continue: bool,
}

impl Fields {
    fn read<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Fields, Refusal> {
        let mut fields = Fields::default();
        for line in lines {
            let Some((name, value)) = line.split_once(':') else {
                return refuse(400, "a field line must have a colon");
            };
            if name.is_empty() || !name.bytes().all(is_token) {
                return refuse(
                    400,
                    "a field name must be a token, with no space before the colon",
                );
            }
            if value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
                return refuse(400, "a field value must have no CR, LF or NUL");
            }
            fields.take(name, value.trim_matches([' ', '\t']))?;
        }
        Ok(fields)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        if name.eq_ignore_ascii_case("host") {
            self.hosts += 1;
        } else if name.eq_ignore_ascii_case("content-length") {
            if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
                return refuse(400, "Content-Length must be digits");
            }
            let length = value.parse().unwrap_or(usize::MAX);
            if self.length.is_some_and(|earlier| earlier != length) {
                return refuse(400, "two Content-Length fields differ");
            }
            if length > BODY_BYTES {
                return refuse(413, "the body is larger than 64 MB");
            }
            self.length = Some(length);
        } else if name.eq_ignore_ascii_case("content-type") {
            value.clone_into(&mut self.content_type);
        } else if name.eq_ignore_ascii_case("accept") {
            let kinds = value.split(',').filter_map(|kind| kind.split(';').next());
            self.accepts_events |= kinds
                .map(str::trim)
                .any(|kind| kind.eq_ignore_ascii_case("text/event-stream"));
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case("chunked") {
                return refuse(501, "the only transfer coding known is chunked");
            }
            self.chunked = true;
        } else if name.eq_ignore_ascii_case("connection") {
            for option in value.split(',').map(str::trim) {
                self.close |= option.eq_ignore_ascii_case("close");
                self.keep_alive |= option.eq_ignore_ascii_case("keep-alive");
            }
        } else if name.eq_ignore_ascii_case("expect") {
            if !value.eq_ignore_ascii_case("100-continue") {
                return refuse(417, "the only expectation known is 100-continue");
            }
            self.wants_continue = true;
        }
        Ok(())
    }
}

/// `tchar` of RFC 9110 section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
