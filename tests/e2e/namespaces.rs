//! A network of the test's own, where ports can run out and links have addresses that only they have.
//!
//! In: a network namespace with nothing but a loopback. Out: verdicts on runs in it. Never: a change of this machine's network.

use super::server::{Script, Server};
use super::stops::shell;

/// What every script begins with: the namespace, and the built-in server at port 9000.
const BEGIN: &str = r#"ip link set lo up || { echo no namespace; exit; }
    ip address add fe80::1/64 dev lo nodad; ip address add fe80::2/64 dev lo nodad
    echo "40000 40063" >/proc/sys/net/ipv4/ip_local_port_range || { echo no namespace; exit; }
    $T mock-server --host :: --port 9000 --ttft 20 --itl 5 >server & S=$!
    trap 'kill $S $H; wait' EXIT
    while [ ! -s server ]; do sleep 0.02; done
    go() { $T profile --model m --tokenizer gpt2 --isl 16 --streaming --ui-type none "$@"; }
"#;

/// What `script` says in a namespace; `None` where this process may make none.
fn alone(script: &str) -> Option<String> {
    // Its address is not used: the namespace has its own.
    let server = Server::start(Script::default());
    let script = format!("{BEGIN}{script}").replace('\'', r"'\''");
    let right = "unshare -n true 2>probe && N='unshare -n' || N='unshare -rn'";
    let (text, _) = shell(&server, &format!("{right}; $N sh -c '{script}'"));
    let missing = text.contains("no namespace") || text.contains("unshare:");
    if missing {
        eprintln!("not tested: no network namespace: {text}");
    }
    (!missing).then_some(text)
}

/// Ports are counted before the run, the workers' own and those of an earlier run among them, and a local address that has none left
/// is passed over in the run.
#[test]
fn a_local_address_without_ports_is_passed_over() {
    let script = r#"
    go --url http://127.0.0.1:9000 --local-address 127.0.0.2 --concurrency 63 --request-count 63 --osl 9000 --workers-max 1 --artifact-dir held >held.txt 2>&1 & H=$!
    for i in $(seq 200); do
        [ $(grep -c " 0200007F:.* 0100007F:2328 01" /proc/net/tcp) -ge 63 ] && break; sleep 0.05
    done
    go --url http://127.0.0.1:9000 --local-address 127.0.0.2 --request-count 1 --workers-max 1 --artifact-dir full; echo full $?
    for driver in ring portable; do
        go --url http://127.0.0.1:9000 --local-address 127.0.0.2,127.0.0.3 --concurrency 20 --request-count 60 --osl 2 --workers-max 1 \
            --driver $driver --artifact-dir $driver >table.txt 2>&1; echo $driver $?
        grep -h Requests: table.txt
    done"#;
    let Some(text) = alone(script) else { return };
    // 63 of the run that holds them, and one of this run's worker.
    let refused = "1 connections to 127.0.0.1:9000 need as many local ports, and 0 are free (40000 to 40063, less 64 in use and 0 reserved)";
    assert!(text.contains("full 1") && text.contains(refused), "{text}");
    for driver in ["ring 0", "portable 0"] {
        assert!(text.contains(driver), "{text}");
    }
    let whole = "60 sent, 60 succeeded, 0 failed";
    assert_eq!(text.matches(whole).count(), 2, "{text}");
}

/// A link-local address is reached and come from by its interface's name or number, and no server is told which interface it was.
#[test]
fn a_link_local_address_is_reached_on_its_interface() {
    let script = r#"
    [ -s /proc/net/if_inet6 ] || { echo no namespace of IPv6; exit; }
    for driver in ring portable; do
        for zone in 25lo 251 lo; do
            go --url "http://[fe80::1%$zone]:9000" --local-address fe80::2%lo,fe80::1%1 --concurrency 4 --request-count 8 --osl 2 \
                --export-level raw --driver $driver --artifact-dir $driver-$zone >table.txt 2>&1; echo $driver $zone $?
            grep -h Requests: table.txt; grep -ch "%" $driver-$zone/profile_export_raw.jsonl
        done
    done
    go --url http://example.test:9000 --resolve "example.test:9000:[fe80::2%lo]" --request-count 2 --osl 2 --artifact-dir named; echo named $?
    go --url "http://[fe80::1]:9000" --interface lo --request-count 2 --osl 2 --artifact-dir bound; echo bound $?
    go --url "http://[fe80::1%25eth7]:9000" --request-count 2 --artifact-dir unknown; echo unknown $?
    go --url "http://[fe80::1%lo]:9000" --local-address fe80::2%9 --request-count 2 --artifact-dir unknown; echo unknown $?"#;
    let Some(text) = alone(script) else { return };
    for driver in ["ring", "portable"] {
        for zone in ["25lo", "251", "lo"] {
            // No record of all that was sent and received names the zone.
            let right = format!("{driver} {zone} 0\nRequests: 8 sent, 8 succeeded");
            assert!(text.contains(&right), "{right}: {text}");
        }
    }
    assert_eq!(text.matches("unsent\n0\n").count(), 6, "{text}");
    for right in [
        "named 0",
        "bound 0",
        "unknown 1",
        "--url fe80::1%eth7: this machine has no network interface eth7 with IPv6; it has lo (1)",
        "--local-address fe80::2%9: this machine has no network interface 9 with IPv6; it has lo (1)",
    ] {
        assert!(text.contains(right), "{right}: {text}");
    }
}
