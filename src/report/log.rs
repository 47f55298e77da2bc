//! `logs/aiperf.log`.
//!
//! In: messages with a level. Out: lines of UTC time, level and message. Never: a control character, or a failed run because the
//! log could not be written.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::config::LogLevel;
use crate::report::artifact::{let_go, make_parent, put_aside};
use crate::report::{ReportError, escape_controls};

/// A log file; may be shared between threads off the hot path.
#[derive(Debug)]
pub struct Log {
    file: Mutex<File>,
    level: LogLevel,
    path: PathBuf,
}

impl Log {
    /// Creates (or empties) the file; messages louder than `level` are dropped.
    pub fn create(path: &Path, level: LogLevel) -> Result<Log, ReportError> {
        make_parent(path)?;
        put_aside(path)?;
        Ok(Log {
            file: Mutex::new(File::create(path).map_err(ReportError::at(path))?),
            level,
            path: path.to_owned(),
        })
    }

    /// Adds a line.
    pub fn line(&self, level: LogLevel, message: &str) {
        if level > self.level {
            return;
        }
        let name = match level {
            LogLevel::Error => "ERROR",
            LogLevel::Warning => "WARNING",
            LogLevel::Info => "INFO",
            LogLevel::Debug => "DEBUG",
            LogLevel::Trace => "TRACE",
        };
        let line = format!(
            "{:.6} {name} {}\n",
            jiff::Timestamp::now(),
            escape_controls(message)
        );
        if let Ok(mut file) = self.file.lock() {
            // A full disk shows itself on the artifacts; the log must not end a run.
            let _ = file.write_all(line.as_bytes());
        }
    }

    /// The run has written all it had to: an earlier run's log goes.
    pub fn finish(&self) {
        let_go(&self.path);
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}
