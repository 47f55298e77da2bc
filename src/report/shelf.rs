//! Values that wait for the end of a run.
//!
//! In: blocks of bytes. Out: the same, from an unnamed temporary file beside the artifacts. Never: leaves that file behind, or looks at a block.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::metric::Shelf;
use crate::report::ReportError;
use crate::report::artifact::unnamed_beside;

/// A [`Shelf`] in a file that has no name, so that it is gone with the program, however that ends.
#[derive(Debug)]
pub struct FileShelf {
    file: File,
    /// Where the next block goes.
    end: AtomicU64,
}

impl FileShelf {
    /// An empty one in the folder of `path`.
    ///
    /// # Errors
    /// When no file can be made there.
    pub fn beside(path: &Path) -> Result<FileShelf, ReportError> {
        Ok(FileShelf {
            file: unnamed_beside(path)?,
            end: AtomicU64::new(0),
        })
    }
}

impl Shelf for FileShelf {
    fn put(&self, block: &[u8]) -> io::Result<u64> {
        let place = self.end.fetch_add(block.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(block, place)?;
        Ok(place)
    }

    fn fetch(&self, place: u64, block: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(block, place)
    }
}
