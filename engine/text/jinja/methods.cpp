// SPDX-License-Identifier: Apache-2.0
// The methods of Python's str, and the functions on texts that filters and methods share.
#include <fmt/format.h>

#include <utf8proc.h>
#include <algorithm>
#include <array>
#include <optional>

#include "engine/base/utf8.h"
#include "engine/text/jinja/library.h"
#include "engine/text/jinja/parser.h"
#include "engine/text/jinja/value.h"

namespace baton::jinja {
namespace {

constexpr std::array<std::string_view, 47> kPythonMethods = {
    "capitalize",   "casefold",   "center",    "count",       "encode",    "endswith",     "expandtabs",   "find",
    "format",       "format_map", "index",     "isalnum",     "isalpha",   "isascii",      "isdecimal",    "isdigit",
    "isidentifier", "islower",    "isnumeric", "isprintable", "isspace",   "istitle",      "isupper",      "join",
    "ljust",        "lower",      "lstrip",    "maketrans",   "partition", "removeprefix", "removesuffix", "replace",
    "rfind",        "rindex",     "rjust",     "rpartition",  "rsplit",    "rstrip",       "split",        "splitlines",
    "startswith",   "strip",      "swapcase",  "title",       "translate", "upper",        "zfill"};

/// Converts to upper or lower case, character by character. Where Python's result has several characters or depends on
/// the neighbours, the function throws instead of returning a different text.
std::string with_case(const std::string& text, bool to_upper, Budget& budget) {
  budget.spend_characters(text.size());
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto [c, bytes] = utf8::at(text, i);
    const auto code = static_cast<utf8proc_int32_t>(c);
    if (c >= 0x80) {
      std::array<utf8proc_int32_t, 8> folded{};
      int last_class = 0;
      const auto count = utf8proc_decompose_char(code, folded.data(), static_cast<utf8proc_ssize_t>(folded.size()),
                                                 UTF8PROC_CASEFOLD, &last_class);
      if (count > 1 || (!to_upper && c == 0x3A3)) throw Fault("the other case of this character is not supported");
    }
    utf8::append(out, static_cast<char32_t>(to_upper ? utf8proc_toupper(code) : utf8proc_tolower(code)));
    i += bytes;
  }
  return out;
}

bool is_cased(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

/// Implements str.title(): a letter after a letter becomes lower case, any other letter upper case.
std::string titled(const std::string& text, Budget& budget) {
  std::string out;
  bool after_letter = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::string character = text.substr(i, utf8::at(text, i).bytes);
    out += with_case(character, !after_letter, budget);
    after_letter = is_cased(utf8::at(text, i).value);
    i += character.size();
  }
  return out;
}

Values split_at_spaces(const Value& string, std::int64_t most, Budget& budget) {
  const std::string& text = string.text();
  budget.spend_characters(2 * text.size());
  Values out;
  for (std::size_t i = 0; i < text.size();) {
    if (is_python_space(utf8::at(text, i).value)) {
      i += utf8::at(text, i).bytes;
      continue;
    }
    if (most >= 0 && static_cast<std::int64_t>(out.size()) == most) {
      out.push_back(cut(string, i, text.size() - i, budget));
      break;
    }
    const std::size_t begin = i;
    while (i < text.size() && !is_python_space(utf8::at(text, i).value)) i += utf8::at(text, i).bytes;
    out.push_back(cut(string, begin, i - begin, budget));
  }
  return out;
}

Values split_at(const Value& string, const std::string& separator, std::int64_t most, Budget& budget) {
  const std::string& text = string.text();
  if (separator.empty()) throw Fault("an empty separator");
  budget.spend_bytes(2 * (text.size() + separator.size()));
  const StringSearch search(separator);
  Values out;
  std::size_t begin = 0;
  for (std::size_t at = 0; (most < 0 || static_cast<std::int64_t>(out.size()) < most) &&
                           (at = search.find(text, begin)) != std::string::npos;) {
    budget.spend(1);
    out.push_back(cut(string, begin, at - begin, budget));
    begin = at + separator.size();
  }
  out.push_back(cut(string, begin, text.size() - begin, budget));
  return out;
}

Values split_from_right(const Value& string, const std::string& separator, std::int64_t most, Budget& budget) {
  if (separator.empty()) throw Fault("an empty separator");
  budget.spend_bytes(2 * (string.text().size() + separator.size()));
  const StringSearch search(separator);
  Values out;
  std::string_view rest = string.text();
  while (most < 0 || static_cast<std::int64_t>(out.size()) < most) {
    const std::size_t at = search.rfind(rest);
    if (at == std::string_view::npos) break;
    budget.spend(1);
    out.push_back(cut(string, at + separator.size(), rest.size() - at - separator.size(), budget));
    rest = rest.substr(0, at);
  }
  out.push_back(cut(string, 0, rest.size(), budget));
  std::reverse(out.begin(), out.end());
  return out;
}

bool begins_or_ends(const std::string& text, const Value& wanted, bool begins, Budget& budget) {
  budget.spend(1);
  if (const SequenceValue* several = wanted.as_sequence(); several && several->kind == SequenceKind::tuple) {
    return std::any_of(several->items.begin(), several->items.end(),
                       [&](const Value& one) { return begins_or_ends(text, one, begins, budget); });
  }
  if (!wanted.is_string()) throw Fault(fmt::format("startswith and endswith need a str, not a {}", type_name(wanted)));
  budget.spend_bytes(std::min(text.size(), wanted.text().size()));
  return begins ? text.starts_with(wanted.text()) : text.ends_with(wanted.text());
}

std::int64_t characters_before(const std::string& text, std::size_t at, Budget& budget) {
  budget.spend_bytes(text.size());
  return at == std::string::npos ? -1 : static_cast<std::int64_t>(length(Value(text.substr(0, at)), budget));
}

std::int64_t occurrences(const std::string& text, const std::string& wanted, Budget& budget) {
  if (wanted.empty()) throw Fault("counting an empty str is not supported");
  budget.spend_bytes(2 * (text.size() + wanted.size()));
  const StringSearch search(wanted);
  std::int64_t count = 0;
  for (std::size_t at = 0; (at = search.find(text, at)) != std::string::npos; at += wanted.size()) {
    budget.spend(1);
    ++count;
  }
  return count;
}

bool all_digits(const std::string& text) {
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0x80; })) {
    throw Fault("isdigit of other than ASCII is not supported");
  }
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Value partition(const Value& string, const Value& separator, bool from_right, Budget& budget) {
  const std::string& text = string.text();
  const std::string& mark = separator.text();
  if (mark.empty()) throw Fault("an empty separator");
  budget.spend_bytes(2 * (text.size() + mark.size()));
  const StringSearch search(mark);
  const std::size_t at = from_right ? search.rfind(text) : search.find(text);
  const Value none("", string.is_safe());
  if (at == std::string::npos) {
    return Value::sequence(SequenceKind::tuple, from_right ? Values{none, none, string} : Values{string, none, none});
  }
  const std::size_t end = at + mark.size();
  return Value::sequence(SequenceKind::tuple, {cut(string, 0, at, budget), cut(string, at, mark.size(), budget),
                                               cut(string, end, text.size() - end, budget)});
}

ChatText joined(const Value& separator, const Value& parts, Budget& budget) {
  TextBuilder out;
  bool first = true;
  for (const Value& part : elements(parts, budget)) {
    if (!part.is_string()) throw Fault(fmt::format("join needs str, not {}", type_name(part)));
    if (part.is_safe()) throw Fault("join of a safe string is not supported");
    if (!first) out.add_value(separator, budget);
    first = false;
    out.add_value(part, budget);
  }
  return out.take();
}

/// Where a method's arguments "start" and "end" lie.
struct Part {
  std::string text;
  std::int64_t begin = 0;  // in characters
  bool is_beyond = false;  // begins behind the text
};

Part part_of(const std::string& text, const Parameters& given, std::size_t first, Budget& budget) {
  if (!given.given(first) && !given.given(first + 1)) return {text};
  const Value whole(text), none;
  const Value from = given.given(first) ? *given[first] : none, to = given.given(first + 1) ? *given[first + 1] : none;
  const auto size = static_cast<std::int64_t>(length(whole, budget));
  const std::int64_t begin = given.integer(first, 0);
  return {slice_of(whole, from, to, none, budget).text(), begin < 0 ? std::max<std::int64_t>(begin + size, 0) : begin,
          begin > size};
}

Value place_in(const std::string& text, const std::string& name, const Arguments& arguments, Budget& budget) {
  const Parameters given(name, arguments, {"sub", "start", "end"});
  const Part part = part_of(text, given, 1, budget);
  budget.spend_bytes(2 * (part.text.size() + given.text(0).size()));
  const StringSearch search(given.text(0));
  const bool from_right = name == "rfind" || name == "rindex";
  const std::size_t at = part.is_beyond ? std::string::npos
                         : from_right   ? search.rfind(part.text)
                                        : search.find(part.text);
  if (at == std::string::npos && name.ends_with("index")) throw Fault("the str does not hold the other one");
  const std::int64_t before = characters_before(part.text, at, budget);
  return before < 0 ? before : part.begin + before;
}

/// isalpha() and its like: whether each character is of a kind. Nothing for other names.
std::optional<bool> has_kind(const std::string& text, const std::string& name, Budget& budget) {
  static constexpr std::array<std::string_view, 8> kNames = {"isalnum", "isalpha",   "isascii", "isdecimal",
                                                             "islower", "isnumeric", "isspace", "isupper"};
  if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) return std::nullopt;
  budget.spend_characters(text.size());
  bool any = false, all = true;
  for (std::size_t i = 0; i < text.size();) {
    const auto [c, bytes] = utf8::at(text, i);
    i += bytes;
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    const bool letter = is_cased(c) || category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_LO;
    const bool numeric =
        category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
    if (name == "islower" || name == "isupper") {
      if (is_cased(c) && c >= 0x80 && category == UTF8PROC_CATEGORY_LT) return false;
      any = any || is_cased(c);
      all = all && (!is_cased(c) || (category == UTF8PROC_CATEGORY_LU) == (name == "isupper"));
      continue;
    }
    if (name == "isnumeric" && c >= 0x80 && letter) throw Fault("isnumeric of this character is not supported");
    any = true;
    all = all && (name == "isalpha"     ? letter
                  : name == "isalnum"   ? letter || numeric
                  : name == "isascii"   ? c < 0x80
                  : name == "isdecimal" ? category == UTF8PROC_CATEGORY_ND
                  : name == "isnumeric" ? numeric
                                        : is_python_space(c));
  }
  return all && (any || name == "isascii");
}

std::string with_swapped_case(const std::string& text, Budget& budget) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::string character = text.substr(i, utf8::at(text, i).bytes);
    const bool is_upper =
        utf8proc_category(static_cast<utf8proc_int32_t>(utf8::at(text, i).value)) == UTF8PROC_CATEGORY_LU;
    out += with_case(character, !is_upper, budget);
    i += character.size();
  }
  return out;
}

std::string filled_with_zeros(const std::string& text, std::int64_t width, Budget& budget) {
  const bool sign = text.starts_with('+') || text.starts_with('-');
  const std::string digits = text.substr(sign ? 1 : 0);
  return text.substr(0, sign ? 1 : 0) + centered(digits, width - (sign ? 1 : 0), '0', true, false, budget);
}

/// Applies a method that gives a text; nothing for other methods.
std::optional<Value> changed(const Value& self, const std::string& name, const Arguments& arguments, Budget& budget) {
  const std::string& text = self.text();
  const auto none = [&] { return Parameters(name, arguments, {}); };
  const auto made = [&](std::string out) { return made_of(Value(std::move(out), self.is_safe()), self, arguments); };
  if (name == "upper") return none(), made(upper(text, budget));
  if (name == "lower") return none(), made(lower(text, budget));
  if (name == "title") return none(), made(titled(text, budget));
  if (name == "capitalize") return none(), made(capitalized(text, budget));
  if (name == "swapcase") return none(), made(with_swapped_case(text, budget));
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Parameters given(name, arguments, {"chars"});
    const std::string* characters = given.given(0) ? &given.text(0) : nullptr;
    return stripped(self, characters, name != "rstrip", name != "lstrip", budget);
  }
  if (name == "center" || name == "ljust" || name == "rjust") {
    const Parameters given(name, arguments, {"width", "fillchar"});
    const std::string fill = given[1] ? given.text(1) : " ";
    given.required(0);
    if (fill.size() != 1) throw Fault(fmt::format("{} with this character is not supported", name));
    return made(centered(text, given.integer(0, 0), fill[0], name != "ljust", name != "rjust", budget));
  }
  if (name == "zfill") {
    const Parameters given(name, arguments, {"width"});
    given.required(0);
    return made(filled_with_zeros(text, given.integer(0, 0), budget));
  }
  if (name == "replace") {
    const Parameters given(name, arguments, {"old", "new", "count"});
    const ChatText with = self.is_safe() ? escaped(Value(given.text(1)), budget) : (given.text(1), traced(*given[1]));
    return Value(with_replacements(traced(self), given.text(0), with, given.integer(2, -1), budget), self.is_safe());
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const Parameters parameters(name, arguments, {"affix"});
    const std::string& affix = parameters.text(0);
    const bool in_front = name == "removeprefix";
    if (!(in_front ? text.starts_with(affix) : text.ends_with(affix))) return self;
    return cut(self, in_front ? affix.size() : 0, text.size() - affix.size(), budget);
  }
  if (name == "join") return Value(joined(self, Parameters(name, arguments, {"iterable"}).required(0), budget), false);
  if (name == "format") return made_of(Value(brace_formatted(text, arguments, budget), false), {&self});
  return std::nullopt;
}

/// Applies a method of `text` that gives a number or a truth value.
Value asked(const std::string& text, const std::string& name, const Arguments& arguments, Budget& budget) {
  if (name == "startswith" || name == "endswith") {
    const Parameters given(name, arguments, {"prefix", "start", "end"});
    return begins_or_ends(part_of(text, given, 1, budget).text, given.required(0), name == "startswith", budget);
  }
  if (name == "count") {
    const Parameters given(name, arguments, {"sub", "start", "end"});
    return occurrences(part_of(text, given, 1, budget).text, given.text(0), budget);
  }
  if (name == "isdigit") {
    const Parameters none(name, arguments, {});
    budget.spend_bytes(4 * text.size());
    return all_digits(text);
  }
  if (const auto kind = has_kind(text, name, budget)) {
    const Parameters none(name, arguments, {});
    return *kind;
  }
  return place_in(text, name, arguments, budget);
}

/// Applies a method that gives a list or a tuple of texts; nothing for other methods.
std::optional<Value> parts_of(const Value& self, const std::string& name, const Arguments& arguments, Budget& budget) {
  const auto list = [](Values items) { return Value::sequence(SequenceKind::list, std::move(items)); };
  if (name == "split" || name == "rsplit") {
    const Parameters given(name, arguments, {"sep", "maxsplit"});
    const std::int64_t most = given.integer(1, -1);
    if (given.given(0)) {
      return list(name == "split" ? split_at(self, given.text(0), most, budget)
                                  : split_from_right(self, given.text(0), most, budget));
    }
    if (name == "rsplit" && most >= 0) throw Fault("rsplit at spaces with a limit is not supported");
    return list(split_at_spaces(self, most, budget));
  }
  if (name == "splitlines") {
    const bool keep_ends = Parameters(name, arguments, {"keepends"}).flag(0, false);
    Values lines;
    for (const auto& [begin, size] : lines_of(self.text(), budget, keep_ends))
      lines.push_back(cut(self, begin, size, budget));
    return list(std::move(lines));
  }
  if (name == "partition" || name == "rpartition") {
    const Parameters given(name, arguments, {"sep"});
    given.text(0);  // a str
    return partition(self, *given[0], name == "rpartition", budget);
  }
  return std::nullopt;
}

/// Applies a method of a text. What a safe text gives is safe, and what is put into it is escaped.
Value call_method(const Value& self, const std::string& name, const Arguments& arguments, Budget& budget) {
  budget.spend_bytes(self.text().size());  // for copies of it
  if (self.is_safe() && (name == "format" || name == "join"))
    throw Fault(fmt::format("{} of a safe string is not supported", name));
  if (std::optional<Value> out = changed(self, name, arguments, budget)) return std::move(*out);
  if (std::optional<Value> parts = parts_of(self, name, arguments, budget)) return std::move(*parts);
  return asked(self.text(), name, arguments, budget);
}

constexpr std::array<std::string_view, 38> kMethods = {
    "capitalize", "center",  "count",     "endswith",   "find",      "format",       "index",        "isalnum",
    "isalpha",    "isascii", "isdecimal", "isdigit",    "islower",   "isnumeric",    "isspace",      "isupper",
    "join",       "ljust",   "lower",     "lstrip",     "partition", "removeprefix", "removesuffix", "replace",
    "rfind",      "rindex",  "rjust",     "rpartition", "rsplit",    "rstrip",       "split",        "splitlines",
    "startswith", "strip",   "swapcase",  "title",      "upper",     "zfill"};

}  // namespace

std::string upper(const std::string& text, Budget& budget) { return with_case(text, true, budget); }
std::string lower(const std::string& text, Budget& budget) { return with_case(text, false, budget); }

std::string capitalized(const std::string& text, Budget& budget) {
  if (text.empty()) return text;
  const std::size_t first = utf8::at(text, 0).bytes;
  return upper(text.substr(0, first), budget) + lower(text.substr(first), budget);
}

std::string title_words(const std::string& text, Budget& budget) {
  budget.spend_characters(text.size());
  std::string out, word;
  const auto flush = [&] {
    out += capitalized(word, budget);
    word.clear();
  };
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view character = std::string_view(text).substr(i, utf8::at(text, i).bytes);
    const bool begins =
        std::string_view("-({[<").find(character) != std::string_view::npos || is_python_space(utf8::at(text, i).value);
    if (begins) {
      flush();
      out += character;
    } else {
      word += character;
    }
    i += character.size();
  }
  flush();
  return out;
}

Value stripped(const Value& string, const std::string* characters, bool left, bool right, Budget& budget) {
  const std::string& text = string.text();
  const auto goes = [&](std::size_t at) {
    const auto [c, bytes] = utf8::at(text, at);
    budget.spend(1 + (characters == nullptr ? 0 : characters->size() / 16));
    if (characters == nullptr) return is_python_space(c);
    // In valid UTF-8, whole characters are never found across character boundaries.
    return characters->find(text.substr(at, bytes)) != std::string::npos;
  };
  std::size_t begin = 0, end = text.size();
  while (left && begin < end && goes(begin)) begin += utf8::at(text, begin).bytes;
  while (right && end > begin && goes(utf8::before(text, end))) end = utf8::before(text, end);
  budget.spend_bytes(end - begin);
  return cut(string, begin, end - begin, budget);
}

ChatText with_replacements(const ChatText& text, const std::string& old_text, const ChatText& new_text,
                           std::int64_t most, Budget& budget) {
  const std::string& all = text.text;
  TextBuilder out;
  budget.spend_bytes(2 * (all.size() + old_text.size()));
  const StringSearch search(old_text);
  std::size_t begin = 0;
  for (; most != 0; --most) {
    const std::size_t at = search.find(all, begin);
    if (at == std::string::npos || (old_text.empty() && at == all.size())) break;
    if (old_text.empty()) {  // before every character
      out.add(new_text, budget);
      const std::size_t bytes = utf8::at(all, at).bytes;
      out.add(text, at, bytes, budget);
      begin = at + bytes;
    } else {
      out.add(text, begin, at - begin, budget);
      out.add(new_text, budget);
      begin = at + old_text.size();
    }
  }
  out.add(text, begin, all.size() - begin, budget);
  if (old_text.empty() && most != 0) out.add(new_text, budget);
  return out.take();
}

std::vector<std::pair<std::size_t, std::size_t>> lines_of(const std::string& text, Budget& budget, bool keep_ends) {
  budget.spend_characters(2 * text.size());
  std::vector<std::pair<std::size_t, std::size_t>> out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto [c, bytes] = utf8::at(text, i);
    const std::size_t line_end = i;
    i += bytes;
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    budget.spend(2);
    out.emplace_back(begin, (keep_ends ? i : line_end) - begin);
    begin = i;
  }
  if (begin < text.size()) out.emplace_back(begin, text.size() - begin);
  return out;
}

ChatText escaped(const Value& value, Budget& budget) {
  ChatText text = traced_text(value, budget);
  if (value.is_safe()) return text;
  budget.spend_characters(text.text.size());
  ChatText out = changed_parts(
      text,
      [](std::string_view part) {
        std::string html;
        for (const char c : part) {
          if (c == '&') {
            html += "&amp;";
          } else if (c == '<') {
            html += "&lt;";
          } else if (c == '>') {
            html += "&gt;";
          } else if (c == '"') {
            html += "&#34;";
          } else if (c == '\'') {
            html += "&#39;";
          } else {
            html += c;
          }
        }
        return html;
      },
      budget);
  if (out.text.size() > kMaxStringBytes) throw Fault("a string becomes too long");
  return out;
}

std::string centered(const std::string& text, std::int64_t width, char fill, bool left, bool right, Budget& budget) {
  const auto size = static_cast<std::int64_t>(length(Value(text), budget));
  if (width <= size) return text;
  if (width > static_cast<std::int64_t>(kMaxStringBytes)) throw Fault("a string becomes too long");
  const auto missing = static_cast<std::size_t>(width - size);
  budget.spend_bytes(text.size() + missing);
  // Python puts the odd character in front if the width is odd.
  const std::size_t before = !left    ? 0
                             : !right ? missing
                                      : missing / 2 + (missing & static_cast<std::size_t>(width) & 1);
  return std::string(before, fill) + text + std::string(missing - before, fill);
}

Value string_method(const Value& text, const std::string& name, Budget& budget) {
  if (std::find(kMethods.begin(), kMethods.end(), name) == kMethods.end()) {
    if (std::find(kPythonMethods.begin(), kPythonMethods.end(), name) != kPythonMethods.end()) {
      throw Fault(fmt::format("the method '{}' of a str is not supported", name));
    }
    return Value::undefined(fmt::format("the str has no member '{}'", name));
  }
  return bound_method(name, text, [name, &budget](const Value& self, const Arguments& arguments) {
    return call_method(self, name, arguments, budget);
  });
}

}  // namespace baton::jinja
