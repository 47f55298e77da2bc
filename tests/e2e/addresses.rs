//! Servers with several addresses, of which not all answer.
//!
//! In: listeners on addresses of the loopback network. Out: verdicts on the runs. Never: another machine.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::links::{https, test_file};
use super::relays::Proxy;
use super::server::{Script, Server};
use super::tool::{Mock, Run, Tool};

/// An address that answers nothing: its listener's queue is full, so that the kernel drops what comes.
struct Dead {
    _listener: Socket,
    _queued: Vec<TcpStream>,
}

impl Dead {
    fn on(address: SocketAddr) -> Dead {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&address.into()).unwrap();
        listener.listen(0).unwrap();
        let mut queued = Vec::new();
        for _ in 0..8 {
            match TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
                Ok(stream) => queued.push(stream),
                Err(_) => break,
            }
        }
        assert!(queued.len() < 8, "the queue never filled");
        Dead {
            _listener: listener,
            _queued: queued,
        }
    }
}

fn through(server: &Server, addresses: &str, flags: &str) -> Run {
    let port = server.address.port();
    Tool::profile(&format!(
        "--model m --url http://two.test:{port} --resolve two.test:{port}:{addresses} --tokenizer gpt2 --isl 16 --streaming \
         --artifact-dir out --ui-type none {flags}"
    ))
    .run()
}

#[test]
fn an_address_that_does_not_answer_costs_a_quarter_second_once() {
    for driver in ["ring", "portable"] {
        let server = Server::start(Script::always("words alpha beta"));
        let port = server.address.port();
        let dead = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 9), port));
        let _dead = Dead::on(dead);
        let run = through(
            &server,
            "127.0.0.9,127.0.0.1",
            &format!(
                "--request-count 6 --connection-reuse-strategy never --driver {driver} --request-timeout-seconds 10"
            ),
        );
        assert_eq!(run.code, Some(0), "{driver}: {run}");
        assert_eq!(run.counts(), [6, 6, 0, 0], "{driver}: {run}");
        let mut connecting: Vec<f64> = run
            .records("profiling")
            .iter()
            .map(|record| {
                record["metrics"]["http_req_connecting"]["value"]
                    .as_f64()
                    .unwrap()
            })
            .collect();
        connecting.sort_by(f64::total_cmp);
        assert!(
            (249.0..2_000.0).contains(&connecting[5]),
            "{driver}: {connecting:?}"
        );
        assert!(
            connecting[4] < 200.0,
            "{driver}: paid twice: {connecting:?}"
        );
        assert!(run.stdout.contains("127.0.0.1"), "{driver}: {run}");
    }
}

#[test]
fn an_address_that_refuses_costs_nothing() {
    for driver in ["ring", "portable"] {
        let server = Server::start(Script::always("words alpha beta"));
        let run = through(
            &server,
            "127.0.0.8,127.0.0.7,127.0.0.1",
            &format!(
                "--request-count 6 --concurrency 3 --connection-reuse-strategy never --driver {driver} --happy-eyeballs-timeout-ms 20000"
            ),
        );
        assert_eq!(run.counts(), [6, 6, 0, 0], "{driver}: {run}");
        assert!(run.wall < Duration::from_secs(15), "{driver}: {run}");
    }
}

#[test]
fn connections_opened_ahead_find_the_address_that_answers() {
    let server = Server::start(Script::always("words alpha beta"));
    let port = server.address.port();
    let _dead = Dead::on(SocketAddr::from((Ipv4Addr::new(127, 0, 0, 9), port)));
    let run = through(
        &server,
        "127.0.0.9,127.0.0.1",
        "--request-count 8 --concurrency 4 --pre-connect auto",
    );
    assert_eq!(run.counts(), [8, 8, 0, 0], "{run}");
    assert_eq!(server.log().connections, 4, "{run}");
    assert!(!run.stdout.contains("could not be opened"), "{run}");
}

#[test]
fn tls_goes_through_a_tunnel_to_the_server_itself() {
    for driver in ["ring", "portable"] {
        let server = https(Script::always("wait 10; words alpha beta every 2"));
        let proxy = Proxy::start(server.address, "200");
        // The proxy looks the name up; the certificate is for localhost.
        let run = Tool::profile(&format!(
            "--model m --url https://localhost:4 --proxy http://{} --cacert {} --tokenizer gpt2 --isl 16 --streaming --request-count 4 \
             --concurrency 2 --driver {driver} --export-http-trace --wait-for-model-timeout 5 --artifact-dir out --ui-type none",
            proxy.address,
            test_file("tls/ca.pem"),
        ))
        .run();
        assert_eq!(run.counts(), [4, 4, 0, 0], "{driver}: {run}");
        assert_eq!(
            proxy.heads().len(),
            3,
            "{driver}: two connections and a probe"
        );
        assert!(proxy.heads()[0].starts_with("CONNECT localhost:4 HTTP/1.1\r\n"));
        let log = server.log();
        assert_eq!(log.load()[0].header("host"), Some("localhost:4"));
        for record in run.records("profiling") {
            let trace = &record["trace_data"];
            assert_eq!(trace["remote_ip"], "127.0.0.1", "{driver}: {record}");
            let port = u64::from(proxy.address.port());
            assert_eq!(trace["remote_port"].as_u64(), Some(port), "{driver}");
        }
    }
}

#[test]
fn ipv6_is_reached_by_name_and_from_its_own_addresses() {
    let loopback = std::net::Ipv6Addr::LOCALHOST.into();
    let Ok(server) = Server::on(loopback, Script::always("words alpha beta"), None) else {
        eprintln!("not tested: this machine has no ::1");
        return;
    };
    for driver in ["ring", "portable"] {
        for flags in ["--ip-version 6", "--local-address ::1", "--interface lo"] {
            let flags = format!("{flags} --request-count 4 --concurrency 2 --driver {driver}");
            let run = through(&server, "127.0.0.1,[::1]", &flags);
            assert_eq!(run.counts(), [4, 4, 0, 0], "{flags}: {run}");
            assert!(run.stdout.contains("two.test at [::1]:"), "{flags}: {run}");
        }
    }
}

/// (link-local address, name of its interface) of this machine; a machine without one has nothing to test here.
fn link_local() -> Vec<(std::net::Ipv6Addr, String)> {
    let list = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let lines = list.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ip = u128::from_str_radix(words.first()?, 16).ok()?;
        Some((ip.into(), (*words.last()?).to_owned()))
    });
    let lines = lines.filter(|(ip, _): &(std::net::Ipv6Addr, _)| ip.is_unicast_link_local());
    lines.collect()
}

#[test]
fn the_built_in_server_listens_on_link_local_addresses() {
    for (ip, interface) in link_local() {
        for host in [format!("{ip}%{interface}"), format!("[{ip}%{interface}]")] {
            let server = Mock::start(&format!("--host {host} --ttft 1 --itl 1 --tokens 2"));
            let begin = format!("http://[{ip}%25{interface}]:");
            assert!(server.url.starts_with(&begin), "{}", server.url);
            let run = Tool::profile(&format!(
                "--model m --url {} --tokenizer gpt2 --isl 4 --request-count 2 --artifact-dir out --ui-type none",
                server.url
            ));
            assert_eq!(run.run().counts(), [2, 2, 0, 0], "{host}");
        }
    }
    let refused = std::process::Command::new(super::tool::PROGRAM)
        .args([
            "mock-server",
            "--port",
            "0",
            "--host",
            "fe80::1%no-such-one",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("--host fe80::1%no-such-one: "), "{said}");
}
