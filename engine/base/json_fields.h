// SPDX-License-Identifier: Apache-2.0
// Checked reading of JSON objects. Every error names the file, the key, the value found and the value expected.
// For .cpp files of the engine only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/errors.h"
#include "engine/base/json/json_reader.h"

namespace baton {

using Json = nlohmann::json;

/// Reads a text within limits. Throws ModelError, with the origin and the place, where read_json throws JsonError.
JsonDocument parse_json(std::string_view text, const std::string& origin, const JsonLimits& limits = {});

/// Returns a text as a JSON string; invalid UTF-8 is replaced by U+FFFD.
std::string quoted(const std::string& text);

/// Returns a value for an error message: one line, shortened.
std::string describe(const Json& value);

/// Reads one object. A key whose value is null counts as absent, as in Transformers. The object and the origin must
/// outlive the reader.
class JsonFields {
 public:
  /// Throws ModelError when `object` is not a JSON object. Errors show `prefix` before keys, for example
  /// "rope_scaling.".
  JsonFields(const Json& object, const std::string& origin, std::string prefix = "");

  /// Returns the value, or nullptr when the key is absent or null.
  const Json* find(const std::string& key) const;
  bool is_null(const std::string& key) const;  // true when the key is present and null

  std::int32_t integer(const std::string& key, std::int32_t low, std::int32_t high) const;
  std::int32_t integer_or(const std::string& key, std::int32_t fallback, std::int32_t low, std::int32_t high) const;
  double number(const std::string& key, double low, double high) const;
  double number_or(const std::string& key, double fallback, double low, double high) const;
  bool flag_or(const std::string& key, bool fallback) const;
  std::string text_or(const std::string& key, const std::string& fallback) const;
  /// Throws ModelError unless "schema" is the version that the caller reads.
  void expect_schema(std::int32_t known) const;
  /// Reads a text that must not be missing or empty.
  std::string filled_text(const std::string& key) const;
  /// Reads a value such as "eos_token_id": an integer, a list of integers, or nothing.
  std::vector<std::int32_t> integers(const std::string& key, std::int32_t low, std::int32_t high) const;

  /// Throws ModelError with the message: origin: "key" is <its value>, <expectation>.
  [[noreturn]] void fail(const std::string& key, std::string_view expectation) const;

 private:
  std::int32_t checked_integer(const Json& value, const std::string& key, std::int32_t low, std::int32_t high) const;

  const Json* object_;
  const std::string* origin_;
  std::string prefix_;
};

}  // namespace baton
