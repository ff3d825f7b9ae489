#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares greedy answers and tokenizers on published GGUF files with llama.cpp's (Python package xllamacpp).

    python tests/published/greedy_peer.py --bin build/release/bin --models DIR
        [--only NAME] [--prompts 50] [--tokens 64] [--dtype bf16] [--gap 0.5]

For every file: the ids of every text are equal, and so are the greedy tokens, up to near ties. Both answer the same
ids. Where two answers part, the peer's own logits say how near the two best tokens were there. llama.cpp rounds
activations to 8 bits in products with quantised weights, so that its own answers part from those with exact products.
A file passes when at most one prompt in ten parts, and none of them where the peer's best token leads by more than
--gap (natural logarithm of the ratio of the two probabilities).
"""

import argparse
import json
import pathlib
import subprocess
import sys
import urllib.request

HERE = pathlib.Path(__file__).parent


class Peer:
    def __init__(self, model, threads):
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(model)
        params.n_ctx = 2048
        params.n_parallel = 1
        params.warmup = False
        params.cpuparams.n_threads = threads
        params.verbosity = -1
        self.server = xllamacpp.Server(params)

    def ids(self, text):
        body = json.dumps({"content": text, "add_special": True, "parse_special": True}).encode()
        request = urllib.request.Request(self.server.listening_address + "/tokenize", body,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["tokens"]

    def answer(self, ids, tokens):
        """Ids, and how far each leads."""
        asked = {"prompt": ids, "n_predict": tokens, "max_tokens": tokens, "temperature": 0.0, "top_k": 1, "n_probs": 2,
                 "logprobs": 2, "ignore_eos": True, "cache_prompt": False}
        answer = self.server.handle_completions(asked)
        answer = json.loads(answer) if isinstance(answer, str) else answer
        content = answer["choices"][0]["logprobs"]["content"]
        tops = [token["top_logprobs"] for token in content]
        return [token["id"] for token in content], [top[0]["logprob"] - top[1]["logprob"] for top in tops]


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def ask(program, lines):
    done = subprocess.run(program, input="".join(line + "\n" for line in lines), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(program)}: {done.stderr.strip()}")
    return done.stdout.splitlines()


def compare_ids(peer, options, model, texts):
    questions = ["b " + text.encode().hex() for text in texts]
    lines = ask([str(options.bin / "baton_tokenize_check"), str(model)], questions)
    wrong = 0
    for text, line in zip(texts, lines):
        ours, theirs = [int(word) for word in line.split()], peer.ids(text)
        if ours != theirs:
            wrong += 1
            print(f"  ids differ for {text[:60]!r}: {ours[:12]} and {theirs[:12]}")
    print(f"  {len(texts) - wrong} of {len(texts)} texts have the same ids")
    return wrong == 0


def compare_answers(peer, options, model, texts):
    questions = [json.dumps({"text": text, "tokens": options.tokens}) for text in texts]
    lines = ask([str(options.bin / "baton_answer_check"), str(model), options.dtype], questions)
    gaps = []
    for text, line in zip(texts, lines):
        ours = json.loads(line)
        theirs, leads = peer.answer(ours["ids"], options.tokens)
        parted = next((i for i, pair in enumerate(zip(ours["tokens"], theirs)) if pair[0] != pair[1]), None)
        if len(theirs) < options.tokens and parted is None:
            sys.exit(f"the peer stopped after {len(theirs)} of {options.tokens} tokens")
        if parted is not None:
            gaps.append(leads[parted])
            print(f"  parts at token {parted}: the peer's lead is {leads[parted]:.3f}, ours "
                  f"{ours['gaps'][parted]:.3f}; {text[:50]!r}")
    print(f"  {len(texts) - len(gaps)} of {len(texts)} answers of {options.tokens} tokens are the same; largest lead "
          f"where two part: {max(gaps, default=0.0):.3f}")
    return len(gaps) * 10 <= len(texts) and max(gaps, default=0.0) <= options.gap


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "f32"))
    parser.add_argument("--gap", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    prompts, texts = (read_lines(HERE / name) for name in ("prompts.jsonl", "texts.jsonl"))
    models = sorted(path for path in options.models.glob("*.gguf") if options.only in path.name)
    if not models:
        sys.exit(f"no .gguf file in {options.models}")
    passed = True
    for model in models:
        print(model.name, flush=True)
        peer = Peer(model, options.threads)
        passed &= compare_ids(peer, options, model, prompts + texts)
        passed &= compare_answers(peer, options, model, prompts[: options.prompts])
        del peer
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
