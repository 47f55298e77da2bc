#!/usr/bin/env python3
"""How late do thousands of stalled streams end, and does the run go on behind them? See README.md."""
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time

import rig

# What a limit may be late by.
LATE_MS = 100
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def main():
    parser = rig.parser(__doc__)
    parser.add_argument("--streams", type=int, default=3_000, help="streams that stall, all at once")
    parser.add_argument("--limit-s", type=float, default=2, help="each limit")
    parser.add_argument("--after", type=int, default=300, help="requests that follow them and are answered")
    parser.add_argument("--drivers", nargs="+", default=["ring", "portable"], help="drivers of the client")
    parser.set_defaults(repeats=1)
    sys.exit(rig.main(body, parser.parse_args()))


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(text, finish=None):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return chunk(b"data: " + json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n")


class Staller:
    """Answers the first requests with as much as it is told and then nothing; the others well. One thread, epoll."""

    def __init__(self, core, streams, begun):
        self.core, self.streams, self.first = core, streams, STREAM + event(" one") + event(" two") if begun else b""
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.over = False

    def __enter__(self):
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()

    def serve(self):
        os.sched_setaffinity(0, {self.core})
        whole = STREAM + event(" one") + event(" two", "stop") + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        poll, peers, seen = select.epoll(), {}, 0
        poll.register(self.listener, select.EPOLLIN)
        while not self.over:
            for descriptor, _ in poll.poll(0.1):
                if descriptor == self.listener.fileno():
                    peer = self.listener.accept()[0]
                    peers[peer.fileno()] = [peer, b""]
                    poll.register(peer, select.EPOLLIN)
                    continue
                peer, text = peers[descriptor]
                try:
                    got = peer.recv(65_536)
                except OSError:
                    got = b""
                if not got:
                    poll.unregister(descriptor)
                    peers.pop(descriptor)[0].close()
                    continue
                text += got
                end = text.find(b"\r\n\r\n")
                length = [line for line in text[:max(end, 0)].lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if end >= 0 and len(text) >= end + 4 + int(length[0].split(b":")[1]):
                    text = b""
                    seen += 1
                    peer.sendall(self.first if seen <= self.streams else whole)
                peers[descriptor][1] = text
        for peer, _ in peers.values():
            peer.close()
        self.listener.close()


def body(arguments, folder):
    rows, runs, failed = [], [], False
    for driver in arguments.drivers:
        for flag, kind in (("first-byte", "FirstByteTimeout"), ("idle", "IdleTimeout"), ("request", "RequestTimeout")):
            row = measure(arguments, folder / f"{driver}-{flag}", driver, flag, kind)
            runs.append(row)
            failed = failed or not row["holds"]
            rows.append([driver, f"--{flag}-timeout-seconds", rig.shown(row["ended"], 0), rig.shown(row["after"], 0),
                         rig.shown(row["p50_ms"], 2), rig.shown(row["max_ms"], 2), "yes" if row["holds"] else "NO"])
    print(rig.table(("driver", "limit", "ended by it", "answered after", "late p50, ms", "late most, ms", "holds"), rows))
    print(f"\n{rig.machine()}")
    rig.write_json(arguments, "stalled", {"runs": runs})
    return 1 if failed else 0


def measure(arguments, out, driver, flag, kind):
    out.mkdir(parents=True, exist_ok=True)
    with Staller(arguments.server_core, arguments.streams, flag != "first-byte") as server:
        words = [
            arguments.binary, "profile", "--url", server.url, "--model", "m", "--streaming", "--tokenizer", "builtin", "--isl", 16,
            "--num-prompts", 16, "--random-seed", 1, "--concurrency", arguments.streams, "--request-count", arguments.streams + arguments.after,
            f"--{flag}-timeout-seconds", arguments.limit_s, "--driver", driver, "--cpus", arguments.client_core, "--workers-max", 1,
            "--export-level", "raw", "--ui-type", "none", "--output-artifact-dir", out / "artifacts"]
        begin = time.monotonic()
        with open(out / "client.txt", "w", encoding="utf-8") as text:
            code = subprocess.run([str(word) for word in words], stdout=text, stderr=text, timeout=rig.LIMIT_S, check=False,
                                  preexec_fn=rig.pin(arguments.client_core)).returncode
        rig.say(f"{driver}, {flag}: {time.monotonic() - begin:.1f} s, exit code {code}")
    late, answered = [], 0
    for line in (out / "artifacts" / "profile_export_raw.jsonl").open(encoding="utf-8"):
        record = json.loads(line)
        if not record.get("error"):
            answered += 1
        elif record["error"]["type"] == kind:
            stamps = record["stamps"]
            begun = {"first-byte": stamps.get("last_byte_sent_perf_ns"), "request": stamps["submitted_perf_ns"],
                     "idle": record["reads"][-1]["user_perf_ns"] if record["reads"] else None}[flag]
            late.append((stamps["end_perf_ns"] - begun) / 1e6 - 1e3 * arguments.limit_s)
    late.sort()
    most = late[-1] if late else float("nan")
    holds = len(late) == arguments.streams and answered == arguments.after and late[0] > -1 and most <= LATE_MS
    return {"driver": driver, "limit": flag, "ended": len(late), "after": answered, "p50_ms": rig.median(late) if late else float("nan"),
            "max_ms": most, "holds": holds}


if __name__ == "__main__":
    main()
