"""The built-in server's log: when it sent what, on CLOCK_MONOTONIC.

In: the file of `tokenring mock-server --log`. Out: for each request its events with their times, in nanoseconds. Never: a guess
about a column; a time that the log does not hold is None, and what is derived says so.

A log is lines of whole numbers. A line that begins with `#` names the columns of the lines after it.
"""
import dataclasses
import pathlib
import typing

# Our names for the log's columns; others are passed over.
COLUMNS = {
    "connection": "connection",
    "request": "request",
    "event": "event",
    # Just before the system call that sent the event, and just after it.
    "monotonic_ns": "sent",
    "sent_ns": "sent_end",
    "due_ns": "due",
    # When the kernel had received the request's last byte, and when the server had read it. Equal where the kernel did not tell.
    "received_ns": "received",
    "read_ns": "read",
}
NEEDED = ("request", "event", "monotonic_ns")


class LogError(Exception):
    """A log that cannot be read, with file, line and what would be right."""


@dataclasses.dataclass
class Request:
    """One request as the server saw it. The lists have one entry for each logged event, in order of the event's index."""

    number: int
    connection: typing.Optional[int] = None
    received: typing.Optional[int] = None
    read: typing.Optional[int] = None
    index: list = dataclasses.field(default_factory=list)
    sent: list = dataclasses.field(default_factory=list)
    due: list = dataclasses.field(default_factory=list)

    def time_to_first(self):
        """From the request's receipt to the first event's send; None when the log does not say when it was received."""
        if self.received is None or not self.index or self.index[0] != 0:
            return None
        return self.sent[0] - self.received

    def is_kernel_stamped(self):
        """The receipt is the kernel's word, and not when the server got round to reading."""
        return None not in (self.received, self.read) and self.received < self.read

    def lateness(self, gap_ns=None):
        """Send minus schedule of each event. Without a schedule in the log, against the request's most punctual event, if the gap
        is known."""
        if self.due:
            return [sent - due for sent, due in zip(self.sent, self.due)]
        if gap_ns is None or not self.sent:
            return []
        offsets = [sent - index * gap_ns for index, sent in zip(self.index, self.sent)]
        return [offset - min(offsets) for offset in offsets]


class ServerLog:
    """All requests of a log by their numbers. `has` says which columns there were."""

    def __init__(self, requests, has):
        self.requests, self.has = requests, has

    def event_count(self):
        return sum(len(request.sent) for request in self.requests.values())


def read(path):
    """Reads a whole log; raises LogError."""
    path = pathlib.Path(path)
    requests, places = {}, None
    with path.open(encoding="ascii", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if line.startswith("#"):
                places = header(path, number, line)
                continue
            words = line.split()
            if not words:
                continue
            if places is None:
                raise LogError(f"{path}:{number}: no line `# columns` stands above the first event")
            if len(words) != len(places):
                raise LogError(f"{path}:{number}: {len(words)} numbers, the header names {len(places)} columns; was the server killed?")
            try:
                row = {place: int(word) for place, word in zip(places, words) if word != "-"}
            except ValueError:
                raise LogError(f"{path}:{number}: not whole numbers: {line.strip()!r}") from None
            add(requests, row)
    if places is None:
        raise LogError(f"{path}: empty; was the server ended before it could write?")
    return ServerLog({number: in_order(request) for number, request in requests.items()}, frozenset(places))


def header(path, number, line):
    """The columns by our names; a column that is not known keeps its own."""
    names = line.lstrip("#").split()
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise LogError(f"{path}:{number}: no column {missing[0]} among {' '.join(names)}")
    return [COLUMNS.get(name, name) for name in names]


def add(requests, row):
    request = requests.get(row["request"])
    if request is None:
        request = requests[row["request"]] = Request(row["request"], row.get("connection"), row.get("received"), row.get("read"))
    request.index.append(row["event"])
    request.sent.append(row["sent"])
    if "due" in row:
        request.due.append(row["due"])


def in_order(request):
    """Threads of a server write their lines in batches; within one request they are in order unless something is odd."""
    if any(a >= b for a, b in zip(request.index, request.index[1:])):
        order = sorted(range(len(request.index)), key=request.index.__getitem__)
        for name in ("index", "sent", "due"):
            column = getattr(request, name)
            setattr(request, name, [column[place] for place in order] if column else [])
    return request
