#!/usr/bin/env python3
"""Client and server as two hosts: two network namespaces joined by a pair of virtual interfaces. See README.md."""
import argparse
import collections
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "benches"))
import join  # noqa: E402
import programs  # noqa: E402
import records  # noqa: E402
import server_log  # noqa: E402

SKIPPED = 77
PREFIX = "tokenring"
# Addresses that are set aside for examples (RFC 5737, RFC 3849); they exist in the namespaces alone.
CLIENT4, SERVER4, CLIENT6, SERVER6 = "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"
TTFT_MS, ITL_MS = 20, 5


class Wrong(Exception):
    """A case that does not hold, as a sentence."""


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


class Hosts:
    """Both namespaces, for the length of a `with`. Whatever happens inside, they are gone after it."""

    def __init__(self):
        number = os.getpid()
        self.client, self.server = f"{PREFIX}-{number}-client", f"{PREFIX}-{number}-server"
        # At most 15 letters.
        self.ends = {self.client: f"tr{number}c", self.server: f"tr{number}s"}

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.remove()
            raise
        return self

    def make(self):
        for name in self.ends:
            ip("netns", "add", name)
        first, second = self.ends.values()
        ip("link", "add", first, "netns", self.client, "type", "veth", "peer", "name", second, "netns", self.server)
        for name in self.ends:
            ip("-n", name, "link", "set", "lo", "up")
        self.join()

    def join(self, mtu=1500):
        """Addresses, and both ends up. What an end forgot when it went down, or when its MTU was too small for IPv6, it has again."""
        addresses = {self.client: (CLIENT4, CLIENT6), self.server: (SERVER4, SERVER6)}
        for name, end in self.ends.items():
            # Without segments joined on the way, a packet is what it would be on a wire.
            ip("-n", name, "link", "set", end, "mtu", str(mtu), "gso_max_segs", "1", "up")
            four, six = addresses[name]
            ip("-n", name, "address", "replace", f"{four}/24", "dev", end)
            if mtu >= 1280:
                ip("-n", name, "address", "replace", f"{six}/64", "dev", end, "nodad")

    def turn(self, name, state):
        ip("-n", name, "link", "set", self.ends[name], state)

    def received(self, name):
        """Bytes and packets that the end in namespace `name` has received."""
        shown = json.loads(ip("-n", name, "-s", "-j", "link", "show", self.ends[name]).stdout)[0]["stats64"]["rx"]
        return shown["bytes"], shown["packets"]

    def remove(self):
        for name in self.ends:
            # With a namespace goes its end of the pair, and with an end the other one.
            ip("netns", "delete", name, check=False)

    def __exit__(self, *_):
        self.remove()


def remove_forgotten():
    """Namespaces of a run that was killed before it could remove them."""
    for name in re.findall(rf"^{PREFIX}-\d+-\w+", ip("netns", "list", check=False).stdout, re.M):
        if not pathlib.Path("/proc", name.split("-")[1]).exists():
            ip("netns", "delete", name, check=False)


class Server:
    """The built-in server in a namespace, for the length of a `with`; its log is whole after it."""

    def __init__(self, tool, place, host, folder, flags=()):
        self.log = folder / "server.log"
        self.words = ["ip", "netns", "exec", place, tool, "mock-server", "--host", host, "--ttft", str(TTFT_MS), "--itl", str(ITL_MS), "--log", self.log, *flags]

    def __enter__(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        if not self.url.startswith("http://"):
            raise Wrong(f"the server did not start: {self.url!r}")
        return self

    def __exit__(self, *_):
        programs.end(self.process, 20)


def profile(tool, place, url, folder, flags):
    """One run of the client; the records of its files, by line."""
    shutil.rmtree(folder, ignore_errors=True)
    words = ["ip", "netns", "exec", place, tool, "profile", "--model", "mock-model", "--url", url, "--tokenizer", "builtin",
             "--streaming", "--random-seed", "1", "--ui", "none", "--export-level", "raw", "--artifact-dir", folder, *flags]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90)
    path = folder / records.RECORDS
    if not path.exists():
        raise Wrong(f"no records, exit code {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
    return [line for line in records.lines(path) if records.profiling(line["metadata"])]


def accounted(lines, folder, asked):
    """Each request asked for has one record, and the summary says the same."""
    numbers = sorted(line["metadata"]["session_num"] for line in lines)
    if numbers != list(range(asked)):
        raise Wrong(f"{len(numbers)} records of {asked} requests")
    summary = records.summary(folder)
    good, bad = (int((summary.get(tag) or {}).get("avg", 0)) for tag in ("request_count", "error_request_count"))
    failed = [line["error"] for line in lines if line.get("error")]
    if (good, bad) != (asked - len(failed), len(failed)):
        raise Wrong(f"the summary says {good} and {bad} of {asked}, the records {len(failed)} failed")
    return failed


def events_whole(log, folder):
    """All that the server sent is in the records; the two laid beside each other."""
    joined = join.join(server_log.read(log), records.read(folder))
    if joined.lost or joined.unknown or joined.unmatched or joined.unrecorded:
        raise Wrong(f"{joined.lost} events lost, {joined.unknown} unknown, {joined.unmatched} records and {joined.unrecorded} requests alone")
    return joined


def plain(rig, host, driver, mtu=None, prompt=32):
    """All succeeds; every event is there."""
    rig.hosts.join(mtu or 1500)
    before = rig.hosts.received(rig.hosts.server)
    with Server(rig.server_tool, rig.hosts.server, host, rig.fresh()) as server:
        lines = profile(rig.tool, rig.hosts.client, server.url, rig.folder / "run",
                        ["--driver", driver, "--concurrency", "8", "--request-count", "120", "--isl", str(prompt), "--osl", "16"])
        failed = accounted(lines, rig.folder / "run", 120)
    if failed:
        raise Wrong(f"{len(failed)} errors, such as {failed[0]}")
    joined = events_whole(server.log, rig.folder / "run")
    told = f"120 requests, {joined.events:,} events"
    if mtu:
        taken, packets = (after - was for after, was in zip(rig.hosts.received(rig.hosts.server), before))
        if taken / packets > mtu + 14:
            raise Wrong(f"{taken / packets:,.0f} bytes a packet at the server with an MTU of {mtu}")
        told += f", {taken / packets:,.0f} bytes a packet at the server"
    return told


def outage(rig, host, side, down_s, flags, asked, survives):
    """The interface of one side goes down in mid-run and comes up again."""
    rig.hosts.join()
    with Server(rig.server_tool, rig.hosts.server, host, rig.fresh()) as server:
        up_at = []

        def turn():
            time.sleep(1.5)
            rig.hosts.turn(side, "down")
            time.sleep(down_s)
            rig.hosts.join()
            up_at.append(time.time_ns())

        turning = threading.Thread(target=turn)
        turning.start()
        try:
            lines = profile(rig.tool, rig.hosts.client, server.url, rig.folder / "run", [*flags, "--isl", "32", "--osl", "64"])
        finally:
            turning.join()
    failed = accounted(lines, rig.folder / "run", asked)
    if survives:
        if failed:
            raise Wrong(f"{len(failed)} errors, such as {failed[0]}")
        events_whole(server.log, rig.folder / "run")
        longest = max(line["metrics"]["request_latency"]["value"] for line in lines)
        usual = TTFT_MS + 63 * ITL_MS
        if longest < usual + down_s * 500:
            raise Wrong(f"no request was in flight when the interface went down: the longest took {longest:.0f} ms")
        return f"{asked} requests, none failed; the longest took {longest:,.0f} ms instead of {usual}"
    kinds = collections.Counter(error["type"] for error in failed)
    later = [line for line in lines if line["metadata"]["request_start_ns"] > up_at[0] + 1_500_000_000]
    if not failed or not later or any(line.get("error") for line in later):
        raise Wrong(f"{len(failed)} errors ({dict(kinds)}), {len(later)} requests began well after the outage")
    return f"{asked} requests, {len(failed)} failed ({', '.join(f'{kind} {count}' for kind, count in kinds.items())}); all {len(later)} after it succeeded"


def stamps(rig):
    """The error of the client's stamps, across the pair and on loopback: the stamp less the server's log of the send."""
    rig.hosts.join()
    rows, cores = [], sorted(os.sched_getaffinity(0))
    here, there = str(cores[0]), str(cores[-1])
    for name, place, host in (("two hosts", rig.hosts.client, SERVER4), ("loopback", rig.hosts.server, "127.0.0.1")):
        with Server(rig.server_tool, rig.hosts.server, host, rig.fresh(), ["--cpus", there]) as server:
            flags = ["--cpus", here, "--concurrency", "10", "--request-count", "60", "--isl", "32", "--osl", "100"]
            lines = profile(rig.tool, place, server.url, rig.folder / "run", flags)
            accounted(lines, rig.folder / "run", 60)
        found = events_whole(server.log, rig.folder / "run").errors
        # A read that brought several events has one stamp, the newest one's.
        errors = [row[1] / 1000 for row in found if not row[2]]
        rows.append((name, len(found), len(found) - len(errors), *(join.percentile(errors, percent) for percent in (50, 99, 99.9, 100))))
    print("\n| stamp error, us | events | in shared reads | p50 | p99 | p99.9 | max |\n|---|---|---|---|---|---|---|")
    for name, count, shared, *values in rows:
        print(f"| {name} | {count:,} | {shared:,} | " + " | ".join(f"{value:,.1f}" for value in values) + " |")
    print(flush=True)
    return "see above"


class Rig:
    def __init__(self, tool, server_tool, hosts, folder):
        self.tool, self.server_tool, self.hosts, self.folder = tool, server_tool, hosts, folder

    def fresh(self):
        """The folder, without an earlier case's log."""
        (self.folder / "server.log").unlink(missing_ok=True)
        return self.folder


def cases(rig):
    client, server = rig.hosts.client, rig.hosts.server
    for driver in ("ring", "portable"):
        yield f"IPv4, {driver}", lambda driver=driver: plain(rig, SERVER4, driver)
        yield f"IPv6, {driver}", lambda driver=driver: plain(rig, SERVER6, driver)
    yield "IPv4, MTU 576, prompts of 2,000 tokens", lambda: plain(rig, SERVER4, "auto", 576, 2000)
    yield "IPv6, MTU 1280 (its least), prompts of 2,000 tokens", lambda: plain(rig, SERVER6, "auto", 1280, 2000)
    brief = ["--concurrency", "4", "--request-count", "60"]
    yield "IPv4, the client's interface down for 0.6 s", lambda: outage(rig, SERVER4, client, 0.6, brief, 60, True)
    yield "IPv6, the server's interface down for 0.6 s", lambda: outage(rig, SERVER6, server, 0.6, brief, 60, True)
    long = ["--request-rate", "20", "--arrival-pattern", "constant", "--request-count", "160", "--request-timeout-seconds", "1"]
    yield "IPv4, the server's interface down for 3 s, a limit of 1 s", lambda: outage(rig, SERVER4, server, 3, long, 160, False)
    yield "IPv4, the client's interface down for 3 s, a limit of 1 s", lambda: outage(rig, SERVER4, client, 3, long, 160, False)
    yield "stamps", lambda: stamps(rig)


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--tool", type=pathlib.Path, default=HERE.parent.parent / "target/release/tokenring", help="the program")
    words.add_argument("--server-tool", type=pathlib.Path, help="the program whose built-in server is used, if it is another build")
    words.add_argument("--only", default="", help="cases with this in their name")
    asked = words.parse_args()
    # An end by `timeout` or Ctrl-C goes through `finally` too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip"):
        print("skipped: network namespaces need Linux, root and the program ip (iproute2)")
        return SKIPPED
    remove_forgotten()
    faults = 0
    try:
        hosts = Hosts().__enter__()
    except subprocess.CalledProcessError as error:
        print(f"skipped: `{shlex.join(error.cmd)}`: {error.stderr.strip()}")
        return SKIPPED
    try:
        with tempfile.TemporaryDirectory(prefix="tokenring-hosts-") as folder:
            for name, case in cases(Rig(asked.tool.resolve(), (asked.server_tool or asked.tool).resolve(), hosts, pathlib.Path(folder))):
                if asked.only not in name:
                    continue
                try:
                    print(f"ok     {name}: {case()}", flush=True)
                except (Wrong, subprocess.TimeoutExpired, server_log.LogError, records.RecordError) as error:
                    faults += 1
                    print(f"WRONG  {name}: {error}", flush=True)
    finally:
        hosts.remove()
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
