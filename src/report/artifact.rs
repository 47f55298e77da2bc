//! Names of the artifact files, and whole files on disk.
//!
//! In: the output plan; texts. Out: paths; files written whole. Never: half a file under its final name.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::config::OutputPlan;
use crate::report::ReportError;

/// Where each artifact goes; `--profile-export-prefix` replaces the common base name.
#[derive(Clone, Debug)]
pub struct ArtifactNames {
    directory: PathBuf,
    prefix: Option<String>,
}

impl ArtifactNames {
    /// Names under the plan's directory.
    #[must_use]
    pub fn new(plan: &OutputPlan) -> ArtifactNames {
        ArtifactNames {
            directory: plan.directory.clone(),
            prefix: plan.prefix.clone(),
        }
    }

    fn name(&self, default: &str, suffix: &str) -> PathBuf {
        let name = self
            .prefix
            .as_ref()
            .map_or_else(|| default.to_owned(), |p| format!("{p}{suffix}"));
        self.directory.join(name)
    }

    /// Summary, CSV.
    #[must_use]
    pub fn csv(&self) -> PathBuf {
        self.name("profile_export_aiperf.csv", ".csv")
    }

    /// Summary, JSON.
    #[must_use]
    pub fn json(&self) -> PathBuf {
        self.name("profile_export_aiperf.json", ".json")
    }

    /// Slices of the run, CSV.
    #[must_use]
    pub fn timeslices_csv(&self) -> PathBuf {
        self.name("profile_export_aiperf_timeslices.csv", "_timeslices.csv")
    }

    /// Slices of the run, JSON.
    #[must_use]
    pub fn timeslices_json(&self) -> PathBuf {
        self.name("profile_export_aiperf_timeslices.json", "_timeslices.json")
    }

    /// A line for each request.
    #[must_use]
    pub fn records(&self) -> PathBuf {
        self.name("profile_export.jsonl", ".jsonl")
    }

    /// A line for each request with its bodies.
    #[must_use]
    pub fn raw(&self) -> PathBuf {
        self.name("profile_export_raw.jsonl", "_raw.jsonl")
    }

    /// The console's tables.
    #[must_use]
    pub fn console(&self) -> PathBuf {
        self.name("profile_export_console.txt", "_console.txt")
    }

    /// Every body that could be sent.
    #[must_use]
    pub fn inputs(&self) -> PathBuf {
        self.directory.join("inputs.json")
    }

    /// Every reply's text.
    #[must_use]
    pub fn outputs(&self) -> PathBuf {
        self.directory.join("outputs.json")
    }

    /// The phases and their files.
    #[must_use]
    pub fn phase_manifest(&self) -> PathBuf {
        self.directory.join("phase_manifest.json")
    }

    /// Marks that everything is written.
    #[must_use]
    pub fn ready(&self) -> PathBuf {
        self.directory.join(".aiperf_results_ready.json")
    }

    /// Takes the mark of an earlier run in the same folder away: until this run sets its own, nothing is ready.
    pub fn take_mark_away(&self) -> Result<(), ReportError> {
        let path = self.ready();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(ReportError::at(&path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Makes the folder, and fails where it cannot be written or has no room.
    pub fn check_folder(&self) -> Result<(), ReportError> {
        std::fs::create_dir_all(&self.directory).map_err(ReportError::at(&self.directory))?;
        check_room(&self.directory)
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.directory.join("logs").join("aiperf.log")
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Makes the folder that `path` stands in.
pub(super) fn make_parent(path: &Path) -> Result<(), ReportError> {
    match path.parent() {
        Some(parent) => std::fs::create_dir_all(parent).map_err(ReportError::at(parent)),
        None => Ok(()),
    }
}

/// An unnamed file in the folder of `path`, for what waits there until the end of a run.
pub(super) fn unnamed_beside(path: &Path) -> Result<File, ReportError> {
    make_parent(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    tempfile::tempfile_in(folder).map_err(ReportError::at(path))
}

/// What is written before a run to see whether its folder takes anything: more than the files' own beginnings.
const PROBE_BYTES: usize = 64 << 10;

/// An error where the folder of the artifacts cannot be written, or is full already, before anything is sent.
pub(super) fn check_room(folder: &Path) -> Result<(), ReportError> {
    let try_out = || {
        let mut probe = tempfile::tempfile_in(folder)?;
        probe.write_all(&vec![0; PROBE_BYTES])
    };
    try_out().map_err(ReportError::at(folder))
}

/// Where the file of an earlier run stands while a new one is written.
fn earlier(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".earlier");
    name.into()
}

/// Puts the file of an earlier run aside, so that a run that comes to nothing destroys nothing. What is no file is left where it is.
pub(super) fn put_aside(path: &Path) -> Result<(), ReportError> {
    let holds = |found: std::fs::Metadata| found.is_file() && found.len() > 0;
    if std::fs::symlink_metadata(path).is_ok_and(holds) {
        std::fs::rename(path, earlier(path)).map_err(ReportError::at(path))?;
    }
    Ok(())
}

/// The new file is whole: the earlier one goes.
pub(super) fn let_go(path: &Path) {
    // Where it stays, nothing is lost but room.
    let _ = std::fs::remove_file(earlier(path));
}

/// Writes `text` as the whole of `path`.
pub(super) fn write_text(path: &Path, text: &str) -> Result<(), ReportError> {
    write_whole(path, |file| file.write_all(text.as_bytes()))
}

/// Lets `fill` write a file beside `path`, then puts it in its place in one step.
pub(super) fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), ReportError> {
    make_parent(path)?;
    let write = || {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        {
            // The default of 0600 would hide the results from other users, unlike any plainly created file.
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let mut file = BufWriter::new(builder.tempfile_in(folder)?);
        fill(&mut file)?;
        let file = file
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)?;
        file.persist(path).map_err(|e| e.error)?;
        Ok(())
    };
    write().map_err(ReportError::at(path))
}
