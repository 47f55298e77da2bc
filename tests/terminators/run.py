#!/usr/bin/env python3
"""nginx and haproxy take TLS off in front of the built-in server and of llama.cpp's. See README.md."""
import argparse
import collections
import importlib.util
import json
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "benches"))
import programs  # noqa: E402

TLS = ROOT / "tests/e2e/tls"
SKIPPED = 77
# A terminator writes of a request after the client has its reply.
LOG_S = 5
REQUESTS, EVENTS = 40, 16
# Certificates that the client is told to trust, and what it shows of its own.
TRUST = ["--cacert", TLS / "ca.pem"]
OWN = ["--cert", TLS / "client.pem", "--key", TLS / "client.key"]
# A connection for each request.
NEVER = ["--connection-reuse-strategy", "never"]


class Wrong(Exception):
    """A case that does not hold, as a sentence."""


class Terminator:
    """A program that takes TLS off, for the length of a `with`. `options`: certificate (name of a pair of files), version, asks (for a
    client's certificate), buffering, requests (for each connection), apart (a
    connection to the server for each request)."""

    def __init__(self, folder, upstream, options):
        self.folder, self.upstream, self.options = folder, upstream.removeprefix("http://"), options
        self.certificate = options.get("certificate", TLS / "server.pem")
        self.port = programs.free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.access, self.errors = folder / "access.log", folder / "error.log"
        # Cases share the folder.
        for log in (self.access, self.errors):
            log.unlink(missing_ok=True)

    def __enter__(self):
        (self.folder / "config").write_text(self.config())
        self.out = open(self.access, "a") if self.writes_to_output else subprocess.DEVNULL
        self.process = subprocess.Popen(self.command(), stdout=self.out, stderr=subprocess.STDOUT if self.writes_to_output else subprocess.DEVNULL)
        if programs.listens(self.process, self.port):
            return self
        self.__exit__()
        raise Wrong(f"{self.name} did not start: {shlex.join(map(str, self.command()))}")

    def __exit__(self, *_):
        programs.end(self.process, 10)
        if self.writes_to_output:
            self.out.close()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def requests(self, awaited):
        """What its log says of each request, once it has `awaited` of them: version, whether the session was resumed, ALPN, the connection."""
        until = time.monotonic() + LOG_S
        while True:
            lines = self.access.read_text(errors="replace").split("\n")[:-1]
            seen = [line.split()[1:] for line in lines if line.startswith("seen ")]
            if len(seen) >= awaited or time.monotonic() > until:
                return seen
            time.sleep(0.02)

    def complaints(self):
        """What it wrote of its own faults, the end of it."""
        errors = self.access if self.writes_to_output else self.errors
        lines = errors.read_text(errors="replace").splitlines() if errors.exists() else []
        return [line for line in lines if not line.startswith("seen ")][-5:]


class Nginx(Terminator):
    name, writes_to_output = "nginx", False

    def command(self):
        return ["nginx", "-c", self.folder / "config", "-p", self.folder, "-e", self.folder / "error.log"]

    def config(self):
        options = self.options
        asks = f"ssl_client_certificate {TLS / 'client-ca.pem'}; ssl_verify_client on;" if options.get("asks") else ""
        # One process, so that killing it is killing all.
        return f"""daemon off; master_process off; pid {self.folder}/nginx.pid; error_log {self.folder}/error.log;
events {{ worker_connections 512; }}
http {{
  log_format seen 'seen $ssl_protocol $ssl_session_reused $ssl_alpn_protocol $connection';
  access_log {self.access} seen;
  client_body_temp_path {self.folder}/a; proxy_temp_path {self.folder}/b; fastcgi_temp_path {self.folder}/c;
  uwsgi_temp_path {self.folder}/d; scgi_temp_path {self.folder}/e;
  upstream behind {{ server {self.upstream}; {"" if options.get("apart") else "keepalive 16;"} }}
  server {{
    listen 127.0.0.1:{self.port} ssl;
    ssl_certificate {self.certificate}; ssl_certificate_key {self.certificate.with_suffix(".key")}; {asks}
    ssl_protocols {options.get("version", "TLSv1.2 TLSv1.3")}; ssl_session_cache shared:cases:1m;
    keepalive_requests {options.get("requests", 1000)};
    location / {{
      proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering {"on" if options.get("buffering") else "off"};
    }}
  }}
}}
"""


class Haproxy(Terminator):
    name, writes_to_output = "haproxy", True

    def command(self):
        return ["haproxy", "-db", "-f", self.folder / "config"]

    def config(self):
        options = self.options
        pair = self.folder / "pair.pem"
        pair.write_text(self.certificate.read_text() + self.certificate.with_suffix(".key").read_text())
        version = options.get("version")
        versions = f"ssl-min-ver {version} ssl-max-ver {version}" if version else ""
        asks = f"ca-file {TLS / 'client-ca.pem'} verify required" if options.get("asks") else ""
        return f"""global
  log stdout format raw local0
  maxconn 512
defaults
  mode http
  log global
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend front
  bind 127.0.0.1:{self.port} ssl crt {pair} alpn http/1.1 {versions} {asks}
  log-format "seen %sslv %[ssl_fc_is_resumed,iif(r,.)] %[ssl_fc_alpn] %ci:%cp"
  default_backend behind
backend behind
  server one {self.upstream}
"""


class MockServer:
    """The built-in server, for the length of a `with`."""

    def __init__(self, tool):
        self.words = [tool, "mock-server", "--port", "0", "--ttft", "5", "--itl", "1"]

    def __enter__(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)


def start(tool, url, folder, flags, tokens=EVENTS):
    shutil.rmtree(folder, ignore_errors=True)
    words = [tool, "profile", "--model", "mock-model", "--url", url, "--tokenizer", "builtin", "--streaming", "--random-seed", "1",
             "--ui", "none", "--concurrency", "4", "--request-count", REQUESTS, "--isl", "16", "--osl", tokens,
             "--export-level", "raw", "--artifact-dir", folder, *flags]
    return subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def run(tool, url, folder, flags):
    return finish(start(tool, url, folder, flags), folder)


def finish(process, folder):
    """The errors of a run by type, each of whose requests must have a record; and how many events each request had."""
    told = process.communicate(timeout=60)[0]
    if not (folder / "profile_export.jsonl").exists():
        raise Wrong(f"no records: {told[-1000:]}")
    records = lines(folder / "profile_export.jsonl")
    if sorted(record["metadata"]["session_num"] for record in records) != list(range(REQUESTS)):
        raise Wrong(f"{len(records)} records of {REQUESTS} requests")
    events = {raw["metadata"]["x_request_id"]: len(raw["responses"]) for raw in lines(folder / "profile_export_raw.jsonl")}
    number = {record["metadata"]["x_request_id"]: record["metadata"]["session_num"] for record in records}
    types = collections.Counter((record["error"] or {}).get("type") for record in records if record.get("error"))
    return types, {number[name]: count for name, count in events.items()}


def holds(case, terminator, folder, expected):
    """One case: its flags, the error that all requests are to have or None, and what the terminator's log must say."""
    _, _, flags, error, says = case
    types, events = run(tool_of(folder), terminator.url, folder / "run", flags)
    if error is not None:
        if types != {error: REQUESTS}:
            raise Wrong(f"errors are {dict(types)}, not {REQUESTS} of {error}")
        return f"{REQUESTS} times {error}"
    if types:
        raise Wrong(f"errors: {dict(types)}")
    if events != expected:
        raise Wrong(f"other numbers of events than without TLS: {sum(events.values())} and {sum(expected.values())}")
    seen = terminator.requests(REQUESTS)
    if len(seen) != REQUESTS:
        raise Wrong(f"its log has {len(seen)} requests")
    versions, resumed, protocols, connections = (collections.Counter(column) for column in zip(*seen))
    if set(protocols) != {"http/1.1"}:
        raise Wrong(f"ALPN: {dict(protocols)}")
    if not says(versions, resumed, connections):
        raise Wrong(f"versions {dict(versions)}, resumed {dict(resumed)}, {len(connections)} connections")
    return f"{sum(events.values())} events, {' '.join(versions)}, {len(connections)} connections, {resumed['r']} requests on resumed sessions"


def tool_of(folder):
    return (folder / "tool").resolve()


def only(version):
    return lambda versions, _, connections: set(versions) == {version} and len(connections) == 4


def resumed(version):
    # Four connections begin before there is a session to resume.
    return lambda versions, resumed, connections: set(versions) == {version} and len(connections) == REQUESTS and resumed["r"] >= REQUESTS - 8


def anything(*_):
    return True


def cases(kind, folder):
    """Name, options of the terminator, flags of the client, the error of all requests, what the log must say."""
    alone = folder / "alone.pem"
    # nginx takes the connection and refuses the request; haproxy refuses the connection.
    missing = "Bad Request" if kind is Nginx else "TlsRefused"
    for version in ("TLSv1.2", "TLSv1.3"):
        yield version, {"version": version}, TRUST, None, only(version)
        yield f"{version}, a connection for each request", {"version": version}, [*TRUST, *NEVER], None, resumed(version)
        yield f"{version}, a client's certificate", {"version": version, "asks": True}, [*TRUST, *OWN], None, only(version)
        yield f"{version}, a client's certificate that is missing", {"version": version, "asks": True}, TRUST, missing, anything
    yield "unknown authority", {}, [], "TlsUnknownAuthority", anything
    yield "wrong name", {}, [*TRUST, "--tls-server-name", "other.test"], "TlsWrongName", anything
    yield "expired", {"certificate": TLS / "expired.pem"}, ["--cacert", TLS / "client-ca.pem"], "TlsExpired", anything
    yield "expired, --insecure", {"certificate": TLS / "expired.pem"}, ["--insecure"], None, anything
    yield "self-signed", {"certificate": alone}, TRUST, "TlsUnknownAuthority", anything
    yield "self-signed, --insecure", {"certificate": alone}, ["--insecure"], None, anything
    yield "self-signed, trusted by name", {"certificate": alone}, ["--cacert", alone], None, anything
    if kind is Nginx:
        yield "buffering", {"buffering": True}, TRUST, None, anything
        yield "5 requests for each connection", {"requests": 5}, TRUST, None, lambda _v, _r, connections: max(connections.values()) == 5


def killed(terminator, folder):
    """The terminator is killed in mid-run: connections end without close_notify, and in the middle of bodies."""
    flags = [*TRUST, "--request-rate", "20"]
    process = start(tool_of(folder), terminator.url, folder / "run", flags, 2000)
    time.sleep(1.2)
    terminator.kill()
    types, _ = finish(process, folder / "run")
    if sum(types.values()) != REQUESTS or not set(types) & {"ConnectRefused", "Truncated", "Reset", "TlsTruncated"}:
        raise Wrong(f"errors: {dict(types)}")
    return f"{REQUESTS} records: {', '.join(f'{name} {count}' for name, count in types.items())}"


def check(kind, folder, tool):
    """All cases of one terminator before the built-in server; the number that do not hold."""
    faults = 0
    with MockServer(tool) as server:
        _, expected = run(tool, server.url, folder / "run", [])
        for case in [*cases(kind, folder), ("killed in mid-run", {}, None, None, None)]:
            if attempt(kind, case, folder, server.url, expected, "UNSTEADY"):
                continue
            faults += not attempt(kind, case, folder, server.url, expected, "WRONG")
    return faults


def attempt(kind, case, folder, url, expected, otherwise):
    """Whether a case holds; when not, says so under the name `otherwise`, with what the terminator said."""
    terminator = kind(folder, url, case[1])
    try:
        with terminator:
            told = killed(terminator, folder) if case[2] is None else holds(case, terminator, folder, expected)
    except (Wrong, subprocess.TimeoutExpired, KeyError) as error:
        print(f"{otherwise}  {kind.name}, {case[0]}: {error!r}", *terminator.complaints(), sep="\n  ", flush=True)
        return False
    print(f"ok     {kind.name}, {case[0]}: {told}", flush=True)
    return True


def texts(folder):
    """What each request was answered, by its number: temperature 0 says the same each time."""
    numbers = {line["metadata"]["x_request_id"]: line["metadata"]["session_num"] for line in lines(folder / "profile_export.jsonl")}
    outputs = json.loads((folder / "outputs.json").read_text(encoding="utf-8"))["data"]
    return {numbers[entry["x_request_id"]]: entry["response_text"] for entry in outputs}


def check_real(kinds, folder, tool, work):
    """llama.cpp's server without TLS and behind each terminator says the same; the number of faults."""
    # What that script imports lies beside it.
    sys.path.insert(0, str(ROOT / "tests/real_server"))
    spec = importlib.util.spec_from_file_location("real_server", ROOT / "tests/real_server/run.py")
    real = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(real)
    try:
        python, model = real.install(work)
    except SystemExit:
        print("left out: llama.cpp's server", flush=True)
        return 0
    faults = 0
    with real.RealServer(python, model, work) as url:
        real.run(real.first([tool, "profile"], url, folder / "run"), folder / "run")
        plain = texts(folder / "run")
        for kind in kinds:
            # llama.cpp's server closes kept connections under nginx's next request, which nginx answers with 502.
            with kind(folder, url, {"apart": True}) as terminator:
                real.run(real.first([tool, "profile", *map(str, TRUST)], terminator.url, folder / "run"), folder / "run")
            differ = sum(text != plain.get(number) for number, text in texts(folder / "run").items())
            wrong = differ + real.check_lengths(folder / "run")
            print(f"{'WRONG' if wrong else 'ok   '}  {kind.name} before llama.cpp's server: {len(plain)} texts, {differ} differ", flush=True)
            faults += wrong
    return faults


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--tool", type=pathlib.Path, default=ROOT / "target/release/tokenring", help="the program")
    words.add_argument("--work", type=pathlib.Path, help="folder for llama.cpp's server, as tests/real_server/run.py makes it; without it that part is left out")
    asked = words.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kinds = [kind for kind in (Nginx, Haproxy) if shutil.which(kind.name)]
    if not kinds or not shutil.which("openssl"):
        print("skipped: nginx or haproxy, and openssl, are needed (apt-get install nginx haproxy openssl)")
        return SKIPPED
    for kind in {Nginx, Haproxy} - set(kinds):
        print(f"left out: {kind.name} is not installed")
    with tempfile.TemporaryDirectory(prefix="tokenring-terminators-") as name:
        folder = pathlib.Path(name)
        (folder / "tool").symlink_to(asked.tool.resolve())
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                        "/CN=alone", "-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=IP:127.0.0.1",
                        "-keyout", folder / "alone.key", "-out", folder / "alone.pem"], check=True, capture_output=True)
        faults = sum(check(kind, folder, asked.tool.resolve()) for kind in kinds)
        if asked.work:
            faults += check_real(kinds, folder, str(asked.tool.resolve()), asked.work.resolve())
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
