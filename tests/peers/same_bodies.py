#!/usr/bin/env python3
"""Give AIPerf and tokenring the same dataset files and compare the bodies that they send. See README.md."""
import argparse
import collections
import csv
import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

from aiperf_side_by_side import environment, install
from recording_server import RecordingServer

HERE = pathlib.Path(__file__).resolve().parent
DATASETS = HERE.parent / "datasets"
BODIES = HERE / "bodies"
BLOCK = ["--isl-block-size", "64"]
TOOLS = '{"tools": [{"type": "function", "function": {"name": "berth", "parameters": {"type": "object"}}}]}'
# What is run: a file, the endpoint, and what else stands on the command line. The format is the file's name up to the first '-' or '.'.
CASES = [
    (DATASETS / "multi_turn.jsonl", "chat", ["--streaming"]),
    (BODIES / "multi_turn-pauses.jsonl", "chat", ["--streaming"]),
    (BODIES / "multi_turn-pauses.jsonl", "chat", ["--osl", "33", "--use-legacy-max-tokens", "--extra-inputs", "temperature:0.1"]),
    (BODIES / "multi_turn-pauses.jsonl", "chat", ["--streaming", "--system-prompt", "Be polite.", "--use-server-token-count"]),
    (BODIES / "multi_turn-pauses.jsonl", "chat", ["--streaming", "--extra-inputs", TOOLS]),
    (BODIES / "multi_turn-pauses.jsonl", "chat", ["--extra-inputs", TOOLS]),
    (BODIES / "multi_turn-pauses.jsonl", "responses", ["--streaming"]),
    (BODIES / "multi_turn-pauses.jsonl", "responses", ["--use-server-token-count", "--extra-inputs", "store:true"]),
    (BODIES / "multi_turn-pauses.jsonl", "messages", ["--streaming"]),
    (BODIES / "multi_turn-media.jsonl", "chat", ["--streaming"]),
    (BODIES / "multi_turn-pictures.jsonl", "responses", []),
    (BODIES / "multi_turn-pictures.jsonl", "messages", []),
    (BODIES / "multi_turn-roles.jsonl", "chat", ["--streaming"]),
    (BODIES / "multi_turn-extra.jsonl", "chat", ["--streaming", "--extra-inputs", "temperature:0.9"]),
    (DATASETS / "mooncake_trace.jsonl", "chat", ["--streaming"]),
    (DATASETS / "mooncake_trace-lengths.jsonl", "chat", ["--streaming", "--synthesis-speedup-ratio", "0.1"]),
    (BODIES / "mooncake_trace-blocks.jsonl", "chat", ["--streaming", *BLOCK]),
    (BODIES / "mooncake_trace-blocks.jsonl", "completions", ["--streaming", *BLOCK]),
    (BODIES / "mooncake_trace-sessions.jsonl", "chat", ["--streaming"]),
    (DATASETS / "mooncake_trace-texts.jsonl", "chat", ["--streaming"]),
    (DATASETS / "mooncake_trace-messages.jsonl", "chat", ["--streaming"]),
    (BODIES / "mooncake_trace-tools.jsonl", "chat", []),
    (DATASETS / "mooncake_trace-payloads.jsonl", "chat", ["--streaming"]),
    (BODIES / "mooncake_trace-payloads.jsonl", "chat", ["--streaming"]),
    (BODIES / "mooncake_trace-items.jsonl", "responses", ["--streaming"]),
    (BODIES / "mooncake_trace-content_blocks.jsonl", "messages", ["--streaming"]),
    (DATASETS / "single_turn.jsonl", "chat", ["--streaming"]),
    (DATASETS / "raw_payload.jsonl", "chat", ["--streaming"]),
    (DATASETS / "bailian_trace.jsonl", "chat", ["--streaming"]),
    (BODIES / "burst_gpt_trace.csv", "chat", ["--streaming", "--fixed-schedule"]),
]
# Gaps of a session above this many seconds are pauses of the dataset; those of the files here are 0.3 s and more.
PAUSE = 0.25
TOKENIZE = """
import json, sys, tokenizers
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
print(json.dumps([tokenizer.encode(text, add_special_tokens=False).ids for text in json.load(sys.stdin)]))
"""


def kind(file):
    return file.name.split(".")[0].split("-")[0]


def lines(file):
    text = file.read_text(encoding="utf-8").splitlines()
    if file.suffix == ".csv":
        rows = csv.DictReader(text)
        return [{"timestamp": float(row["Timestamp"]), "input_length": row["Request tokens"]} for row in rows if row["Request tokens"]]
    return [json.loads(line) for line in text]


def generated(file):
    """Whether the tools make texts up for this file."""
    return any("input_length" in line for line in lines(file))


def flags(case, url, folder):
    file, endpoint, more = case
    words = [
        "profile", "--model", "m", "--url", url, "--endpoint-type", endpoint, "--tokenizer", "gpt2", "--input-file", file,
        "--custom-dataset-type", kind(file), "--random-seed", "5", "--ui", "none", "--artifact-dir", folder,
        "--no-gpu-telemetry", "--no-server-metrics", *more,
    ]
    if not any("timestamp" in line for line in lines(file)):
        words += ["--concurrency", "1", "--num-conversations", len(lines(file))]
    return [str(word) for word in words]


def run(name, program, case, work):
    """What the server saw of one tool."""
    folder = work / "bodies" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with RecordingServer() as server, open(folder / "output.log", "w") as log:
        words = [*program, *flags(case, server.url, folder / "out")]
        done = subprocess.run(words, env=environment(work), stdout=log, stderr=log, timeout=300, check=False)
    if done.returncode:
        print(f"{name} ended with exit code {done.returncode}: {shlex.join(map(str, words))}")
        print((folder / "output.log").read_text()[-1500:])
    return sessions(server.requests)


def sessions(requests):
    """Requests by session, sessions and requests in the order of arrival."""
    found = collections.OrderedDict()
    for request in requests:
        name = {key.lower(): value for key, value in request.headers}.get("x-correlation-id")
        found.setdefault(name, []).append(request)
    return list(found.values())


def in_order(file, found):
    """The sessions by the time that the file gives them; those of one time, whose order is nobody's, by the length that they ask for."""
    times = sorted(line["timestamp"] for line in lines(file) if "timestamp" in line)
    if len(times) != len(found):
        return found
    return [session for _, _, session in sorted(zip(times, (limit(s) for s in found), found), key=lambda entry: entry[:2])]


def limit(session):
    body = json.loads(session[0].body)
    return body.get("max_completion_tokens") or body.get("max_tokens") or 0


def pauses(session):
    return [later.arrived - before.answered > PAUSE for before, later in zip(session, session[1:])]


def differences(theirs, ours, path=""):
    """Paths at which two JSON values differ, with both values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in dict.fromkeys([*theirs, *ours]):
            yield from differences(theirs.get(key, "absent"), ours.get(key, "absent"), f"{path}/{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (left, right) in enumerate(zip(theirs, ours)):
            yield from differences(left, right, f"{path}/{index}")
    elif theirs != ours or type(theirs) is not type(ours):
        yield path, theirs, ours


class Tokens:
    """Ids of texts, by the package `tokenizers` of AIPerf's own environment."""

    def __init__(self, work, python):
        self.python = python
        self.file = next((work / "hub/models--gpt2/snapshots").glob("*/tokenizer.json"))

    def __call__(self, texts):
        done = subprocess.run([self.python, "-c", TOKENIZE, self.file], input=json.dumps(texts), text=True, capture_output=True, check=True)
        return json.loads(done.stdout)


class Comparison:
    """Counts of one case, and what differs."""

    def __init__(self, made_up):
        self.made_up, self.counts, self.faults = made_up, collections.Counter(), []
        self.pairs = []

    def request(self, where, theirs, ours):
        if theirs.path != ours.path:
            self.faults.append(f"{where}: path {theirs.path}, ours {ours.path}")
        if theirs.body == ours.body:
            self.counts["bytes"] += 1
            return
        level = "JSON"
        for path, left, right in differences(json.loads(theirs.body), json.loads(ours.body)):
            if self.made_up and isinstance(left, str) and isinstance(right, str) and path.split("/")[-1] in ("content", "prompt"):
                level = "lengths"
                self.pairs.append((f"{where} {path}", left, right))
            else:
                self.faults.append(f"{where} {path}: AIPerf {shown(left)}, ours {shown(right)}")
                level = "differs"
        self.counts[level] += 1

    def texts(self, tokens):
        """Made-up texts: as long as each other, and alike in what they share with the other texts of the same tool."""
        ids = tokens([text for _, left, right in self.pairs for text in (left, right)])
        theirs, ours = ids[0::2], ids[1::2]
        for (where, *_), left, right in zip(self.pairs, theirs, ours):
            if len(left) != len(right):
                self.faults.append(f"{where}: AIPerf {len(left)} tokens, ours {len(right)}")
        for first in range(len(self.pairs)):
            for second in range(first):
                left, right = (common(side[first], side[second]) for side in (theirs, ours))
                # A few tokens may be shared by chance, or be lost where blocks meet.
                if abs(left - right) > 8:
                    self.faults.append(f"{self.pairs[second][0]} and {self.pairs[first][0]} begin with {left} common tokens in AIPerf, "
                                       f"{right} in ours")


def common(left, right):
    return next((i for i, (a, b) in enumerate(zip(left, right)) if a != b), min(len(left), len(right)))


def shown(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 200 else text[:200] + "..."


def compare(case, theirs, ours, tokens):
    found = Comparison(generated(case[0]))
    theirs, ours = in_order(case[0], theirs), in_order(case[0], ours)
    if [len(s) for s in theirs] != [len(s) for s in ours] or not theirs:
        found.faults.append(f"requests in each session: AIPerf {[len(s) for s in theirs]}, ours {[len(s) for s in ours]}")
    for number, (left, right) in enumerate(zip(theirs, ours), 1):
        for turn, pair in enumerate(zip(left, right), 1):
            found.request(f"session {number} turn {turn}", *pair)
        if pauses(left) != pauses(right):
            found.faults.append(f"session {number} pauses: AIPerf {pauses(left)}, ours {pauses(right)}")
    if found.pairs:
        found.texts(tokens)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", default="target/release/tokenring", help="the tokenring program, with leading arguments if any")
    parser.add_argument("--work", type=pathlib.Path, help="folder for installs and results (a temporary one)")
    parser.add_argument("--aiperf", type=pathlib.Path, help="the aiperf program (one installed in the work folder)")
    parser.add_argument("--only", default="", help="only the cases whose line in the table holds this text")
    options = parser.parse_args()
    work = (options.work or pathlib.Path(tempfile.mkdtemp(prefix="peers-"))).resolve()
    work.mkdir(parents=True, exist_ok=True)
    install(work)
    aiperf = options.aiperf or work / "venv/bin/aiperf"
    tool = shlex.split(options.tool)
    tool[0] = str(pathlib.Path(tool[0]).resolve())
    tokens = Tokens(work, aiperf.parent / "python")
    print("| file, endpoint, flags | sessions | requests | equal bytes | equal JSON | equal lengths | faults |\n|---|---|---|---|---|---|---|")
    faults = 0
    for case in CASES:
        label = f"`{case[0].name}` {case[1]} {' '.join(case[2])}".replace(TOOLS, "tools").strip()
        if options.only not in label:
            continue
        theirs, ours = (run(name, program, case, work) for name, program in (("aiperf", [aiperf]), ("tokenring", tool)))
        found = compare(case, theirs, ours, tokens)
        counts = [found.counts[level] for level in ("bytes", "JSON", "lengths")]
        print(f"| {label} | {len(ours)} | {sum(map(len, ours))} | {' | '.join(map(str, counts))} | {len(found.faults)} |", flush=True)
        for fault in found.faults:
            print(f"  {fault}", flush=True)
        faults += len(found.faults)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
