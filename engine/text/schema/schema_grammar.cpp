// SPDX-License-Identifier: Apache-2.0
// JSON Schemas to grammars. A value is described by the set of schemas that hold for it: alternatives make several sets
// of one, and what is left of each set is read as one description. What the grammar of a schema holds is valid by
// check_json, but for what it names as not enforced. If a schema allows several spellings of one value, only one of
// them is in the grammar.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"
#include "engine/text/constrain/expression.h"
#include "engine/text/constrain/grammar.h"
#include "engine/text/constrain/machine.h"
#include "engine/text/constrain/regex_reader.h"
#include "engine/text/schema/schema.h"
#include "engine/text/schema/schema_node.h"

namespace baton {
namespace {

using namespace constrain;
using Json = nlohmann::json;

constexpr std::size_t kMaxName = 256;        // each character is a level of nesting
constexpr std::size_t kMaxSchemas = 65'536;  // sets of schemas, each counted where it holds
constexpr std::size_t kMaxTogether = 4096;   // schemas that hold for one value
constexpr std::size_t kMaxValues = 1024;     // values in one enum
constexpr std::size_t kMaxPrefix = 256;      // each is a level of nesting
constexpr std::size_t kMaxWays = 256;        // alternatives of one value, all together
constexpr std::size_t kMaxDifferent = 8;     // values in a list without repetition: there are 2^8 sets of them
constexpr std::size_t kMaxRegions = 16;      // kinds of names that patterns tell apart
constexpr std::size_t kMaxNotes = 64;
constexpr std::size_t kCheckedBytes = std::size_t{1} << 20;  // that the effort of looking at listed values is that of
constexpr int kMaxCompared = 6;                              // schemas within one another, of alternatives
constexpr int kJsonDepth = 64;                               // as JsonLimits has it
constexpr std::int32_t kMaxIndentation = 32;                 // 8 levels of 4 columns
constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();

ExpressionPtr json_of(const std::string& value) { return text(Json(value).dump()); }
ExpressionPtr any_character() {
  static const ExpressionPtr& any = *new ExpressionPtr(in_json_string(characters(CodePointSet().complement())));
  return any;
}
bool is_nothing(const ExpressionPtr& expression) {
  return expression->kind == GrammarExpression::Kind::choice && expression->parts.empty();
}
ExpressionPtr quoted(ExpressionPtr inside) { return sequence({text("\""), std::move(inside), text("\"")}); }

[[noreturn]] void fail_at(const std::string& pointer, const std::string& message) {
  throw ConstraintError(fmt::format("{}: {}", pointer.empty() ? "the schema" : pointer, message));
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

/// How the parts of a value are written.
class ValueWriter {
 public:
  using Form = ValueNotation::Form;
  explicit ValueWriter(const ValueNotation& notation) : notation_(notation) {}

  /// Blanks between any two tokens of JSON, but not in front of the first and behind the last.
  void set_free_blanks(ExpressionPtr blanks) { free_blanks_ = std::move(blanks); }
  static ExpressionPtr line_and_indentation() {
    return sequence({maybe(choice({text("\n"), text("\r\n")})),
                     repeat(characters({{U' ', U' '}, {U'\t', U'\t'}}), 0, kMaxIndentation)});
  }

  bool is(Form form) const { return notation_.form == form; }
  /// Members stand between no braces.
  bool opens_no_object(bool outermost) const { return outermost && (is(Form::elements) || is(Form::keywords)); }
  /// Names of members stand as they are.
  bool has_plain_names(bool outermost) const { return is(Form::literals) || opens_no_object(outermost); }

  ExpressionPtr blank() const {
    return free_blanks_ != nullptr ? free_blanks_ : is(Form::literals) ? sequence({}) : maybe(text(" "));
  }
  /// What may stand between a value or a key and the sign behind it. In front of values there are blanks already.
  ExpressionPtr before_sign() const { return free_blanks_ != nullptr ? free_blanks_ : sequence({}); }
  ExpressionPtr item(ExpressionPtr value) const {
    return free_blanks_ == nullptr || is_nothing(value) ? value : sequence({std::move(value), free_blanks_});
  }
  ExpressionPtr separator() const { return sequence({text(","), blank()}); }
  ExpressionPtr between(bool outermost) const { return outermost && is(Form::elements) ? sequence({}) : separator(); }
  ExpressionPtr braced(ExpressionPtr inside, bool outermost) const {
    return opens_no_object(outermost) ? inside : sequence({text("{"), blank(), std::move(inside), text("}")});
  }

  ExpressionPtr key(const std::string& name, bool outermost) const {
    if (!has_plain_names(outermost)) return json_of(name);
    const bool plain = !name.empty() && name.find_first_of(" \t\r\n:=<>(){}[],\"'") == std::string::npos;
    if (!plain)
      throw ConstraintError(fmt::format("'{}' cannot stand as the name of an argument in the model's form", name));
    return text(name);
  }
  ExpressionPtr member(const ExpressionPtr& key, const ExpressionPtr& value, bool outermost) const {
    if (outermost && is(Form::elements))
      return sequence({text(notation_.key_open), key, text(notation_.key_close), value, text(notation_.value_close)});
    if (outermost && is(Form::keywords)) return sequence({key, text("="), value});
    return sequence({key, before_sign(), text(":"), blank(), value, before_sign()});
  }
  /// Names that stand as they are, but those that are known.
  static CharacterMachine plain_keys() {
    const CodePointSet first{{U'a', U'z'}, {U'A', U'Z'}, {U'_', U'_'}};
    CodePointSet rest = first;
    rest.add({U'0', U'9'});
    return CharacterMachine(sequence({characters(first), repeat(characters(rest), 0, kUnbounded)}));
  }

  /// `raw`: the value of an element.
  ExpressionPtr word(const Json& value, bool raw) const {
    const std::string json = value.dump();
    if (!raw && !is(Form::keywords)) return text(json);
    const std::string python = value.is_null() ? "None" : value.get<bool>() ? "True" : "False";
    return raw ? choice({text(json), text(python)}) : text(python);
  }
  ExpressionPtr quoted(ExpressionPtr inside, bool raw) const {
    const std::string quote = raw ? "" : is(Form::literals) ? notation_.quote : "\"";
    return sequence({text(quote), std::move(inside), text(quote)});
  }
  /// Texts stand as they are up to this; empty: up to a special token.
  std::optional<std::string> raw_end(bool raw) const {
    if (!raw && !is(Form::literals)) return std::nullopt;  // they do not
    std::string end = raw ? notation_.value_close : notation_.quote;
    end.erase(0, std::min(end.find_first_not_of(" \t\r\n"), end.size()));
    return end.substr(0, end.find(kSpecialMark));
  }

  /// A value that a schema lists.
  ExpressionPtr listed(const SchemaValue& value, bool raw) const {
    if (value.value.is_string() && raw_end(raw)) {
      const std::string plain = value.value.get<std::string>(), end = *raw_end(raw);
      if (!end.empty() && plain.find(end) != std::string::npos) return choice({});
      return quoted(text(plain), raw);
    }
    if (raw && (value.value.is_boolean() || value.value.is_null())) return word(value.value, true);
    if (is(Form::json) || is(Form::elements)) return text(value.text);
    return text(written(value.value));
  }

 private:
  std::string written(const Json& value) const {
    std::string out;
    if (value.is_object() || value.is_array()) {
      for (const auto& [key, one] : value.items()) {
        if (!out.empty()) out += is(Form::literals) ? "," : ", ";
        if (value.is_object()) out += is(Form::literals) ? key + ":" : Json(key).dump() + ": ";
        out += written(one);
      }
      return value.is_object() ? "{" + out + "}" : "[" + out + "]";
    }
    if (value.is_string() && is(Form::literals)) return notation_.quote + value.get<std::string>() + notation_.quote;
    if (is(Form::keywords) && (value.is_null() || value.is_boolean()))
      return value.is_null() ? "None" : value.get<bool>() ? "True" : "False";
    return value.dump();
  }

  ValueNotation notation_;
  ExpressionPtr free_blanks_;  // null: there are few blanks
};

using Link = SchemaNode::Link;

/// Schemas that hold for one value: what each says of it by itself, and the alternatives that are still open.
struct SchemaSet {
  enum class Part : std::uint8_t { own, any_of, one_of, condition, dependent, excluded };
  struct Atom {
    Link node;
    Part part;
    std::size_t index = 0;  // of the dependent
    auto operator<=>(const Atom&) const = default;
  };
  std::vector<Atom> atoms;
  bool never = false;

  void add(const Atom& atom) {
    if (std::find(atoms.begin(), atoms.end(), atom) == atoms.end()) atoms.push_back(atom);
  }

  void add(Link node) {
    if (node == nullptr) return;
    if (node->never) never = true;
    const Atom own{node, Part::own};
    if (std::find(atoms.begin(), atoms.end(), own) != atoms.end()) return;
    if (atoms.size() == kMaxTogether)
      fail_at(node->pointer, fmt::format("expected at most {} schemas that hold for one value", kMaxTogether));
    atoms.push_back(own);
    add(node->reference);
    for (Link part : node->all_of) add(part);
    if (!node->any_of.empty()) add({node, Part::any_of});
    if (!node->one_of.empty()) add({node, Part::one_of});
    if (node->condition != nullptr && (node->then != nullptr || node->otherwise != nullptr))
      add({node, Part::condition});
    for (std::size_t i = 0; i < node->dependents.size(); ++i) add({node, Part::dependent, i});
    if (node->excluded != nullptr) add({node, Part::excluded});
  }

  /// The first alternative that is open; null: there is none.
  const Atom* open() const {
    const auto found = std::find_if(atoms.begin(), atoms.end(), [](const Atom& one) {
      return one.part != Part::own && (one.part != Part::excluded || !lists(*one.node->excluded));
    });
    return found == atoms.end() ? nullptr : &*found;
  }

  SchemaSet without(const Atom& atom) const {
    SchemaSet out = *this;
    std::erase(out.atoms, atom);
    return out;
  }

  std::vector<Link> own() const {
    std::vector<Link> out;
    for (const Atom& one : atoms) {
      if (one.part == Part::own) out.push_back(one.node);
    }
    return out;
  }

  /// Values that 'not' excludes.
  std::vector<const SchemaValue*> excluded() const {
    std::vector<const SchemaValue*> out;
    for (const Atom& one : atoms) {
      if (one.part != Part::excluded) continue;
      const SchemaNode& node = *one.node->excluded;
      if (node.constant) out.push_back(&*node.constant);
      if (node.values) {
        for (const SchemaValue& value : *node.values) out.push_back(&value);
      }
    }
    return out;
  }

  const std::string& pointer() const {
    static const std::string& none = *new std::string();
    return atoms.empty() ? none : atoms.front().node->pointer;
  }

  /// True for a schema that does nothing but list values, or one value.
  static bool lists(const SchemaNode& node) {
    const auto has_type = [&](const SchemaValue& one) { return (types_of_value(one.value) & node.types) != 0; };
    const bool fits = node.types == 0 ||
                      (node.constant ? has_type(*node.constant)
                                     : node.values && std::all_of(node.values->begin(), node.values->end(), has_type));
    return fits && node.values.has_value() != node.constant.has_value() && node.reference == nullptr &&
           node.all_of.empty() && node.any_of.empty() && node.one_of.empty() && node.excluded == nullptr &&
           node.condition == nullptr && implied_types(node) == 0;
  }
};

using Part = SchemaSet::Part;

SchemaSet set_of(Link node) {
  SchemaSet out;
  out.add(node);
  return out;
}

/// What a set says of strings.
struct StringRules {
  std::int64_t low = 0, high = kUnbounded;
  std::map<std::string, Link> patterns;  // with a schema that has it
  std::set<std::string> formats;         // those that are enforced
  std::vector<std::string> excluded;

  explicit StringRules(const SchemaSet& set) {
    for (Link node : set.own()) {
      if (node->min_length)
        low = std::max(low, static_cast<std::int64_t>(std::min<std::uint64_t>(*node->min_length, kMaxCount + 1)));
      if (node->max_length && *node->max_length <= static_cast<std::uint64_t>(kMaxCount)) {
        const auto most = static_cast<std::int64_t>(*node->max_length);
        high = high == kUnbounded ? most : std::min(high, most);
      }
      if (node->pattern) patterns.emplace(node->pattern->text, node);
      const StringFormat* format = node->format.empty() ? nullptr : string_format(node->format);
      if (format != nullptr && format->regex != nullptr) formats.insert(node->format);
    }
    for (const SchemaValue* value : set.excluded()) {
      if (value->value.is_string()) excluded.push_back(value->value.get<std::string>());
    }
  }

  bool impossible() const { return low > kMaxCount || (high != kUnbounded && high < low); }
  std::string key() const {
    std::string out = fmt::format("{} {}", low, high);
    for (const auto& [pattern, node] : patterns) out += "\n/" + pattern;
    for (const std::string& format : formats) out += "\n:" + format;
    for (const std::string& value : excluded) out += "\n!" + value;
    return out;
  }
};

ExpressionPtr any_of_texts(const std::vector<std::string>& texts) {
  std::vector<ExpressionPtr> ways;
  for (const std::string& one : texts) ways.push_back(text(one));
  return choice(std::move(ways));
}

/// The texts of the rules but for their length. `wrong` is told of a pattern that cannot be enforced.
template <class Wrong>
CharacterMachine machine_of(const StringRules& rules, const Wrong& wrong) {
  CharacterMachine all(repeat(characters(CodePointSet().complement()), 0, kUnbounded));
  const auto combine = [&](const auto& make, const auto& say) {
    try {
      all = all.both(make());
    } catch (const ConstraintError& error) {
      say(error.what());
    }
  };
  for (const std::string& format : rules.formats)
    combine([&] { return CharacterMachine(regex_expression(string_format(format)->regex)); },
            [&](const char* why) { throw ConstraintError(why); });
  for (const auto& [pattern, node] : rules.patterns)
    combine([&, &pattern = pattern] { return CharacterMachine::of_pattern(pattern); },
            [&, node = node, &pattern = pattern](const char* why) {
              wrong(*node, why);
              combine([&] { return CharacterMachine(without_looks(search_expression(pattern))); }, [](const char*) {});
            });
  if (!rules.excluded.empty())
    combine([&] { return CharacterMachine(any_of_texts(rules.excluded)).complement(); },
            [&](const char* why) { throw ConstraintError(why); });
  return all;
}

struct SizeRules {
  std::int64_t low = 0, high = kUnbounded;

  void at_least(const std::optional<std::uint64_t>& bound) {
    if (bound) low = std::max(low, static_cast<std::int64_t>(std::min<std::uint64_t>(*bound, kMaxCount + 1)));
  }
  void at_most(const std::optional<std::uint64_t>& bound) {
    if (!bound || *bound > static_cast<std::uint64_t>(kMaxCount)) return;
    high = high == kUnbounded ? static_cast<std::int64_t>(*bound) : std::min(high, static_cast<std::int64_t>(*bound));
  }
  bool impossible() const { return low > kMaxCount || (high != kUnbounded && high < low); }
};

SizeRules items_of(const std::vector<Link>& nodes) {
  SizeRules out;
  for (Link node : nodes) {
    out.at_least(node->min_items);
    out.at_most(node->max_items);
  }
  return out;
}

NumberBounds bounds_of(const std::vector<Link>& nodes) {
  NumberBounds out;
  const auto tighten = [](auto& bound, const auto& other, bool greater) {
    if (other && (!bound || (greater ? *other > *bound : *other < *bound))) bound = other;
  };
  for (Link node : nodes) {
    tighten(out.minimum, node->minimum, true);
    tighten(out.above, node->above, true);
    tighten(out.maximum, node->maximum, false);
    tighten(out.below, node->below, false);
  }
  return out;
}

/// The types that are left of all; `implied`: without 'type', those that the keywords speak of.
SchemaTypes types_of(const std::vector<Link>& nodes, bool implied) {
  SchemaTypes out = kAnyType, spoken = 0;
  bool said = false;
  for (Link node : nodes) {
    spoken |= implied_types(*node);
    if (node->types == 0) continue;
    said = true;
    out &= (node->types & kNumberType) != 0 ? node->types | kIntegerType : node->types;
  }
  return said || !implied || spoken == 0 ? out : spoken;
}

/// The schemas of a member of objects that fulfil all.
SchemaSet member_set(const std::vector<Link>& nodes, const std::string& name, Effort& effort) {
  constexpr std::size_t kUnitsOfNode = 16;
  if (!effort.take(nodes.size() * kUnitsOfNode))
    throw std::runtime_error("too many schemas with too many members hold together");
  SchemaSet out;
  for (Link node : nodes) {
    Link own = node->property(name);
    bool known = own != nullptr;
    out.add(own);
    for (const auto& [pattern, schema] : node->patterns) {
      if (!pattern.compiled.search(name, effort)) continue;
      known = true;
      out.add(schema);
    }
    if (!known) out.add(node->others);
  }
  return out;
}

SchemaSet item_set(const std::vector<Link>& nodes, std::size_t index) {
  SchemaSet out;
  for (Link node : nodes) out.add(index < node->prefix.size() ? node->prefix[index] : node->items);
  return out;
}

bool is_required(const std::vector<Link>& nodes, const std::string& name) {
  return std::any_of(nodes.begin(), nodes.end(), [&](Link node) {
    return std::find(node->required.begin(), node->required.end(), name) != node->required.end();
  });
}

/// Tells whether a text of the grammar of one set can fulfil another one. It says 'apart' only if it is sure.
class SchemaComparison {
 public:
  SchemaComparison() : check_(kCheckedBytes), effort_(effort_for_output(kCheckedBytes)) {}

  bool apart(const SchemaSet& texts, const SchemaSet& other, int depth = 0) {
    if (texts.never || other.never) return true;
    if (depth > kMaxCompared || !effort_.take(1000)) return false;
    for (const SchemaSet* set : {&texts, &other}) {
      for (const SchemaSet::Atom& atom : set->atoms) {
        if (atom.part != Part::any_of && atom.part != Part::one_of) continue;
        const std::vector<Link>& ways = atom.part == Part::any_of ? atom.node->any_of : atom.node->one_of;
        return std::all_of(ways.begin(), ways.end(), [&](Link way) {
          SchemaSet one = set->without(atom);
          one.add(way);
          return set == &texts ? apart(one, other, depth + 1) : apart(texts, one, depth + 1);
        });
      }
    }
    const std::vector<Link> a = texts.own(), b = other.own();
    for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      for (Link node : *from) {
        if (node->values) return none_fits(*node->values, *from, *to);
        if (node->constant) return none_fits({*node->constant}, *from, *to);
      }
    }
    const SchemaTypes types = types_of(a, true) & types_of(b, false);
    if ((types & (kNullType | kBooleanType)) != 0) return false;
    return ((types & (kNumberType | kIntegerType)) == 0 || numbers_apart(a, b)) &&
           ((types & kStringType) == 0 || strings_apart(texts, other)) &&
           ((types & kArrayType) == 0 || arrays_apart(a, b, depth)) &&
           ((types & kObjectType) == 0 || objects_apart(a, b, depth));
  }

 private:
  bool none_fits(const std::vector<SchemaValue>& values, const std::vector<Link>& one, const std::vector<Link>& other) {
    const auto fits = [&](const SchemaValue& value, Link node) {
      return check_.check_own(value.value, *node, "", 0).empty();
    };
    return values.size() <= kMaxValues && std::none_of(values.begin(), values.end(), [&](const SchemaValue& value) {
             return std::all_of(one.begin(), one.end(), [&](Link node) { return fits(value, node); }) &&
                    std::all_of(other.begin(), other.end(), [&](Link node) { return fits(value, node); });
           });
  }

  static bool numbers_apart(const std::vector<Link>& a, const std::vector<Link>& b) {
    const NumberBounds one = bounds_of(a), other = bounds_of(b);
    const auto below = [](const NumberBounds& x, const NumberBounds& y) {
      const auto before = [](const auto& most, const auto& least, bool touching) {
        return most && least && (touching ? *most <= *least : *most < *least);
      };
      return before(x.maximum, y.minimum, false) || before(x.maximum, y.above, true) ||
             before(x.below, y.minimum, true) || before(x.below, y.above, true);
    };
    return below(one, other) || below(other, one);
  }

  static bool strings_apart(const SchemaSet& a, const SchemaSet& b) {
    const StringRules one(a), other(b);
    if (one.impossible() || other.impossible()) return true;
    if ((one.high != kUnbounded && one.high < other.low) || (other.high != kUnbounded && other.high < one.low))
      return true;
    const auto plain = [](const StringRules& rules) { return rules.patterns.empty() && rules.formats.empty(); };
    if (plain(one) || plain(other)) return false;
    try {
      const auto wrong = [](const SchemaNode&, const char*) {};
      return machine_of(one, wrong).both(machine_of(other, wrong)).empty();
    } catch (const ConstraintError&) {
      return false;
    }
  }

  bool arrays_apart(const std::vector<Link>& a, const std::vector<Link>& b, int depth) {
    const SizeRules one = items_of(a), other = items_of(b);
    if ((one.high != kUnbounded && one.high < other.low) || (other.high != kUnbounded && other.high < one.low))
      return true;
    const auto both = std::min<std::int64_t>(std::max(one.low, other.low), 4);
    for (std::int64_t i = 0; i < both; ++i) {
      const auto index = static_cast<std::size_t>(i);
      if (apart(item_set(a, index), item_set(b, index), depth + 1)) return true;
    }
    return false;
  }

  bool objects_apart(const std::vector<Link>& a, const std::vector<Link>& b, int depth) {
    const bool open = std::any_of(a.begin(), a.end(), [](Link node) { return node->others != nullptr; }) ||
                      std::none_of(a.begin(), a.end(), [](Link node) { return node->names_members; });
    for (const auto* nodes : {&a, &b}) {
      for (Link node : *nodes) {
        for (const std::string& name : node->required) {
          const SchemaSet one = member_set(a, name, effort_), other = member_set(b, name, effort_);
          const bool written = open || is_required(a, name) || !one.atoms.empty();
          if (!written || apart(one, other, depth + 1)) return true;
        }
      }
    }
    return false;
  }

  SchemaCheck check_;
  Effort effort_;
};

/// What the grammar is not held to.
class UnenforcedNotes {
 public:
  void set_prefix(const std::string& name) { prefix_ = name.empty() ? "" : name + ": "; }
  void add(const SchemaNode& node, const std::string& keyword, const std::string& why = {}) {
    add_text(node, fmt::format("'{}' is checked when the text is complete{}{}", keyword, why.empty() ? "" : ": ", why));
  }
  void add_text(const SchemaNode& node, const std::string& message) {
    const std::string place = node.pointer.empty() ? "the schema" : node.pointer;
    std::string note = fmt::format("{}{}: {}", prefix_, place, message);
    if (notes_.size() < kMaxNotes && seen_.insert(note).second) notes_.push_back(std::move(note));
  }
  std::vector<std::string> take() { return std::move(notes_); }

 private:
  std::string prefix_;
  std::set<std::string> seen_;
  std::vector<std::string> notes_;
};

/// Schemas that stand in no document, for what alternatives add.
class MadeSchemas {
 public:
  /// An object without the member; `types`: 0, or what else the value must be.
  Link absent(const std::string& name, SchemaTypes types = 0) {
    SchemaNode& node = made();
    node.types = types;
    node.properties.emplace_back(name, never());
    node.by_name.emplace(name, never());
    return &node;
  }
  Link present(const std::vector<std::string>& names) {
    SchemaNode& node = made();
    node.required = names;
    return &node;
  }
  /// An object with the member, which is none of the values that `listed` lists.
  Link differs(const std::string& name, Link listed) {
    SchemaNode& value = made();
    value.excluded = listed;
    SchemaNode& node = made();
    node.types = kObjectType;
    node.properties.emplace_back(name, &value);
    node.by_name.emplace(name, &value);
    node.required = {name};
    return &node;
  }
  Link of_types(SchemaTypes types) {
    SchemaNode& node = made();
    node.types = types;
    return &node;
  }

 private:
  /// It does not count as one that names members: the object keeps what else it may have.
  SchemaNode& made() { return nodes_.emplace_back(); }
  Link never() {
    if (never_ == nullptr) {
      SchemaNode& node = made();
      node.never = true;
      never_ = &node;
    }
    return never_;
  }

  std::deque<SchemaNode> nodes_;
  Link never_ = nullptr;
};

/// What holds if a condition does not: one of these; nothing if that cannot be said.
std::optional<std::vector<Link>> opposites(const SchemaNode& condition, MadeSchemas& make) {
  if (condition.never) return std::vector<Link>{make.of_types(0)};
  const bool plain = condition.reference == nullptr && condition.all_of.empty() && condition.any_of.empty() &&
                     condition.one_of.empty() && condition.excluded == nullptr && condition.condition == nullptr &&
                     !condition.values && !condition.constant;
  if (!plain) return std::nullopt;
  const SchemaTypes implied = implied_types(condition);
  if (implied == 0) {
    if (condition.types == 0) return std::vector<Link>();  // it always holds
    if ((condition.types & kIntegerType) != 0 && (condition.types & kNumberType) == 0) return std::nullopt;
    return std::vector<Link>{
        make.of_types(kAnyType & ~(condition.types | ((condition.types & kNumberType) != 0 ? kIntegerType : 0)))};
  }
  const bool members_only = implied == kObjectType && condition.patterns.empty() && condition.others == nullptr &&
                            condition.names == nullptr && !condition.min_properties && !condition.max_properties &&
                            condition.dependents.empty() && (condition.types == 0 || condition.types == kObjectType);
  if (!members_only) return std::nullopt;
  std::vector<Link> out;
  if (condition.types != 0) out.push_back(make.of_types(kAnyType & ~kObjectType));
  for (const std::string& name : condition.required) out.push_back(make.absent(name, kObjectType));
  for (const auto& [name, schema] : condition.properties) {
    if (!SchemaSet::lists(*schema)) return std::nullopt;
    out.push_back(make.differs(name, schema));
  }
  return out;
}

/// The rules of a grammar while it is made.
class SchemaRules {
 public:
  std::size_t add(const std::string& name, bool nests) {
    rules_.push_back({name, choice({}), nests});
    return rules_.size() - 1;
  }
  void set(std::size_t index, ExpressionPtr body) { rules_[index].body = std::move(body); }
  /// A rule that nests nothing, so that what stands in several places is written out once.
  ExpressionPtr shared(const std::string& name, ExpressionPtr body) {
    if (body->kind == GrammarExpression::Kind::call || is_nothing(body)) return body;
    const std::size_t index = add(name, false);
    set(index, std::move(body));
    return call(static_cast<std::int32_t>(index));
  }
  const std::vector<Rule>& all() const { return rules_; }

 private:
  std::vector<Rule> rules_;
};

/// A string or a number in the grammar, and the keywords that it is not held to.
struct ScalarRule {
  ExpressionPtr expression;
  std::map<std::string, std::string> unenforced;  // patterns, or "multipleOf", with the reason
};

/// The number that values are multiples of, if it is a short decimal one: `divisor` units of the last of `digits`
/// digits behind the point.
struct DecimalStep {
  std::int64_t divisor = 0;  // 0: there is none
  int digits = 0;

  CharacterMachine machine() const { return CharacterMachine::decimal_multiples(divisor, digits); }
};

DecimalStep step_of(const Json& by) {
  constexpr std::size_t kMaxDigits = 6;
  const std::string written = fmt::format("{}", by.get<double>());
  const std::size_t point = written.find('.');
  if (point == std::string::npos || written.size() > kMaxDigits || written.find('e') != std::string::npos) return {};
  return {std::stoll(written.substr(0, point) + written.substr(point + 1)),
          static_cast<int>(written.size() - point - 1)};
}

/// A list or an object whose rule is not written yet.
struct WaitingStructure {
  std::size_t rule;
  SchemaTypes type;
  std::vector<Link> nodes;
  bool outermost;
};

/// The rules of lists and objects, which are written one after another: a call of one is a level of nesting.
class StructureRules {
 public:
  explicit StructureRules(SchemaRules& rules) : rules_(rules) {}

  ExpressionPtr of(SchemaTypes type, bool outermost, std::vector<Link> nodes) {
    const auto [found, added] = known_.try_emplace({type, outermost, nodes}, 0);
    if (added) {
      const std::string& pointer = nodes.empty() ? std::string() : nodes.front()->pointer;
      found->second = rules_.add(pointer.empty() ? "the schema" : pointer, true);
      waiting_.push_back({found->second, type, std::move(nodes), outermost});
    }
    return call(static_cast<std::int32_t>(found->second));
  }

  std::optional<WaitingStructure> next() {
    if (waiting_.empty()) return std::nullopt;
    WaitingStructure out = std::move(waiting_.front());
    waiting_.pop_front();
    return out;
  }

 private:
  SchemaRules& rules_;
  std::map<std::tuple<SchemaTypes, bool, std::vector<Link>>, std::size_t> known_;
  std::deque<WaitingStructure> waiting_;
};

/// Where a value stands, as far as its notation depends on it.
enum class ValuePlace : std::uint8_t { outermost, element, inside };

SchemaTypes types_excluded(const SchemaNode& listed) {
  SchemaTypes out = 0;
  if (listed.constant) out |= types_of_value(listed.constant->value);
  if (listed.values) {
    for (const SchemaValue& one : *listed.values) out |= types_of_value(one.value);
  }
  return out;
}

/// Whether an object may have members that no schema names: if one speaks of them, or none of any member.
bool is_open(const std::vector<Link>& nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [](Link node) { return node->others != nullptr; }) ||
         std::none_of(nodes.begin(), nodes.end(), [](Link node) { return node->names_members; });
}

ExpressionPtr other_plain_key(const std::vector<std::string>& known) {
  const CharacterMachine any = ValueWriter::plain_keys();
  return (known.empty() ? any : any.both(CharacterMachine(any_of_texts(known)).complement())).expression();
}

class SchemaCompiler {
 public:
  /// Adds rules to `rules`, which it refers to.
  SchemaCompiler(SchemaRules& rules, const ValueWriter& write)
      : rules_(rules), check_(kCheckedBytes), effort_(effort_for_output(kCheckedBytes)), write_(write) {}

  UnenforcedNotes& notes() { return notes_; }

  /// Returns the value of a schema, with all rules that it needs.
  ExpressionPtr read(const SchemaNode& root) {
    place_ = ValuePlace::outermost;
    ExpressionPtr out = value(set_of(&root), 1);
    place_ = ValuePlace::inside;
    while (const std::optional<WaitingStructure> next = structures_.next())
      rules_.set(next->rule, next->type == kArrayType ? array(next->nodes) : object(next->nodes, next->outermost));
    return out;
  }

 private:
  using Nodes = std::vector<Link>;
  /// Texts stand as they are.
  bool is_raw() const { return place_ == ValuePlace::element; }

  /// `ways`: how many alternatives were chosen from on the way to this set.
  ExpressionPtr value(const SchemaSet& set, std::size_t ways) {
    if (++sets_ > kMaxSchemas)
      fail_at(set.pointer(),
              fmt::format("the schema is too large to be enforced: expected at most {} schemas, each counted where it "
                          "holds",
                          kMaxSchemas));
    if (set.never) return choice({});
    const SchemaSet::Atom* open = set.open();
    if (open == nullptr) return plain(set);
    const SchemaSet::Atom atom = *open;
    const SchemaSet rest = set.without(atom);
    std::optional<std::vector<SchemaSet>> sets = alternatives(rest, atom, ways);
    if (!sets) return value(rest, ways);
    std::vector<ExpressionPtr> out;
    for (const SchemaSet& one : *sets) {
      const ExpressionPtr way = one.never ? choice({}) : value(one, ways * sets->size());
      if (!is_nothing(way)) out.push_back(way);
    }
    return out.size() == 1 ? out[0] : choice(std::move(out));
  }

  /// The sets that one alternative makes of a set; nothing if it is not enforced.
  std::optional<std::vector<SchemaSet>> alternatives(const SchemaSet& rest, const SchemaSet::Atom& atom,
                                                     std::size_t ways) {
    const SchemaNode& node = *atom.node;
    const auto with = [&](std::initializer_list<Link> more) {
      SchemaSet out = rest;
      for (Link one : more) out.add(one);
      return out;
    };
    std::vector<SchemaSet> out;
    const char* keyword = "not";
    if (atom.part == Part::any_of || atom.part == Part::one_of) {
      keyword = atom.part == Part::any_of ? "anyOf" : "oneOf";
      for (Link way : atom.part == Part::any_of ? node.any_of : node.one_of) out.push_back(with({way}));
    } else if (atom.part == Part::condition) {
      keyword = "if";
      const std::optional<Nodes> opposite = opposites(*node.condition, make_);
      out.push_back(with({node.condition, node.then}));
      if (opposite) {
        for (Link one : *opposite) out.push_back(with({one, node.otherwise}));
      } else {
        notes_.add(node, keyword);
        out.push_back(with({node.otherwise}));
      }
    } else if (atom.part == Part::dependent) {
      const SchemaNode::Dependent& dependent = node.dependents[atom.index];
      keyword = dependent.schema == nullptr ? "dependentRequired" : "dependentSchemas";
      std::vector<std::string> names = dependent.required;
      names.push_back(dependent.name);
      out.push_back(with({make_.absent(dependent.name)}));
      out.push_back(with({make_.present(names), dependent.schema}));
    } else {
      const std::optional<Nodes> opposite = opposites(*node.excluded, make_);
      if (!opposite) {
        notes_.add(node, keyword);
        return std::nullopt;
      }
      for (Link one : *opposite) out.push_back(with({one}));
    }
    if (ways * out.size() > kMaxWays) {
      notes_.add(node, keyword, "there are too many alternatives");
      return std::nullopt;
    }
    if (atom.part == Part::one_of) note_overlaps(node, out);
    return out;
  }

  /// At most one alternative of 'oneOf' may hold; what the grammar writes for one must not fit another.
  void note_overlaps(const SchemaNode& node, const std::vector<SchemaSet>& sets) {
    for (std::size_t i = 0; i < sets.size(); ++i) {
      for (std::size_t other = 0; other < sets.size(); ++other) {
        if (i == other || comparison_.apart(sets[i], set_of(node.one_of[other]))) continue;
        return notes_.add(node, "oneOf",
                          fmt::format("alternatives {} and {} may both hold", std::min(i, other), std::max(i, other)));
      }
    }
  }

  ExpressionPtr plain(const SchemaSet& set) {
    const Nodes nodes = set.own();
    for (Link node : nodes) {
      if (node->values) return listed(*node->values, set);
      if (node->constant) return listed({*node->constant}, set);
    }
    const SchemaTypes types = types_of(nodes, true);
    const std::vector<const SchemaValue*> excluded = set.excluded();
    const auto allows = [&](const Json& one) {
      return std::none_of(excluded.begin(), excluded.end(), [&](const SchemaValue* no) { return no->value == one; });
    };
    SchemaTypes held = kNullType | kBooleanType | kStringType;  // types of which values can be excluded
    for (const SchemaSet::Atom& atom : set.atoms) {
      if (atom.part == Part::excluded && (types & ~held & types_excluded(*atom.node->excluded)) != 0)
        notes_.add(*atom.node, "not");
    }
    std::vector<ExpressionPtr> ways;
    if ((types & kNullType) != 0 && allows(nullptr)) ways.push_back(write_.word(nullptr, is_raw()));
    if ((types & kBooleanType) != 0) {
      if (allows(true)) ways.push_back(write_.word(true, is_raw()));
      if (allows(false)) ways.push_back(write_.word(false, is_raw()));
    }
    if ((types & kNumberType) != 0)
      ways.push_back(number(nodes, false));
    else if ((types & kIntegerType) != 0)
      ways.push_back(number(nodes, true));
    if ((types & kStringType) != 0) ways.push_back(string(set));
    if ((types & kArrayType) != 0) ways.push_back(structure(nodes, kArrayType));
    if ((types & kObjectType) != 0) ways.push_back(structure(nodes, kObjectType));
    return ways.size() == 1 ? ways[0] : choice(std::move(ways));
  }

  ExpressionPtr listed(const std::vector<SchemaValue>& values, const SchemaSet& set) {
    return choice(listed_ways(values, set));
  }

  /// Those of the values that all other schemas allow.
  std::vector<ExpressionPtr> listed_ways(const std::vector<SchemaValue>& values, const SchemaSet& set) {
    if (values.size() > kMaxValues)
      fail_at(set.pointer(),
              fmt::format("expected at most {} values to choose from, found {}", kMaxValues, values.size()));
    const std::vector<const SchemaValue*> excluded = set.excluded();
    const Nodes nodes = set.own();
    std::vector<ExpressionPtr> ways;
    for (const SchemaValue& one : values) {
      const bool fits =
          std::all_of(nodes.begin(), nodes.end(),
                      [&](Link node) { return check_.check_own(one.value, *node, "", 0).empty(); }) &&
          std::none_of(excluded.begin(), excluded.end(), [&](const SchemaValue* no) { return no->value == one.value; });
      if (!fits) continue;
      if (const ExpressionPtr way = write_.listed(one, is_raw()); !is_nothing(way)) ways.push_back(way);
    }
    return ways;
  }

  ExpressionPtr number(const Nodes& nodes, bool whole) {
    const NumberBounds bounds = bounds_of(nodes);
    std::int64_t divisor = 1;
    int fraction = kMaxFraction;
    DecimalStep step;
    for (Link node : nodes) {
      if (!node->multiple_of) continue;
      const Json& by = *node->multiple_of;
      int digits = 1;
      while (digits <= 15 && by != Json::parse(fmt::format("1e-{}", digits))) ++digits;
      if (const DecimalStep own = step_of(by); own.divisor > 1 && step.divisor == 0 && !whole) {
        step = own;
        fraction = std::min(fraction, own.digits);
        continue;
      }
      if (is_whole(by) && by < 1'000'000'000) {
        const auto factor =
            is_whole(by) && by.is_number_float() ? static_cast<std::int64_t>(by.get<double>()) : by.get<std::int64_t>();
        divisor = std::lcm(divisor, factor);
        whole = true;
        if (divisor < 1'000'000'000'000) continue;
        divisor = factor;
      } else if (digits <= 15) {
        fraction = std::min(fraction, digits);
        continue;
      }
      notes_.add(*node, "multipleOf");
    }
    const auto part = [](const auto& bound) { return bound ? fmt::format("{:.20g}", *bound) : std::string("-"); };
    const std::string key =
        fmt::format("number {} {} {} {} {} {} {} {} {}", whole, part(bounds.minimum), part(bounds.above),
                    part(bounds.maximum), part(bounds.below), divisor, fraction, step.divisor, step.digits);
    ScalarRule& rule = scalars_[key];
    if (rule.expression == nullptr) {
      ExpressionPtr body;
      try {
        body = whole ? multiples(bounds, divisor) : numbers(bounds, fraction);
        if (step.divisor > 0) body = CharacterMachine(body).both(step.machine()).expression();
      } catch (const ConstraintError& error) {
        rule.unenforced["multipleOf"] = error.what();
        body = integers(bounds);
      }
      rule.expression = rules_.shared("a number", std::move(body));
    }
    for (Link node : nodes) {
      if (node->multiple_of && !rule.unenforced.empty()) notes_.add(*node, "multipleOf");
    }
    return rule.expression;
  }

  ExpressionPtr string(const SchemaSet& set) {
    for (Link node : set.own()) {
      if (node->format.empty()) continue;
      const StringFormat* format = string_format(node->format);
      if (format == nullptr) notes_.add_text(*node, fmt::format("format '{}' is not checked", node->format));
      if (format != nullptr && format->regex == nullptr) notes_.add(*node, "format");
    }
    const StringRules rules(set);
    if (rules.impossible()) return choice({});
    ScalarRule& rule = scalars_[(is_raw() ? "text " : "string ") + rules.key()];
    const auto body = [&] {
      const std::optional<std::string> end = write_.raw_end(is_raw());
      return end ? raw_body(rules, *end, rule.unenforced) : string_body(rules, rule.unenforced);
    };
    if (rule.expression == nullptr) rule.expression = rules_.shared("a string", body());
    for (const auto& [pattern, why] : rule.unenforced) notes_.add(*rules.patterns.at(pattern), "pattern", why);
    return rule.expression;
  }

  /// Texts that stand as they are, without the `end` behind them.
  ExpressionPtr raw_body(const StringRules& rules, const std::string& end,
                         std::map<std::string, std::string>& unenforced) const {
    const auto wrong = [&](const SchemaNode& node, const char* why) { unenforced[node.pattern->text] = why; };
    CharacterMachine machine = machine_of(rules, wrong);
    const ExpressionPtr any = repeat(characters(CodePointSet().complement()), 0, kUnbounded);
    if (!end.empty()) machine = machine.both(CharacterMachine(sequence({any, text(end), any})).complement());
    if (machine.empty()) return choice({});
    try {
      const ExpressionPtr inside =
          machine.expression(static_cast<std::int32_t>(rules.low), static_cast<std::int32_t>(rules.high));
      return is_nothing(inside) ? inside : write_.quoted(inside, is_raw());
    } catch (const ConstraintError& error) {  // of the length; the patterns are left out then
      for (const auto& [pattern, node] : rules.patterns) unenforced[pattern] = error.what();
      if (rules.patterns.empty()) throw;
      StringRules less = rules;
      less.patterns.clear();
      std::map<std::string, std::string> none;
      return raw_body(less, end, none);
    }
  }

  /// A single pattern or format without a length stands there as it is.
  static ExpressionPtr string_body(const StringRules& rules, std::map<std::string, std::string>& unenforced) {
    const auto low = static_cast<std::int32_t>(rules.low), high = static_cast<std::int32_t>(rules.high);
    if (rules.patterns.empty() && rules.formats.empty() && rules.excluded.empty())
      return quoted(repeat(any_character(), low, high));
    const bool alone =
        low == 0 && high == kUnbounded && rules.excluded.empty() && rules.patterns.size() + rules.formats.size() == 1;
    if (alone && !rules.formats.empty())
      return quoted(in_json_string(regex_expression(string_format(*rules.formats.begin())->regex)));
    if (alone) {
      try {
        return quoted(in_json_string(search_expression(rules.patterns.begin()->first)));
      } catch (const ConstraintError&) {  // it may begin with a look-ahead
      }
    }
    const auto wrong = [&](const SchemaNode& node, const char* why) { unenforced[node.pattern->text] = why; };
    const CharacterMachine machine = machine_of(rules, wrong);
    if (machine.empty()) return choice({});
    try {
      const ExpressionPtr inside = machine.in_json_string(low, high);
      return is_nothing(inside) ? inside : quoted(inside);
    } catch (const ConstraintError& error) {  // of the length; the patterns are left out then
      for (const auto& [pattern, node] : rules.patterns) unenforced[pattern] = error.what();
      if (rules.patterns.empty()) return choice({});
      StringRules less = rules;
      less.patterns.clear();
      std::map<std::string, std::string> none;
      return string_body(less, none);
    }
  }

  ExpressionPtr structure(const Nodes& all, SchemaTypes type) {
    Nodes nodes;
    for (Link node : all) {
      const bool made = type == kObjectType && !(node->properties.empty() && node->required.empty());
      if (made || (implied_types(*node) & type) != 0) nodes.push_back(node);
    }
    return structures_.of(type, place_ == ValuePlace::outermost && type == kObjectType, std::move(nodes));
  }

  ExpressionPtr array(const Nodes& nodes) {
    SizeRules size = items_of(nodes);
    Link unique = nullptr;
    std::size_t prefix = 0;
    for (Link node : nodes) {
      prefix = std::max(prefix, node->prefix.size());
      if (node->unique) unique = node;
      if (node->contains != nullptr && node->min_contains.value_or(1) + (node->max_contains ? 1 : 0) > 0)
        notes_.add(*node, "contains");
    }
    if (prefix > kMaxPrefix)
      fail_at(nodes.front()->pointer,
              fmt::format("expected at most {} schemas of first items, found {}", kMaxPrefix, prefix));
    for (std::size_t i = 0; i <= prefix; ++i) {
      if (item_set(nodes, i).never) size.at_most(i);
    }
    if (size.impossible()) return choice({});
    const ExpressionPtr open = sequence({text("["), write_.blank()}), close = text("]");
    if (unique != nullptr && (size.high == kUnbounded || size.high > 1)) {
      if (const ExpressionPtr items = prefix > 0 ? nullptr : different(item_set(nodes, 0), size))
        return is_nothing(items) ? items : sequence({open, items, close});
      notes_.add(*unique, "uniqueItems");
    }
    const auto first = static_cast<std::int64_t>(prefix);
    ExpressionPtr rest = sequence({});
    if (size.high == kUnbounded || size.high > first) {
      const ExpressionPtr item = rules_.shared("an item", write_.item(value(item_set(nodes, prefix), 1)));
      const auto more = [&](std::int64_t before, const ExpressionPtr& part) {
        return repeat(part, static_cast<std::int32_t>(std::max<std::int64_t>(size.low - before, 0)),
                      size.high == kUnbounded ? kUnbounded : static_cast<std::int32_t>(size.high - before));
      };
      rest = prefix > 0 ? more(first, sequence({write_.separator(), item}))
                        : sequence({item, more(1, sequence({write_.separator(), item}))});
    }
    if (prefix == 0) {
      if (size.high == 0) return sequence({open, close});
      return sequence({open, size.low == 0 ? maybe(rest) : rest, close});
    }
    for (std::size_t i = prefix; i-- > 0;) {
      const auto index = static_cast<std::int64_t>(i);
      if (size.high != kUnbounded && size.high <= index) continue;
      const ExpressionPtr item = rules_.shared("an item", write_.item(value(item_set(nodes, i), 1)));
      rest = i == 0 ? sequence({item, rest}) : sequence({write_.separator(), item, rest});
      if (size.low <= index) rest = maybe(rest);
    }
    return sequence({open, rest, close});
  }

  /// A list of values that a schema lists, each at most once, in any order; null: they are too many, or not listed.
  ExpressionPtr different(const SchemaSet& set, const SizeRules& size) {
    const Nodes nodes = set.own();
    const auto found = std::find_if(nodes.begin(), nodes.end(), [](Link node) { return node->values.has_value(); });
    if (set.never || set.open() != nullptr || found == nodes.end() || (*found)->values->size() > kMaxDifferent)
      return nullptr;
    std::vector<SchemaValue> values;
    for (const SchemaValue& one : *(*found)->values) {
      const auto same = [&](const SchemaValue& other) { return other.value == one.value; };
      if (std::none_of(values.begin(), values.end(), same)) values.push_back(one);
    }
    const std::vector<ExpressionPtr> ways = listed_ways(values, set);
    const auto count = static_cast<std::int64_t>(ways.size());
    if (size.low > count) return choice({});
    std::vector<GrammarExpression::State> states(std::size_t{1} << ways.size());  // by the set of values, as bits
    for (std::size_t taken = 0; taken < states.size(); ++taken) {
      const std::int64_t there = std::popcount(taken);
      states[taken].ends = there >= size.low;
      if (size.high != kUnbounded && there >= size.high) continue;
      for (std::size_t i = 0; i < ways.size(); ++i) {
        if ((taken >> i & 1U) != 0) continue;
        const ExpressionPtr item = write_.item(ways[i]);
        states[taken].ways.emplace_back(taken == 0 ? item : sequence({write_.separator(), item}),
                                        static_cast<std::int32_t>(taken | std::size_t{1} << i));
      }
    }
    return machine(std::move(states), 0, kUnbounded);
  }

  /// The properties in their order, then what else is required, and the names that 'propertyNames' lists; each with
  /// whether it must be there.
  std::vector<std::pair<std::string, bool>> names_of(const Nodes& nodes, const SchemaSet& names) {
    std::vector<std::pair<std::string, bool>> out;
    std::map<std::string, std::size_t> places;
    const auto add = [&](const std::string& name) {
      const auto [found, added] = places.try_emplace(name, out.size());
      if (added) out.emplace_back(name, false);
      return found->second;
    };
    for (Link node : nodes) {
      for (const auto& [name, schema] : node->properties) add(name);
    }
    for (Link node : nodes) {
      for (const std::string& name : node->required) out[add(name)].second = true;
    }
    for (Link node : names.own()) {
      const std::vector<SchemaValue> one =
          node->constant ? std::vector<SchemaValue>{*node->constant} : std::vector<SchemaValue>();
      for (const SchemaValue& value : node->values ? *node->values : one) {
        if (value.value.is_string()) add(value.value.get<std::string>());
      }
    }
    return out;
  }

  ExpressionPtr object(const Nodes& nodes, bool outermost) {
    SchemaSet names;
    SizeRules size;
    for (Link node : nodes) {
      names.add(node->names);
      size.at_least(node->min_properties);
      size.at_most(node->max_properties);
    }
    if ((types_of(names.own(), false) & kStringType) == 0) names.never = true;
    Members all;
    std::vector<std::string> known;
    for (const auto& [name, needed] : names_of(nodes, names)) {
      known.push_back(name);
      SchemaSet set = member_set(nodes, name, effort_);
      for (Link node : nodes)
        set.never = set.never || (node->names != nullptr && !check_.check(Json(name), *node->names, "").empty());
      const ExpressionPtr member = set.never ? choice({}) : member_value(set, outermost);
      if (is_nothing(member) && needed) return choice({});
      if (is_nothing(member) || (set.atoms.empty() && !needed && !is_open(nodes))) continue;
      all.optional.push_back(!needed);
      all.parts.push_back(write_.member(write_.key(name, outermost), member, outermost));
    }
    all.between = write_.between(outermost);
    std::vector<ExpressionPtr> more;
    for (auto& [key, set] : others_of(nodes, names, known, outermost)) {
      const ExpressionPtr member = member_value(set, outermost);
      if (!is_nothing(member)) more.push_back(write_.member(key, member, outermost));
    }
    if (!more.empty()) all.more = more.size() == 1 ? more[0] : choice(std::move(more));
    const ExpressionPtr inside = limited(std::move(all), size, nodes);
    return is_nothing(inside) ? inside : write_.braced(inside, outermost);
  }

  ExpressionPtr member_value(const SchemaSet& set, bool outermost) {
    if (outermost && write_.is(ValueNotation::Form::elements)) place_ = ValuePlace::element;
    ExpressionPtr out = value(set, 1);
    place_ = ValuePlace::inside;
    return out;
  }

  /// The members of the object, if it may have as many as it needs.
  ExpressionPtr limited(Members all, SizeRules size, const Nodes& nodes) {
    const auto parts = static_cast<std::int64_t>(all.parts.size());
    const auto needed = std::count(all.optional.begin(), all.optional.end(), false);
    if (size.low <= needed) size.low = 0;
    if (size.low > 0 && all.more) {  // others may be there twice
      for (Link node : nodes) {
        if (node->min_properties) notes_.add(*node, "minProperties");
      }
      size.low = 0;
    }
    if (size.high != kUnbounded && !all.more && parts <= size.high) size.high = kUnbounded;
    if (size.impossible() || (size.high != kUnbounded && size.high < needed) || (!all.more && parts < size.low))
      return choice({});
    all.low = static_cast<std::int32_t>(size.low);
    all.high = static_cast<std::int32_t>(size.high);
    return members(std::move(all));
  }

  using Others = std::vector<std::pair<ExpressionPtr, SchemaSet>>;

  /// The keys of members that are not named, with the schemas of their values.
  Others others_of(const Nodes& nodes, const SchemaSet& names, const std::vector<std::string>& known, bool outermost) {
    std::map<std::string, Link> patterns;  // with a schema that has it
    for (Link node : nodes) {
      for (const auto& [pattern, schema] : node->patterns) patterns.emplace(pattern.text, node);
    }
    const bool open = is_open(nodes);
    const Nodes name_nodes = names.own();
    if (names.never ||
        std::any_of(name_nodes.begin(), name_nodes.end(), [](Link node) { return node->values || node->constant; }))
      return {};  // all names are known
    StringRules rules(names);
    if (names.open() != nullptr) {
      for (Link node : nodes) {
        if (node->names != nullptr) notes_.add(*node, "propertyNames");
      }
    }
    if (patterns.empty() && (!open || rules.key() == StringRules(SchemaSet()).key())) {
      SchemaSet set;
      for (Link node : nodes) set.add(node->others);
      if (!open || set.never) return {};
      for (const std::string& name : known) {
        if (name.size() > kMaxName)
          fail_at(
              nodes.empty() ? "" : nodes.front()->pointer,
              fmt::format("a name of more than {} bytes among others that may be added cannot be enforced", kMaxName));
      }
      return {{write_.has_plain_names(outermost) ? other_plain_key(known) : other_key(known), std::move(set)}};
    }
    try {
      return regions_of(nodes, patterns, rules, known, open, write_.has_plain_names(outermost));
    } catch (const ConstraintError& error) {  // without other members the object fits, whatever they must be
      for (Link node : nodes) {
        if (!node->patterns.empty() || node->names != nullptr)
          notes_.add_text(*node, fmt::format("members that are not named are left out: {}", error.what()));
      }
      return {};
    }
  }

  /// The names are split by the patterns that they match.
  Others regions_of(const Nodes& nodes, const std::map<std::string, Link>& patterns, const StringRules& rules,
                    const std::vector<std::string>& known, bool open, bool plain) {
    if (rules.impossible()) return {};
    using Region = std::pair<CharacterMachine, std::set<std::string>>;  // names, and the patterns that they match
    CharacterMachine all = machine_of(rules, [](const SchemaNode&, const char* why) { throw ConstraintError(why); });
    if (!known.empty()) all = all.both(CharacterMachine(any_of_texts(known)).complement());
    if (plain) all = all.both(ValueWriter::plain_keys());
    std::vector<Region> regions{{all, {}}};
    for (const auto& [pattern, node] : patterns) {
      const CharacterMachine yes = CharacterMachine::of_pattern(pattern), no = yes.complement();
      std::vector<Region> split;
      for (const auto& [names, matched] : regions) {
        Region with{names.both(yes), matched}, without{names.both(no), matched};
        with.second.insert(pattern);
        for (Region* one : {&with, &without}) {
          if (!one->first.empty()) split.push_back(std::move(*one));
        }
      }
      if (split.size() > kMaxRegions) throw ConstraintError("the patterns of names overlap too much");
      regions = std::move(split);
    }
    Others out;
    for (const auto& [names, matched] : regions) {
      if (matched.empty() && !open) continue;
      SchemaSet set;
      for (Link node : nodes) {
        bool found = false;
        for (const auto& [pattern, schema] : node->patterns) {
          if (!matched.contains(pattern.text)) continue;
          found = true;
          set.add(schema);
        }
        if (!found) set.add(node->others);
      }
      if (set.never) continue;
      const auto low = static_cast<std::int32_t>(rules.low), high = static_cast<std::int32_t>(rules.high);
      out.emplace_back(plain ? names.expression(low, high) : quoted(names.in_json_string(low, high)), std::move(set));
    }
    return out;
  }

  SchemaRules& rules_;
  UnenforcedNotes notes_;
  MadeSchemas make_;
  SchemaComparison comparison_;
  SchemaCheck check_;
  Effort effort_;
  ValueWriter write_;
  ValuePlace place_ = ValuePlace::inside;  // of the value that is made
  std::map<std::string, ScalarRule> scalars_;
  StructureRules structures_{rules_};
  std::size_t sets_ = 0;
};

std::string in_front(const SchemasInText::Named& schema, const std::string& message) {
  return schema.name.empty() ? message : schema.name + ": " + message;
}

}  // namespace

std::shared_ptr<const Grammar> schema_grammar(const SchemasInText& text) {
  SchemaRules rules;
  const std::size_t whole = rules.add("the text", false);
  ValueWriter write(text.notation);
  if (text.blanks == JsonBlanks::free)
    write.set_free_blanks(rules.shared("a blank", ValueWriter::line_and_indentation()));
  SchemaCompiler compiler(rules, write);
  std::deque<Schema> schemas;  // the compiler refers to them
  std::vector<std::size_t> roots;
  std::vector<ExpressionPtr> values;
  int height = 1;
  for (const SchemasInText::Named& one : text.schemas) {
    const Schema& schema = schemas.emplace_back(one.schema);
    if (const auto wrong = schema.mistakes(UnknownKeywords::ignored); !wrong.empty())
      throw ConstraintError(in_front(one, wrong.front().text));
    height = std::max(height, schema.height());
    compiler.notes().set_prefix(one.name);
    roots.push_back(rules.add("the schema", false));
    values.push_back(call(static_cast<std::int32_t>(roots.back())));
    try {
      rules.set(roots.back(), compiler.read(schema.root()));
    } catch (const std::runtime_error& error) {  // a pattern needs too many steps
      throw ConstraintError(in_front(one, error.what()));
    } catch (const ConstraintError& error) {
      throw ConstraintError(in_front(one, error.what()));
    }
  }
  rules.set(whole, text.whole(values, [&](const char* name, ExpressionPtr body) {
    return rules.shared(name, std::move(body));
  }));
  const int depth = std::min(kJsonDepth - text.outer, kMaxSchemaDepth / height - 1);
  std::shared_ptr<Grammar> grammar;
  try {
    grammar = std::make_shared<Grammar>(rules.all(), depth, Grammar::Count::all);
  } catch (const ConstraintError& error) {
    if (text.schemas.size() > 1) throw;
    throw ConstraintError(in_front(text.schemas.front(), error.what()));
  }
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (grammar->node(grammar->start(static_cast<std::int32_t>(roots[i]))).need > depth)
      throw ConstraintError(fmt::format("{}: no text fulfils it", text.schemas[i].name));
  }
  grammar->set_unenforced(compiler.notes().take());
  return grammar;
}

std::shared_ptr<const Grammar> schema_grammar(std::string_view schema, JsonBlanks blanks) {
  SchemasInText text;
  text.blanks = blanks;
  text.schemas.push_back({"", std::string(schema)});
  text.whole = [](std::span<const ExpressionPtr> values, const SchemasInText::Share& share) {
    return share("the JSON", values[0]);
  };
  return schema_grammar(text);
}

}  // namespace baton
