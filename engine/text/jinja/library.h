// SPDX-License-Identifier: Apache-2.0
// What templates can call: operators, members, methods, filters, tests and functions, with Python's and Jinja's
// meaning. All throw Fault.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja/value.h"

namespace baton::jinja {

bool is_filter(std::string_view name);
bool is_test(std::string_view name);
Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments, Budget& budget);
bool apply_test(std::string_view name, const Value& value, const Arguments& arguments, Budget& budget);

/// +, -, *, /, //, %, **.
Value binary(std::string_view operation, const Value& a, const Value& b, Budget& budget);
Value negative(const Value& value);

/// value.name
Value member_of(const Value& value, const std::string& name, Budget& budget);
/// value[key]
Value element_of(const Value& value, const Value& key, Budget& budget);
/// value[from:to:step]; none: left out.
Value slice_of(const Value& value, const Value& from, const Value& to, const Value& step, Budget& budget);

/// The method of a string, or an undefined value when Python's str has none of this name.
Value string_method(const Value& text, const std::string& name, Budget& budget);

/// range, dict, joiner, raise_exception, strftime_now; an undefined value for other names. namespace() is the
/// renderer's. `local_seconds`: what strftime_now shows (ChatOptions::local_seconds).
Value global_function(const std::string& name, std::int64_t local_seconds, Budget& budget);

/// Arguments of a call by the names of the parameters. Throws Fault for too many, unknown or repeated ones.
class Parameters {
 public:
  Parameters(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names);

  const Value* operator[](std::size_t index) const { return values_[index]; }
  /// nullptr when it is missing or none.
  const Value* given(std::size_t index) const;
  const Value& required(std::size_t index) const;
  std::int64_t integer(std::size_t index, std::int64_t otherwise) const;
  bool flag(std::size_t index, bool otherwise) const;
  const std::string& text(std::size_t index) const;  // must be there and a string

 private:
  std::string function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

// Python's functions on texts. They spend what they touch.
std::string upper(const std::string& text, Budget& budget);
std::string lower(const std::string& text, Budget& budget);
std::string capitalized(const std::string& text, Budget& budget);
/// Jinja's filter "title", which cuts words elsewhere than str.title() does.
std::string title_words(const std::string& text, Budget& budget);
/// `string` without the characters of `characters` (nullptr: spaces) at the ends.
Value stripped(const Value& string, const std::string* characters, bool left, bool right, Budget& budget);
ChatText with_replacements(const ChatText& text, const std::string& old_text, const ChatText& new_text,
                           std::int64_t most, Budget& budget);
/// The lines of a text, by their first byte and size. `keep_ends`: each line holds what ends it.
std::vector<std::pair<std::size_t, std::size_t>> lines_of(const std::string& text, Budget& budget,
                                                          bool keep_ends = false);
/// As the filter "escape" writes HTML; a safe text as it is.
ChatText escaped(const Value& value, Budget& budget);
/// `text` between blanks, or other characters of one byte, that make it `width` characters long. Python's str.center,
/// ljust (`left` is false) and rjust (`right` is false).
std::string centered(const std::string& text, std::int64_t width, char fill, bool left, bool right, Budget& budget);

// Python's formats.
/// format % values.
ChatText percent_formatted(const std::string& format, const Value& values, Budget& budget);
/// format.format(arguments), without members and elements of the values.
ChatText brace_formatted(const std::string& format, const Arguments& arguments, Budget& budget);
/// strftime in English. `local_seconds`: since 1970-01-01 00:00 of the same clock.
std::string date_text(const std::string& format, std::int64_t local_seconds, Budget& budget);

}  // namespace baton::jinja
