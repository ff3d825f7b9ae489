// SPDX-License-Identifier: Apache-2.0
// Checked values out of JSON objects. Every error names the file, the key, what was found and what was expected.
// For .cpp files of the engine only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "engine/base/errors.h"

namespace baton {

using Json = nlohmann::json;

/// Throws ModelError with line and column when the text is not JSON.
Json parse_json(std::string_view text, const std::string& origin);

/// A text as JSON writes it; what is not UTF-8 is replaced.
std::string quoted(const std::string& text);

/// A value as it may appear in an error message: one line, shortened.
std::string describe(const Json& value);

/// An object under check. A key whose value is null counts as absent, as it does in Transformers. Both must outlive it.
class JsonFields {
 public:
  /// Throws ModelError when `object` is not one. `prefix` is put before keys in errors: "rope_scaling.".
  JsonFields(const Json& object, const std::string& origin, std::string prefix = "");

  /// The value, or nullptr when absent or null.
  const Json* find(const std::string& key) const;
  bool is_null(const std::string& key) const;  // present and null

  std::int32_t integer(const std::string& key, std::int32_t low, std::int32_t high) const;
  std::int32_t integer_or(const std::string& key, std::int32_t fallback, std::int32_t low, std::int32_t high) const;
  double number(const std::string& key, double low, double high) const;
  double number_or(const std::string& key, double fallback, double low, double high) const;
  bool flag_or(const std::string& key, bool fallback) const;
  std::string text_or(const std::string& key, const std::string& fallback) const;
  /// "eos_token_id": an integer, a list of them, or nothing.
  std::vector<std::int32_t> integers(const std::string& key, std::int32_t low, std::int32_t high) const;

  /// Throws ModelError: origin: "key" is <its value>, <expectation>.
  [[noreturn]] void fail(const std::string& key, std::string_view expectation) const;

 private:
  std::int32_t checked_integer(const Json& value, const std::string& key, std::int32_t low, std::int32_t high) const;

  const Json* object_;
  const std::string* origin_;
  std::string prefix_;
};

}  // namespace baton
