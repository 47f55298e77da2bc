#!/usr/bin/env python3
"""How far apart the requests of a burst are sent, on connections that are open. See README.md."""
import shutil

import records
import rig


def command(arguments, url, folder):
    """The command of one burst; the prompts are short, so that only sending is timed."""
    return [
        arguments.binary, "profile", "--model", "mock-model", "--url", url, "--tokenizer", "builtin", "--streaming", "--use-server-token-count",
        "--isl", 20, "--osl", 2, "--random-seed", 1, "--concurrency", arguments.size, "--request-count", arguments.size,
        "--pre-connect", "auto", "--num-dataset-entries", arguments.size, "--cpus", arguments.client_core, "--export-level", "raw",
        "--export-http-trace", "--artifact-dir", folder, "--ui", "none"]


def spread_us(taken):
    """Microseconds from the first to the last stamp before a first byte was handed to the kernel; None where a record has no such stamp."""
    sent = [record.first_byte for record in taken]
    return None if None in sent or not sent else (max(sent) - min(sent)) / 1000


def body(arguments, folder):
    spreads = []
    with rig.Server(arguments.server_binary, arguments.server_core, folder, 100, 2, "spin") as server:
        for number in range(arguments.bursts):
            client = folder / "client"
            shutil.rmtree(client, ignore_errors=True)
            rig.run(command(arguments, server.url, client), arguments.client_core, folder / "client.log", limit_s=60)
            taken = records.read(client)
            spread = spread_us(taken)
            if spread is None or len(taken) != arguments.size:
                raise rig.RigError(f"{client}: {len(taken)} of {arguments.size} requests, and not all say when they were sent")
            rig.say(f"burst {number + 1} of {arguments.bursts}: {spread:.0f} us")
            spreads.append(spread)
    print(
        f"{arguments.bursts} bursts of {arguments.size} requests: from the first send to the last {rig.median(spreads):.0f} us (median), "
        f"{min(spreads):.0f} us (best), {max(spreads):.0f} us (worst). {rig.machine()}.")
    rig.write_json(arguments, "burst", {"size": arguments.size, "spreads_us": spreads})


def arguments():
    parser = rig.parser(__doc__)
    parser.add_argument("--size", type=int, default=50, help="requests of a burst")
    parser.add_argument("--bursts", type=int, default=20, help="bursts, each a run of its own")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    rig.main(body, given)
