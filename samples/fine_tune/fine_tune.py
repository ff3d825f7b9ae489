#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a chat model further on questions and answers, so that two related models are at hand (method droidspeak).

    python -m pip install torch transformers accelerate gguf
    python samples/fine_tune/fine_tune.py --model smollm2-135m.gguf --minutes 0 --out smollm2            # the model, in bf16
    python samples/fine_tune/fine_tune.py --model smollm2 --data train.jsonl --minutes 10 --out smollm2-math

A line of the data is {"question": ..., "answer": ...}, as in GSM8K. Both folders have the same tokenizer, so that their
agents can read each other's KV: docs/samples.md. Trains on the CPU, in f32 with products in bf16, by AdamW with a rate that
falls to zero; only the answers' tokens count. The same arguments give the same weights where the machine makes as many steps.
"""

import argparse
import json
import pathlib
import random
import re
import sys
import time

import torch
import transformers

CALCULATIONS = re.compile(r"<<[^>]*>>")  # of GSM8K, for a calculator
REPORT_S = 20.0


def load(model: pathlib.Path):
    """The model in f32 and its tokenizer, from a folder or a .gguf file, whose weights are dequantised."""
    where = {"pretrained_model_name_or_path": str(model)}
    if model.suffix == ".gguf":
        where = {"pretrained_model_name_or_path": str(model.parent), "gguf_file": model.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    if model.suffix == ".gguf":  # Transformers does not write what it has dequantised; a plain model of the same weights, it does
        weights = loaded.state_dict()
        if hasattr(loaded.config, "quantization_config"):
            del loaded.config.quantization_config
        loaded = transformers.AutoModelForCausalLM.from_config(loaded.config, dtype=torch.float32)
        loaded.load_state_dict(weights)
    return loaded, tokenizer


def examples_of(data: pathlib.Path, tokenizer, max_tokens: int) -> list[tuple[list[int], int]]:
    """Token ids of each dialogue that is short enough, and where its answer begins."""
    examples = []
    for number, line in enumerate(data.read_text(encoding="utf-8").splitlines(), 1):
        try:
            fields = json.loads(line)
            question, answer = fields["question"], CALCULATIONS.sub("", fields["answer"])
        except (ValueError, KeyError, TypeError) as error:
            sys.exit(f"{data}:{number}: expected an object with the texts question and answer ({error})")
        dialogue = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        begin = tokenizer.apply_chat_template(dialogue[:1], add_generation_prompt=True, tokenize=False)
        whole = tokenizer.apply_chat_template(dialogue, tokenize=False)
        ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
        if len(ids) <= max_tokens:
            examples.append((ids, len(tokenizer(begin, add_special_tokens=False)["input_ids"])))
    if not examples:
        sys.exit(f"{data}: no dialogue has at most {max_tokens} tokens")
    return examples


def batch_of(chosen: list[tuple[list[int], int]]) -> dict:
    length = max(len(ids) for ids, _ in chosen)
    ids = torch.zeros(len(chosen), length, dtype=torch.long)
    labels = torch.full_like(ids, -100)  # not counted
    mask = torch.zeros_like(ids)
    for row, (tokens, begin) in enumerate(chosen):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        labels[row, begin : len(tokens)] = ids[row, begin : len(tokens)]
        mask[row, : len(tokens)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def train(model, examples: list[tuple[list[int], int]], arguments) -> int:
    chance = random.Random(arguments.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, betas=(0.9, 0.95), weight_decay=0.01)
    model.train()
    begin, reported, steps, tokens, losses = time.monotonic(), 0.0, 0, 0, []
    while (passed := time.monotonic() - begin) < 60 * arguments.minutes:
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * min(1.0, (steps + 1) / 10) * (1 - passed / (60 * arguments.minutes))
        batch = batch_of(chance.sample(examples, min(arguments.batch, len(examples))))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        steps, tokens = steps + 1, tokens + int(batch["attention_mask"].sum())
        losses.append(loss.item())
        if time.monotonic() - begin - reported > REPORT_S:
            reported = time.monotonic() - begin
            print(f"{reported / 60:5.1f} of {arguments.minutes:g} min: {steps} steps, loss {sum(losses) / len(losses):.3f}, "
                  f"{tokens / reported:.0f} tokens/s", file=sys.stderr, flush=True)
            losses = []
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=pathlib.Path, required=True, help="a folder of safetensors, or a .gguf file")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder to write, in bf16; it must not exist")
    parser.add_argument("--data", type=pathlib.Path, help="questions and answers, one object a line")
    parser.add_argument("--minutes", type=float, default=10.0, help="of training; 0: the model as it is (%(default)s)")
    parser.add_argument("--rate", type=float, default=1e-4, help="the largest learning rate (%(default)s)")
    parser.add_argument("--batch", type=int, default=8, help="dialogues in a step (%(default)s)")
    parser.add_argument("--max-tokens", type=int, default=320, help="longer dialogues are left out (%(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="of the order of the dialogues (%(default)s)")
    arguments = parser.parse_args()
    if arguments.out.exists():
        parser.error(f"--out {arguments.out}: it exists already")
    if arguments.minutes > 0 and arguments.data is None:
        parser.error("--data: expected a file where --minutes is above 0")
    if not arguments.model.exists():
        parser.error(f"--model {arguments.model}: expected a folder or a .gguf file")
    torch.manual_seed(arguments.seed)
    model, tokenizer = load(arguments.model)
    if arguments.minutes > 0:
        steps = train(model, examples_of(arguments.data, tokenizer, arguments.max_tokens), arguments)
        print(f"{steps} steps", file=sys.stderr)
    model.to(torch.bfloat16).save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)
    print(f"written: {arguments.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
