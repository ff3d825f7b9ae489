// SPDX-License-Identifier: Apache-2.0
#include "engine/text/schema/schema.h"

#include <catch2/catch.hpp>

#include "tests/support/thread_time.h"

namespace baton {
namespace {

TEST_CASE("values are checked against the keywords") {
  struct Case {
    const char* schema;
    const char* text;
    const char* wrong;
  };
  const Case cases[] = {
      {"{}", "5", ""},
      {"true", "5", ""},
      {"false", "5", "the value: is not allowed"},
      {"{}", "{", "the text is not JSON"},
      {"{}", "1 2", "the text is not JSON"},
      {R"({"type": "integer"})", "1.0", ""},
      {R"({"type": "integer"})", "1.5", R"(the value: expected "integer", found number)"},
      {R"({"type": ["string", "null"]})", "null", ""},
      {R"({"type": ["string", "null"]})", "true", R"(the value: expected "string", "null", found boolean)"},
      {R"({"type": "integer", "x-unit": {"maximum": "m"}, "properties": {"x-a": {"x-note": 1}}})", "1", ""},
      {R"({"properties": {"x-a": {"type": "string"}}})", R"({"x-a": 1})", R"(/x-a: expected "string", found number)"},
      {R"({"enum": [1, "a"]})", "\"a\"", ""},
      {R"({"enum": [1, "a"]})", "2", R"(the value: expected one of 1, "a")"},
      {R"({"const": {"a": 1}})", R"({"a": 1})", ""},
      {R"({"const": 1})", "2", "the value: expected 1"},
      {R"({"minimum": 2, "maximum": 4})", "1", "the value: 1 is less than 2"},
      {R"({"minimum": 2, "maximum": 4})", "4.5", "the value: 4.5 is more than 4"},
      {R"({"exclusiveMinimum": 0})", "0", "the value: 0 is not more than 0"},
      {R"({"minimum": 2})", "\"1\"", ""},
      {R"({"minLength": 2})", "\"\xC3\xA4\"", "the value: has 1 characters, at least 2 are expected"},
      {R"({"maxLength": 2})", "\"abc\"", "the value: has 3 characters, at most 2 are expected"},
      {R"({"pattern": "^a+$"})", "\"aab\"", "the value: does not match '^a+$'"},
      {R"({"items": {"type": "string"}})", "[\"a\", 1]", R"(/1: expected "string", found number)"},
      {R"({"minItems": 1})", "[]", "the value: has 0 items, at least 1 are expected"},
      {R"({"maxItems": 1})", "[1, 2]", "the value: has 2 items, at most 1 are expected"},
      {R"({"required": ["n"]})", "{}", "the value: the key 'n' is missing"},
      {R"({"items": {"required": ["n", "m", "k"]}})", R"([{"m": 1}])", "/0: the keys 'n', 'k' are missing"},
      {R"({"properties": {"n": {"type": "integer"}}})", R"({"n": "x", "m": 1})",
       R"(/n: expected "integer", found string)"},
      {R"({"properties": {"n": {}}, "additionalProperties": false})", R"({"n": 1, "m": 1})", "/m: is not allowed"},
      {R"({"additionalProperties": {"type": "string"}})", R"({"m": 1})", R"(/m: expected "string", found number)"},
      {R"({"patternProperties": {"^x-": {}}, "additionalProperties": false})", R"({"x-a": 1})", ""},
      {R"({"anyOf": [{"type": "string"}, {"minimum": 3}]})", "3", ""},
      {R"({"anyOf": [{"type": "string"}, {"minimum": 3}]})", "2",
       R"(the value: expected "string", found number (and no other alternative fits))"},
      {R"({"definitions": {"n": {"type": "integer"}}, "items": {"$ref": "#/definitions/n"}})", "[1, true]",
       R"(/1: expected "integer", found boolean)"},
  };
  for (const Case& one : cases) {
    INFO(one.schema << " on " << one.text);
    CHECK(check_json_schema(one.schema).empty());
    CHECK(check_json(one.text, one.schema) == one.wrong);
  }
}

TEST_CASE("schemas outside of the subset are refused") {
  for (const char* bad : {"5",
                          "[]",
                          "{",
                          R"({"type": "int"})",
                          R"({"type": []})",
                          R"({"type": [1]})",
                          R"({"enum": []})",
                          R"({"minimum": "1"})",
                          R"({"minLength": -1})",
                          R"({"minItems": 1.5})",
                          R"({"pattern": "("})",
                          R"({"pattern": 1})",
                          R"({"required": "n"})",
                          R"({"required": [1]})",
                          R"({"properties": []})",
                          R"({"properties": {"a": 1}})",
                          R"({"anyOf": []})",
                          R"({"oneOf": []})",
                          R"({"multipleOf": 0})",
                          R"({"uniqueItems": 1})",
                          R"({"format": 1})",
                          R"({"dependentRequired": {"a": [1]}})",
                          R"({"unevaluatedProperties": false})",
                          R"({"properties": {"a": {"unevaluatedItems": false}}})",
                          R"({"$dynamicRef": "#a"})",
                          R"({"minimun": 1})",
                          R"({"$ref": "https://example.com/other"})",
                          R"({"$ref": "#/definitions"})",
                          R"({"$ref": "#anchor"})",
                          R"({"a": 1, "a": 2})",
                          R"({"$ref": "#/definitions/none"})",
                          R"({"$ref": 1})",
                          R"({"definitions": 1, "$ref": "#/definitions/a"})",
                          R"({"patternProperties": {"(": {}}})"}) {
    INFO(bad);
    CHECK_FALSE(check_json_schema(bad).empty());
  }
}

TEST_CASE("all values of a text share what its check may cost") {
  const std::string schema = R"({"items": {"pattern": "([0-9]+)\\s*$"}})";
  std::string text = "[";
  for (int i = 0; i < 50; ++i) text += (i == 0 ? "\"" : ",\"") + std::string(2000, '1') + "x\"";
  const double begin = test::thread_seconds();
  CHECK_THAT(check_json(text + "]", schema), Catch::Matchers::Contains("needs more steps"));
  CHECK(check_json("[\"1 \", \"" + std::string(20'000, '1') + "\"]", schema).empty());
  // Each level is checked twice, down to the long text, whatever the check of one alternative says.
  const std::string twice =
      R"({"definitions": {"a": {"anyOf": [{"items": {"$ref": "#/definitions/a"}, "minItems": 2, "maxLength": 8},
                                                                {"items": {"$ref": "#/definitions/a"}, "maxLength": 9}]}},
                               "$ref": "#/definitions/a"})";
  std::string nested = "\"" + std::string(200'000, 'x') + "\"";
  for (int i = 0; i < 25; ++i) nested = "[" + nested + ", 1]";
  CHECK(check_json(nested, twice) == "the check by the schema needs too many steps");
  CHECK(test::thread_seconds() - begin < 2.0 * test::slowdown());
}

TEST_CASE("schemas that refer to themselves end") {
  const std::string loop = R"({"definitions": {"a": {"$ref": "#/definitions/a"}}, "$ref": "#/definitions/a"})";
  CHECK(check_json_schema(loop) == "/definitions/a: it refers to itself without a value between");
  const std::string doubling =
      R"({"definitions": {"a": {"anyOf": [{"$ref": "#/definitions/a"}, {"$ref": "#/definitions/a"}]}}, "$ref": "#/definitions/a"})";
  CHECK(check_json_schema(doubling) == "/definitions/a: it refers to itself without a value between");
  CHECK_FALSE(check_json(std::string(100'000, '['), "{}").empty());
}

TEST_CASE("a schema that stands next to alternatives holds, too") {
  const std::string schema = R"({"properties": {"mail": {"type": "string"}, "phone": {"type": "string"}, "n": {}},
      "anyOf": [{"required": ["mail"]}, {"required": ["phone"]}], "allOf": [{"required": ["n"]}]})";
  CHECK(check_json(R"({"mail": "x"})", schema) == "the value: the key 'n' is missing");
  CHECK(check_json(R"({"mail": "x", "n": 1})", schema).empty());
  CHECK(check_json(R"({"n": 1})", schema) == "the value: the key 'mail' is missing (and no other alternative fits)");
}

TEST_CASE("keywords of the drafts 7 and 2020-12") {
  struct Case {
    const char* schema;
    const char* text;
    const char* wrong;
  };
  const Case cases[] = {
      {R"({"$defs": {"n": {"type": "integer"}}, "items": {"$ref": "#/$defs/n"}})", "[true]",
       R"(/0: expected "integer", found boolean)"},
      {R"({"$ref": "#/$defs/n", "minimum": 3, "$defs": {"n": {"type": "integer"}}})", "2",
       "the value: 2 is less than 3"},
      {R"({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/n", "minimum": 3,
           "definitions": {"n": {"type": "integer"}}})",
       "2", ""},
      {R"({"properties": {"left": {"anyOf": [{"type": "null"}, {"maximum": 3}]}, "right": {"$ref":
           "#/properties/left/anyOf/1"}, "c": {"$ref": "#/definitions/a~1b%20c"}},
           "definitions": {"a/b c": {"type": "integer"}}})",
       R"({"right": 4})", "/right: 4 is more than 3"},
      {R"({"properties": {"a": {"$ref": "#"}}, "additionalProperties": false})", R"({"a": {"b": 1}})",
       "/a/b: is not allowed"},
      {R"({"$id": "https://example.com/root", "$ref": "part#n",
           "$defs": {"part": {"$id": "part", "$defs": {"x": {"$anchor": "n", "type": "integer"}}}}})",
       "null", R"(the value: expected "integer", found null)"},
      {R"({"oneOf": [{"minimum": 2}, {"maximum": 5}]})", "3",
       "the value: fits 2 alternatives of 'oneOf', expected one"},
      {R"({"oneOf": [{"minimum": 2}, {"maximum": 5}]})", "1", ""},
      {R"({"not": {"type": "null"}})", "null", "the value: fits a schema of 'not'"},
      {R"({"exclusiveMaximum": 3})", "3", "the value: 3 is not less than 3"},
      {R"({"maximum": 9007199254740992})", "9007199254740993",
       "the value: 9007199254740993 is more than 9007199254740992"},
      {R"({"multipleOf": 0.01})", "4.35", ""},
      {R"({"multipleOf": 0.01})", "4.351", "the value: 4.351 is no multiple of 0.01"},
      {R"({"multipleOf": 7})", "18446744073709551615", "the value: 18446744073709551615 is no multiple of 7"},
      {R"({"format": "date"})", "\"2023-02-29\"", "the value: is no text of the format 'date'"},
      {R"({"format": "colour"})", "\"x\"", ""},
      {R"({"prefixItems": [{"type": "integer"}], "items": false})", "[1, 2]", "/1: is not allowed"},
      {R"({"items": [{"type": "integer"}], "additionalItems": {"type": "null"}})", "[1, 2]",
       R"(/1: expected "null", found number)"},
      {R"({"uniqueItems": true})", R"([{"a": 1, "b": 2}, 3, {"b": 2.0, "a": 1}])",
       "/2: is there twice, expected different items"},
      {R"({"contains": {"const": 1}, "maxContains": 1})", "[1, 1]",
       "the value: has 2 items that fit 'contains', at most 1 are expected"},
      {R"({"minProperties": 1})", "{}", "the value: has 0 members, at least 1 are expected"},
      {R"({"propertyNames": {"maxLength": 1}})", R"({"ab": 1})",
       "/ab: has 2 characters, at most 1 are expected (as a name)"},
      {R"({"dependentRequired": {"a": ["b"]}})", R"({"a": 1})", "the value: the key 'b' is missing, which 'a' needs"},
      {R"({"if": {"properties": {"a": {"const": 1}}, "required": ["a"]}, "then": {"required": ["b"]}})", R"({"a": 1})",
       "the value: the key 'b' is missing"},
      {R"({"type": "string", "nullable": true})", "null", ""},
      {R"({"pattern": "^[\\u4e00-\\u9fff]+$"})", "\"\u4e2d\"", ""},
      {R"({"pattern": "^\\ud83d\\ude00$"})", "\"\xf0\x9f\x98\x80\"", ""},
      {R"({"pattern": "^a$"})", R"("a\n")", "the value: does not match '^a$'"},
  };
  for (const Case& one : cases) {
    INFO(one.schema << " on " << one.text);
    CHECK(check_json_schema(one.schema).empty());
    CHECK(check_json(one.text, one.schema) == one.wrong);
  }
}

TEST_CASE("patterns have what ECMAScript has") {
  struct Case {
    const char* pattern;
    std::vector<const char*> in, out;
  };
  const Case cases[] = {
      {"^[\\\\u{1F600}-\\\\u{1F64F}]+$", {"\xf0\x9f\x98\x80"}, {"u", "\xf0\x9f\x9a\x80"}},
      {"^\\\\p{Letter}+$", {"a\xc3\xa9"}, {"1", "-"}},
      {"^\\\\p{gc=Lu}\\\\P{General_Category=Number}$", {"Ab"}, {"A1", "ab"}},
      {"^(\\\\p{Extended_Pictographic}|\\\\p{Emoji_Component})+$", {"\xf0\x9f\x98\x80"}, {"a"}},
      {"^[\\\\w-.]+@[a-\\\\d]$", {"a.b-@-", "a@1"}, {"a@b", "@1"}},
      {"^[\\\\]-\\\\w]$", {"]", "-", "x"}, {".", "^"}},
  };
  for (const Case& one : cases) {
    const std::string schema = std::string(R"({"type": "string", "pattern": ")") + one.pattern + "\"}";
    INFO(schema);
    CHECK(check_json_schema(schema).empty());
    for (const char* text : one.in) CHECK(check_json("\"" + std::string(text) + "\"", schema).empty());
    for (const char* text : one.out) CHECK_FALSE(check_json("\"" + std::string(text) + "\"", schema).empty());
  }
  CHECK_FALSE(check_json_schema(R"({"pattern": "\\p{Lx}"})").empty());
}

TEST_CASE("formats are checked") {
  struct Case {
    const char* format;
    std::vector<const char*> in, out;
  };
  const Case cases[] = {
      {"date", {"2024-02-29", "0000-01-01"}, {"0000-02-30", "2023-02-29"}},
      {"duration",
       {"P3D", "PT5M", "P1Y2M3DT4H5M6S", "P2W", "-PT1.5S", "PT1H0,5S"},
       {"P", "PT", "P1YT", "P1W2D", "P.5D", "PT1.5H2M"}},
      {"hostname", {"a", "example.com", "xn--p1ai.xn--p1ai"}, {"", "-a", "a-.b", "a..b", "a_b", "a.b."}},
      {"uri-reference", {"", "/a?b#c", "a/b", "#x", "https://a/"}, {"a b", "1:2", "\\\\"}},
      {"iri", {"https://\xc3\xa9/\xc3\xa9"}, {"\xc3\xa9", "a b"}},
      {"idn-email", {"\xc3\xa9@\xc3\xa9.de"}, {"\xc3\xa9"}},
      {"uri-template", {"/a/{b}/{?c,d*}", ""}, {"/a/{b", "{b!}", "a b"}},
      {"json-pointer", {"", "/a~1b/0"}, {"a", "/~2"}},
      {"relative-json-pointer", {"0#", "12/a"}, {"01", "/a", "-1"}},
      {"regex", {"^a+$", "(?<n>\\\\p{L})"}, {"(", "a**", "[b-a]"}},
      {"uuid4", {"f81d4fae-7dec-4d1d-a765-00a0c91e6bf6"}, {"f81d4fae-7dec-1d1d-a765-00a0c91e6bf6"}},
      {"ipvanyaddress", {"10.0.0.1", "::1"}, {"10.0.0", "x"}},
      {"base64", {"", "aGk=", "aGVs"}, {"a", "aGk", "aG=k"}},
      {"base64url", {"", "a-_", "aGk="}, {"a+b"}},
      {"e164", {"+15555555555"}, {"15555555555", "+0123456789"}},
  };
  for (const Case& one : cases) {
    const std::string schema = std::string(R"({"type": "string", "format": ")") + one.format + "\"}";
    for (const char* text : one.in) {
      INFO(one.format << ": " << text);
      CHECK(check_json("\"" + std::string(text) + "\"", schema).empty());
    }
    for (const char* text : one.out) {
      INFO(one.format << ": " << text);
      CHECK_FALSE(check_json("\"" + std::string(text) + "\"", schema).empty());
    }
  }
}

TEST_CASE("a mistake names its place and what is supported") {
  CHECK(check_json_schema(R"({"properties": {"a": {"$ref": "http://example.com/x.json#/b"}}})") ==
        "/properties/a/$ref: references to other documents are not supported, found 'http://example.com/x.json#/b'; "
        "expected a place in this schema, such as '#/$defs/name'");
  CHECK(check_json_schema(R"({"items": {"unevaluatedProperties": false}})") ==
        "/items/unevaluatedProperties: this keyword is not supported");
  const Schema odd(R"({"minimun": 1, "x-note": 2})");
  REQUIRE(odd.mistakes().size() == 1);
  CHECK(odd.mistakes()[0].found == "minimun");
  CHECK(odd.mistakes(UnknownKeywords::ignored).empty());
}

}  // namespace
}  // namespace baton
