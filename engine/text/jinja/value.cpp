// SPDX-License-Identifier: Apache-2.0
#include "engine/text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/errors.h"
#include "engine/base/json/json_parts.h"
#include "engine/base/utf8.h"

namespace baton::jinja {
namespace {

int depth_of(const Value& value) {
  if (const SequenceValue* sequence = value.as_sequence()) return sequence->depth;
  if (const Dict* dict = value.as_dict()) return dict->depth;
  return 0;
}

int checked_depth(int deepest_inside) {
  if (deepest_inside >= kMaxValueDepth) throw Fault("lists are nested too deeply");
  return deepest_inside + 1;
}

bool is_ordered_list(const SequenceValue& sequence) {
  return sequence.kind == SequenceKind::list || sequence.kind == SequenceKind::tuple;
}

[[noreturn]] void fail_undefined(const Value& value) { throw Fault(why_undefined(value)); }

}  // namespace

const Value* Arguments::named_value(std::string_view name) const {
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Value Value::undefined(std::string_view what) {
  constexpr std::size_t kMaxReason = 400;
  return Value(Data(Undefined{std::make_shared<const std::string>(beginning(what, kMaxReason)), false}));
}

Value Value::sequence(SequenceKind kind, Values items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, depth_of(item));
  const int depth = checked_depth(deepest);
  return Value(
      Data(std::shared_ptr<const SequenceValue>(std::make_shared<SequenceValue>(kind, std::move(items), depth))));
}

Value Value::dict(Dict dict) {
  int deepest = 0;
  for (const auto& [key, value] : dict.items) deepest = std::max({deepest, depth_of(key), depth_of(value)});
  dict.depth = checked_depth(deepest);
  return Value(Data(std::shared_ptr<const Dict>(std::make_shared<Dict>(std::move(dict)))));
}

void TextBuilder::add(std::string_view text, Budget& budget) {
  budget.spend_bytes(text.size());
  if (text_.text.size() + text.size() > kMaxStringBytes) throw Fault("a string becomes too long");
  text_.text += text;
}

void TextBuilder::add_span(const ValueSpan& span, Budget& budget) {
  if (span.begin == span.end) return;
  if (!text_.values.empty()) {
    ValueSpan& last = text_.values.back();
    const bool goes_on = last.is_verbatim == span.is_verbatim &&
                         (!span.is_verbatim || last.offset + (last.end - last.begin) == span.offset);
    if (last.end == span.begin && last.value == span.value && goes_on) {
      last.end = span.end;
      return;
    }
  }
  budget.spend(4);  // 40 bytes
  text_.values.push_back(span);
}

void TextBuilder::add(const ChatText& text, std::size_t begin, std::size_t size, Budget& budget) {
  const std::size_t at = text_.text.size(), end = begin + size;
  add(std::string_view(text.text).substr(begin, size), budget);
  auto span = std::partition_point(text.values.begin(), text.values.end(),
                                   [&](const ValueSpan& one) { return one.end <= begin; });
  for (; span != text.values.end() && span->begin < end; ++span) {
    budget.spend(1);
    ValueSpan kept = *span;
    kept.begin = std::max(kept.begin, begin);
    kept.end = std::min(kept.end, end);
    kept.offset += kept.begin - span->begin;
    kept.begin = kept.begin - begin + at;
    kept.end = kept.end - begin + at;
    add_span(kept, budget);
  }
}

void TextBuilder::add_value(const Value& value, Budget& budget) {
  if (value.is_undefined()) return;
  if (value.is_string()) return add(traced(value), budget);
  add(representation(value, budget), budget);
}

void TextBuilder::add_changed(std::string_view text, std::size_t value, Budget& budget) {
  const std::size_t at = text_.text.size();
  add(text, budget);
  add_span({at, at + text.size(), value, 0, false}, budget);
}

Value cut(const Value& string, std::size_t begin, std::size_t size, Budget& budget) {
  const ChatText& text = traced(string);
  if (begin == 0 && size == text.text.size()) return string;
  if (text.values.empty()) {
    budget.spend_bytes(size);
    return Value(text.text.substr(begin, size), string.is_safe());
  }
  TextBuilder part;
  part.add(text, begin, size, budget);
  return Value(part.take(), string.is_safe());
}

namespace {

const ValueSpan* first_span(const Value& value) {
  return value.is_string() && !traced(value).values.empty() ? &traced(value).values.front() : nullptr;
}

Value marked(Value result, const ValueSpan* from) {
  if (from == nullptr || !result.is_string() || result.text().empty() || !traced(result).values.empty()) return result;
  ChatText text = traced(result);
  text.values.push_back({0, text.text.size(), from->value, 0, false});
  return Value(std::move(text), result.is_safe());
}

}  // namespace

Value made_of(Value result, std::initializer_list<const Value*> origins) {
  const ValueSpan* from = nullptr;
  for (const Value* origin : origins) from = from ? from : first_span(*origin);
  return marked(std::move(result), from);
}

Value made_of(Value result, const Value& origin, const Arguments& arguments) {
  const ValueSpan* from = first_span(origin);
  for (const Value& argument : arguments.positional) from = from ? from : first_span(argument);
  for (const auto& argument : arguments.named) from = from ? from : first_span(argument.second);
  return marked(std::move(result), from);
}

ChatText changed_parts(const ChatText& text, const std::function<std::string(std::string_view)>& change,
                       Budget& budget) {
  const std::string_view all = text.text;
  if (text.values.empty()) return {change(all)};
  TextBuilder out;
  std::size_t at = 0;
  for (const ValueSpan& span : text.values) {
    if (at < span.begin) out.add(change(all.substr(at, span.begin - at)), budget);
    const std::string_view part = all.substr(span.begin, span.end - span.begin);
    const std::string changed = change(part);
    if (changed == part) {
      out.add(text, span.begin, part.size(), budget);
    } else {
      out.add_changed(changed, span.value, budget);
    }
    at = span.end;
  }
  if (at < all.size()) out.add(change(all.substr(at)), budget);
  return out.take();
}

const SequenceValue* Value::as_sequence() const {
  const auto* pointer = get<std::shared_ptr<const SequenceValue>>();
  return pointer == nullptr ? nullptr : pointer->get();
}

const Dict* Value::as_dict() const {
  const auto* pointer = get<std::shared_ptr<const Dict>>();
  return pointer == nullptr ? nullptr : pointer->get();
}

bool Value::is_number() const { return get<bool>() || get<std::int64_t>() || get<double>(); }

double Value::number() const {
  std::int64_t storage = 0;
  if (const auto* whole = integer(storage)) return static_cast<double>(*whole);
  return *get<double>();
}

const std::int64_t* Value::integer(std::int64_t& storage) const {
  if (const bool* flag = get<bool>()) {
    storage = *flag ? 1 : 0;
    return &storage;
  }
  return get<std::int64_t>();
}

const Value* Dict::find(const Value& key, Budget& budget) const {
  for (const auto& [known, value] : items) {
    if (equal(known, key, budget)) return &value;
  }
  return nullptr;
}

void Dict::set(Value key, Value value, Budget& budget) {
  if (key.as_dict() || (key.as_sequence() && key.as_sequence()->kind == SequenceKind::list)) {
    throw Fault(fmt::format("a {} cannot be the key of a dict", type_name(key)));
  }
  if (const Value* old = find(key, budget)) {
    *const_cast<Value*>(old) = std::move(value);
  } else {
    items.emplace_back(std::move(key), std::move(value));
  }
}

std::string type_name(const Value& value) {
  if (value.is_undefined()) return "undefined value";
  if (value.is_none()) return "None";
  if (value.get<bool>()) return "bool";
  if (value.get<std::int64_t>()) return "int";
  if (value.get<double>()) return "float";
  if (value.is_string()) return "str";
  if (value.as_dict()) return "dict";
  if (const SequenceValue* sequence = value.as_sequence()) {
    if (sequence->kind == SequenceKind::list) return "list";
    if (sequence->kind == SequenceKind::tuple) return "tuple";
    if (sequence->kind == SequenceKind::range) return "range";
    return sequence->kind == SequenceKind::view ? "view" : "generator";
  }
  if (value.get<std::shared_ptr<const Loop>>()) return "loop";
  return value.get<std::shared_ptr<Namespace>>() ? "namespace" : "function";
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_number()) return value.number() != 0.0;
  if (value.is_string()) return !value.text().empty();
  if (const Dict* dict = value.as_dict()) return !dict->items.empty();
  if (const SequenceValue* sequence = value.as_sequence()) {
    return sequence->kind == SequenceKind::generator || !sequence->items.empty();
  }
  return true;
}

void Budget::fail() const {
  if (effort_.stop_requested()) throw Interrupted();
  throw Fault("the template does not end within its limit of steps");
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.spend(1);
  if (a.is_number() && b.is_number()) {
    std::int64_t x = 0, y = 0;
    const auto *whole_a = a.integer(x), *whole_b = b.integer(y);
    return whole_a && whole_b ? *whole_a == *whole_b : a.number() == b.number();
  }
  const auto *undefined_a = a.get<Undefined>(), *undefined_b = b.get<Undefined>();
  if (undefined_a && undefined_b) return !undefined_a->equals_none && !undefined_b->equals_none;
  if (a.is_none()) return b.is_none();
  if (a.is_string() && b.is_string()) {
    budget.spend_bytes(std::min(a.text().size(), b.text().size()));
    return a.text() == b.text();
  }
  const SequenceValue *list_a = a.as_sequence(), *list_b = b.as_sequence();
  if (list_a && list_b) {
    if (list_a == list_b) return true;
    if (!is_ordered_list(*list_a) || !is_ordered_list(*list_b)) throw Fault("comparing views is not supported");
    return list_a->kind == list_b->kind &&
           std::equal(list_a->items.begin(), list_a->items.end(), list_b->items.begin(), list_b->items.end(),
                      [&](const Value& x, const Value& y) { return equal(x, y, budget); });
  }
  const Dict *dict_a = a.as_dict(), *dict_b = b.as_dict();
  if (dict_a && dict_b) {
    if (dict_a->items.size() != dict_b->items.size()) return false;
    return std::all_of(dict_a->items.begin(), dict_a->items.end(), [&](const auto& item) {
      const Value* other = dict_b->find(item.first, budget);
      return other != nullptr && equal(item.second, *other, budget);
    });
  }
  if (const auto* x = a.get<std::shared_ptr<Namespace>>(), *y = b.get<std::shared_ptr<Namespace>>(); x && y) {
    return *x == *y;
  }
  if (const auto* x = a.get<std::shared_ptr<const Callable>>(), *y = b.get<std::shared_ptr<const Callable>>(); x && y) {
    return *x == *y;
  }
  return false;
}

int compare(const Value& a, const Value& b, Budget& budget) {
  budget.spend(1);
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.is_number() && b.is_number()) {
    std::int64_t x = 0, y = 0;
    const auto *whole_a = a.integer(x), *whole_b = b.integer(y);
    if (whole_a && whole_b) return *whole_a < *whole_b ? -1 : *whole_a > *whole_b;
    if (std::isnan(a.number()) || std::isnan(b.number())) throw Fault("comparing with NaN is not supported");
    return a.number() < b.number() ? -1 : a.number() > b.number();
  }
  if (a.is_string() && b.is_string()) {
    budget.spend_bytes(std::min(a.text().size(), b.text().size()));
    return a.text().compare(b.text());  // UTF-8 sorts in the order of its code points
  }
  const SequenceValue *list_a = a.as_sequence(), *list_b = b.as_sequence();
  if (list_a && list_b && list_a->kind == list_b->kind && is_ordered_list(*list_a)) {
    for (std::size_t i = 0; i < std::min(list_a->items.size(), list_b->items.size()); ++i) {
      if (!equal(list_a->items[i], list_b->items[i], budget))
        return compare(list_a->items[i], list_b->items[i], budget);
    }
    return list_a->items.size() < list_b->items.size() ? -1 : list_a->items.size() > list_b->items.size();
  }
  throw Fault(fmt::format("{} and {} have no order", type_name(a), type_name(b)));
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.is_string()) {
    if (item.is_undefined()) fail_undefined(item);
    if (!item.is_string()) throw Fault(fmt::format("a {} cannot be in a str", type_name(item)));
    budget.spend_bytes(container.text().size() + 2 * item.text().size());
    return StringSearch(item.text()).find(container.text()) != std::string::npos;
  }
  if (const Dict* dict = container.as_dict()) return dict->find(item, budget) != nullptr;
  const Values items = elements(container, budget);
  return std::any_of(items.begin(), items.end(), [&](const Value& x) { return equal(x, item, budget); });
}

Values elements(const Value& value, Budget& budget) {
  Values out;
  if (value.is_undefined()) return out;
  if (const SequenceValue* sequence = value.as_sequence()) {
    budget.spend(sequence->items.size());
    if (sequence->kind != SequenceKind::generator) return sequence->items;
    if (std::exchange(sequence->used_up, true)) return out;
    return sequence->items;
  }
  if (const Dict* dict = value.as_dict()) {
    budget.spend(dict->items.size());
    for (const auto& [key, unused] : dict->items) out.push_back(key);
    return out;
  }
  if (value.is_string()) {
    const std::string& text = value.text();
    const Value plain = value.is_safe() ? Value(traced(value), false) : value;
    budget.spend(text.size());
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t bytes = utf8::at(text, i).bytes;
      if (traced(value).values.empty()) {
        out.emplace_back(text.substr(i, bytes));
      } else {
        out.push_back(cut(plain, i, bytes, budget));
      }
      i += bytes;
    }
    return out;
  }
  throw Fault(fmt::format("a {} cannot be iterated over", type_name(value)));
}

std::size_t length(const Value& value, Budget& budget) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) {
    budget.spend_bytes(value.text().size());
    return utf8::count(value.text());
  }
  if (const Dict* dict = value.as_dict()) return dict->items.size();
  if (const SequenceValue* sequence = value.as_sequence(); sequence && sequence->kind != SequenceKind::generator) {
    return sequence->items.size();
  }
  throw Fault(fmt::format("a {} has no length", type_name(value)));
}

// Frees values without recursion: a template can build a chain of any length, for example of bound methods, and one
// destructor inside the other would use up the thread's stack.

namespace {

template <typename T>
std::shared_ptr<T>* sole_owner(Value::Data& data) {
  auto* pointer = std::get_if<std::shared_ptr<T>>(&data);
  return pointer != nullptr && pointer->use_count() == 1 ? pointer : nullptr;
}

void move_to(Values& pending, Value& value) {
  if (value.holds_values()) pending.push_back(std::move(value));
}

void move_to(Values& pending, Values& values) {
  for (Value& value : values) move_to(pending, value);
}

void move_to(Values& pending, std::vector<std::pair<Value, Value>>& items) {
  for (auto& [key, value] : items) {
    move_to(pending, key);
    move_to(pending, value);
  }
}

/// Frees values one after the other: what a value alone owns is moved out of it first. Shared objects are in the list
/// too, since the list may hold all that share them: [a, a] owns `a` with its last element alone.
void free_all(Values& pending) {
  while (!pending.empty()) {
    Value value = std::move(pending.back());
    pending.pop_back();
    value.give_up(pending);
  }
}

/// `owned`: the values of an object that is being destroyed.
template <typename Owned>
void free_owned(Owned& owned) noexcept {
  try {
    Values pending;
    move_to(pending, owned);
    free_all(pending);
  } catch (...) {  // no memory: the destructors free what is left
  }
}

}  // namespace

bool Value::holds_values() const {
  return std::visit(
      [](const auto& held) {
        if constexpr (requires { held.use_count(); }) return held != nullptr;
        return false;
      },
      data_);
}

void Value::give_up(Values& pending) {
  // A sole owner may change what it holds: nobody else can see it, and it was not made as a constant object.
  if (auto* sequence = sole_owner<const SequenceValue>(data_)) {
    move_to(pending, const_cast<SequenceValue&>(**sequence).items);
  } else if (auto* dict = sole_owner<const Dict>(data_)) {
    move_to(pending, const_cast<Dict&>(**dict).items);
  } else if (auto* loop = sole_owner<const Loop>(data_)) {
    move_to(pending, const_cast<Loop&>(**loop).items);
  } else if (auto* function = sole_owner<const Callable>(data_)) {
    move_to(pending, const_cast<Callable&>(**function).self);
  } else if (auto* space = sole_owner<Namespace>(data_)) {
    for (auto& [name, value] : (*space)->members) move_to(pending, value);
  }
}

SequenceValue::SequenceValue(SequenceKind of_kind, Values values, int nesting)
    : kind(of_kind), items(std::move(values)), depth(nesting) {}
SequenceValue::~SequenceValue() { free_owned(items); }

Dict::~Dict() { free_owned(items); }

Loop::Loop(Values values) : items(std::move(values)) {}
Loop::~Loop() { free_owned(items); }

Callable::Callable(std::string shown_name, Value bound, Call function)
    : name(std::move(shown_name)), self(std::move(bound)), call(std::move(function)) {}
Callable::~Callable() { free_owned(self); }

Value callable(std::string name, Callable::Call call) {
  return bound_method(std::move(name), Value(), std::move(call));
}

Value bound_method(std::string name, Value self, Callable::Call call) {
  return Value(Value::Data(
      std::shared_ptr<const Callable>(std::make_shared<Callable>(std::move(name), std::move(self), std::move(call)))));
}

}  // namespace baton::jinja
