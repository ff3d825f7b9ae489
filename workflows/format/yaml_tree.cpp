// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/yaml_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace baton {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool all_digits(std::string_view text, bool (*digit)(char)) {
  return !text.empty() && std::all_of(text.begin(), text.end(), digit);
}

std::string_view without_sign(std::string_view text) {
  if (!text.empty() && (text.front() == '+' || text.front() == '-')) text.remove_prefix(1);
  return text;
}

bool is_integer(std::string_view text) {
  if (text.starts_with("0x")) {
    return all_digits(text.substr(2),
                      [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); });
  }
  if (text.starts_with("0o")) return all_digits(text.substr(2), [](char c) { return c >= '0' && c <= '7'; });
  return all_digits(without_sign(text), is_digit);
}

/// [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?, and the infinities and NaN.
bool is_number(std::string_view text) {
  if (text == ".nan" || text == ".NaN" || text == ".NAN") return true;
  text = without_sign(text);
  if (text == ".inf" || text == ".Inf" || text == ".INF") return true;
  const std::size_t exponent = text.find_first_of("eE");
  if (exponent != std::string_view::npos) {
    if (!all_digits(without_sign(text.substr(exponent + 1)), is_digit)) return false;
    text = text.substr(0, exponent);
  }
  const std::size_t point = text.find('.');
  if (point == std::string_view::npos) return all_digits(text, is_digit);
  const std::string_view whole = text.substr(0, point), fraction = text.substr(point + 1);
  if (whole.empty()) return all_digits(fraction, is_digit);
  return all_digits(whole, is_digit) && (fraction.empty() || all_digits(fraction, is_digit));
}

}  // namespace

TextPlaces::TextPlaces(const YamlNode& text) : text_(text), file_(text.source->text()) {
  // In quotes '{{' may be written as escapes, so that it need not be in the file; elsewhere it is near.
  const std::string_view marked = file_.substr(std::min(text.offset, file_.size()), text.length);
  const bool quoted =
      marked.size() > 1 && marked.front() == marked.back() && (marked.front() == '"' || marked.front() == '\'');
  if (quoted) file_ = file_.substr(0, text.offset + text.length);
}

SourceLocation TextPlaces::at(std::size_t text_offset, std::size_t length_bytes) {
  // The n-th '{{' of the text is the n-th '{{' of the source from the scalar on, whatever the style of the scalar:
  // folding, indentation and quotes change only what lies between.
  const std::string_view value(text_.text);
  const std::size_t opening = value.rfind("{{", text_offset);
  if (opening == std::string_view::npos) return text_.where();
  if (!in_file_) in_file_ = file_.find("{{", text_.offset);
  const std::string_view ahead_of_it = value.substr(0, opening);
  for (std::size_t next; (next = ahead_of_it.find("{{", passed_)) != std::string_view::npos; passed_ = next + 2) {
    if (*in_file_ != std::string_view::npos) in_file_ = file_.find("{{", *in_file_ + 2);
  }
  const std::size_t at = *in_file_;
  if (at == std::string_view::npos) return text_.where();
  const std::size_t ahead = text_offset - opening;
  const bool same = file_.substr(at, ahead + length_bytes) == value.substr(opening, ahead + length_bytes);
  return same ? text_.source->at(at + ahead, length_bytes) : text_.source->at(at, 2);
}

TreeSize size_of(const YamlNode& node) {
  TreeSize size{1, node.text.size(), 0};
  const auto add = [&](const YamlNode& part) {
    const TreeSize more = size_of(part);
    size.nodes += more.nodes;
    size.bytes += more.bytes;
    size.levels = std::max(size.levels, more.levels + 1);
  };
  for (const YamlNode& item : node.items) add(item);
  for (const YamlEntry& entry : node.entries) {
    add(entry.key);
    add(entry.value);
  }
  return size;
}

SourceLocation YamlNode::part(std::size_t text_offset, std::size_t length_bytes) const {
  const std::string_view file(source->text());
  const std::size_t begin = std::min(offset + (plain ? 0 : 1), file.size());
  return file.substr(begin, text.size()) == text ? source->at(begin + text_offset, length_bytes) : where();
}

const YamlEntry* YamlNode::entry(std::string_view key) const {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const YamlEntry& e) { return e.key.text == key; });
  return found == entries.end() ? nullptr : &*found;
}

YamlEntry* YamlNode::entry(std::string_view key) { return const_cast<YamlEntry*>(std::as_const(*this).entry(key)); }

std::string_view described(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::boolean:
      return "a boolean";
    case YamlNode::Kind::integer:
      return "an integer";
    case YamlNode::Kind::number:
      return "a number";
    case YamlNode::Kind::string:
      return "a string";
    case YamlNode::Kind::list:
      return "a list";
    case YamlNode::Kind::map:
      return "a map";
  }
  return "";
}

YamlNode::Kind kind_of_plain(std::string_view text) {
  using Kind = YamlNode::Kind;
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return Kind::null;
  if (text == "true" || text == "True" || text == "TRUE" || text == "false" || text == "False" || text == "FALSE") {
    return Kind::boolean;
  }
  if (is_integer(text)) return Kind::integer;
  return is_number(text) ? Kind::number : Kind::string;
}

std::optional<std::int64_t> integer_of(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x")) base = 16;
  if (text.starts_with("0o")) base = 8;
  if (base != 10) text.remove_prefix(2);
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> number_of(std::string_view text) {
  if (const auto whole = integer_of(text)) return static_cast<double>(*whole);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace baton
