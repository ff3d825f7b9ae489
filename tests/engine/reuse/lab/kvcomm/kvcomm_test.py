#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes KVComm's rules from the paper (arXiv 2510.12872), on KV that the engine recorded, and compares.

    kvcomm_test.py BATON_TEST_ENGINE

The program's case "write a run of kvcomm" runs the nano model over fourteen questions and writes the KV of each text, alone
and in its prompt, with what method kvcomm made of it. This file shares no code with the engine. What is compared:

- each decision of the run, the anchors of each pool after it, and how often each was activated: equal;
- the offsets and the KV of the fixed text of each anchor: within one rounding to bf16 (2^-8 of the value);
- distances, weights and entropy, on the KV as it is and scaled down until weights are soft: within 1e-9;
- the mixed offsets and fixed text: within one rounding to bf16.
"""

import array
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

FLOATS = array.array("f")
FLOATS.frombytes(array.array("I", [bits << 16 for bits in range(1 << 16)]).tobytes())


class Text:
    """KV of n tokens: keys[layer][token][channel] before RoPE, and values."""

    def __init__(self, given, widths):
        bits = array.array("H")
        bits.frombytes(bytes.fromhex(given["kv"]))
        if sys.byteorder == "big":
            bits.byteswap()
        self.n, self.bits = given["length"], given["kv"]
        self.keys, self.values, at = [], [], 0
        for width in widths:
            rows = [[FLOATS[one] for one in bits[at + 2 * width * i : at + 2 * width * (i + 1)]] for i in range(self.n)]
            at += 2 * width * self.n
            self.keys.append([row[:width] for row in rows])
            self.values.append([row[width:] for row in rows])
        assert at == len(bits)


def softmax(negative):
    """Softmax of the negated numbers."""
    least = min(negative)
    powers = [math.exp(least - one) for one in negative]
    return [one / sum(powers) for one in powers]


def gate(pool, text, gamma, top_p):
    """Eq. 5, with the distance of the authors' program (predict_as_anchor): the norm of the difference of values over
    layers, heads, tokens and channels, from the first n tokens of the anchors that are at least as long."""
    usable = [i for i, anchor in enumerate(pool) if anchor.n >= text.n]
    distances = [math.sqrt(sum((a - b) ** 2 for mine, other in zip(text.values, pool[i].values) for x, y in zip(mine, other)
                               for a, b in zip(x, y))) for i in usable]  # fmt: skip
    weights = softmax(distances) if usable else []
    entropy = -sum(w * math.log(w) for w in weights if w > 0)
    becomes_anchor = len(usable) <= 1 or entropy > gamma * math.log(len(usable))
    return usable, distances, weights, entropy, becomes_anchor, [] if becomes_anchor else [usable[i] for i in nucleus(weights, top_p)]


def nucleus(weights, top_p):
    """The authors' program: cut behind the last of the sorted weights whose running sum is below top_p; if there is none,
    behind the last weight."""
    order = sorted(range(len(weights)), key=lambda i: -weights[i])
    running = [sum(weights[i] for i in order[: k + 1]) for k in range(len(order))]
    below = [k for k, total in enumerate(running) if total < top_p]
    return order[: below[-1] + 1] if below else order


def token_weights(anchors, text, part):
    """Eq. 6, section 6.4.4: [anchors][token], by the mean |difference| over layers, heads and channels."""
    def mean(anchor, token):
        rows = [(x[token], y[token]) for x, y in zip(getattr(text, part), getattr(anchor, part))]
        return sum(abs(a - b) for x, y in rows for a, b in zip(x, y)) / sum(len(x) for x, _ in rows)

    by_token = [softmax([mean(anchor, token) for anchor in anchors]) for token in range(text.n)]
    return [[weights[a] for weights in by_token] for a in range(len(anchors))]


def channel_weights(anchors, text, part):
    """Eq. 7, as the authors' program reads it: [anchors][layer][channel], by the norm over the tokens of the difference
    from the last n tokens of the anchor."""
    found = [[] for _ in anchors]
    for layer, rows in enumerate(getattr(text, part)):
        others = [getattr(anchor, part)[layer][anchor.n - text.n :] for anchor in anchors]
        by_channel = [softmax([math.sqrt(sum((x[c] - y[c]) ** 2 for x, y in zip(rows, other))) for other in others])
                      for c in range(len(rows[0]))]  # fmt: skip
        for a in range(len(anchors)):
            found[a].append([weights[a] for weights in by_channel])
    return found


def evicted(activations, window):
    """Section 3.3: the least activated of the oldest; of equals the oldest."""
    return min(range(min(window, len(activations))), key=lambda i: (activations[i], i))


class Rules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "run.json"
            subprocess.run([PROGRAM, "write a run of kvcomm"], check=True, stdout=subprocess.DEVNULL,
                           env=os.environ | {"BATON_KVCOMM_RUN": str(file)})  # fmt: skip
            cls.run_ = json.loads(file.read_text(encoding="utf-8"))
        cls.widths = cls.run_["layers"]

    def text(self, given):
        return Text(given, self.widths)

    def assert_rounded(self, found, expected, what):
        """`found` is `expected` rounded to bf16."""
        for layer, (rows, wanted) in enumerate(zip(found, expected)):
            self.assertEqual(len(rows), len(wanted), what)
            for token, (row, want) in enumerate(zip(rows, wanted)):
                for c, (a, b) in enumerate(zip(row, want)):
                    if abs(a - b) > abs(b) / 256 + 1e-30:
                        self.fail(f"{what}: layer {layer}, token {token}, channel {c}: expected {b}, found {a}")

    def assert_near(self, found, expected, what):
        self.assertEqual(len(found), len(expected), what)
        for i, (a, b) in enumerate(zip(found, expected)):
            if abs(a - b) > 1e-9 * max(1, abs(b)):
                self.fail(f"{what}: number {i}: expected {b}, found {a}")

    def test_run(self):
        """Decisions, pools, activations and evictions, from prompt to prompt."""
        run, pools, evictions, shared, entropies = self.run_, {}, 0, 0, 0
        for number, prompt in enumerate(run["prompts"]):
            looked = []
            for slot in prompt["slots"]:
                pool = pools.setdefault(slot["slot"], [])
                base = self.text(slot["base"])
                *_, becomes_anchor, activated = gate([one["base"] for one in pool], base, run["gamma"], run["top_p"])
                for i in activated:
                    pool[i]["activations"] += 1
                looked.append((slot, pool, base, becomes_anchor))
            learns = any(becomes_anchor for *_, becomes_anchor in looked)
            for slot, pool, base, becomes_anchor in looked:
                self.assertEqual(slot["placed"], not learns, f"prompt {number}, {slot['slot']}")
                shared += not becomes_anchor
                if not becomes_anchor:
                    continue
                truth, behind = self.text(slot["truth"]), self.text(slot["following"])
                if not slot["whole"]:  # the last token has no KV, so the text behind it is no neighbour
                    behind.keys, behind.values = ([[] for _ in self.widths] for _ in range(2))
                made = {"base": base, "truth": truth, "following": behind, "activations": 0}
                twins = [i for i, one in enumerate(pool) if one["base"].bits == base.bits]
                if twins:
                    pool[twins[0]] = made | {"activations": pool[twins[0]]["activations"]}
                    continue
                if len(pool) >= run["size"]:
                    del pool[evicted([one["activations"] for one in pool], run["window"])]
                    evictions += 1
                pool.append(made)
            for name, pool in pools.items():
                found = prompt["pools"].get(name, [])
                place = f"prompt {number}, pool {name}"
                self.assertEqual([one["base"]["kv"] for one in found], [one["base"].bits for one in pool], place)
                self.assertEqual([one["activations"] for one in found], [one["activations"] for one in pool], place)
        for name, pool in pools.items():
            for given, one in zip(run["prompts"][-1]["pools"][name], pool):
                offset, following = self.text(given["offset"]), self.text(given["following"])
                for part in ("keys", "values"):
                    base, truth = getattr(one["base"], part), getattr(one["truth"], part)
                    self.assert_rounded(getattr(offset, part), [[[a - b for a, b in zip(x, y)] for x, y in zip(mine, alone)]
                                                                for mine, alone in zip(truth, base)], f"offset, {part}")  # fmt: skip
                    self.assert_rounded(getattr(following, part), getattr(one["following"], part), f"fixed text, {part}")
        self.assertGreater(evictions, 2)  # the run is of use: texts were shared, and pools overflowed
        self.assertGreater(shared, 5)

    def test_gate(self):
        """The gate and the nucleus, from one-hot to uniform weights."""
        kinds = set()
        for rules in self.run_["rules"]:
            pool, text = [self.text(one["base"]) for one in rules["pool"]], self.text(rules["text"])
            for found in rules["gates"]:
                usable, distances, weights, entropy, becomes_anchor, activated = gate(pool, text, found["gamma"], found["top_p"])
                self.assertEqual(found["usable"], usable)
                self.assert_near(found["distances"], distances, "distances")
                self.assert_near(found["weights"], weights, "weights")
                self.assert_near([found["entropy"]], [entropy], "entropy")
                self.assertEqual(found["becomes_anchor"], becomes_anchor)
                self.assertEqual(found["activated"], activated)
                kinds.add("anchor" if becomes_anchor else "all" if max(weights) >= found["top_p"] else len(activated))
        self.assertTrue({"anchor", "all"} < kinds, kinds)  # and a nucleus of some

    def test_mixing(self):
        """Weights per token and per channel, and what they mix."""
        for rules in self.run_["rules"]:
            text, found = self.text(rules["text"]), rules["mixed"]
            anchors = [self.text(one["base"]) for one in rules["pool"]]
            offsets, behind = ([self.text(one[what]) for one in rules["pool"]] for what in ("offset", "following"))
            self.assertTrue(any(anchor.n > text.n for anchor in anchors))  # first and last n tokens differ
            mixed, following = self.text(found["offset"]), self.text(found["following"])
            for part in ("keys", "values"):
                weights = token_weights(anchors, text, part)
                self.assert_near(found["token_weights"][part], [w for one in weights for w in one], f"token weights, {part}")
                expected = [[[layer > 0 and sum(weights[a][token] * getattr(offset, part)[layer][token][c]
                                                for a, offset in enumerate(offsets)) for c in range(width)]
                             for token in range(text.n)] for layer, width in enumerate(self.widths)]  # fmt: skip
                self.assert_mixed(getattr(mixed, part), expected, weights, offsets, part)
                weights = channel_weights(anchors, text, part)
                self.assert_near(found["channel_weights"][part], [w for one in weights for layer in one for w in layer],
                                 f"channel weights, {part}")  # fmt: skip
                expected = [[[sum(weights[a][layer][c] * getattr(one, part)[layer][token][c] for a, one in enumerate(behind))
                              for c in range(width)] for token in range(behind[0].n)]
                            for layer, width in enumerate(self.widths)]  # fmt: skip
                self.assert_mixed(getattr(following, part), expected, weights, behind, part)

    def assert_mixed(self, found, expected, weights, anchors, part):
        """As assert_rounded; terms may cancel, so that float32 of the largest term is allowed as well."""
        largest = max(abs(x) for one in anchors for rows in getattr(one, part) for row in rows for x in row)
        for layer, (rows, wanted) in enumerate(zip(found, expected)):
            self.assertEqual(len(rows), len(wanted), part)
            for token, (row, want) in enumerate(zip(rows, wanted)):
                for c, (a, b) in enumerate(zip(row, want)):
                    if abs(a - b) > abs(b) / 256 + largest * 2**-23:
                        self.fail(f"{part}: layer {layer}, token {token}, channel {c}: expected {b}, found {a}")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
