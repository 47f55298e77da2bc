"""Lays the client's records beside the server's log.

In: a `ServerLog` and `Record`s. Out: differences of their times, in nanoseconds, and counts of what has no counterpart. Never: a
difference of two events that are not known to be the same; a request of which events are lost gives none.
"""
import dataclasses
import math


@dataclasses.dataclass
class Joined:
    """Every list is of pairs or triples that begin with the server's time, so that a window can be cut out."""

    # (sent, stamp - sent, whether its read brought others too) of each event. A shared read has one stamp, the newest event's.
    errors: list = dataclasses.field(default_factory=list)
    # (received, the client's time to the first token, the server's, the request's way) of each request: from the first byte sent to
    # the first event's stamp, from the receipt to that event's send, and from the first byte sent to the receipt.
    firsts: list = dataclasses.field(default_factory=list)
    # (sent, the client's gap, the server's gap) of each event but the first.
    gaps: list = dataclasses.field(default_factory=list)
    # Events that the log has and the records do not.
    lost: int = 0
    # Events that the records have and the log does not.
    unknown: int = 0
    # Records that name no request of the log: nothing came, or it came from elsewhere.
    unmatched: int = 0
    # Requests of the log without a record.
    unrecorded: int = 0
    # Content events that came with another one in one read.
    shared: int = 0
    events: int = 0

    def window(self, begin, end):
        """The same without what the server did outside `begin..=end`; counts stay."""
        inside = {name: [row for row in getattr(self, name) if begin <= row[0] <= end] for name in ("errors", "firsts", "gaps")}
        return dataclasses.replace(self, **inside)


def join(log, records, stamp="arrival"):
    """Matches by the request's number and the event's index. `stamp` is a name of `records.STAMPS`."""
    joined, seen = Joined(), set()
    for record in records:
        request = log.requests.get(record.number)
        stamps = record.stamps.get(stamp, [])
        joined.events += len(stamps)
        shared = record.shared()
        joined.shared += sum(shared)
        if request is None or record.number in seen:
            joined.unmatched += 1
            joined.unknown += len(stamps)
            continue
        seen.add(record.number)
        lost = sum(index >= len(stamps) for index in request.index)
        joined.lost += lost
        # A log may have one line for several events that were written at once; what lies beyond its last line is not surplus then.
        whole = len(request.index) == request.index[-1] + 1
        joined.unknown += max(0, len(stamps) - len(request.index)) if whole else 0
        if lost == 0:
            compare(joined, request, record, stamps, shared)
    for number, request in log.requests.items():
        if number not in seen:
            joined.unrecorded += 1
            joined.lost += len(request.index)
    return joined


def compare(joined, request, record, stamps, shared):
    """The differences of one request, none of whose events is lost."""
    before = None
    for index, sent in zip(request.index, request.sent):
        joined.errors.append((sent, stamps[index] - sent, shared[index]))
        if before is not None and before[0] + 1 == index:
            joined.gaps.append((sent, stamps[index] - stamps[before[0]], sent - before[1]))
        before = (index, sent)
    truth = request.time_to_first()
    if truth is not None and record.first_byte is not None and stamps:
        way = request.received - record.first_byte
        joined.firsts.append((request.received, stamps[0] - record.first_byte, truth, way))


def plateau(log):
    """When the load was whole: from the first reply's end to the last request. None when there is no such time."""
    requests = [request for request in log.requests.values() if request.sent]
    if not requests:
        return None
    begin = min(request.sent[-1] for request in requests)
    end = max(request.received if request.received is not None else request.sent[0] for request in requests)
    return (begin, end) if begin < end else None


def percentile(values, percent):
    """Linear between the two nearest ranks, as NumPy and AIPerf have it; NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def mean(values):
    return math.fsum(values) / len(values) if values else math.nan


def deviation(values):
    """Standard deviation over all values (divided by their number, as AIPerf does)."""
    if not values:
        return math.nan
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / len(values))


def deviation_beyond(ours, theirs):
    """How much wider than the server's the client's spread is: the root of the difference of variances, negative when it is
    narrower."""
    difference = ours * ours - theirs * theirs
    return math.copysign(math.sqrt(abs(difference)), difference)


def spread_rate(streams, reply_s, gap_s):
    """A rate near `streams` / `reply_s` requests per second, so that about that many streams are open at any time, chosen so that
    their tokens do not fall together.

    Request k starts k intervals after the first. Let the interval be P / `streams` gaps, with P whole and without a common divisor
    with `streams`: then the starts of any `streams` requests in a row, modulo the gap, are all different and evenly apart. P is the
    number nearest to a reply's length in gaps that will do."""
    if gap_s <= 0:
        return streams / reply_s
    length = reply_s / gap_s
    near = sorted(range(max(1, int(length) - streams), int(length) + streams + 2), key=lambda whole: abs(whole - length))
    whole = next(whole for whole in near if math.gcd(whole, streams) == 1)
    return streams / (whole * gap_s)
