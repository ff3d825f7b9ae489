// SPDX-License-Identifier: Apache-2.0
// Values of chat templates, with Python's meaning: what Jinja computes with.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/clock.h"
#include "engine/text/templates.h"

namespace baton::jinja {

/// Something went wrong while rendering; whoever knows the place in the template adds it.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a render may use up. Steps count evaluated nodes, elements and bytes; one takes about 100 ns. Every operation
/// spends what it is going to touch before it begins.
class Budget {
 public:
  explicit Budget(std::stop_token stop = {}) : effort_(kMaxSteps * kUnitsPerStep, std::move(stop)) {}

  /// Throws Fault when the steps are used up, and Interrupted after a stop was requested.
  void spend(std::size_t steps) {
    if (!effort_.take(steps > kMaxSteps ? (kMaxSteps + 1) * kUnitsPerStep : steps * kUnitsPerStep)) fail();
  }
  /// For copying, comparing and searching.
  void spend_bytes(std::size_t bytes) { spend(1 + bytes / 64); }
  /// For looking at one character after the other.
  void spend_characters(std::size_t bytes) { spend(1 + bytes / 4); }

 private:
  static constexpr std::size_t kMaxSteps = 2'000'000;
  static constexpr std::size_t kUnitsPerStep = 16;
  [[noreturn]] void fail() const;

  Effort effort_;
};

inline constexpr std::size_t kMaxStringBytes = 16u << 20;
inline constexpr int kMaxValueDepth = 100;

class Value;
using Values = std::vector<Value>;

/// All that look alike share the text, however many a template makes.
struct Undefined {
  std::shared_ptr<const std::string> what;  // "'messages' is undefined"
  bool equals_none = false;                 // not even another undefined value, which Jinja has equal
};
struct None {};
struct String {
  std::shared_ptr<const ChatText> text;  // valid UTF-8
  bool safe = false;                     // went through the filter "safe": Python's Markup
};

enum class SequenceKind : std::uint8_t {
  list,
  tuple,
  range,      // what range gives: an immutable list that is not printed
  view,       // dict.items() and its like: may be walked again, not indexed or printed
  generator,  // what select, map and items give: may be walked once
};
struct SequenceValue {
  SequenceValue(SequenceKind of_kind, Values values, int nesting);
  ~SequenceValue();
  SequenceValue(const SequenceValue&) = delete;
  SequenceValue& operator=(const SequenceValue&) = delete;

  SequenceKind kind = SequenceKind::list;
  Values items;
  int depth = 1;  // depth of lists in lists
  mutable bool used_up = false;
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in the order of insertion
  int depth = 1;

  Dict() = default;
  ~Dict();
  Dict(Dict&&) = default;
  Dict& operator=(Dict&&) = default;

  const Value* find(const Value& key, Budget& budget) const;
  void set(Value key, Value value, Budget& budget);
};

/// namespace(): the one thing that templates can change.
struct Namespace {
  std::map<std::string, Value> members;
};

/// The variable "loop"; one object for all rounds.
struct Loop {
  explicit Loop(Values values);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  Values items;
  std::size_t index = 0;
  std::int64_t depth = 1;  // of a recursive loop: how many of it are under way
};

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;

  const Value* named_value(std::string_view name) const;
};
struct Callable;

class Value {
 public:
  using Data = std::variant<Undefined, None, bool, std::int64_t, double, String, std::shared_ptr<const SequenceValue>,
                            std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<const Loop>,
                            std::shared_ptr<const Callable>>;

  Value() : data_(None{}) {}
  Value(bool value) : data_(value) {}
  Value(std::int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string text, bool safe = false) : Value(ChatText{std::move(text)}, safe) {}
  Value(ChatText text, bool safe) : data_(String{std::make_shared<const ChatText>(std::move(text)), safe}) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(Data data) : data_(std::move(data)) {}
  /// Keeps the beginning of a long reason, which may quote any text.
  static Value undefined(std::string_view what);
  /// Throws Fault when the lists lie too deep in each other.
  static Value sequence(SequenceKind kind, Values items);
  static Value dict(Dict dict);

  template <typename T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<None>() != nullptr; }
  bool is_string() const { return get<String>() != nullptr; }
  bool is_safe() const { return is_string() && get<String>()->safe; }
  const std::string& text() const { return get<String>()->text->text; }  // only for strings
  const SequenceValue* as_sequence() const;
  const Dict* as_dict() const;
  /// bool, int or float.
  bool is_number() const;
  double number() const;  // only for numbers
  /// bool or int as an integer.
  const std::int64_t* integer(std::int64_t& storage) const;

  /// It refers to an object that may hold values.
  bool holds_values() const;
  /// Moves the values of an object that this value alone owns to `pending`; for destruction.
  void give_up(Values& pending);

 private:
  Data data_;
};

/// A function, a macro or a bound method.
struct Callable {
  using Call = std::function<Value(const Value& self, const Arguments& arguments)>;

  Callable(std::string shown_name, Value bound, Call function);
  ~Callable();
  Callable(const Callable&) = delete;
  Callable& operator=(const Callable&) = delete;

  Value operator()(const Arguments& arguments) const { return call(self, arguments); }

  std::string name;
  Value self;  // what a method is bound to. `call` itself must hold no value, so that chains can be freed without
               // recursion
  Call call;
};
Value callable(std::string name, Callable::Call call);
Value bound_method(std::string name, Value self, Callable::Call call);

/// Only for undefined values.
inline const std::string& why_undefined(const Value& value) { return *value.get<Undefined>()->what; }

/// What a string knows of its text. Only for strings.
inline const ChatText& traced(const Value& string) { return *string.get<String>()->text; }

/// A text that grows up to the limits, with what in it comes from values (ValueSpan).
class TextBuilder {
 public:
  /// Throws Fault if the text becomes too long.
  void add(std::string_view text, Budget& budget);
  void add(const ChatText& text, Budget& budget) { add(text, 0, text.text.size(), budget); }
  /// A part of a text.
  void add(const ChatText& text, std::size_t begin, std::size_t size, Budget& budget);
  /// str(value).
  void add_value(const Value& value, Budget& budget);
  /// What was made of bytes of values, whichever.
  void add_changed(std::string_view text, std::size_t value, Budget& budget);

  const ChatText& text() const { return text_; }
  ChatText take() { return std::move(text_); }

 private:
  void add_span(const ValueSpan& span, Budget& budget);

  ChatText text_;
};

/// A part of a string, with what the string knows of it.
Value cut(const Value& string, std::size_t begin, std::size_t size, Budget& budget);
/// A string that was made of others in a way that no bytes of it can be told apart: all of it comes from a value if any
/// of `origins` does.
Value made_of(Value result, std::initializer_list<const Value*> origins);
Value made_of(Value result, const Value& origin, const Arguments& arguments);
/// `change` of each part of the text that comes from one value, or from none: for changes of single characters.
ChatText changed_parts(const ChatText& text, const std::function<std::string(std::string_view)>& change,
                       Budget& budget);

/// Python's name of the type, for messages.
std::string type_name(const Value& value);
bool truth(const Value& value);
bool equal(const Value& a, const Value& b, Budget& budget);
/// Negative, zero or positive. Throws Fault for values that Python does not order.
int compare(const Value& a, const Value& b, Budget& budget);
/// `item in container`.
bool contains(const Value& container, const Value& item, Budget& budget);
/// What a for loop walks over: elements, keys, characters. Throws Fault for what is not iterable.
Values elements(const Value& value, Budget& budget);
/// len(). Throws Fault for what has none.
std::size_t length(const Value& value, Budget& budget);

/// str() and repr(). Throws Fault for what has no text that a prompt could contain.
std::string to_text(const Value& value, Budget& budget);
ChatText traced_text(const Value& value, Budget& budget);
ChatText representation(const Value& value, Budget& budget);
std::string number_text(double value);

/// json.dumps as Transformers calls it. `indent` < 0: on one line.
struct JsonStyle {
  int indent = -1;  // how often `indent_text` stands there for one level
  std::string indent_text = " ";
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ascii = false;
  bool sort_keys = false;
};
ChatText to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace baton::jinja
