#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the report, the page of `baton serve` while agents work and afterwards, and the documentation site, at three
widths into docs/images.

Usage: page_pictures.py RUNNER (needs Chromium, `./dev site` before, and the Python package Pillow, which reduces the colours)
"""

import re

import pages_test
from runner import ROOT

QUESTION = "A farm has 7 hens and 3 cows. Hens have 2 legs and cows have 4 legs. How many legs are there?"
IMAGES = ROOT / "docs/images"
HEIGHTS = {390: 1500, 820: 1500, 1440: 1700}
COLOURS = 64


class Pictures(pages_test.ServePage):
    def runTest(self):
        from PIL import Image
        team = (ROOT / "workflows/library/math_team.yaml").read_text().replace("${env:BATON_MODEL:-nano}", str(ROOT / "samples/models/nano"))
        self.write("math_team.yaml", team)
        self.write("math_rounds.yaml", re.sub(r"topology: \w+", r"\g<0>\n  rounds: 100", team))  # still works when it is drawn
        self.baton("run", "math_team.yaml", "--input", f"user_question={QUESTION}", "--record", "run", "-q")
        report, served = self.report("run"), self.serve("math_team.yaml", "math_rounds.yaml")

        def draw(name, width):
            path = IMAGES / f"{name}_{width}.png"
            height = min(HEIGHTS[width], self.value("document.documentElement.scrollHeight"))
            self.browser.picture(path, width, height)
            with Image.open(path) as picture:
                picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)

        site = ROOT / "build/site/gallery.html"
        self.assertTrue(site.exists(), "./dev site makes it")
        for width, dark in ((390, False), (820, True), (1440, False)):
            self.browser.show(site.as_uri(), width, dark=dark)
            draw("site", width)
            self.browser.show(report, width, dark=dark)
            draw("report", width)
            self.browser.show(served, width, dark=dark)
            self.browser.wait("document.querySelectorAll('input[type=radio]').length === 2")
            for place, name in ((1, "live"), (0, "serve")):
                self.value(f"document.querySelectorAll('input[type=radio]')[{place}].click();"
                           f" document.querySelector('textarea').value = '{QUESTION}'; document.getElementById('run').click()")
                ready = "document.querySelectorAll('.agent').length > 2" if name == "live" else "!document.getElementById('run').disabled"
                self.assertTrue(self.browser.wait(ready))
                draw(name, width)
                self.value("document.getElementById('stop').click()")
                self.browser.wait("!document.getElementById('run').disabled")
        size = sum(path.stat().st_size for path in IMAGES.glob("*.png"))
        print(f"{size} bytes")
        self.assertLess(size, 1 << 20)


if __name__ == "__main__":
    pages_test.unittest.TextTestRunner().run(pages_test.unittest.TestSuite([Pictures()]))
