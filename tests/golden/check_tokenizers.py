# SPDX-License-Identifier: Apache-2.0
"""Compares Baton's tokenizers with Hugging Face `tokenizers` on many lines.

    python tests/golden/check_tokenizers.py build/bin/baton_tokenize_check [--lines 10000]
        [--gpt2 FOLDER] [--qwen FOLDER] [--tokenizer FILE ...] [--texts FILE ...]

Our own small tokenizers and variants are always compared. --gpt2 takes a folder with encoder.json and vocab.bpe, --qwen
one with qwen.tiktoken; --tokenizer any tokenizer.json. --texts adds the lines of files to the made-up ones. Prompts are
also cut into pieces: at special tokens and between words, where the ids are those of the whole, and anywhere, where the
text is.
"""
import argparse
import base64
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Tokenizer

from make_tokenizers import LLAMA3, QWEN, with_changes
from tokenizer_texts import HARD, INVALID_HEX, TRAINING, mixed_lines

HERE = pathlib.Path(__file__).parent / "tokenizers"
BYTE_DECODER = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def byte_characters():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def added(ids):
    return [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": special} for text, i, special in ids]


def gpt2_json(folder):
    vocab = json.loads((folder / "encoder.json").read_text())
    merges = [line for line in (folder / "vocab.bpe").read_text().split("\n")[1:] if line]
    return {"version": "1.0", "added_tokens": added([("<|endoftext|>", 50256, True)]), "normalizer": None,
            "pre_tokenizer": {**BYTE_DECODER, "use_regex": True}, "post_processor": None, "decoder": BYTE_DECODER,
            "model": {"type": "BPE", "vocab": vocab, "merges": merges}}


def qwen_json(folder):
    """Ranks -> merges: each token is the last merge of what the lower ranks make of its bytes."""
    ranks = {}
    for line in (folder / "qwen.tiktoken").read_text().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], rank))
            if ranks.get(parts[best] + parts[best + 1], rank) >= rank:
                break
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
        if len(parts) == 2:
            merges.append(parts)
    names = byte_characters()

    def name(token):
        return "".join(names[b] for b in token)

    count = len(ranks)
    extra = [("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True), ("<tool_call>", False)]
    split = {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False}
    return {"version": "1.0", "added_tokens": added([(t, count + i, s) for i, (t, s) in enumerate(extra)]),
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, BYTE_DECODER]},
            "post_processor": None, "decoder": BYTE_DECODER,
            "model": {"type": "BPE", "vocab": {name(t): r for t, r in ranks.items()},
                      "merges": [f"{name(a)} {name(b)}" for a, b in merges]}}


def llama3_of(data):
    """The same vocabulary cut as Llama 3 does."""
    out = json.loads(json.dumps(data))
    out["normalizer"] = None
    out["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = LLAMA3
    out["model"]["ignore_merges"] = True
    return out


def wild_lines(count, rng):
    """Any characters at all, in runs of one range."""
    ranges = [(0x20, 0x7E), (0x20, 0x7E), (0, 0x20), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x7FF),
              (0x900, 0xDFF), (0xE00, 0x1FFF), (0x2000, 0x2FFF), (0x3000, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
              (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x2FA1F), (0xE0000, 0xE01EF)]
    out = []
    for _ in range(count):
        line = ""
        for _ in range(rng.randint(1, 12)):
            low, high = rng.choice(ranges)
            line += "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 4))) + rng.choice(["", " ", "a"])
        out.append(line)
    return out


def invalid_lines(count, rng):
    out = [bytes.fromhex(text) for text in INVALID_HEX]
    pool = "".join(HARD).encode()
    for _ in range(count):
        start = rng.randrange(len(pool))
        line = bytearray(pool[start:start + rng.randint(1, 30)])
        for _ in range(rng.randint(1, 4)):
            line[rng.randrange(len(line))] = rng.choice([rng.randrange(256), rng.randrange(0x80, 0x100)])
        out.append(bytes(line))
    return out


def ask(program, path, questions):
    run = subprocess.run([program, path], input="".join(q + "\n" for q in questions).encode(), capture_output=True)
    if run.returncode != 0:
        sys.exit(f"{path}: {run.stderr.decode()}")
    return run.stdout.decode().split("\n")


def compare(program, path, name, lines, show):
    """Number of texts and of answers that differ."""
    tokenizer = Tokenizer.from_file(str(path))
    texts = [line.decode("utf-8", "replace") for line in lines]
    questions, expected, meant = [], [], []

    def question(kind, words, answer, about):
        questions.append(f"{kind} {words}")
        expected.append(answer)
        meant.append(about)

    for special in (True, False):
        tokenizer.encode_special_tokens = not special
        encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
        for line, text, encoding in zip(lines, texts, encoded):
            ids = encoding.ids
            question("r" if special else "t", line.hex(), ids, text)
            if special:
                listed = " ".join(map(str, ids))
                question("d", listed, tokenizer.decode(ids, skip_special_tokens=False), text)
                question("s", listed, tokenizer.decode(ids, skip_special_tokens=True), text)
    tokenizer.encode_special_tokens = False
    size = tokenizer.get_vocab_size()
    rng = random.Random(11)
    for _ in range(min(2000, len(lines))):
        ids = [rng.randrange(size) for _ in range(rng.randint(1, 8))]
        question("s", " ".join(map(str, ids)), tokenizer.decode(ids, skip_special_tokens=True), ids)
    for text in texts[:200]:
        question("b", text.encode().hex(), tokenizer.encode(text, add_special_tokens=True).ids, text)
    different, new = 0, 0
    for asked, answer, wanted, about in zip(questions, ask(program, path, questions), expected, meant):
        got = bytes.fromhex(answer).decode() if asked[0] in "ds" else [int(word) for word in answer.split()]
        if got != wanted and isinstance(about, str) and any(unicodedata.category(c) == "Cn" for c in about):
            new += 1  # utf8proc may be older than the tables of `tokenizers`: nothing is known of such a character
        elif got != wanted:
            different += 1
            if different <= show:
                print(f"  {name} {asked[0]} {about!r}\n    wanted {wanted!r}\n    got    {got!r}")
    print(f"{name}: {len(lines)} texts, {len(questions)} answers, {different} differ"
          + (f" ({new} more with characters newer than Unicode {unicodedata.unidata_version})" if new else ""), flush=True)
    return different


def prompts(lines, specials, count, rng):
    """Texts of several lines with special tokens between them."""
    made = []
    for _ in range(count):
        parts = [rng.choice(lines) for _ in range(rng.randint(1, 4))]
        made.append("".join(part + (rng.choice(specials) if specials and rng.random() < 0.6 else "") for part in parts))
    return [text for text in made if text]


def word_cuts(encoding, text, special_ids):
    """Where the tokenizer cuts, whatever stands behind: between words, but not behind blanks, which look ahead."""
    cuts, last = set(), None
    for id_, word, (begin, end) in zip(encoding.ids, encoding.word_ids, encoding.offsets):
        special = id_ in special_ids
        if special:
            cuts |= {begin, end}
        elif last is not None and word != last and begin > 0 and not text[begin - 1].isspace():
            cuts.add(begin)
        last = None if special else word
    return sorted(cut for cut in cuts if 0 < cut < len(text))


def compare_pieces(program, path, name, lines, show, count):
    """Number of prompts whose pieces differ from the whole text."""
    tokenizer, rng = Tokenizer.from_file(str(path)), random.Random(13)
    special = tokenizer.get_added_tokens_decoder()
    names = [token.content for token in special.values() if token.special and not token.lstrip]
    texts = [unicodedata.normalize("NFC", line) for line in lines if line.isprintable()]
    # Normal forms join a mark with what stands in front of a cut.
    texts = [text for text in texts if not any(unicodedata.category(c).startswith("M") for c in text)]
    whole = prompts(texts, names, count, rng)
    questions, meant = [], []
    for text, encoding in zip(whole, tokenizer.encode_batch(whole, add_special_tokens=False)):
        cuts = [cut for cut in word_cuts(encoding, text, special) if rng.random() < 0.5]
        anywhere = sorted({rng.randrange(len(text)) for _ in range(rng.randint(1, 3))})
        inside = [(at, token.content) for token in special.values() for at in range(len(text))
                  if text.startswith(token.content, at)]
        anywhere = [cut for cut in anywhere if cut and not any(at < cut < at + len(one) for at, one in inside)]
        for at, kind in ((cuts, "ids"), (anywhere, "text")):
            pieces = [text[a:b] for a, b in zip([0, *at], [*at, len(text)])]
            questions.append("p " + " ".join(piece.encode().hex() for piece in pieces))
            meant.append((kind, text, at, encoding.ids))
    different, parted = 0, 0
    for (kind, text, at, wanted), answer in zip(meant, ask(program, path, questions)):
        got = [int(word) for word in answer.split()]
        parted += kind == "text" and got != wanted
        if kind == "text":
            got, wanted = (tokenizer.decode(ids, skip_special_tokens=False) for ids in (got, wanted))
        if got != wanted:
            different += 1
            if different <= show:
                print(f"  {name} pieces {kind} {text!r} at {at}\n    wanted {wanted!r}\n    got    {got!r}")
    print(f"{name}: {len(whole)} prompts in pieces, {different} differ ({parted} of those cut anywhere in their ids)",
          flush=True)
    return different


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--lines", type=int, default=10000)
    parser.add_argument("--gpt2", type=pathlib.Path)
    parser.add_argument("--qwen", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--texts", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--show", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=1000, help="in pieces, for each tokenizer")
    parser.add_argument("--pieces", action="store_true", help="compare nothing but pieces")
    options = parser.parse_args()
    rng = random.Random(7)
    lines = [text.encode() for text in HARD + TRAINING.splitlines()[:60] + mixed_lines(options.lines // 2, 3)]
    lines += [text.encode() for text in wild_lines(options.lines // 3, rng)] + invalid_lines(options.lines // 6, rng)
    for path in options.texts:
        lines += path.read_bytes().splitlines()
    shown = HARD + TRAINING.splitlines()[:60] + mixed_lines(500, 4)

    def compare_all(path, name, some):
        found = 0 if options.pieces else compare(options.program, path, name, some, options.show)
        if name.startswith("variant"):
            return found
        return found + compare_pieces(options.program, path, name, shown, options.show, options.prompts)

    different = 0
    with tempfile.TemporaryDirectory() as folder:
        def check(name, data, some):
            path = pathlib.Path(folder) / "tokenizer.json"
            path.write_text(json.dumps(data))
            return compare_all(path, name, some)

        bases = {p.stem: json.loads(p.read_text()) for p in sorted(HERE.glob("*.json"))
                 if p.stem not in ("lines", "variants") and not p.stem.endswith(".golden")}
        for name, data in bases.items():
            different += check(name, data, lines)
        few = rng.sample(lines, min(len(lines), 1500))
        for variant in json.loads((HERE / "variants.json").read_text()):
            data = with_changes(bases[variant["base"]], variant["changes"])
            different += 0 if options.pieces else check(f"variant '{variant['name']}'", data, few)
        if options.gpt2:
            different += check("gpt2 (real)", gpt2_json(options.gpt2), lines)
        if options.qwen:
            data = qwen_json(options.qwen)
            different += check("qwen (real)", data, lines)
            different += check("qwen's vocabulary cut as Llama 3 does", llama3_of(data), lines)
        for path in options.tokenizer:
            different += compare_all(path, str(path), lines)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
