// SPDX-License-Identifier: Apache-2.0
// The tests after the keyword "is".
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/text/jinja/library.h"

namespace baton::jinja {
namespace {

using Test = bool (*)(const Value&, const Arguments&, Budget&);

/// A test without arguments.
template <bool (*holds)(const Value&)>
bool plain(const Value& value, const Arguments& arguments, Budget&) {
  const Parameters none("this test", arguments, {});
  return holds(value);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_string(const Value& value) { return value.is_string(); }
bool is_mapping(const Value& value) { return value.as_dict() != nullptr; }
bool is_number(const Value& value) { return value.is_number(); }
bool is_integer(const Value& value) { return value.get<std::int64_t>() != nullptr; }
bool is_float(const Value& value) { return value.get<double>() != nullptr; }
bool is_boolean(const Value& value) { return value.get<bool>() != nullptr; }
bool is_true(const Value& value) { return value.get<bool>() && *value.get<bool>(); }
bool is_false(const Value& value) { return value.get<bool>() && !*value.get<bool>(); }
bool is_callable(const Value& value) { return value.get<std::shared_ptr<const Callable>>() != nullptr; }
bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.as_sequence() || value.as_dict() ||
         value.get<std::shared_ptr<const Loop>>();
}
bool is_sequence(const Value& value) {
  const SequenceValue* sequence = value.as_sequence();
  if (sequence && sequence->kind == SequenceKind::view) throw Fault("'is sequence' of a view is not supported");
  return value.is_undefined() || value.is_string() || value.as_dict() ||
         (sequence && sequence->kind != SequenceKind::generator);
}

template <int wanted_rest>
bool rest_of_two(const Value& value) {
  std::int64_t storage = 0;
  const auto* whole = value.integer(storage);
  if (whole == nullptr) throw Fault(fmt::format("a {} is neither odd nor even", type_name(value)));
  return (*whole % 2 != 0) == (wanted_rest == 1);
}

template <bool wants_upper>
bool has_case(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("this test", arguments, {});
  const std::string text = to_text(value, budget);
  const std::string in_upper = upper(text, budget), in_lower = lower(text, budget);
  return text == (wants_upper ? in_upper : in_lower) && in_upper != in_lower;
}

bool divisible_by(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("divisibleby", arguments, {"num"});
  return equal(binary("%", value, given.required(0), budget), Value(std::int64_t{0}), budget);
}

template <bool wanted>
bool equal_to(const Value& value, const Arguments& arguments, Budget& budget) {
  return equal(value, Parameters("this test", arguments, {"other"}).required(0), budget) == wanted;
}

/// Implements Python's "is" for singletons; for other values the result would depend on Python's object identity.
bool same_as(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters parameters("sameas", arguments, {"other"});
  const Value& other = parameters.required(0);
  const auto single = [](const Value& x) { return x.is_none() || x.get<bool>() != nullptr; };
  if (!single(value) && !single(other))
    throw Fault("sameas of other values than true, false and none is not supported");
  return type_name(value) == type_name(other) && equal(value, other, budget);
}

/// True when the order of the two values, -1, 0 or 1, is one of the given orders.
template <int first, int second>
bool ordered(const Value& value, const Arguments& arguments, Budget& budget) {
  const int order = compare(value, Parameters("this test", arguments, {"other"}).required(0), budget);
  const int sign = order < 0 ? -1 : order > 0;
  return sign == first || sign == second;
}

bool in(const Value& value, const Arguments& arguments, Budget& budget) {
  return contains(Parameters("in", arguments, {"seq"}).required(0), value, budget);
}

struct Named {
  std::string_view name;
  Test test;
};
constexpr std::array kTests = {
    Named{"!=", equal_to<false>},
    Named{"<", ordered<-1, -1>},
    Named{"<=", ordered<-1, 0>},
    Named{"==", equal_to<true>},
    Named{">", ordered<1, 1>},
    Named{">=", ordered<1, 0>},
    Named{"boolean", plain<is_boolean>},
    Named{"callable", plain<is_callable>},
    Named{"defined", plain<is_defined>},
    Named{"divisibleby", divisible_by},
    Named{"eq", equal_to<true>},
    Named{"equalto", equal_to<true>},
    Named{"even", plain<rest_of_two<0>>},
    Named{"false", plain<is_false>},
    Named{"float", plain<is_float>},
    Named{"ge", ordered<1, 0>},
    Named{"greaterthan", ordered<1, 1>},
    Named{"gt", ordered<1, 1>},
    Named{"in", in},
    Named{"integer", plain<is_integer>},
    Named{"iterable", plain<is_iterable>},
    Named{"le", ordered<-1, 0>},
    Named{"lessthan", ordered<-1, -1>},
    Named{"lower", has_case<false>},
    Named{"lt", ordered<-1, -1>},
    Named{"mapping", plain<is_mapping>},
    Named{"ne", equal_to<false>},
    Named{"none", plain<is_none>},
    Named{"number", plain<is_number>},
    Named{"odd", plain<rest_of_two<1>>},
    Named{"sameas", same_as},
    Named{"sequence", plain<is_sequence>},
    Named{"string", plain<is_string>},
    Named{"true", plain<is_true>},
    Named{"undefined", plain<is_undefined>},
    Named{"upper", has_case<true>},
};

const Named* find_test(std::string_view name) {
  const auto it = std::find_if(kTests.begin(), kTests.end(), [&](const Named& x) { return x.name == name; });
  return it == kTests.end() ? nullptr : &*it;
}

}  // namespace

bool is_test(std::string_view name) { return find_test(name) != nullptr; }

bool apply_test(std::string_view name, const Value& value, const Arguments& arguments, Budget& budget) {
  budget.spend(1);
  return find_test(name)->test(value, arguments, budget);
}

}  // namespace baton::jinja
