"""Tests of `burst.py`: what it makes of the stamps of a burst.

In: made-up records. Out: a verdict. Never: a process.
"""
import unittest

import burst
import records


class Spread(unittest.TestCase):
    def test_it_goes_from_the_first_send_to_the_last(self):
        taken = [records.Record(str(at), None, 0, first_byte=at) for at in (5_000, 2_000, 9_500)]
        self.assertEqual(burst.spread_us(taken), 7.5)

    def test_a_send_without_a_stamp_is_no_spread(self):
        taken = [records.Record("a", None, 0, first_byte=1), records.Record("b", None, 0)]
        self.assertIsNone(burst.spread_us(taken))
        self.assertIsNone(burst.spread_us([]))


if __name__ == "__main__":
    unittest.main()
