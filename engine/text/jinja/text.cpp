// SPDX-License-Identifier: Apache-2.0
// The equivalents of Python's str(), repr() and json.dumps().
#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "engine/base/utf8.h"
#include "engine/text/jinja/value.h"

namespace baton::jinja {
namespace {

/// A text that grows up to the limits.
class Growing {
 public:
  explicit Growing(Budget& budget) : budget_(budget) {}
  void add(std::string_view piece) {
    budget_.spend_bytes(piece.size());
    if (text_.size() + piece.size() > kMaxStringBytes) throw Fault("a string becomes too long");
    text_ += piece;
  }
  std::string take() { return std::move(text_); }
  Budget& budget() { return budget_; }

 private:
  Budget& budget_;
  std::string text_;
};

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

std::string quoted_string(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
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
      out += std::string_view(text).substr(i, bytes);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<unsigned>(c));
    }
    i += bytes;
  }
  return out + quote;
}

void add_representation(Growing& out, const Value& value);

void add_items(Growing& out, const Values& items) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.add(", ");
    first = false;
    add_representation(out, item);
  }
}

void add_representation(Growing& out, const Value& value) {
  if (value.is_undefined()) return out.add("Undefined");
  if (value.is_none()) return out.add("None");
  if (const bool* flag = value.get<bool>()) return out.add(*flag ? "True" : "False");
  if (const auto* whole = value.get<std::int64_t>()) return out.add(fmt::format("{}", *whole));
  if (const double* number = value.get<double>()) return out.add(number_text(*number));
  if (value.is_string()) {
    if (value.is_safe()) throw Fault("the representation of a safe string is not supported");
    out.budget().spend_characters(value.text().size());
    return out.add(quoted_string(value.text()));
  }
  if (const Dict* dict = value.as_dict()) {
    bool first = true;
    out.add("{");
    for (const auto& [key, item] : dict->items) {
      if (!first) out.add(", ");
      first = false;
      add_representation(out, key);
      out.add(": ");
      add_representation(out, item);
    }
    return out.add("}");
  }
  const SequenceValue* sequence = value.as_sequence();
  if (sequence && sequence->kind == SequenceKind::list) {
    out.add("[");
    add_items(out, sequence->items);
    return out.add("]");
  }
  if (sequence && sequence->kind == SequenceKind::tuple) {
    out.add("(");
    add_items(out, sequence->items);
    return out.add(sequence->items.size() == 1 ? ",)" : ")");
  }
  throw Fault(fmt::format("printing a {} is not supported", type_name(value)));
}

std::string json_string(const std::string& text, bool ascii) {
  std::string out = "\"";
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
      out += std::string_view(text).substr(i, bytes);
    }
    i += bytes;
  }
  return out + '"';
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), out_(budget) {}

  std::string run(const Value& value) {
    write(value, 0);
    return out_.take();
  }

 private:
  void new_line(int level) {
    if (style_.indent >= 0) out_.add("\n" + std::string(static_cast<std::size_t>(style_.indent * level), ' '));
  }

  void write_string(const std::string& text) {
    out_.budget().spend_characters(text.size());
    out_.add(json_string(text, style_.ascii));
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
    out_.add(std::string(1, open));
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_.add(style_.item_separator);
      first = false;
      new_line(level + 1);
      write_item(item);
    }
    if (!first) new_line(level);
    out_.add(std::string(1, close));
  }

  void write(const Value& value, int level) {
    if (value.is_string()) return write_string(value.text());
    const SequenceValue* sequence = value.as_sequence();
    if (sequence && (sequence->kind == SequenceKind::list || sequence->kind == SequenceKind::tuple)) {
      return write_all(sequence->items, '[', ']', level, [&](const Value& item) { write(item, level + 1); });
    }
    const Dict* dict = value.as_dict();
    if (dict == nullptr) return out_.add(scalar(value));
    out_.budget().spend(2 * dict->items.size());
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict->items) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(),
                       [&](const auto* a, const auto* b) { return compare(a->first, b->first, out_.budget()) < 0; });
    }
    write_all(items, '{', '}', level, [&](const auto* item) {
      write_string(item->first.is_string() ? item->first.text() : scalar(item->first));
      out_.add(style_.key_separator);
      write(item->second, level + 1);
    });
  }

  const JsonStyle& style_;
  Growing out_;
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

std::string representation(const Value& value, Budget& budget) {
  Growing out(budget);
  add_representation(out, value);
  return out.take();
}

std::string to_text(const Value& value, Budget& budget) {
  if (value.is_undefined()) return "";
  if (value.is_string()) {
    budget.spend_bytes(value.text().size());
    return value.text();
  }
  return representation(value, budget);
}

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  return JsonWriter(style, budget).run(value);
}

}  // namespace baton::jinja
