// SPDX-License-Identifier: Apache-2.0
// JSON of a record that anyone may have written: every field is checked before it is used, and an error is one line:
// file, field, what was expected, what was found.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <baton/states.h>

#include "engine/base/json/json_reader.h"

namespace baton::cli {

/// An object. Every getter throws Failure with kInvalidFile for a field of another kind, and for a missing one unless
/// it is told what to take instead.
class RecordFields {
 public:
  using Json = nlohmann::json;

  /// Parses bytes that must be one JSON object. `where` is the file, or the file and a line.
  static JsonDocument parse(std::string_view bytes, const std::string& where);

  /// The names in the object `object` of the record that `bytes` hold, in the order of the file.
  static std::vector<std::string> names(std::string_view bytes, const std::string& object);

  /// `where`: the file; `path`: the object in it, "" or "agents[2].". Both outlive the fields' object.
  RecordFields(const Json& object, std::string where, std::string path);

  std::string text(const char* name, std::optional<std::string> otherwise = {}) const;
  /// One of the names of an enumeration (baton/states.h).
  template <typename Enum>
  Enum one_of(const char* name) const {
    return static_cast<Enum>(index_in(name, kNamesOf<Enum>));
  }
  /// The same; none where the field is missing or empty.
  template <typename Enum>
  std::optional<Enum> one_of_if_there(const char* name) const {
    if (text(name, "").empty()) return std::nullopt;
    return one_of<Enum>(name);
  }
  /// An agent's id: safe inside a file name.
  std::string id(const char* name) const;
  /// A turn's: an id, in later rounds "#" and the number of the round behind it. Empty where it is missing or empty.
  std::string turn_id(const char* name) const;
  /// 0 to 10^12.
  std::int64_t count(const char* name, std::optional<std::int64_t> otherwise = {}) const;
  std::uint64_t unsigned_number(const char* name) const;
  /// Finite, 0 to 10^15.
  double number(const char* name, std::optional<double> otherwise = {}) const;
  double share(const char* name, std::optional<double> otherwise = {}) const;  // 0 to 1
  bool truth(const char* name, std::optional<bool> otherwise = {}) const;
  RecordFields object(const char* name) const;
  /// Null when it is missing or null.
  std::optional<RecordFields> object_if_there(const char* name) const;
  std::vector<RecordFields> list(const char* name) const;     // of objects
  std::vector<std::string> texts_of(const char* name) const;  // a list of texts
  /// Names and values of an object of texts.
  std::vector<std::pair<std::string, std::string>> texts(const char* name) const;

  /// The same of numbers from 0 to 1.
  std::vector<std::pair<std::string, double>> shares(const char* name) const;

  bool is_null(const char* name) const;  // or missing

  [[noreturn]] void fail(const std::string& name, const std::string& expected) const;

 private:
  std::size_t index_in(const char* name, std::span<const std::string_view> values) const;
  const Json* find(const char* name) const;
  RecordFields child(const Json& value, const std::string& name) const;
  double number_up_to(const char* name, double most, const char* expected, std::optional<double> otherwise) const;

  const Json* object_;
  std::string where_, path_;
};

}  // namespace baton::cli
