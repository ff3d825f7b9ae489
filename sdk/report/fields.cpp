// SPDX-License-Identifier: Apache-2.0
#include "sdk/report/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/html.h"

namespace baton::cli {
namespace {

constexpr JsonLimits kRecord = {.max_depth = 16};       // a record nests 6 deep
constexpr std::uint64_t kMaxCount = 1'000'000'000'000;  // sums of all counts of a record fit 64 bits
constexpr double kMaxNumber = 1e15;

/// For a message: short, whatever it is.
std::string described(const nlohmann::json* value) {
  if (value == nullptr) return "nothing";
  if (value->is_object()) return "an object";
  if (value->is_array()) return "a list";
  if (value->is_string()) {
    const auto& text = value->get_ref<const std::string&>();
    const std::string_view start = cut(text, 40);
    return fmt::format("the text '{}{}'", start, start.size() < text.size() ? "..." : "");
  }
  return value->dump();
}

/// Inside a file name.
bool is_safe_id(std::string_view id) {
  constexpr std::size_t kMaxIdBytes = 200;
  const auto in_id = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !id.empty() && id.size() <= kMaxIdBytes && std::all_of(id.begin(), id.end(), in_id);
}

}  // namespace

JsonDocument RecordFields::parse(std::string_view bytes, const std::string& where) {
  JsonDocument json;
  try {
    json = read_json(bytes, kRecord);
  } catch (const JsonError& error) {
    if (error.kind == JsonError::Kind::number)
      throw Failure(kInvalidFile, fmt::format("{}: expected JSON, found a number that is too large", where));
    if (error.kind != JsonError::Kind::syntax) throw Failure(kInvalidFile, fmt::format("{}: {}", where, error.what()));
    const bool ended = error.byte > bytes.size();
    throw Failure(kInvalidFile, fmt::format("{}: expected a JSON object, found {}", where,
                                            ended ? std::string("the end of the text within it")
                                                  : fmt::format("something else at byte {}", error.byte)));
  }
  if (!json->is_object())
    throw Failure(kInvalidFile, fmt::format("{}: expected a JSON object, found {}", where, described(&*json)));
  return json;
}

RecordFields::RecordFields(const Json& object, std::string where, std::string path)
    : object_(&object), where_(std::move(where)), path_(std::move(path)) {}

std::vector<std::string> RecordFields::names(std::string_view bytes, const std::string& object) {
  std::vector<std::string> names;
  bool inside = false;
  const auto look = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 1) inside = value == object;
    if (event == Json::parse_event_t::key && depth == 2 && inside) names.push_back(value.get<std::string>());
    return event == Json::parse_event_t::key || depth == 0;  // nothing else is kept
  };
  [[maybe_unused]] const Json nothing = Json::parse(bytes, look, false);
  return names;
}

void RecordFields::fail(const std::string& name, const std::string& expected) const {
  const auto found = object_->find(name);
  throw Failure(kInvalidFile, fmt::format("{}: {}{}: expected {}, found {}", where_, path_, name, expected,
                                          described(found == object_->end() ? nullptr : &*found)));
}

const RecordFields::Json* RecordFields::find(const char* name) const {
  const auto found = object_->find(name);
  return found == object_->end() ? nullptr : &*found;
}

std::string RecordFields::text(const char* name, std::optional<std::string> otherwise) const {
  const Json* value = find(name);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_string()) fail(name, "a text");
  return value->get<std::string>();
}

std::size_t RecordFields::index_in(const char* name, std::span<const std::string_view> values) const {
  const Json* value = find(name);
  if (value != nullptr && value->is_string()) {
    const auto found = std::find(values.begin(), values.end(), value->get_ref<const std::string&>());
    if (found != values.end()) return static_cast<std::size_t>(found - values.begin());
  }
  fail(name, fmt::format("one of {}", fmt::join(values, ", ")));
}

std::string RecordFields::id(const char* name) const {
  const Json* value = find(name);
  const std::string id = value != nullptr && value->is_string() ? value->get<std::string>() : "";
  if (!is_safe_id(id)) fail(name, "an id of a-z, 0-9 and _");
  return id;
}

std::string RecordFields::turn_id(const char* name) const {
  std::string id = text(name, "");
  const std::size_t number = id.find('#');
  const bool numbered = number != std::string::npos;
  const bool round = !numbered || (number + 1 < id.size() && id.size() - number <= 8 &&
                                   id.find_first_not_of("0123456789", number + 1) == std::string::npos);
  if (!id.empty() && !(is_safe_id(std::string_view(id).substr(0, number)) && round))
    fail(name, "the id of a turn: a-z, 0-9 and _, then perhaps # and a number");
  return id;
}

std::int64_t RecordFields::count(const char* name, std::optional<std::int64_t> otherwise) const {
  const Json* value = find(name);
  if (value == nullptr && otherwise) return *otherwise;
  const bool whole = value != nullptr && (value->is_number_unsigned() ? value->get<std::uint64_t>() <= kMaxCount
                                                                      : value->is_number_integer() && *value == 0);
  if (!whole) fail(name, "a whole number from 0 to 10^12");
  return value->get<std::int64_t>();
}

std::uint64_t RecordFields::unsigned_number(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr || !value->is_number_unsigned()) fail(name, "a whole number from 0 to 2^64 - 1");
  return value->get<std::uint64_t>();
}

double RecordFields::number_up_to(const char* name, double most, const char* expected,
                                  std::optional<double> otherwise) const {
  const Json* value = find(name);
  if (value == nullptr && otherwise) return *otherwise;
  const double number = value != nullptr && value->is_number() ? value->get<double>() : NAN;
  if (!(number >= 0 && number <= most)) fail(name, expected);
  return number;
}

double RecordFields::number(const char* name, std::optional<double> otherwise) const {
  return number_up_to(name, kMaxNumber, "a number from 0 to 10^15", otherwise);
}

double RecordFields::share(const char* name, std::optional<double> otherwise) const {
  return std::min(1.0, number_up_to(name, 1 + 1e-9, "a number from 0 to 1", otherwise));
}

bool RecordFields::truth(const char* name, std::optional<bool> otherwise) const {
  const Json* value = find(name);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_boolean()) fail(name, "true or false");
  return value->get<bool>();
}

RecordFields RecordFields::child(const Json& value, const std::string& name) const {
  return {value, where_, path_ + name + "."};
}

RecordFields RecordFields::object(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr || !value->is_object()) fail(name, "an object");
  return child(*value, name);
}

bool RecordFields::is_null(const char* name) const {
  const Json* value = find(name);
  return value == nullptr || value->is_null();
}

std::optional<RecordFields> RecordFields::object_if_there(const char* name) const {
  if (is_null(name)) return std::nullopt;
  return object(name);
}

std::vector<RecordFields> RecordFields::list(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr || !value->is_array()) fail(name, "a list");
  std::vector<RecordFields> items;
  for (std::size_t i = 0; i < value->size(); ++i) {
    const Json& item = (*value)[i];
    if (!item.is_object()) {
      throw Failure(kInvalidFile, fmt::format("{}: {}{}[{}]: expected an object, found {}", where_, path_, name, i,
                                              described(&item)));
    }
    items.push_back(child(item, fmt::format("{}[{}]", name, i)));
  }
  return items;
}

std::vector<std::string> RecordFields::texts_of(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr || !value->is_array()) fail(name, "a list");
  std::vector<std::string> all;
  for (const Json& item : *value) {
    if (!item.is_string()) fail(name, "a list of texts");
    all.push_back(item.get<std::string>());
  }
  return all;
}

std::vector<std::pair<std::string, std::string>> RecordFields::texts(const char* name) const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [key, value] : object(name).object_->items()) {
    if (!value.is_string()) {
      throw Failure(kInvalidFile, fmt::format("{}: {}{}.{}: expected a text, found {}", where_, path_, name,
                                              cut(key, 40), described(&value)));
    }
    all.emplace_back(key, value.get<std::string>());
  }
  return all;
}

std::vector<std::pair<std::string, double>> RecordFields::shares(const char* name) const {
  std::vector<std::pair<std::string, double>> all;
  for (const auto& [key, value] : object(name).object_->items()) {
    const double number = value.is_number() ? value.get<double>() : -1.0;
    if (!(number >= 0.0 && number <= 1.0)) {
      throw Failure(kInvalidFile, fmt::format("{}: {}{}.{}: expected a number from 0 to 1, found {}", where_, path_,
                                              name, cut(key, 40), described(&value)));
    }
    all.emplace_back(key, number);
  }
  return all;
}

}  // namespace baton::cli
