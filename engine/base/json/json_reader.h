// SPDX-License-Identifier: Apache-2.0
// The one reader of JSON text (RFC 8259) in the project. It builds nlohmann::json within limits of nesting, number of
// values and memory, so that a small hostile file costs no more than a small file. For .cpp files only.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace baton {

/// What a text may ask for. The largest published tokenizer.json has about 2 million values, nested 8 deep.
struct JsonLimits {
  std::size_t max_depth = 64;                      // lists and objects inside each other
  std::size_t max_values = 8'000'000;              // values of all kinds, members of objects and elements of lists
  std::size_t max_bytes = std::size_t{512} << 20;  // memory of the parsed values, estimated
  std::size_t max_token = std::size_t{32} << 20;   // bytes of one string or number, which are held several times
  bool unique_keys = false;                        // refuse an object with two equal keys; else the last one counts
};

/// A text is not JSON, or exceeds a limit. what() names the place, what was expected and what was found.
class JsonError : public std::runtime_error {
 public:
  enum class Kind { syntax, number, limit, repeated_key };

  JsonError(Kind what_kind, std::size_t where, const std::string& message, std::string name = {})
      : std::runtime_error(message), kind(what_kind), byte(where), key(std::move(name)) {}

  Kind kind;
  std::size_t byte;  // offset in the text
  std::string key;   // that is repeated, or the beginning of a long one
};

/// Owns parsed values. They are freed leaf by leaf, since the destructor of nlohmann::json allocates memory and would
/// end the process if there is none.
class JsonDocument {  // NOLINTBEGIN(bugprone-exception-escape): the values that it frees last hold no others
 public:
  JsonDocument() = default;
  JsonDocument(JsonDocument&& other) noexcept { swap(other); }
  JsonDocument& operator=(JsonDocument&& other) noexcept {
    swap(other);
    return *this;
  }
  ~JsonDocument();

  const nlohmann::json& operator*() const { return root_; }
  const nlohmann::json* operator->() const { return &root_; }
  /// The values may be changed, within the limits of nesting.
  nlohmann::json& root() { return root_; }

 private:
  void swap(JsonDocument& other) noexcept { root_.swap(other.root_); }

  nlohmann::json root_;
};  // NOLINTEND(bugprone-exception-escape)

/// Throws JsonError.
JsonDocument read_json(std::string_view text, const JsonLimits& limits = {});

// A value of JSON as text.

/// On one line. Bytes that are not UTF-8 become U+FFFD. `Json`: nlohmann::json or ordered_json.
template <typename Json>
std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace baton
