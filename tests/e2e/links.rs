//! TLS, IPv6 and the two ways of waiting for sockets.
//!
//! In: certificates, addresses, a refused system call. Out: verdicts on the runs. Never: a certificate that is used elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

use rustls::SupportedProtocolVersion;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};

use super::server::{Script, Server};
use super::tool::{Run, Tool};

/// Path of a file beside these tests.
pub fn test_file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/e2e")
        .join(name);
    path.to_str().unwrap().to_owned()
}

/// A server on 127.0.0.1 whose certificate `tls/ca.pem` vouches for.
pub fn https(script: Script) -> Server {
    secured(script, "server", &[&TLS13, &TLS12], false)
}

/// A server on 127.0.0.1 with the certificate of this name and these versions of TLS. `asks`: it wants a certificate that
/// `tls/client-ca.pem` vouches for.
fn secured(
    script: Script,
    certificate: &str,
    versions: &[&'static SupportedProtocolVersion],
    asks: bool,
) -> Server {
    let file = |kind| test_file(&format!("tls/{certificate}.{kind}"));
    let chain = vec![CertificateDer::from_pem_file(file("pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(file("key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .unwrap();
    let builder = if asks {
        let mut roots = rustls::RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(test_file("tls/client-ca.pem")).unwrap();
        roots.add(authority).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        builder.with_client_cert_verifier(verifier.unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let config = Arc::new(builder.with_single_cert(chain, key).unwrap());
    Server::on(Ipv4Addr::LOCALHOST.into(), script, Some(config)).unwrap()
}

/// Without roots of the machine's that know the test's authority.
fn with_flags(server: &Server, flags: &str) -> Run {
    let flags = flags.replace("TLS/", &test_file("tls/"));
    secure(
        server,
        "localhost",
        &test_file("tls/other.pem"),
        &format!("--streaming --request-count 2 --request-timeout-seconds 5 {flags}"),
    )
}

/// What the records' errors are called; all of them the same.
fn only_error(run: &Run) -> String {
    let mut names: Vec<String> = run
        .records("profiling")
        .iter()
        .map(|record| {
            record["error"]["type"]
                .as_str()
                .unwrap_or("none")
                .to_owned()
        })
        .collect();
    names.dedup();
    assert_eq!(names.len(), 1, "{run}");
    names.remove(0)
}

#[test]
fn certificates_are_judged_as_the_flags_say() {
    let words = || Script::always("words alpha beta");
    let (both, ca) = ([&TLS13, &TLS12], "--cacert TLS/ca.pem");
    let own = "--cert TLS/client.pem --key TLS/client.key";
    for (certificate, versions, asks, flags, error) in [
        ("server", &both[..], false, ca.to_owned(), "none"),
        ("server", &both[..1], false, ca.to_owned(), "none"),
        ("server", &both[1..], false, ca.to_owned(), "none"),
        ("server", &both[..], false, "--insecure".to_owned(), "none"),
        ("server", &both[1..], false, "--insecure".to_owned(), "none"),
        (
            "server",
            &both[..],
            false,
            String::new(),
            "TlsUnknownAuthority",
        ),
        (
            "server",
            &both[..],
            false,
            format!("{ca} --tls-server-name other.test"),
            "TlsWrongName",
        ),
        (
            "expired",
            &both[..],
            false,
            "--cacert TLS/client-ca.pem".to_owned(),
            "TlsExpired",
        ),
        ("expired", &both[..], false, "--insecure".to_owned(), "none"),
        ("server", &both[..], true, format!("{ca} {own}"), "none"),
        ("server", &both[1..], true, format!("{ca} {own}"), "none"),
        ("server", &both[1..], true, ca.to_owned(), "TlsRefused"),
        ("server", &both[..1], true, ca.to_owned(), "TlsRefused"),
    ] {
        let server = secured(words(), certificate, versions, asks);
        let run = with_flags(&server, &flags);
        assert_eq!(only_error(&run), error, "{certificate} {flags}: {run}");
    }
}

#[test]
fn a_probe_goes_by_the_same_certificates() {
    let server = secured(
        Script::always("words alpha beta"),
        "server",
        &[&TLS13],
        true,
    );
    let own =
        "--cacert TLS/ca.pem --cert TLS/client.pem --key TLS/client.key --wait-for-model-timeout 5";
    assert_eq!(only_error(&with_flags(&server, own)), "none");
}

#[test]
fn files_that_are_no_certificates_are_named() {
    let server = https(Script::always("words alpha beta"));
    for (flags, parts) in [
        ("--cacert TLS/none.pem", ["--cacert", "none.pem"]),
        ("--cacert TLS/server.key", ["--cacert", "no certificate"]),
        (
            "--cert TLS/client.pem --key TLS/ca.pem",
            ["--key", "private key"],
        ),
        (
            "--cert TLS/client.pem --key TLS/server.key",
            ["--cert", "does not go with --key"],
        ),
    ] {
        let run = with_flags(&server, flags);
        assert_ne!(run.code, Some(0), "{run}");
        for part in parts {
            assert!(run.stderr.contains(part), "{flags}: {run}");
        }
    }
    assert!(server.log().requests.is_empty());
}

fn secure(server: &Server, host: &str, roots: &str, flags: &str) -> Run {
    let port = server.address.port();
    Tool::profile(&format!(
        "--model m --url https://{host}:{port} --tokenizer gpt2 --isl 16 --artifact-dir out --ui-type none {flags}"
    ))
    .env("SSL_CERT_FILE", roots)
    .run()
}

#[test]
fn a_trusted_server_streams_over_tls() {
    let server = https(Script::always("wait 20; words alpha beta gamma every 5"));
    let roots = test_file("tls/ca.pem");
    let run = secure(
        &server,
        "localhost",
        &roots,
        "--streaming --concurrency 3 --request-count 12",
    );
    assert_eq!(run.code, Some(0), "{run}");
    assert_eq!(run.counts(), [12, 12, 0, 0], "{run}");
    assert_eq!(server.log().connections, 3);
    assert_eq!(run.metric("connection_setup", "count"), 3.0, "{run}");
    for record in run.records("profiling") {
        let value = |tag: &str| record["metrics"][tag]["value"].as_f64().unwrap();
        assert!(value("time_to_first_token") >= 19.9, "{record}");
        let fresh = value("http_req_connection_reused") == 0.0;
        assert_eq!(value("http_req_connecting") > 0.0, fresh, "{record}");
    }
    let whole = secure(
        &server,
        "127.0.0.1",
        &roots,
        "--streaming --request-count 2 --connection-reuse-strategy never",
    );
    assert_eq!(whole.counts(), [2, 2, 0, 0], "{whole}");
}

#[test]
fn an_untrusted_server_is_refused() {
    let server = https(Script::always("words alpha beta"));
    // Roots of somebody else: the server's own certificate is no authority.
    let run = secure(
        &server,
        "localhost",
        &test_file("tls/other.pem"),
        "--streaming --request-count 2",
    );
    assert_eq!(run.code, Some(1), "{run}");
    assert_eq!(run.counts(), [2, 0, 2, 0], "{run}");
    for record in run.records("profiling") {
        assert_eq!(record["error"]["type"], "TlsUnknownAuthority", "{record}");
    }
    assert!(server.log().requests.is_empty());
}

#[test]
fn a_plain_server_is_no_tls_server() {
    let server = Server::start(Script::always("words alpha beta"));
    let run = secure(
        &server,
        "localhost",
        &test_file("tls/ca.pem"),
        "--streaming --request-count 2 --request-timeout-seconds 5",
    );
    assert_eq!(run.code, Some(1), "{run}");
    assert_eq!(run.counts(), [2, 0, 2, 0], "{run}");
}

#[test]
fn an_ipv6_literal_is_an_address() {
    let loopback = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let Ok(server) = Server::on(loopback, Script::always("words alpha beta"), None) else {
        eprintln!("not tested: this machine has no ::1");
        return;
    };
    let port = server.address.port();
    let mut hosts = vec!["[::1]"];
    // Not every machine's `localhost` has both addresses.
    if ("localhost", port)
        .to_socket_addrs()
        .unwrap()
        .any(|address| address.is_ipv6())
    {
        hosts.push("localhost");
    }
    for host in hosts {
        let run = Tool::profile(&format!(
            "--model m --url http://{host}:{port} --tokenizer gpt2 --isl 16 --streaming --request-count 2 --artifact-dir out"
        ))
        .run();
        assert_eq!(run.counts(), [2, 2, 0, 0], "{run}");
        let wanted = format!("{host}:{port}");
        let log = server.log();
        let seen = log
            .load()
            .into_iter()
            .next_back()
            .unwrap()
            .header("host")
            .map(str::to_owned);
        assert_eq!(seen, Some(wanted));
    }
}

/// The script that refuses a system call of io_uring; says so where it does not work.
pub fn refusal_of_io_uring() -> Option<String> {
    let wrapper = test_file("deny_io_uring.py");
    let known = std::process::Command::new("python3")
        .args([&wrapper, "none", "true"])
        .output();
    if known.is_ok_and(|output| output.status.success()) {
        return Some(wrapper);
    }
    eprintln!("not tested: this machine has no python3, or no seccomp filters");
    None
}

/// Runs with one of io_uring's system calls refused, as containers do.
#[cfg(target_os = "linux")]
#[test]
fn without_io_uring_the_run_says_so_and_works() {
    let Some(wrapper) = refusal_of_io_uring() else {
        return;
    };
    for call in ["io_uring_setup", "io_uring_register", "io_uring_enter"] {
        let server = Server::start(Script::always("wait 10; words alpha beta every 5"));
        let run = Tool::wrapped(
            &["python3", &wrapper, call],
            &format!(
                "--model m --url {} --tokenizer gpt2 --isl 16 --streaming --concurrency 7 --workers-max 3 \
                 --request-count 70 --artifact-dir out --ui-type none",
                server.url()
            ),
        )
        .run();
        assert_eq!(run.code, Some(0), "{call}: {run}");
        assert_eq!(run.counts(), [70, 70, 0, 0], "{call}: {run}");
        assert_eq!(server.log().open_most, 7, "{call}");
        let client = &run.summary()["client"];
        assert!(
            client["driver"].as_str().unwrap().contains("epoll"),
            "{client}"
        );
        assert!(
            client["driver_reason"].as_str().unwrap().contains(call),
            "{client}"
        );
        assert!(run.stdout.contains("epoll"), "{run}");
        assert!(run.metric("time_to_first_token", "min") >= 9.9);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn epoll_stops_and_times_out_as_well() {
    let Some(wrapper) = refusal_of_io_uring() else {
        return;
    };
    let server = Server::start(
        Script::default()
            .answer("1-3", "part alpha; stall")
            .answer("*", "wait 50; words alpha beta"),
    );
    let going = Tool::wrapped(
        &["python3", &wrapper, "io_uring_setup"],
        &format!(
            "--model m --url {} --tokenizer gpt2 --isl 16 --streaming --concurrency 5 --request-count 1000 \
             --request-timeout-seconds 0.5 --artifact-dir out --ui-type none",
            server.url()
        ),
    )
    .start();
    server.wait_for(40);
    going.signal(rustix::process::Signal::INT);
    let run = going.end();
    assert_eq!(run.code, Some(1), "{run}");
    let [sent, good, failed, cut] = run.counts();
    assert_eq!((failed, cut), (3, 0), "{run}");
    assert_eq!(sent, good + 3);
    assert_eq!(sent, server.log().load().len());
}
