// SPDX-License-Identifier: Apache-2.0
#include "engine/base/json/json_reader.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/folders.h"
#include "tests/support/process_memory.h"
#include "tests/support/thread_time.h"

namespace json_reader_test {

using namespace baton;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using Json = nlohmann::json;

namespace {

/// What the reader says of the text, and of which kind; "" when it accepts it.
std::string problem(const std::string& text, const JsonLimits& limits = {},
                    JsonError::Kind kind = JsonError::Kind::limit) {
  try {
    read_json(text, limits);
  } catch (const JsonError& error) {
    CHECK(error.kind == kind);
    return error.what();
  }
  return "";
}

std::string repeated(std::size_t count, const std::string& text) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("JSON: the values are those of the library's own parser") {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(test::test_folder())) {
    if (entry.path().extension() != ".json" || entry.file_size() > 2'000'000) continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const Json expected = Json::parse(text.str(), nullptr, false);
    if (expected.is_discarded()) continue;
    INFO(entry.path());
    CHECK(*read_json(text.str()) == expected);
    ++files;
  }
  CHECK(files > 20);
  CHECK(*read_json("3") == 3);
  CHECK(*read_json(" [1, -2, 2.5, true, null, \"a\\u00e9\", {}, []] ") ==
        Json::parse("[1,-2,2.5,true,null,\"a\\u00e9\",{},[]]"));
  CHECK(*read_json(R"({"a": [1, {"b": 2}], "a": {"c": 3}})") == Json::parse(R"({"a": {"c": 3}})"));  // the last counts
}

TEST_CASE("JSON: errors have their place, what was expected and what was found") {
  CHECK_THAT(problem("{\"a\": }", {}, JsonError::Kind::syntax), Contains("not JSON: parse error at line 1, column 7"));
  CHECK_THAT(problem("", {}, JsonError::Kind::syntax), Contains("unexpected end of input"));
  CHECK_THAT(problem("1 2", {}, JsonError::Kind::syntax), Contains("not JSON"));
  CHECK_THAT(problem("[1e999]", {}, JsonError::Kind::number), Contains("number overflow"));
  CHECK_THAT(problem("\xFF", {}, JsonError::Kind::syntax), Contains("not JSON"));
  CHECK_THAT(problem("[[[1]]]", {.max_depth = 2}),
             Equals("byte 3: expected lists and objects nested at most 2 deep, found more"));
  CHECK(problem("[[1], [2]]", {.max_depth = 2}).empty());
  CHECK_THAT(problem("[1, 2, 3]", {.max_values = 3}), Equals("byte 9: expected at most 3 values, found more"));
  CHECK(problem("[1, 2]", {.max_values = 3}).empty());
  CHECK_THAT(problem("[\"" + std::string(1000, 'x') + "\"]", {.max_bytes = 1000}),
             Contains("expected values that fit into 1000 bytes of memory, found more"));
  CHECK_THAT(problem("{\"" + std::string(1000, 'x') + "\": 1}", {.max_bytes = 1000}), Contains("1000 bytes"));
  CHECK_THAT(problem(R"({"a": {"b": 1, "b": 2}})", {.unique_keys = true}, JsonError::Kind::repeated_key),
             Contains("expected each key once, found \"b\" twice"));
}

TEST_CASE("JSON: a hostile text costs no more time and memory than its limits say") {
  const double begin = test::thread_seconds();
  const std::string deep(90'000'000, '[');
  const std::int64_t before = test::peak_resident();
  CHECK_THAT(problem(deep), Contains("nested at most 64 deep"));
  CHECK(test::peak_resident() - before < 32 << 20);
  CHECK_THAT(problem(repeated(1'000'000, "{\"a\":")), Contains("nested at most 64 deep"));
  CHECK_THAT(problem("[" + repeated(9'000'000, "0,") + "0]"), Contains("at most 8000000 values"));
  CHECK_THAT(problem("[" + repeated(6'000'000, "{},") + "{}]", {.max_bytes = 64 << 20}), Contains("fit into"));
  CHECK(problem("{\"a\":{}" + repeated(80'000, ",\"b\":{}") + "}").empty());
  for (const std::string start : {"{\"a\": \"", "[9", "{\"", "[\"\\u00e9"}) {
    const std::string long_token = start + std::string(34'000'000, '9');
    CHECK_THAT(problem(long_token), Contains("expected strings and numbers of at most 33554432 bytes, found a longer"));
    const std::string shorter = start + std::string(5'000'000, '9');
    const std::string message = problem(shorter, {}, start == "[9" ? JsonError::Kind::number : JsonError::Kind::syntax);
    CHECK_THAT(message, Contains("not JSON"));
    CHECK(message.size() < 1000);
  }
  const std::string key(5'000'000, 'k');
  CHECK(
      problem("{\"" + key + "\": 1, \"" + key + "\": 2}", {.unique_keys = true}, JsonError::Kind::repeated_key).size() <
      1000);
  if (!test::kFreedIsKept) CHECK(test::peak_resident() - before < 512 << 20);
  CHECK(test::thread_seconds() - begin < 5.0 * test::slowdown());
}

}  // namespace json_reader_test
