# SPDX-License-Identifier: Apache-2.0
"""What cmake/check_methods.py takes for a leak of a reuse method."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "cmake"))

import check_methods  # noqa: E402

METHODS = {
    "engine/reuse/methods.h": "struct Method { std::string_view name; bool exact = false; bool segments = false; };\n",
    "engine/reuse/anchors/anchors.cpp": 'const Method kAnchors{.name = "anchors", .segments = true};\n',
}


class Leaks(unittest.TestCase):
    def tree(self, **files: str):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        for path, text in (METHODS | files).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return root

    def reads(self, line: str, path: str = "engine/loop/a.cpp") -> int:
        return len(list(check_methods.reads(self.tree(**{path: line + "\n"}))))

    def test_ids_and_traits(self):
        for line in (
            "if (options.method->id == MethodId::anchors) return;",
            "if (options.method->segments) return;",
            "return method.exact;",
            'if (record.method == "anchors") return;',
            'const Method* found = find_method("anchors");',
            "if (plan.method->traits.ahead) return;",
            "options.method = &anchors_method();",
            "if (options.method->name == name) return;",
            '#include "engine/reuse/anchors/anchors.h"',
        ):
            self.assertEqual(self.reads(line), 1, line)

    def test_what_is_none(self):
        for line in (
            "out += options.method->name;",
            "if (reuses_segments(options)) return;",  # the interface
            "const Method& method = lockstep_method();",
            "// where method.exact is read",
            'const Method* found = find_method(name);',
            "result.exact = true;",
        ):
            self.assertEqual(self.reads(line), 0, line)

    def test_rooms_may_read(self):
        for path in ("engine/reuse/schedule.cpp", "engine/registry.cpp", "sdk/lab/bench.cpp"):
            self.assertEqual(self.reads("return method.exact;", path), 0, path)

    def test_files_that_mean_anchors(self):
        root = self.tree(
            **{
                "engine/loop/a.cpp": "AnchorStore store;\n",
                "sdk/report/page.css": "text-anchor: end;\n",
                "workflows/format/yaml_tree.h": "// anchors are resolved\n",
                "sdk/lab/b.cpp": "// those of method anchors\n",
            }
        )
        self.assertEqual([path for path, _ in check_methods.anchor_files(root)], ["engine/loop/a.cpp", "sdk/lab/b.cpp"])


if __name__ == "__main__":
    unittest.main()
