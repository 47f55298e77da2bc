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
    ("file",      &[],                                                             "a leaf: records out of bytes, whatever they mean"),
    ("jinja",     &[],                                                             "a leaf: templates within bounds, whatever they render"),
    ("config",    &["clock", "file"],                                              "flags become plain values; a file's first record shows its format"),
    ("tokenizer", &["config", "jinja"],                                            "a leaf but for the plan that names it"),
    ("dataset",   &["config", "file", "tokenizer", "clock"],                       "what is said does not know how an API says it"),
    ("endpoint",  &["config", "dataset", "jinja"],                                 "turns become bodies, replies become pieces; bytes and counts are others'"),
    ("schedule",  &["config", "clock"],                                            "due times depend on the plan alone"),
    ("engine",    &["schedule", "wire", "endpoint", "config", "dataset", "clock", "driver", "record"],
                                                                                   "joins the pure rooms; of driver only the types of its border"),
    ("driver",    &["clock", "engine"],                                            "the kernel's edge: performs operations, knows no HTTP and no plan"),
    ("record",    &["config", "endpoint", "dataset", "tokenizer", "wire", "clock"],
                                                                                   "interprets what an exchange left behind; never sees the engine"),
    ("metric",    &["config", "record", "endpoint", "clock"],                      "formulas over typed values; never wire, or a parser's change would change a number"),
    ("report",    &["metric", "record", "config", "endpoint", "dataset", "clock"], "writes what was computed; never the engine, or it would report intentions"),
    ("mock",      &["config", "clock"],                                            "a second, independent reading of HTTP; never wire, or one mistake passes twice"),
    ("fuzz",      &["wire", "endpoint", "file", "config", "dataset", "tokenizer", "mock"],
                                                                                   "bodies of the fuzz targets: what reads a peer's bytes, or a stranger's file"),
    ("calibrate", &["config", "clock"],                                            "a user of the program, who sees its files alone"),
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
    ("ureq",             &["tokenizer"],                 "a blocking client for the hub, never for load"),
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
        "src/driver/portable/sockets.rs",
        "monoio's streams do not implement AsFd",
    ),
    ("src/driver/stamping.rs", "recvmsg and its control data"),
    ("src/mock/arrival.rs", "recvmsg and its control data"),
    (
        "src/driver/priority.rs",
        "rustix has no scheduling policies",
    ),
    ("src/driver/probe.rs", "a no-op is pushed to a ring"),
    ("src/driver/ring.rs", "the kernel is handed pointers"),
    (
        "src/driver/socket.rs",
        "IP_BIND_ADDRESS_NO_PORT has no safe wrapper",
    ),
    ("src/driver/buffers.rs", "memory shared with the kernel"),
    ("src/driver/ports.rs", "a socket option that no crate has"),
    (
        "src/driver/fetch.rs",
        "the standard library has no stable prefetch",
    ),
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
    let files = [
        sources("src"),
        sources("tests"),
        sources("fuzz/fuzz_targets"),
    ];
    for file in files.into_iter().flatten() {
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
                let folder = Path::new(&document.path).parent();
                let folder = root().join(folder.unwrap_or(Path::new("")));
                if !elsewhere && !folder.join(file).exists() {
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

/// What the README names must exist, and every flag that works must stand in it by one of its spellings.
#[test]
fn the_readme_names_the_flags_that_work() {
    let readme = read(&root().join("README.md")).text;
    let rows: Vec<Vec<String>> = ["working.rs", "mock.rs", "calibrate.rs"]
        .iter()
        .flat_map(|name| flag_rows(&read(&root().join("src/config/flags").join(name)).text))
        .collect();
    assert!(
        rows.len() > 50,
        "only {} flags were found in the tables",
        rows.len()
    );
    let mut breaches = Vec::new();
    let named: BTreeSet<&str> = quoted(&readme)
        .filter_map(|text| text.split([' ', '=']).next())
        .filter(|word| word.starts_with('-') && !word.ends_with('*'))
        .collect();
    for flag in &named {
        if !rows.iter().flatten().any(|name| name == flag) {
            breaches.push(format!("README.md: no flag {flag} works"));
        }
    }
    for row in &rows {
        if !row.iter().any(|name| named.contains(name.as_str())) {
            breaches.push(format!("README.md: does not name {}", row[0]));
        }
    }
    none(&breaches);
}

/// Metrics, files and errors that the README's tables name stand in quotes in the rooms they come from.
#[test]
fn the_readme_names_only_what_exists() {
    let readme = read(&root().join("README.md")).text;
    let known =
        |folder: &str| -> String { sources(folder).iter().map(|f| f.text.as_str()).collect() };
    let tables: [(&str, &str, usize, &str); 4] = [
        ("| metric | formula |", "metric", 1, "src/metric"),
        ("| metric | formula |", "metric", 2, "src/metric"),
        ("| file | holds | when |", "file", 1, "src/report"),
        ("| what | most | error |", "error", 3, "src"),
    ];
    let mut breaches = Vec::new();
    for (header, what, column, folder) in tables {
        let text = known(folder);
        let table = readme.split(header).nth(1).expect("the table is there");
        for line in table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with('|'))
        {
            let cell = line.split('|').nth(column).unwrap_or_default();
            // A cell of formulas holds flags as well, which have a test of their own.
            for name in quoted(cell).filter(|name| !name.starts_with('-')) {
                let name = name.trim_end_matches('/');
                let file = name.rsplit('/').next().unwrap_or_default();
                if !text.contains(&format!("\"{file}\"")) && !text.contains(&format!("\"{name}/")) {
                    breaches.push(format!("README.md: there is no {what} {name}"));
                }
            }
        }
    }
    none(&breaches);
}

/// A merge that was not finished breaks scripts and texts that no compiler reads.
#[test]
fn no_merge_was_left_half_done() {
    let marks = ["<", "|", ">"].map(|letter| letter.repeat(7) + " ");
    let line_between = "=".repeat(7);
    let mut breaches = Vec::new();
    for path in files_below(Path::new("")) {
        let Ok(bytes) = fs::read(root().join(&path)) else {
            continue;
        };
        for (index, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            if line == line_between || marks.iter().any(|mark| line.starts_with(mark)) {
                breaches.push(format!(
                    "{}:{}: a mark of a merge",
                    path.display(),
                    index + 1
                ));
            }
        }
    }
    none(&breaches);
}

/// The fuzzed package has a lock file of its own; what both use must be the same, or a find could not be replayed.
#[test]
fn both_lock_files_agree() {
    let versions = |path: &str| -> BTreeSet<(String, String)> {
        let text = read(&root().join(path)).text;
        let value = |block: &str, key: &str| {
            let line = block.lines().find(|line| line.starts_with(key))?;
            line.split('"').nth(1).map(str::to_owned)
        };
        text.split("[[package]]")
            .filter_map(|block| Some((value(block, "name = ")?, value(block, "version = ")?)))
            .collect()
    };
    let (main, fuzz) = (versions("Cargo.lock"), versions("fuzz/Cargo.lock"));
    let names: BTreeSet<&str> = main.iter().map(|(name, _)| name.as_str()).collect();
    let breaches: Vec<String> = fuzz
        .iter()
        .filter(|package| names.contains(package.0.as_str()) && !main.contains(package))
        .map(|(name, version)| {
            format!("fuzz/Cargo.lock: {name} {version} is not the version of Cargo.lock")
        })
        .collect();
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
    let rows = flag_rows(
        "    [\"--url\", \"-u\"] List, \"\", \"Says [\"--no\"].\";\n// [\"--gone\"] Text;\n",
    );
    assert_eq!(rows, [["--url", "-u"]]);
    let text = "a `b c` d\n\n    code `e`\n`f`";
    assert_eq!(quoted(text).collect::<Vec<_>>(), ["b c", "f"]);
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

/// All Markdown files.
fn documents() -> Vec<Source> {
    files_below(Path::new(""))
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .map(|path| read(&root().join(path)))
        .collect()
}

/// All files of the project, by their paths from the root, sorted. What is built or downloaded is left out.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    const MADE: &[&str] = &[
        "target",
        ".git",
        "artifacts",
        "corpus",
        "__pycache__",
        "shared",
    ];
    let mut found = Vec::new();
    let entries =
        fs::read_dir(root().join(folder)).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let entry = entry.expect("the folder can be read");
        let path = folder.join(entry.file_name());
        if MADE.iter().any(|made| entry.file_name() == *made) {
            continue;
        }
        // A link may lead out of the project.
        let kind = entry.file_type().expect("the entry has a type");
        if kind.is_dir() {
            found.extend(files_below(&path));
        } else if kind.is_file() {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The spellings of each row of a flag table.
fn flag_rows(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter_map(|line| {
        let names = line.trim_start().strip_prefix("[\"-")?.split(']').next()?;
        Some(format!("\"-{names}"))
    });
    rows.map(|names| {
        names
            .split('"')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    })
    .collect()
}

/// What stands in backquotes, blocks of code aside.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.starts_with("    "))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
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
