# SPDX-License-Identifier: Apache-2.0
"""A headless browser that tests look at pages with: Chromium, where one is installed."""

import base64
import json
import os
import shutil
import subprocess
import sys
import time

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """Chromium over the pipes of its debugging protocol: messages of JSON that end with a zero byte."""

    def __init__(self, program, folder):
        to_child, self.out = os.pipe()
        self.inp, from_child = os.pipe()

        def hand_over():
            os.dup2(to_child, 3)
            os.dup2(from_child, 4)
            for end in (3, 4):  # where the numbers were these already, nothing was duplicated
                os.set_inheritable(end, True)

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

    def show(self, url, width, height=900, dark=False):
        """Opens a page on a screen of this size."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)
        self.wait(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def press(self, key, modifiers=0):
        """A key; modifiers: 2 control, 8 shift."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=modifiers, code=key, text=text,
                  windowsVirtualKeyCode={"Enter": 13, "Escape": 27, "Tab": 9}.get(key, 0))
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers, code=key)

    def picture(self, path, width, height):
        """The first `height` pixels of the page."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]))

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        os.close(self.out)
        os.close(self.inp)
