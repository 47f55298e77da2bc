#!/usr/bin/env python3
"""How late requests are sent: the first byte handed to the kernel minus the time at which it was to be. See README.md."""
import shutil

import join
import records
import rig
import server_log

COLUMNS = (
    "wait mode", "lag p50", "lag p99", "lag p99.9", "lag max", "requests on kept connections", "on new ones", "their lag p99",
    "client CPU, cores")


def client(arguments, mode, url, folder):
    """The command of one run. Raw records hold the stamps of the send."""
    words = [
        arguments.binary, "profile", "--model", "mock-model", "--url", url, "--tokenizer", "builtin", "--streaming",
        "--use-server-token-count", "--isl", 20, "--osl", 1, "--random-seed", 1, "--cpus", arguments.client_core,
        "--request-rate", f"{arguments.rate:g}", "--arrival-pattern", "constant",
        "--request-count", max(1, round(arguments.rate * arguments.seconds)),
        # Opens the connections, so that few of the measured requests need a new one.
        "--warmup-request-count", max(1, round(arguments.rate)), "--export-level", "raw", "--export-http-trace", "--artifact-dir", folder,
        "--ui", "none"]
    if mode:
        words += ["--wait-mode", mode]
    if mode == "hybrid" and arguments.spin_us is not None:
        words += ["--spin-us", f"{arguments.spin_us:g}"]
    return words


def measure(arguments, mode, folder):
    """The numbers of one run, in microseconds."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with rig.Server(arguments.server_binary, arguments.server_core, folder, arguments.ttft, 1, "spin") as server:
        words = client(arguments, mode, server.url, folder / "client")
        cost = rig.run(words, arguments.client_core, folder / "client.log", limit_s=60 + 4 * arguments.seconds)
    taken = records.read(folder / "client")
    timed = [record for record in taken if record.due is not None and record.first_byte is not None]
    if not timed:
        raise rig.RigError(f"{folder / 'client'}: no record says when its request was due and when its first byte was sent")
    kept, opened = ([(record.first_byte - record.due) / 1000 for record in timed if record.opened is opened] for opened in (False, True))
    return {
        **{f"lag_p{percent:g}_us": join.percentile(kept, percent) for percent in (0, 50, 90, 99, 99.9, 100)},
        **{f"lag_opened_p{percent:g}_us": join.percentile(opened, percent) for percent in (50, 99, 100)},
        "kept": len(kept), "opened": len(opened), "untimed": len(taken) - len(timed),
        "failed": sum(record.error is not None for record in taken),
        "requests": len(taken), "requests_of_the_log": len(server_log.read(server.log).requests),
        "cpu_cores": cost.cpu_s / cost.wall_s,
    }


def body(arguments, folder):
    known = rig.flags_of(arguments.binary, "profile")
    if "--wait-mode" not in known:
        rig.say("this build has no --wait-mode: only its own way to wait is measured, shown as `sleep`")
    modes = arguments.modes if "--wait-mode" in known else [None]
    results = {}
    for repetition in range(arguments.repeats):
        for mode in modes:
            rig.say(f"run {repetition + 1} of {arguments.repeats}: {mode or 'sleep'}")
            result = measure(arguments, mode, folder / (mode or "sleep"))
            rig.say(f"  lag p50 {result['lag_p50_us']:.1f}, p99 {result['lag_p99_us']:.1f}, max {result['lag_p100_us']:.1f} us")
            results.setdefault(mode or "sleep", []).append(result)
    load = f"{arguments.rate:g} requests per second for {arguments.seconds:g} s"
    print(f"{load}; microseconds; medians of {arguments.repeats}. {rig.machine()}.\n")
    print(rig.table(COLUMNS, [line(mode, rig.medians(runs)) for mode, runs in results.items()]))
    for mode, runs in results.items():
        if bad := sum(run["untimed"] + run["failed"] for run in runs):
            print(f"\nNote: {mode}: {bad} requests failed or have no time of their send.")
    rig.write_json(arguments, "send lag", {"rate": arguments.rate, "modes": results})


def line(mode, middle):
    return [
        mode, *(rig.shown(middle[f"lag_p{percent:g}_us"], 2) for percent in (50, 99, 99.9, 100)),
        rig.shown(middle["kept"], 0), rig.shown(middle["opened"], 0), rig.shown(middle["lag_opened_p99_us"]),
        rig.shown(middle["cpu_cores"], 2)]


def arguments():
    parser = rig.parser(__doc__)
    parser.add_argument("--modes", nargs="+", choices=("sleep", "hybrid", "spin"), default=["sleep", "hybrid", "spin"], help="ways to wait")
    parser.add_argument("--rate", type=float, default=2000, help="requests per second, evenly apart")
    parser.add_argument("--seconds", type=float, default=5, help="length of the measured part of a run")
    parser.add_argument("--ttft", type=float, default=2, help="milliseconds until the server answers")
    parser.add_argument("--spin-us", type=float, help="microseconds that hybrid mode spins; the program's default if not given")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    rig.main(body, given)
