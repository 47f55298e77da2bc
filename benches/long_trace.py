#!/usr/bin/env python3
"""What a long trace costs when it is loaded, and when it is streamed: memory and time before the first request. See README.md."""
import gzip
import re
import resource
import shutil
import subprocess
import sys
import time

import rig

def write_trace(path, lines, per_second, turns):
    """A mooncake trace of short prompts in order of time; with several turns, 100 sessions at a time have one line each in turn."""
    def line(number):
        block, at = divmod(number, 100 * turns)
        session = f'"session_id": "{block * 100 + at % 100}", ' if turns > 1 else ""
        return f'{{"timestamp": {number * 1000 // per_second}, {session}"input_length": {16 + number % 9}, "output_length": 1}}\n'
    with open(path, "w", encoding="ascii") as file:
        for begin in range(0, lines, 100_000):
            file.write("".join(line(number) for number in range(begin, min(begin + 100_000, lines))))


def pack(trace):
    packed = trace.with_name(trace.name + ".gz")
    with open(trace, "rb") as text, gzip.open(packed, "wb", compresslevel=1) as file:
        shutil.copyfileobj(text, file, 1 << 20)
    trace.unlink()
    return packed


def run(arguments, trace, way, end_ms, url, folder):
    """One replay of the first `end_ms` of a trace. Memory is VmHWM of the process, looked at often, as its end forgets it."""
    words = [
        arguments.binary, "profile", "--model", "mock-model", "--url", url, "--tokenizer", "gpt2", "--streaming", "--random-seed", 1,
        "--input-file", trace, "--custom-dataset-type", "mooncake_trace", "--fixed-schedule",
        *(["--benchmark-duration", end_ms / 1000] if arguments.all_wait else ["--fixed-schedule-end-offset", end_ms]),
        "--stream-input", way, "--artifact-dir", folder / way, "--ui", "none", "--export-level", "summary", "--cpus", arguments.client_core]
    begun = time.monotonic()
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    most = 0
    try:
        while process.poll() is None:
            most = max(most, high_water(process.pid))
            if time.monotonic() - begun > arguments.limit_s:
                raise rig.RigError(f"--stream-input {way} took more than {arguments.limit_s} s; give more --limit-s or fewer --lines")
            time.sleep(0.02)
    finally:
        if process.poll() is None:
            process.kill()
    said = process.stdout.read()
    if process.returncode:
        raise rig.RigError(f"--stream-input {way} ended with exit code {process.returncode}: {said[-500:]}")
    wall = time.monotonic() - begun
    late = re.search(r"Bodies made during the run\W+([\d]+), (\d+) of them", said)
    return {"most_kib": most, "wall_s": wall, "late": late and int(late[2])}


def high_water(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


def body(arguments, folder):
    trace = folder / "trace.jsonl"
    rig.say(f"writing {arguments.lines} lines")
    write_trace(trace, arguments.lines, arguments.per_second, arguments.turns)
    print(f"A trace of {arguments.lines:,} lines, {trace.stat().st_size >> 20} MiB, {arguments.turns} in each session, "
          f"of which {arguments.seconds:g} s are replayed.\n")
    if arguments.packed:
        trace = pack(trace)
        print(f"It is packed to {trace.stat().st_size >> 20} MiB.\n")
    print("| way | most memory, MiB | before and after the load, s | bodies not ready in time |\n|---|---|---|---|")
    with rig.Server(arguments.server_binary, arguments.server_core, folder, 2, 1) as server:
        for way in arguments.ways.split(","):
            found = run(arguments, trace, way, int(arguments.seconds * 1000), server.url, folder)
            rest = found["wall_s"] - arguments.seconds
            late = "-" if found["late"] is None else found["late"]
            print(f"| {'streamed' if way == 'always' else 'loaded'} | {found['most_kib'] >> 10} | {rest:.1f} | {late} |", flush=True)
    trace.unlink()
    return 0


if __name__ == "__main__":
    made = rig.parser(__doc__)
    made.add_argument("--lines", type=int, default=10_000_000, help="lines of the trace")
    made.add_argument("--per-second", type=int, default=200, help="its requests per second")
    made.add_argument("--seconds", type=float, default=20, help="how much of it is replayed")
    made.add_argument("--all-wait", action="store_true", help="leave nothing out: all lines wait for their time, and the run ends before most of them")
    made.add_argument("--turns", type=int, default=1, help="lines of each session")
    made.add_argument("--packed", action="store_true", help="pack it with gzip")
    made.add_argument("--limit-s", type=float, default=900, help="the longest that one run may take")
    made.add_argument("--ways", default="always,never", help="which ways: always is streamed, never is loaded")
    arguments = made.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(rig.main(body, arguments))
