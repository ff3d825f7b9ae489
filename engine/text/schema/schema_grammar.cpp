// SPDX-License-Identifier: Apache-2.0
// JSON Schemas to grammars. What the grammar of a schema holds is always valid by check_json. If a schema allows
// several spellings of one value, only one of them is in the grammar.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "engine/base/hash.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"
#include "engine/text/constrain/expression.h"
#include "engine/text/constrain/grammar.h"
#include "engine/text/constrain/regex_reader.h"
#include "engine/text/schema/schema.h"

namespace baton {
namespace {

using namespace constrain;
using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kMaxName = 256;  // each character is a level of nesting
constexpr std::size_t kMaxSchemas = 4096;
constexpr std::size_t kMaxMerged = 1'000'000;  // values of schemas that are merged, all merges together
constexpr std::int32_t kMaxOpen = 256;    // schemas that are read within one another; each takes up to 1 KiB of stack
constexpr std::size_t kMaxValues = 1024;  // values in one enum
constexpr std::uint64_t kMaxSize = 100'000;  // that a length of a text or list may have as a bound

ExpressionPtr blank() { return maybe(text(" ")); }
ExpressionPtr separator() { return sequence({text(","), blank()}); }
ExpressionPtr json_of(const OrderedJson& value) { return text(value.dump()); }
ExpressionPtr any_character() {
  static const ExpressionPtr& any = *new ExpressionPtr(in_json_string(characters(CodePointSet().complement())));
  return any;
}

std::size_t values_in(const OrderedJson& value) {
  std::size_t count = 1;
  for (const OrderedJson& part : value) count += value.is_structured() ? values_in(part) : 0;
  return count;
}

bool is_of_type(const OrderedJson& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  return type == value.type_name();
}

std::string nested_too_deep() {
  return fmt::format("schemas are nested in more than {} levels, which cannot be enforced", kMaxSchemaDepth);
}

[[noreturn]] void fail_at(const std::string& pointer, const std::string& message) {
  throw ConstraintError(fmt::format("{}: {}", pointer.empty() ? "the schema" : pointer, message));
}

[[noreturn]] void fail_too_large(const std::string& pointer, std::size_t limit, const char* of_what) {
  fail_at(pointer, fmt::format("the schema is too large to be enforced: expected at most {} {}", limit, of_what));
}

/// The bounds of what one schema may cost to compile.
class SchemaBudget {
 public:
  /// A schema that is being read, within the one before. Throws ConstraintError beyond the bound.
  class Level {
   public:
    Level(SchemaBudget& budget, const std::string& pointer) : budget_(budget) {
      if (++budget_.open_ > kMaxOpen) {
        --budget_.open_;
        fail_too_large(pointer, std::size_t{kMaxOpen}, "schemas within one another, with those referred to");
      }
    }
    ~Level() { --budget_.open_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    SchemaBudget& budget_;
  };

  void count_schema(const std::string& pointer) {
    if (++schemas_ > kMaxSchemas) fail_too_large(pointer, kMaxSchemas, "schemas, each counted where it is referred to");
  }

  /// Returns merged_schema(). Each merge copies both schemas.
  OrderedJson merge(const OrderedJson& a, const OrderedJson& b, const std::string& pointer) {
    merged_ += values_in(a) + values_in(b);
    if (merged_ > kMaxMerged) fail_too_large(pointer, kMaxMerged, "values in schemas that hold together");
    return merged_schema(a, b, pointer);
  }

 private:
  std::int32_t open_ = 0;  // each schema within another takes up to 1 KiB of stack
  std::size_t schemas_ = 0;
  std::size_t merged_ = 0;  // values
};

OrderedJson without(const OrderedJson& schema, const char* keyword) {
  OrderedJson out = OrderedJson::object();
  for (const auto& [name, part] : schema.items()) {
    if (name != keyword && !is_annotation(name)) out[name] = part;
  }
  return out;
}

/// Without 'type', those that the keywords speak of.
std::vector<std::string> types_of(const OrderedJson& schema) {
  std::vector<std::string> out;
  if (schema.contains("type")) {
    const OrderedJson& type = schema["type"];
    for (const OrderedJson& one : type.is_array() ? type : OrderedJson::array({type}))
      out.push_back(one.get<std::string>());
    if (std::find(out.begin(), out.end(), "number") != out.end()) std::erase(out, "integer");
    return out;
  }
  const auto any = [&](auto... keywords) { return (schema.contains(keywords) || ...); };
  if (any("properties", "required", "additionalProperties")) out.emplace_back("object");
  if (any("items", "minItems", "maxItems")) out.emplace_back("array");
  if (any("minLength", "maxLength", "pattern")) out.emplace_back("string");
  if (any("minimum", "maximum", "exclusiveMinimum")) out.emplace_back("number");
  if (out.empty()) out = {"object", "array", "string", "number", "boolean", "null"};
  return out;
}

ExpressionPtr listed(const OrderedJson& schema, const std::string& pointer) {
  for (const auto& [keyword, part] : schema.items()) {
    if (keyword != "const" && keyword != "enum" && keyword != "type" && !is_annotation(keyword))
      fail_at(pointer, fmt::format("'{}' next to 'enum' or 'const' cannot be enforced", keyword));
  }
  const OrderedJson values = schema.contains("enum") ? schema["enum"] : OrderedJson::array({schema["const"]});
  if (values.size() > kMaxValues)
    fail_at(pointer, fmt::format("expected at most {} values to choose from, found {}", kMaxValues, values.size()));
  const std::vector<std::string> types = types_of(schema);
  std::vector<ExpressionPtr> ways;
  for (const OrderedJson& one : values) {
    const bool fits = std::any_of(types.begin(), types.end(), [&](const auto& type) { return is_of_type(one, type); });
    if (fits && (!schema.contains("const") || one == schema["const"])) ways.push_back(json_of(one));
  }
  return choice(std::move(ways));
}

NumberBounds bounds_of(const OrderedJson& schema) {
  const auto bound = [&](const char* keyword) {
    return schema.contains(keyword) ? std::optional(schema[keyword].get<double>()) : std::nullopt;
  };
  return {bound("minimum"), bound("maximum"), bound("exclusiveMinimum")};
}

/// At least and at most how many; throws if a number is larger than what can be written out.
std::pair<std::int32_t, std::int32_t> sizes_of(const OrderedJson& schema, const char* least, const char* most,
                                               const std::string& pointer) {
  const auto size = [&](const char* keyword, std::int32_t otherwise) {
    if (!schema.contains(keyword)) return otherwise;
    const auto found = schema[keyword].get<std::uint64_t>();
    if (found > kMaxSize)
      fail_at(pointer,
              fmt::format("'{}' is too large to be enforced: expected at most {}, found {}", keyword, kMaxSize, found));
    return static_cast<std::int32_t>(found);
  };
  return {size(least, 0), size(most, kUnbounded)};
}

ExpressionPtr string_of(const OrderedJson& schema, const std::string& pointer) {
  const auto [low, high] = sizes_of(schema, "minLength", "maxLength", pointer);
  const ExpressionPtr quote = text("\"");
  if (!schema.contains("pattern")) {
    if (high != kUnbounded && high < low) return choice({});
    return sequence({quote, repeat(any_character(), low, high), quote});
  }
  if (low != 0 || high != kUnbounded)
    fail_at(pointer,
            "'pattern' next to 'minLength' or 'maxLength' cannot be enforced; write the length into the pattern");
  try {
    return sequence({quote, in_json_string(search_expression(schema["pattern"].get<std::string>())), quote});
  } catch (const ConstraintError& error) {
    fail_at(pointer + "/pattern", error.what());
  }
}

ExpressionPtr key_except(const std::vector<std::u32string>& names) {
  const ExpressionPtr tail = sequence({repeat(any_character(), 0, kUnbounded), text("\"")});
  if (names.empty()) return tail;
  std::map<char32_t, std::vector<std::u32string>> by_first;
  bool ends = false;
  CodePointSet firsts;
  for (const std::u32string& name : names) {
    ends = ends || name.empty();
    if (name.empty()) continue;
    by_first[name[0]].push_back(name.substr(1));
    firsts.add({name[0], name[0]});
  }
  std::vector<ExpressionPtr> ways;
  if (!ends) ways.push_back(text("\""));
  // Control characters without a short escape are in no other key.
  ways.push_back(sequence({in_json_string(characters(firsts.complement())), tail}));
  for (const auto& [first, rest] : by_first)
    ways.push_back(sequence({in_json_string(characters({{first, first}})), key_except(rest)}));
  return choice(std::move(ways));
}

/// A key that is none of the names: the last of equal keys would count.
ExpressionPtr other_key(const std::vector<std::string>& names) {
  std::vector<std::u32string> rest;
  for (const std::string& name : names) {
    std::u32string& out = rest.emplace_back();
    for (std::size_t at = 0; at < name.size();) {
      const utf8::CodePoint c = utf8::at(name, at);
      out += c.value;
      at += c.bytes;
    }
  }
  return sequence({text("\""), key_except(rest)});
}

class SchemaCompiler {
 public:
  explicit SchemaCompiler(const OrderedJson& root) : root_(root) {}

  std::shared_ptr<const Grammar> read(const AroundJson& around) {
    add_rule(around ? "the text" : "the schema");
    ExpressionPtr body;  // reading it adds rules
    if (around)
      body = around(rule("the schema", 0, "", [&] { return value(root_, "", 0); }));
    else
      body = value(root_, "", 0);
    rules_[0].body = std::move(body);
    if (too_deep_ && !recursive_) fail_at(*too_deep_, nested_too_deep());
    // Each call adds at most the depth of its rule. Without recursion no rule calls itself.
    const std::int32_t depth =
        recursive_ ? (kMaxSchemaDepth - depths_[0]) / std::max(*std::max_element(depths_.begin() + 1, depths_.end()), 1)
                   : static_cast<std::int32_t>(rules_.size());
    return std::make_shared<const Grammar>(rules_, std::max(depth, 0), Grammar::Count::all);
  }

 private:
  /// The current rule has a schema at this depth, or calls a rule there that is `below` levels deep. What stands next
  /// to `allOf` or `anyOf` is counted one level deeper than the check counts it.
  void deepen(std::int32_t depth, const std::string& pointer, std::int32_t below = 0) {
    depths_[current_] = std::max(depths_[current_], depth);
    heights_[current_] = std::max(heights_[current_], depth + below);
    if (heights_[current_] > kMaxSchemaDepth && !too_deep_) too_deep_ = pointer;
  }

  /// `depth`: of the schema within its rule.
  ExpressionPtr value(const OrderedJson& schema, const std::string& pointer, std::int32_t depth) {
    const SchemaBudget::Level level(budget_, pointer);
    budget_.count_schema(pointer);
    if (depth > kMaxSchemaDepth) fail_at(pointer, nested_too_deep());
    deepen(depth, pointer);
    if (schema.is_boolean()) return schema.get<bool>() ? any_value() : choice({});
    if (schema.contains("$ref")) return definition(schema["$ref"].get<std::string>(), depth + 1, pointer);
    for (const char* keyword : {"if", "patternProperties"}) {
      if (schema.contains(keyword)) fail_at(pointer, fmt::format("'{}' cannot be enforced", keyword));
    }
    if (schema.contains("allOf")) return all_of(schema, pointer, depth);
    if (schema.contains("anyOf")) return any_of(schema, pointer, depth);
    if (schema.contains("const") || schema.contains("enum")) return listed(schema, pointer);
    std::vector<ExpressionPtr> ways;
    for (const std::string& type : types_of(schema)) ways.push_back(of_type(type, schema, pointer, depth));
    return ways.size() == 1 ? ways[0] : choice(std::move(ways));
  }

  /// What the schema refers to; `depth` becomes its depth, if that is greater.
  const OrderedJson& resolved(const OrderedJson& schema, const std::string& pointer, std::int32_t own,
                              std::int32_t& depth) {
    const OrderedJson* at = &schema;
    for (; at->is_object() && at->contains("$ref"); depth = std::max(depth, ++own)) {
      budget_.count_schema(pointer);
      at = &root_["definitions"][definition_name((*at)["$ref"].get<std::string>())];
    }
    return *at;
  }

  ExpressionPtr all_of(const OrderedJson& schema, const std::string& pointer, std::int32_t depth) {
    OrderedJson whole = without(schema, "allOf");
    std::int32_t deepest = depth + 1;
    for (const OrderedJson& part : schema["allOf"])
      whole = budget_.merge(whole, resolved(part, pointer, depth + 1, deepest), pointer);
    return value(whole, pointer, deepest);
  }

  ExpressionPtr any_of(const OrderedJson& schema, const std::string& pointer, std::int32_t depth) {
    const OrderedJson others = without(schema, "anyOf");
    std::vector<ExpressionPtr> ways;
    for (const OrderedJson& way : schema["anyOf"]) {
      std::int32_t below = depth + 1;
      if (others.empty()) {
        ways.push_back(value(way, pointer, below));
      } else {
        const OrderedJson whole = budget_.merge(others, resolved(way, pointer, depth + 1, below), pointer);
        ways.push_back(value(whole, pointer, below));
      }
    }
    return choice(std::move(ways));
  }

  ExpressionPtr of_type(const std::string& type, const OrderedJson& schema, const std::string& pointer,
                        std::int32_t depth) {
    if (type == "null") return text("null");
    if (type == "boolean") return choice({text("true"), text("false")});
    if (type == "integer") return integers(bounds_of(schema));
    if (type == "number") return numbers(bounds_of(schema));
    if (type == "string") return string_of(schema, pointer);
    if (type == "array") return array(schema, pointer, depth);
    return object(schema, pointer, depth);
  }

  ExpressionPtr array(const OrderedJson& schema, const std::string& pointer, std::int32_t depth) {
    const auto [low, high] = sizes_of(schema, "minItems", "maxItems", pointer);
    const ExpressionPtr empty = text("]"), open = sequence({text("["), blank()});
    if (high == 0) return low > 0 ? choice({}) : sequence({open, empty});
    if (high != kUnbounded && high < low) return choice({});
    const OrderedJson any(true);
    const OrderedJson& items = schema.contains("items") ? schema["items"] : any;
    const ExpressionPtr item =
        rule("an item of " + pointer, depth + 1, pointer, [&] { return value(items, pointer + "/items", 0); });
    const std::int32_t more = high == kUnbounded ? kUnbounded : high - 1;
    const ExpressionPtr some = sequence({item, repeat(sequence({separator(), item}), std::max(low - 1, 0), more)});
    return sequence({open, low == 0 ? maybe(some) : some, empty});
  }

  struct Member {
    std::string name;
    const OrderedJson* schema = nullptr;
    bool needed = false;
  };

  /// The properties in their order, then what else is required, with the schema `any`.
  static std::vector<Member> members_of(const OrderedJson& properties, const OrderedJson& required,
                                        const OrderedJson& any) {
    std::vector<Member> members;
    std::unordered_map<std::string, std::size_t, SeededHash> places;
    for (const auto& [name, schema] : properties.items()) {
      places.emplace(name, members.size());
      members.push_back({name, &schema, false});
    }
    for (const OrderedJson& name : required) {
      const auto [found, added] = places.try_emplace(name.get<std::string>(), members.size());
      if (added) members.push_back({found->first, &any, false});
      members[found->second].needed = true;
    }
    return members;
  }

  /// Properties come in the order in which the schema has them. Others come last, and only if the schema speaks of
  /// them, or of no property at all.
  ExpressionPtr object(const OrderedJson& schema, const std::string& pointer, std::int32_t depth) {
    const OrderedJson properties = schema.value("properties", OrderedJson::object()),
                      required = schema.value("required", OrderedJson::array());
    const bool free = !schema.contains("properties") && !schema.contains("required");
    const OrderedJson others =
        schema.contains("additionalProperties") ? schema["additionalProperties"] : OrderedJson(free);
    const OrderedJson any = schema.contains("additionalProperties") ? others : OrderedJson(true);
    Members all;
    std::vector<std::string> names;
    for (const Member& member : members_of(properties, required, any)) {
      names.push_back(member.name);
      all.optional.push_back(!member.needed);
      const std::string at = pointer + "/properties/" + member.name;
      all.parts.push_back(sequence({json_of(member.name), text(":"), blank(), value(*member.schema, at, depth + 1)}));
    }
    all.between = separator();
    for (const std::string& name : names) {
      if (others != false && name.size() > kMaxName)
        fail_at(pointer, fmt::format("a name of more than {} bytes among others that may be added cannot be enforced",
                                     kMaxName));
    }
    if (others != false)
      all.more =
          sequence({other_key(names), text(":"), blank(), value(others, pointer + "/additionalProperties", depth + 1)});
    return sequence({text("{"), blank(), members(std::move(all)), text("}")});
  }

  /// A rule of its own, so that what is repeated is not written out again and again; called at `depth`.
  template <class Body>
  ExpressionPtr rule(const std::string& name, std::int32_t depth, const std::string& pointer, const Body& body) {
    const std::size_t index = add_rule(name), outer = std::exchange(current_, index);
    ExpressionPtr made = body();
    rules_[index].body = std::move(made);
    current_ = outer;
    deepen(depth, pointer, heights_[index]);
    return call(static_cast<std::int32_t>(index));
  }

  std::size_t add_rule(const std::string& name) {
    rules_.push_back({name, choice({})});
    depths_.push_back(0);
    heights_.push_back(0);
    return rules_.size() - 1;
  }

  ExpressionPtr definition(const std::string& reference, std::int32_t depth, const std::string& pointer) {
    const std::string name = definition_name(reference);
    if (const auto found = definitions_.find(name); found != definitions_.end()) {
      recursive_ = recursive_ || found->second.open;
      deepen(depth, pointer, heights_[static_cast<std::size_t>(found->second.rule)]);
      return call(found->second.rule);
    }
    definitions_[name] = {static_cast<std::int32_t>(rules_.size()), true};
    const ExpressionPtr out =
        rule(name, depth, pointer, [&] { return value(root_["definitions"][name], "/definitions/" + name, 0); });
    definitions_[name].open = false;
    return out;
  }

  ExpressionPtr any_value() {
    recursive_ = true;
    if (any_ >= 0) return call(any_);
    any_ = static_cast<std::int32_t>(rules_.size());
    return rule("any value", 0, "", [&] { return value(OrderedJson::object(), "", 0); });
  }

  struct Definition {
    std::int32_t rule = 0;
    bool open = false;  // it is being read
  };

  const OrderedJson& root_;
  std::vector<Rule> rules_;
  std::vector<std::int32_t> depths_;  // for each rule: how deep its schemas are nested, as the check counts
  std::map<std::string, Definition> definitions_;
  std::vector<std::int32_t> heights_;    // the same, with the rules that they call
  std::optional<std::string> too_deep_;  // the first schema whose rule is higher than allowed
  std::size_t current_ = 0;              // rule
  SchemaBudget budget_;
  std::int32_t any_ = -1;
  bool recursive_ = false;
};

}  // namespace

std::shared_ptr<const Grammar> schema_grammar(std::string_view schema) { return schema_grammar(schema, {}); }

std::shared_ptr<const Grammar> schema_grammar(std::string_view schema, const AroundJson& around) {
  return schema_grammar(Schema(schema), around);
}

std::shared_ptr<const Grammar> schema_grammar(const Schema& schema, const AroundJson& around) {
  OrderedJson root;
  try {
    root = schema.root_in_order();
  } catch (const JsonError& error) {
    throw ConstraintError(fmt::format("the schema: {}", error.what()));
  }
  return SchemaCompiler(root).read(around);
}

}  // namespace baton
