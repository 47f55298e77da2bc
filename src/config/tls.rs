//! Flags of TLS become a [`TlsPlan`].
//!
//! In: settings. Out: whom to trust, and who to be. Never: reads a certificate; that is the conductor's, before any load.

use std::path::PathBuf;

use super::error::Problems;
use super::lex::Settings;

/// Whom to trust in a TLS connection, and who to be. The default trusts the machine's roots and has no certificate of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsPlan {
    /// The server's certificate is not checked.
    pub insecure: bool,
    /// PEM file with the only authorities to trust, in place of the machine's.
    pub authorities: Option<PathBuf>,
    /// What this client shows to servers that ask for a certificate.
    pub identity: Option<Identity>,
    /// Name that is asked for (SNI) and that the certificate must hold, in place of the URL's host.
    pub server_name: Option<String>,
}

/// A certificate of the client's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// PEM file with the certificate, and those that lead to its authority.
    pub certificate: PathBuf,
    /// PEM file with its private key.
    pub key: PathBuf,
}

const FLAGS: [&str; 5] = [
    "--insecure",
    "--cacert",
    "--cert",
    "--key",
    "--tls-server-name",
];

/// Reads and checks the flags. `secure`: a URL begins with https.
pub(super) fn tls(settings: &Settings, secure: bool, problems: &mut Problems) -> TlsPlan {
    let [insecure, authorities, certificate, key, name] = FLAGS;
    if !secure {
        for flag in FLAGS.iter().filter(|flag| settings.given(flag)) {
            problems.push(format!("{flag} needs a --url that begins with https://"));
        }
    }
    if settings.given(insecure) && settings.given(authorities) {
        problems.push(format!(
            "{insecure} and {authorities} exclude each other: either no certificate is checked, or by these authorities"
        ));
    }
    for (one, needs) in [(certificate, key), (key, certificate)] {
        if settings.given(one) && !settings.given(needs) {
            problems.push(format!(
                "{one} needs {needs}: a client certificate is a certificate and its private key"
            ));
        }
    }
    let path = |flag| settings.text(flag).map(PathBuf::from);
    TlsPlan {
        insecure: settings.given(insecure),
        authorities: path(authorities),
        identity: path(certificate)
            .zip(path(key))
            .map(|(certificate, key)| Identity { certificate, key }),
        server_name: settings.text(name).map(str::to_owned),
    }
}
