#!/usr/bin/env python3
"""Rates asked for and achieved, how late requests were sent, and the law of their arrivals at the server. See README.md."""
import math
import shutil

import records
import rig
import server_log

COLUMNS = (
    "tool", "pattern", "asked /s", "arrived /s", "off by", "drawn /s", "achieved /s", "off by", "lag p50", "lag p99", "lag max",
    "gaps: mean x asked", "gaps: deviation / mean", "gaps: distance from the law")


def commands(arguments, tool, pattern, rate, url, folder):
    """The command of one run. Both tools take the same flags."""
    own = ["--cpus", arguments.client_core] if tool == "tokenring" else []
    binary = arguments.binary if tool == "tokenring" else arguments.aiperf
    return [
        binary, "profile", "--model", "mock-model", "--url", url, "--tokenizer", arguments.tokenizer if own else arguments.aiperf_tokenizer,
        "--streaming", "--use-server-token-count", "--isl", 20, "--osl", 1, "--random-seed", 1, "--request-rate", f"{rate:g}",
        "--arrival-pattern", pattern, "--request-count", count(arguments, rate), "--num-dataset-entries", 20, "--warmup-request-count", 20,
        "--artifact-dir", folder / "client", "--ui", "none", *own]


def count(arguments, rate):
    return max(50, round(rate * arguments.seconds))


def gaps_of(arrivals):
    """Seconds between arrivals, which are nanoseconds in any order."""
    arrivals = sorted(arrivals)
    return [(later - earlier) / 1e9 for earlier, later in zip(arrivals, arrivals[1:])]


def distance(gaps, rate, pattern):
    """Kolmogorov-Smirnov distance of the gaps from the exponential law of the rate; of even gaps, which have no law but their mean, the mean
    distance from it in gaps."""
    if pattern == "constant":
        return sum(abs(gap * rate - 1) for gap in gaps) / len(gaps)
    ordered, size, worst = sorted(gaps), len(gaps), 0.0
    for place, gap in enumerate(ordered):
        law = 1 - math.exp(-gap * rate)
        worst = max(worst, law - place / size, (place + 1) / size - law)
    return worst


def law_of(gaps, rate, pattern):
    """Mean times the rate, deviation over the mean, distance from the law."""
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    return mean * rate, deviation / mean, distance(gaps, rate, pattern)


def measure(arguments, tool, pattern, rate, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with rig.Server(arguments.server_binary, arguments.server_core, folder, 2, 1, "spin") as server:
        words = commands(arguments, tool, pattern, rate, server.url, folder)
        rig.run(words, arguments.client_core, folder / "client.log", limit_s=120 + 4 * arguments.seconds)
    summary = records.summary(folder / "client")
    received = [request.received for request in server_log.read(server.log).requests.values() if request.received is not None]
    received = of_profiling(received, records.phases(folder / "client"))
    mean, spread, off = law_of(gaps_of(received), rate, pattern)
    lag = summary.get("schedule_lag") or {}
    value = lambda tag: (summary.get(tag) or {}).get("avg")
    return {
        "asked": rate, "arrived": arrived(received), "drawn": value("asked_request_rate"), "achieved": value("achieved_request_rate"),
        "lag_p50_ms": lag.get("p50"), "lag_p99_ms": lag.get("p99"), "lag_max_ms": lag.get("max"), "mean": mean, "spread": spread,
        "distance": off, "requests": len(received)}


def of_profiling(received, phases):
    """The arrivals that are of profiling. The warmup ends before profiling begins, so its arrivals, as many as it has records, are the
    first; what no record tells of is nobody's."""
    warmup = phases.get("warmup", 0)
    return sorted(received)[warmup:warmup + phases.get("profiling", 0)]


def arrived(received):
    """Arrivals a second, first to last; a tool's own word is not asked."""
    return 1e9 * (len(received) - 1) / (received[-1] - received[0])


def body(arguments, folder):
    results, lines = [], []
    for pattern in arguments.patterns:
        for rate in arguments.rates:
            tools = ["tokenring"] + (["AIPerf"] if arguments.aiperf and rate <= arguments.aiperf_most else [])
            for tool in tools:
                rig.say(f"{tool}, {pattern}, {rate:g}/s")
                runs = [measure(arguments, tool, pattern, rate, folder / "run") for _ in range(arguments.repeats)]
                results.append({"tool": tool, "pattern": pattern, "rate": rate, "runs": runs})
                lines.append(line(tool, pattern, rig.medians(runs)))
    print(f"{arguments.seconds:g} s a run; lag in microseconds; medians of {arguments.repeats}. {rig.machine()}.\n")
    print(rig.table(COLUMNS, lines))
    rig.write_json(arguments, "arrivals", {"rows": results})


def line(tool, pattern, middle):
    micro = lambda name: rig.shown(None if middle.get(name) is None else middle[name] * 1000)
    return [
        tool, pattern, rig.shown(middle["asked"]), rig.shown(middle["arrived"]), off_by(middle["arrived"], middle["asked"]),
        rig.shown(middle["drawn"]), rig.shown(middle["achieved"]), off_by(middle["achieved"], middle["drawn"]), micro("lag_p50_ms"),
        micro("lag_p99_ms"), micro("lag_max_ms"), rig.shown(middle["mean"], 4), rig.shown(middle["spread"], 3),
        rig.shown(middle["distance"], 3)]


def off_by(rate, aim):
    """A rate against another, in percent; a dash where a tool does not say one of them."""
    known = rate is not None and aim is not None and not math.isnan(rate) and not math.isnan(aim)
    return f"{(rate / aim - 1) * 100:+.3f} %" if known else "-"


def arguments():
    parser = rig.parser(__doc__)
    parser.add_argument("--patterns", nargs="+", choices=("constant", "poisson"), default=["constant", "poisson"], help="arrival patterns")
    parser.add_argument("--rates", nargs="+", type=float, default=[50, 500, 2000, 10000], help="requests per second")
    parser.add_argument("--seconds", type=float, default=5, help="length of a run")
    parser.add_argument("--tokenizer", default="builtin", help="tokenring's tokenizer")
    parser.add_argument("--aiperf", help="path of the aiperf program, to measure it as well")
    parser.add_argument("--aiperf-tokenizer", default="builtin", help="AIPerf's tokenizer")
    parser.add_argument("--aiperf-most", type=float, default=500, help="highest rate for AIPerf")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    rig.main(body, given)
