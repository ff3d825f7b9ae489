# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/words/cuts.json: how llama.cpp cuts texts into words, by the names of `tokenizer.ggml.pre`.

    python tests/golden/make_words.py LLAMA_CPP_FOLDER

Reads the names and their expressions from src/llama-vocab.cpp, and runs them with src/unicode.cpp, which it compiles.
llama.cpp replaces some classes of letters by what std::regex can do. If the source quotes the original expression, the
words are those of Hugging Face `tokenizers`; else texts that the replacement reads otherwise are left out.
"""
import ast
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from tokenizers import Regex, pre_tokenizers

from tokenizer_texts import HARD, mixed_lines

OUT = pathlib.Path(__file__).parent / "words" / "cuts.json"
# Not byte-level BPE, or (default) a rule of no model.
LEFT_OUT = {"default", "gemma4", "granite-embed-multi-311m", "mmbert", "sarvam-moe", "whitespace"}
# Letters of both cases are one class there, empty matches are words, or blanks before digits are kept apart.
ONLY_PLAIN = {"YOUTU", "KIMI_K2", "SUPERBPE", "AFMOE"}
MAIN = r"""
#include "unicode.h"
#include <iostream>
static std::string text_of(const std::string & hex) {
    std::string out;
    for (size_t i = 0; i + 1 < hex.size(); i += 2) out.push_back((char) std::stoi(hex.substr(i, 2), nullptr, 16));
    return out;
}
int main() {
    size_t count; std::string hex;
    while (std::cin >> count) {
        std::vector<std::string> expressions;
        for (size_t i = 0; i < count; ++i) { std::cin >> hex; expressions.push_back(text_of(hex)); }
        std::cin >> hex;
        for (const auto & word : unicode_regex_split(text_of(hex), expressions, false)) std::cout << word.size() << ' ';
        std::cout << '\n';
    }
}
"""


def rules(source):
    """{name: type} and {type: (expressions, the original expression or None)}"""
    names = source[source.index("if (tokenizer_pre.empty())"):source.index("unknown pre-tokenizer type")]
    types = {}
    for condition, body in re.findall(r"if \(([^{]*?)\)\s*\{(.*?)\n            \}", names, re.S):
        for name in re.findall(r'tokenizer_pre == "([^"]+)"', condition):
            types[name] = re.search(r"PRE_TYPE_(\w+)", body).group(1)
    cases = source[source.index("switch (vocab.get_pre_type())"):source.index("std::vector<std::string> regex_exprs;")]
    expressions = {}
    for labels, body in re.findall(r"((?:\s*case LLAMA_VOCAB_PRE_TYPE_\w+:\s*|\s*default:\s*)+)(.*?)break;", cases, re.S):
        quoted = re.findall(r'^\s*//\s*"((?:[^"\\]|\\.)*)",?\s*$', body, re.M)
        code = re.sub(r"^\s*//.*$", "", body, flags=re.M).split("};")[0]
        listed = [ast.literal_eval(f'"{one}"') for one in re.findall(r'"((?:[^"\\]|\\.)*)"', code)]
        original = ast.literal_eval(f'"{quoted[-1]}"') if quoted else None
        for label in re.findall(r"PRE_TYPE_(\w+):", labels):
            expressions[label] = (listed, original)
    return types, expressions


def words_of_tokenizers(expressions, texts):
    steps = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(one), "isolated") for one in expressions])
    return [" ".join(str(len(word.encode())) for word, _ in steps.pre_tokenize_str(text)) for text in texts]


def main():
    source = pathlib.Path(sys.argv[1]) / "src"
    types, expressions = rules((source / "llama-vocab.cpp").read_text())
    texts = [text for text in HARD + mixed_lines(60, 5) if text]
    # Of these, std::regex knows no case and no blank.
    odd = re.compile("[\u017f\u212a\u0130\u0131\u0085\u00a0\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f\u3000]")
    texts = [text for text in texts if not odd.search(text)]
    plain = [i for i, text in enumerate(texts) if text.isascii() and not re.search("[A-Z0-9]", text)]
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "main.cpp").write_text(MAIN)
        program = f"{folder}/cuts"
        subprocess.run(["c++", "-std=c++17", "-O1", f"-I{source}", f"-I{source}/../include", f"-I{source}/../ggml/include",
                        f"{folder}/main.cpp", source / "unicode.cpp", source / "unicode-data.cpp", "-o", program], check=True)
        made = {}
        for name, kind in types.items():
            if name in LEFT_OUT:
                continue
            if kind in made:
                made[kind]["names"].append(name)
                continue
            listed, original = expressions[kind]
            use = plain if kind in ONLY_PLAIN else range(len(texts))
            if kind in ("TEKKEN", "GPT4O", "MINIMAX_M2", "GRANITE_EMB_MULTI", "TINY_AYA"):
                if original is None:  # the same as that of GPT-4o
                    original = expressions["GPT4O"][1]
                words = words_of_tokenizers([*listed[:-1], original], texts)
            else:
                asked = "".join(f"{len(listed)} {' '.join(one.encode().hex() for one in listed)} {texts[i].encode().hex()}\n"
                                for i in use)
                run = subprocess.run([program], input=asked, capture_output=True, text=True, check=True)
                found = dict(zip(use, (line.strip() for line in run.stdout.split("\n"))))
                words = [found.get(i) for i in range(len(texts))]
            made[kind] = {"names": [name], "words": words}
    OUT.write_text(json.dumps({"texts": texts, "rules": list(made.values())}, ensure_ascii=True, indent=0) + "\n")
    print(len(made), "rules,", sum(len(one["names"]) for one in made.values()), "names,", len(texts), "texts")


if __name__ == "__main__":
    main()
