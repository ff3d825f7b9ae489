# SPDX-License-Identifier: Apache-2.0
"""Trains the nano model from scratch on the CPU; conversations are drawn fresh for every batch.

Each process computes gradients with one thread, and all processes apply the same update. Matrices learn by Muon,
embeddings and norms by AdamW. A checkpoint holds everything but the data: after a resume new data is drawn.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections import defaultdict
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

import binding
import conversations
from conversations import Piece
from model import Config, Nano, load, rotation, save

BUCKETS = (128, 192, 256, 320, 384, 512, 640, 1024)
END = "<|im_end|>"
SHARED = len(binding.SYMBOLS)  # words, the last of WORDS, that notes say more than once
# While guided, layer: (head, what it is to attend to); see pointers().
GUIDED = {1: ((0, "before"),), 2: ((0, "key"),), 3: ((1, "same"),), 4: ((0, "copy"), (3, "key")), 5: ((0, "value"),),
          6: ((3, "copy"),), 7: ((0, "number"),), 8: ((3, "number"),)}
REPEAT, DRILLS, RECALL, BINDING, EASY = 0.01, 0.04, 0.20, 0.33, 0.50  # shares of the mix, and of easy cases in the binding part
IGNORED = 0  # the id that fills rows; its loss weight is zero


def encode(tokenizer: Tokenizer, pieces: list[Piece]) -> tuple[list[int], list[float]]:
    """Ids and loss weights; every piece is tokenised on its own."""
    ids: list[int] = []
    weights: list[float] = []
    for piece in pieces:
        new = tokenizer.encode(piece.text, add_special_tokens=False).ids
        ids += new
        weights += [piece.weight] * len(new)
    if not pieces[-1].text.endswith("\n"):  # an answer, not a drill
        ids.append(tokenizer.token_to_id(END))
        weights.append(1.0)
    return ids, weights


class Batches:
    """Batches of about `size` tokens, of rows of similar length."""

    def __init__(self, tokenizer: Tokenizer, rng: random.Random, size: int, chains: list[dict]) -> None:
        self.tokenizer, self.rng, self.size, self.chains = tokenizer, rng, size, chains
        self.names = [i for w in binding.WORDS for i in tokenizer.encode(" " + w, add_special_tokens=False).ids]
        drawn = (i for _ in range(300) for i in encode(tokenizer, conversations.math_sample(rng))[0])
        self.seen = sorted({i for i in drawn if i > 2} | set(self.names))
        self.waiting: dict[int, list[tuple[list[int], list[float]]]] = defaultdict(list)

    def repeat(self) -> tuple[list[int], list[float]]:
        """Random tokens that come again, in the same order or as pairs in another one: it teaches to copy."""
        tokens = self.rng.sample(self.names if self.rng.random() < 0.6 else self.seen, 2 * self.rng.randint(3, 20))
        pairs = self.rng.random() < 0.5
        ids, weights = list(tokens), [0.0] * len(tokens)
        while len(ids) + len(tokens) <= BUCKETS[0]:
            if pairs:
                for i in self.rng.sample(range(0, len(tokens), 2), len(tokens) // 2):
                    ids += tokens[i:i + 2]
                    weights += [0.0, 1.0]
            else:
                ids += tokens
                weights += [0.0, *[1.0] * (len(tokens) - 1)]
        return ids, weights

    def sample(self) -> list[Piece]:
        """One conversation."""
        kind = self.rng.random()
        if kind < DRILLS:
            return conversations.drill_sample(self.rng, 20)
        if kind < DRILLS + RECALL:
            return conversations.recall_sample(self.rng, self.rng.randint(2, 7))
        if kind < DRILLS + RECALL + BINDING:
            return conversations.binding_sample(self.rng, self.rng.random() < EASY)
        if self.chains and self.rng.random() < 0.25:
            return conversations.chain_sample(self.rng, **self.rng.choice(self.chains))
        return conversations.math_sample(self.rng)

    def next(self) -> tuple[Tensor, Tensor]:
        """Ids and weights, [B, T]."""
        while True:
            ids, weights = self.repeat() if self.rng.random() < REPEAT else encode(self.tokenizer, self.sample())
            length = next((b for b in BUCKETS if len(ids) <= b), None)
            if length is None:
                continue
            rows = self.waiting[length]
            rows.append((ids, weights))
            if len(rows) == self.size // length:
                del self.waiting[length]
                pad = lambda values, fill: torch.tensor([v + [fill] * (length - len(v)) for v in values])
                return pad([r[0] for r in rows], IGNORED), pad([r[1] for r in rows], 0.0)


def orthogonal(x: Tensor) -> Tensor:
    """The nearest orthogonal matrices of a stack, roughly (five Newton-Schulz steps)."""
    x = x.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.mT if tall else x).float()


class Optimizer:
    """Muon for the matrices, AdamW for the rest; keeps float32 masters of the model's parameters."""

    def __init__(self, model: Nano, matrix_rate: float, other_rate: float) -> None:
        self.parameters = dict(model.named_parameters())
        self.masters = {n: p.detach().float().clone() for n, p in self.parameters.items()}
        self.matrices: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for name, parameter in self.parameters.items():
            if parameter.ndim == 2 and name != "embedding":
                self.matrices[tuple(parameter.shape)].append(name)
        self.momentum = {n: torch.zeros_like(m) for n, m in self.masters.items()}
        others = {n for n in self.masters} - {n for names in self.matrices.values() for n in names}
        self.others = sorted(others)
        self.second = {n: torch.zeros_like(self.masters[n]) for n in self.others}
        self.matrix_rate, self.other_rate = matrix_rate, other_rate

    def step(self, gradients: dict[str, Tensor], index: int, factor: float) -> None:
        for shape, names in self.matrices.items():
            for name in names:
                self.momentum[name].lerp_(gradients[name], 0.05)
            stack = torch.stack([gradients[n].lerp(self.momentum[n], 0.95) for n in names])
            rate = self.matrix_rate * factor * max(1.0, shape[0] / shape[1]) ** 0.5
            for name, update in zip(names, orthogonal(stack)):
                self.masters[name].mul_(1 - 0.02 * self.matrix_rate * factor).add_(update, alpha=-rate)
        for name in self.others:
            gradient, first, second = gradients[name], self.momentum[name], self.second[name]
            first.lerp_(gradient, 0.1)
            second.lerp_(gradient.square(), 0.02)
            scale = (1 - 0.98 ** (index + 1)) ** 0.5 / (1 - 0.9 ** (index + 1))
            self.masters[name].addcdiv_(first, second.sqrt() + 1e-9, value=-self.other_rate * factor * scale)
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(self.masters[name])

    def state(self) -> dict:
        return {"masters": self.masters, "momentum": self.momentum, "second": self.second}

    def restore(self, state: dict) -> None:
        for kind, tensors in self.state().items():
            for name, tensor in tensors.items():
                tensor.copy_(state[kind][name])
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(self.masters[name])


def pointers(ids: Tensor, weights: Tensor, words: Tensor) -> dict[str, Tensor]:
    """What guided heads are to attend to, [B, T - 1] each, -1 for nothing: the token before, a word's first place, the key
    of a word or number (the word before it), the first number or word stated for the key in question, the last place of the
    word that comes next, the number of two digits that comes next. `words`: ids of " ", " is", the digits, then of names."""
    space, skipped, digits, words = words[0], words[1], words[2:12], words[12:]
    b, t = ids.shape
    index = torch.arange(t)
    now, following = ids[:, :-1], ids[:, 1:]
    wanted = weights[:, 1:] == 1
    past = index <= index[:-1, None]  # [T - 1, T]
    last = lambda same: torch.where(same, index, -1).amax(-1)
    here = torch.where((now[..., None] == ids[:, None]) & past, index, t).amin(-1)  # the first place
    here = torch.where(torch.isin(now, words) & (here < index[:-1]), here, -1)
    named, numeric = torch.isin(ids, words), torch.isin(ids, digits)
    near = (index < index[:-1, None]) & (index >= index[:-1, None] - 10)
    keyed = named[:, None, :] | (numeric[:, None, :] & named[:, :-1, None])  # a number's key is a word, a word's key is either
    key = torch.where(named[:, :-1] | numeric[:, :-1] | (now == space), last(near & keyed), -1)
    key_word = torch.where(key >= 0, ids.gather(1, key.clamp(min=0)), -1)
    stated = (named[:, :-1] | numeric[:, :-1]) & named.gather(1, key.clamp(min=0)) & (key >= 0)
    spoken = (now == space) | (named[:, :-1] & named[:, 1:])
    about = torch.where(now == space, key_word, now)
    value = spoken[..., None] & (about[..., None] == key_word[:, None]) & stated[:, None] & past[:, :-1]
    again = torch.where(value & (weights[:, None, :-1] == 0), index[:-1], -1).amax(-1)  # a second number of a line: what was said last
    value = torch.where(value, index[:-1], t).amin(-1)
    value = torch.where((value < t) & wanted, torch.where(F.pad(numeric[:, :-2], (1, 0)), again, value), -1)
    source = last((following[..., None] == ids[:, None]) & past)
    pair = ids * 4096 + F.pad(ids[:, 1:], (0, 1))
    number = numeric & F.pad(numeric[:, 1:], (0, 1)) & ~F.pad(torch.isin(ids[:, 2:], skipped), (0, 2))
    first = torch.where((pair[:, 1:, None] == pair[:, None]) & past & number[:, None], index, t).amin(-1)
    first = torch.where((first < t) & number[:, 1:] & wanted, first, -1)
    second = F.pad(first, (1, 0))[:, :-1]
    return {"before": (index[:-1] - 1).expand(b, -1), "same": here, "key": key, "value": value,
            "copy": torch.where(wanted & torch.isin(following, words[:-SHARED]) & ~named[:, :-1], source, -1),
            "number": torch.where(first >= 0, first, torch.where(second > 0, second + 1, -1))}


def loss_sums(model: Nano, ids: Tensor, weights: Tensor, words: Tensor | None) -> tuple[Tensor, Tensor]:
    """The loss and, with words to copy, the cross entropy of what guided heads attend to."""
    b, t = ids.shape
    cos, sin = (x.to(model.layers[0].q.weight.dtype) for x in rotation(model.config, torch.arange(t)))
    goals, guided = {}, torch.zeros(())
    if words is not None:
        goals = pointers(ids, weights, words)
        future = torch.ones(t - 1, t, dtype=torch.bool).triu(1)
    x = F.embedding(ids, model.embedding.float())
    for index, layer in enumerate(model.layers):
        for head, kind in GUIDED.get(index, ()) if goals else ():
            q, k, _ = layer.heads(x, cos, sin)
            group = model.config.num_attention_heads // model.config.num_key_value_heads
            scores = (q[:, head, :-1].float() @ k[:, head // group].float().mT) * model.config.head_dim ** -0.5
            chosen = F.cross_entropy(scores.masked_fill(future, -1e9).flatten(0, 1), goals[kind].flatten(), ignore_index=-1, reduction="sum")
            guided = guided + chosen * (0.1 if kind == "before" else 0.3 if kind in ("same", "key") else 1.0)
        x = layer(x, cos, sin)
    logits = model.logits(x)[:, :-1]
    losses = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1), reduction="none")
    return (losses * weights[:, 1:].reshape(-1)).sum(), guided


def train(rank: int, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch._dynamo.config.recompile_limit = 64
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    dist.init_process_group("gloo", rank=rank, world_size=args.processes)
    torch.manual_seed(args.seed)
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    config = Config(vocab_size=tokenizer.get_vocab_size())
    model = Nano(config)
    optimizer = Optimizer(model, args.matrix_rate, args.other_rate)
    for layer in model.layers:
        for linear in (layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down):
            linear.to(torch.bfloat16)
        layer.compile(dynamic=False)
    step, tokens, spent = 0, 0.0, 0.0
    if args.checkpoint.exists():
        state = torch.load(args.checkpoint)
        optimizer.restore(state["optimizer"])
        step, tokens, spent = state["step"], state["tokens"], state["seconds"]
    elif args.start and args.start.is_dir():  # a finished model, from which another is made
        begin = load(args.start).state_dict()
        optimizer.restore({**optimizer.state(), "masters": {n: begin[n].float() for n in optimizer.masters}})
    elif args.start:  # a phase of its own: the weights and moments of another run, but a new schedule
        optimizer.restore(torch.load(args.start)["optimizer"])
    chains = [json.loads(line) for path in args.chains for line in path.read_text().splitlines()]
    batches = Batches(tokenizer, random.Random(f"{args.seed} {rank} {step}"), args.batch, chains)
    parameters = dict(model.named_parameters())
    marks = [i for text in (" ", " is", "0123456789") for i in tokenizer.encode(text, add_special_tokens=False).ids]
    words = torch.tensor(marks + batches.names)
    if rank == 0:
        print(f"{sum(p.numel() for p in parameters.values()):,} parameters, step {step}, {len(chains)} chains", flush=True)

    begun = logged = saved = exported = time.monotonic()
    done, recent = spent / 60 / args.minutes, []
    while done < 1:
        ids, weights = batches.next()
        loss, guided = loss_sums(model, ids, weights, words if tokens < args.guided * 1e6 else None)
        (loss + 0.3 * guided).backward()
        minutes = (spent + time.monotonic() - begun) / 60
        totals = torch.tensor([loss.item(), weights[:, 1:].sum().item(), ids.ne(IGNORED).sum().item(), 0.0 if rank else minutes])
        flat = torch.cat([*(p.grad.float().flatten() for p in parameters.values()), totals])
        model.zero_grad(set_to_none=True)
        dist.all_reduce(flat)
        total_loss, total_weight, total_tokens, minutes = flat[-4:].tolist()
        flat /= total_weight
        gradients = dict(zip(parameters, (g.view(p.shape) for g, p in zip(flat[:-4].split([p.numel() for p in parameters.values()]), parameters.values()))))
        done = max(minutes / args.minutes, (step + 1) / args.steps)
        factor = min(1.0, (step + 1) / 20) * min(1.0, max(0.0, 1 - done) / args.decay)
        optimizer.step(gradients, step, factor)
        step += 1
        tokens += total_tokens
        recent.append((total_loss, total_weight, total_tokens, float(guided.detach())))
        if rank:
            continue
        now = time.monotonic()
        if now - logged > 20 or done >= 1:
            loss_mean, rate = sum(r[0] for r in recent) / sum(r[1] for r in recent), sum(r[2] for r in recent) / (now - logged)
            print(f"step {step} tokens {tokens / 1e6:.2f}M loss {loss_mean:.4f} guided {sum(r[3] for r in recent) / sum(r[1] for r in recent):.3f} rate {factor:.2f} {rate:.0f} tokens/s "
                  f"{minutes:.1f} min, {minutes / done - minutes:.1f} min left", flush=True)
            logged, recent = now, []
        if now - saved > 60 * args.save_minutes or done >= 1:
            part = args.checkpoint.with_suffix(".part")
            torch.save({"optimizer": optimizer.state(), "step": step, "tokens": tokens, "seconds": spent + now - begun}, part)
            part.replace(args.checkpoint)
            saved = now
        if now - exported > 60 * args.export_minutes or done >= 1:
            save(optimizer.masters, config, args.model)
            exported = now
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path(__file__).resolve().parent.parent, help="folder with the tokenizer; the weights go there")
    parser.add_argument("--checkpoint", type=Path, default=Path("nano.ckpt"), help="resumed when it exists")
    parser.add_argument("--start", type=Path, help="checkpoint to begin a new phase from, with new learning rates and mix; or a model's folder")
    parser.add_argument("--guided", type=float, default=0, help="millions of tokens in which heads are told what to attend to")
    parser.add_argument("--chains", type=Path, nargs="*", default=[], help="chains written by the model itself (evaluate.py --write)")
    parser.add_argument("--minutes", type=float, default=90, help="training time in all; it ends with whichever is first of this and --steps")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--decay", type=float, default=0.45, help="share of the training, at the end, in which the rates fall to zero")
    parser.add_argument("--batch", type=int, default=3072, help="tokens of a batch in each process")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--matrix-rate", type=float, default=0.02)
    parser.add_argument("--other-rate", type=float, default=3e-3)
    parser.add_argument("--save-minutes", type=float, default=4)
    parser.add_argument("--export-minutes", type=float, default=12)
    parser.add_argument("--port", type=int, default=29517)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    mp.spawn(train, (args,), args.processes)


if __name__ == "__main__":
    main()
