#!/usr/bin/env python3
"""What an event costs, step by step: instructions and nanoseconds. Prints one Markdown table.

    python3 benches/hot_path.py               # a minute or two
    python3 benches/hot_path.py --quick

The steps in memory (benches/hot_path) are timed by themselves, and run under valgrind twice with different sizes: the difference of the
instructions by the difference of the events is what one costs, whatever else the machine does. Receiving and stamping needs a kernel: there
tokenring is run against its own server, and what the same work costs in memory is taken off its worker's time. valgrind cannot run a ring,
so that step has no instructions. Linux, Python 3.9 or later, its standard library only. Load goes to 127.0.0.1 only.
"""
import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys

import floor

STEPS = ["scan", "peer-scan", "engine", "interpret", "peer-parse", "record"]
READS = [1, 60]


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--quick", action="store_true", help="fewer repeats, and no run on the ring")
    words.add_argument("--client-cpu", type=int, default=0)
    words.add_argument("--server-cpu", type=int, default=1)
    asked = words.parse_args()
    bench = floor.build("--bench", "hot_path")
    replies = 20 if asked.quick else 60
    valgrind = shutil.which("valgrind")
    if not valgrind:
        print("valgrind is not installed, so the instructions are left out", file=sys.stderr)
    floor.print_machine(asked)
    print("\n| | events a read | instructions | ns, median [least-most] |\n|---|---|---|---|")
    measured = times(bench)
    for events in READS:
        for step in STEPS:
            label, nanos = measured[(step, events)]
            print(f"| {label} | {events} | {instructions(valgrind, bench, step, events, replies)} | {nanos} |", flush=True)
    if not asked.quick:
        for load in floor.LOADS:
            receive(asked, load, measured)


def times(bench):
    """(label, time) of each step, in the order of the bench's own table."""
    table = subprocess.run([bench, "--bench"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    places = [(step, events) for events in READS for step in STEPS]
    return {place: (row[0], f"{row[2]} [{row[3].replace(' - ', '-')}]") for place, row in zip(places, rows, strict=True)}


def instructions(valgrind, bench, step, events, replies):
    if not valgrind:
        return "-"
    (few, short), (many, long) = count(valgrind, bench, step, events, replies), count(valgrind, bench, step, events, 2 * replies)
    return f"{(long - short) / (many - few):,.0f}"


def count(valgrind, bench, step, events, replies):
    """Events of one piece of work, and the instructions that it took with its start and end."""
    command = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", bench, "--only", step, str(events), str(replies)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = re.search(r"Collected : (\d+)", ended.stderr)
    if ended.returncode or not found:
        sys.exit(f"valgrind failed:\n{ended.stderr}")
    return json.loads(ended.stdout)["events"], int(found.group(1))


def receive(asked, load, measured):
    """The step that needs a kernel: the worker's time less the engine's."""
    streams, tokens, pace, title = floor.LOADS[load]
    tool = floor.build("--bin", "tokenring")
    server, url = floor.start_server(tool, pace, asked.server_cpu)
    try:
        runs = [floor.run_tool(tool, url, streams, tokens, [], asked.client_cpu) for _ in range(3)]
    finally:
        server.terminate()
        server.wait()
    events = 1 if load == "single" else 60
    engine = float(measured[("engine", events)][1].split()[0])
    rest = [run["worker_ns"] - engine for run in runs]
    user = statistics.median(run["user_ns"] for run in runs) - engine
    kernel = statistics.median(run["system_ns"] for run in runs)
    print(f"| receive and stamp on the ring ({title}): kernel {kernel:,.0f}, user space {user:,.0f} | {events} | - | "
          f"{statistics.median(rest):,.0f} [{min(rest):,.0f}-{max(rest):,.0f}] |")


if __name__ == "__main__":
    main()
