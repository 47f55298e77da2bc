#!/usr/bin/env python3
"""What the client says of itself alone on its core, beside a process that takes the core, and alone again. See README.md."""
import shutil
import signal
import subprocess
import sys

import join
import records
import rig

COLUMNS = ("the core's other guest", "verdict", "reasons")
EXPECTED = {False: "trusted", True: "untrusted"}


class BusyLoop:
    """A process that does nothing but run on a core, for the length of a `with`."""

    def __init__(self, core):
        self.core = core

    def __enter__(self):
        # It ends by itself if this script is killed.
        words = [sys.executable, "-c", "import time\nend = time.monotonic() + 300\nwhile time.monotonic() < end: pass"]
        self.process = subprocess.Popen(words, preexec_fn=rig.pin(self.core))
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def measure(arguments, folder):
    """`client_health` of one run."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    gap_s, ttft_ms = arguments.itl / 1000, 50
    reply_s = ttft_ms / 1000 + (arguments.tokens - 1) * gap_s
    rate = join.spread_rate(arguments.streams, reply_s, gap_s)
    with rig.Server(arguments.server_binary, arguments.server_core, folder, ttft_ms, arguments.itl, "spin", arguments.streams) as server:
        words = [
            arguments.binary, "profile", "--model", "mock-model", "--url", server.url, "--tokenizer", "builtin", "--streaming",
            "--use-server-token-count", "--isl", 20, "--osl", arguments.tokens, "--random-seed", 1, "--request-rate", f"{rate:.6f}",
            "--arrival-pattern", "constant", "--request-count", round(arguments.streams * (1 + arguments.seconds / reply_s)),
            "--cpus", arguments.client_core, "--artifact-dir", folder / "client", "--ui", "none"]
        rig.run(words, arguments.client_core, folder / "client.log", limit_s=60 + 10 * arguments.seconds)
    health = records.summary(folder / "client").get("client_health")
    if not isinstance(health, dict) or "verdict" not in health:
        raise rig.RigError(f"{folder / 'client' / records.SUMMARY} has no client_health.verdict: this build does not judge its own health")
    return health


def reason(one):
    """A reason as text, whatever its shape."""
    if isinstance(one, dict):
        return str(one.get("text") or one.get("message") or ", ".join(f"{key} {value}" for key, value in one.items()))
    return str(one)


def body(arguments, folder):
    healths = []
    for disturbed in (False, True, False):
        rig.say("a busy loop shares the client's core" if disturbed else "the client is alone on its core")
        if disturbed:
            with BusyLoop(arguments.client_core):
                health = measure(arguments, folder / "run")
        else:
            health = measure(arguments, folder / "run")
        rig.say(f"  {health['verdict']}")
        healths.append((disturbed, health))
    print(f"{arguments.streams} streams, {1000 / arguments.itl:g} tokens/s each. {rig.machine()}.\n")
    rows = [
        ("a busy loop" if disturbed else "none", health["verdict"], "; ".join(map(reason, health.get("reasons", []))) or "-")
        for disturbed, health in healths]
    print(rig.table(COLUMNS, rows))
    runs = [{"disturbed": disturbed, "client_health": health} for disturbed, health in healths]
    rig.write_json(arguments, "verdict", {"runs": runs})
    return 0 if all(health["verdict"] == EXPECTED[disturbed] for disturbed, health in healths) else 1


def arguments():
    parser = rig.parser(__doc__)
    parser.add_argument("--streams", type=int, default=100, help="streams at a time")
    parser.add_argument("--itl", type=float, default=10, help="milliseconds between the tokens of a stream")
    parser.add_argument("--tokens", type=int, default=100, help="tokens of each reply")
    parser.add_argument("--seconds", type=float, default=6, help="length of a run")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    sys.exit(rig.main(body, given))
