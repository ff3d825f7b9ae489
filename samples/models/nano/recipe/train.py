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

import conversations
from conversations import Piece
from model import Config, Nano, save

BUCKETS = (128, 192, 256, 320, 384, 512, 640, 1024)
END = "<|im_end|>"
IGNORED = 0  # the id that fills rows; its loss weight is zero


def ramp(tokens: float, start: float, end: float, first: float, last: float) -> float:
    """From `first` to `last` while the tokens seen go from `start` to `end` (in millions)."""
    share = min(1.0, max(0.0, (tokens / 1e6 - start) / (end - start)))
    return first + share * (last - first)


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
        self.waiting: dict[int, list[tuple[list[int], list[float]]]] = defaultdict(list)

    def sample(self, tokens: float) -> list[Piece]:
        """One conversation; the mix depends on how many tokens the model has seen."""
        kind = self.rng.random()
        drills, copies, bindings = ramp(tokens, 10, 13, 0.12, 0.06), ramp(tokens, 10, 13, 0.15, 0.04), ramp(tokens, 8, 12, 0.25, 0.38)
        if kind < drills:
            return conversations.drill_sample(self.rng, 20)
        if kind < drills + copies:
            return conversations.copy_sample(self.rng, 50)
        if kind < drills + copies + bindings:
            return conversations.binding_sample(self.rng, self.rng.random() < ramp(tokens, 9, 13, 1.0, 0.15))
        if self.chains and self.rng.random() < 0.25:
            return conversations.chain_sample(self.rng, **self.rng.choice(self.chains))
        return conversations.math_sample(self.rng)

    def next(self, tokens: float) -> tuple[Tensor, Tensor]:
        """Ids and weights, [B, T]."""
        while True:
            ids, weights = encode(self.tokenizer, self.sample(tokens))
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


def loss_sum(model: Nano, ids: Tensor, weights: Tensor) -> Tensor:
    logits = model(ids)[:, :-1]
    losses = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1), reduction="none")
    return (losses * weights[:, 1:].reshape(-1)).sum()


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
    chains = [json.loads(line) for path in args.chains for line in path.read_text().splitlines()]
    batches = Batches(tokenizer, random.Random(f"{args.seed} {rank} {step}"), args.batch, chains)
    parameters = dict(model.named_parameters())
    if rank == 0:
        print(f"{sum(p.numel() for p in parameters.values()):,} parameters, step {step}, {len(chains)} chains", flush=True)

    begun = logged = saved = exported = time.monotonic()
    done, recent = spent / 60 / args.minutes, []
    while done < 1:
        ids, weights = batches.next(tokens)
        loss = loss_sum(model, ids, weights)
        loss.backward()
        minutes = (spent + time.monotonic() - begun) / 60
        totals = torch.tensor([loss.item(), weights[:, 1:].sum().item(), ids.ne(IGNORED).sum().item(), 0.0 if rank else minutes])
        flat = torch.cat([*(p.grad.float().flatten() for p in parameters.values()), totals])
        model.zero_grad(set_to_none=True)
        dist.all_reduce(flat)
        total_loss, total_weight, total_tokens, minutes = flat[-4:].tolist()
        flat /= total_weight
        gradients = dict(zip(parameters, (g.view(p.shape) for g, p in zip(flat[:-4].split([p.numel() for p in parameters.values()]), parameters.values()))))
        done = max(minutes / args.minutes, (step + 1) / args.steps)
        factor = min(1.0, (step + 1) / 50) * min(1.0, max(0.0, 1 - done) / args.decay)
        optimizer.step(gradients, step, factor)
        step += 1
        tokens += total_tokens
        recent.append((total_loss, total_weight, total_tokens))
        if rank:
            continue
        now = time.monotonic()
        if now - logged > 20 or done >= 1:
            loss_mean, rate = sum(r[0] for r in recent) / sum(r[1] for r in recent), sum(r[2] for r in recent) / (now - logged)
            print(f"step {step} tokens {tokens / 1e6:.2f}M loss {loss_mean:.4f} rate {factor:.2f} {rate:.0f} tokens/s "
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
