//! The TLS side of a run.
//!
//! In: the plan, certificate files. Out: a rustls configuration for one worker. Never: a connection; and no key in an error's text.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::RunError;
use crate::config::TlsPlan;

/// What connections begin with; the files are read once for all workers.
#[derive(Debug, Default)]
pub(super) struct Origin(OnceLock<Arc<ClientConfig>>);

impl Origin {
    /// A configuration for one worker. Certificates, keys and the verifier are shared; sessions are resumed within it alone, so that no
    /// worker waits for another one's lock.
    ///
    /// # Errors
    /// A sentence that names the flag and the file.
    pub(super) fn config(&self, plan: &TlsPlan) -> Result<Arc<ClientConfig>, RunError> {
        let read = match self.0.get() {
            Some(read) => read,
            None => {
                let read = client_config(plan)?;
                self.0.get_or_init(|| read)
            }
        };
        let mut own = ClientConfig::clone(read);
        own.resumption = Resumption::default();
        Ok(Arc::new(own))
    }
}

/// What every connection begins with.
fn client_config(plan: &TlsPlan) -> Result<Arc<ClientConfig>, RunError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| RunError::Tls(format!("TLS cannot be set up: {error}")))?;
    let builder = if plan.insecure {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
    } else {
        builder.with_root_certificates(roots(plan.authorities.as_deref())?)
    };
    let mut config = match &plan.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain = certificates("--cert", &identity.certificate)?;
            let key = PrivateKeyDer::from_pem_file(&identity.key).map_err(|error| {
                wrong(
                    "--key",
                    &identity.key,
                    &format!("{error}; give a PEM file with an unencrypted private key"),
                )
            })?;
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                wrong(
                    "--cert",
                    &identity.certificate,
                    &format!("does not go with --key {}: {error}", identity.key.display()),
                )
            })?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The authorities to trust: those of the file, else the machine's, else those that the program carries.
fn roots(file: Option<&Path>) -> Result<RootCertStore, RunError> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = file {
        for certificate in certificates("--cacert", file)? {
            roots
                .add(certificate)
                .map_err(|error| wrong("--cacert", file, &error.to_string()))?;
        }
        return Ok(roots);
    }
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Ok(roots)
}

/// All certificates of a PEM file; at least one.
fn certificates(flag: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, RunError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| wrong(flag, file, &error.to_string()))?;
    if found.is_empty() {
        return Err(wrong(
            flag,
            file,
            "holds no certificate; give a PEM file with one",
        ));
    }
    Ok(found)
}

fn wrong(flag: &str, file: &Path, what: &str) -> RunError {
    RunError::Tls(format!("{flag} {}: {what}", file.display()))
}

/// Takes any certificate, as `--insecure` asks. The handshake's own signatures still have to hold.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
