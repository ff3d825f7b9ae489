// SPDX-License-Identifier: Apache-2.0
// Grammars of JSON Schemas against the check of answers, which knows nothing of them: what the grammar holds is valid,
// and valid values in the form that the documents describe are in the grammar.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <random>

#include "engine/text/constrain/grammar.h"
#include "engine/text/schema/schema.h"
#include "tests/support/random_schema.h"
#include "tests/support/small_stack.h"

namespace schema_grammar_test {

using namespace baton;
using namespace baton::test;
using Catch::Contains;

namespace {

/// A random text of the grammar. After `length` bytes it takes the first way on, so that it comes to an end.
std::string random_text(const std::shared_ptr<const Grammar>& grammar, std::mt19937& random, std::size_t length) {
  GrammarStates states(grammar);
  GrammarStates::State* state = states.start();
  std::string out;
  while (!state->complete()) {
    if (out.size() > 20 * length || (state->places->ends && random() % 8 == 0)) break;
    std::vector<std::uint8_t> bytes;
    for (int byte = 0; byte < 256; ++byte) {
      if (!states.next(state, static_cast<std::uint8_t>(byte))->dead())
        bytes.push_back(static_cast<std::uint8_t>(byte));
    }
    REQUIRE_FALSE(bytes.empty());  // a text that was begun has an end
    // A rare byte such as a quote or a bracket comes as often as all letters together.
    std::uint8_t byte = bytes[random() % bytes.size()];
    for (const char rare : {'"', ']', '}', ','}) {
      if (std::count(bytes.begin(), bytes.end(), rare) > 0 && (random() % 4 == 0 || out.size() > length))
        byte = static_cast<std::uint8_t>(rare);
    }
    out += static_cast<char>(byte);
    state = states.next(state, byte);
  }
  CHECK((state->places->ends || out.size() > 20 * length));
  return state->places->ends ? out : "";
}

std::string error_of(const std::string& schema) {
  REQUIRE(check_json_schema(schema).empty());
  try {
    schema_grammar(schema);
  } catch (const ConstraintError& error) {
    return error.what();
  }
  return "no error";
}

bool holds(const std::string& schema, const std::string& text) { return accepts(*schema_grammar(schema), text); }

}  // namespace

TEST_CASE("texts of a schema's grammar are valid, and valid values are in it") {
  int walked = 0, refused = 0, wrong_values = 0;
  for (unsigned seed = 0; seed < 1500; ++seed) {
    RandomSchema make(seed, true);
    const RandomSchema::Json json = make.schema(3);
    const std::string schema = json.dump();
    CAPTURE(seed, schema);
    REQUIRE(check_json_schema(schema).empty());
    std::shared_ptr<const Grammar> grammar;
    try {
      grammar = schema_grammar(schema);
    } catch (const ConstraintError& error) {
      REQUIRE_THAT(error.what(), Contains("no text fulfils it"));  // such as an integer from 3.5 to 3.7
      ++refused;
      continue;
    }
    std::mt19937 random(seed);
    for (int i = 0; i < 8; ++i) {
      const std::string text = random_text(grammar, random, 60);
      if (text.empty()) continue;
      ++walked;
      if (const std::string problem = check_json(text, schema); !problem.empty()) FAIL(text << ": " << problem);
    }
    for (int i = 0; i < 8; ++i) {
      const std::string value = make.value(json).dump();
      if (!check_json(value, schema).empty()) {
        ++wrong_values;
        CHECK_FALSE(accepts(*grammar, value));
      } else if (!accepts(*grammar, value)) {
        FAIL("not in the grammar: " << value);
      }
    }
  }
  CHECK(walked > 8000);
  CHECK(refused < 150);
  CHECK(wrong_values < 1000);
}

TEST_CASE("changed values are in the grammar only where they are valid") {
  int valid = 0, invalid = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    RandomSchema make(seed, true);
    const RandomSchema::Json json = make.schema(2);
    const std::string schema = json.dump();
    std::shared_ptr<const Grammar> grammar;
    try {
      grammar = schema_grammar(schema);
    } catch (const ConstraintError&) {
      continue;
    }
    for (int i = 0; i < 60; ++i) {
      std::string text = make.value(json).dump();
      if (text.empty()) continue;
      static constexpr const char kBytes[] = "0123456789-.eE\"\\,:[]{} anrtu\x01\xc3";
      const auto at = static_cast<std::size_t>(make.below(static_cast<int>(text.size())));
      const char byte = kBytes[make.below(sizeof(kBytes) - 1)];
      if (make.chance())
        text[at] = byte;
      else if (make.chance())
        text.insert(at, 1, byte);
      else
        text.erase(at, 1);
      const bool in_grammar = accepts(*grammar, text), is_valid = check_json(text, schema).empty();
      (is_valid ? valid : invalid)++;
      if (in_grammar && !is_valid) FAIL(seed << ": " << schema << ": " << text);
    }
  }
  CHECK(valid > 500);
  CHECK(invalid > 5000);
}

TEST_CASE("numbers between bounds") {
  std::mt19937 random(11);
  const auto bound = [&] { return (static_cast<int>(random() % 4001) - 2000) / (random() % 2 == 0 ? 100.0 : 8.0); };
  for (int round = 0; round < 120; ++round) {
    nlohmann::json schema{{"type", round % 2 == 0 ? "number" : "integer"}};
    const double low = bound(), high = low + static_cast<double>(random() % 300) / 16;
    if (random() % 4 != 0) schema[random() % 3 == 0 ? "exclusiveMinimum" : "minimum"] = low;
    if (random() % 4 != 0) schema["maximum"] = high;
    CAPTURE(schema.dump());
    std::shared_ptr<const Grammar> grammar;
    try {
      grammar = schema_grammar(schema.dump());
    } catch (const ConstraintError&) {
      continue;
    }
    for (int i = 0; i < 1500; ++i) {
      const double near = random() % 2 == 0 ? low : high;
      const double value = near + (static_cast<double>(random() % 2001) - 1000) / (i % 3 == 0 ? 10 : 1000);
      const std::string text =
          round % 2 == 0 && i % 2 == 0 ? nlohmann::json(value).dump() : std::to_string(static_cast<int>(value));
      if (text.find('e') != text.npos || text == "-0") continue;
      if (round % 2 == 1 && text.find('.') != text.npos) continue;
      const bool valid = check_json(text, schema.dump()).empty();
      if (text.size() - std::min(text.find('.'), text.size()) > 16) {  // more digits than the grammar has
        if (accepts(*grammar, text)) CHECK(valid);
      } else if (accepts(*grammar, text) != valid) {
        FAIL(text << (valid ? " is valid" : " is not valid"));
      }
    }
  }
  CHECK(holds(R"({"type": "integer"})", "-999999999999999"));
  CHECK_FALSE(holds(R"({"type": "integer"})", "1000000000000000"));
  CHECK_FALSE(holds(R"({"type": "integer"})", "007"));
  CHECK_FALSE(holds(R"({"type": "integer"})", "1.0"));
  CHECK(holds(R"({"type": "number"})", "-1.5e-10"));
  CHECK_FALSE(holds(R"({"type": "number"})", "1e400"));
  CHECK(holds(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})", "0.000000000000001"));
  CHECK_FALSE(holds(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})", "0.0"));
  CHECK_FALSE(holds(R"({"type": "number", "exclusiveMinimum": 5, "maximum": 10})", "5.000000000000000"));
  CHECK(holds(R"({"type": "number", "minimum": 0.1})", "0.1"));
  CHECK_FALSE(holds(R"({"type": "number", "minimum": 0.1})", "0.099999999999999"));
}

TEST_CASE("the form of JSON that is decoded") {
  const std::string team = R"({"properties": {"why": {"type": "string"}, "answer": {"type": "integer"}},
                               "required": ["answer"]})";
  CHECK(holds(team, R"({"why": "so", "answer": 3})"));
  CHECK(holds(team, R"({"answer":3})"));
  CHECK_FALSE(holds(team, R"({"answer": 3, "why": "so"})"));  // in the order of the schema
  CHECK_FALSE(holds(team, R"({"why": "so"})"));
  CHECK_FALSE(holds(team, R"({"answer": 3, "more": 1})"));  // the schema does not speak of others
  CHECK_FALSE(holds(team, R"({"answer":  3})"));            // at most one blank
  CHECK_FALSE(holds(team, "{\n\"answer\": 3}"));
  CHECK_FALSE(holds(team, R"({"answer": 3} )"));

  const std::string open =
      R"({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": true})";
  CHECK(holds(open, R"({"a": 1, "ab": [null, {"x": "y"}], "": 2})"));
  CHECK(holds(open, R"({"b": "a"})"));
  CHECK_FALSE(holds(open, R"({"b": 1, "a": "no integer"})"));  // the last of equal keys would count
  CHECK(holds(R"({"type": "object"})", R"({"a": {"b": [1, "\n", true]}})"));
  CHECK(holds("true", "[]"));
  CHECK(holds("{}", R"("text")"));

  const std::string word = R"({"type": "string", "pattern": "a\\d"})";
  CHECK(holds(word, R"("xxa1\n")"));
  CHECK_FALSE(holds(word, R"("xxb1")"));
  CHECK(holds(R"({"type": "string", "minLength": 2, "maxLength": 3})", "\"\xf0\x9f\x98\x80\xc3\xa9\""));
  CHECK_FALSE(holds(R"({"type": "string", "minLength": 2, "maxLength": 3})", "\"\xf0\x9f\x98\x80\""));
  CHECK_FALSE(holds(R"({"type": "string"})", R"("\u0041")"));  // characters are not written as numbers
  CHECK_FALSE(holds(R"({"type": "string"})", "\"a\nb\""));
  CHECK(holds(R"({"const": "a\u0001"})", R"("a\u0001")"));

  CHECK(holds(R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})", "[1, 2]"));
  CHECK_FALSE(holds(R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})", "[1]"));
  CHECK_FALSE(holds(R"({"type": "array", "items": {"type": "integer"}, "maxItems": 3})", "[1, 2, 3, 4]"));
  CHECK(holds(R"({"type": "array", "maxItems": 0})", "[]"));
}

TEST_CASE("schemas that hold together, and schemas that hold themselves") {
  const std::string both =
      R"({"allOf": [{"$ref": "#/definitions/named"}, {"properties": {"age": {"type": "integer", "minimum": 0}},
      "required": ["age"]}], "definitions": {"named": {"type": "object", "properties": {"name": {"type": "string"}},
      "required": ["name"]}}})";
  CHECK(holds(both, R"({"name": "Ada", "age": 36})"));
  CHECK_FALSE(holds(both, R"({"name": "Ada"})"));
  const std::string either = R"({"type": "object", "required": ["kind"], "anyOf": [
      {"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["x"]},
      {"properties": {"kind": {"const": "b"}}}]})";
  CHECK(holds(either, R"({"kind": "a", "x": 1})"));
  CHECK(holds(either, R"({"kind": "b"})"));
  CHECK_FALSE(holds(either, R"({"kind": "a"})"));

  const std::string tree = R"({"$ref": "#/definitions/tree", "definitions": {"tree": {"type": "object",
      "properties": {"left": {"$ref": "#/definitions/tree"}, "right": {"$ref": "#/definitions/tree"}}}}})";
  const auto nested = [](int depth) {
    std::string text = "{}";
    for (int i = 0; i < depth; ++i) text = R"({"left": )" + text + "}";
    return text;
  };
  CHECK(holds(tree, R"({"left": {"right": {}}, "right": {}})"));
  CHECK(holds(tree, nested(20)));
  // Nesting ends before the check would refuse it.
  int depth = 0;
  while (holds(tree, nested(depth + 1))) ++depth;
  CHECK(depth < 40);
  CHECK(check_json(nested(depth), tree).empty());
  const std::string lists = R"({"type": "array"})";
  depth = 1;
  while (holds(lists, std::string(static_cast<std::size_t>(depth + 1), '[') +
                          std::string(static_cast<std::size_t>(depth + 1), ']')))
    ++depth;
  CHECK(depth >= 20);
  CHECK(
      check_json(std::string(static_cast<std::size_t>(depth), '[') + std::string(static_cast<std::size_t>(depth), ']'),
                 lists)
          .empty());
}

TEST_CASE("a chain of definitions is enforced exactly as far as the check follows it") {
  // `link`: how a definition holds the next one, {} its name; `wrap`: what a value becomes.
  const auto chain = [](int length, const std::string& link, const std::string& first) {
    std::string definitions = R"("d0": {"type": "integer"})";
    for (int i = 1; i <= length; ++i)
      definitions +=
          fmt::format(R"(, "d{}": {})", i, fmt::format(fmt::runtime(link), fmt::format("#/definitions/d{}", i - 1)));
    return fmt::format(R"({{{}"definitions": {{{}}}}})",
                       fmt::format(fmt::runtime(first), fmt::format("#/definitions/d{}", length)), definitions);
  };
  struct Form {
    const char* link;
    const char* before;
    const char* behind;
  };
  for (const Form& form : {Form{R"({{"$ref": "{}"}})", "", ""},
                           Form{R"({{"type": "array", "minItems": 1, "items": {{"$ref": "{}"}}}})", "[", "]"},
                           Form{R"({{"properties": {{"a": {{"$ref": "{}"}}}}, "required": ["a"]}})", "{\"a\":", "}"},
                           Form{R"({{"allOf": [{{"$ref": "{}"}}]}})", "", ""}}) {
    int enforced = 0;
    for (int length = 1; length < 100; ++length) {
      std::string value = "1";
      for (int i = 0; i < length; ++i) value = form.before + value + form.behind;
      const std::string schema = chain(length, form.link, R"("$ref": "{}", )");
      INFO(form.link << ", " << length);
      REQUIRE(check_json_schema(schema).empty());
      if (!check_json(value, schema).empty()) {
        REQUIRE_THAT(error_of(schema), Contains("nested in more than 64 levels"));
      } else {
        REQUIRE(holds(schema, value));
        ++enforced;
      }
    }
    CHECK(enforced > 15);
    CHECK(enforced < 99);
  }
  // A chain that leads back to its beginning has no depth of its own: its values are nested as deeply as the check
  // reads.
  std::string ring = R"({"$ref": "#/definitions/d0", "definitions": {)";
  for (int i = 0; i < 66; ++i)
    ring += fmt::format(R"({}"d{}": {{"properties": {{"a": {{"$ref": "#/definitions/d{}"}}}}}})", i == 0 ? "" : ", ", i,
                        (i + 1) % 66);
  CHECK(holds(ring + "}}", R"({"a": {"a": {"a": {}}}})"));
  // The first way leads deep into the chain, the second to what is known by then: 50 levels, and 40 to come there.
  const std::string known =
      chain(90, R"({{"$ref": "{}"}})", R"("anyOf": [{{"$ref": "#/definitions/d50"}}, {{"$ref": "{}"}}], )");
  CHECK_THAT(error_of(known), Contains("nested in more than 64 levels"));
}

TEST_CASE("schemas that lead to one another fit into a small stack, or are refused") {
  with_small_stack([] {
    int enforced = 0, refused = 0;
    for (const int length : {20, 60, 100, 140, 180, 300, 1000}) {
      for (const char* link : {R"({{"properties": {{"a": {{"$ref": "{}"}}}}}})",
                               R"({{"anyOf": [{{"type": "array", "items": {{"$ref": "{}"}}}}, {{"type": "null"}}]}})",
                               R"({{"allOf": [{{"properties": {{"a": {{"$ref": "{}"}}}}}}], "required": []}})"}) {
        std::string schema = R"({"$ref": "#/definitions/d0", "definitions": {)";
        for (int i = 0; i < length; ++i)
          schema += fmt::format(R"({}"d{}": {})", i == 0 ? "" : ", ", i,
                                fmt::format(fmt::runtime(link), fmt::format("#/definitions/d{}", (i + 1) % length)));
        try {
          schema_grammar(schema + "}}");
          ++enforced;
        } catch (const ConstraintError& error) {
          CHECK_THAT(error.what(), Contains("too large to be enforced"));
          ++refused;
        }
      }
    }
    CHECK(enforced > 3);
    CHECK(refused > 3);
  });
}

TEST_CASE("vertical space in a pattern is what the check takes it for") {
  for (const char* pattern : {R"("^\\v$")", R"("^[^\\v]$")"}) {
    const std::string schema = fmt::format(R"({{"type": "string", "pattern": {}}})", pattern);
    for (const char* text : {R"("\n")", R"("\u000b")", "\"\u0085\"", "\"\u2028\"", R"("a")", R"(" ")"}) {
      INFO(pattern << " " << text);
      if (holds(schema, text)) CHECK(check_json(text, schema).empty());
    }
    CHECK(holds(schema, R"("a")") == (std::string(pattern).find('^', 2) != std::string::npos));
  }
}

TEST_CASE("what of a schema cannot be enforced, with the place") {
  CHECK(error_of(R"({"properties": {"a": {"if": {"type": "string"}, "then": {"minLength": 1}}}})") ==
        "/properties/a: 'if' cannot be enforced");
  CHECK_THAT(error_of(R"({"required": [")" + std::string(50'000, 'a') + R"("], "additionalProperties": true})"),
             Contains("a name of more than 256 bytes"));
  CHECK_THAT(error_of(R"({"patternProperties": {"^x": true}})"), Contains("'patternProperties' cannot be enforced"));
  CHECK_THAT(error_of(R"({"type": "string", "pattern": "a", "maxLength": 3})"),
             Contains("write the length into the pattern"));
  CHECK_THAT(error_of(R"json({"type": "string", "pattern": "a(?=b)"})json"),
             Contains("/pattern: of groups that begin"));
  CHECK_THAT(error_of(R"({"enum": [1, 2], "minimum": 2})"), Contains("'minimum' next to 'enum'"));
  CHECK_THAT(error_of(R"({"anyOf": [{"pattern": "a"}, {"pattern": "c"}], "pattern": "b"})"),
             Contains("both have 'pattern'"));
  CHECK_THAT(error_of("false"), Contains("no text fulfils it"));
  CHECK_THAT(error_of(R"({"type": "string", "enum": [1]})"), Contains("no text fulfils it"));
  CHECK_THAT(error_of(R"({"type": "integer", "minimum": 3, "maximum": 2})"), Contains("no text fulfils it"));
  CHECK_THAT(error_of(R"({"required": ["a"], "properties": {}, "additionalProperties": false})"),
             Contains("no text fulfils it"));
  CHECK_THAT(error_of(R"({"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}})"),
             Contains("rule 'a' is left-recursive"));
  CHECK_THAT(error_of(R"({"$ref": "#/definitions/a", "definitions": {
                          "a": {"type": "array", "minItems": 1, "items": {"$ref": "#/definitions/a"}}}})"),
             Contains("no text fulfils it"));
  CHECK_THAT(error_of(R"({"type": "string", "maxLength": 50000})"), Contains("too large"));
  CHECK_THAT(error_of(R"({"type": "string", "maxLength": 5000000000})"),
             Contains("'maxLength' is too large to be enforced: expected at most 100000, found 5000000000"));
  std::string many = "1";
  for (int i = 2; i <= 1025; ++i) many += fmt::format(",{}", i);
  CHECK_THAT(error_of(R"({"enum": [)" + many + "]}"),
             Contains("expected at most 1024 values to choose from, found 1025"));
  CHECK_THAT(error_of(R"({"allOf": [{"$ref": "#/definitions/a"}],
                          "definitions": {"a": {"allOf": [{"$ref": "#/definitions/a"}]}}})"),
             Contains("schemas are nested in more than 64 levels"));
  // Each level doubles what is written out.
  std::string wide = R"({"type": "integer"})";
  for (int i = 0; i < 12; ++i) wide = R"({"anyOf": [)" + wide + "," + wide + "]}";
  CHECK_THAT(error_of(wide), Contains("too large"));
}

TEST_CASE("annotations, those of the author's own too, constrain nothing") {
  for (const char* schema : {R"({"enum": [5, "a"], "x-note": {"b": 1}, "title": "t"})",
                             R"({"allOf": [{"type": "integer", "x-a": 1}, {"minimum": 0, "x-a": 2}], "x-a": 3})",
                             R"({"anyOf": [{"const": 5, "x-a": 1}, {"const": 6}], "x-a": 3})"}) {
    INFO(schema);
    REQUIRE(check_json_schema(schema).empty());
    CHECK(holds(schema, "5"));
    CHECK_FALSE(holds(schema, "-5"));
  }
}

}  // namespace schema_grammar_test
