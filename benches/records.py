"""The client's records: when it says that events came, and when it sent.

In: `profile_export_raw.jsonl` and `profile_export.jsonl`, of tokenring or of AIPerf. Out: one record for each request, with all
stamps of its content events, in nanoseconds of CLOCK_MONOTONIC. Never: the server's log.

Which request of the server a record is about stands in the reply itself: the built-in server writes its own number of the request,
in hexadecimal, into the `id` of every event (`chatcmpl-000000000000002a`). So no order and no clock is needed to match the two.
"""
import dataclasses
import json
import pathlib
import typing

RAW, RECORDS, SUMMARY = "profile_export_raw.jsonl", "profile_export.jsonl", "profile_export_aiperf.json"

# Names of a stamp here, and of the field of a read that holds it. `arrival` is the one that the metrics used.
STAMPS = {"arrival": "perf_ns", "kernel": "kernel_perf_ns", "user": "user_perf_ns", "parsed": "parsed_perf_ns"}


class RecordError(Exception):
    """A file that cannot be read, with file, line and what would be right."""


@dataclasses.dataclass
class Record:
    """One request of the profiling phase as the client saw it."""

    name: str
    # The server's number of it; None when no reply came.
    number: typing.Optional[int]
    start: int
    # The stamp before the first byte was handed to the kernel, and when it was meant to be; None where the tool does not say.
    first_byte: typing.Optional[int] = None
    due: typing.Optional[int] = None
    # A connection was opened for it.
    opened: bool = False
    # Of each content event, by the names of STAMPS; a list is missing where the file has no such stamp.
    stamps: dict = dataclasses.field(default_factory=dict)
    # Which read brought each content event; empty where the file does not say.
    reads: list = dataclasses.field(default_factory=list)
    error: typing.Optional[str] = None

    def shared(self):
        """For each content event whether it came with another one in one read. Where the file does not number the reads, equal
        stamps tell."""
        keys = self.reads or self.stamps.get("arrival", [])
        counts = {}
        for key in keys:
            counts[key] = counts.get(key, 0) + 1
        return [counts[key] > 1 for key in keys]


def lines(path):
    """The JSON of each line; raises RecordError."""
    path = pathlib.Path(path)
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise RecordError(f"{path}:{number}: not JSON: {error}") from None


def profiling(metadata):
    return metadata.get("benchmark_phase", "profiling") == "profiling"


def read(folder):
    """The records of a run that was exported at level `raw`; raises RecordError."""
    path = pathlib.Path(folder) / RAW
    if not path.exists():
        raise RecordError(f"{path} does not exist; the run must have `--export-level raw`")
    sends = sends_of(folder)
    return [record(line, sends) for line in lines(path) if profiling(line["metadata"])]


def record(line, sends):
    """One line of the raw export. `sends` is what the other file says of the send, relative to the start; it fills in for a line that
    does not say it itself, as AIPerf's do not."""
    name, start = line["metadata"]["x_request_id"], line["start_perf_ns"]
    made = Record(name, None, start, error=(line.get("error") or {}).get("type"))
    said = line.get("stamps") or {}
    first_byte, due, opened = sends.get(name, (None, None, False))
    made.first_byte = said.get("first_byte_sent_perf_ns", None if first_byte is None else start + first_byte)
    made.due = said.get("due_perf_ns", None if due is None else start + due)
    made.opened = opened or "connect_start_perf_ns" in said
    reads = line.get("reads") or []
    for response in line.get("responses") or []:
        number, is_content = content(response)
        made.number = made.number if number is None else number
        if is_content:
            read_index = response.get("read")
            stamped = response if read_index is None else reads[read_index]
            for stamp, field in STAMPS.items():
                if stamped.get(field) is not None:
                    made.stamps.setdefault(stamp, []).append(stamped[field])
            if read_index is not None:
                made.reads.append(read_index)
    # A stamp that only some events have cannot be laid beside the server's.
    full = len(made.stamps.get("arrival", []))
    made.stamps = {stamp: values for stamp, values in made.stamps.items() if len(values) == full}
    return made


def content(response):
    """The server's number of the request in an event, and whether the event has text."""
    for packet in response.get("packets") or []:
        value = packet.get("value") or ""
        if packet.get("name") != "data" or not value.startswith("{"):
            continue
        try:
            event = json.loads(value)
        except ValueError:
            continue
        choices = event.get("choices") or [{}]
        text = (choices[0].get("delta") or {}).get("content") or choices[0].get("text")
        return request_number(event.get("id")), bool(text)
    return None, False


def request_number(reply_id):
    """`chatcmpl-000000000000002a` is 42; None for an id of another shape."""
    try:
        return int(str(reply_id).rpartition("-")[2], 16)
    except ValueError:
        return None


def sends_of(folder):
    """For each request the first byte's time and the intended time, relative to its start, and whether a connection was opened for it,
    from `profile_export.jsonl`; first and last need `--export-http-trace`. The file's clock is the wall's, so only differences
    within one line are used."""
    path = pathlib.Path(folder) / RECORDS
    if not path.exists():
        return {}
    sends = {}
    for line in lines(path):
        metadata, trace = line["metadata"], line.get("trace_data") or {}
        start = metadata.get("request_start_ns")
        if start is not None and profiling(metadata):
            sent, due = trace.get("request_send_start_ns"), metadata.get("credit_issued_ns")
            sent, due = (None if at is None else at - start for at in (sent, due))
            sends[metadata["x_request_id"]] = sent, due, "tcp_connect_start_ns" in trace
    return sends


def values(folder, tag):
    """A metric of each profiling record, by the request's id."""
    found = {}
    for line in lines(pathlib.Path(folder) / RECORDS):
        if profiling(line["metadata"]) and tag in line.get("metrics", {}):
            found[line["metadata"]["x_request_id"]] = line["metrics"][tag]["value"]
    return found


def phases(folder):
    """How many records each phase has, by its name."""
    counts = {}
    for line in lines(pathlib.Path(folder) / RECORDS):
        phase = line["metadata"].get("benchmark_phase", "profiling")
        counts[phase] = counts.get(phase, 0) + 1
    return counts


def summary(folder):
    """`profile_export_aiperf.json`."""
    path = pathlib.Path(folder) / SUMMARY
    if not path.exists():
        raise RecordError(f"{path} does not exist; did the run end?")
    return json.loads(path.read_text(encoding="utf-8"))
