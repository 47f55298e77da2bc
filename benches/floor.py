#!/usr/bin/env python3
"""Hold tokenring against the floor: a plain epoll loop that receives the same load and throws the bytes away at once.

One built-in server on one core; on another, by turns in one run, the floor (benches/floor.rs) and `tokenring profile` in its modes. Prints
Markdown tables of processor time per event. Linux, Python 3.9 or later, its standard library only. Load goes to 127.0.0.1 only.

    python3 benches/floor.py                  # both loads, 7 rounds, some minutes
    python3 benches/floor.py --load single --rounds 3

The ratio in a row is the median of the ratios within each round, so that a machine that changes its speed between rounds does little harm.
"""
import argparse
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUMMARY = "profile_export_aiperf.json"
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

# What goes over the wire: streams, output tokens of each, what the server is told. About 300,000 events in the first.
LOADS = {
    "single": (1_000, 300, ["--ttft", "50", "--itl", "20"], "1,000 streams x 50 tokens/s, one event a read"),
    "coalesced": (100, 6_000, ["--ttft", "50", "--itl", "1", "--events-per-write", "60"],
                  "100 streams x 1,000 tokens/s, 60 events a write"),
}
# Flags of each mode, and the flag without which it cannot run.
MODES = {
    "batched": ("ring, default windows", [], None),
    "unbatched": ("ring, no windows", ["--reap-window-us", "0"], "--reap-window-us"),
}
# (load, mode, column) and the most that is allowed: times the floor, or nanoseconds.
LIMITS = {
    ("single", "batched", "worker_ratio"): 0.75,
    ("single", "unbatched", "worker_ratio"): 1.15,
    ("single", "batched", "process_ratio"): 1.0,
    ("single", "batched", "user_ns"): 600,
    ("coalesced", "batched", "worker_ns"): 250,
}


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--rounds", type=int, default=7)
    words.add_argument("--load", choices=LOADS, help="only this one")
    words.add_argument("--tool", type=pathlib.Path, help="tokenring; built by cargo when not given")
    words.add_argument("--floor", type=pathlib.Path, help="the floor's program; built by cargo when not given")
    words.add_argument("--client-cpu", type=int, default=0)
    words.add_argument("--server-cpu", type=int, default=1)
    words.add_argument("--scale", type=float, default=1.0, help="multiplies the length of each reply, for a quick look")
    words.add_argument("--json", type=pathlib.Path, help="write every single run here as well")
    asked = words.parse_args()
    allowed = os.sched_getaffinity(0)
    if not {asked.client_cpu, asked.server_cpu} <= allowed or asked.client_cpu == asked.server_cpu:
        sys.exit(f"--client-cpu and --server-cpu must be two cores of {sorted(allowed)}")
    tool = asked.tool or build("--bin", "tokenring")
    floor = asked.floor or build("--bench", "floor")
    print_machine(asked)
    modes = known_modes(tool)
    everything = []
    for load in [asked.load] if asked.load else LOADS:
        everything += measure(asked, load, modes, tool, floor)
    if asked.json:
        asked.json.write_text(json.dumps(everything, indent=1))


def build(kind, name):
    """The release build of one target, by what cargo says of it."""
    command = ["cargo", "build", "--release", "--message-format", "json-render-diagnostics", kind, name]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    for line in lines:
        built = json.loads(line)
        if built.get("reason") == "compiler-artifact" and built["target"]["name"] == name and built.get("executable"):
            return pathlib.Path(built["executable"])
    sys.exit(f"cargo built no {name}")


def known_modes(tool):
    """Modes whose flag this build of the tool knows."""
    text = subprocess.run([tool, "profile", "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    modes = {}
    for name, (label, flags, needed) in MODES.items():
        if needed and needed not in text:
            print(f"\n{label}: left out, since this tokenring has no {needed}")
        else:
            modes[name] = (label, flags)
    return modes


def measure(asked, load, modes, tool, floor):
    streams, tokens, pace, title = LOADS[load]
    tokens = max(60, int(tokens * asked.scale))
    server, url = start_server(tool, pace, asked.server_cpu)
    runs = []
    try:
        for round_number in range(asked.rounds):
            runs.append(("floor", round_number, run_floor(floor, url, streams, tokens, asked.client_cpu)))
            for mode, (_, flags) in modes.items():
                runs.append((mode, round_number, run_tool(tool, url, streams, tokens, flags, asked.client_cpu)))
            print(f"{load}: round {round_number + 1} of {asked.rounds} is over", file=sys.stderr)
    finally:
        server.terminate()
        server.wait()
    print_table(load, f"{title}; {streams * tokens:,} events, {asked.rounds} rounds", modes, runs)
    return [{"load": load, "mode": mode, "round": number, **run} for mode, number, run in runs]


def start_server(tool, pace, cpu):
    """The built-in server on its core, and its URL."""
    command = [tool, "mock-server", "--port", "0", "--cpus", str(cpu), "--threads", "1", *pace]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = []
    for line in server.stdout:
        found = re.search(r"http://[0-9.]+:[0-9]+", line)
        if found:
            return server, found.group()
        said.append(line)
    sys.exit(f"the server did not start:\n{''.join(said)}")


def run_floor(program, url, streams, tokens, cpu):
    command = [program, "--url", url, "--streams", str(streams), "--osl", str(tokens), "--cpu", str(cpu)]
    output, process_ns, _ = run(command, cpu)
    line = json.loads(output)
    events = line["events"]
    return {
        "worker_ns": line["cpu_ns"] / events, "process_ns": process_ns / events, "events_per_read": events / line["reads"],
        **split(line["cpu_ns"] / events, line["user_ns"], line["system_ns"]),
    }


def run_tool(tool, url, streams, tokens, flags, cpu):
    with tempfile.TemporaryDirectory() as folder:
        # The tokenizer that starts soonest; the one called builtin takes a quarter of a second longer.
        command = [tool, "profile", "--url", url, "--model", "mock-model", "--tokenizer", "gpt2", "--streaming",
                   "--concurrency", str(streams), "--request-count", str(streams), "--isl", "128", "--osl", str(tokens),
                   "--cpus", str(cpu), "--random-seed", "1", "--ui-type", "none", "--output-artifact-dir", folder, *flags]
        output, process_ns, times = run(command, cpu)
        summary = json.loads((pathlib.Path(folder) / SUMMARY).read_text())
        records = (pathlib.Path(folder) / "profile_export.jsonl").read_text().count("\n")
    if summary["request_count"]["avg"] != streams or records != streams:
        sys.exit(f"not every request succeeded:\n{output}")
    events = streams * tokens
    user, system, ran = times["worker-0"]
    # The worker's own word on its time is exact; the last look at it is up to a twentieth of a second old.
    said = [worker["cpu_time_ns"] for worker in (summary.get("client_health") or {}).get("workers", [])]
    worker_ns = (sum(said) if said and None not in said else ran) / events
    return {
        "worker_ns": worker_ns, "process_ns": process_ns / events, "rest_ns": process_ns / events - worker_ns,
        "shared": summary["client"]["coalesced_count"] / events, "facts": summary["client"]["facts"],
        **split(worker_ns, user, system),
    }


def run(command, cpu):
    """Runs it on one core. What it printed, its processor time, and the last seen times of its threads by name: in user space, in the
    kernel (both by samples), together."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
    times = {}
    # What it prints fits into the pipe, so that it never waits for us.
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        look_at_threads(process.pid, times)
        time.sleep(0.05)
    output = process.stdout.read()
    process.stdout.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{output}")
    return output, (usage.ru_utime + usage.ru_stime) * 1e9, times


def look_at_threads(pid, times):
    try:
        for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
            name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            # The state is field 3, user time 14, system time 15 (proc(5)).
            ran = int((thread / "schedstat").read_text().split()[0])
            times[name] = (int(fields[11]) * TICK_NS, int(fields[12]) * TICK_NS, ran)
    except (OSError, IndexError):
        pass  # it has just ended


def split(whole, user, system):
    """User and system part of `whole` in the proportion of two sampled times."""
    part = user / (user + system) if user + system else float("nan")
    return {"user_ns": whole * part, "system_ns": whole * (1 - part)}


def print_machine(asked):
    cpu = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    print(f"\n{cpu.group(1) if cpu else platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}; "
          f"server on core {asked.server_cpu}, client on core {asked.client_cpu}; load average before: {os.getloadavg()[0]:.1f}")


def print_table(load, title, modes, runs):
    print(f"\n{title}. CPU time in ns an event, medians; ratios to the floor of the same round, median [least-most].\n")
    print("| | thread | of the floor | user part | kernel part | whole process | of the floor | rest of the process | shared reads |")
    print("|---|---|---|---|---|---|---|---|---|")
    floors = {number: run for mode, number, run in runs if mode == "floor"}
    verdicts = []
    for name, label in {"floor": "floor: epoll, discard", **{name: label for name, (label, _) in modes.items()}}.items():
        own = {number: run for mode, number, run in runs if mode == name}
        middle = {key: statistics.median(run[key] for run in own.values())
                  for key in next(iter(own.values())) if key != "facts"}
        cells = {key: f"{value:,.0f}" for key, value in middle.items()}
        for column in ["worker", "process"]:
            ratios = [run[f"{column}_ns"] / floors[number][f"{column}_ns"] for number, run in own.items()]
            middle[f"{column}_ratio"] = statistics.median(ratios)
            cells[f"{column}_ratio"] = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]" if name != "floor" else "1"
        shared = f"{middle['shared']:.2%}" if "shared" in middle else f"{middle['events_per_read']:.2f} events a read"
        print(f"| {label} | {cells['worker_ns']} | {cells['worker_ratio']} | {cells['user_ns']} | {cells['system_ns']} | "
              f"{cells['process_ns']} | {cells['process_ratio']} | {cells.get('rest_ns', '-')} | {shared} |")
        for (of_load, mode, column), most in LIMITS.items():
            if (of_load, mode) == (load, name):
                held = "held" if middle[column] <= most else "MISSED"
                verdicts.append(f"- {label}, {column.replace('_', ' ')}: {middle[column]:.2f}, at most {most}: {held}")
    print("\n" + "\n".join(verdicts))


if __name__ == "__main__":
    main()
