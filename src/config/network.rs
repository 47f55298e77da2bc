//! Flags of names, addresses and sockets become a [`NetworkPlan`].
//!
//! In: settings, the URLs. Out: which address a name has, and how sockets are made. Never: looks a name up, or opens a socket.

use std::net::IpAddr;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::error::Problems;
use super::lex::Settings;
use super::proxy::{self, ProxyPlan};
use super::url::TargetUrl;
use super::zone::ZonedAddress;
use crate::clock::Nanos;

/// A path of a unix socket has at most this many bytes (`sun_path` of Linux is 108 with its end).
const UNIX_PATH_MOST: usize = 107;

/// A name of a network interface has at most this many bytes (`IFNAMSIZ` of Linux is 16 with its end).
const INTERFACE_MOST: usize = 15;

/// AIPerf's variable for the family of addresses; without it, it takes IPv4 only.
const IP_VERSION_VARIABLE: &str = "AIPERF_HTTP_IP_VERSION";

/// AIPerf's variable for the seconds that an idle connection is kept.
const IDLE_VARIABLE: &str = "AIPERF_HTTP_KEEPALIVE_TIMEOUT";

/// How servers are found and sockets are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPlan {
    /// Which addresses of a name are used.
    pub ip_version: IpVersion,
    /// Addresses that take the place of a name's own.
    pub resolve: Vec<Resolve>,
    /// All connections go to this socket instead; URLs only name the host.
    pub unix_socket: Option<PathBuf>,
    /// All connections go through this proxy.
    pub proxy: Option<ProxyPlan>,
    /// Names are looked up again so often while the load is on; `None`: once, before it.
    pub refresh: Option<Nanos>,
    /// A connection attempt that is not answered after this long gets a second one beside it, to the next address.
    pub head_start: Nanos,
    /// A kept connection that was idle for so long is closed; `None` keeps it until the server closes it.
    pub keepalive_idle: Option<Nanos>,
    /// Addresses that connections come from, in turn; the system chooses when empty.
    pub local_addresses: Vec<ZonedAddress>,
    /// Network interface that connections are bound to.
    pub interface: Option<String>,
    /// Small segments wait for the acknowledgement of earlier ones (no `TCP_NODELAY`).
    pub nagle: bool,
    /// What arrives is acknowledged at once (`TCP_QUICKACK`).
    pub quick_ack: bool,
    /// `SO_RCVBUF` in bytes.
    pub receive_buffer_bytes: Option<usize>,
    /// `SO_SNDBUF` in bytes.
    pub send_buffer_bytes: Option<usize>,
}

impl Default for NetworkPlan {
    fn default() -> Self {
        NetworkPlan {
            ip_version: IpVersion::Any,
            resolve: Vec::new(),
            unix_socket: None,
            proxy: None,
            refresh: None,
            head_start: Nanos::from_millis(250),
            keepalive_idle: Some(Nanos::from_millis(300_000)),
            local_addresses: Vec::new(),
            interface: None,
            nagle: false,
            quick_ack: false,
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
        }
    }
}

/// Which addresses of a name are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpVersion {
    /// All, IPv4 first.
    #[default]
    Any,
    /// Those of IPv4.
    V4,
    /// Those of IPv6.
    V6,
}

impl IpVersion {
    /// `address` is of it.
    #[must_use]
    pub fn holds(self, address: &IpAddr) -> bool {
        match self {
            IpVersion::Any => true,
            IpVersion::V4 => address.is_ipv4(),
            IpVersion::V6 => address.is_ipv6(),
        }
    }
}

/// Addresses that take the place of a name's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolve {
    /// Name or address as it stands in a URL, without brackets; `None` means every one.
    pub host: Option<String>,
    /// With this port only.
    pub port: u16,
    /// At least one.
    pub addresses: Vec<ZonedAddress>,
}

impl Resolve {
    /// Connections to `host` and `port` go to its addresses.
    #[must_use]
    pub fn is_for(&self, host: &str, port: u16) -> bool {
        let named = self.host.as_ref();
        self.port == port && named.is_none_or(|named| named.eq_ignore_ascii_case(host))
    }
}

/// Reads and checks the flags. `urls` are those that the user gave.
pub(super) fn network(
    settings: &Settings,
    urls: &[TargetUrl],
    variable: impl Fn(&str) -> Option<String>,
    problems: &mut Problems,
) -> NetworkPlan {
    let ip_version = ip_version(settings, &variable, problems);
    let proxy = proxy::proxy(settings, problems);
    let resolve = resolve(settings, urls, proxy.as_ref(), problems);
    check_families(settings, ip_version, urls, problems);
    check_zones(settings, &resolve, (urls, proxy.as_ref()), problems);
    check_unix(settings, problems);
    for flag in ["--unix-socket", "--proxy"] {
        if settings.given(flag) && !settings.given("--url") {
            problems.push(format!("{flag} needs --url: it says which server is meant"));
        }
    }
    let idle = settings
        .number("--keepalive-idle-seconds")
        .or_else(|| idle_of_environment(&variable, problems));
    let default = NetworkPlan::default();
    NetworkPlan {
        ip_version,
        resolve,
        unix_socket: settings.text("--unix-socket").map(PathBuf::from),
        proxy,
        refresh: settings
            .number("--dns-refresh-seconds")
            .map(Nanos::from_seconds),
        head_start: settings
            .integer("--happy-eyeballs-timeout-ms")
            .map_or(default.head_start, Nanos::from_millis),
        keepalive_idle: match idle {
            None => default.keepalive_idle,
            Some(seconds) if seconds.is_finite() => Some(Nanos::from_seconds(seconds)),
            Some(_) => None,
        },
        local_addresses: local_addresses(settings, problems),
        interface: interface(settings, problems),
        nagle: settings.choice("--tcp-nodelay") == Some("off"),
        quick_ack: settings.switched("--tcp-quickack"),
        receive_buffer_bytes: settings.size("--so-rcvbuf"),
        send_buffer_bytes: settings.size("--so-sndbuf"),
    }
}

fn ip_version(
    settings: &Settings,
    variable: impl Fn(&str) -> Option<String>,
    problems: &mut Problems,
) -> IpVersion {
    let set = variable(IP_VERSION_VARIABLE).filter(|value| !value.trim().is_empty());
    let value = match settings.choice("--ip-version") {
        Some(choice) => choice.to_owned(),
        None => set.unwrap_or_else(|| "auto".to_owned()),
    };
    match value.trim() {
        "4" => IpVersion::V4,
        "6" => IpVersion::V6,
        "auto" => IpVersion::Any,
        other => {
            problems.push(format!(
                "the environment variable {IP_VERSION_VARIABLE} is {other:?}; set it to 4, 6 or auto, or give --ip-version"
            ));
            IpVersion::Any
        }
    }
}

fn idle_of_environment(
    variable: impl Fn(&str) -> Option<String>,
    problems: &mut Problems,
) -> Option<f64> {
    let set = variable(IDLE_VARIABLE).filter(|value| !value.trim().is_empty())?;
    let seconds = set.trim().parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| *seconds > 0.0 && *seconds <= 1e9);
    if seconds.is_none() {
        problems.push(format!(
            "the environment variable {IDLE_VARIABLE} is {set:?}; set it to a number of seconds above 0, or give --keepalive-idle-seconds"
        ));
    }
    seconds
}

/// `HOST:PORT:ADDRESS`, as curl has it. A comma separates further addresses as well as further items: what stands alone as an
/// address belongs to the item before.
fn resolve(
    settings: &Settings,
    urls: &[TargetUrl],
    proxy: Option<&ProxyPlan>,
    problems: &mut Problems,
) -> Vec<Resolve> {
    let mut all: Vec<Resolve> = Vec::new();
    for item in settings.list("--resolve") {
        if let (Some(address), Some(last)) = (ZonedAddress::written(item), all.last_mut()) {
            last.addresses.push(address);
            continue;
        }
        match resolve_item(item) {
            Some(entry) => all.push(entry),
            None => problems.push(format!(
                "--resolve {item:?} is not HOST:PORT:ADDRESS, such as example.com:443:127.0.0.1 or example.com:443:[::1]"
            )),
        }
    }
    let proxied = proxy.map(|proxy| (proxy.host.as_str(), proxy.port));
    let mut asked: Vec<(&str, u16)> = urls
        .iter()
        .map(|url| (url.host.as_str(), url.port))
        .collect();
    if let Some(proxy) = proxied {
        // The proxy looks up the names of URLs.
        asked = vec![proxy];
    }
    for entry in &all {
        let used = asked.iter().any(|(host, port)| entry.is_for(host, *port));
        if !used {
            let (host, port) = (entry.host.as_deref().unwrap_or("*"), entry.port);
            let whose = if proxied.is_some() {
                "--proxy"
            } else {
                "--url"
            };
            problems.push(format!(
                "--resolve {host}:{port} is the host and port of no {whose}; correct it, or leave it out"
            ));
        }
    }
    all
}

fn resolve_item(item: &str) -> Option<Resolve> {
    let (host, rest) = match item.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':')?)
        }
        None => item.split_once(':')?,
    };
    let (port, rest) = rest.split_once(':')?;
    let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
    let named = (host != "*").then(|| host.to_owned());
    if host.is_empty() {
        return None;
    }
    Some(Resolve {
        host: named,
        port,
        addresses: vec![ZonedAddress::written(rest)?],
    })
}

/// Local addresses, without what is none.
fn given_local(settings: &Settings) -> impl Iterator<Item = ZonedAddress> {
    let items = settings.list("--local-address").iter();
    items.filter_map(|item| ZonedAddress::written(item))
}

/// A link-local address says on which interface it is, unless all connections are bound to one.
fn check_zones(
    settings: &Settings,
    resolve: &[Resolve],
    (urls, proxy): (&[TargetUrl], Option<&ProxyPlan>),
    problems: &mut Problems,
) {
    if settings.given("--interface") || settings.given("--unix-socket") {
        return;
    }
    let mut check = |flag: &str, address: &ZonedAddress, right: &str| {
        if address.lacks_zone() {
            problems.push(format!(
                "{flag} {address} is link-local, so that it must say on which network interface; write {right}, or give --interface (`ip link` lists them)"
            ));
        }
    };
    // With a proxy it is only the proxy that is connected to.
    let targets = urls.iter().filter(|_| !settings.given("--proxy"));
    let targets = targets.map(|url| ("--url", &url.host, &url.zone, url.port));
    let proxy = proxy.map(|proxy| ("--proxy", &proxy.host, &proxy.zone, proxy.port));
    for (flag, host, zone, port) in targets.chain(proxy) {
        if let Ok(ip) = host.parse()
            && !resolve.iter().any(|entry| entry.is_for(host, port))
        {
            let zone = zone.clone();
            let right = format!("[{ip}%25eth0]");
            check(flag, &ZonedAddress { ip, zone }, &right);
        }
    }
    for address in given_local(settings) {
        check("--local-address", &address, &format!("{}%eth0", address.ip));
    }
    for address in resolve.iter().flat_map(|entry| &entry.addresses) {
        check("--resolve", address, &format!("{}%eth0", address.ip));
    }
}

/// A literal address in a URL, and a local one, must be of the family that is asked for.
fn check_families(
    settings: &Settings,
    version: IpVersion,
    urls: &[TargetUrl],
    problems: &mut Problems,
) {
    let literal = urls
        .iter()
        .filter_map(|url| url.host.parse::<IpAddr>().ok());
    let local = given_local(settings).map(|found| found.ip);
    let name = |flag, address| (flag, address);
    let all = literal
        .map(|address| name("--url", address))
        .chain(local.map(|address| name("--local-address", address)));
    for (flag, address) in all.filter(|(_, address)| !version.holds(address)) {
        let wanted = if version == IpVersion::V4 { "4" } else { "6" };
        problems.push(format!(
            "{flag} {address} is not of IP version {wanted}, which --ip-version (or {IP_VERSION_VARIABLE}) asks for"
        ));
    }
}

/// What has no meaning for a socket of the file system.
fn check_unix(settings: &Settings, problems: &mut Problems) {
    let Some(path) = settings.text("--unix-socket") else {
        return;
    };
    if path.len() > UNIX_PATH_MOST {
        problems.push(format!(
            "--unix-socket {path:?} is {} bytes long, and the path of a socket has at most {UNIX_PATH_MOST}; use a shorter one",
            path.len()
        ));
    }
    for flag in [
        "--resolve",
        "--proxy",
        "--local-address",
        "--interface",
        "--ip-version",
        "--dns-refresh-seconds",
        "--happy-eyeballs-timeout-ms",
        "--tcp-nodelay",
        "--tcp-quickack",
    ] {
        if settings.given(flag) {
            problems.push(format!(
                "{flag} and --unix-socket exclude each other: such a socket has no IP address and no TCP"
            ));
        }
    }
}

fn local_addresses(settings: &Settings, problems: &mut Problems) -> Vec<ZonedAddress> {
    let mut all = Vec::new();
    for item in settings.list("--local-address") {
        match ZonedAddress::written(item) {
            Some(address) if all.contains(&address) => {
                problems.push(format!("--local-address names {address} twice"));
            }
            Some(address) if address.ip.is_unspecified() || address.ip.is_multicast() => {
                problems.push(format!(
                    "--local-address {address} is no address of one machine; give one that this machine has"
                ));
            }
            Some(address) => all.push(address),
            None => problems.push(format!(
                "--local-address {item:?} is no IP address; give addresses of this machine, such as 10.0.0.1,10.0.0.2 or, where they are link-local, fe80::1%eth0"
            )),
        }
    }
    all
}

fn interface(settings: &Settings, problems: &mut Problems) -> Option<String> {
    let name = settings.text("--interface")?;
    if name.len() > INTERFACE_MOST || name.contains(['/', ' ']) {
        problems.push(format!(
            "--interface {name:?} is no name of a network interface; `ip link` lists them"
        ));
    }
    Some(name.to_owned())
}

/// Where each flag that is set stands in `input_config`.
pub(super) const PLACES: &[(&str, &str)] = &[
    (
        "--keepalive-idle-seconds",
        "endpoint.keepalive_idle_seconds",
    ),
    ("--dns-refresh-seconds", "endpoint.dns_refresh_seconds"),
    ("--unix-socket", "endpoint.unix_socket"),
    (
        "--happy-eyeballs-timeout-ms",
        "endpoint.happy_eyeballs_timeout_ms",
    ),
    ("--interface", "endpoint.interface"),
    ("--tcp-nodelay", "endpoint.tcp_nodelay"),
    ("--tcp-quickack", "endpoint.tcp_quickack"),
    ("--so-rcvbuf", "endpoint.so_rcvbuf"),
    ("--so-sndbuf", "endpoint.so_sndbuf"),
];

/// What was set, as it stands below `endpoint` in `input_config`.
pub(super) fn echo(plan: &NetworkPlan, settings: &Settings) -> Vec<(&'static str, Value)> {
    let mut all = Vec::new();
    if plan.ip_version != IpVersion::Any {
        let version = if plan.ip_version == IpVersion::V4 {
            4
        } else {
            6
        };
        all.push(("endpoint.ip_version", json!(version)));
    }
    if !plan.resolve.is_empty() {
        all.push(("endpoint.resolve", json!(settings.list("--resolve"))));
    }
    if !plan.local_addresses.is_empty() {
        let shown = plan.local_addresses.iter().map(ToString::to_string);
        all.push(("endpoint.local_addresses", json!(shown.collect::<Vec<_>>())));
    }
    if let Some(proxy) = &plan.proxy {
        all.push(("endpoint.proxy", json!(proxy.shown())));
    }
    all
}
