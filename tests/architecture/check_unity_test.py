# SPDX-License-Identifier: Apache-2.0
"""Which names of two sources meet when they are compiled together (cmake/check_unity.py)."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "cmake"))

import check_unity  # noqa: E402
import cpp_reader  # noqa: E402


class Names(unittest.TestCase):
    def meet(self, one: str, other: str, folder: str = "room") -> int:
        sources = [cpp_reader.read("room/a.cpp", one), cpp_reader.read(f"{folder}/b.cpp", other)]
        return len(list(check_unity.problems(sources)))

    def test_names_that_meet(self):
        for text in ("constexpr int kA = 1;", "struct A { int a; };", "int f(int a) { return 1; }", "bool f(const B& b, int = 2) {}"):
            hidden = f"namespace n {{ namespace {{ {text} }} }}"
            self.assertEqual(self.meet(hidden, hidden), 1, text)
            self.assertEqual(self.meet(hidden, hidden, "room/other"), 0, text)

    def test_names_that_do_not(self):
        self.assertEqual(self.meet("namespace { int f(int a) {} }", "namespace { int f(double a) {} }"), 0)
        self.assertEqual(self.meet("namespace a { namespace { int x; } }", "namespace b { namespace { int x; } }"), 0)
        self.assertEqual(self.meet("namespace { void f() { int x; } }", "namespace { void g() { int x; } }"), 0)


if __name__ == "__main__":
    unittest.main()
