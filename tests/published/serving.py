#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses `baton serve` through the package `openai`, as its users do, and with many clients for a while.

    python tests/published/serving.py --baton build/release/bin/baton [--model MODEL] [--clients 64] [--seconds 120] [-- OPTION...]

Chat, streaming, errors and a client that goes, then the load: every client must get answers, all the same, and the memory of the
server in the second half must not exceed that at the end of the first by more than a tenth. Without --model on the shipped one.
Exit code 1: something is not as it has to be. Needs `pip install openai`.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import openai

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KEY = "the-key-of-this-test"
QUESTION = "Mia has 12 apples. She buys 7 more apples. How many apples does Mia have?"
LONG = """\
version: 1
inputs: {question: string}
models: {main: nano}
defaults: {max_tokens: 400, temperature: 3, seed: 1}
agents: {writer: {prompt: "{{ question }}"}}
workflow: {topology: chain, agents: [writer], rounds: 100}
"""


class Server:
    def __init__(self, options, folder):
        (folder / "long.yaml").write_text(LONG)
        model = ["--model", options.model] if options.model else []
        self.process = subprocess.Popen(
            [options.baton, "serve", f"math={ROOT}/workflows/library/math_team.yaml", folder / "long.yaml", "--port", "0",
             "--relay", "exact", *options.more, *model],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "BATON_SERVE_KEY": KEY})
        self.log = []
        for line in self.process.stderr:
            if found := re.search(r"at (http://\S+)", line):
                self.url = found[1]
                break
        else:
            sys.exit("the server did not start")
        threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True).start()

    def client(self, key=KEY):
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=300)

    def resident_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def metric(self, name):
        request = urllib.request.Request(f"{self.url}/metrics", headers={"Authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(request, timeout=30) as reply:
            return float(re.search(rf"^{name} (\S+)$", reply.read().decode(), re.M)[1])


def must(name, holds):
    print(f"{'ok' if holds else 'WRONG'}: {name}")
    must.failed |= not holds


must.failed = False


def chat(client, model="math", **more):
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": QUESTION}], **more)


def error_of(call):
    try:
        call()
    except openai.APIError as error:
        return error
    return None


def use(server):
    client = server.client()
    must("the models are the workflows", [model.id for model in client.models.list()] == ["math", "long"])
    chat(client)
    whole = chat(client)
    text = whole.choices[0].message.content
    print(text)
    must("a chat completion has an answer, a reason and usage",
         text and whole.choices[0].finish_reason in ("stop", "length") and whole.usage.prompt_tokens > 0
         and whole.usage.prompt_tokens_details.cached_tokens > 0)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    streamed = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    must("a stream has the same answer, in pieces", "".join(streamed) == text and len(streamed) > 5)
    must("the usage is in its last chunk", chunks[-1].usage.completion_tokens == whole.usage.completion_tokens)
    events = [chunk.baton["type"] for chunk in chat(client, stream=True, extra_body={"baton": {"events": True}})
              if getattr(chunk, "baton", None)]
    must("events come when they are asked for", events[0] == "run_started" and events[-1] == "run_finished")
    must("a completion has the same answer", client.completions.create(model="math", prompt=QUESTION).choices[0].text == text)
    must("a wrong key is an AuthenticationError",
         isinstance(error_of(lambda: chat(server.client("another-key-than-it"))), openai.AuthenticationError))
    must("an unknown model is a NotFoundError", isinstance(error_of(lambda: chat(client, "other")), openai.NotFoundError))
    must("what is not supported is a BadRequestError", isinstance(error_of(lambda: chat(client, n=2)), openai.BadRequestError))

    stream = chat(client, "long", stream=True, extra_body={"baton": {"events": True}})
    for _ in zip(range(20), stream):
        pass
    must("the long workflow runs", server.metric("baton_requests_running") == 1)
    stream.close()
    begin = time.monotonic()
    while server.metric("baton_requests_running") > 0 and time.monotonic() - begin < 10:
        time.sleep(0.05)
    must(f"it ends {time.monotonic() - begin:.2f} s after its client has gone", time.monotonic() - begin < 10)
    return text


def load(server, options, text):
    counts, wrong = [0] * options.clients, []
    end = time.monotonic() + options.seconds

    def run(number):
        client = server.client()
        while time.monotonic() < end:
            try:
                if number % 2 == 0:
                    answer = chat(client).choices[0].message.content
                else:
                    answer = "".join(choice.delta.content or "" for chunk in chat(client, stream=True) for choice in chunk.choices)
            except openai.APIError as error:
                wrong.append(repr(error))
                continue
            if answer != text:
                wrong.append(answer)
            counts[number] += 1

    clients = [threading.Thread(target=run, args=[number]) for number in range(options.clients)]
    for client in clients:
        client.start()
    memory = []
    while time.monotonic() < end:
        time.sleep(min(5, max(0, end - time.monotonic())))
        memory.append(server.resident_mib())
    for client in clients:
        client.join()
    print(f"{sum(counts)} answers, {min(counts)} to {max(counts)} a client; memory in MiB: {[round(one) for one in memory]}")
    for one in wrong[:3]:
        print(one)
    half = memory[: max(1, len(memory) // 2)]
    must("every client got answers", min(counts) > 0)
    must("no request failed, and all answers were the same as alone", not wrong)
    must("memory is flat in the second half", max(memory[len(half):], default=0) <= 1.1 * max(half))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", required=True)
    parser.add_argument("--model")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("more", nargs="*", help="options for `baton serve`, behind --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        server = Server(options, pathlib.Path(name))
        try:
            load(server, options, use(server))
        finally:
            server.process.terminate()
            must("the server ends well", server.process.wait(60) == 0)
    return 1 if must.failed else 0


if __name__ == "__main__":
    sys.exit(main())
