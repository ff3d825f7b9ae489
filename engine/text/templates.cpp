// SPDX-License-Identifier: Apache-2.0
// Texts in Jinja: chat templates, and expressions over the values of a run.
#include "engine/text/templates.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "engine/base/errors.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/system/file.h"
#include "engine/base/utf8.h"
#include "engine/text/jinja/library.h"
#include "engine/text/jinja/parser.h"
#include "engine/text/jinja/renderer.h"
#include "engine/text/jinja/value.h"

namespace baton::jinja {

/// `Json`: nlohmann::json, or nlohmann::ordered_json, whose objects keep the order of their members. Spends what it
/// copies; throws Fault beyond the budget, and if lists or objects are nested too deeply.
template <class Json>
Value value_of_json(const Json& json, Budget& budget) {
  budget.spend(1);
  switch (json.type()) {
    case Json::value_t::string:
      budget.spend_bytes(json.template get_ref<const std::string&>().size());
      return Value(json.template get_ref<const std::string&>());
    case Json::value_t::boolean:
      return Value(json.template get<bool>());
    case Json::value_t::number_unsigned:
      if (json.template get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return Value(json.template get<double>());
      [[fallthrough]];
    case Json::value_t::number_integer:
      return Value(json.template get<std::int64_t>());
    case Json::value_t::number_float:
      return Value(json.template get<double>());
    case Json::value_t::array: {
      Values items;
      for (const Json& item : json) items.push_back(value_of_json(item, budget));
      return Value::sequence(SequenceKind::list, std::move(items));
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [name, member] : json.items()) dict.set(name, value_of_json(member, budget), budget);
      return Value::dict(std::move(dict));
    }
    default:
      return Value();
  }
}

}  // namespace baton::jinja

namespace baton {
namespace {

// Official templates have up to 20 KB.
constexpr std::size_t kMaxTemplateBytes = 1u << 20;

using jinja::Value;

/// An object of JSON, its members in the order of the text.
Value object_of(const std::string& json, jinja::Budget& budget) {
  read_json(json);  // what is read below is within the limits
  const auto object = nlohmann::ordered_json::parse(json);
  if (!object.is_object()) throw ModelError("a tool, or the arguments of a call, is not a JSON object");
  return jinja::value_of_json(object, budget);
}

/// The form that Transformers passes to templates, for tools and for calls.
Value function_of(Value function, const std::string* id, jinja::Budget& budget) {
  jinja::Dict dict;
  dict.set("type", "function", budget);
  if (id != nullptr) dict.set("id", utf8::repaired(*id), budget);
  dict.set("function", std::move(function), budget);
  return Value::dict(std::move(dict));
}

Value message_of(const ChatMessage& message, jinja::Budget& budget) {
  jinja::Dict dict;
  dict.set("role", utf8::repaired(message.role), budget);
  dict.set("content",
           message.values.empty() ? Value(utf8::repaired(message.content))
                                  : Value(ChatText{message.content, message.values}, false),
           budget);
  if (!message.name.empty()) dict.set("name", utf8::repaired(message.name), budget);
  if (!message.call_id.empty()) dict.set("tool_call_id", utf8::repaired(message.call_id), budget);
  if (!message.thinking.empty()) {  // families read it by different names
    dict.set("reasoning_content", utf8::repaired(message.thinking), budget);
    dict.set("thinking", utf8::repaired(message.thinking), budget);
  }
  jinja::Values calls;
  for (const ChatCall& call : message.calls) {
    jinja::Dict function;
    function.set("name", utf8::repaired(call.name), budget);
    const bool as_text = call.as_text;
    function.set("arguments", as_text ? Value(utf8::repaired(call.arguments)) : object_of(call.arguments, budget),
                 budget);
    calls.push_back(function_of(Value::dict(std::move(function)), &call.id, budget));
  }
  if (!calls.empty()) dict.set("tool_calls", Value::sequence(jinja::SequenceKind::list, std::move(calls)), budget);
  return Value::dict(std::move(dict));
}

bool joins(const ChatMessage& a, const ChatMessage& b) {
  return a.role == b.role && a.role != "tool" && a.calls.empty() && b.calls.empty();
}

bool has_repeats(const std::vector<ChatMessage>& messages) {
  return std::adjacent_find(messages.begin(), messages.end(), joins) != messages.end();
}

/// Puts the text of `second` behind that of `first`, with a blank line between them.
void append(ChatMessage& first, const ChatMessage& second) {
  if (!first.content.empty() && !second.content.empty()) first.content += "\n\n";
  const std::size_t at = first.content.size();
  first.content += second.content;
  for (ValueSpan span : second.values) {
    span.begin += at;
    span.end += at;
    first.values.push_back(span);
  }
}

/// ChatOptions::merges_roles.
std::vector<ChatMessage> merged(const std::vector<ChatMessage>& messages, const RoleRules& rules) {
  std::vector<ChatMessage> out;
  std::optional<ChatMessage> system;  // texts for the next user message
  const auto add = [&](ChatMessage message) {
    const bool is_one = message.role == "system" ? rules.no_second_system : rules.no_repeats;
    if (is_one && !out.empty() && joins(out.back(), message)) {
      append(out.back(), message);
    } else {
      out.push_back(std::move(message));
    }
  };
  for (ChatMessage message : messages) {
    const bool is_late = rules.no_later_system && !out.empty() && out.back().role != "system";
    if (message.role == "system" && (rules.no_system || is_late)) {
      message.role = "user";
      if (system) {
        append(*system, message);
      } else {
        system = std::move(message);
      }
      continue;
    }
    if (system && message.role == "user") {
      append(*system, message);
      message = *std::exchange(system, std::nullopt);
    }
    add(std::move(message));
  }
  if (system) add(*std::move(system));
  return out;
}

class JinjaTemplate : public ChatTemplate {
 public:
  JinjaTemplate(std::string_view source, std::string origin)
      : origin_(std::move(origin)), source_(source), block_(jinja::parse_template(source, origin_)) {}

  std::string source() const override { return source_; }

  std::string render(const std::vector<ChatMessage>& messages, const ChatOptions& options,
                     const std::stop_token& stop) const override {
    return render_merged(messages, options, stop).text;
  }

  std::optional<ChatText> render_values(const std::vector<ChatMessage>& messages, const ChatOptions& options,
                                        const std::stop_token& stop) const override {
    return render_merged(messages, options, stop);
  }

  RoleRules role_rules(const ChatOptions& options, const std::stop_token& stop) const override {
    std::call_once(asked_, [&] { rules_ = found_rules(options, stop); });
    return rules_;
  }

 private:
  ChatText render_merged(const std::vector<ChatMessage>& messages, const ChatOptions& options,
                         const std::stop_token& stop) const {
    const bool may_merge =
        options.merges_roles &&
        (has_repeats(messages) || std::any_of(messages.begin(), messages.end(),
                                              [](const ChatMessage& message) { return message.role == "system"; }));
    const RoleRules rules = may_merge ? role_rules(options, stop) : RoleRules();
    return rules == RoleRules() ? render_text(messages, options, stop)
                                : render_text(merged(messages, rules), options, stop);
  }

  RoleRules found_rules(ChatOptions options, const std::stop_token& stop) const {
    options.tools.clear();
    options.add_generation_prompt = true;
    /// Whether messages of these roles (s, u, a) are all shown.
    const auto takes = [&](std::string_view roles) {
      std::vector<ChatMessage> messages;
      for (const char role : roles) {
        messages.push_back({role == 's'   ? "system"
                            : role == 'u' ? "user"
                                          : "assistant",
                            fmt::format("probe {} of the roles", messages.size())});
      }
      try {
        const std::string text = render_text(messages, options, stop).text;
        return std::all_of(messages.begin(), messages.end(),
                           [&](const ChatMessage& message) { return text.find(message.content) != std::string::npos; });
      } catch (const ModelError&) {
        return false;
      }
    };
    RoleRules rules;
    if (!takes("u")) return rules;  // which it refuses for another reason
    rules.no_system = !takes("su");
    const std::string begin = rules.no_system ? "" : "s";
    const bool answers = takes(begin + "uau");
    rules.no_second_system = !rules.no_system && !takes("ssu");
    rules.no_later_system = !rules.no_system && answers && !takes("suasu");
    rules.no_repeats = !takes("uu") || (answers && !takes(begin + "uaau"));
    return rules;
  }

  ChatText render_text(const std::vector<ChatMessage>& messages, const ChatOptions& options,
                       const std::stop_token& stop) const {
    jinja::Budget budget(stop);
    jinja::Values list, tools;
    try {
      for (const ChatMessage& message : messages) list.push_back(message_of(message, budget));
      for (const std::string& tool : options.tools)
        tools.push_back(function_of(object_of(tool, budget), nullptr, budget));
    } catch (const jinja::Fault& fault) {
      throw ModelError(fmt::format("{}: {}", origin_, fault.what()));
    } catch (const JsonError& error) {
      throw ModelError(fmt::format("{}: a tool, or the arguments of a call: {}", origin_, error.what()));
    }
    // The variables that Transformers passes; tokens that a model does not have are undefined.
    std::vector<std::pair<std::string, Value>> variables = {
        {"messages", Value::sequence(jinja::SequenceKind::list, std::move(list))},
        {"tools", tools.empty() ? Value() : Value::sequence(jinja::SequenceKind::list, std::move(tools))},
        {"documents", Value()},
        {"add_generation_prompt", Value(options.add_generation_prompt)},
    };
    if (!options.bos_token.empty()) variables.emplace_back("bos_token", utf8::repaired(options.bos_token));
    if (!options.eos_token.empty()) variables.emplace_back("eos_token", utf8::repaired(options.eos_token));
    for (const auto& [name, value] : options.variables) variables.emplace_back(name, value_of(name, value, budget));
    const std::int64_t now = options.local_seconds ? *options.local_seconds : local_seconds_now();
    return jinja::Renderer(origin_, stop, now).render(block_, variables);
  }

  Value value_of(const std::string& name, const std::string& json, jinja::Budget& budget) const {
    try {
      read_json(json);
      return jinja::value_of_json(nlohmann::ordered_json::parse(json), budget);
    } catch (const JsonError& error) {
      throw ModelError(fmt::format("{}: the variable '{}': {}", origin_, name, error.what()));
    }
  }

  std::string origin_, source_;
  jinja::Block block_;
  mutable std::once_flag asked_;
  mutable RoleRules rules_;
};

}  // namespace

std::int64_t local_seconds_now() {
  const std::tm now = local_time(std::time(nullptr));
  const std::chrono::sys_days day = std::chrono::year(now.tm_year + 1900) / (now.tm_mon + 1) / now.tm_mday;
  return day.time_since_epoch().count() * std::int64_t{86'400} + now.tm_hour * 3600 + now.tm_min * 60 + now.tm_sec;
}

std::string local_time_text(std::int64_t local_seconds) {
  jinja::Budget budget;
  return jinja::date_text("%Y-%m-%dT%H:%M:%S", local_seconds, budget);
}

std::optional<std::int64_t> local_seconds_of(std::string_view text) {
  static constexpr std::string_view kForm = "0000-00-00T00:00:00";
  if (text.size() != kForm.size()) return std::nullopt;
  std::array<unsigned, 6> fields{};  // year to second
  std::size_t field = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (digit != (kForm[i] == '0') || (!digit && text[i] != kForm[i])) return std::nullopt;
    if (digit) {
      fields[field] = fields[field] * 10 + static_cast<unsigned>(text[i] - '0');
    } else {
      ++field;
    }
  }
  const std::chrono::year_month_day date(std::chrono::year(static_cast<int>(fields[0])), std::chrono::month(fields[1]),
                                         std::chrono::day(fields[2]));
  if (!date.ok() || fields[0] == 0 || fields[3] > 23 || fields[4] > 59 || fields[5] > 59) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return days * 86'400 + fields[3] * 3600 + fields[4] * 60 + fields[5];
}

std::shared_ptr<const ChatTemplate> ChatTemplate::parse(std::string_view source, const std::string& origin) {
  if (source.size() > kMaxTemplateBytes)
    throw ModelError(fmt::format("{}: the chat template has {} bytes, expected at most {}", origin, source.size(),
                                 kMaxTemplateBytes));
  if (!utf8::is_valid(source)) throw ModelError(origin + ": the chat template is not valid UTF-8");
  return std::make_shared<JinjaTemplate>(source, origin);
}

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
