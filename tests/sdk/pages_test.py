#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks at the pages in a headless browser: reports of real, hostile and large records, and the page of `baton serve`.

Usage: pages_test.py RUNNER [unittest options]. Exit code 77: no Chromium is installed.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import browser
from records import Records
from runner import QUESTION, ROOT, RUNNER

if browser.PROGRAM is None:
    print("skipped: none of chromium, chromium-browser and google-chrome is installed")
    sys.exit(77)

SCREENS = [(width, dark) for width in (390, 820, 1440) for dark in (False, True)]

# Boxes of captions that lie over each other, of those that share a picture or a bar.
OVERLAPS = """(() => {
  const found = [];
  for (const picture of document.querySelectorAll(".stage, .canvas, .below, .bar, .zoom, .tiles, .agent header")) {
    const boxes = [];
    for (const caption of picture.querySelectorAll("li > *, text, .node, .methods > span, .below > span, .bar > *, .zoom > *, dt, dd, b, .state")) {
      if (caption.closest(".node") && !caption.classList.contains("node")) continue;
      const box = caption.getBoundingClientRect();
      if (box.width > 0 && box.height > 0) boxes.push([caption.textContent, box]);
    }
    for (const [i, [text, a]] of boxes.entries()) {
      for (const [other, b] of boxes.slice(i + 1)) {
        const x = Math.min(a.right, b.right) - Math.max(a.left, b.left), y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (x > 1 && y > 1) found.push(`'${text}' and '${other}'`);
      }
    }
  }
  return found;
})()"""

# Texts whose contrast with what they stand on is below 4.5 to 1 (WCAG 2, AA).
FAINT = """(() => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = (color) => {
    const [r, g, b] = channels(color).map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor, [, , , opacity] = channels(color);
      if (opacity !== 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const found = new Set();
  for (const element of document.body.querySelectorAll("*")) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    if (!element.checkVisibility() || element.disabled) continue;
    const style = getComputedStyle(element), color = element instanceof SVGElement ? style.fill : style.color;
    if (!color.startsWith("rgb")) continue;
    const [a, b] = [luminance(color), luminance(ground(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.add(`${element.tagName}.${element.className}: ${element.textContent.slice(0, 30)}`);
  }
  return [...found];
})()"""

# What a text may not have made of a page.
FOREIGN = """(() => [...document.querySelectorAll("body *")].filter((element) =>
  element.matches("img, iframe, object, embed, video, audio, link, base, meta, form:not(#find):not(#form), math, style") ||
  [...element.attributes].some(({name, value}) => name.startsWith("on") || (/^(?:href|src|action|xlink:href)$/.test(name) && !value.startsWith("#"))))
  .map((element) => element.outerHTML.slice(0, 100)))()"""

EVIL = ("<script>window.owned = 1</script><img src=x onerror='window.owned = 1'>\n\n# <b onclick=alert(1)>head</b>\n\n"
        "[link](javascript:window.owned=1) ![picture](http://192.0.2.1/x.png) <http://192.0.2.1/> **<i>bold</i>** `</code><script>`\n\n"
        "- <svg onload=window.owned=1>\n\n| a | <u>b</u> |\n|---|---|\n| <a href=javascript:window.owned=1>x</a> | y |\n\n"
        "```html\n</code></pre><script>window.owned = 1</script>\n```\n> \x00\x07\x1b[31m \u202eevil\u2066\u200f\x7f </pre></div></main>")

MARKDOWN = {
    "a *b* **c** ***d*** ~~e~~ `f`": '<p>a <em>b</em> <strong>c</strong> <strong class="em">d</strong> <del>e</del> <code>f</code></p>',
    "7*2=14, 3*4=12 and some_long_name, 2**3**4": "<p>7*2=14, 3*4=12 and some_long_name, 2**3**4</p>",
    "one\ntwo": "<p>one<br>two</p>",
    "*not ended, **nor this": "<p>*not ended, **nor this</p>",
    r"\*a\* `\*`": r"<p>*a* <code>\*</code></p>",
    "# A\n### C\ntext": "<h4>A</h4><h6>C</h6><p>text</p>",
    "- a\n- b\n  - c\n\nend": "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li></ul></li></ul><p>end</p>",
    "3. a\n4. b": '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol>',
    "Born in\n1984. It": "<p>Born in<br>1984. It</p>",
    "> a\n> > b": "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>",
    "a | b\n--|--:\n1 | 2": '<div class="scroll"><table><thead><tr><th>a</th><th class="right">b</th></tr></thead>'
                          '<tbody><tr><td>1</td><td class="right">2</td></tr></tbody></table></div>',
    "---": "<hr>",
    "[a](http://b) [c](c)": '<p><span class="link">a<span class="address"> (http://b)</span></span> '
                            '<span class="link"><span class="address">c</span></span></p>',
    "```python\nif x: # y\n  z = 'a'\n```\nend":
        '<pre class="code"><code><span class="c-word">if</span> x: <span class="c-comment"># y</span>\n'
        '  z = <span class="c-string">\'a\'</span></code></pre><p>end</p>',
    "```\nopen": '<pre class="code"><code>open</code></pre>',
    '{"a": [1, "*b*"]}': '<pre class="code"><code>{<span class="c-string">"a"</span>: [<span class="c-number">1</span>, '
                         '<span class="c-string">"*b*"</span>]}</code></pre>',
}


class Pages(Records):
    @classmethod
    def setUpClass(cls):
        profile = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, profile, ignore_errors=True)
        cls.browser = browser.Browser(browser.PROGRAM, profile)
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        super().setUp()
        self.browser.errors.clear()

    def value(self, expression):
        return self.browser.value(expression)

    def report(self, *folders):
        """The address of the report of a record, or of two."""
        page = self.folder / self.baton(*(["report", str(folders[0])] if len(folders) == 1 else ["compare", *map(str, folders), "--html"])).stdout.strip()
        return page.resolve().as_uri()

    def check(self, url, width, dark):
        self.browser.show(url, width, dark=dark)
        screen = f"{width} {'dark' if dark else 'light'}"
        self.assertLessEqual(self.value("document.documentElement.scrollWidth"), width, screen)
        self.assertEqual(self.value(OVERLAPS), [], screen)
        self.assertEqual(self.value(FAINT), [], screen)
        self.assertEqual(self.value(FOREIGN), [], screen)
        self.assertEqual(self.value("performance.getEntriesByType('resource').length"), 0)
        self.assertEqual(self.value("document.querySelectorAll('script').length"), 1)
        self.assertIsNone(self.value("window.owned"))
        self.assertEqual(self.browser.errors, [])

    def unfold(self):
        self.value("for (const part of document.querySelectorAll('details')) part.open = true")


class Reports(Pages):
    def test_real_runs_fit_every_screen(self):
        for name in ("math_team", "math_debate", "math_review"):
            self.baton("run", str(ROOT / f"workflows/library/{name}.yaml"), "--input", "user_" + QUESTION, "--record", name, "-q",
                       BATON_MODEL=str(ROOT / "samples/models/nano"))
        for folders in (["math_team"], ["math_debate"], ["math_review"], ["math_team", "math_review"]):
            url = self.report(*folders)
            for width, dark in SCREENS:
                with self.subTest(folders=folders, width=width, dark=dark):
                    self.check(url, width, dark)

    def crowded(self):
        """Long names, many turns that do much in little time, and every kind of text."""
        agents = ["a_name_that_is_as_long_as_nobody_would_give_to_any_agent", "b", "another_name_of_considerable_length"]
        slots = [self.slot(f"agent_{agent}_current", method=method, reused_tokens=2, recomputed_tokens=2)
                 for agent, method in zip(agents, ("rectify", "lockstep", "full"))]
        use = {"tool": "look", "arguments": '{"at": 1}', "code": "print(1)", "ok": False, "result": "x" * 500, "wall_ms": 20.0, "generation": 1}
        turns = [self.turn(agent, round=number, slots=slots, tools=[use], prompt_tokens=123456, output_tokens=98765, output=EVIL,
                           error="w" * 300, state="failed" if agent == "b" else "ok")
                 for number in range(1, 4) for agent in agents]
        events = []
        for turn in turns:
            moment = {"agent": turn["agent"], "round": turn["round"]}
            at = 1000.0 * turn["round"]
            events += [{"type": "agent_started", "role": "R", "prompt_tokens": 9, "t_ms": at, **moment}, {"type": "token", "id": 1, "text": "a", "t_ms": at + 7, **moment},
                       {"type": "tool_called", **use, "t_ms": at + 40, **moment}, {"type": "agent_finished", "record": turn, "t_ms": at + 900}]
        folder = self.made(turns, events, inputs={"question": EVIL}, outputs={"answer": EVIL}, workflow=EVIL, state="failed", error=EVIL, wall_ms=4000.0)
        names = [f"{turn['agent']}#{turn['round']}" for turn in turns]
        graph = [{"id": name, "agent": turn["agent"], "round": turn["round"], "when": EVIL if turn["round"] == 2 else ""} for name, turn in zip(names, turns)]
        edges = [{"from": names[i], "to": names[j], "slots": [f"agent_{turns[i]['agent']}_current"]} for j in range(9) for i in range(j)
                 if turns[i]["round"] < turns[j]["round"]]
        (folder / "graph.json").write_text(json.dumps({"schema": 1, "turns": graph, "edges": edges, "until": EVIL}))
        (folder / "prompts/b.txt").write_bytes(EVIL.encode() + b"\xff\xfe\xc3(")
        return folder

    def test_hostile_texts_do_nothing_on_any_screen(self):
        folder = self.crowded()
        shutil.copytree(folder, self.folder / "other")
        self.change(self.folder / "other", lambda record: record["agents"][0].update(output=EVIL + " more <script>window.owned = 1</script>"))
        for folders in ([folder], [folder, self.folder / "other"]):
            url = self.report(*folders)
            for width, dark in SCREENS:
                with self.subTest(folders=len(folders), width=width, dark=dark):
                    self.check(url, width, dark)
            self.unfold()
            self.assertEqual(self.value(FOREIGN), [])
            self.assertEqual(self.value(OVERLAPS), [])
            self.assertLessEqual(self.value("document.documentElement.scrollWidth"), SCREENS[-1][0])
            self.assertIsNone(self.value("window.owned"))
            self.assertFalse(set("\x00\x07\x1b\u202e\u2066\u200f\x7f") & set(self.value("document.body.textContent")))
        self.assertIn("<script>window.owned = 1</script>", self.value("document.body.textContent"))
        # Even markup that got into the page would do nothing.
        self.value("document.body.insertAdjacentHTML('beforeend', '<p onclick=\"window.owned = 1\" id=\"evil\">x</p>')")
        self.value("document.getElementById('evil').click()")
        self.assertIsNone(self.value("window.owned"))
        self.assertIn("Content Security Policy", "".join(self.browser.errors))

    def test_texts_that_are_hard_to_read_are_shown_in_the_end(self):
        hard = ["> " * 30_000, "*a " * 20_000, "[" * 60_000, "`" * 30_001 + "x`", "- " * 30_000, "#" + " " * 60_000 + "x", "|-" * 30_000,
                "x | y\n" + "-" + " " * 60_000 + "x", "\n".join(" " * i + "- a" for i in range(300)), "```c\n/*" + "'" * 60_000, "_*" * 30_000]
        folder = self.made(outputs={f"text_{i}": text for i, text in enumerate(hard)})
        self.browser.show(self.report(folder), 820)
        self.assertEqual(self.value("document.querySelectorAll('#outputs .md').length"), len(hard))
        self.assertLessEqual(self.value("document.documentElement.scrollWidth"), 820)
        self.assertEqual(self.browser.errors, [])

    def test_markdown(self):
        folder = self.made(outputs={f"text_{i}": text for i, text in enumerate(MARKDOWN)})
        self.browser.show(self.report(folder), 820)
        shown = self.value("[...document.querySelectorAll('#outputs .md')].map((one) => one.innerHTML)")
        for (text, expected), found in zip(MARKDOWN.items(), shown, strict=True):
            self.assertEqual(found, expected, text)
        # As it was written.
        self.value("document.querySelector('#outputs .as-written').click()")
        self.assertEqual(self.value("document.querySelector('#outputs .text').innerText.trim().split('\\n')[0]"), next(iter(MARKDOWN)))

    def test_search(self):
        folder = self.made([self.turn("solver", output=f"turn {i} says **Needle** in a haystack", round=i) for i in range(1, 21)],
                           outputs={"answer": "one needle\nand a Needle"})
        self.browser.show(self.report(folder), 390)
        count = "document.getElementById('find-count').textContent"
        self.browser.press("/")
        self.assertEqual(self.value("document.activeElement.id"), "find-text")
        for key in "needle":
            self.browser.press(key)
        self.assertEqual(self.value(count), "1 of 22")
        self.assertEqual(self.value("CSS.highlights.get('found').size"), 22)
        self.browser.press("Enter")
        self.browser.press("Enter")
        self.assertEqual(self.value(count), "3 of 22")
        self.assertTrue(self.value("document.querySelector('#text-1 details:last-of-type').open"))
        place = self.value("[...CSS.highlights.get('found-now')][0].getBoundingClientRect().top")
        self.assertTrue(0 < place < 900, place)
        self.assertEqual(self.value("[...CSS.highlights.get('found-now')][0].toString()"), "Needle")
        self.browser.press("Enter", 8)
        self.assertEqual(self.value(count), "2 of 22")
        self.browser.press("Escape")
        self.assertEqual([self.value(count), self.value("CSS.highlights.get('found').size")], ["", 0])
        for text, found in (("**Needle", "1 of 20"), ("(", "none"), ("says needle in", "1 of 20")):
            self.value(f"{{ const box = document.getElementById('find-text'); box.value = {json.dumps(text)}; box.oninput(); }}")
            self.assertEqual(self.value(count), found, text)

    def test_zoom(self):
        self.browser.show(self.report(self.crowded()), 820)
        width, seen = "document.getElementById('timeline-picture').clientWidth", "document.querySelector('.track').clientWidth"
        whole = self.value(width)
        self.assertEqual(whole, self.value(seen))
        self.value("document.querySelector('.track').focus()")
        for key, factor in (("+", 2), ("+", 4), ("-", 2), ("0", 1)):
            self.browser.press(key)
            self.assertEqual(self.value(width), factor * whole)
        self.value("for (let i = 0; i < 9; ++i) document.querySelector('.zoom [value=in]').click()")
        self.assertEqual(self.value(width), 32 * whole)
        self.assertLessEqual(self.value("document.documentElement.scrollWidth"), 820)
        # What was in the middle still is, and the axis has marks where one looks.
        middle = self.value("(() => { const track = document.querySelector('.track'); return (track.scrollLeft + track.clientWidth / 2) / track.scrollWidth; })()")
        self.assertAlmostEqual(middle, 0.5, 2)
        ticks = "[...document.querySelectorAll('.ticks text')].filter((one) => { const box = one.getBoundingClientRect(); return box.width && box.left >= 0 && box.right <= innerWidth; }).length"
        self.assertGreaterEqual(self.value(ticks), 2)
        self.assertEqual(self.value(OVERLAPS), [])
        self.value("document.querySelector('.zoom [value=all]').click()")
        self.assertEqual(self.value(width), whole)

    def test_keyboard(self):
        self.browser.show(self.report(self.crowded()), 1440)
        seen = []
        while "SUMMARY" not in seen and len(seen) < 300:
            self.browser.press("Tab")
            seen.append(self.value("document.activeElement.id || document.activeElement.className || document.activeElement.tagName"))
            self.assertNotEqual(self.value("getComputedStyle(document.activeElement).outlineStyle"), "none", seen[-1])
        for one in ("find-text", "scroll graph", "track", "SUMMARY"):
            self.assertIn(one, seen)

    def test_without_a_script(self):
        self.browser.call("Emulation.setScriptExecutionDisabled", value=True)
        self.addCleanup(self.browser.call, "Emulation.setScriptExecutionDisabled", value=False)
        self.browser.show(self.report(self.made(outputs={"answer": "**said**"})), 820)
        tree = json.dumps(self.browser.call("DOMSnapshot.captureSnapshot", computedStyles=[])["strings"])
        self.assertIn("**said**", tree)
        shown = self.browser.call("Accessibility.getFullAXTree")["nodes"]
        self.assertIn("**said**", json.dumps(shown))
        self.assertNotIn("Search texts", json.dumps(shown))


CLEANER = """version: 1
models: {main: {path: MODEL}}
defaults: {max_tokens: 300}
tools:
  remove:
    description: Removes a file.
    parameters: {properties: {path: {enum: [a.txt, b.txt]}}, required: [path], additionalProperties: false}
    python: print("removed " + arguments["path"])
agents:
  cleaner:
    prompt: "Remove the file a.txt.\\n{{ user_question }}"
    tools: [{call: remove}]
    calls: {max: 1, direct: true, approve: always, tool_choice: required, text: forbidden}
"""


class ServePage(Pages):
    def serve(self, *files):
        server = subprocess.Popen([RUNNER, "serve", *files, "--port", "0", "--relay", "exact"], cwd=self.folder, env=self.environment(),
                                  stderr=subprocess.PIPE, text=True)

        def stop():
            server.terminate()
            server.stderr.read()
            server.stderr.close()
            self.assertEqual(server.wait(60), 0)

        self.addCleanup(stop)
        return next(found[1] for line in server.stderr if (found := re.search(r"at (http://\S+)", line)))

    def test_runs_a_workflow_on_every_screen(self):
        team = (ROOT / "workflows/library/math_team.yaml").read_text().replace("${env:BATON_MODEL:-nano}", str(ROOT / "samples/models/nano"))
        self.write("team.yaml", team)
        self.write("long.yaml", re.sub(r"topology: \w+", r"\g<0>\n  rounds: 100", team))
        url = self.serve("team.yaml", "long.yaml")
        question = QUESTION.split("=", 1)[1]
        body = json.dumps({"model": "team", "messages": [{"role": "user", "content": question}]}).encode()
        request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
        answer = json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["message"]["content"]
        for width, dark in SCREENS:
            with self.subTest(width=width, dark=dark):
                self.browser.show(url, width, dark=dark)
                self.assertTrue(self.browser.wait("document.querySelectorAll('input[type=radio]').length === 2"))
                self.value(f"document.querySelector('textarea').value = {json.dumps(question)}; document.getElementById('run').click()")
                self.assertTrue(self.browser.wait("document.getElementById('figures').textContent !== '' && !document.getElementById('run').disabled"))
                self.assertEqual(self.value("document.getElementById('answer').innerText").strip(), answer.strip())
                self.assertEqual(self.value("document.querySelectorAll('.agent .state.ok').length"), 4)
                self.assertGreater(self.value("+document.getElementById('count').textContent"), 50)
                self.assertLessEqual(self.value("document.documentElement.scrollWidth"), width)
                self.assertEqual(self.value(OVERLAPS), [])
                self.assertEqual(self.value(FAINT), [])
        self.value("document.querySelectorAll('input[type=radio]')[1].click(); document.querySelector('textarea').value = 'x';"
                   " document.getElementById('run').click()")
        self.assertTrue(self.browser.wait("document.querySelectorAll('.agent').length > 1"))
        self.value("document.getElementById('stop').click()")
        self.assertTrue(self.browser.wait("document.getElementById('error').textContent === 'Stopped.'"))
        self.assertEqual(self.browser.errors, [])

    def test_asks_for_approvals(self):
        self.write("cleaner.yaml", CLEANER.replace("MODEL", str(ROOT / "samples/models/nano")))
        url = self.serve("cleaner.yaml")
        for width, dark in SCREENS[:2]:
            for button in (0, 1):
                with self.subTest(width=width, dark=dark, button=button):
                    self.browser.show(url, width, dark=dark)
                    self.assertTrue(self.browser.wait("document.querySelectorAll('textarea').length === 1"))
                    self.assertTrue(self.value("document.getElementById('asking').hidden"))
                    self.value("document.querySelector('textarea').value = 'x'; document.getElementById('run').click()")
                    self.assertTrue(self.browser.wait("document.querySelectorAll('.approval').length === 1"))
                    self.assertFalse(self.value("document.getElementById('asking').hidden"))
                    self.assertLessEqual(self.value("document.documentElement.scrollWidth"), width)
                    self.assertEqual(self.value(FAINT), [])
                    if button == 0:
                        self.value("document.querySelector('.approval [name=arguments]').value = '{\"path\": \"b.txt\"}'")
                    else:
                        self.value("document.querySelector('.approval [name=reason]').value = 'not today'")
                    self.value(f"document.querySelectorAll('.approval button')[{button}].click()")
                    self.assertTrue(self.browser.wait("!document.getElementById('run').disabled"))
                    self.assertTrue(self.browser.wait("document.getElementById('asking').hidden"))
                    events = self.value("document.getElementById('events').textContent")
                    self.assertIn("removed b.txt" if button == 0 else "not today", events)
        self.assertEqual(self.browser.errors, [])

    def test_hostile_texts_do_nothing(self):
        self.browser.show(self.serve(self.team), 390)
        self.assertTrue(self.browser.wait("document.querySelectorAll('textarea').length === 1"))
        finished = {"agent": "solver", "round": 1, "state": "ok", "output": EVIL, "output_tokens": 1, "ttft_ms": 1, "error": ""}
        events = [{"type": "agent_started", "agent": EVIL, "round": 1, "prompt_tokens": 1}, {"type": "token", "agent": EVIL, "round": 1, "text": EVIL},
                  {"type": "tool_called", "agent": EVIL, "round": 1, "tool": EVIL, "ok": False, "arguments": EVIL, "result": EVIL, "wall_ms": 1},
                  {"type": "agent_finished", "record": finished}]
        self.value(f"showApprovals([{json.dumps({name: EVIL for name in ('id', 'model', 'turn', 'tool', 'arguments')})}])")
        chunks = [{"choices": [], "baton": event} for event in events] + [{"choices": [{"delta": {"content": EVIL}}]}]
        stream = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.value(f"follow(new Blob([{json.dumps(stream)}]).stream()).then(finish)")
        self.assertTrue(self.browser.wait("document.getElementById('answer').textContent.length > 100"))
        self.assertEqual(self.value(FOREIGN), [])
        self.assertIsNone(self.value("window.owned"))
        self.assertLessEqual(self.value("document.documentElement.scrollWidth"), 390)
        self.assertEqual(self.browser.errors, [])


if __name__ == "__main__":
    unittest.main()
