// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/answer_path.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "agents/json_check.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/json/value_end.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kDefinitions = "#/definitions/";
constexpr int kMaxReferences = 64;

std::optional<std::size_t> index_of(const std::string& member) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(member.data(), member.data() + member.size(), index);
  const bool whole = error == std::errc() && end == member.data() + member.size() && !member.empty();
  return whole && (member == "0" || member.front() != '0') ? std::optional(index) : std::nullopt;
}

/// Returns null for a member that does not exist.
const Json* member_of(const Json& value, const std::string& member) {
  if (value.is_object()) {
    const auto found = value.find(member);
    return found == value.end() ? nullptr : &*found;
  }
  const std::optional<std::size_t> index = value.is_array() ? index_of(member) : std::nullopt;
  return index && *index < value.size() ? &value[*index] : nullptr;
}

/// The schema of a member: null where the member may be anything, nothing where it is excluded. `schema` is valid.
/// `closed`: objects have no properties but those that it names, as they are decoded.
std::optional<const Json*> member_schema(const Json& schema, const std::string& member, bool closed) {
  for (const char* keyword : {"allOf", "anyOf", "if", "patternProperties"}) {
    if (schema.contains(keyword)) return nullptr;  // more than one schema says what may be there
  }
  const auto type = schema.find("type");
  const auto is = [&](const char* name, const char* implied) {
    if (type == schema.end()) return schema.contains(implied);
    return *type == name || (type->is_array() && std::find(type->begin(), type->end(), name) != type->end());
  };
  if (type == schema.end() && !schema.contains("properties") && !schema.contains("items")) return nullptr;
  if (is("array", "items") && index_of(member)) {
    const auto items = schema.find("items");
    return items == schema.end() ? nullptr : &*items;
  }
  if (!is("object", "properties")) return std::nullopt;
  const auto properties = schema.find("properties");
  if (properties == schema.end()) return nullptr;
  if (const auto found = properties->find(member); found != properties->end()) return &*found;
  const auto others = schema.find("additionalProperties");
  if (others != schema.end()) return *others == false ? std::nullopt : std::optional(&*others);
  return closed ? std::nullopt : std::optional<const Json*>(nullptr);
}

std::string expected_instead(const Json& schema) {
  std::vector<std::string> names;
  if (const auto properties = schema.find("properties"); properties != schema.end()) {
    for (const auto& [name, member] : properties->items()) names.push_back(name);
  }
  constexpr std::size_t kMaxShown = 8;
  if (names.empty() || names.size() > kMaxShown) return "";
  return fmt::format("; expected {}{}", names.size() > 1 ? "one of " : "", fmt::join(names, ", "));
}

constexpr std::string_view kBlanks = " \t\r\n";

/// Valid JSON has an end.
std::size_t end_of_value(std::string_view json, std::size_t at) { return value_end(json, at).value_or(json.size()); }

/// A member of an object or a list as it was written: numbers keep their digits. `json`: valid, with that member, and
/// without blanks around it.
std::string_view written_member(std::string_view json, const std::string& member) {
  const auto next = [&](std::size_t at) { return json.find_first_not_of(" \t\r\n,:", at); };
  const bool is_object = json.front() == '{';
  std::string_view found;
  std::size_t index = 0;
  for (std::size_t at = next(1); json[at] != '}' && json[at] != ']'; ++index) {
    std::size_t end = end_of_value(json, at);
    bool is_member = index_of(member) == index;
    if (is_object) {
      const std::string_view key = json.substr(at, end - at);
      is_member = key.find('\\') == std::string_view::npos ? key.substr(1, key.size() - 2) == member
                                                           : read_json(key)->get<std::string>() == member;
      at = next(end);
      end = end_of_value(json, at);
    }
    if (is_member) found = json.substr(at, end - at);  // of equal keys the last one counts
    at = next(end);
  }
  return found;
}

/// Valid JSON without the blanks between its parts.
std::string without_blanks(std::string_view json) {
  std::string out;
  for (std::size_t at = 0; at < json.size();) {
    const std::size_t end = json[at] == '"' ? end_of_value(json, at) : at + 1;
    if (kBlanks.find(json[at]) == std::string_view::npos) out += json.substr(at, end - at);
    at = end;
  }
  return out;
}

/// Returns a null value, which has no members, for a text that is not JSON.
JsonDocument parsed(const std::string& text) {
  try {
    return read_json(text);
  } catch (const JsonError&) {
    return {};
  }
}

}  // namespace

/// Null for an invalid schema, which the file's reader has reported.
const JsonDocument& AnswerChecker::schema_of(const AgentSpec& agent) {
  std::shared_ptr<const JsonDocument>& schema = schemas_[agent.id];
  if (schema == nullptr) {
    const std::string& text = agent.output.schema;
    schema = std::make_shared<const JsonDocument>(check_json_schema(text).empty() ? parsed(text) : JsonDocument());
  }
  return *schema;
}

void AnswerChecker::check(const Placeholder& placeholder, const std::string& owner, const SourceLocation& where,
                          Diagnostics& diagnostics) {
  if (!placeholder.has_members()) return;
  const std::string problem = problem_of(placeholder, *spec_.agent(placeholder.id));
  if (problem.empty()) return;
  diagnostics.error(
      where, "E0209",
      fmt::format("{}: '{}': agent '{}' {}", owner, placeholder_name(placeholder), placeholder.id, problem));
}

std::string AnswerChecker::problem_of(const Placeholder& placeholder, const AgentSpec& agent) {
  const std::vector<std::string>& path = placeholder.path;
  if (placeholder.kind == Placeholder::Kind::probabilities) {
    const std::vector<std::string>& texts = agent.output.texts;
    if (!agent.output.choose) return "has no 'output' with 'choose'";
    if (path.empty() || (path.size() == 1 && std::find(texts.begin(), texts.end(), path.front()) != texts.end()))
      return {};
    return fmt::format("has no choice '{}'; expected one of {}", fmt::join(path, "."), fmt::join(texts, ", "));
  }
  if (!agent.output.has_answer()) return "has no 'output' that says what its answer is";
  if (path.empty()) return {};
  if (agent.output.schema.empty()) return fmt::format("answers with a text, which has no '{}'", path.front());
  const JsonDocument& root = schema_of(agent);
  const Json* at = &*root;
  for (const std::string& member : path) {
    for (int i = 0; i < kMaxReferences && at->contains("$ref"); ++i)
      at = &(*root)["definitions"][(*at)["$ref"].get<std::string>().substr(kDefinitions.size())];
    if (!at->is_object()) return {};  // any value
    const auto next = member_schema(*at, member, agent.output.enforce);
    if (!next) return fmt::format("has a schema without '{}'{}", fmt::join(path, "."), expected_instead(*at));
    if (*next == nullptr) return {};
    at = *next;
  }
  return {};
}

std::map<std::string, std::string> answer_texts(const std::string& answer,
                                                const std::map<std::string, Placeholder>& names) {
  std::map<std::string, std::string> texts;
  std::optional<JsonDocument> root;
  for (const auto& [name, placeholder] : names) {
    if (placeholder.path.empty()) {
      texts.emplace(name, answer);
      continue;
    }
    if (!root) root = parsed(answer);
    const Json* at = &**root;
    std::string_view written = answer;
    written.remove_prefix(std::min(written.find_first_not_of(kBlanks), written.size()));
    for (const std::string& member : placeholder.path) {
      at = member_of(*at, member);
      if (at == nullptr) break;
      written = written_member(written, member);
    }
    if (at == nullptr) continue;
    texts.emplace(name, at->is_string() ? at->get<std::string>() : without_blanks(written));
  }
  return texts;
}

}  // namespace baton
