#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares greedy answers and tokenizers on published GGUF files with llama.cpp's (Python package xllamacpp).

    python tests/published/greedy_peer.py --bin build/release/bin --models DIR
        [--only NAME] [--prompts 50] [--tokens 64] [--dtype bf16] [--kv-dtype f32] [--peer-kv f16] [--threads 2]
        [--reference] [--verbose]

For every file the ids of every text must be equal, and the greedy answers of both to the same prompts are compared up to
the first token that ends one of them. The first difference of an answer is accepted only at a near tie:

- The peer answers every prompt twice, with its KV cache in f16 and in f32. As long as both answers are the same, the
  log-probabilities of its two best tokens are compared: how much a rounding that the peer itself allows changes them.
- A first difference is accepted where the two best tokens of the peer (--peer-kv) are nearer to each other than the 99th
  percentile of these changes, and in at most one prompt of ten. How many of the peer's own two answers differ is printed
  next to it, and changes nothing.

--reference also answers with activations in f32 (dtype f32), which is what the file's weights say, and counts how many
answers of each program are those.

Exit code 1: some file failed. To find the cause of larger differences, expand the file to f32 with dequantise_gguf.py
and compare with --dtype f32. Both programs round activations to 8 bits in products with quantised weights, which no
rule fixes in detail, and neither does with f32 ones: differences that remain there are not of the products.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import urllib.request

HERE = pathlib.Path(__file__).parent
CACHES = ("f16", "f32")


# The peer's process: it is killed when it is no longer needed, since its server ignores other ways to be ended.

def serve(model, cache, threads):
    """Answers JSON lines on stdin with JSON lines on what was stdout; what llama.cpp prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = 2048
    params.n_parallel = 1
    params.warmup = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_type_k = params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{cache.upper()}")
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED  # it rounds an f32 cache to f16
    params.verbosity = -1
    server = xllamacpp.Server(params)

    def post(path, **body):
        request = urllib.request.Request(server.listening_address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    for line in sys.stdin:
        asked = json.loads(line)
        if "text" in asked:
            found = post("/tokenize", content=asked["text"], add_special=True, parse_special=True)["tokens"]
        else:
            found = post("/completion", prompt=asked["ids"], n_predict=asked["tokens"], temperature=0.0, top_k=1, n_probs=2,
                         cache_prompt=False, return_tokens=True, logit_bias=asked.get("logit_bias", []))
            found = [found["tokens"], found.get("completion_probabilities", [])]
        print(json.dumps(found), file=answers, flush=True)
    os._exit(0)


class Peer:
    def __init__(self, model, cache, threads):
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", str(model), cache, str(threads)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.process.kill()
        self.process.wait()

    def ask(self, **asked):
        try:
            print(json.dumps(asked), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            sys.exit(f"the peer's process ended with code {self.process.wait()}")
        return json.loads(line)

    def ids(self, text):
        return self.ask(text=text)

    def answer(self, ids, tokens):
        """Ids of the answer, with the token that ends it, and for each the two best (id, log-probability), or None."""
        found, described = self.ask(ids=ids, tokens=tokens)
        return found, align(found, described)

    def tops_after(self, ids):
        """The two best (id, log-probability) of the token after these, also where that is a part of a character: another
        token, a letter, is forced to be the next. Log-probabilities are those before that."""
        letter = self.ids("a")[-1]
        return best_two(self.ask(ids=ids, tokens=1, logit_bias=[[letter, 1e6]])[1][0])


# The comparison.

def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def ask(program, lines):
    done = subprocess.run(program, input="".join(line + "\n" for line in lines), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(program)}: {done.stderr.strip()}")
    return done.stdout.splitlines()


def best_two(described):
    return [(top["id"], top["logprob"]) for top in described["top_logprobs"]]


def align(tokens, described):
    """The two best of each token. The peer's server describes no token that leaves a character incomplete: None."""
    tops, at = [], 0
    for token in tokens:
        if at < len(described) and described[at]["id"] == token:
            tops.append(best_two(described[at]))
            at += 1
        else:
            tops.append(None)
    return tops


def first_difference(a, b):
    return next((i for i, pair in enumerate(zip(a, b)) if pair[0] != pair[1]), None)


def percentile(values, fraction):
    """The smallest of the values that this fraction of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(fraction * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def changes_of(one, other):
    """How much the log-probabilities of the two best tokens differ between two answers, up to their first difference and
    with it: what precedes it is the same."""
    (ids, tops), (other_ids, other_tops) = one, other
    parted = first_difference(ids, other_ids)
    count = min(len(ids), len(other_ids)) if parted is None else parted + 1
    changes = []
    for first, second in zip(tops[:count], other_tops[:count]):
        if first is None or second is None:
            continue
        there = dict(second)
        changes += [abs(logprob - there[token]) for token, logprob in first if token in there]
    return changes


def compare_ids(peer, options, model, texts):
    questions = ["b " + text.encode().hex() for text in texts]
    lines = ask([str(options.bin / "baton_tokenize_check"), str(model)], questions)
    wrong = 0
    for text, line in zip(texts, lines):
        ours, theirs = [int(word) for word in line.split()], peer.ids(text)
        if ours != theirs:
            wrong += 1
            print(f"{model.name}: ids differ for {text[:60]!r}: {ours[:12]} and {theirs[:12]}", file=sys.stderr)
    return len(texts) - wrong


def same_answers(some, others):
    return sum(first_difference(a, b) is None for a, b in zip(some, others))


def ask_ours(options, model, prompts, dtype, kv_dtype):
    questions = [json.dumps({"text": text, "tokens": options.tokens}) for text in prompts]
    program = [str(options.bin / "baton_answer_check"), str(model), dtype, kv_dtype]
    return [json.loads(line) for line in ask(program, questions)]


def gaps_of(options, model, peer, prompts, ours, theirs):
    """The gap between the peer's two best tokens, for each prompt whose answers part."""
    gaps = []
    for text, mine, (tokens, tops) in zip(prompts, ours, theirs):
        at = first_difference(mine["tokens"], tokens)
        if at is None:
            continue
        best, second = tops[at] or peer.tops_after(mine["ids"] + tokens[:at])
        gaps.append(best[1] - second[1])
        if options.verbose:
            print(f"{model.name}: parts at token {at}: the peer's gap is {gaps[-1]:.4f}, ours {mine['gaps'][at]:.4f}; {text[:50]!r}",
                  file=sys.stderr)
    return gaps


def compare(options, model, prompts, texts):
    """A row of the table, and whether the file passes."""
    ours = ask_ours(options, model, prompts, options.dtype, options.kv_dtype or options.dtype)
    answers = {}
    for cache in reversed(CACHES):
        with Peer(model, cache, options.threads) as peer:
            answers[cache] = [peer.answer(one["ids"], options.tokens) for one in ours]
            if cache == options.peer_kv:
                same_ids = compare_ids(peer, options, model, prompts + texts)
                gaps = gaps_of(options, model, peer, prompts, ours, answers[cache])
    changes = [change for pair in zip(answers["f16"], answers["f32"]) for change in changes_of(*pair)]
    if not any(changes):
        sys.exit(f"{model.name}: the peer's answers with {' and '.join(CACHES)} KV are the same to the last bit: no measure of a near tie")
    limit = percentile(changes, 0.99)
    theirs = [tokens for tokens, _ in answers[options.peer_kv]]
    own = len(prompts) - same_answers(*([tokens for tokens, _ in answers[cache]] for cache in CACHES))
    beyond = sum(gap >= limit for gap in gaps)
    passed = same_ids == len(prompts + texts) and beyond == 0 and len(gaps) * 10 <= len(prompts)
    reference = "-"
    if options.reference:
        exact = [one["tokens"] for one in ask_ours(options, model, prompts, "f32", "f32")]
        reference = f"{same_answers([one['tokens'] for one in ours], exact)}, {same_answers(theirs, exact)}"
    print(f"| {model.name} | {same_ids} of {len(prompts + texts)} | {len(prompts) - len(gaps)} of {len(prompts)} | {own} | {reference} | "
          f"{limit:.4f} | {max(gaps, default=0.0):.4f} | {beyond} | {'yes' if passed else 'no'} |", flush=True)
    return passed


def main():
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of baton_answer_check and baton_tokenize_check")
    parser.add_argument("--models", type=pathlib.Path, required=True, help="folder of .gguf files")
    parser.add_argument("--only", default="", help="a part of the name of the files to compare")
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "f32"), help="of Baton's weights and KV")
    parser.add_argument("--kv-dtype", choices=("bf16", "f32"), help="of its KV, where it differs")
    parser.add_argument("--peer-kv", default=CACHES[0], choices=CACHES, help="KV of the peer's answers that are compared")
    parser.add_argument("--threads", type=int, default=2, help="of the peer")
    parser.add_argument("--reference", action="store_true", help="also compare both with answers of dtype f32")
    parser.add_argument("--verbose", action="store_true", help="print where answers part")
    options = parser.parse_args()
    prompts, texts = (read_lines(HERE / name) for name in ("prompts.jsonl", "texts.jsonl"))
    models = sorted(path for path in options.models.glob("*.gguf") if options.only in path.name)
    if not models:
        sys.exit(f"no .gguf file in {options.models}")
    print("| file | same ids | same answers | differ between the peer's f16 and f32 KV | those of dtype f32: Baton, peer | "
          "99th percentile of its change | largest gap | beyond | passes |\n" + "| --- " * 9 + "|", flush=True)
    passed = [compare(options, model, prompts[: options.prompts], texts) for model in models]
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
