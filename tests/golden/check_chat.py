# SPDX-License-Identifier: Apache-2.0
"""Compares Baton's rendering of chat templates with that of Transformers.

    python tests/golden/check_chat.py build/bin/baton_render_check TEMPLATE...

A template is a .jinja file or a tokenizer_config.json. Where Transformers raises an error, Baton must fail too. Where
Baton says that something is not supported, that is printed: a template must never be rendered wrongly instead.
"""
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

from transformers.utils.chat_template_utils import _compile_jinja_template

TALKS = [
    [("user", "Hello, how are you?")],
    [("system", "You are a pirate."), ("user", "Hi!")],
    [("user", "What is 2+2?"), ("assistant", "4"), ("user", "And 3+3?")],
    [("system", "  Be brief.\n"), ("user", " a \n"), ("assistant", "\n b "), ("user", "c\n\n")],
    [("system", "S"), ("user", "u1"), ("assistant", "<think>\nwhy\n</think>\n\nbecause"), ("user", "u2"),
     ("assistant", "a2")],
    [("user", "Gr\u00fc\u00dfe \u4f60\u597d \U0001f600 <|im_end|> \"quoted\" 'single' \\back {{ x }} {% y %}")],
    [("user", "q"), ("assistant", "[think]</think>answer</think>x"), ("tool", "{\"result\": 42}"), ("user", "r /no_think")],
    [("system", "/no_think be quick"), ("user", "")],
    [("system", "s1"), ("system", "s2"), ("user", "u")],
    [("assistant", "first"), ("user", "second")],
    [("tool", "t1"), ("tool", "t2"), ("user", "<tool_response>x</tool_response>")],
    [("unknown", "who?")],
    [],
]
OPTIONS = [
    {"add_generation_prompt": generation, "bos_token": bos, "eos_token": eos, "flags": flags}
    for generation, (bos, eos), flags in itertools.product(
        [True, False], [("<s>", "</s>"), ("", "")], [{}, {"enable_thinking": False}, {"enable_thinking": True}])
]


def transformers_render(compiled, question):
    tokens = {name: question[name] for name in ("bos_token", "eos_token") if question[name]}
    try:
        return compiled.render(messages=[dict(m) for m in question["messages"]], tools=None, documents=None,
                               add_generation_prompt=question["add_generation_prompt"], **tokens,
                               **question["flags"]), None
    except Exception as error:  # whatever a template does in Python
        return None, f"{type(error).__name__}: {error}"


def compare(program, name, source):
    questions = [{"messages": [{"role": role, "content": content} for role, content in talk], **options}
                 for talk in TALKS for options in OPTIONS]
    with tempfile.NamedTemporaryFile("wb", suffix=".jinja") as file:
        file.write(source.encode())
        file.flush()
        run = subprocess.run([program, file.name], capture_output=True, check=True,
                             input="".join(json.dumps(q) + "\n" for q in questions).encode())
    answers = [json.loads(line) for line in run.stdout.decode().splitlines()]
    try:
        compiled = _compile_jinja_template(source)
    except Exception as error:
        print(f"{name}: Transformers cannot compile it: {error}; Baton: {answers[0]}")
        return 0 if "error" in answers[0] else 1
    wrong, rendered, failed, unsupported = 0, 0, 0, {}
    for question, answer in zip(questions, answers):
        text, error = transformers_render(compiled, question)
        if error is not None:
            failed += 1
            if "error" not in answer:
                wrong += 1
                print(f"  {name}: Transformers fails ({error}), Baton renders {answer['text']!r}")
        elif "error" in answer:
            unsupported[answer["error"].split(".jinja:")[-1]] = question["messages"]
        elif answer["text"] != text:
            wrong += 1
            if wrong <= 2:
                print(f"  {name}: {question}\n    wanted {text!r}\n    got    {answer['text']!r}")
        else:
            rendered += 1
    print(f"{name}: {rendered} rendered the same, {failed} failed in both, {sum(1 for _ in unsupported)} kinds not "
          f"supported, {wrong} wrong")
    for reason, messages in unsupported.items():
        print(f"  not supported: {reason}")
    return wrong + len(unsupported)


def main():
    program, *paths = sys.argv[1:]
    bad = 0
    for path in map(pathlib.Path, paths):
        source = path.read_text()
        if path.suffix == ".json":
            source = json.loads(source)["chat_template"]
        bad += compare(program, path.name, source) > 0
    print(f"{len(paths)} templates, {bad} with differences")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
