#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a workflow on the page of `baton serve` in a headless browser, at the width of a phone and of a desktop.

    python tests/published/serving_page.py --baton build/release/bin/baton --out DIR [--browser chromium]

Writes a picture of each into DIR. Exit code 1: the answer is not that of the server, an agent or an event is missing, a run that
is stopped goes on, the page is wider than the screen, or it logs an error (a request elsewhere is one, by the page's policy).
"""

import argparse
import base64
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
QUESTION = "A farm has 7 hens and 3 cows. Hens have 2 legs and cows have 4 legs. How many legs are there?"


class Browser:
    """Chromium over the pipes of its debugging protocol: messages of JSON that end with a zero byte."""

    def __init__(self, program, folder):
        to_child, self.out = os.pipe()
        self.inp, from_child = os.pipe()

        def hand_over():
            os.dup2(to_child, 3)
            os.dup2(from_child, 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={folder}"],
            preexec_fn=hand_over, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.number, self.held, self.errors, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.held:
                self.held += os.read(self.inp, 1 << 20)
            one, self.held = self.held.split(b"\0", 1)
            reply = json.loads(one)
            if reply.get("id") == self.number:
                if "error" in reply:
                    sys.exit(f"{method}: {reply['error']}")
                return reply["result"]
            if reply.get("method") == "Runtime.exceptionThrown" or (
                    reply.get("method") == "Log.entryAdded" and reply["params"]["entry"]["level"] == "error"):
                self.errors.append(json.dumps(reply["params"])[:400])

    def value(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)["result"].get("value")

    def wait(self, expression):
        for _ in range(600):
            if self.value(expression):
                return True
            time.sleep(0.1)
        return False


def must(name, holds):
    print(f"{'ok' if holds else 'WRONG'}: {name}")
    must.failed |= not holds


must.failed = False


def look(browser, url, width, height, picture, answer):
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
    browser.call("Page.navigate", url=url)
    must(f"{width}: the page lists the workflows", browser.wait("document.querySelectorAll('input[type=radio]').length === 2"))
    browser.value(f"document.querySelector('textarea').value = {json.dumps(QUESTION)}; document.getElementById('run').click()")
    must(f"{width}: the run ends", browser.wait("document.getElementById('figures').textContent !== ''"
                                                " && !document.getElementById('run').disabled"))
    must(f"{width}: the answer is that of the server", browser.value("document.getElementById('answer').textContent") == answer)
    must(f"{width}: the four agents are there", browser.value("document.querySelectorAll('.agent .state.ok').length") == 4)
    must(f"{width}: so are the events", browser.value("+document.getElementById('count').textContent") > 50)
    must(f"{width}: nothing is wider than the screen", browser.value("document.documentElement.scrollWidth") <= width)
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=browser.value("document.body.scrollHeight"),
                 deviceScaleFactor=1, mobile=width < 600)
    picture.write_bytes(base64.b64decode(browser.call("Page.captureScreenshot")["data"]))
    browser.value("document.querySelectorAll('input[type=radio]')[1].click(); document.querySelector('textarea').value = 'x';"
                  " document.getElementById('run').click()")
    browser.wait("document.querySelectorAll('.agent').length > 1")
    browser.value("document.getElementById('stop').click()")
    must(f"{width}: a run can be stopped", browser.wait("document.getElementById('error').textContent === 'Stopped.'"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--browser", default="chromium")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        team = (ROOT / "workflows/library/math_team.yaml").read_text()
        (folder / "team.yaml").write_text(team)
        (folder / "long.yaml").write_text(re.sub(r"topology: \w+", r"\g<0>\n  rounds: 100", team))
        server = subprocess.Popen([options.baton, "serve", folder / "team.yaml", folder / "long.yaml", "--port", "0", "--relay",
                                   "exact"], stderr=subprocess.PIPE, text=True)
        url = next(found[1] for line in server.stderr if (found := re.search(r"at (http://\S+)", line)))
        body = json.dumps({"model": "team", "messages": [{"role": "user", "content": QUESTION}]}).encode()
        request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
        answer = json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["message"]["content"]
        browser = Browser(options.browser, folder / "profile")
        for width, height in ((390, 844), (1280, 900)):
            look(browser, url, width, height, options.out / f"page_{width}.png", answer)
        must("the page logs no error", not browser.errors)
        print(*browser.errors, sep="\n")
        browser.process.terminate()
        browser.process.wait(30)
        server.terminate()
        server.stderr.read()
        must("the server ends well", server.wait(60) == 0)
    return 1 if must.failed else 0


if __name__ == "__main__":
    sys.exit(main())
