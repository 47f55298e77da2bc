#!/usr/bin/env python3
"""Does the client's memory stay where it is over a long load? See README.md."""
import json
import os
import pathlib
import subprocess
import sys
import time

import rig

SAMPLE_S = 10
# Part of the time after which memory is expected to rest: every stream has been through a reply, every list has its size.
WARM = 0.25
# What may be added after that: the numbers of the requests stand in a file (README, Memory).
SPARE_MIB = 4


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--minutes", type=float, default=20, help="length of the load")
    parser.add_argument("--events-per-second", type=float, default=30_000, help="over all streams")
    parser.add_argument("--streams", type=int, default=1_500, help="concurrent streams")
    parser.add_argument("--tokens", type=int, default=1_000, help="of each reply")
    sys.exit(rig.main(body, parser.parse_args()))


def body(arguments, folder):
    gap_ms = 1000 * arguments.streams / arguments.events_per_second
    seconds = arguments.minutes * 60
    server = rig.Server(arguments.server_binary, arguments.server_core, folder, gap_ms, gap_ms, spread=arguments.streams)
    # At 30,000 events a second a log of 20 minutes would be gigabytes.
    at = server.words.index("--log")
    del server.words[at:at + 2]
    with server:
        words = [
            arguments.binary, "profile", "--url", server.url, "--model", "mock-model", "--streaming", "--tokenizer", "builtin",
            "--concurrency", arguments.streams, "--concurrency-ramp-duration", max(1, arguments.tokens * gap_ms / 1000 / 2),
            "--benchmark-duration", seconds, "--benchmark-grace-period", 5, "--isl", 16, "--osl", arguments.tokens,
            "--num-prompts", 16, "--random-seed", 1, "--cpus", arguments.client_core, "--workers-max", 1, "--ui-type", "none",
            "--output-artifact-dir", folder / "artifacts"]
        samples, code = watch([str(word) for word in words], arguments, folder, seconds)
    if code:
        end = (folder / "client.txt").read_text(encoding="utf-8", errors="replace")[-2000:]
        raise rig.RigError(f"exit code {code} of the client; the end of what it said:\n{end}")
    return tell(arguments, folder, samples, seconds)


def watch(words, arguments, folder, seconds):
    """Runs the client; (seconds, resident KiB) every ten seconds while the load is on, and the exit code."""
    samples = []
    with open(folder / "client.txt", "w", encoding="utf-8") as text:
        process = subprocess.Popen(words, stdout=text, stderr=text, preexec_fn=rig.pin(arguments.client_core))
        begin = time.monotonic()
        try:
            while process.poll() is None:
                passed = time.monotonic() - begin
                if passed > seconds + 120:
                    raise rig.RigError("the client did not end in time")
                if SAMPLE_S * (len(samples) + 1) <= passed < seconds:
                    samples.append((passed, rig.tree_bytes(process.pid)[0] / 1024))
                    if len(samples) % 6 == 0:
                        rig.say(f"{passed:,.0f} s: {samples[-1][1] / 1024:,.1f} MiB")
                time.sleep(0.2)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    return samples, process.returncode


def tell(arguments, folder, samples, seconds):
    """The table, and whether memory rested."""
    summary = json.loads((folder / "artifacts" / "profile_export_aiperf.json").read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (folder / "artifacts" / "profile_export.jsonl").open(encoding="utf-8")]
    # What the end of the duration cuts is no failure.
    failed = sum(1 for line in lines if line.get("error") and line["error"].get("code") != 499)
    whole = sum(1 for line in lines if not line.get("error"))
    rest = [(at, kib) for at, kib in samples if at >= WARM * seconds]
    if len(rest) < 3:
        raise rig.RigError("too short for a slope: give it --minutes 2 or more")
    slope = slope_of(rest) * 60
    per_second = whole / seconds
    per_request = slope * 1024 / 60 / per_second if per_second else 0
    rows = [[
        rig.shown(seconds / 60, 0), rig.shown(arguments.streams, 0), rig.shown(events(lines) / seconds, 0), rig.shown(whole, 0),
        rig.shown(failed, 0), *[rig.shown(rest[min(len(rest) - 1, place)][1] / 1024) for place in (0, len(rest) // 2, len(rest) - 1)],
        rig.shown(slope), rig.shown(per_request, 0)]]
    columns = (
        "minutes", "streams", "events/s", "whole replies", "failed", "MiB after a quarter", "MiB in between", "MiB at the end",
        "slope, KiB/min", "bytes a reply")
    print(rig.table(columns, rows))
    print(f"\n{rig.machine()}; load average {os.getloadavg()[1]:.1f}")
    rig.write_json(arguments, "soak", {"samples": samples, "verdict": summary.get("client", {}).get("verdict")})
    grown_mib = (rest[-1][1] - rest[0][1]) / 1024
    return 1 if failed or grown_mib > SPARE_MIB else 0


def events(lines):
    """Content events of all replies, those that were cut as well, as far as records tell their tokens."""
    return sum((line["metrics"].get("output_sequence_length") or {}).get("value", 0) for line in lines if line.get("metrics"))


def slope_of(samples):
    """Kibibytes a second, by least squares."""
    count = len(samples)
    at, kib = sum(a for a, _ in samples) / count, sum(k for _, k in samples) / count
    return sum((a - at) * (k - kib) for a, k in samples) / sum((a - at) ** 2 for a, _ in samples)


if __name__ == "__main__":
    main()
