"""The rig that all scripts here use: the built-in server on one core, a client on another, and what the client cost.

In: a binary of tokenring, cores, commands. Out: a server with its log; processor time, memory and wall time of a process tree; tables.
Never: load to anywhere but 127.0.0.1; an end to a process that was not started here.
"""
import argparse
import json
import math
import os
import pathlib
import platform
import resource
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import join
import records
import server_log

SAMPLE_S = 0.2
# Seconds that a run may take when nothing else is said.
LIMIT_S = 120


class RigError(Exception):
    """Something that ends a script, as a sentence for its user."""


def parser(description):
    """A command line with the flags that every script has."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    default = pathlib.Path(__file__).resolve().parent.parent / "target" / "release" / "tokenring"
    made.add_argument("--binary", type=pathlib.Path, default=default, help="the program")
    made.add_argument("--server-binary", type=pathlib.Path, help="the program whose built-in server is used, if it is to be another build")
    made.add_argument("--client-core", type=int, default=0, help="core of the client, all of its threads and processes")
    made.add_argument("--server-core", type=int, default=1, help="core of the server")
    made.add_argument("--repeats", type=int, default=5, help="runs of each row; medians are shown")
    made.add_argument("--json", type=pathlib.Path, help="also write all numbers of all runs to this file")
    made.add_argument("--keep", type=pathlib.Path, help="keep logs and records in this folder rather than in a passing one")
    return made


def main(body, arguments):
    """Runs a script's body in a folder; prints an error as a sentence."""
    try:
        check(arguments)
        # A thousand streams are a thousand descriptors on either side; children inherit the limit.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        if arguments.keep:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            return body(arguments, arguments.keep)
        with tempfile.TemporaryDirectory(prefix="tokenring-bench-") as folder:
            return body(arguments, pathlib.Path(folder))
    except (RigError, server_log.LogError, records.RecordError) as error:
        sys.exit(f"error: {error}")


def check(arguments):
    arguments.server_binary = arguments.server_binary or arguments.binary
    for flag in ("binary", "server_binary"):
        path = getattr(arguments, flag)
        if not os.access(path, os.X_OK):
            raise RigError(f"--{flag.replace('_', '-')} {path} is no program; build it with `cargo build --release` or name another")
        setattr(arguments, flag, path.resolve())
    allowed = os.sched_getaffinity(0)
    for flag in ("client_core", "server_core"):
        core = getattr(arguments, flag)
        if core not in allowed:
            raise RigError(f"--{flag.replace('_', '-')} {core} is not among the cores of this process: {sorted(allowed)}")
    if arguments.repeats < 1:
        raise RigError(f"--repeats {arguments.repeats}: must be at least 1")
    if arguments.client_core == arguments.server_core:
        say("client and server share a core: what is measured then is their struggle for it")


def say(text):
    """For the eye while it runs; tables alone go to standard output."""
    print(text, file=sys.stderr, flush=True)


def flags_of(binary, command):
    """The flags that a command of this build has, from its help."""
    done = subprocess.run([binary, command, "--help"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RigError(f"`{binary} {command} --help` ended with exit code {done.returncode}: {done.stderr.strip()[:300]}")
    return {word.strip("[],.()") for word in done.stdout.split() if word.strip("[],.()").startswith("--")}


class Server:
    """`tokenring mock-server` on a core of its own, for the length of a `with`; the log is whole after it."""

    def __init__(self, binary, core, folder, ttft_ms, itl_ms, pace=None, spread=None):
        self.log = pathlib.Path(folder) / "server.log"
        self.log.unlink(missing_ok=True)
        self.words = [binary, "mock-server", "--port", "0", "--cpus", core, "--ttft", ttft_ms, "--itl", f"{itl_ms:.6f}", "--log", self.log]
        self.core = core
        known = flags_of(binary, "mock-server")
        for flag, value in (("--pace", pace), ("--spread", spread)):
            if value is not None and flag in known:
                self.words += [flag, value]

    def __enter__(self):
        words = [str(word) for word in self.words]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=pin(self.core))
        line = self.process.stdout.readline()
        self.url = next((word for word in line.split() if word.startswith("http://127.0.0.1:")), None)
        if self.url is None:
            self.process.kill()
            raise RigError(f"the server did not say where it listens: {line!r}; command: {shlex.join(words)}")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise RigError("the server did not end within 30 s of SIGTERM, so its log is not whole") from None
        finally:
            self.process.stdout.close()


def pin(core):
    """What a child does before it becomes the program; its own children inherit it."""
    return lambda: os.sched_setaffinity(0, {core})


class Cost:
    """What a process and all of its descendants took."""

    def __init__(self):
        self.cpu_s = self.wall_s = 0.0
        # Most at any sample: the sum over the tree, in which pages that processes share count for each of them; or the most that one
        # process ever held, if that is more. The kernel's `ru_maxrss` will not do: it begins with what this script holds when it forks.
        self.peak_bytes = 0
        self.code = None
        self.timed_out = False


def run(words, core, output, environment=None, limit_s=LIMIT_S):
    """Runs a command pinned to a core, its text into the file `output`; raises RigError when it fails. The processor time is what
    the kernel accounts to it and to all children that it waited for."""
    words, cost, outcome = [str(word) for word in words], Cost(), []
    with open(output, "w", encoding="utf-8") as text:
        begin = time.monotonic()
        process = subprocess.Popen(
            words, stdout=text, stderr=text, stdin=subprocess.DEVNULL, env=environment, start_new_session=True, preexec_fn=pin(core))
        # Scheduling classes are a thread's own: the watcher must not take the core from what it watches.
        watcher = threading.Thread(target=lambda: outcome.append(watch(process, cost, begin + limit_s)))
        watcher.start()
        try:
            watcher.join()
        except KeyboardInterrupt:
            end_session(process.pid)
            watcher.join()
            raise
    cost.wall_s = time.monotonic() - begin
    cost.code = process.returncode = outcome[0]
    if cost.code:
        end = pathlib.Path(output).read_text(encoding="utf-8", errors="replace")[-2000:]
        fate = f"no end within {limit_s:g} s" if cost.timed_out else f"exit code {cost.code}"
        raise RigError(f"{fate} of `{shlex.join(words)}`; the end of what it said:\n{end}")
    return cost


def watch(process, cost, deadline):
    """Waits for the end of a process and samples its tree's memory meanwhile; its exit code."""
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    due = time.monotonic() + SAMPLE_S
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            cost.cpu_s = usage.ru_utime + usage.ru_stime
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            end_session(process.pid)
            deadline, cost.timed_out = math.inf, True
        if time.monotonic() >= due:
            cost.peak_bytes = max(cost.peak_bytes, *tree_bytes(process.pid))
            due += SAMPLE_S
        time.sleep(0.02)


def end_session(pid):
    """Ends a command with its children: they are a session of their own, which it leads."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def tree_bytes(root):
    """Resident memory of a process and its descendants: their sum now, and the most that one of them ever had."""
    total, most, waiting = 0, 0, [root]
    while waiting:
        pid = waiting.pop()
        try:
            status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
            fields = dict(line.split(":", 1) for line in status.splitlines() if line.startswith(("VmRSS:", "VmHWM:")))
            total += kibibytes(fields.get("VmRSS")) * 1024
            most = max(most, kibibytes(fields.get("VmHWM")) * 1024)
            for task in os.listdir(f"/proc/{pid}/task"):
                waiting += map(int, pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split())
        except OSError:
            # It has ended meanwhile.
            continue
    return total, most


def kibibytes(text):
    """`  1234 kB`; a process that has ended and waits for its parent has none."""
    return int(text.split()[0]) if text else 0


def median(values):
    """Of those that are numbers; NaN of none."""
    numbers = [value for value in values if value is not None and not math.isnan(value)]
    return statistics.median(numbers) if numbers else math.nan


def medians(runs):
    """The median of each number over several runs, which are dictionaries with the same keys."""
    return {key: median([run[key] for run in runs]) for key in runs[0] if isinstance(runs[0][key], (int, float)) or runs[0][key] is None}


def shown(value, digits=1):
    """A number for a table; a dash for none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:,.{digits}f}" if digits else f"{round(value):,}"


def table(columns, rows):
    """A Markdown table; every row has as many cells as there are columns."""
    texts = [list(columns), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[place]) for row in texts) for place in range(len(columns))]
    drawn = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in texts]
    return "\n".join([drawn[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *drawn[1:]])


def machine():
    """What the numbers belong to."""
    cpu = platform.processor() or platform.machine()
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    except OSError:
        pass
    return f"{cpu}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def write_json(arguments, title, content):
    """All numbers of all runs, with what they belong to."""
    if arguments.json:
        whole = {"title": title, "machine": machine(), "command": shlex.join(sys.argv), **content}
        arguments.json.write_text(json.dumps(whole, indent=1, default=str) + "\n", encoding="utf-8")
        say(f"numbers of all runs: {arguments.json}")


def lateness_us(log, gap_ns, span=None, percents=(50, 99)):
    """The server's own lateness at some percentiles, over the events that it sent within the span."""
    begin, end = span or (0, math.inf)
    late = [
        value for request in log.requests.values()
        for sent, value in zip(request.sent, request.lateness(gap_ns)) if begin <= sent <= end]
    return [join.percentile(late, percent) / 1000 for percent in percents]
