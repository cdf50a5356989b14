"""Tests of the source checks: what they must find, and what they must leave alone."""

import os
import tempfile
import unittest
from unittest import mock

import check_headers
import check_includes
import check_names
import check_sizes
import check_threads


class Functions(unittest.TestCase):
    def lengths(self, text):
        return [length for _, length in check_sizes.functions(text)]

    def test_plain_and_nested_blocks(self):
        self.assertEqual(self.lengths("int f(int a) {\n  if (a) {\n  }\n  return 1;\n}\n"), [5])

    def test_namespaces_and_classes_are_not_functions(self):
        text = "namespace a {\nclass B : public C {\n  int f() const { return 1; }\n};\n}\n"
        self.assertEqual(self.lengths(text), [1])

    def test_classes_are_measured_with_what_is_in_them(self):
        text = "namespace a {\nclass B : public C {\n  struct D {\n    int e;\n  };\n};\n}\n"
        found = [(length, name) for _, length, name in check_sizes.classes(text)]
        self.assertEqual(found, [(3, "D"), (5, "B")])

    def test_body_after_a_braced_member(self):
        self.assertIn(3, self.lengths("A::A() : b_{1} {\n  f();\n}\n"))

    def test_lambda_in_a_table(self):
        text = "const OpDef kA{\n  .run = [](Builder& b) {\n    return b;\n  },\n};\n"
        self.assertEqual(self.lengths(text), [3])

    def test_braces_in_literals_and_macros_do_not_count(self):
        text = '#define M(a) \\\n  { a\nint f() {\n  g("{", \'{\', R"(\n{{)");  // {\n}\n'
        self.assertEqual(self.lengths(text), [4])

    def test_digit_separators_are_no_literals(self):
        self.assertEqual(self.lengths("int f() {\n  return 1'000 + 2'000;\n}\n"), [3])


class Names(unittest.TestCase):
    def test_declared_names(self):
        for text in ("class StringUtils {", "struct GraphHelper;", "namespace utils {"):
            self.assertTrue(check_sizes.EMPTY_NAME.search(text), text)
        for text in ("llvm::FunctionPassManager manager;", "class Utility0 {", "struct Graph {"):
            self.assertFalse(check_sizes.EMPTY_NAME.search(text), text)


class Includes(unittest.TestCase):
    def test_rooms(self):
        self.assertTrue(check_includes.may_use("codegen", "loop"))
        self.assertFalse(check_includes.may_use("codegen", "ir"))
        self.assertFalse(check_includes.may_use("runtime", "sym"))
        self.assertTrue(check_includes.may_use("test", "runtime"))

    def test_llvm_only_in_codegen_and_its_tests(self):
        problem = check_includes.third_party_problem
        self.assertIsNone(problem("codegen/jit.cc", "llvm/IR/Module.h"))
        self.assertIsNone(problem("test/codegen/jit_test.cc", "llvm/IR/Module.h"))
        self.assertIn("codegen", problem("schedule/fuse.cc", "llvm/IR/Module.h"))
        self.assertIn("runtime", problem("schedule/fuse.cc", "dnnl.hpp"))
        self.assertIsNone(problem("schedule/fuse.cc", "vector"))

    def test_paths(self):
        self.assertIn("root", check_includes.problem_of("ir/a.cc", '"', "../base/check.h"))
        self.assertIn("not a file", check_includes.problem_of("ir/a.cc", '"', "nothing.h"))
        self.assertIn("may not", check_includes.problem_of("abi/a.h", '"', "sym/sym.h"))


class Headers(unittest.TestCase):
    def test_what_is_precompiled_hides_nothing(self):
        others = "#include <set>\n#include <vector>\n"
        texts = {
            "good.h": "std::vector<std::set<int>> f();\n",
            "lacks.h": "std::map<int, int> f();\n",
            "twice.h": "inline int f() { return 1; }\n",
        }
        with tempfile.TemporaryDirectory() as folder:
            for name, text in texts.items():
                once = "" if name == "twice.h" else "#pragma once\n"
                with open(os.path.join(folder, name), "w", encoding="utf-8") as stream:
                    stream.write(once + others + text)
            with mock.patch.object(check_headers.source_tree, "ROOT", folder):
                sets = {check_headers.others_of(name) for name in texts}
                self.assertEqual(sets, {("set", "vector")})
                said = check_headers.compile_all(dict.fromkeys(texts, check_headers.FLAGS), folder)
            made = [name for name in os.listdir(folder) if name.endswith(".gch")]
        self.assertEqual(len(made), 1)
        self.assertEqual(said["good.h"], "")
        self.assertIn("map", said["lacks.h"])
        self.assertIn("redefinition", said["twice.h"])

    def test_no_more_is_precompiled_than_a_header_comes_to(self):
        sets = [(("set",), ("-a",)), (("map", "set"), ("-a",)), (("map",), ("-b",))]
        most_of = check_headers.most_of
        self.assertEqual(most_of((("map", "set", "span"), ("-a",)), sets), sets[1])
        self.assertEqual(most_of((("set", "span"), ("-a",)), sets), sets[0])
        self.assertIsNone(most_of((("span",), ("-a",)), sets))
        self.assertEqual(most_of((("map", "set"), ("-b",)), sets), sets[2])

    def test_late_headers_are_no_problem_and_not_known(self):
        said = check_headers.compile_all({"base/check.h": check_headers.FLAGS}, "", deadline=0)
        self.assertEqual(said, {"base/check.h": None})


class Threads(unittest.TestCase):
    def test_what_threads_would_share(self):
        for line in (
            "  static std::deque<Def> definitions;",
            "thread_local int depth = 0;",
            "std::map<std::string, int> known{};",
            "int64_t count = 0;",
            "  std::mutex mutex_;",
        ):
            self.assertTrue(check_threads.is_shared(line), line)
        for line in (
            "  static const std::vector<Op> kOps = [] {",
            "constexpr int kMost = 3;",
            "static Array view(const Array& of);",
            "  int64_t count = 0;",
            "using Names = std::set<std::string>;",
            "namespace dom = simdjson::dom;",
            "int length(int n);",
        ):
            self.assertFalse(check_threads.is_shared(line), line)

    def test_the_rooms_are_those_of_the_build(self):
        self.assertIn("runtime", check_threads.threaded_rooms())


class Prose(unittest.TestCase):
    tree = check_names.Tree(["ops/nn/loss.cc", "ops/types.h", "schedule/fuse.cc", "README.md"])

    def names(self, *lines):
        return [name for _, name in check_names.names_of_page(lines)]

    def test_names_of_a_page(self):
        self.assertEqual(self.names("see `fuse.cc`, ops/types.h."), ["fuse.cc", "ops/types.h"])
        self.assertEqual(self.names("[ops](ops/README.md#files)"), ["ops/README.md"])
        self.assertEqual(self.names("https://a.b/c/d.md, <fmt/format.h>, model.py:41, a.cc.o"), [])
        listing = self.names("```", "run mlp.py test/a.py", "```", "b.py")
        self.assertEqual(listing, ["test/a.py", "b.py"])

    def test_names_of_comments(self):
        lines = ['#include "a.h"', "int a;  // as in b.cc", "/// and c/d.cc"]
        self.assertEqual([n for _, n in check_names.names_of_comments(lines)], ["b.cc", "c/d.cc"])

    def test_a_name_is_found_in_its_room(self):
        for name in ("loss.cc", "nn/loss.cc", "ops/nn/loss.cc", "types.*", "ops/nn/*.cc"):
            self.assertTrue(self.tree.has(name, "ops/index/index.cc"), name)
        for name in ("fuse.cc", "ops/loss.cc", "nn/types.h", "ss.cc", "ops/*/fuse.cc"):
            self.assertFalse(self.tree.has(name, "ops/index/index.cc"), name)
        self.assertTrue(self.tree.has("fuse.cc", "docs/design.md"))
        self.assertTrue(self.tree.has("../README.md", "docs/design.md"))


if __name__ == "__main__":
    unittest.main()
