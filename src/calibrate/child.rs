//! The program's own processes: a server, and a client that loads it.
//!
//! In: words of a command line, cores. Out: processes at work, and their ends. Never: leaves a process behind; reads what they
//! measured.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::Interrupt;
use crate::clock::{Clock, Nanos};

/// Between looks at a process.
const NAP: Duration = Duration::from_millis(20);
/// For an orderly end after SIGTERM; then the process is killed.
const GRACE: Nanos = Nanos::from_millis(20_000);

/// How a process ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By itself.
    Exited(ExitStatus),
    /// Somebody wants all to end.
    Interrupted,
    /// It took longer than it may.
    TooLong,
}

/// A process. Dropping it kills it, if it still runs.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
}

impl Process {
    /// Starts this program with `words` on `cores`; its standard error goes to the file `errors`.
    pub(super) fn start(
        words: &[String],
        cores: &[usize],
        output: Stdio,
        errors: &Path,
    ) -> std::io::Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(File::create(errors)?)
            // Ctrl-C goes to a whole group; the children's end is ours to order.
            .process_group(0);
        // A child has the mask of the thread that starts it, and that thread has no other work.
        let started = std::thread::scope(|scope| {
            let starter = scope.spawn(|| {
                pin(cores)?;
                command.spawn()
            });
            starter.join()
        });
        let child = started.unwrap_or_else(|_| Err(std::io::Error::other("the starter died")))?;
        Ok(Process { child })
    }

    /// The first line of its standard output, without its end; empty if there is none.
    pub(super) fn first_line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if let Some(output) = self.child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        Ok(line.trim_end().to_owned())
    }

    /// Waits for its end, at most for `limit`.
    pub(super) fn wait(&mut self, limit: Nanos, interrupt: &Interrupt) -> std::io::Result<End> {
        let clock = Clock::new();
        let start = clock.now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(End::Exited(status));
            }
            if interrupt.is_up() {
                return Ok(End::Interrupted);
            }
            if clock.rate().nanos(clock.now().since(start)) > limit {
                return Ok(End::TooLong);
            }
            nap();
        }
    }

    /// Asks it to end and waits until it has.
    pub(super) fn end(mut self) -> std::io::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        self.wait(GRACE, &Interrupt::default())?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last line that a process wrote to its standard error.
pub(super) fn last_line(errors: &Path) -> String {
    let mut text = String::new();
    // Without the file there is nothing to tell.
    let _ = File::open(errors).and_then(|mut file| file.read_to_string(&mut text));
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    line.unwrap_or("it said nothing").trim().to_owned()
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing is timed here but a child's limit"
)]
fn nap() {
    std::thread::sleep(NAP);
}

#[cfg(target_os = "linux")]
fn pin(cores: &[usize]) -> std::io::Result<()> {
    let mut mask = rustix::thread::CpuSet::new();
    for core in cores {
        mask.set(*core);
    }
    Ok(rustix::thread::sched_setaffinity(None, &mask)?)
}

/// Other systems do not pin.
#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
fn pin(_cores: &[usize]) -> std::io::Result<()> {
    Ok(())
}
