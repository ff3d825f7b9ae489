# SPDX-License-Identifier: Apache-2.0
"""What the work and the memory of a method come to by counting, from a shape's config.json: floating-point operations of
a first token, and bytes of a token."""

# config.json of Llama 3.1 8B.
LLAMA_8B = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            "vocab_size": 128256}
SEPARATOR = 4  # tokens behind the role text, the question and each answer, as in baton-lab bench


class Shape:
    """Dimension letters: L layers, C width, H and K heads of queries and keys, D their width, F inner width, V vocabulary."""

    def __init__(self, config: dict, layers: int = 0):
        self.L = layers or config["num_hidden_layers"]
        self.C, self.H, self.K = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
        self.D = config.get("head_dim") or self.C // self.H
        self.F, self.V = config["intermediate_size"], config["vocab_size"]

    def row_flops(self, keys_and_values=True) -> int:
        """Of a token in a layer, without its attention."""
        return 4 * self.C * self.H * self.D + 6 * self.C * self.F + keys_and_values * 4 * self.C * self.K * self.D

    def pair_flops(self) -> int:
        """Of a query and a key in a layer."""
        return 4 * self.H * self.D

    def logits_flops(self) -> int:
        return 2 * self.C * self.V


def pairs(begin: int, end: int) -> float:
    """Queries at positions [begin, end), each with the keys up to its own."""
    return (end * (end + 1) - begin * (begin + 1)) / 2


def layout(prefix: int, question: int, output: int, agent: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Position ranges of an agent's prompt (from 1): the texts handed over, and the separators. The role text comes first."""
    reused, separators, at = [], [], prefix
    for length in [question] + [output] * (agent - 1):
        separators.append((at, at + SEPARATOR))
        at += SEPARATOR
        reused.append((at, at + length))
        at += length
    return reused, separators + [(at, at + SEPARATOR)]


def exact_flops(shape: Shape, begin: int, end: int) -> float:
    """Every token of [begin, end) through every layer, what is in front being there: full prefill from 0, prefix from the
    role text's end."""
    return shape.L * ((end - begin) * shape.row_flops() + pairs(begin, end) * shape.pair_flops()) + shape.logits_flops()


def rectify_flops(shape: Shape, layers: list[int], share: float, prefix: int, question: int, output: int, agent: int) -> float:
    """Separators through every layer, a part of the texts handed over from rectify's first layer (whose keys and values stay)
    to its last; which tokens those are is not known, so they count as evenly spread."""
    start, _, end = layers
    reused, separators = layout(prefix, question, output, agent)
    text = sum(b - a for a, b in separators), sum(pairs(a, b) for a, b in separators)
    chosen = share * sum(b - a for a, b in reused), share * sum(pairs(a, b) for a, b in reused)
    of_text = shape.L * (text[0] * shape.row_flops() + text[1] * shape.pair_flops())
    of_chosen = (chosen[0] * (shape.row_flops(False) + (end - start) * shape.row_flops())
                 + chosen[1] * (end - start + 1) * shape.pair_flops())
    return of_text + of_chosen + shape.logits_flops()


def rectify_bound(shape: Shape, layers: list[int], share: float, prefix: int, question: int, output: int, agent: int) -> float:
    """How much faster than full prefill rectify's first token can be while both are limited by arithmetic."""
    end = layout(prefix, question, output, agent)[1][-1][1]
    return exact_flops(shape, 0, end) / rectify_flops(shape, layers, share, prefix, question, output, agent)


def memory(shape: Shape, method: str, hidden: bool, element=2) -> dict[str, int]:
    """Bytes of a token: in the cache while an agent runs, the same while its answer is handed on, kept for later prompts (of
    an answer), and of one anchor. `hidden`: rectify's first layer is not 0."""
    kv = 2 * element * shape.L * shape.K * shape.D
    raw_keys, state = kv // 2, hidden * element * shape.C
    received, entropy, token, sums = 4, 4, 4, 8 * shape.K  # sums of received attention: a head's own until the answer ends
    if method == "full":
        return {"cache": kv, "cache_recording": 0, "kept": 0, "anchor": 0}
    if method in ("prefix", "lockstep"):
        return {"cache": kv, "cache_recording": kv + raw_keys, "kept": kv + token, "anchor": 0}
    return {"cache": kv + raw_keys + (state if method == "rectify" else 0), "cache_recording": kv + raw_keys + state + sums,
            "kept": kv + state + received + entropy + token,
            "anchor": 2 * 2 * shape.L * shape.K * shape.D + 4 * 32 + token if method == "anchors" else 0}  # bf16, a sketch of 32
