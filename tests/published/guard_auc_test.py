#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""guard_auc.py on files made by hand."""

import contextlib
import io
import json
import pathlib
import random
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import guard_auc  # noqa: E402


class GuardAuc(unittest.TestCase):
    def run_it(self, questions, *more):
        with tempfile.TemporaryDirectory() as folder:
            done, levels = pathlib.Path(folder) / "done.jsonl", pathlib.Path(folder) / "levels.json"
            lines = [{"settings": {}}]
            for turns in questions:
                distances = {str(i): {"kl": [kl, kl]} | ({} if guard is None else {"guard": guard}) for i, (guard, kl) in enumerate(turns)}
                lines.append({"methods": [{"distances": {}}, {"distances": distances}]})
            done.write_text("".join(json.dumps(line) + "\n" for line in lines))
            levels.write_text(json.dumps({"guard_scale": 0.1}))
            before, sys.argv = sys.argv, ["guard_auc.py", str(done), "--scale", str(levels), *more]
            out = io.StringIO()
            try:
                with contextlib.redirect_stdout(out):
                    code = guard_auc.main()
            finally:
                sys.argv = before
            return code, out.getvalue()

    def test_area(self):
        self.assertEqual(guard_auc.area([(1, 0), (2, 1), (3, 0), (4, 1)], 0.5), 0.75)
        self.assertEqual(guard_auc.area([(1, 0), (1, 1)], 0.5), 0.5)
        self.assertIsNone(guard_auc.area([(1, 0), (2, 0)], 0.5))
        draw = random.Random(1)
        turns = [(draw.randrange(9), draw.random()) for _ in range(60)]
        above, below = [g for g, kl in turns if kl > 0.5], [g for g, kl in turns if kl <= 0.5]
        pairs = sum((a > b) + (a == b) / 2 for a in above for b in below) / (len(above) * len(below))
        self.assertAlmostEqual(guard_auc.area(turns, 0.5), pairs)

    def test_report(self):
        questions = [[(0.1, 0.01), (0.3, 0.05)], [(0.15, 0.03), (None, 9.0)], [(0.19, 0.0), (0.4, 0.2)]]
        code, out = self.run_it(questions)
        self.assertEqual(code, 0)
        self.assertIn("3 questions, 5 turns with a guard, 3 of them above 0.02 nats", out)
        self.assertIn("area under the curve 0.833 (95 %: ", out)
        self.assertIn("computed in full by the guard: 2 of 5; of the 3 that stay, 1 are above (33.3 %)", out)
        code, out = self.run_it(questions, "--tolerance", "7")
        self.assertEqual(code, 1)
        self.assertIn("all turns are on one side", out)


if __name__ == "__main__":
    unittest.main()
