//! The server's log: what was sent when.
//!
//! In: one entry of fixed size for each content event. Out: lines of text in a file. Never: formats or writes while an event is due
//! soon, short of running out of room.

use std::fs::File;
use std::io::Write;

use super::connection::{EventMark, Moment};

/// The first line of a log; later columns may be added at the end.
pub(super) const COLUMNS: &str =
    "# connection request event monotonic_ns due_ns sent_ns received_ns read_ns\n";

/// Entries that wait at most, 64 bytes each; memory is touched only as they come. One more and all are written at once.
#[cfg(target_os = "linux")]
const ENTRIES: usize = 1 << 20;
/// Entries written in one go while there is time: about 30 us.
#[cfg(target_os = "linux")]
const ENTRIES_AT_ONCE: usize = 128;
/// Time until the next event that allows such a go.
#[cfg(target_os = "linux")]
const QUIET_NS: u64 = 200_000;

/// One content event that went out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) mark: EventMark,
    /// Just before the system call that sends it.
    pub(super) before: u64,
    /// Just after it.
    pub(super) after: u64,
}

impl Entry {
    /// Appends the log's line: the fields of [`COLUMNS`].
    pub(super) fn line(&self, text: &mut Vec<u8>) {
        let Entry {
            mark,
            before,
            after,
        } = self;
        let EventMark {
            connection,
            request,
            event,
            due,
            came: Moment { received, read },
        } = mark;
        // Writing to memory does not fail.
        let _ = writeln!(
            text,
            "{connection} {request} {event} {before} {due} {after} {received} {read}"
        );
    }
}

/// A thread's entries on their way to the file.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    entries: Vec<Entry>,
    /// Entries that are in the file already.
    written: usize,
    text: Vec<u8>,
}

#[cfg(target_os = "linux")]
impl Log {
    pub(super) fn new(file: File) -> Log {
        Log {
            file,
            entries: Vec::with_capacity(ENTRIES),
            written: 0,
            text: Vec::new(),
        }
    }

    /// Takes an entry. The error is the file's, when there was no more room.
    pub(super) fn push(&mut self, entry: Entry) -> std::io::Result<()> {
        if self.entries.len() == ENTRIES {
            self.flush()?;
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Writes some entries if nothing is due for `slack` ns; true when it wrote.
    pub(super) fn use_time(&mut self, slack: u64) -> std::io::Result<bool> {
        if slack < QUIET_NS || self.entries.is_empty() {
            return Ok(false);
        }
        self.write(ENTRIES_AT_ONCE)?;
        Ok(true)
    }

    /// Writes all entries.
    pub(super) fn flush(&mut self) -> std::io::Result<()> {
        while !self.entries.is_empty() {
            self.write(ENTRIES_AT_ONCE)?;
        }
        Ok(())
    }

    fn write(&mut self, count: usize) -> std::io::Result<()> {
        let end = self.entries.len().min(self.written + count);
        self.text.clear();
        for entry in &self.entries[self.written..end] {
            entry.line(&mut self.text);
        }
        // One call for whole lines: the file is opened for appending, and other threads append to it too.
        self.file.write_all(&self.text)?;
        self.written = end;
        if end == self.entries.len() {
            self.entries.clear();
            self.written = 0;
        }
        Ok(())
    }
}
