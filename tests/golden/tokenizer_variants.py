# SPDX-License-Identifier: Apache-2.0
"""Changes of single parts of a tokenizer: (name, the tokenizer it changes, what replaces its parts)."""


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def metaspace(**changes):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True, **changes}


def added(content, **flags):
    return {"content": content, "special": False, "normalized": False, "lstrip": False, "rstrip": False,
            "single_word": False, **flags}


def numbered(first, *tokens):
    return [{"id": first + i, **token} for i, token in enumerate(tokens)]


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
BYTES_AND_WORDS = {**BYTES, "use_regex": True}
SPACE_MARK = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}

VARIANTS = [
    ("prefix space", "gpt2", {"pre_tokenizer": {**BYTES_AND_WORDS, "add_prefix_space": True}}),
    ("no pre-tokenizer", "gpt2", {"pre_tokenizer": BYTES}),
    ("no decoder", "gpt2", {"decoder": None}),
    ("digits one by one", "gpt2", {"pre_tokenizer": sequence(
        "pretokenizers", {"type": "Digits", "individual_digits": True}, BYTES_AND_WORDS)}),
    ("digits together", "gpt2", {"pre_tokenizer": sequence(
        "pretokenizers", {"type": "Digits", "individual_digits": False}, BYTES)}),
    ("punctuation", "gpt2", {"pre_tokenizer": sequence(
        "pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, BYTES)}),
    ("whitespace split", "gpt2", {"pre_tokenizer": sequence("pretokenizers", {"type": "WhitespaceSplit"}, BYTES)}),
    ("whitespace", "gpt2", {"pre_tokenizer": sequence("pretokenizers", {"type": "Whitespace"}, BYTES)}),
] + [
    (f"split {behavior} {invert}", "gpt2", {"pre_tokenizer": sequence(
        "pretokenizers", split({"Regex": r"\s+|\d"}, behavior, invert), BYTES)})
    for behavior in ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    for invert in [False, True]
] + [
    (f"split at a string {behavior}", "gpt2", {"pre_tokenizer": sequence(
        "pretokenizers", split({"String": "a."}, behavior), split({"String": " "}, behavior), BYTES)})
    for behavior in ["Isolated", "MergedWithPrevious", "MergedWithNext"]
] + [
    ("word boundaries", "gpt2", {"pre_tokenizer": sequence(
        "pretokenizers", split({"Regex": r"\b|\w+\W?|^\h+$"}, "Isolated"), BYTES)}),
    ("scripts and ranges", "gpt2", {"pre_tokenizer": sequence(
        "pretokenizers", split({"Regex": "\\p{Han}+|[\u4e00-\u9fa5\u3040-\u309f]+|\\P{L}?[\\p{Greek}\\u0410-\\u044f]{,3}"},
                               "Isolated"), BYTES)}),
    ("possessive and atomic", "gpt2", {"pre_tokenizer": sequence(
        "pretokenizers", split({"Regex": r"[^\r\n\p{L}\p{N}]?+\p{L}++|(?>\p{N}{1,3})|[\S\s](?=\s)|\s++$|\s*[\r\n]"},
                               "Removed", True), BYTES)}),
    ("lookbehind", "gpt2", {"pre_tokenizer": sequence(
        "pretokenizers", split({"Regex": r"(?<=[a-z])(?=[A-Z])|(?<!\d)\d"}, "MergedWithNext"), BYTES)}),
    ("case ignored", "gpt2", {"pre_tokenizer": sequence(
        "pretokenizers", split({"Regex": r"(?i:hello|stra\u00dfe|[k-s]+)|(?i:\u03c3)"}, "Isolated"), BYTES)}),
    ("NFD", "qwen", {"normalizer": {"type": "NFD"}}),
    ("NFKC", "qwen", {"normalizer": {"type": "NFKC"}}),
    ("NFKD", "qwen", {"normalizer": {"type": "NFKD"}}),
    ("lower case", "qwen", {"normalizer": sequence("normalizers", {"type": "NFC"}, {"type": "Lowercase"})}),
    ("strip", "qwen", {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": False}}),
    ("strip both", "qwen", {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}}),
    ("replace by regex", "qwen", {"normalizer": sequence(
        "normalizers", {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[aeiou]"}, "content": "_"},
        {"type": "Replace", "pattern": {"String": "l"}, "content": ""})}),
    ("added tokens", "gpt2", {"more_added_tokens": numbered(
        621, added("<mask>", lstrip=True, special=True), added("<word>", single_word=True), added("<left>", lstrip=True),
        added("<right>", rstrip=True), added("<|im_start|>", special=True), added("<|im_end|>", special=True),
        added("<|im_end|>>>"), added("the"), added(" a", single_word=True)) + numbered(165, added("\u00e9"))}),
    ("normalised added tokens", "qwen", {
        "normalizer": {"type": "Lowercase"},
        "more_added_tokens": numbered(627, added("<Norm>", normalized=True), added("Hello", normalized=True),
                                      added("<mask>", normalized=True, special=True, rstrip=True))}),
    ("normalised added tokens with a prefix", "sp_normalizer", {
        "more_added_tokens": numbered(903, added("<word>", normalized=True), added("world", normalized=True),
                                      added("\u00e9t\u00e9", normalized=True, lstrip=True))}),
    ("unknown fused", "sp_normalizer", {"model": {"byte_fallback": False, "fuse_unk": True}}),
    ("unknown one by one", "sp_normalizer", {"model": {"byte_fallback": False, "fuse_unk": False}}),
    ("unknown dropped", "sp_normalizer", {"model": {"byte_fallback": False, "unk_token": None}}),
    ("ignore_merges", "sp_metaspace", {"pre_tokenizer": metaspace(), "model": {"ignore_merges": True}}),
] + [
    (f"metaspace {scheme} {cut}", "sp_metaspace", {
        "pre_tokenizer": metaspace(prepend_scheme=scheme, split=cut),
        "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut}})
    for scheme in ["first", "always", "never"] for cut in [True, False]
] + [
    ("metaspace after strip", "sp_metaspace", {
        "normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}, "pre_tokenizer": metaspace()}),
    ("metaspace after split", "sp_metaspace", {
        "pre_tokenizer": sequence("pretokenizers", split({"Regex": "[,.]"}, "Isolated"), metaspace())}),
    # `tokenizers` panics when it strips the end of an empty text: that side has a test by hand.
    ("strip two", "sp_normalizer", {"decoder": sequence(
        "decoders", {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 2, "stop": 0})}),
    ("strip each token", "sp_normalizer", {"decoder": sequence(
        "decoders", {"type": "Replace", "pattern": {"Regex": "\u2581|e"}, "content": " "},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}, {"type": "ByteFallback"})}),
]
