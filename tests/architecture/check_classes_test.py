# SPDX-License-Identifier: Apache-2.0
"""The check of classes (cmake/check_classes.py) on small sources: what it counts, and ways around it that must not work."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cmake"))

import check_classes  # noqa: E402
import cpp_reader  # noqa: E402


def counted(name: str, **files: str):
    """The count of a class in a program of these files: room/engine_h="..." is the file room/engine.h."""
    sources = [cpp_reader.read(path, text) for path, text in files.items()]
    program = check_classes.Program(sources)
    return {one.path: count for one, count in program.counts()}[name]


def functions(count: int, form: str) -> str:
    return "\n".join(form.format(i) for i in range(count))


class Reading(unittest.TestCase):
    def read(self, text: str):
        return cpp_reader.read("room/a.cpp", text)

    def test_comments_strings_and_directives_hold_no_code(self):
        source = self.read(
            '// class A { int a_; };\n/* class B {\n}; */\n#define C class C { \\\n };\n'
            'const char* text = "class D {}; \\" {";\nauto raw = R"x(class E { )" }; )x";\nchar c = \'{\';\nclass F {};\n'
        )
        self.assertEqual([one.name for one in source.classes], ["F"])
        self.assertEqual(source.classes[0].line, 9)

    def test_the_first_branch_of_a_condition_is_read(self):
        source = self.read("#if A\nclass F {\n#else\nclass G {\n#endif\n int a_;\n};\nclass H {};")
        self.assertEqual([one.name for one in source.classes], ["F", "H"])

    def test_members_of_all_forms(self):
        source = self.read("""
            class A final : public Base<int>, private std::vector<Other> {
             public:
              explicit A(int a) : a_{a}, b_({1, 2}), Base<int>(a) { if (a < 3) { use(); } }
              template <typename T, int N = (3 > 2)> requires (N > 1) && Fits<T> void f(T&& t) const noexcept(true);
              auto g() -> std::map<int, std::vector<int>> { return {}; }
              bool operator()(int x) const { return x; }
              A& operator=(const A&) = delete;
              virtual void h(int, std::function<void(int, int)> f = [](int, int) {}) = 0;
              static constexpr int kA = 3, kB = 4;
              [[nodiscard]] int i() const&;
              ~A() = default;
             private:
              struct Nested { int x; int y = 2; };
              union { int u_; float v_; };
              int a_ = f(1, 2), *b_, c_[3] = {1, 2, 3};
              std::map<int, std::pair<int, int>> d_{};
              int e_ : 3;
              void (*callback_)(int, int) = nullptr;
              std::function<void(A&)> handler_;
              enum class Kind { one, two } kind_;
              using List = std::vector<int>;
              friend class B;
              friend bool operator==(const A&, const A&) = default;
            };""")
        one = source.classes[0]
        self.assertEqual([f.name for f in one.functions], ["A", "f", "g", "operator()", "operator=", "h", "i", "~A"])
        self.assertEqual([f.name for f in one.functions if f.is_generated], ["operator=", "~A"])
        names = [field.name for field in one.fields if not field.is_constant]
        self.assertEqual(names, ["u_", "v_", "a_", "b_", "c_", "d_", "e_", "callback_", "handler_", "kind_"])
        self.assertEqual([len(f.parameters) for f in one.functions], [1, 1, 0, 1, 1, 2, 0, 0])

    def test_classes_in_functions_and_anonymous_namespaces(self):
        source = self.read("namespace a { namespace { class B { int x_; }; } void f() { struct C { int y; }; C c; } }")
        self.assertEqual([(one.name, one.is_hidden, one.is_local) for one in source.classes], [("B", True, False), ("C", False, True)])

    def test_a_definition_outside_its_class(self):
        source = self.read("template <class T> A<T>::B::B(int a, int b) : a_(a) {}\nint A<int>::f() const { return 1; }\nbool A<int>::operator<(const A& o) const {}")
        self.assertEqual([(f.qualifiers, f.name) for f in source.functions], [(["A", "B"], "B"), (["A"], "f"), (["A"], "operator<")])


class Counting(unittest.TestCase):
    def test_overloads_count_each_generated_functions_do_not(self):
        count = counted("A", **{"room/a.h": "class A { A(int); A(const A&) = delete; ~A() = default; void f(); void f(int); int a_; };"})
        self.assertEqual((len(count.functions), len(count.members)), (3, 1))

    def test_a_definition_elsewhere_counts_once(self):
        count = counted("A", **{"room/a.h": "class A { void f(); };", "room/a.cpp": '#include "room/a.h"\nvoid A::f() {}'})
        self.assertEqual(len(count.functions), 1)
        self.assertEqual(count.files, {"room/a.cpp"})

    def test_a_record_is_exempt(self):
        fields = functions(30, "int f{};")
        self.assertTrue(counted("R", **{"room/a.h": f"struct R {{ {fields} bool operator==(const R&) const = default; int sum() const {{ return f1; }} }};"}).record)
        self.assertFalse(counted("R", **{"room/a.h": f"class R {{ public: {fields} }};"}).record)
        self.assertFalse(counted("R", **{"room/a.h": f"struct R {{ {fields} void change(); }};"}).record)
        self.assertFalse(counted("R", **{"room/a.h": f"struct R {{ {fields} private: int hidden; }};"}).record)


class WaysAround(unittest.TestCase):
    """Each is a class of one member and one function, and what was moved out of it."""

    def test_free_functions_that_take_the_class(self):
        for parameter in ("A& a", "A* a", "int i, A& a", "std::span<A> all", "std::shared_ptr<A> a", "const std::vector<A*>& all"):
            files = {"room/a.h": "class A { void f(); int a_; };", "room/b.cpp": f"void g({parameter}) {{}}"}
            self.assertEqual(len(counted("A", **files).functions), 2, parameter)

    def test_clients_are_no_functions_of_it(self):
        for parameter in ("const A& a", "const A* a", "A const& a", "A a", "A&& a", "std::function<void(A&)> f", "std::shared_ptr<const A> a"):
            files = {"room/a.h": "class A { void f(); int a_; };", "room/b.cpp": f"void g({parameter}) {{}}"}
            self.assertEqual(len(counted("A", **files).functions), 1, parameter)
        files = {"room/a.h": "class A { void f(); int a_; };", "other/b.cpp": "void g(A& a) {}"}
        self.assertEqual(len(counted("A", **files).functions), 1)

    def test_a_declaration_and_its_definition_are_one_function(self):
        files = {"room/a.h": "class A { void f(); int a_; }; void g(A& a);", "room/b.cpp": "void g(A& a) {}"}
        self.assertEqual(len(counted("A", **files).functions), 2)

    def test_a_record_that_one_class_uses(self):
        for files in (
            {"room/a.h": "struct State { int a, b, c; }; class A { void f(); State state_; };"},
            {"room/a.h": "class A { struct State { int a, b, c; }; void f(); std::unique_ptr<State> state_; };"},
            {"room/s.h": "struct State { int a, b, c; };", "room/a.h": "class A { void f(); State state_; };"},
            {"room/a.h": "class A { struct Impl; void f(); std::unique_ptr<Impl> impl_; };", "room/a.cpp": "struct A::Impl { int a, b, c; };"},
        ):
            self.assertEqual(len(counted("A", **files).members), 4, files)

    def test_a_record_within_a_record(self):
        files = {"room/a.h": "struct In { int a, b; }; struct State { In in; }; class A { void f(); State state_; };"}
        self.assertEqual(len(counted("A", **files).members), 4)

    def test_a_record_of_several_users_is_none_of_them(self):
        record = "struct State { int a, b, c; };"
        for others in ("class B { void g(const State&); int b_; };", "struct B { void g(const State&); };"):
            files = {"room/a.h": record + "class A { void f(); State state_; };" + others}
            self.assertEqual(len(counted("A", **files).members), 1)
        files = {"room/a.h": record + "class A { void f(); State state_; };", "room/plan.cpp": "int plan(const State& state) {}"}
        self.assertEqual(len(counted("A", **files).members), 1)

    def test_a_snapshot_that_tests_make(self):
        def members(text: str) -> int:
            program = check_classes.Program([cpp_reader.read("room/a.h", text)], {"Snapshot"})
            return {one.path: len(count.members) for one, count in program.counts()}["A"]

        self.assertEqual(members("struct Snapshot { int a, b, c; }; class A { void f(const Snapshot&); int a_; };"), 1)
        self.assertEqual(members("class A { struct Snapshot { int a, b, c; }; void f(); Snapshot a_; };"), 4)

    def test_free_functions_that_take_its_record(self):
        files = {"room/a.cpp": "struct State { int a; }; class A { void f(); State state_; }; void g(State& s) {} void h(const State& s) {}"}
        self.assertEqual(len(counted("A", **files).functions), 2)

    def test_a_record_with_free_functions_alone_is_a_class(self):
        files = {"room/a.cpp": "struct State { int a; };" + functions(8, "void f{}(State& s) {{}}")}
        count = counted("State", **files)
        self.assertFalse(count.record)
        self.assertEqual(len(count.functions), 8)
        self.assertTrue(counted("State", **{"room/a.cpp": "struct State { int a; };" + functions(7, "void f{}(State& s) {{}}")}).record)

    def test_a_record_with_many_functions_is_a_class(self):
        short = functions(30, "int f{}() const {{ return 1; }}")
        self.assertTrue(counted("R", **{"room/a.h": "struct R { int a; " + short + "};"}).record)
        for form in ("int f{}() const;", "int f{}() const {{\n\n\n\n\n\n\n return 1; }}"):
            self.assertFalse(counted("R", **{"room/a.h": "struct R { int a; " + functions(4, form) + "};"}).record, form)

    def test_many_functions_change_a_record_of_two_classes(self):
        files = {"room/a.cpp": "struct State { int a; };" + functions(16, "void f{}(State& s) {{}}")}
        files["room/b.cpp"] = "class A { void f(); State state_; }; class B { void f(); State state_; };"
        self.assertFalse(counted("State", **files).record)

    def test_functions_in_a_folder_below_or_above(self):
        header = {"room/core/a.h": "class A { void f(); int a_; };"}
        for file in ("room/core/steps/b.cpp", "room/b.cpp"):
            expected = 2 if file.startswith("room/core") else 1  # room/ is the layer's own folder
            self.assertEqual(len(counted("A", **header | {file: "void g(A& a) {}"}).functions), expected, file)

    def test_a_record_that_points_to_the_class(self):
        files = {"room/a.h": "class A { void f(); int a_; }; struct Context { A& a; int i; };", "room/b.cpp": "void g(const Context& c) {}"}
        self.assertEqual(len(counted("A", **files).functions), 2)

    def test_a_friend_or_a_nested_class_that_refers_back(self):
        for text in (
            "class A { friend class Part; void f(); int a_; }; class Part { void g(); void h(); A& a_; };",
            "class A { class Part { void g(); void h(); A& a_; }; void f(); int a_; };",
        ):
            count = counted("A", **{"room/a.h": text})
            self.assertEqual((len(count.functions), len(count.members)), (3, 2), text)

    def test_a_base_class_for_one_class(self):
        files = {"room/a.h": "class Part { protected: void g(); int b_; }; class A : Part { void f(); int a_; };"}
        count = counted("A", **files)
        self.assertEqual((len(count.functions), len(count.members)), (2, 2))
        files["room/b.h"] = "class B : Part {};"
        self.assertEqual(len(counted("A", **files).functions), 1)

    def test_functions_in_several_files(self):
        header = {"room/a.h": "class A { void f(); void g(); };"}
        files = header | {"room/a.cpp": "void A::f() {}", "room/a_more.cpp": "void A::g() {}"}
        self.assertEqual(len(check_classes.source_files(counted("A", **files).files)), 2)
        files = header | {"room/posix/a.cpp": "void A::f() {}", "room/windows/a.cpp": "void A::f() {}"}
        self.assertEqual(len(check_classes.source_files(counted("A", **files).files)), 1)

    def test_classes_of_one_name_are_apart(self):
        files = {
            "room/a.cpp": "namespace { struct Part { int a, b; }; class A { void f(); Part part_; }; }",
            "room/b.cpp": "namespace { struct Part { int c, d, e; }; class B { void f(); Part part_; }; }",
        }
        self.assertEqual(len(counted("A", **files).members), 3)
        self.assertEqual(len(counted("B", **files).members), 4)

    def test_a_service_is_small(self):
        name = "engine/text/jinja/value.h"
        clients = functions(20, "void f{}(Budget& budget) {{}}")
        self.assertEqual(len(counted("Budget", **{name: "class Budget { void spend(); int a_; };" + clients}).functions), 1)
        large = "class Budget { void spend(); int a_, b_, c_, d_; };"
        self.assertEqual(len(counted("Budget", **{name: large + clients}).functions), 21)


class Files(unittest.TestCase):
    def headers(self, **files: str):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            found = check_classes.single_user_headers(check_classes.read_tree(root), root)
            return [(header, user) for header, user, lines in found if lines <= check_classes.MAX_MERGED_LINES]

    def test_a_header_with_one_user(self):
        include = '#include "engine/a.h"\n'
        files = {"engine/a.h": "int a();\n", "engine/a.cpp": include, "engine/b.cpp": include}
        self.assertEqual(self.headers(**files), [("engine/a.h", "engine/b.cpp")])
        self.assertEqual(self.headers(**files | {"engine/c.cpp": include}), [])
        self.assertEqual(self.headers(**files | {"tests/engine/a_test.cpp": include}), [])
        self.assertEqual(self.headers(**{"engine/a.h": "int a();\n", "engine/kv/b.cpp": include}), [])
        self.assertEqual(self.headers(**files | {"engine/b.cpp": include + "\n" * 700}), [])

    def test_a_header_of_its_own_source_alone(self):
        self.assertEqual(self.headers(**{"engine/a.h": "", "engine/a.cpp": '#include "engine/a.h"\n'}), [("engine/a.h", "engine/a.cpp")])

    def test_long_parameter_lists(self):
        source = cpp_reader.read("room/a.cpp", "void f(int a, int b, int c, int d, int e, int f, std::map<int, int> g, int h = g(1, 2)) {}")
        self.assertEqual([len(f.parameters) for f in check_classes.long_parameter_lists([source])], [8])


class Speed(unittest.TestCase):
    def test_the_tree_is_read_in_seconds(self):
        sources = check_classes.read_tree(ROOT)
        self.assertGreater(sum(len(source.classes) for source in sources), 500)


if __name__ == "__main__":
    unittest.main()
