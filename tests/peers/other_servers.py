#!/usr/bin/env python3
"""Run tokenring against servers that others wrote: aimock, and LiteLLM's proxy in front of it. See README.md."""
import argparse
import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "real_server"))
from served import Served  # noqa: E402

AIMOCK = "@copilotkit/aimock@1.43.0"
LITELLM = "litellm[proxy]==1.74.3"
SKIPPED = 77
PLAIN, THOUGHT, ANSWER, CUT = ("The tide turns at nine, and the ferry waits for nobody.", "The tide table says nine, so nine it is.", "Nine.",
                               "This answer was cut")
CALL = '{"place":"Lisbon"}'
USAGE = {"prompt_tokens": 11, "completion_tokens": 13, "total_tokens": 24, "input_tokens": 11, "output_tokens": 13}
FIXTURES = {"fixtures": [
    {"match": {"userMessage": "plain"}, "response": {"content": PLAIN, "usage": USAGE}},
    {"match": {"userMessage": "think"}, "response": {"content": ANSWER, "reasoning": THOUGHT}},
    {"match": {"userMessage": "call"}, "response": {"toolCalls": [{"name": "get_weather", "arguments": json.loads(CALL)}]}},
    {"match": {"userMessage": "cut"}, "response": {"content": CUT, "finishReason": "length"}},
    {"match": {"userMessage": "fault"}, "response": {"error": {"message": "Slow down", "type": "rate_limit_error"}, "status": 429}},
]}
WORDS = ["plain", "think", "call", "cut", "fault"]
CONFIG = """model_list:
  - {model_name: chatting, litellm_params: {model: openai/m, api_key: none, api_base: "URL/v1"}}
  - {model_name: claude, litellm_params: {model: anthropic/claude-sonnet-4, api_key: none, api_base: "URL"}}
  - {model_name: mocked, litellm_params: {model: openai/gpt-4o, api_key: none, mock_response: "The tide turns at nine."}}
"""
# How an API names the ends of: a whole answer, a call, a cut answer.
ENDS = {"chat": ("stop", "tool_calls", "length"), "responses": ("completed", "completed", "incomplete"),
        "messages": ("end_turn", "tool_use", "max_tokens")}
# What of a server is another matter than its API says; each was seen with curl.
ODD = {
    # Reasoning of a chat model is not passed on in the words of messages.
    ("litellm", "chatting", "messages", "think"): {"text": ANSWER, "reasoning": 0},
    # The limit is forgotten, and a call's arguments are written anew.
    ("litellm", "claude", "responses", "cut"): {"finish": "completed"},
    ("litellm", "claude", "chat", "call"): {"text": 'get_weather{"place": "Lisbon"}'},
    ("litellm", "claude", "chat --streaming", "call"): {"text": "get_weather" + CALL},
    ("litellm", "claude", "responses", "call"): {"text": 'get_weather{"place": "Lisbon"}'},
    ("litellm", "claude", "responses --streaming", "call"): {"text": "get_weather" + CALL},
    # The text after the reasoning has the index of another choice, so it is counted and is not the first choice's.
    ("litellm", "claude", "chat --streaming", "think"): {"text": THOUGHT},
}
# LiteLLM's API for responses refuses aimock's, and its mock answers cannot be streamed there: an error, and no success.
BROKEN = {("litellm", "chatting", "responses"), ("litellm", "chatting", "responses --streaming"), ("litellm", "mocked", "responses --streaming"),
          ("litellm", "mocked", "messages --streaming")}


def skip(message):
    print(f"skipped: {message}")
    sys.exit(SKIPPED)


def command(words):
    print("+", shlex.join(map(str, words)), flush=True)
    return subprocess.run([str(word) for word in words], check=False).returncode


def install(work):
    """The servers' command lines, up to their ports."""
    script = work / "node_modules/@copilotkit/aimock/dist/cli.js"
    if not script.exists():
        if not shutil.which("npm"):
            skip("npm is needed for aimock")
        if command(["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", work, AIMOCK]):
            skip(f"{AIMOCK} cannot be installed")
    proxy = work / "venv/bin/litellm"
    if not proxy.exists():
        venv.create(work / "venv", with_pip=True)
        if command([work / "venv/bin/python", "-m", "pip", "install", "-q", LITELLM]):
            skip(f"{LITELLM} cannot be installed")
    (work / "fixtures.json").write_text(json.dumps(FIXTURES))
    (work / "words.jsonl").write_text("".join(json.dumps({"text": word, "output_length": 50}) + "\n" for word in WORDS))
    aimock = ["node", script, "-h", "127.0.0.1", "-f", work / "fixtures.json", "-p"]
    return aimock, [proxy, "--config", work / "config.yaml", "--host", "127.0.0.1", "--telemetry", "False", "--port"]


def run(tool, url, model, endpoint, work):
    """Records by word, with the texts of the replies in them, and the summary."""
    folder = work / "out"
    shutil.rmtree(folder, ignore_errors=True)
    words = [*tool, "--model", model, "--tokenizer", "gpt2", "--url", url, "--endpoint-type", *endpoint.split(), "--input-file",
             str(work / "words.jsonl"), "--custom-dataset-type", "single_turn", "--concurrency", "1", "--request-count", str(len(WORDS)),
             "--random-seed", "1", "--ui", "none", "--export-outputs-json", "--artifact-dir", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    outputs = json.loads((folder / "outputs.json").read_text(encoding="utf-8"))["data"]
    texts = {entry["x_request_id"]: entry["response_text"] for entry in outputs}
    records = [json.loads(line) for line in (folder / "profile_export.jsonl").read_text(encoding="utf-8").splitlines()]
    for record in records:
        record["text"] = texts.get(record["metadata"]["x_request_id"])
    records.sort(key=lambda record: record["metadata"]["session_num"])
    return dict(zip(WORDS, records)), done.returncode


def expected(server, model, endpoint, word):
    """What a record must say of the reply to `word`."""
    whole, call, cut = ENDS[endpoint.split()[0]]
    want = {
        "plain": {"text": PLAIN, "finish": whole, "usage": (11, 13), "reasoning": 0},
        "think": {"text": THOUGHT + ANSWER, "finish": whole, "reasoning": 11},
        "call": {"text": "get_weather" + CALL, "finish": call, "reasoning": 0},
        "cut": {"text": CUT, "finish": cut, "reasoning": 0},
    }[word]
    if model == "mocked":
        want = {"text": "The tide turns at nine.", "finish": whole}
        if endpoint.startswith("responses"):
            want = {"finish": whole}
    plain = ODD.get((server, model, endpoint.split()[0], word), {})
    return want | plain | ODD.get((server, model, endpoint, word), {})


def seen(record, streaming):
    values = {tag: metric["value"] for tag, metric in record["metrics"].items()}
    found = {"text": record["text"], "finish": record["metadata"].get("finish_reason"), "error": bool(record.get("error")),
             "usage": (values.get("usage_prompt_tokens"), values.get("usage_completion_tokens")),
             "reasoning": values.get("reasoning_token_count", 0), "output": values.get("output_sequence_length", 0) > 0}
    return found | {"first token": ("time_to_first_token" in values) == streaming}


def check(server, model, endpoint, records, code):
    """The faults of one run, as sentences."""
    faults = []
    broken = (server, model, endpoint) in BROKEN
    if len(records) != len(WORDS) or code != (1 if broken else 0):
        faults.append(f"{len(records)} records, exit code {code}")
    for word, record in records.items():
        if broken or (word == "fault" and model != "mocked"):
            if not record.get("error"):
                faults.append(f"{word}: a success")
            if word == "fault" and not broken and record["error"]["code"] not in (429, 500):
                faults.append(f"{word}: the error is {record['error']}")
            continue
        if word == "fault":
            continue
        found = seen(record, endpoint.endswith("--streaming"))
        want = expected(server, model, endpoint, word) | {"error": False, "output": True, "first token": True}
        faults += [f"{word}: {key} is {found[key]!r}, not {value!r}" for key, value in want.items() if found[key] != value]
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", default="target/release/tokenring profile", help="program and leading arguments")
    parser.add_argument("--work", type=pathlib.Path, help="folder for installs and results (a temporary one)")
    options = parser.parse_args()
    work = (options.work or pathlib.Path(tempfile.mkdtemp(prefix="servers-"))).resolve()
    work.mkdir(parents=True, exist_ok=True)
    aimock, litellm = install(work)
    tool, count = shlex.split(options.tool), 0
    print("| server | model | endpoint | replies | faults |\n|---|---|---|---|---|")
    with Served(aimock, "/health", work / "aimock.log") as mock:
        (work / "config.yaml").write_text(CONFIG.replace("URL", mock))
        with Served(litellm, "/health/liveliness", work / "litellm.log", LITELLM_LOCAL_MODEL_COST_MAP="True") as proxy:
            for server, url, models in (("aimock", mock, ["m"]), ("litellm", proxy, ["mocked", "chatting", "claude"])):
                for model in models:
                    for endpoint in (f"{name}{how}" for name in ENDS for how in ("", " --streaming")):
                        records, code = run(tool, url, model, endpoint, work)
                        faults = check(server, model, endpoint, records, code)
                        print(f"| {server} | {model} | {endpoint} | {len(records)} | {len(faults)} |", *faults, sep="\n  ", flush=True)
                        count += len(faults)
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
