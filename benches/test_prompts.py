"""Tests of `prompts.py`: what it reads from a log.

In: made-up logs. Out: a verdict. Never: a run of a tool.
"""
import unittest

import prompts


class Logs(unittest.TestCase):
    def test_making_ends_where_the_dataset_is_told(self):
        log = (
            "2026-12-02T17:00:01.250000Z INFO tokenring 0.1.0: tokenring profile\n"
            "2026-12-02T17:00:02.000000Z WARNING something\n"
            "2026-12-02T17:00:04.750000Z DEBUG dataset: 10 conversations, seed 1\n"
            "2026-12-02T17:00:09.000000Z INFO driver: ring\n")
        self.assertAlmostEqual(prompts.moments(log), 3.5)

    def test_a_log_without_a_dataset_says_nothing(self):
        self.assertIsNone(prompts.moments("2026-12-02T17:00:01Z INFO a\n"))

    def test_a_row_tells_tokens_per_second(self):
        cells = prompts.row("t", "gpt2", 1_000, 8_192, {"seconds": 2.0, "peak": 3 * 2**20})
        self.assertEqual(cells[-3:], ["2.00", "4,096,000", "3 MiB"])


if __name__ == "__main__":
    unittest.main()
