// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/yaml_tree.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

struct Parsed {
  std::optional<YamlNode> root;
  Diagnostics diagnostics;
  SourcePtr source;
};

Parsed parse(const std::string& text) {
  Parsed out;
  out.source = make_source("t.yaml", "", text, out.diagnostics);
  if (out.source) out.root = parse_yaml(out.source, out.diagnostics);
  return out;
}

std::string json(const std::string& text) {
  const Parsed parsed = parse(text);
  return parsed.diagnostics.empty() ? to_json(*parsed.root) : parsed.diagnostics.format();
}

TEST_CASE("plain scalars follow the YAML 1.2 core schema") {
  CHECK(json("[no, on, yes, y, off]") == R"(["no","on","yes","y","off"])");
  CHECK(json("[true, False, TRUE, tRue]") == R"([true,false,true,"tRue"])");
  CHECK(json("[~, null, Null, NULL, nULL, ]") == R"([null,null,null,null,"nULL"])");
  CHECK(json("[1, -2, +3, 007, 0x1F, 0o17, 0b1, 1_000]") == R"([1,-2,3,7,31,15,"0b1","1_000"])");
  CHECK(json("[1.5, .5, 1., 1e3, -1.5E-2, 1.2.3, ., 12:30:45]") ==
        R"([1.5,0.5,1.0,1000.0,-0.015,"1.2.3",".","12:30:45"])");
  CHECK(json("[.inf, -.inf, .nan, 99999999999999999999]") == R"([".inf","-.inf",".nan","99999999999999999999"])");
  CHECK(json("['1', \"true\", '', \"~\"]") == R"(["1","true","","~"])");
  CHECK(json("a: |\n  1\nb: >-\n  true\n") == R"({"a":"1\n","b":"true"})");
  CHECK(json("") == "null");
  CHECK(json("\xEF\xBB\xBF"
             "a: 1") == R"({"a":1})");
  CHECK(json("a: 1\r\nb: 2\r\n") == R"({"a":1,"b":2})");
}

TEST_CASE("an anchor, its aliases and merges are resolved") {
  CHECK(json("a: &x {p: 1, q: [2]}\nb: *x\n") == R"({"a":{"p":1,"q":[2]},"b":{"p":1,"q":[2]}})");
  CHECK(json("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\n") == R"({"a":{"p":1,"q":2},"b":{"q":3,"p":1}})");
  CHECK(json("a: &x {p: 1}\nb: &y {p: 2, q: 2}\nc: {q: 0, <<: [*x, *y]}\n") ==
        R"({"a":{"p":1},"b":{"p":2,"q":2},"c":{"q":0,"p":1}})");
  CHECK(json("a: &x one\nb: *x\n'<<': quoted\n") == R"({"a":"one","b":"one","<<":"quoted"})");
}

TEST_CASE("nodes know their place") {
  const Parsed parsed = parse("a: &x \"text\"\nb:\n  - [1, größe, last]\nc: *x\n");
  REQUIRE(parsed.root);
  const SourceLocation text = parsed.root->entry("a")->value.where();
  CHECK(text.line == 1);
  CHECK(text.column == 7);
  CHECK(text.length == 6);
  const YamlNode& list = parsed.root->entry("b")->value.items[0];
  CHECK(list.items[1].where().length == 5);
  CHECK(list.items[2].where().line == 3);
  CHECK(list.items[2].where().column == 16);
  CHECK(parsed.root->entry("c")->value.where().line == 1);  // where the text stands
}

/// The place of "name" in the value of the key "a".
std::string place_of_name(const std::string& yaml) {
  const Parsed parsed = parse(yaml);
  REQUIRE(parsed.root);
  const YamlNode& node = parsed.root->entry("a")->value;
  const SourceLocation where = TextPlaces(node).at(node.text.rfind("name"), 4);
  return std::to_string(where.line) + ":" + std::to_string(where.column) + ":" + std::to_string(where.length);
}

TEST_CASE("placeholders are found in every style of scalar") {
  CHECK(place_of_name("a: see {{ name }}") == "1:11:4");
  CHECK(place_of_name("a: 'it''s {{name}}'") == "1:13:4");
  CHECK(place_of_name("a: \"\\\"\\u00e9\\n {{ x }} {{ name }}\"") == "1:27:4");
  CHECK(place_of_name("a: |\n  one\n\n   {{ x }} ü {{ name }}\n") == "4:17:4");
  CHECK(place_of_name("a: |2-\n    {{ name }}\n") == "2:8:4");
  CHECK(place_of_name("a: >-\n  one {{ x }}\n  two {{ name }}\n") == "3:10:4");
  CHECK(place_of_name("a: plain {{ x }}\n  goes on {{ name }}\n") == "2:14:4");
  CHECK(place_of_name("b: &t \"{{ name }}\"\na: *t\n") == "1:11:4");
  CHECK(place_of_name("a: \"{{ \\x6eame }}\"") == "1:5:2");  // an escape inside: the braces
  CHECK(place_of_name("a: name") == "1:4:4");
}

TEST_CASE("hostile files are refused quickly") {
  std::string bomb = "x0: &x0 [lol, lol]\n";
  for (int i = 1; i < 60; ++i) {
    const std::string last = std::to_string(i - 1), name = std::to_string(i);
    bomb += "x" + name + ": &x" + name + " [*x" + last + ", *x" + last + "]\n";
  }
  CHECK(json(bomb).find("error[E0106]") != std::string::npos);

  const std::string big(200'000, 'a');
  std::string text_bomb = "a: &a " + big + "\n";
  for (int i = 0; i < 100; ++i) text_bomb += "b" + std::to_string(i) + ": *a\n";
  CHECK(json(text_bomb).find("bytes once aliases are resolved") != std::string::npos);

  CHECK(json(std::string(100'000, '[')).find("error[E01") != std::string::npos);
  CHECK(json(std::string(2u << 20, 'a')).find("error[E0502]") != std::string::npos);
  CHECK(json("a: \xff").find("error[E0102]: byte 0xff is not valid UTF-8") != std::string::npos);
  CHECK(json("\xff\xfe"
             "a")
            .find("UTF-16") != std::string::npos);
  CHECK(json(std::string("a: \0b", 5)).find("control character 0x00") != std::string::npos);
  CHECK(json("a: \x04 b").find("control character 0x04") != std::string::npos);  // yaml-cpp would take it for the end
}

}  // namespace
}  // namespace baton
