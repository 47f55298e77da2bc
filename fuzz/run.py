#!/usr/bin/env python3
"""Builds the fuzz targets and runs each for a time. Prints one Markdown table; the exit code is 1 when a target found something.

    python3 fuzz/run.py                       # a minute each, two at a time
    python3 fuzz/run.py --seconds 3600 sse    # one of them, an hour

The compiler is the stable one: libFuzzer's coverage comes from flags that it has (cover.sh). The corpus begins with the captured replies of real
servers (tests/wire/captured), the regressions, and the example files of datasets and templates; it grows in fuzz/corpus, which git ignores. Linux,
Python 3.9 or later, a C++ compiler; exits with 77 without one.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
HOST = f"{platform.machine()}-unknown-linux-gnu"
# A reply and its pieces: no cut, one at the end of a usual head, and many small ones.
CUTS = [b"\x00", b"\x01\x80", b"\x0f" + bytes(range(1, 16))]


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("target", nargs="*", help="all of them unless some are named")
    words.add_argument("--seconds", type=int, default=60, help="for each target")
    words.add_argument("--input-seconds", type=int, default=10, help="longest time for one input; more on a machine that is busy or stops the run")
    words.add_argument("--at-once", type=int, default=min(2, os.cpu_count() or 1), help="targets that run side by side")
    words.add_argument("--target-dir", default=os.environ.get("CARGO_TARGET_DIR") or str(ROOT / "target"))
    asked = words.parse_args()
    if platform.system() != "Linux" or not shutil.which("c++"):
        print("Linux and a C++ compiler are needed for libFuzzer")
        return 77
    known = re.findall(r'^path = "fuzz_targets/(\w+)\.rs"', (HERE / "Cargo.toml").read_text(), re.M)
    unknown = sorted(set(asked.target) - set(known))
    if unknown:
        print(f"no such target: {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    # cargo runs in this folder, and the programs are looked for from the caller's: so the path must be whole.
    asked.target_dir = os.path.abspath(asked.target_dir)
    build(asked.target_dir)
    with concurrent.futures.ThreadPoolExecutor(asked.at_once) as pool:
        rows = list(pool.map(lambda name: run(name, asked), asked.target or known))
    print("\n| target | seconds | runs | runs/s | edges | inputs kept | found |\n|---|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    return 1 if any(row[-1] != "nothing" for row in rows) else 0


def build(target_dir):
    wrapped = dict(os.environ, RUSTC_WRAPPER=str(HERE / "cover.sh"))
    command = ["cargo", "build", "--locked", "--profile", "fuzzing", "--target", HOST, "--target-dir", target_dir]
    subprocess.run(command, cwd=HERE, env=wrapped, check=True)


def seeds(name):
    """Inputs to begin with, by file name."""
    replies = {path.name: path.read_bytes() for path in sorted((ROOT / "tests/wire/captured").glob("*.resp"))}
    if name == "response":
        return {f"{file}-{number}": cut + reply for file, reply in replies.items() for number, cut in enumerate(CUTS)}
    if name == "head":
        return replies
    if name == "body":
        return {file: reply.partition(b"\r\n\r\n")[2] for file, reply in replies.items()}
    if name == "sse":
        lines = re.compile(rb"(?:data|event|id|retry)?:[^\r\n]*\r?\n(?:\r?\n)?")
        return {file: b"".join(lines.findall(reply.partition(b"\r\n\r\n")[2])) for file, reply in replies.items()}
    if name == "reply":
        # The first byte picks the dialect; the first four are those with a reading of their own for usual chunks.
        chunks = {file: b"\n".join(re.findall(rb"\{[^\r\n]+\}", reply)[:8]) for file, reply in replies.items()}
        return {f"{file}-{pick}": bytes([pick]) + text for file, text in chunks.items() for pick in range(4)}
    if name == "coded":
        return packed()
    if name == "tunnel":
        answers = [b"200 Connection established\r\nVia: a", b"407 Who\r\nContent-Length: 2\r\n\r\nno", b"100 Continue\r\n\r\nHTTP/1.1 204 x"]
        return {f"{number}-{cut[0]}": cut + b"HTTP/1.1 " + text + b"\r\n\r\n" for number, text in enumerate(answers) for cut in CUTS}
    if name == "served":
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
        form = b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nx\r\n--b--\r\n"
        bodies = [b"Content-Length: 2\r\n\r\n{}", b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n2;a\r\n{}\r\n0\r\nX: y\r\n\r\n",
                  b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n%s" % (len(form), form)]
        return {f"{number}-{cut[0]}": cut + (head + body) * 2 for number, body in enumerate(bodies) for cut in CUTS}
    if name == "template":
        # Each template with one of the paths, and a dialogue as messages and as a reply.
        paths = [b"choices[0].message.content", b"/0/content", b"[?role == 'user'] | sort_by(@, &content)[].content[] | join('', @)"]
        dialogues = [json.dumps(one["messages"]).encode() for one in json.loads((ROOT / "tests/template/dialogues.json").read_text()).values()]
        found = {}
        for number, file in enumerate(sorted((ROOT / "tests/template/templates").glob("*.jinja"))):
            for pick, dialogue in enumerate(dialogues[number::3]):
                found[f"{file.stem}-{pick}"] = b"\0".join([file.read_bytes(), paths[pick % len(paths)], dialogue])
        return found
    if name == "dataset":
        files = {path.name: path.read_bytes() for path in sorted((ROOT / "tests/datasets").glob("*.jsonl"))}
        return {f"{file}-{pick}": bytes([pick]) + text for file, text in files.items() for pick in range(0, 20, 3)}
    return {}


def packed():
    """The packed bodies of the wire cases; the first byte names the coding as `Coding::ALL` has it."""
    codings, found = ["gzip", "deflate", "br", "zstd"], {}
    for path in sorted((ROOT / "tests/wire/cases").glob("coding_*.txt")):
        text = path.read_text().partition("--- input\n")[2].partition("--- expect\n")[0].replace("\n", "")
        head, _, body = text.partition(r"\r\n\r\n")
        coding = re.search(r"Content-Encoding: (\w+)", head)
        if coding and coding[1] in codings and r"\*" not in body:
            # The cases have no other escapes than Python's own.
            packed = body.encode().decode("unicode_escape").encode("latin-1")
            if "chunked" in head:
                packed = without_chunks(packed)
            found.update({f"{path.stem}-{cut[0]}": bytes([codings.index(coding[1])]) + cut + packed for cut in CUTS})
    return found


def without_chunks(body):
    plain = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        size = int(size, 16)
        plain, body = plain + rest[:size], rest[size + 2:] if size else b""
    return plain


def run(name, asked):
    corpus, finds = HERE / "corpus" / name, HERE / "artifacts" / name
    for folder in (corpus, finds):
        folder.mkdir(parents=True, exist_ok=True)
    for file, data in seeds(name).items():
        (corpus / f"seed-{file}").write_bytes(data)
    program = pathlib.Path(asked.target_dir) / HOST / "fuzzing" / name
    command = [program, f"-max_total_time={asked.seconds}", f"-timeout={asked.input_seconds}", "-rss_limit_mb=2048", "-print_final_stats=1",
               f"-artifact_prefix={finds}/", corpus]
    regressions = HERE / "regressions" / name
    if regressions.is_dir():
        command.append(regressions)
    begin = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    seconds = time.monotonic() - begin
    text = done.stdout.decode(errors="replace")
    number = lambda pattern: int((re.findall(pattern, text) or ["0"])[-1])
    runs, edges = number(r"stat::number_of_executed_units:\s*(\d+)"), number(r"cov: (\d+)")
    if done.returncode:
        print(f"--- {name}\n{text[-6000:]}")
    found = "nothing" if done.returncode == 0 else f"exit code {done.returncode}, see {finds.relative_to(ROOT)}"
    return name, round(seconds), f"{runs:,}", f"{runs / max(seconds, 1):,.0f}", f"{edges:,}", number(r"corp: (\d+)/"), found


if __name__ == "__main__":
    sys.exit(main())
