//! Lists of sockets, made up and this machine's.
//!
//! In: lines as the kernel writes them. Out: whether the right ports are counted. Never: a connection to another machine.

use std::net::{TcpListener, TcpStream};

use proptest::prelude::*;

use super::*;

fn way(from: Option<&str>, to: &str) -> Way {
    Way {
        from: from.map(|from| from.parse().unwrap()),
        to: to.parse().unwrap(),
    }
}

/// What is taken of 40,000 to 40,099, with nothing reserved.
fn counted(tcp: &str, tcp6: &str, ways: &[Way]) -> Vec<Taken> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("net")).unwrap();
    std::fs::write(folder.path().join("net/tcp"), tcp).unwrap();
    std::fs::write(folder.path().join("net/tcp6"), tcp6).unwrap();
    let range = 40_000..=40_099;
    taken(folder.path(), ways, &range, &Ports::new(), |_| false)
}

/// The middle two hexadecimal columns of a line.
fn line(local: &str, remote: &str, state: &str) -> String {
    let place = |text: &str| {
        let address: SocketAddr = text.parse().unwrap();
        let octets = match address.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let words: String = octets
            .chunks_exact(4)
            .map(|w| format!("{:08X}", u32::from_ne_bytes([w[0], w[1], w[2], w[3]])))
            .collect();
        format!("{words}:{:04X}", address.port())
    };
    format!(
        "   0: {} {} {state} 00000000:00000000 03:000016A8 00000000 0 0 0 3\n",
        place(local),
        place(remote)
    )
}

#[test]
fn each_local_address_has_ports_of_its_own() {
    let list = [
        line("10.0.0.1:40000", "10.1.2.3:80", "01"),
        line("10.0.0.1:40001", "10.1.2.3:80", "06"),
        // The same port from another address, and to another server.
        line("10.0.0.2:40000", "10.1.2.3:80", "01"),
        line("10.0.0.1:40002", "10.1.2.3:81", "01"),
        // Listened on: no connection gets it, wherever it goes.
        line("0.0.0.0:40009", "0.0.0.0:0", "0A"),
        line("10.0.0.1:39999", "10.1.2.3:80", "01"),
    ]
    .concat();
    let mapped = line("[::ffff:10.0.0.1]:40003", "[::ffff:10.1.2.3]:80", "01");
    let ways = [
        way(None, "10.1.2.3:80"),
        way(Some("10.0.0.1"), "10.1.2.3:80"),
        way(Some("10.0.0.2"), "10.1.2.3:80"),
        way(Some("10.0.0.2"), "10.1.2.3:81"),
    ];
    let told = counted(&format!("  sl  local_address\n{list}"), &mapped, &ways);
    let right = |in_use, resting| Taken {
        in_use,
        resting,
        // 0x16A8 hundredths.
        rest_s: if resting > 0 { 58 } else { 0 },
    };
    assert_eq!(told, [right(3, 1), right(3, 1), right(2, 0), right(1, 0)]);
}

#[test]
fn a_port_that_rests_and_is_in_use_counts_once() {
    let list = [
        line("10.0.0.1:40000", "10.1.2.3:80", "06"),
        line("10.0.0.2:40000", "10.1.2.3:80", "01"),
    ]
    .concat();
    let told = counted(&list, "", &[way(None, "10.1.2.3:80")]);
    assert_eq!((told[0].in_use, told[0].resting), (1, 0));
}

#[test]
fn this_machine_s_own_connections_are_seen() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let streams: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(to).unwrap()).collect();
    let range = 1..=65_535;
    let ways = [
        Way { from: None, to },
        way(Some("127.0.0.1"), &to.to_string()),
        way(Some("127.0.0.2"), &to.to_string()),
    ];
    let count = |ways: &[Way]| {
        let told = taken("/proc".as_ref(), ways, &range, &Ports::new(), |_| true);
        told.iter().map(|taken| taken.in_use).collect::<Vec<_>>()
    };
    let [all, own, other] = count(&ways)[..] else {
        panic!("three ways");
    };
    drop(streams);
    if other == 0 {
        // Nothing listens: no Linux, or no right to see.
        return;
    }
    assert_eq!((all, own), (other + 3, other + 3));
}

proptest! {
    #[test]
    fn any_list_is_read_to_its_end(text in "[0-9A-F: \n]{0,300}", state in 0u8..13) {
        let end = line("10.0.0.1:40000", "10.1.2.3:80", &format!("{state:02X}"));
        let told = counted(&format!("{text}\n{end}"), "", &[way(None, "10.1.2.3:80")]);
        prop_assert_eq!(told[0].in_use + told[0].resting, 1);
    }
}
