// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "engine/base/json/json_parts.h"

namespace value_end_test {

using namespace baton;

TEST_CASE("a value of JSON ends where its own quotes and brackets close") {
  const auto value = [](std::string_view text) { return text.substr(0, value_end(text).value_or(0)); };
  CHECK(value(R"({"a": [1, {}]} and more)") == R"({"a": [1, {}]})");
  CHECK(value(R"({"a": "}"}})") == R"({"a": "}"})");
  CHECK(value(R"({"a": "say \"}\" twice"}})") == R"({"a": "say \"}\" twice"})");
  CHECK(value(R"({"a": "\\"}, {"b": "\\\""}])") == R"({"a": "\\"})");
  CHECK(value(R"("a\"b", 1)") == R"("a\"b")");
  CHECK(value("-1.50]") == "-1.50");
  CHECK(value("true, false") == "true");
  CHECK(value("7") == "7");
  CHECK(value_end(R"([1, "a\"b", 2])", 4) == std::size_t{10});

  for (const char* cut : {"", "{", "[[]", R"({"a": "}})", R"({"a": "b\")", R"("a\)"}) {
    INFO(cut);
    CHECK_FALSE(value_end(cut));
  }
}

}  // namespace value_end_test
