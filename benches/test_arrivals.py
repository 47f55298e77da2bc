"""Tests of `arrivals.py`: what it makes of arrival times.

In: made-up times. Out: a verdict. Never: a process.
"""
import random
import unittest

import arrivals


class Laws(unittest.TestCase):
    def test_gaps_are_of_arrivals_in_order(self):
        self.assertEqual(arrivals.gaps_of([3_000_000_000, 1_000_000_000, 1_500_000_000]), [0.5, 1.5])

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
