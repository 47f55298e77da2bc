//! The Hugging Face hub: its cache on disk, and downloads into it.
//!
//! In: a model's id and a revision. Out: the text of its `tokenizer.json`. Never: sends the token to another host than the
//! hub's, or leaves half a file in the cache.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use ureq::http::{Response, StatusCode, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use super::Environment;
use super::templated::{CONFIG_FILE, TEMPLATE_FILE};

/// The file that makes a tokenizer.
pub(super) const FILE: &str = "tokenizer.json";

/// Kept beside it when the model has them, as other programs look for them; chat templates are there.
const BESIDE: [&str; 2] = [CONFIG_FILE, TEMPLATE_FILE];

/// Greatest file read; the greatest known tokenizers have 35 MB.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Redirects followed: to a renamed model, and to the store.
const REDIRECTS_MAX: usize = 5;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const FILE_TIMEOUT: Duration = Duration::from_secs(120);

/// A model of the hub at a revision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model<'a> {
    id: &'a str,
    revision: &'a str,
}

/// Why a file did not come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The hub knows no such model, revision or file.
    NotFound,
    /// The hub wants a token, or another one. It also says so of models that do not exist.
    Denied,
    /// Anything else, in words.
    Failed(String),
}

impl<'a> Model<'a> {
    /// `None` when `id` cannot be a model's id (`NAME` or `ORG/NAME`) or `revision` a revision: neither may lead out of the
    /// cache's folder.
    pub(super) fn new(id: &'a str, revision: &'a str) -> Option<Model<'a>> {
        let word = |word: &str| {
            !word.is_empty()
                && word.len() <= 96
                && !word.starts_with(['.', '-'])
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        let right =
            id.split('/').count() <= 2 && id.split('/').all(word) && revision.split('/').all(word);
        right.then_some(Model { id, revision })
    }

    /// This model's folder in the cache.
    fn folder(self, cache: &Path) -> PathBuf {
        cache.join(format!("models--{}", self.id.replace('/', "--")))
    }

    /// The cached `tokenizer.json`, if there is one.
    pub(super) fn cached(self, cache: &Path) -> Option<PathBuf> {
        let folder = self.folder(cache);
        let named = fs::read_to_string(folder.join("refs").join(self.revision)).ok();
        let commits = [named.as_deref().map(str::trim), Some(self.revision)];
        let files = commits
            .into_iter()
            .flatten()
            .filter(|commit| is_commit(commit));
        files
            .map(|commit| folder.join("snapshots").join(commit).join(FILE))
            .find(|file| file.is_file())
    }

    /// Downloads the model's tokenizer and keeps it in the cache. Returns its text, and a sentence when it could not be kept.
    pub(super) fn fetch(
        self,
        environment: &Environment,
    ) -> Result<(String, Option<String>), Refusal> {
        let hub = Hub::new(environment, FILE_TIMEOUT);
        let file = hub.get(self, FILE)?;
        let text = String::from_utf8(file.bytes.clone())
            .map_err(|_| Refusal::Failed("it is no UTF-8 text".to_owned()))?;
        let Some(cache) = &environment.cache else {
            return Ok((text, None));
        };
        // Its absence is usual, and no other reason is worth failing for.
        let beside = BESIDE.map(|name| hub.get(self, name).ok().map(|file| (name, file)));
        let beside: Vec<_> = beside.into_iter().flatten().collect();
        let note = self.keep(cache, &file, &beside).err().map(|error| {
            format!(
                "the tokenizer of {} was downloaded but cannot be kept in {}: {error}",
                self.id,
                cache.display()
            )
        });
        Ok((text, note))
    }

    /// Puts downloaded files where other programs of the hub's family find them. `tokenizer.json` becomes visible last.
    fn keep(
        self,
        cache: &Path,
        file: &Download,
        beside: &[(&str, Download)],
    ) -> std::io::Result<()> {
        let folder = self.folder(cache);
        let sum = hex(&Sha256::digest(&file.bytes));
        let commit = commit_of(file.commit.as_deref(), self.revision, &sum);
        let snapshot = folder.join("snapshots").join(&commit);
        fs::create_dir_all(&snapshot)?;
        let beside = beside.iter().map(|(name, download)| (*name, download));
        for (name, download) in beside.chain([(FILE, file)]) {
            let blob = folder.join("blobs").join(download.blob_name());
            write(&blob, &download.bytes)?;
            link(&blob, &snapshot.join(name))?;
        }
        if self.revision != commit {
            write(&folder.join("refs").join(self.revision), commit.as_bytes())?;
        }
        Ok(())
    }
}

/// A file as it came.
struct Download {
    bytes: Vec<u8>,
    /// Commit that the revision stood for.
    commit: Option<String>,
    /// Bare entity tag.
    etag: Option<String>,
}

impl Download {
    /// Its entity tag, or its own SHA-256.
    fn blob_name(&self) -> String {
        self.etag
            .clone()
            .unwrap_or_else(|| hex(&Sha256::digest(&self.bytes)))
    }
}

/// The answer to a request for a file, before its content is read.
pub(super) struct Found {
    /// What came last.
    pub(super) response: Response<Body>,
    /// Commit that the revision stood for.
    pub(super) commit: Option<String>,
    /// Bare entity tag.
    pub(super) etag: Option<String>,
}

impl Found {
    /// The content's SHA-256, where the hub announced it: a tag of 64 digits (files in the large-file store); one of 40 is git's, of SHA-1.
    pub(super) fn sha256(&self) -> Option<&str> {
        let etag = self.etag.as_deref();
        etag.filter(|etag| etag.len() == 64 && is_hex(etag))
    }
}

/// The hub, and how it is asked.
pub(super) struct Hub<'a> {
    environment: &'a Environment,
    agent: Agent,
}

impl<'a> Hub<'a> {
    /// A file may take `timeout`.
    pub(super) fn new(environment: &'a Environment, timeout: Duration) -> Hub<'a> {
        // The machine's own roots first, for proxies that sign with theirs.
        let native = rustls_native_certs::load_native_certs().certs;
        let roots = if native.is_empty() {
            RootCerts::WebPki
        } else {
            native
                .iter()
                .map(|root| Certificate::from_der(root).to_owned())
                .into()
        };
        // Redirects are followed here: the commit stands in the first response, and the token must stay with the hub.
        let agent = Agent::config_builder()
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(timeout))
            .user_agent(concat!("tokenring/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        Hub { environment, agent }
    }

    fn get(&self, model: Model<'_>, file: &str) -> Result<Download, Refusal> {
        let revision = model.revision.replace('/', "%2F");
        let url = format!(
            "{}/{}/resolve/{revision}/{file}",
            self.environment.hub, model.id
        );
        let found = self.find(&url)?;
        body(found).map_err(|reason| Refusal::Failed(format!("{url}: {reason}")))
    }

    /// Follows redirects to the file. The token stays with the hub, and what the hub says of the file is kept.
    pub(super) fn find(&self, url: &str) -> Result<Found, Refusal> {
        let mut url = url.to_owned();
        let (mut commit, mut etag) = (None, None);
        for _ in 0..=REDIRECTS_MAX {
            let response = self.ask(&url)?;
            let at_hub = same_origin(&url, &self.environment.hub);
            if at_hub {
                commit = header(&response, "x-repo-commit")
                    .filter(|value| is_commit(value))
                    .or(commit);
                etag = entity_tag(&response).or(etag);
            }
            let status = response.status();
            if status.is_redirection() {
                let target = header(&response, "location")
                    .ok_or_else(|| Refusal::Failed(format!("{url} redirects to nowhere")))?;
                url = absolute(&url, &target)
                    .ok_or_else(|| Refusal::Failed(format!("{url} redirects to {target}")))?;
                continue;
            }
            return match status {
                StatusCode::OK => Ok(Found {
                    response,
                    commit,
                    etag,
                }),
                StatusCode::NOT_FOUND => Err(Refusal::NotFound),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Refusal::Denied),
                other => Err(Refusal::Failed(format!("{url} answers {other}"))),
            };
        }
        Err(Refusal::Failed(format!(
            "more than {REDIRECTS_MAX} redirects, the last to {url}"
        )))
    }

    fn ask(&self, url: &str) -> Result<Response<Body>, Refusal> {
        let mut request = self.agent.get(url).header("accept-encoding", "identity");
        if let Some(token) = &self.environment.token
            && same_origin(url, &self.environment.hub)
        {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request
            .call()
            .map_err(|error| Refusal::Failed(format!("{url}: {error}")))
    }
}

fn body(mut found: Found) -> Result<Download, String> {
    let read = found
        .response
        .body_mut()
        .with_config()
        .limit(FILE_BYTES_MAX)
        .read_to_vec();
    let bytes = read.map_err(|error| error.to_string())?;
    let sum = hex(&Sha256::digest(&bytes));
    if let Some(etag) = found.sha256()
        && !etag.eq_ignore_ascii_case(&sum)
    {
        return Err(format!(
            "the content's SHA-256 is {sum}, but the hub announced {etag}"
        ));
    }
    Ok(Download {
        bytes,
        commit: found.commit,
        etag: found.etag,
    })
}

fn header(response: &Response<Body>, name: &str) -> Option<String> {
    let value = response.headers().get(name)?.to_str().ok()?;
    Some(value.trim().to_owned())
}

/// The tag without its quotes, fit for a file's name.
fn entity_tag(response: &Response<Body>) -> Option<String> {
    let tag = header(response, "x-linked-etag").or_else(|| header(response, "etag"))?;
    let bare = tag.trim_start_matches("W/").trim_matches('"');
    let fits = (1..=128).contains(&bare.len())
        && bare
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    fits.then(|| bare.to_owned())
}

/// Scheme, host and port are the same.
fn same_origin(one: &str, other: &str) -> bool {
    let origin = |text: &str| {
        let uri: Uri = text.parse().ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let port = uri
            .port_u16()
            .unwrap_or(if scheme == "https" { 443 } else { 80 });
        Some((scheme, uri.host()?.to_ascii_lowercase(), port))
    };
    origin(one).is_some_and(|it| Some(it) == origin(other))
}

/// Where a `Location` leads, seen from `base`; `None` when it is neither a URL nor an absolute path.
fn absolute(base: &str, target: &str) -> Option<String> {
    if target.starts_with("http://") || target.starts_with("https://") {
        return Some(target.to_owned());
    }
    let base: Uri = base.parse().ok()?;
    let path = target.starts_with('/') && !target.starts_with("//");
    path.then(|| {
        format!(
            "{}://{}{target}",
            base.scheme_str().unwrap_or("https"),
            base.authority().map_or("", |a| a.as_str())
        )
    })
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The commit of what came: the one that the hub named, or that was asked for; a mirror may name none, and then the content stands for it.
pub(super) fn commit_of(named: Option<&str>, revision: &str, sum: &str) -> String {
    let asked = Some(revision).filter(|revision| is_commit(revision));
    named.or(asked).unwrap_or(&sum[..40]).to_owned()
}

/// A commit's full name.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && is_hex(text)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Writes a file that other programs see whole or not at all.
pub(super) fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Temporary files are for their owner only; a cache is often shared.
        file.as_file()
            .set_permissions(fs::Permissions::from_mode(0o644))?;
    }
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Makes `path` in a snapshot stand for `blob`, replacing what was there.
#[cfg(unix)]
pub(super) fn link(blob: &Path, path: &Path) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let blob = Path::new("../../blobs").join(blob.file_name().unwrap_or_default());
    let place =
        tempfile::Builder::new().make_in(folder, |name| std::os::unix::fs::symlink(&blob, name))?;
    place.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Makes `path` in a snapshot hold what `blob` holds: links need rights here.
#[cfg(not(unix))]
pub(super) fn link(blob: &Path, path: &Path) -> std::io::Result<()> {
    fs::copy(blob, path).map(drop)
}
