//! TLS on both ends, in memory.
//!
//! In: a certificate that the tests alone trust. Out: configurations of a client and a server. Never: the machine's roots or its
//! clock. Its key is Ed25519, whose signatures have one length, so that runs repeat byte for byte in length.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokenring::driver::simulated::{Host, Simulation};
use tokenring::engine::TlsTarget;

use crate::bench::Bench;

const CERTIFICATE: &[u8] = include_bytes!("test_only_certificate.pem");
const KEY: &[u8] = include_bytes!("test_only_key.pem");

/// The first day of 2030, for ever.
#[derive(Debug)]
struct OneMoment;

impl TimeProvider for OneMoment {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(
            1_893_456_000,
        )))
    }
}

fn certificate() -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(CERTIFICATE).expect("the file holds a certificate")
}

/// A server that shows the certificate.
pub(crate) fn server() -> Arc<ServerConfig> {
    let key = PrivateKeyDer::from_pem_slice(KEY).expect("the file holds a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_details(provider, Arc::new(OneMoment))
        .with_safe_default_protocol_versions()
        .expect("ring knows them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate()], key)
        .expect("the key fits the certificate");
    Arc::new(config)
}

/// TLS towards every target.
pub(crate) fn everywhere(bench: &mut Bench, simulation: &mut Simulation) {
    for target in &mut bench.targets {
        target.tls = Some(client("peer.test", true));
        let host = Host {
            tls: Some(server()),
            ..Host::default()
        };
        for &address in &target.addresses {
            simulation.hosts.insert(address, host.clone());
        }
    }
}

/// A client that expects `name`, and trusts the certificate or nothing at all.
pub(crate) fn client(name: &str, trusts: bool) -> TlsTarget {
    let mut roots = RootCertStore::empty();
    if trusts {
        roots.add(certificate()).expect("a root");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_details(provider, Arc::new(OneMoment))
        .with_safe_default_protocol_versions()
        .expect("ring knows them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsTarget {
        config: Arc::new(config),
        name: ServerName::try_from(name.to_owned()).expect("a name"),
    }
}
