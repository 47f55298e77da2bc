"""Endpoints, tools and conversations against a real server: each case is a command line and what must hold of its files.

Everything is read from the raw replies again, without tokenring's help: texts, usage, tool calls. Token counts of texts come from the
server's own tokenizer.
"""
import json
import urllib.request

REQUESTS, TOKENS = 6, 12
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"sky": {"type": "string", "enum": ["clear", "rain"]}}, "required": ["sky"]}}}
# A call is asked for by its first token, and ended by the end of the turn.
CALLING = json.dumps({"tool_choice": "required", "logit_bias": [[50259, 25], [50258, 27]]})
TALKS = [
    {"session_id": "a", "turns": [{"role": "system", "text": "You are a clerk."}, {"text": "One?", "output_length": 8},
                                  {"text": "Two?", "output_length": 9, "delay": 50}, {"text": "Three?", "output_length": 10}]},
    {"session_id": "b", "turns": [{"text": "Alpha?", "output_length": 7}, {"text": "Beta?", "output_length": 7}]},
]
CALLS = [{"messages": [{"role": "user", "content": f"How is the sky over port {n}?"}], "tools": [WEATHER], "output_length": 64} for n in range(4)]
# Where each API tells the tokens of the input and the output, and how it names an end by length.
API = {
    "chat": ("prompt_tokens", "completion_tokens", "length"),
    "completions": ("prompt_tokens", "completion_tokens", "length"),
    "responses": ("input_tokens", "output_tokens", "completed"),
    "messages": ("input_tokens", "output_tokens", "max_tokens"),
}
MADE_UP = ["--isl", "40", "--osl", str(TOKENS), "--request-count", str(REQUESTS), "--extra-inputs", "ignore_eos:true"]
# Name, endpoint, flags, the check, and what it wants to know.
CASES = [
    *((f"{endpoint}{'-stream' * bool(stream)}-usage", endpoint, [*stream, *MADE_UP, "--use-server-token-count"], "lengths", None)
      for endpoint in API for stream in (["--streaming"], [])),
    *((f"{endpoint}-stream-client", endpoint, ["--streaming", *MADE_UP], "truth", None) for endpoint in API),
    ("completions-client", "completions", MADE_UP, "truth", None),
    ("completions-choices", "completions", ["--streaming", *MADE_UP, "--extra-inputs", "n:2"], "choices", 2),
    ("chat-choices", "chat", ["--streaming", *MADE_UP, "--extra-inputs", "n:3"], "choices", 3),
    ("chat-calls-stream", "chat", ["--streaming", "--input-file", "calls.jsonl", "--custom-dataset-type", "mooncake_trace",
                                   "--request-count", "4", "--extra-inputs", CALLING], "calls", 4),
    ("chat-calls", "chat", ["--input-file", "calls.jsonl", "--custom-dataset-type", "mooncake_trace",
                            "--request-count", "4", "--extra-inputs", CALLING], "calls", 4),
    *((f"{endpoint}{'-stream' * bool(stream)}-talks", endpoint,
       [*stream, "--input-file", "talks.jsonl", "--custom-dataset-type", "multi_turn", "--num-conversations", "2"], "talks", 5)
      for endpoint in ("chat", "responses", "messages") for stream in (["--streaming"], [])),
]
EMBEDDING = ("embeddings", "embeddings", ["--isl", "40", "--request-count", str(REQUESTS)], "embeddings", None)


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def objects(raw):
    """The JSON objects of a raw reply, in order."""
    for response in raw["responses"]:
        if "text" in response:
            yield json.loads(response["text"])
        for packet in response.get("packets", []):
            value = (packet.get("value") or "").strip()
            if packet["name"] == "data" and value != "[DONE]":
                yield json.loads(value)


def texts(raw):
    """Text by choice."""
    said = {}
    for item in objects(raw):
        for choice in item.get("choices", []):
            part = choice.get("delta") or choice.get("message") or choice
            text = part.get("content") if "text" not in choice else choice["text"]
            said[choice["index"]] = said.get(choice["index"], "") + (text or "")
        kind = item.get("type", "")
        parts = [part for output in item.get("output", []) for part in output.get("content", [])]
        parts += item["content"] if isinstance(item.get("content"), list) else []
        if kind == "response.output_text.delta":
            parts = [{"text": item["delta"]}]
        elif kind == "content_block_delta":
            parts = [item["delta"]]
        for part in parts:
            said[0] = said.get(0, "") + part.get("text", "")
    return said


def usage(raw):
    """The usage of a reply, later values over earlier ones; tokens from a cache are part of the input."""
    found = {}
    for item in objects(raw):
        for place in (item, item.get("message"), item.get("response")):
            if isinstance(place, dict) and isinstance(place.get("usage"), dict):
                found |= place["usage"]
    if "cache_read_input_tokens" in found:
        found["input_tokens"] += found["cache_read_input_tokens"]
    return found


def calls(raw):
    """Names and arguments of the tool calls of a chat reply."""
    found = {}
    for item in objects(raw):
        for choice in item.get("choices", []):
            part = choice.get("delta") or choice.get("message") or {}
            for position, call in enumerate(part.get("tool_calls") or []):
                name, arguments = found.get(call.get("index", position), ("", ""))
                function = call.get("function", {})
                found[call.get("index", position)] = (name + (function.get("name") or ""), arguments + (function.get("arguments") or ""))
    return [found[index] for index in sorted(found)]


class Case:
    """One run's files, and the faults found in them."""

    def __init__(self, name, endpoint, folder, url):
        self.name, self.endpoint, self.url, self.faults = name, endpoint, url, 0
        self.records = lines(folder / "profile_export.jsonl")
        self.raws = {raw["metadata"]["x_request_id"]: raw for raw in lines(folder / "profile_export_raw.jsonl")}
        self.summary = json.loads((folder / "profile_export_aiperf.json").read_text(encoding="utf-8"))
        outputs = json.loads((folder / "outputs.json").read_text(encoding="utf-8"))["data"]
        self.outputs = {entry["x_request_id"]: entry["response_text"] for entry in outputs}

    def equal(self, what, ours, theirs):
        if ours != theirs:
            self.faults += 1
            print(f"  {self.name}: {what}: ours {ours!r}, the server's {theirs!r}")

    def count(self, text):
        """Tokens of a text by the server's own tokenizer."""
        body = json.dumps({"content": text, "add_special": False, "parse_special": False}).encode()
        request = urllib.request.Request(f"{self.url}/tokenize", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return len(json.load(answer)["tokens"])

    def whole(self, count):
        self.equal("records", len(self.records), count)
        self.equal("raw records", sorted(self.raws), sorted(record["metadata"]["x_request_id"] for record in self.records))
        errors = [record["error"] for record in self.records if record.get("error")]
        self.equal("errors", errors, [])
        self.equal("requests in the summary", self.summary["request_count"]["avg"], count)

    def each(self):
        for record in self.records:
            name = record["metadata"]["x_request_id"]
            values = {tag: metric["value"] for tag, metric in record["metrics"].items()}
            yield record["metadata"], values, self.raws[name], self.outputs.get(name)

    def finish(self, reason, count):
        self.equal("finish reasons", self.summary.get("finish_reasons"), {reason: count})

    def lengths(self, _):
        """Lengths are the usage in the reply; the text is the one that the raw reply spells."""
        self.whole(REQUESTS)
        prompt, completion, reason = API[self.endpoint]
        for _, values, raw, text in self.each():
            told = usage(raw)
            self.equal("input", values.get("input_sequence_length"), told.get(prompt))
            self.equal("output", values.get("output_sequence_length"), told.get(completion))
            self.equal("usage's input", values.get("usage_prompt_tokens"), told.get(prompt))
            self.equal("tokens asked for", told.get(completion), TOKENS)
            self.equal("text", text, texts(raw)[0])
        self.finish(reason, REQUESTS)

    def truth(self, _):
        """The client's counts against the server's tokenizer, and the difference from usage as the report has it."""
        self.whole(REQUESTS)
        prompt, completion, _ = API[self.endpoint]
        around = set()
        for _, values, raw, _ in self.each():
            told = usage(raw)
            self.equal("input", values["input_sequence_length"], 40)
            self.equal("output", values["output_sequence_length"], self.count(texts(raw)[0]))
            self.equal("usage's output", values["usage_completion_tokens"], told[completion])
            around.add(told[prompt] - values["input_sequence_length"])
        # A template adds the same to every prompt, and to a bare prompt nothing is added.
        self.equal("kinds of templates", len(around), 1)
        if self.endpoint == "completions":
            self.equal("tokens around a prompt", around, {0})

    def choices(self, choices):
        """Output is that of all choices; the text in the files is the first one's."""
        self.whole(REQUESTS)
        for _, values, raw, text in self.each():
            said = texts(raw)
            self.equal("choices", len(said), choices)
            self.equal("output", values["output_sequence_length"], sum(map(self.count, said.values())))
            self.equal("text", text, said[0])

    def calls(self, count):
        """Every reply calls the tool with arguments that its schema allows; the last call may be cut by the limit."""
        self.whole(count)
        for metadata, values, raw, text in self.each():
            found = calls(raw)
            reason = [choice["finish_reason"] for item in objects(raw) for choice in item.get("choices", []) if choice.get("finish_reason")]
            self.equal("finish reason", metadata["finish_reason"], reason[-1])
            self.equal("called", {name for name, _ in found}, {"get_weather"})
            done = found[:-1] if reason[-1] == "length" else found
            self.equal("arguments", {json.loads(arguments)["sky"] in ("clear", "rain") for _, arguments in done}, {True})
            self.equal("text", text, texts(raw).get(0, "") + "".join(name + arguments for name, arguments in found))
            self.equal("output", values["output_sequence_length"] > 3 * len(done), True)

    def talks(self, count):
        """Each turn's body holds what the server really said to the turns before."""
        self.whole(count)
        sessions = {}
        for metadata, _, raw, text in self.each():
            self.equal("text", text, texts(raw)[0])
            sessions.setdefault(metadata["x_correlation_id"], {})[metadata["turn_index"]] = raw
        self.equal("turns of sessions", sorted(map(len, sessions.values())), [2, 3])
        for turns in sessions.values():
            said = [texts(turns[index])[0] for index in sorted(turns)]
            for index in sorted(turns):
                body = turns[index]["payload"]
                history = [flat(m["content"]) for m in body.get("messages") or body["input"] if m["role"] == "assistant"]
                self.equal(f"history of turn {index + 1}", history, said[:index])

    def embeddings(self, _):
        """Vectors without tokens of output; the input as the server counts it, which has nothing around it."""
        self.whole(REQUESTS)
        for _, values, raw, _ in self.each():
            self.equal("input", values["input_sequence_length"], usage(raw)["prompt_tokens"])
            self.equal("output", values.get("output_sequence_length"), None)
            self.equal("vectors", [len(item["embedding"]) > 8 for root in objects(raw) for item in root["data"]], [True])


def flat(content):
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def write_files(work):
    """The datasets of the cases."""
    for name, entries in (("calls.jsonl", CALLS), ("talks.jsonl", TALKS)):
        (work / name).write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")


def command(case, url, work, folder):
    """The command line of a case, after the tool's own words."""
    name, endpoint, flags, _, _ = case
    flags = [str(work / word) if word.endswith(".jsonl") else word for word in flags]
    fixed = [] if endpoint == "embeddings" else ["--extra-inputs", "temperature:0", "--extra-inputs", "seed:1"]
    return ["--model", "tiny", "--url", url, "--endpoint-type", endpoint, "--tokenizer", "gpt2", "--concurrency", "2", "--random-seed", "7",
            "--export-level", "raw", "--export-outputs-json", "--ui", "none", "--artifact-dir", str(folder), *fixed, *flags]


def check(case, folder, url):
    """The number of faults of a finished run."""
    name, endpoint, _, how, want = case
    found = Case(name, endpoint, folder, url)
    getattr(found, how)(want)
    print(f"{name}: {len(found.records)} records, {found.faults} faults")
    return found.faults
