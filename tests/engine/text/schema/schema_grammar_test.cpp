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
using Catch::StartsWith;

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
  CHECK(holds(R"({"type": "integer"})", "-9223372036854775808"));
  CHECK(holds(R"({"type": "integer"})", "18446744073709551615"));
  CHECK_FALSE(holds(R"({"type": "integer"})", "18446744073709551616"));
  CHECK_FALSE(holds(R"({"type": "integer"})", "-9223372036854775809"));
  CHECK(holds(R"({"type": "integer", "exclusiveMinimum": 9007199254740992})", "9007199254740993"));
  CHECK_FALSE(holds(R"({"type": "integer", "exclusiveMinimum": 9007199254740992})", "9007199254740992"));
  CHECK(holds(R"({"type": "integer", "exclusiveMaximum": 18446744073709551615})", "18446744073709551614"));
  CHECK_FALSE(holds(R"({"type": "integer", "exclusiveMaximum": 18446744073709551615})", "18446744073709551615"));
  CHECK_FALSE(holds(R"({"type": "integer"})", "007"));
  CHECK_FALSE(holds(R"({"type": "integer"})", "1.0"));
  CHECK(holds(R"({"type": "number"})", "-1.5e-10"));
  CHECK_FALSE(holds(R"({"type": "number"})", "1e400"));
  for (const char* digits : {"0.30000000000000004", "76561198012345678", "1.7976931348623157e307", "5e-319", "1e-7"})
    CHECK(holds(R"({"type": "number"})", digits));
  CHECK(holds(R"({"type": "number", "minimum": 0, "exclusiveMaximum": 1})", "0.12345678901234567"));
  CHECK_FALSE(holds(R"({"type": "number", "minimum": 0, "exclusiveMaximum": 1})", "1"));
  CHECK(holds(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})", "0.000000000000001"));
  CHECK_FALSE(holds(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})", "0.0"));
  CHECK_FALSE(holds(R"({"type": "number", "exclusiveMinimum": 5, "maximum": 10})", "5.000000000000000"));
  CHECK(holds(R"({"type": "number", "minimum": 0.1})", "0.1"));
  for (const char* value : {"-1", "-0.5", "-12", "0"}) CHECK(holds(R"({"type": "number", "maximum": 0})", value));
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
  CHECK(depth == 63);
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

TEST_CASE("a chain of definitions is enforced as far as the check follows it") {
  // `link`: how a definition holds the next one, {} its name; `before` and `behind`: what a value becomes.
  const auto chain = [](int length, const std::string& link) {
    std::string definitions = R"("d0": {"type": "integer"})";
    for (int i = 1; i <= length; ++i)
      definitions +=
          fmt::format(R"(, "d{}": {})", i, fmt::format(fmt::runtime(link), fmt::format("#/definitions/d{}", i - 1)));
    return fmt::format(R"({{"$ref": "#/definitions/d{}", "definitions": {{{}}}}})", length, definitions);
  };
  struct Form {
    const char* link;
    const char* before;
    const char* behind;
    int reached;  // length of the longest chain
  };
  for (const Form& form :
       {Form{R"({{"$ref": "{}"}})", "", "", 62},
        Form{R"({{"type": "array", "minItems": 1, "items": {{"$ref": "{}"}}}})", "[", "]", 64},
        Form{R"({{"properties": {{"a": {{"$ref": "{}"}}}}, "required": ["a"]}})", "{\"a\":", "}", 64},
        Form{R"({{"allOf": [{{"$ref": "{}"}}]}})", "", "", 31}}) {
    for (int length = 1; length < 100; ++length) {
      std::string value = "1";
      for (int i = 0; i < length; ++i) value = form.before + value + form.behind;
      const std::string schema = chain(length, form.link);
      INFO(form.link << ", " << length);
      if (length <= form.reached) {
        REQUIRE(check_json(value, schema).empty());
        REQUIRE(holds(schema, value));
      } else if (!check_json_schema(schema).empty()) {
        REQUIRE_THAT(check_json_schema(schema), Contains("more than 64 references and alternatives"));
      } else {
        REQUIRE_FALSE(check_json(value, schema).empty());
        REQUIRE_THAT(error_of(schema), Contains("nests its rules more than"));
      }
    }
  }
  // A chain that leads back to its beginning has no depth of its own: its values are nested as deeply as the check
  // reads.
  std::string ring = R"({"$ref": "#/definitions/d0", "definitions": {)";
  for (int i = 0; i < 66; ++i)
    ring += fmt::format(R"({}"d{}": {{"properties": {{"a": {{"$ref": "#/definitions/d{}"}}}}}})", i == 0 ? "" : ", ", i,
                        (i + 1) % 66);
  CHECK(holds(ring + "}}", R"({"a": {"a": {"a": {}}}})"));
}

TEST_CASE("schemas that lead to one another fit into a small stack") {
  with_small_stack([] {
    for (const int length : {20, 100, 300, 1000}) {
      for (const char* link : {R"({{"properties": {{"a": {{"$ref": "{}"}}}}}})",
                               R"({{"anyOf": [{{"type": "array", "items": {{"$ref": "{}"}}}}, {{"type": "null"}}]}})",
                               R"({{"allOf": [{{"properties": {{"a": {{"$ref": "{}"}}}}}}], "required": []}})"}) {
        std::string schema = R"({"$ref": "#/definitions/d0", "definitions": {)";
        for (int i = 0; i < length; ++i)
          schema += fmt::format(R"({}"d{}": {})", i == 0 ? "" : ", ", i,
                                fmt::format(fmt::runtime(link), fmt::format("#/definitions/d{}", (i + 1) % length)));
        CHECK_NOTHROW(schema_grammar(schema + "}}"));
      }
    }
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

TEST_CASE("a schema that no text fulfils, or that is too large, is refused with the place") {
  CHECK_THAT(error_of(R"({"required": [")" + std::string(50'000, 'a') + R"("], "additionalProperties": true})"),
             Contains("a name of more than 256 bytes"));
  CHECK_THAT(error_of("false"), Contains("no text fulfils it"));
  CHECK_THAT(error_of(R"({"type": "string", "enum": [1]})"), Contains("no text fulfils it"));
  CHECK_THAT(error_of(R"({"type": "integer", "minimum": 3, "maximum": 2})"), Contains("no text fulfils it"));
  CHECK_THAT(error_of(R"({"required": ["a"], "properties": {}, "additionalProperties": false})"),
             Contains("no text fulfils it"));
  CHECK_THAT(error_of(R"({"$ref": "#/definitions/a", "definitions": {
                          "a": {"type": "array", "minItems": 1, "items": {"$ref": "#/definitions/a"}}}})"),
             Contains("no text fulfils it"));
  CHECK_THAT(error_of(R"({"type": "string", "pattern": "^a{3}$", "maxLength": 2})"), Contains("no text fulfils it"));
  CHECK_THAT(error_of(R"({"minProperties": 3, "properties": {"a": {}, "b": {}}, "additionalProperties": false})"),
             Contains("no text fulfils it"));
  std::string many = "1";
  for (int i = 2; i <= 1025; ++i) many += fmt::format(",{}", i);
  CHECK_THAT(error_of(R"({"properties": {"a": {"enum": [)" + many + "]}}}"),
             Contains("/properties/a: expected at most 1024 values to choose from, found 1025"));
}

TEST_CASE("what a grammar is not held to is named with the place, and the rest is enforced") {
  struct Case {
    const char* schema;
    const char* note;
    const char* in;   // in the grammar and valid
    const char* out;  // not in the grammar
  };
  const Case cases[] = {
      {R"({"properties": {"a": {"type": "array", "items": {"type": "integer"}, "uniqueItems": true}}})",
       "/properties/a: 'uniqueItems' is checked when the text is complete", R"({"a":[1,2]})", R"({"a":["x"]})"},
      {R"({"type": "string", "not": {"pattern": "x"}})", "the schema: 'not' is checked", R"("a")", "1"},
      {R"({"type": "array", "contains": {"const": 1}})", "the schema: 'contains' is checked", "[1]", "1"},
      {R"({"type": "string", "pattern": "^(foo)-\\1$", "maxLength": 9})",
       "the schema: 'pattern' is checked when the text is complete: this escape is not supported", R"("foo-foo")",
       R"("0123456789")"},
      {R"json({"type": "string", "pattern":
           "^(?=.{1,253}$)[a-z](?:[a-z-]{0,61}[a-z])?(?:\\.[a-z](?:[a-z-]{0,61}[a-z])?)*$"})json",
       "the schema: 'pattern' is checked when the text is complete: it is too large", R"("a-b.c")", R"("-a")"},
      {R"({"type": "string", "format": "regex"})", "the schema: 'format' is checked when the text is complete",
       R"("a+")", "1"},
      {R"({"type": "string", "format": "colour"})", "the schema: format 'colour' is not checked", R"("a")", "1"},
      {R"({"type": "number", "multipleOf": 0.1234567})", "the schema: 'multipleOf' is checked", "0", "true"},
      {R"({"type": "object", "minProperties": 2})", "the schema: 'minProperties' is checked", R"({"a":1,"b":2})", "[]"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 5}]})",
       "the schema: 'oneOf' is checked when the text is complete: alternatives 0 and 1 may both hold", "5.5", "true"},
      {R"({"properties": {"a": {"type": "integer"}, "b": {}}, "if": {"properties": {"a": {"minimum": 3}}},
           "then": {"required": ["b"]}})",
       "the schema: 'if' is checked", R"({"a":1})", R"({"a":"x"})"},
  };
  for (const Case& one : cases) {
    INFO(one.schema);
    REQUIRE(check_json_schema(one.schema).empty());
    const auto grammar = schema_grammar(one.schema);
    REQUIRE(grammar->unenforced().size() == 1);
    CHECK_THAT(grammar->unenforced()[0], StartsWith(one.note));
    CHECK(check_json(one.in, one.schema).empty());
    CHECK(accepts(*grammar, one.in));
    CHECK_FALSE(accepts(*grammar, one.out));
  }
}

TEST_CASE("keywords that hold together are enforced together") {
  struct Case {
    const char* schema;
    std::vector<const char*> in, out;
  };
  const Case cases[] = {
      {R"({"properties": {"cell": {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 500}, {"$ref": "#/$defs/p"}]}},
           "required": ["cell"], "additionalProperties": false, "$defs": {"p": {"type": "array", "items": {"type":
           "integer", "minimum": 0, "maximum": 1000}, "minItems": 2, "maxItems": 2}}})",
       {R"({"cell":500})", R"({"cell":[0,1000]})"},
       {R"({"cell":501})", R"({"cell":[1]})"}},
      {R"({"enum": [1, 2, "a"], "minimum": 2})", {"2", R"("a")"}, {"1"}},
      {R"({"enum": ["a", "b"], "not": {"const": "b"}})", {R"("a")"}, {R"("b")"}},
      {R"({"type": ["string", "boolean"], "not": {"enum": ["no", false]}})",
       {R"("nope")", "true"},
       {R"("no")", "false"}},
      {R"({"type": "string", "pattern": "^[A-Z]+$", "minLength": 2, "maxLength": 4})",
       {R"("AB")", R"("ABCD")"},
       {R"("A")", R"("ABCDE")", R"("ab")"}},
      {R"({"type": "string", "pattern": "^(ab)*$", "minLength": 3, "maxLength": 4})",
       {R"("abab")"},
       {R"("ab")", R"("aba")", R"("ababab")"}},
      {R"({"type": "string", "pattern": "a", "minLength": 20000, "maxLength": 30000})", {}, {R"("a")"}},
      {R"({"allOf": [{"pattern": "^a"}, {"pattern": "z$"}], "type": "string"})",
       {R"("abcz")", R"("az")"},
       {R"("a")", R"("bz")"}},
      {R"json({"type": "string", "pattern": "^(?!x)(?=.*\\d)[a-z0-9]+$"})json",
       {R"("a1")", R"("1x")"},
       {R"("x1")", R"("ab")"}},
      {R"json({"type": "string", "pattern": "(^|,)yes(,|$)", "maxLength": 6})json",
       {R"("yes")", R"("a,yes")", R"("yes,b")"},
       {R"("yess")", R"("ayes")"}},
      {R"json({"type": "string", "pattern": "^(?:(?!--)[a-z-])+(?<!-)$", "maxLength": 9})json",
       {R"("a-b")", R"("-a")"},
       {R"("a--b")", R"("a-")"}},
      {R"json({"type": "string", "pattern": "\\bcat\\b", "maxLength": 9})json", {R"("a cat!")"}, {R"("concat")"}},
      {R"json({"type": "string", "pattern": "^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(\\d+D)?(T(?=\\d)(\\d+H)?)?)$"})json",
       {R"("P2W")", R"("P1YT2H")", R"("PT2H")"},
       {R"("P")", R"("PT")", R"("P1YT")", R"("P1Y2W")"}},
      {R"json({"type": "string", "pattern": "^[\\p{L}\\u{1F600}-\\u{1F64F}]+$", "maxLength": 9})json",
       {"\"a\xc3\xa9\xf0\x9f\x98\x80\""},
       {R"("a1")", "\"\xf0\x9f\x9a\x80\""}},
      {R"({"type": "string", "format": "duration"})", {R"("P1DT2H")", R"("PT1H5S")"}, {R"("P")", R"("-P1D")"}},
      {R"({"type": "string", "format": "hostname"})", {R"("a-b.example")", R"("xn--p1ai.xn--p1ai")"}, {R"("-a")"}},
      {R"({"type": "string", "format": "uri-reference"})", {R"("/a?b")", R"("http://a/")"}, {R"("a b")"}},
      {R"({"type": "string", "format": "uri-template"})", {R"("/a/{b}")"}, {R"("/a/{b")"}},
      {R"({"type": "string", "format": "base64"})", {R"("aGk=")"}, {R"("aGk")"}},
      {R"({"type": ["string", "null"], "not": {"type": "null"}})", {R"("a")"}, {"null"}},
      {R"({"properties": {"a": {"not": {}}, "b": {"type": "integer"}}})", {R"({"b":1})", "{}"}, {R"({"a":1})"}},
      {R"({"type": "number"})", {"-1e-320", "1E5"}, {"1e-400", "1e309"}},
      {R"json({"type": "string", "pattern": "^(?<year>\\d{4})$"})json", {R"("2024")"}, {R"("24")"}},
      {R"({"type": "string", "pattern": "^[\\u4e00-\\u9fff]+$"})", {"\"\xe4\xb8\xad\""}, {R"("a")"}},
      {R"({"type": "string", "pattern": "^\\ud83d\\ude00$"})", {"\"\xf0\x9f\x98\x80\""}, {R"("a")"}},
      {R"({"type": "string", "format": "date", "pattern": "^2024"})",
       {R"("2024-02-29")"},
       {R"("2023-01-01")", R"("2024-02-30")"}},
      {R"({"type": "string", "format": "date-time"})",
       {R"("2024-02-29T23:59:59Z")", R"("2024-02-29T12:00:00.5+01:00")"},
       {R"("2024-02-29")", R"("2024-02-29T12:00:00")", R"("0000-02-29T12:00:00Z")", R"("2024-02-29T23:59:60Z")"}},
      {R"({"type": "string", "format": "ipv6", "maxLength": 6})", {R"("::1")"}, {R"("2001:db8::1")", R"("1.2.3.4")"}},
      {R"({"type": "integer", "multipleOf": 7, "minimum": -20})", {"0", "-14", "7777777"}, {"1", "-21", "-0"}},
      {R"({"type": "integer", "multipleOf": 60})", {"0", "60", "-3600"}, {"30", "10", "-0"}},
      {R"({"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 9.99})",
       {"0.01", "9.9", "7"},
       {"0.001", "9.991", "10"}},
      {R"({"type": "number", "multipleOf": 0.25, "minimum": -1, "maximum": 10})",
       {"0", "0.25", "-0.75", "9.5", "10", "1.50"},
       {"0.3", "0.2", "1.125", "10.25", "-1.25"}},
      {R"({"type": "number", "multipleOf": 1.5})", {"3", "4.5", "-1.5", "30.0"}, {"1", "1.6", "2.5"}},
      {R"({"type": "array", "uniqueItems": true, "items": {"$ref": "#/$defs/c"}, "maxItems": 2, "minItems": 1,
           "$defs": {"c": {"type": "string", "enum": ["a", "b", "c"]}}})",
       {R"(["c","a"])", R"(["b"])"},
       {"[]", R"(["a","a"])", R"(["a","b","c"])"}},
      {R"({"type": "array", "uniqueItems": true, "items": {"enum": [1, 1.0, "1"]}})", {R"([1,"1"])", "[]"}, {"[1,1]"}},
      {R"({"type": "array", "uniqueItems": true, "items": {"type": "string"}, "maxItems": 1})", {R"(["a"])"}, {}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false, "minItems": 2})",
       {R"([1,"x"])"},
       {"[1]", R"(["x",1])", R"([1,"x",2])"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "null"}, "maxItems": 3})",
       {"[]", "[1]", "[1,null,null]"},
       {"[null]", "[1,2]", "[1,null,null,null]"}},
      {R"({"properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 2, "maxProperties": 2,
           "additionalProperties": false})",
       {R"({"a":1,"b":2})", R"({"b":1,"c":2})", R"({"a":1,"c":2})"},
       {R"({"a":1})", R"({"a":1,"b":2,"c":3})", "{}"}},
      {R"({"type": "object", "maxProperties": 2, "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"x":1,"y":2})"},
       {R"({"x":1,"y":2,"z":3})"}},
      {R"({"patternProperties": {"^n": {"type": "integer"}, "z$": {"maximum": 5}}, "properties": {"name":
           {"type": "string"}}, "additionalProperties": false})",
       {R"({"n1":7})", R"({"nz":5})"},
       {R"({"nz":6})", R"({"n1":"x"})", R"({"x":1})", R"({"name":1})"}},
      {R"({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "integer"}})",
       {R"({"a":1})", R"({"a":1,"b":2})"},
       {R"({"c":1})", R"({"a":"x"})"}},
      {R"({"type": "object", "propertyNames": {"pattern": "^[a-z]{2}$"}, "additionalProperties": {"type": "integer"}})",
       {R"({"ab":1})"},
       {R"({"abc":1})"}},
      {R"({"if": {"required": ["a"]}, "then": {"maxLength": 1}, "type": ["object", "string"]})",
       {R"("x")", "{}"},
       {R"("xy")"}},
      {R"({"type": "object", "propertyNames": {"type": "array"}})", {"{}"}, {R"({"ab":1})"}},
      {R"({"properties": {"card": {}, "address": {}}, "dependentRequired": {"card": ["address"]}})",
       {R"({"address":1})", R"({"card":1,"address":2})", "{}"},
       {R"({"card":1})"}},
      {R"({"properties": {"kind": {"enum": ["a", "b"]}, "x": {"type": "integer"}}, "required": ["kind"],
           "if": {"properties": {"kind": {"const": "a"}}, "required": ["kind"]}, "then": {"required": ["x"]},
           "else": {"properties": {"x": false}}})",
       {R"({"kind":"a","x":1})", R"({"kind":"b"})"},
       {R"({"kind":"a"})", R"({"kind":"b","x":1})"}},
      {R"({"oneOf": [{"properties": {"t": {"const": "cat"}, "n": {"type": "integer"}}, "required": ["t", "n"]},
                     {"properties": {"t": {"const": "dog"}}, "required": ["t"]}]})",
       {R"({"t":"cat","n":9})", R"({"t":"dog"})"},
       {R"({"t":"cat"})", R"({"t":"dog","n":1})"}},
      {R"({"properties": {"left": {"anyOf": [{"type": "object", "properties": {"name": {"type": "string"}}, "required":
           ["name"]}, {"type": "null"}]}, "right": {"$ref": "#/properties/left/anyOf/0"}, "whole": {"$ref": "#"}}})",
       {R"({"left":null,"right":{"name":"x"}})", R"({"whole":{"whole":{}}})"},
       {R"({"right":null})"}},
      {R"({"type": "string", "nullable": true})", {"null", R"("x")"}, {"1"}},
  };
  for (const Case& one : cases) {
    INFO(one.schema);
    REQUIRE(check_json_schema(one.schema).empty());
    const auto grammar = schema_grammar(one.schema);
    CHECK(grammar->unenforced().empty());
    for (const char* text : one.in) {
      INFO(text);
      CHECK(check_json(text, one.schema).empty());
      CHECK(accepts(*grammar, text));
    }
    for (const char* text : one.out) {
      INFO(text);
      CHECK_FALSE(accepts(*grammar, text));
    }
    // Whatever way is taken through the grammar, it comes to an end, and the text is valid.
    std::mt19937 random(3);
    for (int i = 0; i < 20 && std::string(one.schema).find("20000") == std::string::npos; ++i) {
      const std::string text = random_text(grammar, random, 40);
      if (text.empty()) continue;
      INFO(text);
      CHECK(check_json(text, one.schema).empty());
    }
  }
}

TEST_CASE("JSON may have free blanks between its tokens, but not without end") {
  const std::string schema = R"({"properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type":
      "object", "additionalProperties": {"type": "string"}}}, "c": {"type": "array", "prefixItems": [{"type": "null"},
      {"type": "boolean"}], "items": false}}, "required": ["a", "b"], "additionalProperties": false})";
  const auto compact = schema_grammar(schema), free = schema_grammar(schema, JsonBlanks::free);
  for (const char* text : {R"({"a":1,"b":[]})", R"({"a": 1, "b": [{"x": "y"}], "c": [null, true]})"}) {
    INFO(text);
    CHECK(accepts(*compact, text));
    CHECK(accepts(*free, text));
  }
  for (const char* text :
       {"{\n  \"a\": 1,\n  \"b\": [\n    {\n      \"x\": \"y\"\n    },\n    {}\n  ]\n}",
        "{\r\n\t\"a\" : 1,\r\n\t\"b\" : [ ]\r\n}", "{ \"a\": 1, \"b\": [ { } ], \"c\": [ null ] }"}) {
    INFO(text);
    CHECK(check_json(text, schema).empty());
    CHECK_FALSE(accepts(*compact, text));
    CHECK(accepts(*free, text));
  }
  const std::string blanks(32, ' ');
  for (const auto& [text, fits] :
       std::initializer_list<std::pair<std::string, bool>>{{"{" + blanks + "\"a\":1,\"b\":[]}", true},
                                                           {"{" + blanks + " \"a\":1,\"b\":[]}", false},
                                                           {"{\n" + blanks + "\"a\":1,\"b\":[]}", true},
                                                           {"{\n\n\"a\":1,\"b\":[]}", false},
                                                           {"{\"a\":1,\"b\":[" + blanks + "]}", true},
                                                           {"{\"a\":1,\"b\":[" + blanks + " ]}", false},
                                                           {"{\"a\":1" + blanks + " ,\"b\":[]}", false},
                                                           {"{\"a\":1,\"b\":[]}\n", false}}) {
    INFO(text);
    CHECK(accepts(*free, text) == fits);
  }
  for (const char* text : {"{\n  \"a\": 1\n}", "{\n  \"a\": \"x\",\n  \"b\": []\n}", "{\"a\": 1, \"b\": [1]}"})
    CHECK_FALSE(accepts(*free, text));
  for (unsigned seed = 0; seed < 300; ++seed) {  // texts of a grammar with blanks are valid, too
    RandomSchema make(seed, true);
    const std::string any = make.schema(3).dump();
    CAPTURE(seed, any);
    std::shared_ptr<const Grammar> grammar;
    try {
      grammar = schema_grammar(any, JsonBlanks::free);
    } catch (const ConstraintError&) {
      continue;
    }
    std::mt19937 random(seed);
    for (int i = 0; i < 4; ++i) {
      const std::string text = random_text(grammar, random, 60);
      if (const std::string problem = text.empty() ? "" : check_json(text, any); !problem.empty())
        FAIL(text << ": " << problem);
    }
  }
}

TEST_CASE("lengths are counted, whatever they are") {
  const std::string long_text = R"({"type": "string", "minLength": 3, "maxLength": 10000})";
  const auto grammar = schema_grammar(long_text);
  CHECK(grammar->nodes() < 100);
  for (const std::size_t length :
       {std::size_t{2}, std::size_t{3}, std::size_t{9999}, std::size_t{10000}, std::size_t{10001}}) {
    INFO(length);
    const bool fits = length >= 3 && length <= 10000;
    CHECK(accepts(*grammar, "\"" + std::string(length, 'x') + "\"") == fits);
  }
  const auto list = schema_grammar(R"({"type": "array", "maxItems": 50, "items": )" + long_text + "}");
  CHECK(list->nodes() < 200);
  std::string items;
  for (int i = 0; i < 50; ++i) items += std::string(i == 0 ? "" : ",") + "\"xyz\"";
  CHECK(accepts(*list, "[" + items + "]"));
  CHECK_FALSE(accepts(*list, "[" + items + ",\"xyz\"]"));
  CHECK(holds(R"({"type": "string", "maxLength": 5000000000})", R"("x")"));
  CHECK_THAT(error_of(R"({"type": "string", "minLength": 5000000000})"), Contains("no text fulfils it"));
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
