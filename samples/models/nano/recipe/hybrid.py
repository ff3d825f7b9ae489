# SPDX-License-Identifier: Apache-2.0
"""Trains a small hybrid on nano's tasks: three gated delta nets to one attention, the layout of Qwen3.5.

It begins with nano's matrices and learns from nano: the residual stream behind each of nano's layers, then its
probabilities, beside the answers themselves. The folder that is written opens as a `Qwen3_5ForCausalLM`.

    python hybrid.py --out FOLDER [--minutes 50] [--processes 2]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

import model as nano
from train import IGNORED, Batches, Optimizer

CHUNK = 64  # tokens of a chunk of the delta rule
KERNEL = 4  # taps of the convolution
FIRST = 20  # steps in which the rates rise


@dataclass(frozen=True)
class Config:
    vocab_size: int = 1280
    hidden_size: int = 192
    intermediate_size: int = 512
    num_hidden_layers: int = 12
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    head_dim: int = 32
    linear_num_key_heads: int = 6
    linear_num_value_heads: int = 6
    linear_key_head_dim: int = 32
    linear_value_head_dim: int = 32
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-5

    def attends(self, layer: int) -> bool:
        return layer % 4 == 3


ROPE_THETA = 10000.0  # over whole heads, as nano's


def norm(x: Tensor, scale: Tensor, eps: float = 1e-5) -> Tensor:
    """RMS norm in float32; the scale is stored less 1."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (1 + scale.float())


@dataclass
class DeltaInputs:
    """What the recurrence reads of the tokens: [B, H, T, D] and [B, H, T], float32."""
    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor  # logarithm
    beta: Tensor

    def part(self, begin: int, end: int) -> "DeltaInputs":
        return DeltaInputs(*(x[:, :, begin:end] for x in (self.q, self.k, self.v, self.decay, self.beta)))


def delta_rule(inputs: DeltaInputs, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Outputs [B, H, T, D] and the state behind them [B, H, K, V]; chunked, so that the sequential part is short."""
    tokens = inputs.q.shape[2]
    chunk = min(CHUNK, tokens)
    short = -tokens % chunk
    q, k, v = (F.pad(x, (0, 0, 0, short)).unflatten(2, (-1, chunk)) for x in (inputs.q, inputs.k, inputs.v))
    decay, beta = (F.pad(x, (0, short)).unflatten(2, (-1, chunk)) for x in (inputs.decay, inputs.beta))
    total = decay.cumsum(-1)
    past = (total[..., :, None] - total[..., None, :]).tril().exp().tril()  # decay from one token of a chunk to another
    weighted = k * beta[..., None]
    mixing = ((weighted @ k.mT) * past).tril(-1)
    right = torch.cat((v * beta[..., None], weighted * total.exp()[..., None]), -1)
    right = torch.linalg.solve_triangular(mixing, right, upper=False, unitriangular=True)
    new_v, old_k = right.split((v.shape[-1], k.shape[-1]), -1)
    seen = (q @ k.mT) * past
    state = torch.zeros(*q.shape[:2], k.shape[-1], v.shape[-1]) if state is None else state
    outputs = []
    for n in range(q.shape[2]):
        change = new_v[:, :, n] - old_k[:, :, n] @ state
        outputs.append((q[:, :, n] * total[:, :, n].exp()[..., None]) @ state + seen[:, :, n] @ change)
        end = total[:, :, n, -1:]
        state = state * end.exp()[..., None] + (k[:, :, n] * (end - total[:, :, n]).exp()[..., None]).mT @ change
    return torch.stack(outputs, 2).flatten(2, 3)[:, :, :tokens], state


class DeltaNet(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        keys, values = c.linear_num_key_heads * c.linear_key_head_dim, c.linear_num_value_heads * c.linear_value_head_dim
        self.qkv = nn.Linear(c.hidden_size, 2 * keys + values, bias=False)
        self.z = nn.Linear(c.hidden_size, values, bias=False)
        self.a = nn.Linear(c.hidden_size, c.linear_num_value_heads, bias=False)
        self.b = nn.Linear(c.hidden_size, c.linear_num_value_heads, bias=False)
        self.o = nn.Linear(values, c.hidden_size, bias=False)
        taps = torch.randn(2 * keys + values, 1, KERNEL) * 0.1
        taps[..., -1] += 1
        self.conv = nn.Parameter(taps)
        self.rate = nn.Parameter(torch.empty(c.linear_num_value_heads).uniform_(0.5, 8).log())
        step = torch.empty(c.linear_num_value_heads).uniform_(0.002, 0.05)
        self.step = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.out_norm = nn.Parameter(torch.ones(c.linear_value_head_dim))

    def inputs(self, h: Tensor, before: Tensor | None = None) -> tuple[DeltaInputs, Tensor]:
        """What the recurrence reads of h [B, T, C], and the rows [B, T, ...] before the convolution; `before`: the last
        KERNEL - 1 such rows of the tokens before."""
        mixed = self.qkv(h).float()
        mixed = F.pad(mixed, (0, 0, KERNEL - 1, 0)) if before is None else torch.cat((before, mixed), 1)
        taps, tokens = self.conv.float()[:, 0].mT, h.shape[1]
        convolved = F.silu(sum(mixed[:, i:i + tokens] * taps[i] for i in range(KERNEL)))  # faster than conv1d on a CPU
        keys = self.c.linear_num_key_heads * self.c.linear_key_head_dim
        parts = convolved.split((keys, keys, convolved.shape[-1] - 2 * keys), -1)
        q, k, v = (p.unflatten(-1, (self.c.linear_num_value_heads, -1)).transpose(1, 2) for p in parts)
        q, k = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (q, k))
        decay = -self.rate.float().exp() * F.softplus(self.a(h).float() + self.step.float())
        return (DeltaInputs(q * self.c.linear_key_head_dim ** -0.5, k, v, decay.mT, self.b(h).float().sigmoid().mT),
                mixed[:, KERNEL - 1:])

    def finish(self, h: Tensor, out: Tensor) -> Tensor:
        """The layer's addition to the residual stream, of the recurrence's outputs [B, H, T, D]."""
        out = out * torch.rsqrt(out.square().mean(-1, keepdim=True) + self.c.rms_norm_eps) * self.out_norm.float()
        gated = out.transpose(1, 2).flatten(2) * F.silu(self.z(h).float())
        return self.o(gated.to(self.o.weight.dtype)).float()

    def forward(self, h: Tensor) -> Tensor:
        inputs, _ = self.inputs(h)
        return self.finish(h, delta_rule(inputs)[0])


class Attention(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        d = c.head_dim
        self.q = nn.Linear(c.hidden_size, 2 * c.num_attention_heads * d, bias=False)  # each head: query, gate
        self.k = nn.Linear(c.hidden_size, c.num_key_value_heads * d, bias=False)
        self.v = nn.Linear(c.hidden_size, c.num_key_value_heads * d, bias=False)
        self.o = nn.Linear(c.num_attention_heads * d, c.hidden_size, bias=False)
        self.q_norm = nn.Parameter(torch.zeros(d))
        self.k_norm = nn.Parameter(torch.zeros(d))

    def heads(self, h: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries and keys [B, H, T, D] rotated to the positions [T], values, gates [B, T, H * D]; float32."""
        q, gate = self.q(h).float().unflatten(-1, (self.c.num_attention_heads, -1)).chunk(2, -1)
        k, v = (p(h).float().unflatten(-1, (self.c.num_key_value_heads, -1)) for p in (self.k, self.v))
        q, k = norm(q, self.q_norm).transpose(1, 2), norm(k, self.k_norm).transpose(1, 2)
        return turn(q, positions), turn(k, positions), v.transpose(1, 2), gate.flatten(2)

    def finish(self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, mask: Tensor | None = None) -> Tensor:
        """The layer's addition to the residual stream."""
        group = self.c.num_attention_heads // self.c.num_key_value_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        out = out.transpose(1, 2).flatten(2) * gate.sigmoid()
        return self.o(out.to(self.o.weight.dtype)).float()

    def forward(self, h: Tensor) -> Tensor:
        return self.finish(*self.heads(h, torch.arange(h.shape[1])))


def turn(x: Tensor, positions: Tensor) -> Tensor:
    """RoPE of x [B, H, T, D]."""
    frequency = ROPE_THETA ** (-torch.arange(0, x.shape[-1], 2).float() / x.shape[-1])
    angle = positions.float()[..., None] * frequency
    return nano.rotate(x, angle.cos(), angle.sin())


class Layer(nn.Module):
    def __init__(self, c: Config, index: int) -> None:
        super().__init__()
        self.input_norm = nn.Parameter(torch.zeros(c.hidden_size))
        self.mixer = Attention(c) if c.attends(index) else DeltaNet(c)
        self.post_norm = nn.Parameter(torch.zeros(c.hidden_size))
        self.gate = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def mixer_input(self, x: Tensor) -> Tensor:
        return norm(x, self.input_norm).to(self.gate.weight.dtype)

    def mlp(self, x: Tensor) -> Tensor:
        h = norm(x, self.post_norm).to(self.gate.weight.dtype)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)).float()

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(x + self.mixer(self.mixer_input(x)))


class Hybrid(nn.Module):
    """Tied embeddings; the residual stream is float32, the matrices may be bf16."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.config = c
        self.embedding = nn.Parameter(torch.randn(c.vocab_size, c.hidden_size) * 0.02)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c.num_hidden_layers))
        self.final_norm = nn.Parameter(torch.zeros(c.hidden_size))
        deep = (2 * c.num_hidden_layers) ** -0.5
        for layer in self.layers:
            for module in layer.modules():
                if isinstance(module, nn.Linear):
                    nn.init.normal_(module.weight, std=module.in_features ** -0.5)
            with torch.no_grad():
                layer.mixer.o.weight *= deep
                layer.down.weight *= deep

    def logits(self, x: Tensor) -> Tensor:
        matrices = self.layers[0].gate.weight.dtype
        return F.linear(norm(x, self.final_norm).to(matrices), self.embedding.to(matrices)).float()

    def streams(self, ids: Tensor) -> list[Tensor]:
        """The residual stream behind each layer."""
        x, out = F.embedding(ids, self.embedding.float()), []
        for layer in self.layers:
            x = layer(x)
            out.append(x)
        return out

    def begin_with(self, teacher: nano.Nano) -> None:
        """Takes over what has its place in both; layers behind the teacher's last one begin as nothing."""
        with torch.no_grad():
            self.embedding.copy_(teacher.embedding)
            self.final_norm.copy_(teacher.final_norm - 1)
            for layer, old in zip(self.layers, teacher.layers):
                layer.input_norm.copy_(old.input_norm - 1)
                layer.post_norm.copy_(old.post_norm - 1)
                for new, source in ((layer.gate, old.gate), (layer.up, old.up), (layer.down, old.down)):
                    new.weight.copy_(source.weight)
                q, k, v = old.q.weight, old.k.weight, old.v.weight
                if isinstance(layer.mixer, Attention):
                    queries = layer.mixer.q.weight.unflatten(0, (self.config.num_attention_heads, 2, -1))
                    queries.zero_()
                    queries[:, 0] = q.unflatten(0, (self.config.num_attention_heads, -1))
                    layer.mixer.k.weight.copy_(k)
                    layer.mixer.v.weight.copy_(v)
                    layer.mixer.o.weight.copy_(2 * old.o.weight)  # half passes a gate of 0
                    continue
                group = self.config.num_attention_heads // self.config.num_key_value_heads
                wide = lambda w: w.unflatten(0, (-1, self.config.head_dim)).repeat_interleave(group, 0).flatten(0, 1)
                layer.mixer.qkv.weight.copy_(torch.cat((q, wide(k), wide(v))))
            for layer in self.layers[len(teacher.layers):]:
                layer.mixer.o.weight.zero_()
                layer.down.weight.zero_()


def scale_like(student: Hybrid, teacher: nano.Nano, ids: Tensor) -> None:
    """Sets the norms of queries and keys to the sizes that they had in the teacher."""
    cos, sin = nano.rotation(teacher.config, torch.arange(ids.shape[1]))
    x = F.embedding(ids, teacher.embedding)
    for layer, old in zip(student.layers, teacher.layers):
        q, k, v = old.heads(x, cos, sin)
        if isinstance(layer.mixer, Attention):
            layer.mixer.q_norm.fill_(float(q.square().mean().sqrt()) - 1)
            layer.mixer.k_norm.fill_(float(k.square().mean().sqrt()) - 1)
        x = old.finish(x, old.attend(q, k, v))


NAMES = {"input_norm": "input_layernorm.weight", "post_norm": "post_attention_layernorm.weight",
         "gate.weight": "mlp.gate_proj.weight", "up.weight": "mlp.up_proj.weight", "down.weight": "mlp.down_proj.weight"}
ATTENTION = {"q.weight": "q_proj.weight", "k.weight": "k_proj.weight", "v.weight": "v_proj.weight",
             "o.weight": "o_proj.weight", "q_norm": "q_norm.weight", "k_norm": "k_norm.weight"}
DELTA = {"qkv.weight": "in_proj_qkv.weight", "z.weight": "in_proj_z.weight", "a.weight": "in_proj_a.weight",
         "b.weight": "in_proj_b.weight", "o.weight": "out_proj.weight", "conv": "conv1d.weight", "rate": "A_log",
         "step": "dt_bias", "out_norm": "norm.weight"}


def file_name(config: Config, name: str) -> str:
    """The Hugging Face name of one of our parameters."""
    if name == "embedding":
        return "model.embed_tokens.weight"
    if name == "final_norm":
        return "model.norm.weight"
    _, index, rest = name.split(".", 2)
    if rest.startswith("mixer."):
        rest = rest.removeprefix("mixer.")
        rest = f"self_attn.{ATTENTION[rest]}" if config.attends(int(index)) else f"linear_attn.{DELTA[rest]}"
    else:
        rest = NAMES[rest]
    return f"model.layers.{index}.{rest}"


def save(parameters: dict[str, Tensor], config: Config, folder: Path, like: Path) -> None:
    """Writes the model in bf16 beside the tokenizer of the model in `like`."""
    folder.mkdir(parents=True, exist_ok=True)
    layout = {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", **asdict(config), "hidden_act": "silu",
              "attention_bias": False, "tie_word_embeddings": True, "linear_conv_kernel_dim": KERNEL, "eos_token_id": 2,
              "pad_token_id": 0, "dtype": "bfloat16", "full_attention_interval": 4,
              "layer_types": ["full_attention" if config.attends(i) else "linear_attention" for i in range(config.num_hidden_layers)],
              "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA, "partial_rotary_factor": 1.0}}
    tensors = {file_name(config, n): p.detach().to(torch.bfloat16).contiguous() for n, p in parameters.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(layout, indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(like / name, folder / name)


def load(folder: Path) -> Hybrid:
    """The model of a folder, in float32."""
    stored = json.loads((folder / "config.json").read_text())
    model = Hybrid(Config(**{f: stored[f] for f in Config.__dataclass_fields__}))
    tensors = load_file(folder / "model.safetensors")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[file_name(model.config, name)])
    return model


@torch.no_grad()
def teach(teacher: nano.Nano, ids: Tensor) -> tuple[list[Tensor], Tensor]:
    """The teacher's residual streams and logits."""
    dtype = teacher.layers[0].q.weight.dtype
    cos, sin = (x.to(dtype) for x in nano.rotation(teacher.config, torch.arange(ids.shape[1])))
    x, streams = F.embedding(ids, teacher.embedding.float()), []
    for layer in teacher.layers:
        x = layer(x, cos, sin)
        streams.append(x)
    return streams, teacher.logits(x)


def loss_of(student: Hybrid, teacher: nano.Nano, ids: Tensor, weights: Tensor, align: float) -> tuple[Tensor, Tensor]:
    """The sum to learn from, and the weighted cross entropy of the answers in it."""
    streams, target = teach(teacher, ids)
    own = student.streams(ids)
    real = ids.ne(IGNORED).float()
    total = torch.zeros(())
    if align > 0:
        for mine, theirs in zip(own, streams):
            error = (mine - theirs).square().mean(-1) / theirs.square().mean(-1).clamp(min=1e-4)
            total = total + align * (error * real).sum() / len(streams)
    logits = student.logits(own[-1])[:, :-1]
    flat = logits.flatten(0, 1)
    answers = (F.cross_entropy(flat, ids[:, 1:].flatten(), reduction="none") * weights[:, 1:].flatten()).sum()
    share = torch.maximum(weights[:, 1:], 0.05 * real[:, 1:])
    apart = F.kl_div(flat.log_softmax(-1), target[:, :-1].flatten(0, 1).log_softmax(-1), reduction="none", log_target=True)
    return total + answers + (apart.sum(-1) * share.flatten()).sum(), answers.detach()


def train(rank: int, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    dist.init_process_group("gloo", rank=rank, world_size=args.processes)
    torch.manual_seed(args.seed)
    tokenizer = Tokenizer.from_file(str(args.teacher / "tokenizer.json"))
    teacher, student = nano.load(args.teacher), Hybrid(Config(vocab_size=tokenizer.get_vocab_size()))
    batches = Batches(tokenizer, random.Random(f"{args.seed} {rank}"), args.batch, [])
    if args.start:
        student = load(args.start)
    else:
        student.begin_with(teacher)
        with torch.no_grad():
            scale_like(student, teacher, batches.next()[0])
    optimizer = Optimizer(student, args.matrix_rate, args.other_rate)
    for model in (teacher, student):
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.to(torch.bfloat16)
    parameters = dict(student.named_parameters())
    if rank == 0:
        print(f"{sum(p.numel() for p in parameters.values()):,} parameters", flush=True)

    begun = logged = saved = time.monotonic()
    done, step, tokens, recent = 0.0, 0, 0.0, []
    while done < 1:
        ids, weights = batches.next()
        loss, answers = loss_of(student, teacher, ids, weights, args.align * max(0.0, 1 - done / args.aligned))
        loss.backward()
        totals = torch.tensor([float(answers), weights[:, 1:].sum().item(), ids.ne(IGNORED).sum().item(),
                               0.0 if rank else (time.monotonic() - begun) / 60 / args.minutes])
        flat = torch.cat([*(p.grad.float().flatten() for p in parameters.values()), totals])
        student.zero_grad(set_to_none=True)
        dist.all_reduce(flat)
        answer_loss, weight, count, done = flat[-4:].tolist()
        flat /= weight
        sizes = [p.numel() for p in parameters.values()]
        gradients = {n: g.view(p.shape) for (n, p), g in zip(parameters.items(), flat[:-4].split(sizes))}
        optimizer.step(gradients, step, min(1.0, (step + 1) / FIRST) * min(1.0, max(0.0, 1 - done) / args.decay))
        step, tokens = step + 1, tokens + count
        recent.append((answer_loss, weight, count))
        now = time.monotonic()
        if rank == 0 and (now - logged > 20 or done >= 1):
            print(f"step {step}, {tokens / 1e6:.2f} M tokens, loss {sum(r[0] for r in recent) / sum(r[1] for r in recent):.4f}, "
                  f"{sum(r[2] for r in recent) / (now - logged):.0f} tokens/s, {done:.1%}", flush=True)
            logged, recent = now, []
        if rank == 0 and (now - saved > 300 or done >= 1):
            save(optimizer.masters, student.config, args.out, args.teacher)
            saved = now
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--teacher", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--start", type=Path, help="a hybrid to go on with")
    parser.add_argument("--minutes", type=float, default=50)
    parser.add_argument("--align", type=float, default=1.0, help="weight of the difference to the teacher's residual streams")
    parser.add_argument("--aligned", type=float, default=0.4, help="share of the training in which it falls to zero")
    parser.add_argument("--decay", type=float, default=0.45, help="share of the training, at the end, in which the rates fall to zero")
    parser.add_argument("--batch", type=int, default=3072, help="tokens of a batch in each process")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--matrix-rate", type=float, default=0.01)
    parser.add_argument("--other-rate", type=float, default=2e-3)
    parser.add_argument("--port", type=int, default=29518)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    mp.spawn(train, (args,), args.processes)


if __name__ == "__main__":
    main()
