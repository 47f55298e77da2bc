//! Files of the hub's datasets.
//!
//! In: a dataset, a file in it, and the environment. Out: the file's path in the hub's cache. Never: a file in memory, since the known ones
//! have up to 700 MB, or half a file in the cache.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::Environment;
use super::hub::{Found, Hub, Refusal, commit_of, hex, is_commit, link, write};

/// Greatest file that is kept.
const FILE_BYTES_MAX: u64 = 8 << 30;

/// A download may take this long.
const TIMEOUT: Duration = Duration::from_secs(3_600);

/// Bytes that are copied at once.
const COPY_BYTES: usize = 1 << 16;

/// The branch that is asked for.
const BRANCH: &str = "main";

/// A file of a dataset of the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetFile {
    /// The dataset, as `ORG/NAME`.
    pub dataset: &'static str,
    /// Its place in the dataset.
    pub file: &'static str,
}

impl DatasetFile {
    /// The file in the hub's cache, if it is there.
    #[must_use]
    pub fn cached(self, environment: &Environment) -> Option<PathBuf> {
        let folder = self.folder(environment.cache.as_ref()?);
        let commit = fs::read_to_string(folder.join("refs").join(BRANCH)).ok()?;
        let commit = Some(commit.trim()).filter(|commit| is_commit(commit))?;
        let file = folder.join("snapshots").join(commit).join(self.file);
        file.is_file().then_some(file)
    }

    /// Downloads the file into the hub's cache, where other programs of the hub's family find it, and returns its path there. The error is a
    /// sentence without a subject.
    pub fn fetch(self, environment: &Environment) -> Result<PathBuf, String> {
        let hub = &environment.hub;
        if environment.offline {
            return Err(
                "is not in the hub's cache, and HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids a download"
                    .to_owned(),
            );
        }
        let Some(cache) = &environment.cache else {
            return Err("has no place to be kept in; set HF_HUB_CACHE".to_owned());
        };
        let url = format!(
            "{hub}/datasets/{}/resolve/{BRANCH}/{}",
            self.dataset, self.file
        );
        let found = Hub::new(environment, TIMEOUT)
            .find(&url)
            .map_err(|refusal| match refusal {
                Refusal::NotFound => format!("is not on {hub}"),
                Refusal::Denied => {
                    format!("is shown by {hub} to nobody without the right HF_TOKEN")
                }
                Refusal::Failed(reason) => format!("cannot be downloaded: {reason}"),
            })?;
        self.keep(cache, found)
            .map_err(|error| format!("cannot be kept in {}: {error}", cache.display()))
    }

    fn folder(self, cache: &Path) -> PathBuf {
        cache.join(format!("datasets--{}", self.dataset.replace('/', "--")))
    }

    /// Copies what comes to a file, which becomes visible when it is whole and its sum is right.
    fn keep(self, cache: &Path, mut found: Found) -> std::io::Result<PathBuf> {
        let folder = self.folder(cache);
        let blobs = folder.join("blobs");
        fs::create_dir_all(&blobs)?;
        let mut file = tempfile::NamedTempFile::new_in(&blobs)?;
        let body = found.response.body_mut().with_config();
        let sum = copy(&mut body.limit(FILE_BYTES_MAX).reader(), &mut file)?;
        if let Some(etag) = found.sha256()
            && !etag.eq_ignore_ascii_case(&sum)
        {
            return Err(std::io::Error::other(format!(
                "the content's SHA-256 is {sum}, but the hub announced {etag}"
            )));
        }
        let blob = found.etag.clone().unwrap_or_else(|| sum.clone());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // Temporary files are for their owner only; a cache is often shared.
            file.as_file()
                .set_permissions(fs::Permissions::from_mode(0o644))?;
        }
        file.persist(blobs.join(&blob))
            .map_err(|error| error.error)?;
        let commit = commit_of(found.commit.as_deref(), BRANCH, &sum);
        let place = folder.join("snapshots").join(&commit).join(self.file);
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent)?;
        }
        link(&blobs.join(&blob), &place)?;
        write(&folder.join("refs").join(BRANCH), commit.as_bytes())?;
        Ok(place)
    }
}

/// The SHA-256 of what was copied.
fn copy(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<String> {
    let mut sum = Sha256::new();
    let mut bytes = vec![0; COPY_BYTES];
    loop {
        let count = from.read(&mut bytes)?;
        if count == 0 {
            return Ok(hex(&sum.finalize()));
        }
        sum.update(&bytes[..count]);
        to.write_all(&bytes[..count])?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SmallHub, answer};
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
    const FILE: DatasetFile = DatasetFile {
        dataset: "org/talks",
        file: "talks.json",
    };

    fn hub(etag: &'static str, status: &'static str) -> SmallHub {
        SmallHub::start(move |path| {
            let named = [
                format!("X-Repo-Commit: {COMMIT}"),
                format!("X-Linked-ETag: \"{etag}\""),
            ];
            let named = [named[0].as_str(), named[1].as_str()];
            match path {
                "/datasets/org/talks/resolve/main/talks.json" if status == "200 OK" => {
                    answer("302 Found", &[named[0], named[1], "Location: /store/1"], "")
                }
                "/store/1" => answer("200 OK", &[], "[]"),
                _ => answer(status, &[], "no"),
            }
        })
    }

    /// Of `[]`.
    const SUM: &str = "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945";

    #[test]
    fn a_download_is_found_again_where_the_hubs_programs_look() {
        let cache = tempfile::tempdir().unwrap();
        let hub = hub(SUM, "200 OK");
        let mut environment = hub.environment(cache.path());
        assert_eq!(FILE.cached(&environment), None);
        let path = FILE.fetch(&environment).unwrap();
        let folder = cache.path().join("datasets--org--talks");
        assert_eq!(
            path,
            folder.join("snapshots").join(COMMIT).join("talks.json")
        );
        assert_eq!(fs::read(&path).unwrap(), b"[]");
        assert_eq!(fs::read(folder.join("blobs").join(SUM)).unwrap(), b"[]");
        assert_eq!(fs::read_dir(folder.join("blobs")).unwrap().count(), 1);
        environment.offline = true;
        assert_eq!(FILE.cached(&environment), Some(path));
    }

    #[test]
    fn what_went_wrong_is_named_and_nothing_is_left() {
        let cache = tempfile::tempdir().unwrap();
        let wrong: &'static str =
            "0000000000000000000000000000000000000000000000000000000000000000";
        for (etag, status, word) in [
            (wrong, "200 OK", "SHA-256"),
            (SUM, "404 Not Found", "is not on http://127.0.0.1"),
            (SUM, "401 Unauthorized", "HF_TOKEN"),
            (SUM, "500 Oops", "500"),
        ] {
            let hub = hub(etag, status);
            let environment = hub.environment(cache.path());
            let sentence = FILE.fetch(&environment).unwrap_err();
            assert!(sentence.contains(word), "{sentence}");
            assert_eq!(FILE.cached(&environment), None);
        }
        let blobs = cache.path().join("datasets--org--talks/blobs");
        assert_eq!(fs::read_dir(blobs).unwrap().count(), 0);
        let mut environment = hub(SUM, "200 OK").environment(cache.path());
        environment.offline = true;
        assert!(
            FILE.fetch(&environment)
                .unwrap_err()
                .contains("HF_HUB_OFFLINE")
        );
        environment = Environment {
            cache: None,
            offline: false,
            ..environment
        };
        assert!(
            FILE.fetch(&environment)
                .unwrap_err()
                .contains("HF_HUB_CACHE")
        );
    }
}
