// SPDX-License-Identifier: Apache-2.0
// The equivalents of Python's str(), repr() and json.dumps().
#include <fmt/format.h>

#include <utf8proc.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "engine/base/utf8.h"
#include "engine/text/jinja/library.h"
#include "engine/text/jinja/value.h"

namespace baton::jinja {
namespace {

bool printable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

/// What stands between the quotes of repr(text).
std::string quotable(std::string_view text, char quote) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto [c, bytes] = utf8::at(text, i);
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (printable(c)) {
      out += text.substr(i, bytes);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<unsigned>(c));
    }
    i += bytes;
  }
  return out;
}

class Representation {
 public:
  explicit Representation(Budget& budget) : budget_(budget) {}

  ChatText run(const Value& value) {
    write(value);
    return out_.take();
  }

 private:
  void add(std::string_view text) { out_.add(text, budget_); }

  void write_items(const Values& items) {
    bool first = true;
    for (const Value& item : items) {
      if (!first) add(", ");
      first = false;
      write(item);
    }
  }

  void write_string(const Value& value) {
    const std::string& text = value.text();
    budget_.spend_characters(text.size());
    const bool has_single = text.find('\'') != std::string::npos;
    const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
    const std::string_view mark(&quote, 1);
    if (value.is_safe()) add("Markup(");
    add(mark);
    out_.add(changed_parts(
                 traced(value), [&](std::string_view part) { return quotable(part, quote); }, budget_),
             budget_);
    add(mark);
    if (value.is_safe()) add(")");
  }

  void write(const Value& value) {
    if (value.is_undefined()) return add("Undefined");
    if (value.is_none()) return add("None");
    if (const bool* flag = value.get<bool>()) return add(*flag ? "True" : "False");
    if (const auto* whole = value.get<std::int64_t>()) return add(fmt::format("{}", *whole));
    if (const double* number = value.get<double>()) return add(number_text(*number));
    if (value.is_string()) return write_string(value);
    if (const Dict* dict = value.as_dict()) {
      bool first = true;
      add("{");
      for (const auto& [key, item] : dict->items) {
        if (!first) add(", ");
        first = false;
        write(key);
        add(": ");
        write(item);
      }
      return add("}");
    }
    const SequenceValue* sequence = value.as_sequence();
    if (sequence && sequence->kind == SequenceKind::list) {
      add("[");
      write_items(sequence->items);
      return add("]");
    }
    if (sequence && sequence->kind == SequenceKind::tuple) {
      add("(");
      write_items(sequence->items);
      return add(sequence->items.size() == 1 ? ",)" : ")");
    }
    throw Fault(fmt::format("printing a {} is not supported", type_name(value)));
  }

  Budget& budget_;
  TextBuilder out_;
};

/// What stands between the quotes of a text in JSON.
std::string in_json(std::string_view text, bool ascii) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto [c, bytes] = utf8::at(text, i);
    static constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    const std::size_t known = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      out += '\\';
      out += kLetters[known];
    } else if (c < 0x20 || (ascii && c > 0x7E && c < 0x10000)) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else if (ascii && c >= 0x10000) {
      const auto rest = static_cast<unsigned>(c) - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      out += text.substr(i, bytes);
    }
    i += bytes;
  }
  return out;
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  ChatText run(const Value& value) {
    write(value, 0);
    return out_.take();
  }

 private:
  void add(std::string_view text) { out_.add(text, budget_); }

  void new_line(int level) {
    if (style_.indent < 0) return;
    add("\n");
    for (int i = 0; i < style_.indent * level; ++i) add(style_.indent_text);
  }

  void write_string(const ChatText& text) {
    budget_.spend_characters(text.text.size());
    add("\"");
    out_.add(changed_parts(
                 text, [&](std::string_view part) { return in_json(part, style_.ascii); }, budget_),
             budget_);
    add("\"");
  }

  std::string scalar(const Value& value) const {
    if (value.is_none()) return "null";
    if (const bool* flag = value.get<bool>()) return *flag ? "true" : "false";
    if (const auto* whole = value.get<std::int64_t>()) return fmt::format("{}", *whole);
    if (const double* number = value.get<double>()) {
      if (std::isnan(*number)) return "NaN";
      if (std::isinf(*number)) return *number > 0 ? "Infinity" : "-Infinity";
      return number_text(*number);
    }
    throw Fault(fmt::format("a {} cannot be written as JSON", type_name(value)));
  }

  template <typename Items, typename WriteItem>
  void write_all(const Items& items, char open, char close, int level, const WriteItem& write_item) {
    add(std::string_view(&open, 1));
    bool first = true;
    for (const auto& item : items) {
      if (!first) add(style_.item_separator);
      first = false;
      new_line(level + 1);
      write_item(item);
    }
    if (!first) new_line(level);
    add(std::string_view(&close, 1));
  }

  void write(const Value& value, int level) {
    if (value.is_string()) return write_string(traced(value));
    const SequenceValue* sequence = value.as_sequence();
    if (sequence && (sequence->kind == SequenceKind::list || sequence->kind == SequenceKind::tuple)) {
      return write_all(sequence->items, '[', ']', level, [&](const Value& item) { write(item, level + 1); });
    }
    const Dict* dict = value.as_dict();
    if (dict == nullptr) return add(scalar(value));
    budget_.spend(2 * dict->items.size());
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict->items) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(),
                       [&](const auto* a, const auto* b) { return compare(a->first, b->first, budget_) < 0; });
    }
    write_all(items, '{', '}', level, [&](const auto* item) {
      write_string(item->first.is_string() ? traced(item->first) : ChatText{scalar(item->first)});
      add(style_.key_separator);
      write(item->second, level + 1);
    });
  }

  const JsonStyle& style_;
  Budget& budget_;
  TextBuilder out_;
};

}  // namespace

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 32> buffer{};
  const double size = std::fabs(value);
  // Python uses scientific notation for exponents below -4 and from 16 on.
  const bool power = size != 0.0 && (size < 1e-4 || size >= 1e16);
  const auto format = power ? std::chars_format::scientific : std::chars_format::fixed;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format);
  std::string out(buffer.data(), error == std::errc() ? end : buffer.data());
  if (!power && out.find('.') == std::string::npos) out += ".0";
  return out;
}

ChatText representation(const Value& value, Budget& budget) { return Representation(budget).run(value); }

ChatText traced_text(const Value& value, Budget& budget) {
  if (value.is_undefined()) return {};
  if (value.is_string()) {
    budget.spend_bytes(value.text().size());
    return traced(value);
  }
  return representation(value, budget);
}

std::string to_text(const Value& value, Budget& budget) {
  if (!value.is_string()) return traced_text(value, budget).text;
  budget.spend_bytes(value.text().size());
  return value.text();
}

ChatText to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  return JsonWriter(style, budget).run(value);
}

}  // namespace baton::jinja
