//! Runs the wire cases.
//!
//! In: `tests/wire/cases/*.txt`, `tests/wire/captured/*.resp`, `fuzz/regressions/`. Out: agreement with the expectations, for
//! every way to cut the bytes. Never: a list of the cases; the folder is the list. `tests/wire/README.md` says the format.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use tokenring::fuzz::{End, Seen, observe};
use tokenring::wire::{Limits, fields};

const EXPECT: &str = "--- expect\n";
const INPUT: &str = "--- input\n";
/// A body longer than this is expected by its length alone.
const SHOWN_BYTES: usize = 400;

#[test]
fn cases_are_read_as_expected() {
    let files = files(&folder("tests/wire/cases"), "txt");
    assert!(files.len() >= 60, "only {} cases found", files.len());
    let mut complaints = String::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a readable case");
        let (front, expected) = text.split_once(EXPECT).unwrap_or((&text, ""));
        let (settings, input) = front.split_once(INPUT).expect("an input section");
        let (limits, closed) = settings_of(settings);
        let input = unescape(input);
        let seen = cut_every_way(&file, limits, closed, &input);
        check(&file, front, expected, &show(&seen), &mut complaints);
    }
    assert!(complaints.is_empty(), "{complaints}");
}

#[test]
fn captures_are_read_as_expected() {
    let files = files(&folder("tests/wire/captured"), "resp");
    assert!(files.len() >= 20, "only {} captures found", files.len());
    let mut complaints = String::new();
    for file in files {
        let input = fs::read(&file).expect("a readable capture");
        let seen = cut_every_way(&file, Limits::default(), true, &input);
        assert!(
            matches!(seen.end, End::Done(0)),
            "{}: {:?}",
            file.display(),
            seen.end
        );
        let expectation = file.with_extension("expect.txt");
        let expected = fs::read_to_string(&expectation).unwrap_or_default();
        check(
            &expectation,
            "",
            expected.strip_prefix(EXPECT).unwrap_or_default(),
            &show(&seen),
            &mut complaints,
        );
    }
    assert!(complaints.is_empty(), "{complaints}");
}

#[test]
fn fuzz_regressions_stay_fixed() {
    type Body = fn(&[u8]);
    let targets: [(&str, Body); 10] = [
        ("coded", tokenring::fuzz::coded),
        ("tunnel", tokenring::fuzz::tunnel),
        ("served", tokenring::fuzz::served),
        ("dataset", tokenring::fuzz::dataset),
        ("template", tokenring::fuzz::template),
        ("reply", tokenring::fuzz::reply),
        ("head", tokenring::fuzz::head),
        ("body", tokenring::fuzz::body),
        ("sse", tokenring::fuzz::sse),
        ("response", tokenring::fuzz::response),
    ];
    for (name, body) in targets {
        let files = files(&folder("fuzz/regressions").join(name), "");
        assert!(!files.is_empty(), "no seed for {name}");
        for file in files {
            body(&fs::read(&file).expect("a readable seed"));
        }
    }
}

#[test]
fn an_event_of_a_mebibyte_is_one_event() {
    let data = vec![b'x'; 1 << 20];
    let event = [b"data: ", &data[..], b"\n\n"].concat();
    let mut input =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            .to_vec();
    input.extend_from_slice(format!("{:x}\r\n", event.len()).as_bytes());
    input.extend_from_slice(&event);
    input.extend_from_slice(b"\r\n0\r\n\r\n");
    for size in [input.len(), 65_536, 1_000, 1] {
        let seen = observe(Limits::default(), input.chunks(size), false);
        assert_eq!(seen.end, End::Done(0));
        assert_eq!(seen.body, event);
        assert_eq!(seen.events.len(), 1);
        assert_eq!(
            (seen.events[0].begin, seen.events[0].end),
            (0, event.len() as u64)
        );
    }
}

/// Reads the input whole and cut in every way the README names; all must agree.
fn cut_every_way(file: &Path, limits: Limits, closed: bool, input: &[u8]) -> Seen {
    let whole = observe(limits, [input], closed);
    for cut in 0..=input.len() {
        let (left, right) = input.split_at(cut);
        assert_eq!(
            whole,
            observe(limits, [left, right], closed),
            "{}: cut at {cut}",
            file.display()
        );
    }
    for size in 1..=64 {
        assert_eq!(
            whole,
            observe(limits, input.chunks(size), closed),
            "{}: pieces of {size}",
            file.display()
        );
    }
    whole
}

fn check(file: &Path, front: &str, expected: &str, shown: &str, complaints: &mut String) {
    if shown == expected {
        return;
    }
    if std::env::var_os("BLESS").is_some() {
        fs::write(file, format!("{front}{EXPECT}{shown}")).expect("a writable expectation");
    } else {
        let _ = writeln!(
            complaints,
            "{}:\nexpected\n{expected}\nfound\n{shown}",
            file.display()
        );
    }
}

fn show(seen: &Seen) -> String {
    let mut text = String::new();
    if let Some(head) = seen.head {
        let keep = if head.keep_alive { "keep" } else { "close" };
        let _ = writeln!(
            text,
            "head {} {:?} {:?} {keep}{}",
            head.status,
            head.framing,
            head.content,
            head.coding
                .map_or_else(String::new, |coding| format!(" {}", coding.name()))
        );
    }
    let _ = writeln!(text, "head_bytes {}", seen.head_bytes.len());
    if seen.body.len() > SHOWN_BYTES {
        let _ = writeln!(text, "body_bytes {}", seen.body.len());
    } else {
        let _ = writeln!(text, "body \"{}\"", seen.body.escape_ascii());
    }
    for event in &seen.events {
        let _ = write!(
            text,
            "event {}..{} {:?}",
            event.begin, event.end, event.kind
        );
        let begin = usize::try_from(event.begin).expect("an offset into memory");
        let end = usize::try_from(event.end).expect("an offset into memory");
        match seen.body.get(begin..end).map(|bytes| fields(bytes).data) {
            Some(Some(data)) => writeln!(text, " \"{}\"", data.escape_ascii()),
            Some(None) | None => writeln!(text),
        }
        .expect("a String takes all");
    }
    let _ = match seen.end {
        End::Done(surplus) => writeln!(text, "end done, surplus {surplus}"),
        End::Wrong(fault) => writeln!(text, "end {}", fault.name()),
        End::Open => writeln!(text, "end open"),
    };
    text
}

/// `name=value` words in lines that do not start with `#`.
fn settings_of(text: &str) -> (Limits, bool) {
    let mut limits = Limits::default();
    let mut closed = true;
    for word in text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
    {
        let (name, value) = word.split_once('=').expect("name=value");
        let number = value.parse().expect("a number");
        match name {
            "head_bytes" => limits.head_bytes = number,
            "header_count" => limits.header_count = number,
            "interim_count" => limits.interim_count = number,
            "chunk_line_bytes" => limits.chunk_line_bytes = number,
            "trailer_bytes" => limits.trailer_bytes = number,
            "event_bytes" => limits.event_bytes = number,
            "body_bytes" => limits.body_bytes = number,
            "density" => limits.density = number,
            "closed" => closed = number == 1,
            _ => panic!("unknown setting {name}"),
        }
    }
    (limits, closed)
}

/// Bytes of an input section: line breaks of the file do not count, `\r \n \t \0 \\ \xHH` do, and `\*N(text)` is text N times.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        rest = &rest[next.len_utf8()..];
        match next {
            '\n' => {}
            '\\' => rest = escape(rest, &mut out),
            other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

/// One escape behind its backslash; gives what follows it.
fn escape<'a>(rest: &'a str, out: &mut Vec<u8>) -> &'a str {
    let (kind, rest) = rest.split_at(1);
    match kind {
        "r" => out.push(b'\r'),
        "n" => out.push(b'\n'),
        "t" => out.push(b'\t'),
        "0" => out.push(0),
        "\\" => out.push(b'\\'),
        "x" => {
            let (digits, rest) = rest.split_at(2);
            out.push(u8::from_str_radix(digits, 16).expect("two hexadecimal digits"));
            return rest;
        }
        "*" => {
            let (count, rest) = rest.split_once('(').expect("( behind the count");
            let (text, rest) = rest.split_once(')').expect(") behind the text");
            let once = unescape(text);
            out.extend(once.repeat(count.parse().expect("a count")));
            return rest;
        }
        _ => panic!("unknown escape \\{kind}"),
    }
    rest
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The files of a folder with this extension (any, when empty), in order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| {
            extension.is_empty() || path.extension().is_some_and(|found| found == extension)
        })
        .collect();
    files.sort();
    files
}
