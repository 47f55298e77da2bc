#!/usr/bin/env python3
"""Do large replies over TLS delay the stamps of small streams? See README.md."""
import json
import math
import sys

import join
import nginx
import records
import rig

# Between two tokens of a small stream, and between two groups of large replies.
TOKEN_MS, GROUP_MS = 10, 200
LOADS = ("none", "http", "https")


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--small", type=int, default=50, help="small streams, of 100 tokens/s each")
    parser.add_argument("--at-once", type=int, default=8, help="large replies that are asked for at once, five times a second")
    parser.add_argument("--large-bytes", type=int, default=1 << 20, help="of a large reply")
    parser.add_argument("--seconds", type=float, default=10, help="of a run")
    parser.add_argument("--drivers", default="ring,portable", help="drivers")
    parser.set_defaults(repeats=3)
    arguments = parser.parse_args()
    sys.exit(rig.main(body, arguments))


def body(arguments, folder):
    rows, runs = [], []
    for driver in arguments.drivers.split(","):
        for load in LOADS:
            rig.say(f"{driver}, large replies: {load}")
            repeats = [measure(arguments, folder, driver, load) for _ in range(arguments.repeats)]
            runs += [{"driver": driver, "large": load, **run} for run in repeats]
            row = rig.medians(repeats)
            rows.append([
                driver, {"none": "none", "http": "plain", "https": "TLS"}[load], rig.shown(row["reads"], 0), rig.shown(row["large_mb_s"]),
                *[rig.shown(row[name]) for name in ("p50", "p90", "p99", "p999", "most")], rig.shown(row["bad"], 0)])
    columns = ("driver", "large replies", "reads of small streams", "large, MB/s", "p50, us", "p90, us", "p99, us", "p99.9, us", "max, us", "failed")
    print(rig.table(columns, rows))
    print(f"\n{rig.machine()}")
    rig.write_json(arguments, "decryption", {"runs": runs})
    return 1 if any(run["bad"] for run in runs) else 0


def measure(arguments, folder, driver, load):
    """One run. Of each two lines of the trace one goes to the small streams' server, and one to the large replies'."""
    trace, out = folder / "trace.jsonl", folder / "out"
    lines, most_ms = small_and_large(arguments, load)
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with rig.Server(arguments.server_binary, arguments.server_core, folder, TOKEN_MS, TOKEN_MS, spread=arguments.small) as server, \
            nginx.Nginx(arguments.server_core, folder, server.url, arguments.large_bytes) as front:
        urls = [front.url] if load == "none" else [front.url, front.large_urls[load]]
        words = [
            arguments.binary, "profile", "--model", "mock-model", *[word for url in urls for word in ("--url", url)], *nginx.TRUST,
            "--tokenizer", "builtin", "--streaming", "--random-seed", 1, "--input-file", trace, "--custom-dataset-type", "mooncake_trace",
            "--fixed-schedule", "--driver", driver, "--timestamp-source", "user", "--workers-max", 1, "--cpus", arguments.client_core,
            "--export-level", "raw", "--artifact-dir", out, "--ui", "none"]
        rig.run(words, arguments.client_core, folder / "client.txt", limit_s=60 + 3 * most_ms / 1000)
    delays, bad = [], 0
    for line in records.lines(out / records.RAW):
        if line["request_headers"]["Host"] == front.url.removeprefix("https://"):
            reads = [read for read in line["reads"] if read["kernel_perf_ns"] and read["user_perf_ns"]]
            delays += [(read["user_perf_ns"] - read["kernel_perf_ns"]) / 1000 for read in reads]
    for line in records.lines(out / records.RECORDS):
        bad += bool(line.get("error"))
    large = 0 if load == "none" else len(lines) // 2
    at = [join.percentile(delays, percent) for percent in (50, 90, 99, 99.9)]
    return {
        "reads": len(delays), "large_mb_s": large * arguments.large_bytes / 1e6 / arguments.seconds if large else math.nan,
        "p50": at[0], "p90": at[1], "p99": at[2], "p999": at[3], "most": max(delays), "bad": bad}


def small_and_large(arguments, load):
    """The trace: small streams all along, begun evenly over the first second, and groups of large replies beside them."""
    most_ms = int(1000 * arguments.seconds)
    tokens = most_ms // TOKEN_MS
    small = [{"timestamp": 1000 * n // arguments.small, "input_length": 16, "output_length": tokens} for n in range(arguments.small)]
    if load == "none":
        return small, most_ms
    large = [{"timestamp": at, "input_length": 16, "output_length": 1}
             for at in range(1500, most_ms, GROUP_MS) for _ in range(arguments.at_once)]
    return interleave(small, large), most_ms


def interleave(small, large):
    """All lines in the order of their times. URLs are dealt in turn, so that every second one goes to the large replies' server; where two
    of a kind follow each other, a line of one token stands between them."""
    lines = []
    for line in sorted(small + large, key=lambda line: line["timestamp"]):
        wanted = 0 if line["output_length"] > 1 else 1
        if len(lines) % 2 != wanted:
            lines.append({"timestamp": line["timestamp"], "input_length": 16, "output_length": 1})
        lines.append(line)
    return lines


if __name__ == "__main__":
    main()
