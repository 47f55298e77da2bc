#!/usr/bin/env python3
"""What many concurrent streams cost the client: memory and descriptors at 1, 1,000, 10,000 and 20,000 of them. See README.md."""
import json
import math
import os
import pathlib
import resource
import subprocess
import sys
import threading
import time
import urllib.request

import nginx
import rig

# Of a process, beside a descriptor for each stream.
BESIDE = 100
# What a stream may take beside its text, and what its TLS may take.
BOUND_KIB, TLS_KIB = 16, 8
SAMPLE_S = 0.5
# A process of nginx may open two descriptors for each stream.
NGINX_PROCESSES = 2
# Samples between two counts of descriptors, which take their time.
COUNT_EVERY = 4


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 1_000, 10_000, 20_000], help="numbers of concurrent streams")
    parser.add_argument("--tokens", type=int, default=20, help="of each reply")
    parser.add_argument("--rate", type=float, default=2, help="tokens a second of each stream")
    parser.add_argument("--rounds", type=int, default=2, help="requests of each stream, one after the other")
    parser.add_argument("--together", type=float, help="tokens a second of all streams together, and as many tokens in all, whatever their number; --rounds is that of the most streams")
    parser.add_argument("--connects", type=float, default=2_500, help="streams begun a second at the start")
    parser.add_argument("--tls", action="store_true", help="over TLS, which nginx takes off on the server's core")
    parser.add_argument("--flags", default="", help="further flags of the client, in one word")
    parser.set_defaults(repeats=1)
    arguments = parser.parse_args()
    sys.exit(rig.main(body, arguments))


def body(arguments, folder):
    rows, runs, base, failed = [], [], None, False
    rounds = arguments.rounds
    for streams in arguments.streams:
        if arguments.together:
            arguments.rate = arguments.together / streams
            arguments.rounds = max(1, round(rounds * max(arguments.streams) / streams))
        repeats = [measure(arguments, folder, streams) for _ in range(arguments.repeats)]
        runs += repeats
        row = rig.medians(repeats)
        base = row["peak_kib"] / row["processes"] if base is None else base
        more = row["peak_kib"] - base * row["processes"]
        kib = more / streams - row["text_kib"] if streams > 1 else math.nan
        rig.say(f"  {row['peak_kib'] / 1024:,.1f} MiB, {row['descriptors']:,} descriptors, {row['bad']} failed or lost, {row['wall_s']:.0f} s")
        failed = failed or row["bad"] > 0 or kib > BOUND_KIB + (TLS_KIB if arguments.tls else 0)
        rows.append([
            rig.shown(streams, 0), rig.shown(row["processes"], 0), rig.shown(row["requests"], 0), rig.shown(row["bad"], 0),
            rig.shown(row["peak_kib"] / 1024), rig.shown(row["text_kib"]), rig.shown(kib), rig.shown(row["descriptors"], 0),
            rig.shown(row["kernel_kib"] / streams if streams > 1 else math.nan), rig.shown(100 * row["cpu"], 0), rig.shown(row["event_us"]),
            rig.shown(row["lag_ms"], 2)])
    columns = (
        "streams", "processes", "requests", "failed or lost", "most memory, MiB", "text of a stream, KiB", "a stream beside it, KiB",
        "descriptors", "kernel, both ends, KiB a stream", "core, %", "core an event, us", "client lag p99, ms")
    print(rig.table(columns, rows))
    print(f"\n{rig.machine()}")
    rig.write_json(arguments, "streams", {"runs": runs})
    return 1 if failed else 0


def measure(arguments, folder, streams):
    """One run. Streams are dealt over as few processes as may open so many files; all share the client's core."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    processes = math.ceil(streams / max(1, most - BESIDE))
    rig.say(f"{streams:,} streams in {processes} process{'es' if processes > 1 else ''}")
    shares = [streams // processes + (index < streams % processes) for index in range(processes)]
    gap_ms = 1000 / arguments.rate
    servers, fronts, clients, before = [], [], [], kernel_kib()
    try:
        for share in shares:
            servers.append(Server(arguments, gap_ms, share).__enter__())
            if arguments.tls:
                front = nginx.Nginx(arguments.server_core, folder / f"front-{len(fronts)}", servers[-1].url, processes=NGINX_PROCESSES)
                fronts.append(front.__enter__())
        text_kib = len(reply(servers[0].url, arguments.tokens)) / 1024
        for index, (share, server) in enumerate(zip(shares, fronts or servers)):
            clients.append(Client(arguments, folder / f"streams-{index}", share, server.url, streams))
        watch(clients, arguments)
        lag = 0.0
        for client in clients:
            client.read()
            lag = max(lag, client.lag_ms)
    finally:
        for client in clients:
            client.end()
        for server in [*fronts, *servers]:
            server.__exit__()
    peak = {name: max(sum(sample) for sample in zip(*[getattr(client, name) for client in clients])) for name in ("memory", "files")}
    return {
        "streams": streams, "processes": processes, "requests": sum(client.requests for client in clients),
        "bad": sum(client.bad for client in clients), "peak_kib": peak["memory"], "descriptors": peak["files"], "text_kib": text_kib,
        "kernel_kib": max(clients[0].kernel) - before, "cpu": sum(client.cpu_s for client in clients) / max(c.wall_s for c in clients),
        "event_us": 1e6 * sum(client.cpu_s for client in clients) / (streams * arguments.rounds * arguments.tokens), "lag_ms": lag,
        "wall_s": max(client.wall_s for client in clients)}


class Server(rig.Server):
    """The rig's server without a log, which would cost it a core at 40,000 events a second."""

    def __init__(self, arguments, gap_ms, share):
        self.core = arguments.server_core
        self.words = [
            arguments.server_binary, "mock-server", "--port", 0, "--cpus", self.core, "--ttft", gap_ms, "--itl", gap_ms,
            "--spread", max(1, share)]

    def __exit__(self, *_):
        super().__exit__()


def reply(url, tokens):
    """The body of one reply: what a stream's text is."""
    content = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": tokens}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(content).encode(), {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as answer:
        return answer.read()


class Client:
    """One process of the tool, and what was seen of it."""

    def __init__(self, arguments, out, share, url, streams):
        self.out, self.planned = out, share * arguments.rounds
        out.mkdir(parents=True, exist_ok=True)
        words = [
            arguments.binary, "profile", "--url", url, "--model", "mock-model", "--streaming", "--tokenizer", "builtin",
            "--concurrency", share, "--request-count", self.planned, "--isl", 16, "--osl", arguments.tokens,
            "--num-prompts", 16, "--random-seed", 1, "--cpus", arguments.client_core, "--workers-max", 1, "--ui-type", "none",
            "--output-artifact-dir", out / "artifacts", *(nginx.TRUST if arguments.tls else []), *arguments.flags.split()]
        if streams > 1:
            words += ["--concurrency-ramp-duration", max(1, streams / arguments.connects)]
        self.memory, self.files, self.kernel = [], [], []
        self.begin, self.code = time.monotonic(), None
        self.text = open(out / "client.txt", "w", encoding="utf-8")
        self.process = subprocess.Popen(
            [str(word) for word in words], stdout=self.text, stderr=self.text, preexec_fn=rig.pin(arguments.client_core))

    def look(self, count):
        """One sample: peak memory so far, and now and then open descriptors."""
        pid = self.process.pid
        if self.code is None:
            gone, status, usage = os.wait4(pid, os.WNOHANG)
            if gone:
                self.code = self.process.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_s, self.wall_s = usage.ru_utime + usage.ru_stime, time.monotonic() - self.begin
        try:
            status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
            fields = dict(line.split(":", 1) for line in status.splitlines() if line.startswith("VmHWM:"))
            memory = rig.kibibytes(fields.get("VmHWM"))
            files = len(os.listdir(f"/proc/{pid}/fd")) if count else 0
        except OSError:
            memory = files = 0
        self.memory.append(max([memory, *self.memory[-1:]]))
        self.files.append(max([files, *self.files[-1:]]))
        self.kernel.append(kernel_kib() if count else 0)

    def read(self):
        """What its files say."""
        if self.code:
            end = (self.out / "client.txt").read_text(encoding="utf-8", errors="replace")[-2000:]
            raise rig.RigError(f"exit code {self.code} of a client; the end of what it said:\n{end}")
        summary = json.loads((self.out / "artifacts" / "profile_export_aiperf.json").read_text(encoding="utf-8"))
        self.lag_ms = (summary.get("client_lag") or {}).get("p99", math.nan)
        self.requests, good = 0, 0
        with (self.out / "artifacts" / "profile_export.jsonl").open(encoding="utf-8") as lines:
            for line in lines:
                self.requests += 1
                good += not json.loads(line).get("error")
        self.bad = self.planned - good

    def end(self):
        if self.code is None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.text.close()


def watch(clients, arguments):
    """Samples all clients until they have ended; raises RigError when they take too long."""
    replies_s = arguments.rounds * (arguments.tokens + 1) / arguments.rate
    deadline = time.monotonic() + 60 + 3 * (replies_s + max(arguments.streams) / arguments.connects)

    def work():
        # Scheduling classes are a thread's own: the watcher must not take the core from what it watches.
        if hasattr(os, "SCHED_IDLE"):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        number = 0
        while any(client.code is None for client in clients) and time.monotonic() < deadline:
            for client in clients:
                client.look(number % COUNT_EVERY == 0)
            number += 1
            time.sleep(SAMPLE_S)

    watcher = threading.Thread(target=work)
    watcher.start()
    watcher.join()
    if any(client.code is None for client in clients):
        raise rig.RigError("a client did not end in time")


def kernel_kib():
    """What the kernel holds: objects it cannot give back, and bytes in sockets, of both ends."""
    lines = pathlib.Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    objects = sum(int(line.split()[1]) for line in lines if line.startswith("SUnreclaim:"))
    words = pathlib.Path("/proc/net/sockstat").read_text(encoding="utf-8").split()
    return objects + 4 * int(words[words.index("mem") + 1])


if __name__ == "__main__":
    main()
