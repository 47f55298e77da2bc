#!/usr/bin/env python3
"""How long it takes to make prompts of an exact number of tokens, and how much memory. See README.md."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time
from datetime import datetime

import rig

COLUMNS = ("tool", "tokenizer", "prompts", "tokens each", "seconds", "tokens/s", "peak memory")

# What a script does without a tool of its own: a stretch of a text's tokens is decoded, encoded again, and cut or drawn anew until its
# number is right; one thread. Prints seconds, without those of loading.
LOOP = """
import random, sys, time
from tokenizers import Tokenizer
tokenizer, text, prompts, tokens = Tokenizer.from_file(sys.argv[1]), open(sys.argv[2]).read(), int(sys.argv[3]), int(sys.argv[4])
ids = tokenizer.encode(text, add_special_tokens=False).ids
begin = time.monotonic()
for _ in range(prompts):
    start = random.randrange(len(ids) - 2 * tokens)
    wanted = ids[start:start + tokens]
    for attempt in range(10):
        prompt = tokenizer.decode(wanted)
        back = tokenizer.encode(prompt, add_special_tokens=False).ids
        if len(back) == tokens:
            break
        wanted = back[:tokens] + ids[start + tokens:start + 2 * tokens - len(back)]
print(time.monotonic() - begin)
"""

# How vllm-bench makes the same (its src/datasets/random.rs): ids in a row out of the vocabulary from a random place, decoded, encoded again,
# cut and decoded, on all cores. Its library is the one below this package. Prints seconds, without those of loading.
STEPS = """
import random, sys, time
from tokenizers import Tokenizer
tokenizer, prompts, tokens = Tokenizer.from_file(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4])
special = {id for id, added in tokenizer.get_added_tokens_decoder().items() if added.special}
allowed = [id for id in sorted(tokenizer.get_vocab().values()) if id not in special]
begin = time.monotonic()
ids = []
for number in range(prompts):
    start = random.randrange(len(allowed)) + number
    ids.append([allowed[(start + at) % len(allowed)] for at in range(tokens)])
back = tokenizer.encode_batch(tokenizer.decode_batch(ids), add_special_tokens=False)
tokenizer.decode_batch([one.ids[:tokens] for one in back])
print(time.monotonic() - begin)
"""

# A log line begins with a moment, its level and what happened.
LINE = re.compile(r"^(\S+) [A-Z]+ (.*)$", re.MULTILINE)


def moments(log):
    """Seconds from the first line of a log to the one that says how many conversations there are; `None` when no line says so."""
    lines = LINE.findall(log)
    at = lambda moment: datetime.fromisoformat(moment.replace("Z", "+00:00"))
    made = next((moment for moment, text in lines if text.startswith("dataset: ")), None)
    return None if made is None else (at(made) - at(lines[0][0])).total_seconds()


def waited(words, folder, environment):
    """Runs a command with all cores. Its wall time and peak memory, that of its largest process."""
    words = [str(word) for word in words]
    begin = time.monotonic()
    with open(folder / "said.log", "w", encoding="utf-8") as said:
        process = subprocess.Popen(words, stdout=said, stderr=said, stdin=subprocess.DEVNULL, env=environment, cwd=folder)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - begin
    if process.returncode:
        end = (folder / "said.log").read_text(encoding="utf-8", errors="replace")[-2000:]
        raise rig.RigError(f"exit code {process.returncode} of `{shlex.join(words)}`; the end of what it said:\n{end}")
    return wall, used.ru_maxrss * 1024


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def flags(tokenizer, prompts, tokens):
    """The same for both tools: a dataset of which one request is sent."""
    return [
        "--model", "mock-model", "--tokenizer", tokenizer, "--isl", tokens, "--osl", 1, "--num-prompts", prompts, "--request-count", 1,
        "--random-seed", 1, "--ui", "none", "--export-level", "summary"]


def of_tokenring(arguments, tokenizer, prompts, folder):
    """From the program's start until every body stands in memory; the program's peak over its whole run."""
    _, peak = waited(
        [arguments.binary, "profile", *flags(tokenizer, prompts, arguments.tokens), "--verbose", "--artifact-dir", folder / "out"],
        folder, None)
    log = next((folder / "out").rglob("*.log")).read_text(encoding="utf-8")
    return {"seconds": moments(log), "peak": peak}


def of_aiperf(arguments, prompts, folder):
    """AIPerf does not tell when its dataset stands, so this is what more prompts take longer: the difference of two runs."""
    walls = []
    with rig.Server(arguments.server_binary, arguments.server_core, folder, 1, 1) as server:
        for count in (1, prompts + 1):
            into = fresh(folder / str(count))
            words = [
                arguments.aiperf, "profile", *flags(arguments.aiperf_tokenizer, count, arguments.tokens), "--streaming", "--url", server.url,
                "--artifact-dir", into / "out"]
            walls.append(waited(words, into, None))
    return {"seconds": walls[1][0] - walls[0][0], "peak": walls[1][1]}


def of_loop(program, arguments, prompts, folder):
    corpus = pathlib.Path(__file__).resolve().parent.parent / "assets" / "shakespeare.txt"
    _, peak = waited([arguments.loop, "-c", program, arguments.loop_tokenizer, corpus, prompts, arguments.tokens], folder, None)
    return {"seconds": float((folder / "said.log").read_text(encoding="utf-8").split()[-1]), "peak": peak}


def row(tool, tokenizer, prompts, tokens, middle):
    rate = prompts * tokens / middle["seconds"]
    memory = f"{middle['peak'] / 2**20:,.0f} MiB"
    return [tool, tokenizer, f"{prompts:,}", f"{tokens:,}", rig.shown(middle["seconds"], 2), rig.shown(rate, 0), memory]


def body(arguments, folder):
    tasks = [
        ("tokenring", tokenizer, arguments.prompts, lambda into, name=tokenizer: of_tokenring(arguments, name, arguments.prompts, into))
        for tokenizer in arguments.tokenizers]
    if arguments.loop:
        count = arguments.loop_prompts
        for tool, program in (("a loop in Python", LOOP), ("vllm-bench's steps in Python", STEPS)):
            tasks.append((tool, pathlib.Path(arguments.loop_tokenizer).name, count, lambda into, text=program: of_loop(text, arguments, count, into)))
    if arguments.aiperf:
        count = arguments.aiperf_prompts
        tasks.append(("AIPerf", arguments.aiperf_tokenizer, count, lambda into: of_aiperf(arguments, count, into)))
    rows, runs = [], []
    for tool, tokenizer, prompts, measure in tasks:
        taken = []
        for repeat in range(arguments.repeats):
            taken.append(measure(fresh(folder / "run")))
            rig.say(f"{tool} {tokenizer} {repeat + 1}/{arguments.repeats}: {taken[-1]['seconds']:.2f} s")
            runs.append({"tool": tool, "tokenizer": tokenizer, "prompts": prompts, "tokens": arguments.tokens, **taken[-1]})
        rows.append(row(tool, tokenizer, prompts, arguments.tokens, rig.medians(taken)))
    print(rig.table(COLUMNS, rows))
    rig.write_json(arguments, "prompts", {"runs": runs})


def arguments():
    parser = rig.parser(__doc__)
    parser.set_defaults(repeats=3)
    parser.add_argument("--prompts", type=int, default=10_000, help="prompts that tokenring makes")
    parser.add_argument("--tokens", type=int, default=8_192, help="tokens of each")
    parser.add_argument("--tokenizers", nargs="+", default=["gpt2"], help="tokenring's tokenizers")
    parser.add_argument("--loop", help="a Python with the package tokenizers, to measure a plain loop and vllm-bench's steps as well")
    parser.add_argument("--loop-tokenizer", help="the loop's tokenizer.json")
    parser.add_argument("--loop-prompts", type=int, default=200, help="prompts of the loop")
    parser.add_argument("--aiperf", help="path of the aiperf program, to measure it as well")
    parser.add_argument("--aiperf-tokenizer", default="gpt2", help="AIPerf's tokenizer")
    parser.add_argument("--aiperf-prompts", type=int, default=200, help="prompts that AIPerf makes")
    given = parser.parse_args()
    if given.loop and not given.loop_tokenizer:
        sys.exit("error: --loop needs --loop-tokenizer, the tokenizer.json that it reads")
    return given


if __name__ == "__main__":
    rig.main(body, arguments())
