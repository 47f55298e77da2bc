"""A small HTTP server on 127.0.0.1 that keeps every request and answers in the words of four chat APIs.

The answer depends only on the path and on how many answers the request's history holds, so that two programs that ask the same get the
same. With tools in the request it is a call of the first tool until a tool's result has come.
"""
import http.server
import json
import threading
import time


class Kept:
    """A request: its path, headers and body as they came, and the times of its arrival and of its answer's end in seconds."""

    def __init__(self, path, headers, body):
        self.path, self.headers, self.body = path, headers, body
        self.arrived, self.answered = time.monotonic(), None


def answered_already(body):
    """Answers that the history of a chat request holds."""
    said = body.get("messages") or body.get("input") or []
    said = said if isinstance(said, list) else []
    return sum(isinstance(m, dict) and (m.get("role") == "assistant" or m.get("type") == "function_call") for m in said)


def call_wanted(body):
    """The tool that is to be called, or None."""
    last = (body.get("messages") or [{}])[-1]
    if not body.get("tools") or last.get("role") == "tool":
        return None
    tool = body["tools"][0]
    return tool.get("function", tool)["name"]


def chat(body, text, tool):
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": body.get("model")}
    call = tool and {"id": "call_1", "type": "function", "function": {"name": tool, "arguments": "{\"place\": \"Lisbon\"}"}}
    if not body.get("stream"):
        message = {"role": "assistant", "content": None if tool else text} | ({"tool_calls": [call]} if tool else {})
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if tool else "stop"}
        return head | {"object": "chat.completion", "choices": [choice], "usage": usage}
    if tool:
        first = call | {"index": 0, "function": {"name": tool, "arguments": ""}}
        rest = [{"index": 0, "function": {"arguments": part}} for part in ("{\"place\": ", "\"Lisbon\"}")]
        deltas = [{"tool_calls": [part]} for part in (first, *rest)]
    else:
        deltas = [{"content": word} for word in text.split(" ")[:1] + [" " + w for w in text.split(" ")[1:]]]
    deltas[0] = {"role": "assistant"} | deltas[0]
    events = [head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    events.append(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if tool else "stop"}]})
    events.append(head | {"choices": [], "usage": usage})
    return [(None, event) for event in events] + [(None, "[DONE]")]


def completions(body, text, _):
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": body.get("model")}
    if not body.get("stream"):
        return head | {"choices": [{"index": 0, "text": text, "finish_reason": "stop"}], "usage": usage}
    events = [head | {"choices": [{"index": 0, "text": text, "finish_reason": "stop"}]}, head | {"choices": [], "usage": usage}]
    return [(None, event) for event in events] + [(None, "[DONE]")]


def responses(body, text, _):
    usage = {"input_tokens": 7, "output_tokens": 5, "total_tokens": 12}
    item = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}]}
    whole = {"id": "resp_1", "object": "response", "status": "completed", "model": body.get("model"), "output": [item], "usage": usage}
    if not body.get("stream"):
        return whole
    delta = {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0}
    events = [{"type": "response.created", "response": whole | {"status": "in_progress", "output": [], "usage": None}},
              delta | {"delta": text[:4]}, delta | {"delta": text[4:]},
              {"type": "response.completed", "response": whole}]
    return [(event["type"], event) for event in events]


def messages(body, text, _):
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model")}
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    if not body.get("stream"):
        return head | end | {"content": [{"type": "text", "text": text}], "usage": {"input_tokens": 7, "output_tokens": 5}}
    begun = head | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 7, "output_tokens": 1}}
    delta = {"type": "content_block_delta", "index": 0}
    events = [{"type": "message_start", "message": begun},
              {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
              delta | {"delta": {"type": "text_delta", "text": text[:4]}}, delta | {"delta": {"type": "text_delta", "text": text[4:]}},
              {"type": "content_block_stop", "index": 0},
              {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}}, {"type": "message_stop"}]
    return [(event["type"], event) for event in events]


ANSWERS = {"/v1/chat/completions": chat, "/v1/completions": completions, "/v1/responses": responses, "/v1/messages": messages}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, body, content_type="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send(404, b"{}")

    def do_POST(self):
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kept = Kept(self.path, list(self.headers.items()), text)
        self.server.keep(kept)
        if self.path not in ANSWERS:
            return self.send(404, b"{}")
        body = json.loads(text)
        answer = ANSWERS[self.path](body, f"Answer {answered_already(body) + 1} is here.", call_wanted(body))
        if isinstance(answer, dict):
            self.send(200, json.dumps(answer).encode())
        else:
            events = [(f"event: {name}\n" if name else "") + f"data: {e if isinstance(e, str) else json.dumps(e)}\n\n" for name, e in answer]
            self.send(200, "".join(events).encode(), "text/event-stream")
        kept.answered = time.monotonic()


class RecordingServer(http.server.ThreadingHTTPServer):
    """On a free port, for the length of a `with`; `requests` are in the order of their arrival."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.lock = [], threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def keep(self, kept):
        with self.lock:
            self.requests.append(kept)

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()
