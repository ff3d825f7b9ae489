# SPDX-License-Identifier: Apache-2.0
"""What handing on means in a model with recurrent layers: measures ways to place an author's answer in a reader's
prompt without computing it, on the hybrid that hybrid.py trains.

Keys and values of attention layers are turned to their new positions. A recurrent layer's state cannot be turned; the
ways differ in what the reader has behind the text:

    author      the author's state, as it was behind the text
    difference  its own state, and what the text changed in the author's: behind the text less before it
    again       the recurrence over what the author's layer read of the text, from the reader's own state on; its
                projections and all other parts of the layers are not computed again

`head` and `tail`: so many tokens at the text's beginning or end are computed as in full prefill.

    python hybrid_relay.py FOLDER [--cases 100] [--team binding|math]

Every agent is given the answers that those before it should have written, with the KV that their turns left, which
depends on the way, too. Shown for each way, over the agents that read answers: the share of their prompts that was not
computed; the time of a prompt beside full prefill's; the mean KL divergence from full prefill over the tokens of the
right answer, in nats, and at the first token; how often both would choose the same token; and how often greedy
decoding gives the right answer to the last token.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

import binding
import conversations
from heldout import BINDING_SEED, MATH_SEED
from hybrid import KERNEL, Attention, DeltaInputs, Hybrid, delta_rule, load, turn
from problems import draw, solve


@dataclass(frozen=True)
class Way:
    name: str
    head: int = 0
    tail: int = 0

    def __str__(self) -> str:
        return self.name + (f", head {self.head}" if self.head else "") + (f", tail {self.tail}" if self.tail else "")


FULL = Way("full")
WAYS = [Way("author"), Way("difference"), Way("again"), Way("again", tail=8), Way("again", tail=32), Way("again", head=8),
        Way("again", head=32), Way("again", head=16, tail=16), Way("author", tail=32)]


@dataclass
class Kept:
    """What a layer keeps of a sequence's tokens. Attention: keys before RoPE, and values. A delta net: what the recurrence
    read of each token, the rows before the convolution, and the state now and behind the tokens at `marks`."""
    keys: Tensor | None = None
    values: Tensor | None = None
    inputs: DeltaInputs | None = None
    rows: Tensor | None = None
    state: Tensor | None = None
    marks: dict[int, Tensor] = field(default_factory=dict)

    def add_keys(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = joined(self.keys, keys, 2), joined(self.values, values, 2)

    def add_inputs(self, inputs: DeltaInputs, rows: Tensor) -> None:
        old = self.inputs
        self.inputs = inputs if old is None else DeltaInputs(
            *(joined(getattr(old, f), getattr(inputs, f), 2) for f in DeltaInputs.__dataclass_fields__))
        self.rows = joined(self.rows, rows, 1)


def joined(a: Tensor | None, b: Tensor, dim: int) -> Tensor:
    return b if a is None else torch.cat((a, b), dim)


class Sequence:
    """A prompt and its answer: tokens are computed, or taken from another sequence."""

    def __init__(self, model: Hybrid) -> None:
        self.model = model
        self.layers = [Kept() for _ in model.layers]
        self.length = self.prompt = self.taken = 0

    def mark(self) -> None:
        for kept in self.layers:
            kept.marks[self.length] = kept.state

    def compute(self, ids: list[int]) -> Tensor:
        """Logits behind each of the tokens: [T, V]."""
        x = F.embedding(torch.tensor([ids]), self.model.embedding)
        now, every = torch.arange(self.length, self.length + len(ids)), torch.arange(self.length + len(ids))
        for layer, kept in zip(self.model.layers, self.layers):
            h, mixer = layer.mixer_input(x), layer.mixer
            if isinstance(mixer, Attention):
                q, k, v, gate = mixer.heads(h, torch.zeros(len(ids)))  # not turned
                kept.add_keys(k, v)
                out = mixer.finish(turn(q, now), turn(kept.keys, every), kept.values, gate, every <= now[:, None])
            else:
                inputs, rows = mixer.inputs(h, None if kept.rows is None else kept.rows[:, 1 - KERNEL:])
                outputs, kept.state = delta_rule(inputs, kept.state)
                kept.add_inputs(inputs, rows)
                out = mixer.finish(h, outputs)
            x = layer.mlp(x + out)
        self.length += len(ids)
        return self.model.logits(x)[0]

    def take(self, other: Sequence, begin: int, end: int, way: Way) -> None:
        """Appends the other's tokens without computing them. Both ends are marked in it."""
        for layer, kept, source in zip(self.model.layers, self.layers, other.layers):
            if isinstance(layer.mixer, Attention):
                kept.add_keys(source.keys[:, :, begin:end], source.values[:, :, begin:end])
                continue
            inputs = source.inputs.part(begin, end)
            if way.name == "again":
                kept.state = delta_rule(inputs, kept.state)[1]
            elif way.name == "author":
                kept.state = source.marks[end]
            else:
                kept.state = kept.state + source.marks[end] - source.marks[begin]
            kept.add_inputs(inputs, source.rows[:, begin:end])
        self.length += end - begin
        self.taken += end - begin


@dataclass
class Text:
    """A text of a prompt: its tokens and, if an agent wrote it, where they stand in that agent's sequence."""
    ids: list[int]
    source: Sequence | None = None
    begin: int = 0


class Team:
    def __init__(self, folder: Path) -> None:
        self.model = load(folder).eval()
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.end = self.tokenizer.token_to_id("<|im_end|>")

    def texts(self, pieces: list[conversations.Piece], written: dict[str, Text]) -> list[Text]:
        """Every piece is tokenised on its own; an agent's answer has the tokens that it wrote."""
        return [written.get(p.text) or Text(self.tokenizer.encode(p.text, add_special_tokens=False).ids) for p in pieces]

    def read(self, texts: list[Text], way: Way) -> tuple[Sequence, Tensor]:
        """The sequence of a prompt, and the logits behind it."""
        sequence, logits = Sequence(self.model), torch.empty(0)
        for text in texts:
            first, last = way.head, len(text.ids) - way.tail
            if text.source is None or way == FULL or first >= last:
                logits = sequence.compute(text.ids)
                continue
            if first:
                sequence.compute(text.ids[:first])
            sequence.take(text.source, text.begin + first, text.begin + last, way)
            if way.tail:
                logits = sequence.compute(text.ids[last:])
        sequence.prompt = sequence.length
        return sequence, logits[-1]

    def write(self, sequence: Sequence, ids: list[int]) -> Tensor:
        """Appends an answer. Returns the logits behind each of its tokens."""
        sequence.mark()
        ends = sorted({len(ids), *(len(ids) - way.tail for way in WAYS if way.tail < len(ids))})  # where ways take states
        logits = []
        for begin, end in zip([0, *ends], ends):
            logits.append(sequence.compute(ids[begin:end]))
            sequence.mark()
        return torch.cat(logits)


@dataclass
class Counts:
    """Of the agents that read answers."""
    taken: int = 0
    tokens: int = 0  # of their prompts
    seconds: float = 0
    first: list[float] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    same: list[float] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)


def divergence(exact: Tensor, other: Tensor) -> Tensor:
    """KL in nats for each token."""
    return F.kl_div(other.log_softmax(-1), exact.log_softmax(-1), reduction="none", log_target=True).sum(-1)


@dataclass
class Agent:
    prompt: list[conversations.Piece]
    answer: str  # the right one


def binding_team(count: int):
    """For each case its agents."""
    rng = random.Random(BINDING_SEED)
    for i in range(count):
        case = binding.draw(rng, held=True, family=binding.FAMILIES[i % len(binding.FAMILIES)])
        reports, resolved = (case.report_a, case.report_b), binding.resolver_answer(case)[0]
        right = {"keeper": case.report_a, "counter": case.report_b, "resolver": resolved,
                 "verifier": binding.verifier_answer(case, case.answer)}
        yield [Agent(conversations.binding_prompt(role, case, reports, resolved), text) for role, text in right.items()]


def math_team(count: int):
    rng = random.Random(MATH_SEED)
    for _ in range(count):
        problem = draw(rng, held=True)
        lines = solve(problem.steps)
        values = tuple(line.value for line in lines)
        agents: list[Agent] = []
        for role in conversations.MATH_ROLES:
            said = [a.answer for a in agents]
            seen = [conversations.Answer(conversations.TITLES[r], text, values, True)
                    for r, text in zip(conversations.MATH_ROLES, said)]
            agents.append(Agent(conversations.math_prompt(role, problem.question, said),
                                conversations.write(role, problem.question, lines, seen)))
        yield agents


@torch.inference_mode()
def measure(team: Team, cases, ways: list[Way]) -> dict[Way, Counts]:
    counts = {way: Counts() for way in (FULL, *ways)}
    for number, agents in enumerate(cases):
        exact: list[Tensor] = []  # by agent, the logits of full prefill before each token of its answer
        for way, count in counts.items():
            written: dict[str, Text] = {}
            for index, agent in enumerate(agents):
                ids = team.tokenizer.encode(agent.answer, add_special_tokens=False).ids
                texts = team.texts(agent.prompt, written)
                begun = time.process_time()
                sequence, logits = team.read(texts, way)
                seconds = time.process_time() - begun
                rows = torch.cat((logits[None], team.write(sequence, ids)))
                written[agent.answer] = Text(ids, sequence, sequence.prompt)
                if way == FULL:
                    exact.append(rows)
                if not any(t.source for t in texts):
                    continue
                apart, chosen = divergence(exact[index], rows), rows.argmax(-1)
                count.taken += sequence.taken
                count.tokens += sequence.prompt
                count.seconds += seconds
                count.first.append(float(apart[0]))
                count.mean.append(float(apart.mean()))
                count.same.append(float((exact[index].argmax(-1) == chosen).float().mean()))
                count.right.append(chosen.tolist() == [*ids, team.end])
        if number % 10 == 9:
            print(f"{number + 1} cases", flush=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--team", choices=("binding", "math"), default="binding")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    begun = time.monotonic()
    cases = (binding_team if args.team == "binding" else math_team)(args.cases)
    counts = measure(Team(args.folder), cases, WAYS)
    print("| way | not computed | prompts' time | KL, mean | KL, first token | same token | right answers |\n"
          "| --- | --- | --- | --- | --- | --- | --- |")
    for way, c in counts.items():
        n = len(c.mean)
        print(f"| {way} | {c.taken / c.tokens:.1%} | {c.seconds / counts[FULL].seconds:.2f} | {sum(c.mean) / n:.4f} | "
              f"{sum(c.first) / n:.4f} | {sum(c.same) / n:.1%} | {sum(c.right)} of {n} |")
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
