//! The rules of the house that a machine can check.
//!
//! In: the source files. Out: every breach, with file and line. Never: compiles anything, or a rule without its reason beside it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Who may import whom. Data walks downwards through this table; an arrow points with the data or to a leaf. A new arrow is a
/// change of architecture: a commit of its own that says why. `*` is everything. Tests inside a room are free.
#[rustfmt::skip]
const ROOMS: &[(&str, &[&str], &str)] = &[
    ("clock",     &[],                                                             "a leaf: time in two types"),
    ("wire",      &[],                                                             "a leaf: bytes in, events out, usable and testable alone"),
    ("config",    &["clock"],                                                      "flags become plain values; lengths of time are the only border type"),
    ("tokenizer", &["config"],                                                     "a leaf but for the plan that names it"),
    ("dataset",   &["config", "tokenizer"],                                        "what is said does not know how an API says it"),
    ("endpoint",  &["config", "dataset"],                                          "turns become bodies, replies become pieces; bytes and counts are others'"),
    ("schedule",  &["config", "clock"],                                            "due times depend on the plan alone"),
    ("engine",    &["schedule", "wire", "endpoint", "config", "dataset", "clock", "driver", "record"],
                                                                                   "joins the pure rooms; of driver only the types of its border"),
    ("driver",    &["clock", "engine"],                                            "the kernel's edge: performs operations, knows no HTTP and no plan"),
    ("record",    &["config", "endpoint", "dataset", "tokenizer", "wire", "clock"],
                                                                                   "interprets what an exchange left behind; never sees the engine"),
    ("metric",    &["config", "record", "endpoint", "clock"],                      "formulas over typed values; never wire, or a parser's change would change a number"),
    ("report",    &["metric", "record", "config", "endpoint", "dataset", "clock"], "writes what was computed; never the engine, or it would report intentions"),
    ("mock",      &["config", "clock"],                                            "a second, independent reading of HTTP; never wire, or one mistake passes twice"),
    ("fuzz",      &["wire", "endpoint"],                                           "bodies of the fuzz targets: what reads a peer's bytes"),
    ("run",       &["*"],                                                          "the conductor, the only junction besides driver"),
    ("main",      &["*"],                                                          "arguments, run, exit code"),
    ("lib",       &[],                                                             "the map; declares, imports nothing"),
];

/// Which rooms may name what reaches outside the program.
#[rustfmt::skip]
const EDGES: &[(&str, &[&str], &str)] = &[
    ("monoio",           &["driver"],                    "the load's sockets live in one room, so that the engine runs without any"),
    ("io_uring",         &["driver"],                    "as above"),
    ("libc",             &["driver", "mock"],            "system calls outside the kernel's edge would hide there"),
    ("socket2",          &["driver", "mock"],            "as above"),
    ("rustix::net",      &["driver", "mock"],            "as above"),
    ("TcpStream",        &["driver", "mock"],            "as above"),
    ("TcpListener",      &["driver", "mock"],            "as above"),
    ("ureq",             &["tokenizer", "run"],          "a blocking client for the hub and the readiness probe, never for load"),
    ("quanta",           &["clock"],                     "one counter, read in one place"),
    ("anyhow",           &["main", "run"],               "a room's errors are types; only their end is text"),
    ("reqwest",          &[],                            "the load's HTTP is wire's"),
    ("tokio",            &[],                            "the driver is the only loop"),
];

/// Most lines of a file, its tests aside.
const LINES_MAX: usize = 500;

/// Files over the limit, with the limit of their own.
#[rustfmt::skip]
const LONG_FILES: &[(&str, usize, &str)] = &[];

/// Files that may hold `unsafe`, and why it cannot be done without.
const UNSAFE_FILES: &[(&str, &str)] = &[
    (
        "src/driver/portable.rs",
        "monoio's streams do not implement AsFd",
    ),
    ("src/driver/probe.rs", "a no-op is pushed to a ring"),
    ("src/driver/ring.rs", "the kernel is handed pointers"),
    ("src/driver/buffers.rs", "memory shared with the kernel"),
];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &[
    "utils", "util", "helpers", "helper", "common", "manager", "types", "misc",
];

#[test]
fn rooms_import_only_what_the_table_allows() {
    let mut breaches = Vec::new();
    for file in sources("src") {
        let room = file.room();
        let Some((_, allowed, reason)) = ROOMS.iter().find(|(name, ..)| *name == room) else {
            breaches.push(format!(
                "{}: the room `{room}` is not in the table",
                file.path
            ));
            continue;
        };
        for (line, target) in crate_imports(file.own_code()) {
            let free = allowed.contains(&"*") || allowed.contains(&target.as_str());
            if target != room && !free {
                let place = format!("{}:{line}", file.path);
                breaches.push(format!(
                    "{place}: {room} may not import {target} ({room}: {reason})"
                ));
            }
        }
    }
    none(&breaches);
}

#[test]
fn only_the_edges_reach_outside() {
    let mut breaches = Vec::new();
    for file in sources("src") {
        let room = file.room();
        for (number, line) in code_lines(file.own_code()) {
            for (name, rooms, reason) in EDGES {
                if has_word(line, name) && !rooms.contains(&room.as_str()) {
                    breaches.push(format!(
                        "{}:{number}: {room} may not name {name}: {reason}",
                        file.path
                    ));
                }
            }
        }
    }
    none(&breaches);
}

#[test]
fn the_built_in_server_is_an_independent_reading() {
    let breaches: Vec<String> = sources("src/mock")
        .iter()
        .flat_map(|file| {
            let imports = crate_imports(&file.text).into_iter();
            imports
                .filter(|(_, target)| {
                    ["wire", "engine", "endpoint", "record"].contains(&target.as_str())
                })
                .map(|(line, target)| {
                    format!(
                        "{}:{line}: not even a test of mock may use {target}",
                        file.path
                    )
                })
                .collect::<Vec<_>>()
        })
        .collect();
    none(&breaches);
}

#[test]
fn files_stay_small_enough_to_read() {
    let mut breaches = Vec::new();
    for file in sources("src").into_iter().filter(|f| !f.is_test()) {
        let listed = LONG_FILES.iter().find(|(path, ..)| *path == file.path);
        let most = listed.map_or(LINES_MAX, |(_, lines, _)| *lines);
        let lines = file.own_code().lines().count();
        if lines > most {
            breaches.push(format!(
                "{}: {lines} lines without tests, {most} allowed",
                file.path
            ));
        }
        let test_lines = file.text.lines().count() - lines;
        if test_lines > 150 {
            breaches.push(format!(
                "{}: {test_lines} lines of tests inside; move them to a sibling file",
                file.path
            ));
        }
    }
    none(&breaches);
}

#[test]
fn every_file_says_in_out_and_never() {
    let mut breaches = Vec::new();
    for file in sources("src").into_iter().chain(sources("tests")) {
        let header: String = file
            .text
            .lines()
            .take_while(|l| l.starts_with("//!"))
            .collect();
        if header.is_empty() {
            breaches.push(format!("{}: does not open with `//!`", file.path));
            continue;
        }
        // The map and the entry have no traffic of their own.
        if ["src/lib.rs", "src/main.rs"].contains(&file.path.as_str()) {
            continue;
        }
        for part in ["In:", "Out:", "Never:"] {
            if !header.contains(part) {
                breaches.push(format!("{}: the header does not say `{part}`", file.path));
            }
        }
    }
    none(&breaches);
}

#[test]
fn unsafe_code_stays_behind_its_fence() {
    let mut breaches = Vec::new();
    for file in sources("src") {
        let lines: Vec<&str> = file.text.lines().collect();
        for (number, line) in code_lines(&file.text) {
            if !is_unsafe(line) {
                continue;
            }
            if !UNSAFE_FILES.iter().any(|(path, _)| *path == file.path) {
                breaches.push(format!(
                    "{}:{number}: this file may not hold `unsafe`",
                    file.path
                ));
            }
            // The comment stands within the three lines above.
            let above = &lines[number.saturating_sub(4)..number - 1];
            if !above.iter().any(|l| l.contains("SAFETY:")) {
                breaches.push(format!(
                    "{}:{number}: `unsafe` without a SAFETY comment above it",
                    file.path
                ));
            }
        }
    }
    none(&breaches);
}

#[test]
fn nothing_is_unfinished_or_bound_to_one_machine() {
    // Taken apart, so that this file does not find itself.
    let banned = [
        ["to", "do!("].concat(),
        ["unimple", "mented!("].concat(),
        ["#[ig", "nore"].concat(),
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["/ho", "me/"].concat(),
        ["/ro", "ot/"].concat(),
        ["/Us", "ers/"].concat(),
        ["/wo", "rk/"].concat(),
    ];
    let mut breaches = Vec::new();
    let mut files = sources("src");
    files.extend(sources("tests"));
    files.extend(documents());
    for file in files {
        for (index, line) in file.text.lines().enumerate() {
            for word in banned.iter().filter(|word| line.contains(word.as_str())) {
                breaches.push(format!("{}:{}: `{word}`", file.path, index + 1));
            }
        }
    }
    none(&breaches);
}

#[test]
fn names_say_what_is_inside() {
    let breaches: Vec<String> = sources("src")
        .iter()
        .filter(|file| {
            let parts = file.path.split(['/', '.']);
            parts.into_iter().any(|part| EMPTY_NAMES.contains(&part))
        })
        .map(|file| format!("{}: this name says nothing; name the room", file.path))
        .collect();
    none(&breaches);
}

/// A file that is no module is never compiled, tested or seen again.
#[test]
fn every_source_file_is_declared() {
    let files = sources("src");
    let mut breaches = Vec::new();
    for file in &files {
        let path = Path::new(&file.path);
        let stem = path
            .file_stem()
            .map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        let folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
        let (name, holder) = if stem == "mod" {
            let name = folder
                .file_name()
                .map_or_else(String::new, |s| s.to_string_lossy().into_owned());
            (
                name,
                folder.parent().map_or_else(PathBuf::new, Path::to_path_buf),
            )
        } else {
            (stem, folder)
        };
        if ["src/lib.rs", "src/main.rs"].contains(&file.path.as_str()) {
            continue;
        }
        let declared = files.iter().any(|other| {
            let other_path = Path::new(&other.path);
            let owns_folder = other_path.parent() == Some(holder.as_path())
                || other_path.with_extension("") == holder;
            owns_folder
                && code_lines(&other.text).any(|(_, line)| line.contains(&format!("mod {name};")))
        });
        if !declared {
            breaches.push(format!("{}: no `mod {name};` declares it", file.path));
        }
    }
    none(&breaches);
}

#[test]
fn tables_name_only_what_they_should() {
    let rooms: BTreeSet<&str> = ROOMS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(rooms.len(), ROOMS.len(), "a room stands in the table twice");
    for (room, allowed, _) in ROOMS {
        for target in allowed.iter().filter(|t| **t != "*") {
            assert!(
                rooms.contains(target),
                "{room} may import `{target}`, which is no room"
            );
        }
    }
    for (path, lines, _) in LONG_FILES {
        let file = read(&root().join(path));
        let needed = file.own_code().lines().count();
        assert!(
            needed > LINES_MAX && *lines >= needed,
            "{path} has {needed} lines: its exception is stale"
        );
    }
    for (path, _) in UNSAFE_FILES {
        let file = read(&root().join(path));
        let used = code_lines(&file.text).any(|(_, line)| is_unsafe(line));
        assert!(used, "{path} holds no unsafe code: its exception is stale");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut breaches = Vec::new();
    for document in documents() {
        for (index, line) in document.text.lines().enumerate() {
            for target in line
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next())
            {
                let file = target.split('#').next().unwrap_or_default();
                let elsewhere = file.is_empty() || file.contains("://");
                if !elsewhere && !root().join(file).exists() {
                    breaches.push(format!(
                        "{}:{}: {target} does not exist",
                        document.path,
                        index + 1
                    ));
                }
            }
        }
    }
    none(&breaches);
}

/// What the README names must exist: flags and metrics, each in quotes somewhere in its room.
#[test]
fn the_readme_names_only_flags_and_metrics_that_exist() {
    let readme = read(&root().join("README.md")).text;
    let known =
        |folder: &str| -> String { sources(folder).iter().map(|f| f.text.as_str()).collect() };
    let (flags, metrics) = (known("src/config"), known("src/metric"));
    let mut breaches = Vec::new();
    // Before a room has its table there is nothing to compare with.
    let check = |name: &str, text: &str, full: bool| full && !text.contains(&format!("\"{name}\""));
    for quoted in readme.split('`').skip(1).step_by(2) {
        let flag = quoted.split(' ').next().unwrap_or_default();
        let whole = flag.starts_with('-') && !flag.ends_with('*');
        if whole && check(flag, &flags, flags.contains("\"--url\"")) {
            breaches.push(format!("README.md: there is no flag {flag}"));
        }
    }
    let table = readme
        .split("| metric | formula |")
        .nth(1)
        .expect("the table of metrics");
    for line in table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
    {
        let cell = line.split('|').nth(1).unwrap_or_default();
        for tag in cell.split('`').skip(1).step_by(2) {
            if check(tag, &metrics, metrics.contains("\"request_latency\"")) {
                breaches.push(format!("README.md: there is no metric {tag}"));
            }
        }
    }
    none(&breaches);
}

/// The scanner that the rules rest on, on lines whose answer is known.
#[test]
fn the_scanner_sees_imports_in_every_form() {
    let text = "use crate::clock::Tick;\n// use crate::wire::Head;\nuse crate::{\n    config::{Plan, Length},\n    record,\n};\n\
                fn f(x: crate::engine::Engine) {}\n/// [`crate::metric`]\nlet a = 1; // crate::mock\n";
    let found = crate_imports(text);
    let expected = [(1, "clock"), (3, "config"), (3, "record"), (7, "engine")];
    assert_eq!(found, expected.map(|(line, room)| (line, room.to_owned())));
    assert!(is_unsafe("let a = unsafe { b() };") && !is_unsafe("(\"--unsafe-override\")"));
    assert!(has_word("use monoio::net;", "monoio") && !has_word("demonoio", "monoio"));
    let file = Source {
        path: "src/engine/pool.rs".to_owned(),
        text: "a\nb\n#[cfg(test)]\nmod tests {\n}\n".to_owned(),
    };
    assert_eq!(
        (file.room().as_str(), file.own_code()),
        ("engine", "a\nb\n")
    );
}

/// A file under the root, with its path from there.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// `src/engine/pool.rs` and `src/engine.rs` are of the room `engine`.
    fn room(&self) -> String {
        let inside = self.path.trim_start_matches("src/");
        inside
            .split(['/', '.'])
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    /// A sibling file that holds a module's tests.
    fn is_test(&self) -> bool {
        self.path.ends_with("tests.rs") || self.path.contains("/tests/")
    }

    /// The text without its inline tests; nothing of a file of tests.
    fn own_code(&self) -> &str {
        if self.is_test() {
            return "";
        }
        let end = self.text.find("\n#[cfg(test)]\nmod tests {");
        end.map_or(&self.text, |end| &self.text[..=end])
    }
}

fn root() -> PathBuf {
    // Asked while running, so that the compiled rules can be held against another checkout.
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
}

/// All Rust files under `folder`, sorted.
fn sources(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries {
            let path = entry.expect("the folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(read(&path));
            }
        }
    }
    assert!(
        !found.is_empty(),
        "{folder} holds no Rust file; the rules would hold of nothing"
    );
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The Markdown files at the root.
fn documents() -> Vec<Source> {
    ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"]
        .iter()
        .map(|name| read(&root().join(name)))
        .collect()
}

fn read(path: &Path) -> Source {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let from_root = path.strip_prefix(root()).expect("it lies under the root");
    Source {
        path: from_root.to_string_lossy().replace('\\', "/"),
        text,
    }
}

/// Lines with their numbers from 1, comments cut off.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let code = line.split(" // ").next().unwrap_or_default();
        (!code.trim_start().starts_with("//")).then_some((index + 1, code))
    })
}

/// Every room named as `crate::room`, or in the braces of `crate::{...}`, with its line. Both lines of a wrapped path count as
/// the line of `crate::`.
fn crate_imports(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<(usize, &str)> = code_lines(text).collect();
    let mut found = Vec::new();
    for (place, (number, line)) in lines.iter().enumerate() {
        for (at, _) in line.match_indices("crate::") {
            let rest = &line[at + "crate::".len()..];
            if rest.starts_with('{') {
                let tail = lines[place + 1..].iter().map(|(_, l)| *l);
                let group: String = std::iter::once(rest)
                    .chain(tail)
                    .collect::<Vec<_>>()
                    .join(" ");
                found.extend(
                    heads_of_group(&group)
                        .into_iter()
                        .map(|room| (*number, room)),
                );
            } else {
                found.push((*number, word_at_start(rest)));
            }
        }
    }
    found
}

/// The first word of each item at the outermost level of `{...}`.
fn heads_of_group(group: &str) -> Vec<String> {
    let mut depth = 0;
    let mut heads = Vec::new();
    let mut expects_head = false;
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && (letter == ',' || at == 0) {
            expects_head = true;
        } else if expects_head && letter.is_alphabetic() {
            heads.push(word_at_start(&group[at..]));
            expects_head = false;
        }
    }
    heads
}

fn word_at_start(text: &str) -> String {
    text.chars().take_while(|&c| is_word(c)).collect()
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The keyword in use, not the word inside a flag's name.
fn is_unsafe(line: &str) -> bool {
    ["{", "fn", "impl", "trait", "extern", "("]
        .iter()
        .any(|next| {
            line.match_indices("unsafe").any(|(at, word)| {
                let whole = !line[..at].chars().next_back().is_some_and(is_word);
                whole && line[at + word.len()..].trim_start().starts_with(next)
            })
        })
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn none(breaches: &[String]) {
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}
