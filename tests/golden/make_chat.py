# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/chat/*.json: our own templates rendered by Transformers.

    python tests/golden/make_chat.py

families/*.jinja are templates in the manner of the official ones, written for this test.
"""
import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

from chat_snippets import EXPRESSIONS, FAILING, STATEMENTS
from check_chat import OPTIONS, TALKS, transformers_render

OUT = pathlib.Path(__file__).parent / "chat"
TALK = [("system", " Be kind. "), ("user", "Hi, \u4f60\u597d!"), ("assistant", "<think>\nhm\n</think>\n\nHello.")]


def question(talk, options):
    return {"messages": [{"role": role, "content": content} for role, content in talk], **options}


def main():
    plain = question(TALK, {"add_generation_prompt": True, "bos_token": "<s>", "eos_token": "", "flags": {}})
    snippets = []
    templates = list(STATEMENTS)
    for expression in EXPRESSIONS.strip().split("\n"):
        parts = split_top(expression)
        templates.append("|".join("{{ " + part + " }}" for part in parts))
        templates.append("{{ [" + ", ".join(parts) + "] }}")
    for template in templates:
        text, error = transformers_render(_compile_jinja_template(template), plain)
        if error is not None:
            raise SystemExit(f"{template}: {error}")
        snippets.append([template, text])
    for template in FAILING:
        try:
            text, error = transformers_render(_compile_jinja_template(template), plain)
        except Exception as broken:
            text, error = None, broken
        if error is None:
            raise SystemExit(f"{template} renders {text!r}")
    families = {}
    for path in sorted((OUT / "families").glob("*.jinja")):
        compiled = _compile_jinja_template(path.read_text())
        families[path.stem] = cases = []
        for talk in TALKS:
            for options in OPTIONS:
                asked = question(talk, options)
                text, error = transformers_render(compiled, asked)
                if not any(case["text"] == text and case["question"]["messages"] == asked["messages"] for case in cases):
                    cases.append({"question": asked, "text": text})
    dump = dict(ensure_ascii=True, indent=0)
    (OUT / "snippets.json").write_text(json.dumps({"question": plain, "rendered": snippets, "failing": FAILING}, **dump) + "\n")
    (OUT / "families.json").write_text(json.dumps(families, **dump) + "\n")
    print(len(snippets), "snippets,", len(FAILING), "that fail,", len(families), "families,",
          sum(map(len, families.values())), "talks")


def split_top(text):
    """At commas outside of brackets and strings."""
    parts, depth, quote, part = [], 0, "", ""
    previous = ""
    for c in text:
        if quote:
            quote = "" if c == quote and previous != "\\" else quote
            previous = "" if previous == "\\" else c
        elif c in "'\"":
            quote, previous = c, ""
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        if c == "," and depth == 0 and not quote:
            parts.append(part.strip())
            part = ""
        else:
            part += c
    return parts + [part.strip()]


if __name__ == "__main__":
    main()
