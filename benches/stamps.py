#!/usr/bin/env python3
"""How far stamps are from the truth: the client's stamp of each event minus the server's log of its send. See README.md."""
import dataclasses
import shutil
import sys

import join
import records
import rig
import server_log

TTFT_MS = 50
COLUMNS = (
    "streams x tokens/s", "driver", "stamps", "error p50", "error p99", "error p99.9", "error max", "TTFT error p99",
    "ITL sd beyond the server's", "ITL sd - server's", "events in shared reads", "lost", "server late p50", "server late p99")
BOTH = ("kernel", "user")
# What must be 0, and what it means if it is not.
COUNTED = {
    "lost": "events are in the log and not in the records", "unknown": "events are in the records and not in the log",
    "unmatched": "records name no request of the log", "unrecorded": "requests of the log have no record"}


@dataclasses.dataclass
class Row:
    """One command of the client. It gives a line of the table for each source of stamps."""

    streams: int
    per_second: float
    driver: str
    flags: list


def rows(arguments, known):
    """All loads on the ring, the first also without batches and on the portable driver, and one stream with both ways to wait."""
    made = []
    for streams, per_second in arguments.loads:
        if streams > 1:
            made.append(Row(streams, per_second, "ring", ["--driver", "ring"]))
            if not made[1:] and "--reap-window-us" in known:
                # Each completion is reaped as it comes: what user stamps are at their best, and whether batches cost accuracy.
                made.append(Row(streams, per_second, "ring, unbatched", ["--driver", "ring", "--reap-window-us", "0"]))
            continue
        for mode in ("sleep", "spin"):
            flags = ["--driver", "ring", "--wait-mode", mode]
            if "--wait-mode" in known:
                made.append(Row(streams, per_second, f"ring, {mode}", flags))
            elif mode == "sleep":
                # What a build without the flag does.
                made.append(Row(streams, per_second, "ring, sleep", flags[:2]))
            else:
                rig.say("left out: one stream with --wait-mode spin, a flag that this build does not have")
    streams, per_second = arguments.loads[0]
    return [*made, Row(streams, per_second, "portable", ["--driver", "portable"])]


def client(arguments, row, url, folder, source):
    """The command of one run."""
    gap_s = 1 / row.per_second
    # One stream has so few replies that they are shorter, or there would be no TTFT to speak of.
    tokens = arguments.tokens if row.streams > 1 else min(arguments.tokens, 50)
    reply_s = TTFT_MS / 1000 + (tokens - 1) * gap_s
    words = [
        arguments.binary, "profile", "--model", "mock-model", "--url", url, "--tokenizer", "builtin", "--streaming",
        "--use-server-token-count", "--isl", 20, "--osl", tokens, "--random-seed", 1, "--cpus", arguments.client_core,
        "--export-level", "raw", "--artifact-dir", folder, "--ui", "none", *row.flags]
    if source:
        words += ["--timestamp-source", source]
    # The load is whole between the first reply's end and the last request.
    words += ["--request-count", max(1, round(row.streams * (1 + arguments.seconds / reply_s)))]
    if row.streams == 1:
        return [*words, "--concurrency", 1]
    rate = join.spread_rate(row.streams, reply_s, gap_s)
    return [*words, "--request-rate", f"{rate:.6f}", "--arrival-pattern", "constant"]


def measure(arguments, row, folder, source):
    """One run: the log, the records, what it cost and whose stamps the metrics used."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    spread = row.streams if row.streams > 1 else None
    pace = {"pace": arguments.pace, "spread": spread}
    with rig.Server(arguments.server_binary, arguments.server_core, folder, TTFT_MS, 1000 / row.per_second, **pace) as server:
        words = client(arguments, row, server.url, folder / "client", source)
        limit_s = 120 + 4 * (arguments.seconds + arguments.tokens / row.per_second)
        cost = rig.run(words, arguments.client_core, folder / "client.log", limit_s=limit_s)
    stamps = records.summary(folder / "client")["client"]["facts"].get("Stamps", "")
    used = "kernel" if "by the kernel" in stamps else "user"
    return server_log.read(server.log), records.read(folder / "client"), cost, used


def measured(arguments, row, folder):
    """The numbers of one repetition by the source of the stamps. Where records hold both stamps of each event, they are of the same
    run; where they hold one, user stamps get a run of their own."""
    log, taken, cost, used = measure(arguments, row, folder / "run", None)
    held = [stamp for stamp in BOTH if taken and all(stamp in record.stamps for record in taken if record.stamps)]
    if len(held) == len(BOTH):
        return {stamp: numbers(row, log, taken, stamp, cost) for stamp in BOTH}
    used = held[0] if held else used
    results = {used: numbers(row, log, taken, "arrival", cost)}
    if used == "kernel":
        log, taken, cost, used = measure(arguments, row, folder / "run-user", "user")
        results[used] = numbers(row, log, taken, "arrival", cost)
    return results


def numbers(row, log, taken, stamp, cost):
    """What one run says of one source of stamps; times in microseconds."""
    joined = join.join(log, taken, stamp)
    span = join.plateau(log) if row.streams > 1 else None
    part = joined.window(*span) if span else joined
    errors = [error / 1000 for _, error, _ in part.errors]
    alone = [error / 1000 for _, error, shared in part.errors if not shared]
    firsts = [(client - server) / 1000 for _, client, server, _ in part.firsts]
    ways = [way / 1000 for *_, way in part.firsts]
    ours, theirs = (join.deviation([gap[place] / 1000 for gap in part.gaps]) for place in (1, 2))
    late = rig.lateness_us(log, round(1e9 / row.per_second), span)
    return {
        **{f"error_p{percent:g}_us": join.percentile(errors, percent) for percent in (0, 50, 90, 99, 99.9, 100)},
        **{f"error_alone_p{percent:g}_us": join.percentile(alone, percent) for percent in (50, 99, 99.9, 100)},
        **{f"ttft_error_p{percent:g}_us": join.percentile(firsts, percent) for percent in (50, 99, 100)},
        # The part of the TTFT error that lies before the server's receipt, its own delay in reading included.
        **{f"request_way_p{percent:g}_us": join.percentile(ways, percent) for percent in (50, 99, 100)},
        "itl_sd_us": ours, "itl_sd_server_us": theirs, "itl_sd_difference_us": ours - theirs,
        "itl_sd_beyond_us": join.deviation_beyond(ours, theirs),
        "gap_error_sd_us": join.deviation([(client - server) / 1000 for _, client, server in part.gaps]),
        "shared": joined.shared, "events": joined.events, "lost": joined.lost, "unknown": joined.unknown,
        "read_late": sum(not request.is_kernel_stamped() for request in log.requests.values()),
        "unmatched": joined.unmatched, "unrecorded": joined.unrecorded,
        "events_compared": len(errors), "requests_compared": len(firsts),
        "whole_load_s": (span[1] - span[0]) / 1e9 if span else None,
        "server_late_p50_us": late[0], "server_late_p99_us": late[1],
        "client_cpu_us_per_event": cost.cpu_s * 1e6 / max(1, joined.events), "client_peak_bytes": cost.peak_bytes,
    }


def line(row, stamp, runs):
    """A line of the table: medians, but all that was lost."""
    middle = rig.medians(runs)
    return [
        f"{row.streams:,} x {row.per_second:g}", row.driver, stamp,
        *(rig.shown(middle[f"error_p{percent:g}_us"]) for percent in (50, 99, 99.9, 100)),
        rig.shown(middle["ttft_error_p99_us"]), rig.shown(middle["itl_sd_beyond_us"]), rig.shown(middle["itl_sd_difference_us"]),
        f"{rig.shown(middle['shared'], 0)} of {rig.shown(middle['events'], 0)}", str(sum(run["lost"] for run in runs)),
        rig.shown(middle["server_late_p50_us"]), rig.shown(middle["server_late_p99_us"])]


def notes(plan, results):
    """What would make the table say less than it seems to, with the lines that it is about."""
    found = {}
    for (place, stamp), runs in results.items():
        name = f"{plan[place].streams} x {plan[place].per_second:g}, {plan[place].driver}, {stamp}"
        for key, meaning in COUNTED.items():
            if any(run[key] for run in runs):
                found.setdefault(meaning, []).append(name)
        if plan[place].streams > 1 and any(run["whole_load_s"] is None for run in runs):
            found.setdefault("the load was never whole, so all of the run is shown; raise --seconds", []).append(name)
        if any(run["requests_compared"] == 0 for run in runs):
            found.setdefault("the log or the records do not say when requests were received or sent, so there is no TTFT error", []).append(name)
    own = max(run["read_late"] for runs in results.values() for run in runs)
    if own:
        found.setdefault(f"up to {own} requests of a run have no receive stamp of the server's kernel, so the server's delay in reading "
                         "them is in the TTFT error", []).append("all loads")
    yield from (f"{meaning} ({'; '.join(names)})" for meaning, names in found.items())
    for (place, stamp), runs in results.items():
        middle = rig.medians(runs)
        if middle["shared"] and stamp == "kernel":
            alone = ", ".join(f"p{percent:g} {rig.shown(middle[f'error_alone_p{percent:g}_us'])}" for percent in (99, 99.9, 100))
            yield f"{plan[place].streams} x {plan[place].per_second:g}, {plan[place].driver}, kernel, without shared reads: {alone}"


def body(arguments, folder):
    arguments.loads = [load(text) for text in arguments.loads]
    known = rig.flags_of(arguments.binary, "profile")
    plan = rows(arguments, known)
    results = {}
    for repetition in range(arguments.repeats):
        # In turn, so that a slow spell of the machine falls on all rows.
        for place, row in enumerate(plan):
            rig.say(f"run {repetition + 1} of {arguments.repeats}: {row.streams} x {row.per_second:g}, {row.driver}")
            for stamp, result in measured(arguments, row, folder / f"row-{place}").items():
                rig.say(f"  {stamp}: error p50 {result['error_p50_us']:.1f}, p99 {result['error_p99_us']:.1f} us")
                results.setdefault((place, stamp), []).append(result)
    lines = [line(plan[place], stamp, runs) for (place, stamp), runs in sorted(results.items(), key=lambda item: item[0])]
    print(f"Microseconds; medians of {arguments.repeats}. {rig.machine()}.\n")
    print(rig.table(COLUMNS, lines))
    for text in notes(plan, results):
        print(f"\nNote: {text}.")
    content = [{"row": dataclasses.asdict(plan[place]), "stamps": stamp, "runs": runs} for (place, stamp), runs in results.items()]
    rig.write_json(arguments, "stamp error", {"rows": content})
    return int(any(run[key] for runs in results.values() for run in runs for key in COUNTED))


def load(text):
    """`1000x75` is 1,000 streams of 75 tokens a second each."""
    try:
        streams, per_second = text.split("x")
        if int(streams) > 0 and float(per_second) > 0:
            return int(streams), float(per_second)
    except ValueError:
        pass
    raise rig.RigError(f"--loads {text}: must be STREAMSxTOKENS_PER_SECOND, such as 1000x75")


def arguments():
    parser = rig.parser(__doc__)
    parser.add_argument("--loads", nargs="+", default=["1000x75", "1000x100", "100x100", "1x100"], help="streams x tokens per second")
    parser.add_argument("--seconds", type=float, default=6, help="how long the load is whole")
    parser.add_argument("--tokens", type=int, default=200, help="tokens of each reply (of one stream at most 50)")
    parser.add_argument("--pace", choices=("sleep", "spin"), default="spin", help="how the server waits, where it can choose")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    sys.exit(rig.main(body, given))
