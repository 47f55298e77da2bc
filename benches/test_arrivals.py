"""Tests of `arrivals.py`: what it makes of arrival times.

In: made-up times. Out: a verdict. Never: a process.
"""
import random
import unittest

import arrivals


class Laws(unittest.TestCase):
    def test_gaps_are_of_arrivals_in_order(self):
        self.assertEqual(arrivals.gaps_of([3_000_000_000, 1_000_000_000, 1_500_000_000]), [0.5, 1.5])

    def test_arrivals_of_the_warmup_are_left_out_however_many_were_sent(self):
        received = [7, 1, 5, 3, 9]
        self.assertEqual(arrivals.of_profiling(received, {"warmup": 2, "profiling": 3}), [5, 7, 9])
        self.assertEqual(arrivals.of_profiling(received, {"warmup": 1, "profiling": 3}), [3, 5, 7])
        self.assertEqual(arrivals.of_profiling(received, {"profiling": 5}), [1, 3, 5, 7, 9])

    def test_both_tools_are_judged_by_what_arrived_and_ours_by_its_draw_too(self):
        self.assertAlmostEqual(arrivals.arrived([0, 10_000_000, 20_000_000]), 100)
        middle = {
            "asked": 100.0, "arrived": 99.0, "drawn": 98.0, "achieved": 98.0, "lag_p50_ms": 0.01, "lag_p99_ms": None, "lag_max_ms": 1.0,
            "mean": 1.0, "spread": 0.0, "distance": 0.0}
        line = arrivals.line("tokenring", "constant", middle)
        self.assertEqual(len(line), len(arrivals.COLUMNS))
        self.assertEqual([line[4], line[7]], ["-1.000 %", "+0.000 %"])
        silent = arrivals.line("AIPerf", "constant", {**middle, "drawn": float("nan"), "achieved": float("nan")})
        self.assertEqual([silent[4], silent[5], silent[6], silent[7]], ["-1.000 %", "-", "-", "-"])

    def test_even_gaps_have_no_spread(self):
        mean, spread, off = arrivals.law_of([0.01] * 50, 100, "constant")
        self.assertAlmostEqual(mean, 1)
        self.assertAlmostEqual(spread, 0)
        self.assertAlmostEqual(off, 0)

    def test_exponential_gaps_are_near_their_law_and_even_ones_are_not(self):
        chance = random.Random(1)
        gaps = [chance.expovariate(250) for _ in range(20_000)]
        mean, spread, off = arrivals.law_of(gaps, 250, "poisson")
        self.assertAlmostEqual(mean, 1, delta=0.03)
        self.assertAlmostEqual(spread, 1, delta=0.03)
        self.assertLess(off, 0.012)
        self.assertGreater(arrivals.distance([1 / 250] * 1_000, 250, "poisson"), 0.3)


if __name__ == "__main__":
    unittest.main()
