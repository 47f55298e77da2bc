//! The program, run as its users run it.
//!
//! In: a command line. Out: exit code, output, wall time, and the files it left. Never: looks inside the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_tokenring");

/// A key that may appear nowhere.
pub const KEY: &str = "sk-TOP-secret-0123456789";

/// No run of these tests takes nearly as long.
const LONGEST: Duration = Duration::from_secs(40);

/// A command line to be run in a folder of its own.
pub struct Tool {
    command: Command,
    folder: tempfile::TempDir,
}

impl Tool {
    /// `tokenring profile` with these words, split at spaces outside of single quotes.
    pub fn profile(words: &str) -> Tool {
        Tool::wrapped(&[], words)
    }

    /// The same, started by another program.
    pub fn wrapped(wrapper: &[&str], words: &str) -> Tool {
        let mut all: Vec<&str> = wrapper.to_vec();
        all.extend([PROGRAM, "profile"]);
        let mut command = Command::new(all[0]);
        command.args(&all[1..]).args(split(words));
        let folder = tempfile::tempdir().unwrap();
        command
            .current_dir(folder.path())
            .env_remove("COLUMNS")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Tool { command, folder }
    }

    pub fn env(mut self, name: &str, value: &str) -> Tool {
        self.command.env(name, value);
        self
    }

    /// A file in the folder that the program runs in.
    pub fn file(self, name: &str, text: &str) -> Tool {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub fn run(self) -> Run {
        self.start().end()
    }

    pub fn start(mut self) -> Going {
        let started = Instant::now();
        let mut child = self.command.spawn().unwrap();
        let readers = [
            Reader::of(child.stdout.take().unwrap()),
            Reader::of(child.stderr.take().unwrap()),
        ];
        Going {
            child,
            readers,
            started,
            folder: self.folder,
        }
    }
}

/// Takes in what the program says, as it says it.
struct Reader {
    said: Arc<Mutex<Vec<u8>>>,
    thread: std::thread::JoinHandle<()>,
}

impl Reader {
    fn of(mut pipe: impl Read + Send + 'static) -> Reader {
        let said = Arc::new(Mutex::new(Vec::new()));
        let so_far = Arc::clone(&said);
        let thread = std::thread::spawn(move || {
            let mut piece = [0; 4_096];
            loop {
                let count = pipe.read(&mut piece).unwrap();
                if count == 0 {
                    return;
                }
                so_far.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        });
        Reader { said, thread }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    fn whole(self) -> String {
        self.thread.join().unwrap();
        String::from_utf8(std::mem::take(&mut *self.said.lock().unwrap())).unwrap()
    }
}

/// A run under way.
pub struct Going {
    child: Child,
    readers: [Reader; 2],
    pub started: Instant,
    folder: tempfile::TempDir,
}

impl Going {
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// It has not ended.
    pub fn is_under_way(&self) -> bool {
        let state = fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        // The name before it is in parentheses; Z is one that has ended and was not waited for.
        state.is_ok_and(|state| !state.contains(") Z "))
    }

    /// Files that it has open; 0 where that cannot be seen.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, Iterator::count)
    }

    /// What a list of processes shows.
    pub fn title(&self) -> String {
        let bytes = fs::read(format!("/proc/{}/cmdline", self.child.id())).unwrap();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    }

    /// Waits until a file of the folder `out` has so many lines.
    pub fn wait_for_lines(&self, name: &str, count: usize) {
        let path = self.folder.path().join("out").join(name);
        let lines = || fs::read_to_string(&path).map_or(0, |text| text.lines().count());
        while lines() < count {
            assert!(self.started.elapsed() < LONGEST, "{name} never grew");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until it has said `words` on standard error.
    pub fn wait_for_words(&self, words: &str) {
        while !self.readers[1].so_far().contains(words) {
            assert!(self.started.elapsed() < LONGEST, "never said: {words}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends it as nothing can be prepared for; the text of a file that it left in the folder `out`.
    pub fn kill(mut self, name: &str) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        fs::read_to_string(self.folder.path().join("out").join(name)).unwrap()
    }

    /// Waits for the end; a run that hangs fails the test.
    pub fn end(mut self) -> Run {
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            if self.started.elapsed() > LONGEST {
                self.child.kill().unwrap();
                let [out, err] = self.readers.map(Reader::whole);
                panic!("the run hung\n{out}\n{err}");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let wall = self.started.elapsed();
        let [stdout, stderr] = self.readers.map(Reader::whole);
        let run = Run {
            code,
            stdout,
            stderr,
            wall,
            folder: self.folder,
        };
        run.check_always();
        run
    }
}

/// A run that has ended.
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub wall: Duration,
    folder: tempfile::TempDir,
}

impl Run {
    /// Every file, by its path below the folder.
    pub fn files(&self) -> BTreeMap<String, PathBuf> {
        let mut files = BTreeMap::new();
        collect(self.folder.path(), self.folder.path(), &mut files);
        files
    }

    /// Folder of the artifacts, below the run's folder.
    pub fn artifacts(&self) -> PathBuf {
        let files = self.files();
        let marker = files
            .iter()
            .find(|(name, _)| name.ends_with(".aiperf_results_ready.json"));
        let (_, path) = marker.unwrap_or_else(|| panic!("no results\n{self}"));
        path.parent().unwrap().to_owned()
    }

    /// The same, as a path below the run's folder.
    pub fn artifact_folder(&self) -> String {
        let folder = self.artifacts();
        let folder = folder.strip_prefix(self.folder.path()).unwrap();
        folder.to_string_lossy().into_owned()
    }

    pub fn text(&self, name: &str) -> String {
        let path = self.artifacts().join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}\n{self}"))
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn lines(&self, name: &str) -> Vec<Value> {
        let text = self.text(name);
        assert!(
            text.is_empty() || text.ends_with('\n'),
            "{name} ends in mid-line"
        );
        text.lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {error}: {line}"))
            })
            .collect()
    }

    pub fn summary(&self) -> Value {
        self.json("profile_export_aiperf.json")
    }

    /// A statistic of the summary.
    pub fn metric(&self, tag: &str, stat: &str) -> f64 {
        self.summary()[tag][stat]
            .as_f64()
            .unwrap_or_else(|| panic!("no {stat} of {tag}\n{self}"))
    }

    /// Records of a phase.
    pub fn records(&self, phase: &str) -> Vec<Value> {
        let mut records = self.lines("profile_export.jsonl");
        records.retain(|record| record["metadata"]["benchmark_phase"] == phase);
        records
    }

    /// Sent, succeeded, failed, cancelled in profiling.
    pub fn counts(&self) -> [usize; 4] {
        let records = self.records("profiling");
        let cut = records
            .iter()
            .filter(|r| r["metadata"]["was_cancelled"] == true)
            .count();
        let bad = records.iter().filter(|r| r.get("error").is_some()).count();
        [records.len(), records.len() - bad, bad - cut, cut]
    }

    /// What holds of every run, whatever became of it.
    fn check_always(&self) {
        for text in [&self.stdout, &self.stderr] {
            assert!(!text.contains(KEY), "the key is in the output\n{self}");
            assert!(!text.contains('\x1b'), "escape codes in a pipe\n{self}");
            assert!(!text.contains("panicked"), "{self}");
        }
        for (name, path) in self.files() {
            let text = fs::read_to_string(&path).unwrap();
            if name == "key.txt" {
                continue;
            }
            assert!(!text.contains(KEY), "the key is in {name}");
            if name.ends_with(".json") {
                let _: Value =
                    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            } else if name.ends_with(".jsonl") && !name.starts_with("in") {
                assert!(
                    text.is_empty() || text.ends_with('\n'),
                    "{name} ends in mid-line"
                );
                for line in text.lines() {
                    let _: Value =
                        serde_json::from_str(line).unwrap_or_else(|e| panic!("{name}: {e}"));
                }
            } else if name.ends_with(".csv") {
                check_csv(&name, &text);
            }
            // JSON that parses has none; a command line may hold `inf`.
            let tables = name.ends_with(".csv") || name.ends_with(".txt");
            let lines = text.lines().filter(|line| !line.starts_with("CLI Command"));
            for line in lines.filter(|_| tables) {
                for word in line.split(|c: char| !c.is_ascii_alphanumeric()) {
                    let number = !["NaN", "nan", "inf", "Infinity"].contains(&word);
                    assert!(number, "{word} in {name}");
                }
            }
            if name.ends_with("profile_export.jsonl") {
                check_records(&name, &text);
            }
        }
    }
}

/// A line for each request: its id is its own, and a session has each turn once.
fn check_records(name: &str, text: &str) {
    let (mut ids, mut turns) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let data = &record["metadata"];
        assert!(
            ids.insert(data["x_request_id"].to_string()),
            "{name}: an id twice"
        );
        let turn = [
            &data["benchmark_phase"],
            &data["session_num"],
            &data["turn_index"],
        ];
        let turn = turn.map(ToString::to_string);
        assert!(turns.insert(turn.clone()), "{name}: {turn:?} twice");
    }
}

fn check_csv(name: &str, text: &str) {
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .has_headers(false)
        .from_reader(text.as_bytes());
    let mut rows = 0;
    for row in reader.records() {
        row.unwrap_or_else(|error| panic!("{name}: {error}"));
        rows += 1;
    }
    assert!(rows > 0, "{name} is empty");
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.files().into_keys().collect();
        let head: Vec<&str> = self
            .stdout
            .lines()
            .filter(|line| !line.contains('┆'))
            .take(12)
            .collect();
        let head = head.join("\n");
        write!(
            f,
            "exit {:?} after {:?}\n{head}\n{}\nfiles: {names:?}",
            self.code, self.wall, self.stderr
        )
    }
}

fn collect(base: &Path, folder: &Path, files: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(base, &path, files);
        } else {
            let name = path
                .strip_prefix(base)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            files.insert(name, path);
        }
    }
}

/// Words of a command line; single quotes keep spaces.
pub fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// `tokenring mock-server` on a free port, until dropped.
pub struct Mock {
    child: Child,
    pub url: String,
}

impl Mock {
    pub fn start(words: &str) -> Mock {
        let mut child = Command::new(PROGRAM)
            .args(["mock-server", "--port", "0"])
            .args(split(words))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let pipe = child.stdout.take().unwrap();
        BufReader::new(pipe).read_line(&mut line).unwrap();
        Mock {
            child,
            url: line.trim().to_owned(),
        }
    }
}

impl Mock {
    /// As `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
