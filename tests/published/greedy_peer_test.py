#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rule by which greedy_peer.py accepts answers that part."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import greedy_peer  # noqa: E402


class GreedyPeer(unittest.TestCase):
    def test_first_difference(self):
        self.assertIsNone(greedy_peer.first_difference([1, 2, 3], [1, 2]))  # one of them ended
        self.assertEqual(greedy_peer.first_difference([1, 2, 3], [1, 5, 3]), 1)
        self.assertEqual(greedy_peer.first_difference([7], [8]), 0)

    def test_percentile(self):
        self.assertEqual(greedy_peer.percentile([], 0.99), 0.0)
        self.assertEqual(greedy_peer.percentile([3.0], 0.99), 3.0)
        self.assertEqual(greedy_peer.percentile(list(range(1000)), 0.99), 990)

    def test_tokens_without_description(self):
        def described(token):
            return {"id": token, "top_logprobs": [{"id": token, "logprob": -0.1}, {"id": 9, "logprob": -2.0}]}

        best = [(7, -0.1), (9, -2.0)]
        self.assertEqual(greedy_peer.align([5, 7, 6], [described(7)]), [None, best, None])
        self.assertEqual(greedy_peer.align([7], [described(7)]), [best])
        self.assertEqual(greedy_peer.changes_of(([5, 7], [None, best]), ([5, 7], [None, best])), [0.0, 0.0])

    def test_changes_end_where_answers_part(self):
        one = ([1, 2, 3], [[(1, -0.1), (9, -2.0)], [(2, -0.5), (4, -0.6)], [(3, 0.0), (5, -9.0)]])
        other = ([1, 4, 3], [[(1, -0.2), (9, -2.5)], [(4, -0.5), (2, -0.7)], [(3, -5.0), (5, -0.1)]])
        self.assertEqual([round(change, 6) for change in greedy_peer.changes_of(one, other)], [0.1, 0.5, 0.2, 0.1])
        self.assertEqual(len(greedy_peer.changes_of(one, one)), 6)


if __name__ == "__main__":
    unittest.main()
