"""Tests of `peers/run.py` without any peer: what it makes of their files, and what it asks of them.

In: small result files and logs. Out: a verdict. Never: a process.
"""
import argparse
import importlib.util
import json
import pathlib
import tempfile
import unittest

import rig
import server_log

SCRIPT = pathlib.Path(__file__).resolve().parent / "peers" / "run.py"
SPEC = importlib.util.spec_from_file_location("peers_run", SCRIPT)
peers = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(peers)

HEADER = "# connection request event monotonic_ns due_ns sent_ns received_ns\n"
SCENARIO = peers.Scenario(streams=2, tokens=2, itl_ms=10, ttft_ms=50, requests=2, rate=None)


class Peers(unittest.TestCase):
    def setUp(self):
        passing = tempfile.TemporaryDirectory()
        self.addCleanup(passing.cleanup)
        self.folder = pathlib.Path(passing.name)

    def log(self, text):
        (self.folder / "server.log").write_text(text)
        return server_log.read(self.folder / "server.log")

    def test_vllm_bench_says_seconds_and_milliseconds(self):
        (self.folder / "result.json").write_text(json.dumps({
            "completed": 2, "mean_ttft_ms": 51.0, "p99_ttft_ms": 53.0, "std_itl_ms": 0.5, "p99_itl_ms": 11.0,
            "itls": [[0.010], [0.0125, 0.009]], "ttfts": [0.05, 0.052]}))
        reported = peers.VllmBench("vllm-bench", "gpt2").reported(self.folder)
        self.assertEqual(reported, {"ttft_mean": 51.0, "ttft_p99": 53.0, "itl_sd": 0.5, "itl_p99": 11.0, "itl_max": 12.5, "requests": 2})

    def test_profilers_say_milliseconds(self):
        first, gap = {"avg": 51.0, "p99": 53.0}, {"std": 0.5, "p99": 11.0, "max": 12.5}
        summary = {"time_to_first_token": first, "inter_chunk_latency": gap, "request_count": {"avg": 2.0}}
        (self.folder / "profile_export_aiperf.json").write_text(json.dumps(summary))
        reported = peers.Profiler("tokenring", "tokenring").reported(self.folder)
        self.assertEqual(reported, {"ttft_mean": 51.0, "ttft_p99": 53.0, "itl_sd": 0.5, "itl_p99": 11.0, "itl_max": 12.5, "requests": 2})

    def test_the_server_in_the_same_words(self):
        ms = 1_000_000
        rows = [(1, 0, 50 * ms, 0), (1, 1, 61 * ms, 0), (2, 0, 152 * ms, 100 * ms), (2, 1, 161 * ms, 100 * ms)]
        lines = [f"1 {request} {event} {sent} {sent} {sent} {received}\n" for request, event, sent, received in rows]
        log = self.log(HEADER + "".join(lines))
        truth = peers.served(log, SCENARIO)
        self.assertEqual((truth["ttft_mean"], truth["ttft_known"], truth["itl_sd"], truth["itl_max"]), (51, True, 1, 11))
        self.assertEqual((truth["requests"], truth["tokens"]), (2, 4))
        cost = rig.Cost()
        cost.cpu_s, cost.wall_s, cost.peak_bytes = 0.5, 2.0, 3 << 20
        reported = {"ttft_mean": 54.0, "ttft_p99": 60.0, "itl_sd": 2.0, "itl_p99": 20.0, "itl_max": None, "requests": 2}
        made = peers.numbers(reported, log, cost, SCENARIO, 0.1)
        self.assertEqual((made["ttft_mean_error"], made["cpu_ns_per_token"], made["peak_mib"]), (3, 125e6, 3))
        self.assertAlmostEqual(made["cpu_ns_per_token_beyond_start"], 100e6)
        self.assertEqual(len(peers.line("x", [made])), len(peers.COLUMNS))

    def test_without_receipts_the_plan_stands_for_the_servers_time(self):
        log = self.log("# connection request event monotonic_ns\n1 1 0 5\n")
        self.assertEqual(peers.served(log, SCENARIO)["ttft_mean"], 50)
        run = {"server_ttft_known": False, "server_requests": 1, "reported_requests": 2}
        said = list(peers.notes({"x": [run]}, SCENARIO))
        self.assertEqual(len(said), 2, said)

    def test_loads(self):
        given = argparse.Namespace(loads=["100x100x10"], ttft=50.0, rounds=5, start="rate")
        scenario, = peers.scenarios(given)
        self.assertEqual((scenario.streams, scenario.tokens, scenario.itl_ms, scenario.requests), (100, 100, 10, 500))
        self.assertAlmostEqual(scenario.rate, 100 / 1.03)
        given.start = "closed"
        self.assertIsNone(peers.scenarios(given)[0].rate)
        for text in ("100x100", "0x1x1", "100x1x10", "ax2x3"):
            given.loads = [text]
            with self.subTest(text), self.assertRaisesRegex(rig.RigError, "--loads"):
                peers.scenarios(given)

    def test_all_tools_are_asked_for_the_same_work(self):
        for rate in (None, 97.5):
            scenario = peers.Scenario(100, 64, 10, 50, 500, rate)
            for tool in (peers.Profiler("tokenring", "tokenring"), peers.VllmBench("vllm-bench", "gpt2")):
                words = [str(word) for word in tool.command("http://127.0.0.1:1", self.folder / "out", scenario, "records")]
                with self.subTest(tool=tool.name, rate=rate):
                    self.assertEqual(("97.500000" in words, "100" in words), (rate is not None, rate is None))
                    self.assertLessEqual({"64", "500", "20"}, set(words))


if __name__ == "__main__":
    unittest.main()
