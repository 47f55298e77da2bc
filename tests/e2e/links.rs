//! TLS, IPv6 and the two ways of waiting for sockets.
//!
//! In: certificates, addresses, a refused system call. Out: verdicts on the runs. Never: a certificate that is used elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

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
    let chain = vec![CertificateDer::from_pem_file(test_file("tls/server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(test_file("tls/server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    Server::on(Ipv4Addr::LOCALHOST.into(), script, Some(Arc::new(config))).unwrap()
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
        assert_eq!(record["error"]["type"], "Tls", "{record}");
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
