"""Tests of the code that lays records beside the server's log: `python3 -m unittest discover -s benches`.

In: small logs and records as text. Out: a verdict. Never: a process, a clock.
"""
import json
import math
import pathlib
import tempfile
import unittest

import join
import records
import rig
import server_log

OLD_HEADER = "# connection request event monotonic_ns\n"
HEADER = "# connection request event monotonic_ns due_ns sent_ns received_ns\n"


def raw_line(number, stamps, **more):
    """A line of the raw export: a role, one event for each stamp, a finish, usage and the end."""
    def event(at, **fields):
        value = json.dumps({"id": f"chatcmpl-{number:016x}", **fields})
        return {"perf_ns": at, "packets": [{"name": "data", "value": value}]}
    end = stamps[-1] if stamps else 0
    responses = [event(stamps[0] - 10 if stamps else 0, choices=[{"delta": {"role": "assistant", "content": ""}}])]
    responses += [event(at, choices=[{"delta": {"content": " word"}}]) for at in stamps]
    responses += [event(end, choices=[{"delta": {}, "finish_reason": "length"}]), event(end, choices=[], usage={"completion_tokens": 1})]
    responses.append({"perf_ns": end, "packets": [{"name": "data", "value": "[DONE]"}]})
    metadata = {"x_request_id": f"id-{number}", "benchmark_phase": more.pop("phase", "profiling")}
    return {"metadata": metadata, "start_perf_ns": more.pop("start", 0), "responses": responses, **more}


class Folder(unittest.TestCase):
    def setUp(self):
        passing = tempfile.TemporaryDirectory()
        self.addCleanup(passing.cleanup)
        self.folder = pathlib.Path(passing.name)

    def log(self, text):
        path = self.folder / "server.log"
        path.write_text(text)
        return server_log.read(path)

    def write(self, name, lines):
        (self.folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    def records(self, lines):
        self.write(records.RAW, lines)
        return records.read(self.folder)


# A log, the stamps of each request's events, and what is to come out:
# errors, gaps (client, server), lost, unknown, unmatched, unrecorded, shared.
CASES = {
    "all is there": (
        OLD_HEADER + "1 1 0 100\n1 1 1 200\n1 1 2 300\n", {1: [105, 207, 304]},
        [5, 7, 4], [(102, 100), (97, 100)], 0, 0, 0, 0, 0),
    "two requests whose lines are mixed": (
        OLD_HEADER + "1 1 0 100\n2 2 0 150\n1 1 1 200\n2 2 1 250\n", {2: [151, 252], 1: [103, 204]},
        [1, 2, 3, 4], [(101, 100), (101, 100)], 0, 0, 0, 0, 0),
    "two requests on one connection": (
        OLD_HEADER + "7 1 0 100\n7 1 1 200\n7 2 0 300\n7 2 1 400\n", {1: [101, 201], 2: [301, 401]},
        [1, 1, 1, 1], [(100, 100), (100, 100)], 0, 0, 0, 0, 0),
    "a request that lost an event gives no differences": (
        OLD_HEADER + "1 1 0 100\n1 1 1 200\n1 1 2 300\n2 2 0 100\n", {1: [105, 304], 2: [101]},
        [1], [], 1, 0, 0, 0, 0),
    "a request without a record loses all its events": (
        OLD_HEADER + "1 1 0 100\n2 2 0 100\n2 2 1 200\n", {1: [101]},
        [1], [], 2, 0, 0, 1, 0),
    "a record of another server": (
        OLD_HEADER + "1 1 0 100\n", {1: [101], 9: [500, 600]},
        [1], [], 0, 2, 1, 0, 0),
    "more events than were sent": (
        OLD_HEADER + "1 1 0 100\n", {1: [101, 201]},
        [1], [], 0, 1, 0, 0, 0),
    "two of three events share a read": (
        OLD_HEADER + "1 1 0 100\n1 1 1 200\n1 1 2 300\n", {1: [105, 304, 304]},
        [5, 104, 4], [(199, 100), (0, 100)], 0, 0, 0, 0, 2),
    "equal stamps of two requests are no shared read": (
        OLD_HEADER + "1 1 0 100\n2 2 0 100\n", {1: [105], 2: [105]},
        [5, 5], [], 0, 0, 0, 0, 0),
    "lines out of order": (
        OLD_HEADER + "1 1 1 200\n1 1 0 100\n", {1: [101, 202]},
        [1, 2], [(101, 100)], 0, 0, 0, 0, 0),
    "one line for two events written at once": (
        OLD_HEADER + "1 1 0 100\n1 1 2 200\n", {1: [101, 101, 201, 201]},
        [1, 1], [], 0, 0, 0, 0, 4),
    "nothing at all came": (
        OLD_HEADER + "1 1 0 100\n1 1 1 200\n", {1: []},
        [], [], 2, 0, 0, 0, 0),
}


class Join(Folder):
    def test_cases(self):
        for name, (log, stamps, errors, gaps, *counts) in CASES.items():
            with self.subTest(name):
                joined = join.join(self.log(log), self.records([raw_line(number, at) for number, at in stamps.items()]))
                self.assertEqual([error for _, error, _ in joined.errors], errors)
                self.assertEqual([gap[1:] for gap in joined.gaps], gaps)
                self.assertEqual([joined.lost, joined.unknown, joined.unmatched, joined.unrecorded, joined.shared], counts)

    def test_events_in_shared_reads_are_marked(self):
        log = self.log(OLD_HEADER + "1 1 0 100\n1 1 1 200\n1 1 2 300\n")
        joined = join.join(log, self.records([raw_line(1, [201, 201, 302])]))
        self.assertEqual(joined.errors, [(100, 101, True), (200, 1, True), (300, 2, False)])

    def test_time_to_first_token_is_from_the_first_byte_to_the_first_event(self):
        log = self.log(HEADER + "1 1 0 1100 1090 1104 1000\n1 1 1 1200 1190 1204 1000\n")
        self.write(records.RECORDS, [{
            "metadata": {"x_request_id": "id-1", "request_start_ns": 5_000_900, "credit_issued_ns": 5_000_880},
            "trace_data": {"request_send_start_ns": 5_000_990}}])
        taken = self.records([raw_line(1, [1103, 1203], start=900)])
        self.assertEqual((taken[0].first_byte, taken[0].due), (990, 880))
        self.assertEqual(join.join(log, taken).firsts, [(1000, 113, 100, 10)])

    def test_without_a_receipt_or_a_send_there_is_no_time_to_first_token(self):
        taken = self.records([raw_line(1, [105])])
        self.assertEqual(join.join(self.log(HEADER + "1 1 0 100 90 104 50\n"), taken).firsts, [])
        taken[0].first_byte = 40
        self.assertEqual(join.join(self.log(OLD_HEADER + "1 1 0 100\n"), taken).firsts, [])

    def test_a_window_cuts_by_the_servers_time_and_keeps_the_counts(self):
        log = self.log(OLD_HEADER + "1 1 0 100\n1 1 1 200\n1 1 2 300\n2 2 0 1\n")
        part = join.join(log, self.records([raw_line(1, [101, 202, 303])])).window(150, 250)
        self.assertEqual((part.errors, part.gaps, part.lost), ([(200, 2, False)], [(200, 101, 100)], 1))

    def test_the_load_is_whole_from_the_first_end_to_the_last_request(self):
        log = self.log(HEADER + "1 1 0 10 0 0 5\n1 1 1 30 0 0 5\n2 2 0 50 0 0 40\n2 2 1 70 0 0 40\n")
        self.assertEqual(join.plateau(log), (30, 40))
        self.assertIsNone(join.plateau(self.log(HEADER + "1 1 0 10 0 0 5\n")))


class ServerLog(Folder):
    def test_columns_by_their_names_in_any_order(self):
        log = self.log("# event request sent_ns monotonic_ns received_ns due_ns color\n0 3 104 100 50 90 7\n1 3 204 200 50 195 7\n")
        request = log.requests[3]
        self.assertEqual((request.sent, request.due, request.received), ([100, 200], [90, 195], 50))
        self.assertEqual((request.lateness(), request.time_to_first()), ([10, 5], 50))

    def test_whether_the_kernel_told_of_the_receipt(self):
        header = HEADER.replace("received_ns", "received_ns read_ns")
        log = self.log(header + "1 1 0 100 90 104 50 58\n2 2 0 100 90 104 50 50\n")
        self.assertEqual([log.requests[number].is_kernel_stamped() for number in (1, 2)], [True, False])
        self.assertEqual((log.requests[1].received, log.requests[1].time_to_first()), (50, 50))
        self.assertFalse(self.log(HEADER + "1 1 0 100 90 104 50\n").requests[1].is_kernel_stamped())

    def test_lateness_without_a_schedule_is_against_the_most_punctual_event(self):
        request = self.log(OLD_HEADER + "1 1 0 103\n1 1 1 200\n1 1 2 305\n").requests[1]
        self.assertEqual((request.lateness(100), request.lateness()), ([3, 0, 5], []))

    def test_faults_name_the_line(self):
        for text, said in (("1 1 0 100\n", ":1: no line `# columns`"), (HEADER + "1 1 0\n", ":2: 3 numbers, the header names 7"),
                           (OLD_HEADER + "1 1 0 x\n", ":2: not whole numbers"), ("", ": empty"),
                           ("# request event due_ns\n", ":1: no column monotonic_ns")):
            with self.subTest(text), self.assertRaisesRegex(server_log.LogError, said):
                self.log(text)


class Records(Folder):
    def with_reads(self, stamps, reads):
        """A line whose events name their reads; a role is event 0."""
        line = raw_line(4, [read["perf_ns"] for read in (reads[place] for place in stamps)])
        for response, place in zip(line["responses"], [stamps[0], *stamps]):
            response["read"] = place
        return {**line, "reads": reads}

    def test_both_stamps_of_each_event_are_its_reads(self):
        reads = [{"perf_ns": at, "kernel_perf_ns": at, "user_perf_ns": at + 9} for at in (100, 200)]
        record, = self.records([self.with_reads([0, 1, 1], reads)])
        self.assertEqual(record.stamps, {"arrival": [100, 200, 200], "kernel": [100, 200, 200], "user": [109, 209, 209]})
        # The role shares the first event's read; only content counts.
        self.assertEqual((record.reads, record.shared()), ([0, 1, 1], [False, True, True]))

    def test_two_reads_with_one_stamp_are_not_shared(self):
        reads = [{"perf_ns": 100, "user_perf_ns": 101}, {"perf_ns": 100, "user_perf_ns": 102}]
        self.assertEqual(self.records([self.with_reads([0, 1], reads)])[0].shared(), [False, False])

    def test_a_stamp_that_only_some_reads_have_is_left_out(self):
        reads = [{"perf_ns": 100, "kernel_perf_ns": 100, "user_perf_ns": 101}, {"perf_ns": 202, "user_perf_ns": 202}]
        self.assertEqual(set(self.records([self.with_reads([0, 1], reads)])[0].stamps), {"arrival", "user"})

    def test_stamps_of_the_send(self):
        stamps = {"due_perf_ns": 40, "first_byte_sent_perf_ns": 50, "connect_start_perf_ns": 45}
        line = raw_line(1, [100]) | {"stamps": stamps}
        record, = self.records([line])
        self.assertEqual((record.due, record.first_byte, record.opened), (40, 50, True))

    def test_the_trace_fills_in_for_stamps_of_the_send(self):
        self.write(records.RECORDS, [{
            "metadata": {"x_request_id": "id-1", "request_start_ns": 5_000_900, "credit_issued_ns": 5_000_880},
            "trace_data": {"request_send_start_ns": 5_000_990, "tcp_connect_start_ns": 5_000_950}}])
        record, = self.records([raw_line(1, [1103], start=900)])
        self.assertEqual((record.due, record.first_byte, record.opened), (880, 990, True))

    def test_warmup_is_left_out_and_failures_stay(self):
        line = raw_line(2, [], error={"type": "Timeout", "message": ""})
        line["responses"] = []
        taken = self.records([raw_line(1, [100], phase="warmup"), line])
        self.assertEqual([(record.number, record.error) for record in taken], [(None, "Timeout")])

    def test_numbers_of_replies(self):
        for text, number in (("chatcmpl-000000000000002a", 42), ("cmpl-ff", 255), ("other-", None), (None, None)):
            self.assertEqual(records.request_number(text), number, text)

    def test_faults_name_the_file_and_line(self):
        with self.assertRaisesRegex(records.RecordError, "--export-level raw"):
            records.read(self.folder)
        (self.folder / records.RAW).write_text("{\n")
        with self.assertRaisesRegex(records.RecordError, ":1: not JSON"):
            records.read(self.folder)


class Numbers(unittest.TestCase):
    def test_percentiles(self):
        for values, percent, answer in (([5], 99, 5), ([1, 2], 50, 1.5), ([4, 1, 3, 2], 100, 4), (range(101), 99, 99), ([10, 20], 0, 10)):
            self.assertAlmostEqual(join.percentile(list(values), percent), answer)
        self.assertTrue(math.isnan(join.percentile([], 50)))

    def test_spread(self):
        self.assertEqual(join.deviation([1, 3]), 1)
        self.assertEqual((join.deviation_beyond(5, 3), join.deviation_beyond(3, 5)), (4, -4))

    def test_medians_leave_out_what_is_not_there(self):
        runs = [{"a": 1, "b": None, "c": "x"}, {"a": 3, "b": 5, "c": "x"}, {"a": 2, "b": math.nan, "c": "x"}]
        self.assertEqual(rig.medians(runs), {"a": 2, "b": 5})

    def test_streams_do_not_speak_together(self):
        cases = (
            (1000, 2.7, 1 / 75, 0.01), (1000, 2.04, 0.01, 0.01), (100, 1.04, 0.01, 0.01), (100, 2.03, 0.02, 0.01), (2, 1.0, 0.01, 0.011),
            (7, 0.5, 0.01, 0.02), (50, 1.0, 0.5, 0.5))
        for streams, reply_s, gap_s, most_off in cases:
            with self.subTest(streams=streams, reply_s=reply_s, gap_s=gap_s):
                rate = join.spread_rate(streams, reply_s, gap_s)
                self.assertLessEqual(abs(streams / reply_s / rate - 1), most_off)
                phases = sorted(index / rate / gap_s % 1 for index in range(streams))
                for a, b in zip(phases, [*phases[1:], phases[0] + 1]):
                    self.assertAlmostEqual((b - a) * streams, 1, places=6)

    def test_a_table_is_markdown(self):
        self.assertEqual(rig.table(["a", "bb"], [[1, "-"]]), "| a | bb |\n|---|----|\n| 1 | -  |")


if __name__ == "__main__":
    unittest.main()
