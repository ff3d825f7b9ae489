# SPDX-License-Identifier: Apache-2.0
"""Trains the byte-level BPE tokenizer on generated conversations and writes it in the Hugging Face layout."""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import conversations

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Words with the character before them, single digits, punctuation with its line ends, runs of space.
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CHAT_TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
                 "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def train(vocabulary: int, samples: int, seed: int) -> Tokenizer:
    rng = random.Random(seed)
    texts = []
    for i in range(samples):
        pieces = conversations.binding_sample(rng, False) if i % 4 == 0 else conversations.math_sample(rng)
        texts += [text for piece in pieces for text in re.split(r"<\|im_start\|>|<\|im_end\|>", piece.text)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=SPECIAL, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent, help="model folder")
    parser.add_argument("--vocabulary", type=int, default=1280)
    parser.add_argument("--samples", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    tokenizer = train(args.vocabulary, args.samples, args.seed)
    tokenizer.save(str(args.out / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 2048, "chat_template": CHAT_TEMPLATE,
              "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False,
              "clean_up_tokenization_spaces": False}
    (args.out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"{tokenizer.get_vocab_size()} tokens in {args.out / 'tokenizer.json'}")


if __name__ == "__main__":
    main()
