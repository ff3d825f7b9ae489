// SPDX-License-Identifier: Apache-2.0
#include "engine/text/value_expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"
#include "engine/text/jinja/json_value.h"
#include "engine/text/jinja/parser.h"
#include "engine/text/jinja/renderer.h"

namespace baton {
namespace {

using jinja::Expression;
using jinja::ExpressionKind;
using jinja::ExpressionPtr;
using jinja::Value;
using Json = nlohmann::json;

constexpr std::size_t kMaxSourceBytes = 4096;
constexpr std::string_view kOpen = "{{ ", kClose = " }}";

/// The place in the expression, which stands behind `kOpen`.
std::size_t offset_of(const jinja::Place& place, std::string_view source) {
  std::size_t at = 0;
  for (int line = 1; line < place.line; ++line) at = std::min(source.find('\n', at), source.size() - 1) + 1;
  at += static_cast<std::size_t>(place.column - 1);
  if (place.line == 1) at -= std::min(at, kOpen.size());
  return std::min(at, source.size());
}

ExpressionError without_origin(const jinja::PlacedError& error, std::string_view source) {
  const std::size_t at = offset_of(error.place, source);
  std::string reason = error.reason;
  if (const std::string close = "'}}'"; at == source.size() && reason.ends_with(close))
    reason.replace(reason.size() - close.size(), close.size(), "its end");  // nobody wrote that
  return ExpressionError(reason, at);
}

Value value_of(const std::string& name, const NamedValue& value, jinja::Budget& budget) {
  switch (value.kind) {
    case NamedValue::Kind::text:
      budget.spend_bytes(value.text.size());
      return Value(utf8::repaired(value.text));
    case NamedValue::Kind::json:
      try {
        const JsonDocument json = read_json(value.text);
        return jinja::value_of_json(*json, budget);
      } catch (const JsonError& error) {
        throw jinja::Fault(fmt::format("'{}' is not JSON: {}", name, error.what()));
      }
    case NamedValue::Kind::integer:
      return Value(value.integer);
    case NamedValue::Kind::undefined:
      break;
  }
  return Value::undefined(fmt::format("'{}' has no value", name));
}

}  // namespace

struct ValueExpression::Parsed {
  std::string source;
  std::string origin;  // origin in errors, which say their place themselves
  ExpressionPtr expression;
  std::vector<Name> names;

  /// The name that `at` reads a member of, with the members down to `at`; nothing for other expressions.
  std::optional<Name> chain(const Expression& at) const {
    if (at.kind == ExpressionKind::name) return Name{at.text, {}, false, offset_of(at.place, source)};
    const bool member = at.kind == ExpressionKind::member;
    const bool element = at.kind == ExpressionKind::subscript && at.items[1]->kind == ExpressionKind::literal;
    std::optional<Name> name = member || element ? chain(*at.items[0]) : std::nullopt;
    if (!name) return std::nullopt;
    if (member) {
      name->members.push_back(at.text);
    } else if (const Value& key = at.items[1]->literal; key.is_string()) {
      name->members.push_back(key.text());
    } else if (const std::int64_t* index = key.get<std::int64_t>()) {
      name->numbered = name->numbered || name->members.empty();
      name->members.push_back(fmt::to_string(*index));
    } else {
      return std::nullopt;
    }
    return name;
  }

  /// `called`: a method, which is no member; `tested`: what need not be there.
  void find_names(const Expression& at, bool called, bool tested) {
    if (std::optional<Name> name = chain(at)) {
      if (tested)
        name->members.clear();
      else if (called && at.kind == ExpressionKind::member)
        name->members.pop_back();
      names.push_back(std::move(*name));
      return;
    }
    const bool asks = at.kind == ExpressionKind::test && (at.text == "defined" || at.text == "undefined");
    const bool replaces = at.kind == ExpressionKind::filter && (at.text == "default" || at.text == "d");
    for (std::size_t i = 0; i < at.items.size(); ++i) {
      if (at.items[i])
        find_names(*at.items[i], at.kind == ExpressionKind::call && i == 0, i == 0 && (asks || replaces));
    }
    for (const auto& [name, value] : at.named) find_names(*value, false, false);
  }
};

ValueExpression::ValueExpression(std::string_view source) {
  if (source.size() > kMaxSourceBytes)
    throw ExpressionError(fmt::format("it has {} bytes; expected at most {}", source.size(), kMaxSourceBytes), 0);
  auto parsed = std::make_unique<Parsed>();
  parsed->source = source;
  try {
    parsed->expression = jinja::parse_expression(fmt::format("{}{}{}", kOpen, source, kClose), parsed->origin);
  } catch (const jinja::PlacedError& error) {
    throw without_origin(error, source);
  }
  parsed->find_names(*parsed->expression, false, false);
  parsed_ = std::move(parsed);
}

ValueExpression::~ValueExpression() = default;
ValueExpression::ValueExpression(ValueExpression&&) noexcept = default;
ValueExpression& ValueExpression::operator=(ValueExpression&&) noexcept = default;

const std::vector<ValueExpression::Name>& ValueExpression::names() const { return parsed_->names; }
const std::string& ValueExpression::source() const { return parsed_->source; }

bool ValueExpression::holds(const std::function<NamedValue(const std::string& name)>& value_of_name) const {
  jinja::Budget budget;
  std::size_t at = 0;  // place of the name that is looked up
  try {
    std::vector<std::pair<std::string, Value>> variables;
    std::set<std::string> known;
    for (const Name& name : parsed_->names) {
      at = name.byte;
      if (known.insert(name.name).second)
        variables.emplace_back(name.name, value_of(name.name, value_of_name(name.name), budget));
    }
    return jinja::Renderer(parsed_->origin, {}).holds(*parsed_->expression, variables);
  } catch (const jinja::PlacedError& error) {
    throw without_origin(error, parsed_->source);
  } catch (const jinja::Fault& fault) {
    throw ExpressionError(fault.what(), at);
  }
}

}  // namespace baton
