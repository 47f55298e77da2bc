#!/usr/bin/env python3
"""The same work for tokenring and other load tools, against one server that logs what it sends. See README.md."""
import dataclasses
import json
import pathlib
import shutil
import sys
import tempfile
import typing

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "tests" / "peers")]

import aiperf_side_by_side as side  # noqa: E402
import join  # noqa: E402
import records  # noqa: E402
import rig  # noqa: E402
import server_log  # noqa: E402

COLUMNS = (
    "tool", "TTFT mean: reported", "server's", "error", "TTFT p99: reported", "server's", "error", "ITL sd: reported", "server's",
    "ITL p99: reported", "server's", "ITL max: reported", "server's", "CPU ns per token",
    "beyond start-up", "peak MiB", "wall s", "server late p99")
JOINED_COLUMNS = (
    "tool", "requests", "TTFT error p50", "p99", "max", "events", "stamp error p50", "p99", "p99.9", "max", "events lost")


@dataclasses.dataclass
class Scenario:
    """Load that is the same for all tools."""

    streams: int
    tokens: int
    itl_ms: float
    ttft_ms: float
    requests: int
    # Requests per second; None is a closed loop of `streams`.
    rate: typing.Optional[float]

    def name(self):
        start = "closed loop" if self.rate is None else f"{self.rate:.1f} requests/s"
        beat = f"{self.tokens} tokens every {self.itl_ms:g} ms after {self.ttft_ms:g} ms"
        return f"{self.streams:,} streams of {beat}, {self.requests:,} requests, {start}"


class Tool:
    """A load tool: its command, and what its files say. Times are in milliseconds."""

    # Whether its files hold every request with the server's number of it.
    has_records = False
    most_streams = 1_000_000
    environment = None

    def command(self, url, folder, scenario, level):
        """The words of a command; `level` is `records` or `raw` for tools that can choose."""
        raise NotImplementedError

    def reported(self, folder):
        """What it says: ttft_mean, ttft_p99, itl_sd, itl_p99, itl_max and requests."""
        raise NotImplementedError


class Profiler(Tool):
    """tokenring and AIPerf: same flags, same files."""

    has_records = True

    def __init__(self, name, program):
        self.name, self.program = name, program

    def command(self, url, folder, scenario, level):
        load = ["--concurrency", scenario.streams]
        if scenario.rate:
            load = ["--request-rate", f"{scenario.rate:.6f}", "--arrival-pattern", "constant"]
        return [
            self.program, "profile", "--model", "gpt2", "--url", url, "--endpoint-type", "chat", "--streaming", "--tokenizer", "gpt2",
            # Neither has to count tokens of the replies by itself, which would cost AIPerf most.
            "--use-server-token-count", "--no-gpu-telemetry", "--no-server-metrics", "--isl", 20, "--osl", scenario.tokens,
            "--extra-inputs", "ignore_eos:true", "--random-seed", 1, "--request-count", scenario.requests, *load,
            "--export-level", level, "--ui", "none", "--artifact-dir", folder]

    def reported(self, folder):
        summary = records.summary(folder)
        first, gap = summary["time_to_first_token"], summary["inter_chunk_latency"]
        return {
            "ttft_mean": first["avg"], "ttft_p99": first["p99"], "itl_sd": gap["std"], "itl_p99": gap["p99"], "itl_max": gap["max"],
            "requests": round(summary["request_count"]["avg"])}


class Aiperf(Profiler):
    def __init__(self, program, work, most_streams):
        super().__init__("AIPerf", program)
        self.environment, self.most_streams = side.environment(work), most_streams


class VllmBench(Tool):
    """https://github.com/vllm-project/vllm-bench"""

    name = "vllm-bench"

    def __init__(self, program, tokenizer):
        self.program, self.tokenizer = program, tokenizer

    def command(self, url, folder, scenario, _level):
        load = ["--max-concurrency", scenario.streams]
        if scenario.rate:
            # Gaps are drawn from a gamma distribution of this shape; so high a one makes them equal.
            load = ["--request-rate", f"{scenario.rate:.6f}", "--burstiness", 1_000_000]
        folder.mkdir(parents=True, exist_ok=True)
        return [
            self.program, "--backend", "openai-chat", "--base-url", url, "--model", "gpt2", "--tokenizer", self.tokenizer,
            "--dataset-name", "random", "--random-input-len", 20, "--random-output-len", scenario.tokens, "--ignore-eos", "--seed", 1,
            "--num-prompts", scenario.requests, *load, "--percentile-metrics", "ttft,itl", "--metric-percentiles", "99", "--disable-tqdm",
            "--save-result", "--save-detailed", "--result-dir", folder, "--result-filename", "result.json"]

    def reported(self, folder):
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        gaps = [gap * 1000 for gaps in result.get("itls", []) for gap in gaps]
        return {
            "ttft_mean": result["mean_ttft_ms"], "ttft_p99": result["p99_ttft_ms"], "itl_sd": result["std_itl_ms"],
            "itl_p99": result["p99_itl_ms"], "itl_max": max(gaps, default=None), "requests": result["completed"]}


def served(log, scenario):
    """What the server did, in the same words; the time to the first token is its plan where the log does not say when it received."""
    firsts = [request.time_to_first() for request in log.requests.values()]
    known = bool(firsts) and None not in firsts
    firsts = [first / 1e6 for first in firsts] if known else [scenario.ttft_ms]
    gaps = [(after - before) / 1e6 for request in log.requests.values() for before, after in zip(request.sent, request.sent[1:])]
    return {
        "ttft_mean": join.mean(firsts), "ttft_p99": join.percentile(firsts, 99), "ttft_known": known, "itl_sd": join.deviation(gaps),
        "itl_p99": join.percentile(gaps, 99), "itl_max": max(gaps, default=None), "requests": len(log.requests),
        "tokens": log.event_count()}


def measure(arguments, tool, scenario, folder, level):
    """One run: what the tool says, what the server's log says, what it cost."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with rig.Server(arguments.server_binary, arguments.server_core, folder, scenario.ttft_ms, scenario.itl_ms, "spin") as server:
        words = tool.command(server.url, folder / "out", scenario, level)
        cost = rig.run(words, arguments.client_core, folder / "tool.log", tool.environment, arguments.limit)
    log = server_log.read(server.log)
    return tool.reported(folder / "out"), log, cost


def start_up(arguments, tool, scenario, folder):
    """Processor seconds of a run with one request of two tokens: what a tool spends however little it does."""
    rig.say(f"start-up of {tool.name}")
    least = dataclasses.replace(scenario, streams=1, requests=1, tokens=2, rate=None)
    return measure(arguments, tool, least, folder / f"{tool.name}-start", "records")[2].cpu_s


def numbers(reported, log, cost, scenario, start_cpu_s):
    """One run for the first table."""
    truth = served(log, scenario)
    values = {f"reported_{key}": value for key, value in reported.items()} | {f"server_{key}": value for key, value in truth.items()}
    late = rig.lateness_us(log, round(scenario.itl_ms * 1e6))
    return values | {
        "ttft_mean_error": reported["ttft_mean"] - truth["ttft_mean"], "ttft_p99_error": reported["ttft_p99"] - truth["ttft_p99"],
        "cpu_ns_per_token": cost.cpu_s * 1e9 / max(1, truth["tokens"]), "cpu_s": cost.cpu_s, "start_cpu_s": start_cpu_s,
        "cpu_ns_per_token_beyond_start": (cost.cpu_s - start_cpu_s) * 1e9 / max(1, truth["tokens"]), "peak_mib": cost.peak_bytes / 2**20,
        "wall_s": cost.wall_s, "server_late_p50_us": late[0], "server_late_p99_us": late[1]}


def joined_numbers(folder, log):
    """One raw run for the second table: each request's reported TTFT against the log's, and each event's stamp against its send."""
    taken = records.read(folder)
    joined = join.join(log, taken)
    reported = records.values(folder, "time_to_first_token")
    firsts = []
    for record in taken:
        request = log.requests.get(record.number)
        truth = request.time_to_first() if request else None
        if truth is not None and record.name in reported:
            firsts.append(reported[record.name] - truth / 1e6)
    errors = [error / 1e6 for _, error, _ in joined.errors]
    return {
        "requests": len(firsts), **{f"ttft_error_p{percent:g}": join.percentile(firsts, percent) for percent in (0, 50, 99, 100)},
        "events": len(errors), **{f"stamp_error_p{percent:g}": join.percentile(errors, percent) for percent in (0, 50, 99, 99.9, 100)},
        "lost": joined.lost, "unknown": joined.unknown, "unmatched": joined.unmatched, "shared": joined.shared}


def line(name, runs):
    middle = rig.medians(runs)
    cells = [name]
    for key in ("ttft_mean", "ttft_p99"):
        cells += [rig.shown(middle[f"reported_{key}"], 2), rig.shown(middle[f"server_{key}"], 2), rig.shown(middle[f"{key}_error"], 2)]
    for key in ("itl_sd", "itl_p99", "itl_max"):
        cells += [rig.shown(middle.get(f"reported_{key}"), 3), rig.shown(middle.get(f"server_{key}"), 3)]
    return cells + [
        rig.shown(middle["cpu_ns_per_token"], 0), rig.shown(middle["cpu_ns_per_token_beyond_start"], 0),
        rig.shown(middle["peak_mib"], 0), rig.shown(middle["wall_s"]), f"{rig.shown(middle['server_late_p99_us'])} us"]


def joined_line(name, runs):
    middle = rig.medians(runs)
    return [
        name, rig.shown(middle["requests"], 0), *(rig.shown(middle[f"ttft_error_p{percent}"], 3) for percent in (50, 99, 100)),
        rig.shown(middle["events"], 0), *(rig.shown(middle[f"stamp_error_p{percent:g}"], 3) for percent in (50, 99, 99.9, 100)),
        rig.shown(sum(run["lost"] for run in runs), 0)]


def compare(arguments, scenario, tools, folder):
    """All runs of one scenario, and its tables."""
    plain, exact = {}, {}
    start_cpu_s = {tool.name: start_up(arguments, tool, scenario, folder) for tool in tools}
    for repetition in range(arguments.repeats):
        for tool in tools:
            rig.say(f"run {repetition + 1} of {arguments.repeats}: {tool.name}, {scenario.name()}")
            result = numbers(*measure(arguments, tool, scenario, folder / tool.name, "records"), scenario, start_cpu_s[tool.name])
            off = f"TTFT mean off by {result['ttft_mean_error']:.3f} ms"
            rig.say(f"  {off}, ITL sd {result['reported_itl_sd']:.3f} ms, {result['wall_s']:.1f} s")
            plain.setdefault(tool.name, []).append(result)
    for repetition in range(arguments.joined_runs):
        for tool in (tool for tool in tools if tool.has_records):
            rig.say(f"run {repetition + 1} of {arguments.joined_runs} with raw records: {tool.name}")
            place = folder / f"{tool.name}-raw"
            _, log, _ = measure(arguments, tool, scenario, place, "raw")
            exact.setdefault(tool.name, []).append(joined_numbers(place / "out", log))
    print(f"\n{scenario.name()}. Milliseconds unless said otherwise; medians of {arguments.repeats}. {rig.machine()}.\n")
    print(rig.table(COLUMNS, [line(name, runs) for name, runs in plain.items()]))
    if exact:
        print(f"\nRequest by request and event by event, from raw records ({arguments.joined_runs} runs); milliseconds.\n")
        print(rig.table(JOINED_COLUMNS, [joined_line(name, runs) for name, runs in exact.items()]))
    for text in notes(plain, scenario):
        print(f"\nNote: {text}.")
    return {"scenario": dataclasses.asdict(scenario), "runs": plain, "raw_runs": exact}


def notes(plain, scenario):
    for name, runs in plain.items():
        if not all(run["server_ttft_known"] for run in runs):
            yield f"{name}: the log does not say when requests were received; the server's TTFT is the planned {scenario.ttft_ms:g} ms"
        if any(run["server_requests"] != scenario.requests or run["reported_requests"] != scenario.requests for run in runs):
            counts = {(run["server_requests"], run["reported_requests"]) for run in runs}
            yield f"{name}: (requests of the log, requests reported) were {sorted(counts)}, planned {scenario.requests}"


def scenarios(arguments):
    made = []
    for text in arguments.loads:
        try:
            streams, tokens, itl_ms = text.split("x")
            streams, tokens, itl_ms = int(streams), int(tokens), float(itl_ms)
            assert streams > 0 and tokens > 1 and itl_ms > 0
        except (ValueError, AssertionError):
            raise rig.RigError(f"--loads {text}: must be STREAMSxTOKENSxMILLISECONDS, such as 100x100x10, with at least 2 tokens") from None
        reply_s = (arguments.ttft + (tokens - 1) * itl_ms) / 1000
        rate = join.spread_rate(streams, reply_s, itl_ms / 1000) if arguments.start == "rate" else None
        made.append(Scenario(streams, tokens, itl_ms, arguments.ttft, round(arguments.rounds * streams), rate))
    return made


def tools(arguments, work):
    made = [Profiler("tokenring", arguments.binary)]
    if arguments.vllm_bench:
        side.install_tokenizer(work)
        made.append(VllmBench(executable(arguments.vllm_bench, "--vllm-bench"), work / "hub" / "models--gpt2" / "snapshots" / ("0" * 40)))
    aiperf = arguments.aiperf
    if arguments.install_aiperf and not aiperf:
        side.install_aiperf(work)
        aiperf = work / "venv" / "bin" / "aiperf"
    if aiperf:
        side.install_tokenizer(work)
        made.append(Aiperf(executable(aiperf, "--aiperf"), work, arguments.aiperf_streams_max))
    return made


def executable(path, flag):
    if not shutil.which(path):
        raise rig.RigError(f"{flag} {path}: is no program")
    # Not resolved: the environment of a Python program is found by where it is called.
    return pathlib.Path(path).absolute()


def body(arguments, folder):
    work = arguments.work or pathlib.Path(tempfile.gettempdir()) / "tokenring-peers"
    work.mkdir(parents=True, exist_ok=True)
    plan, found, results = scenarios(arguments), tools(arguments, work), []
    for scenario in plan:
        able = [tool for tool in found if scenario.streams <= tool.most_streams]
        for tool in found:
            if tool not in able:
                rig.say(f"left out: {tool.name} at {scenario.streams} streams; raise --aiperf-streams-max to run it")
        results.append(compare(arguments, scenario, able, folder))
        rig.write_json(arguments, "peers", {"scenarios": results})


def arguments():
    parser = rig.parser(__doc__)
    parser.add_argument(
        "--loads", nargs="+", default=["100x100x10", "1000x100x20"], help="streams x tokens of a reply x milliseconds between them")
    parser.add_argument("--ttft", type=float, default=50, help="milliseconds until the server's first token")
    parser.add_argument("--rounds", type=float, default=5, help="requests for each stream")
    parser.add_argument(
        "--start", choices=("rate", "closed"), default="rate", help="evenly at a constant rate, or a closed loop that begins with all at once")
    parser.add_argument("--joined-runs", type=int, default=1, help="further runs with raw records, for errors request by request")
    parser.add_argument("--vllm-bench", metavar="PATH", help="vllm-bench's program")
    parser.add_argument("--aiperf", metavar="PATH", help="AIPerf's program")
    parser.add_argument("--install-aiperf", action="store_true", help=f"install {side.AIPERF} from PyPI into the work folder")
    parser.add_argument("--aiperf-streams-max", type=int, default=100, help="leave AIPerf out of bigger loads")
    parser.add_argument("--work", type=pathlib.Path, help="folder for what is installed: AIPerf, the GPT-2 tokenizer; kept between runs")
    parser.add_argument("--limit", type=float, default=600, help="seconds that one run may take")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    rig.main(body, given)
