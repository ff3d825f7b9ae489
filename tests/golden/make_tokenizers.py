# SPDX-License-Identifier: Apache-2.0
"""Makes the small tokenizers and their goldens in tests/golden/tokenizers/ with Hugging Face `tokenizers`.

    python tests/golden/make_tokenizers.py

Each tokenizer is trained on the texts of tokenizer_texts.py. variants.json holds changes of single parts (normalizers,
pre-tokenizers, decoders, flags) to one of them, so that every construct has a golden without a vocabulary of its own.
"""
import json
import pathlib
import random
import re

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tokenizer_texts import HARD, INVALID_HEX, TRAINING, mixed_lines
from tokenizer_variants import VARIANTS

OUT = pathlib.Path(__file__).parent / "tokenizers"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_level(pre_tokenizer, normalizer, special, size=620, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(TRAINING.splitlines(keepends=True), trainer)
    tokenizer.add_special_tokens(special)
    return tokenizer


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])


def gpt2():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), None, ["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def llama3():
    tokenizer = byte_level(split_then_bytes(LLAMA3), None,
                           ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                            "<|eot_id|>"], ignore_merges=True)
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", bos)]),
    ])
    return tokenizer


def qwen():
    tokenizer = byte_level(split_then_bytes(QWEN), normalizers.NFC(),
                           ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in
                          ["<tool_call>", "</tool_call>", "<think>", "</think>"]])
    return tokenizer


def sentencepiece(metaspace):
    """Llama 2 and Phi 3: spaces as U+2581, bytes for characters that are missing."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=not metaspace)
    trainer = trainers.BpeTrainer(vocab_size=900, limit_alphabet=150, show_progress=False,
                                  special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)])
    tokenizer.train_from_iterator(TRAINING.splitlines(), trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        tokenizer.pre_tokenizer = None
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"),
                                                     normalizers.Replace(" ", "\u2581")])
        tokenizer.add_special_tokens([AddedToken("<|user|>", rstrip=True, normalized=False),
                                      AddedToken("<|end|>", rstrip=True, normalized=False),
                                      AddedToken("<|assistant|>", rstrip=True, normalized=False)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A" if not metaspace else "<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def with_changes(base, changes):
    """The tokenizer.json `base` with the variant's parts; the tests do the same."""
    data = json.loads(json.dumps(base))
    data["added_tokens"] += changes.get("more_added_tokens", [])
    for key, value in changes.items():
        if key == "model":
            data["model"].update(value)
        elif key != "more_added_tokens":
            data[key] = value
    return data


def words(ids):
    return " ".join(map(str, ids))


def with_special_markers(tokenizer):
    """Baton takes every added token between < and > or [ and ] for a role marker: as text they are none."""
    data = json.loads(tokenizer.to_str())
    for token in data["added_tokens"]:
        if re.fullmatch(r"<[^ \t\r\n]+>|\[[^ \t\r\n]+\]", token["content"]) and not token["special"]:
            token["special"] = True
    return Tokenizer.from_str(json.dumps(data))


def golden(tokenizer, texts, random_ids):
    out = {"ids": [], "as_text": {}, "template": {}, "decoded": []}
    strict = with_special_markers(tokenizer)
    strict.encode_special_tokens = True
    for i, text in enumerate(texts):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        around = tokenizer.encode(text, add_special_tokens=True).ids
        plain = strict.encode(text, add_special_tokens=False).ids
        out["ids"].append(words(ids))
        if plain != ids:
            out["as_text"][str(i)] = words(plain)
        if i < 5:
            out["template"][str(i)] = words(around)
    rng = random.Random(5)
    size = tokenizer.get_vocab_size()
    lists = [[int(x) for x in line.split()] for line in rng.sample(out["ids"], random_ids)]
    lists += [[rng.randrange(size) for _ in range(rng.randint(1, 8))] for _ in range(random_ids)]
    for ids in lists:
        out["decoded"].append([words(ids), tokenizer.decode(ids, skip_special_tokens=False),
                               tokenizer.decode(ids, skip_special_tokens=True)])
    return out


def main():
    OUT.mkdir(exist_ok=True)
    lines = [{"text": text} for text in HARD + mixed_lines(120, 1)] + [{"hex": text} for text in INVALID_HEX]
    texts = [line["text"] if "text" in line else bytes.fromhex(line["hex"]).decode("utf-8", "replace")
             for line in lines]
    dump = dict(ensure_ascii=True, separators=(",", ":"))
    (OUT / "lines.json").write_text(json.dumps(lines, ensure_ascii=True, indent=0) + "\n")
    made = {"gpt2": gpt2(), "llama3": llama3(), "qwen": qwen(), "sp_normalizer": sentencepiece(False),
            "sp_metaspace": sentencepiece(True)}
    bases = {}
    for name, tokenizer in made.items():
        bases[name] = json.loads(tokenizer.to_str())
        (OUT / f"{name}.json").write_text(json.dumps(bases[name], **dump) + "\n")
        (OUT / f"{name}.golden.json").write_text(json.dumps(golden(tokenizer, texts, 60), **dump) + "\n")
    variants = []
    for name, base, changes in VARIANTS:
        tokenizer = Tokenizer.from_str(json.dumps(with_changes(bases[base], changes)))
        variants.append({"name": name, "base": base, "changes": changes,
                         "golden": golden(tokenizer, texts[:120], 25)})
    (OUT / "variants.json").write_text("[" + ",\n".join(json.dumps(v, **dump) for v in variants) + "]\n")
    for name, tokenizer in made.items():
        print(name, tokenizer.get_vocab_size())
    print(len(texts), "lines,", len(variants), "variants")


if __name__ == "__main__":
    main()
