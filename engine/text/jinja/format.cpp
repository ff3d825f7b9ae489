// SPDX-License-Identifier: Apache-2.0
// Python's ways to format: "%d" % value, "{}".format(value) and strftime, in English whatever the host's locale is.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>

#include "engine/base/utf8.h"
#include "engine/text/jinja/library.h"

namespace baton::jinja {
namespace {

constexpr std::size_t kMaxWidth = 10'000;  // of one formatted value

/// Reads a width or a precision; 0 if there are no digits.
std::size_t width_at(std::string_view text, std::size_t& at) {
  std::size_t width = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    width = width * 10 + static_cast<std::size_t>(text[at] - '0');
    if (width > kMaxWidth) throw Fault("the width of a format is too large");
  }
  return width;
}

std::size_t characters(const std::string& text, Budget& budget) {
  budget.spend_bytes(text.size());
  return utf8::count(text);
}

/// The first `count` characters.
std::string beginning_of(const std::string& text, std::size_t count, Budget& budget) {
  budget.spend_characters(text.size());
  std::size_t end = 0;
  for (; count > 0 && end < text.size(); --count) end += utf8::at(text, end).bytes;
  return text.substr(0, end);
}

/// One "%..." of a format.
struct Conversion {
  bool left = false, zero = false, plus = false, space = false, alternative = false;
  std::size_t width = 0;
  std::optional<std::size_t> precision;
  char type = 's';

  /// `sign`: "", "-", "+", " ", with "0x" behind it.
  std::string padded(const std::string& sign, const std::string& body, bool is_number, Budget& budget) const {
    const std::size_t size = sign.size() + characters(body, budget);
    const std::size_t missing = width > size ? width - size : 0;
    if (left) return sign + body + std::string(missing, ' ');
    if (zero && is_number) return sign + std::string(missing, '0') + body;
    return std::string(missing, ' ') + sign + body;
  }
  std::string sign_of(bool is_negative) const { return is_negative ? "-" : plus ? "+" : space ? " " : ""; }
};

std::string formatted_integer(const Conversion& how, const Value& value, Budget& budget) {
  std::int64_t number = 0;
  if (const auto* whole = value.integer(number)) {
    number = *whole;
  } else if (const double* real = value.get<double>(); real && std::fabs(*real) < 9e18 && how.type == 'd') {
    number = static_cast<std::int64_t>(*real);
  } else {
    throw Fault(fmt::format("%{} needs a number, not a {}", how.type, type_name(value)));
  }
  const std::uint64_t size = number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  std::string sign = how.sign_of(number < 0);
  std::string body = how.type == 'x'   ? fmt::format("{:x}", size)
                     : how.type == 'X' ? fmt::format("{:X}", size)
                     : how.type == 'o' ? fmt::format("{:o}", size)
                                       : fmt::format("{}", size);
  if (how.alternative && how.type != 'd') sign += std::string("0") + how.type;
  if (how.precision && body.size() < *how.precision) body.insert(0, *how.precision - body.size(), '0');
  return how.padded(sign, body, true, budget);
}

std::string formatted_real(const Conversion& how, const Value& value, Budget& budget) {
  if (!value.is_number()) throw Fault(fmt::format("%{} needs a number, not a {}", how.type, type_name(value)));
  const double number = value.number();
  const double size = std::fabs(number);
  const auto precision = static_cast<int>(how.precision.value_or(6));
  if (how.alternative) throw Fault("the flag # of a float is not supported");
  std::string body;
  if (!std::isfinite(number)) {
    body = std::isnan(number) ? "nan" : "inf";
  } else if (how.type == 'f' || how.type == 'F') {
    body = fmt::format("{:.{}f}", size, precision);
  } else if (how.type == 'e' || how.type == 'E') {
    body = fmt::format("{:.{}e}", size, precision);
  } else {
    body = fmt::format("{:.{}g}", size, precision);
  }
  if (how.type == 'E' || how.type == 'G' || how.type == 'F')
    std::transform(body.begin(), body.end(), body.begin(), [](char c) { return c >= 'a' && c <= 'z' ? c - 32 : c; });
  return how.padded(how.sign_of(std::signbit(number) && !std::isnan(number)), body, std::isfinite(number), budget);
}

std::string formatted(const Conversion& how, const Value& value, Budget& budget) {
  switch (how.type) {
    case 'd':
    case 'x':
    case 'X':
    case 'o':
      return formatted_integer(how, value, budget);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      return formatted_real(how, value, budget);
    case 's':
    case 'r': {
      std::string text = how.type == 's' ? to_text(value, budget) : representation(value, budget).text;
      if (how.precision) text = beginning_of(text, *how.precision, budget);
      return how.padded("", text, false, budget);
    }
    default:
      throw Fault(fmt::format("the format %{} is not supported", how.type));
  }
}

/// Reads what stands between "%" and the type, and the type.
Conversion conversion_at(const std::string& format, std::size_t& at) {
  Conversion how;
  for (; at < format.size(); ++at) {
    const char c = format[at];
    bool* const flag = c == '-'   ? &how.left
                       : c == '0' ? &how.zero
                       : c == '+' ? &how.plus
                       : c == ' ' ? &how.space
                       : c == '#' ? &how.alternative
                                  : nullptr;
    if (flag == nullptr) break;
    *flag = true;
  }
  how.width = width_at(format, at);
  if (at < format.size() && format[at] == '.') how.precision = width_at(format, ++at);
  while (at < format.size() && (format[at] == 'l' || format[at] == 'h' || format[at] == 'L')) ++at;
  if (at >= format.size()) throw Fault("a format ends too early");
  how.type = format[at] == 'i' || format[at] == 'u' ? 'd' : format[at];
  ++at;
  return how;
}

}  // namespace

ChatText percent_formatted(const std::string& format, const Value& values, Budget& budget) {
  budget.spend_characters(format.size());
  const SequenceValue* several = values.as_sequence();
  if (several != nullptr && several->kind != SequenceKind::tuple) several = nullptr;
  const Values one = several == nullptr ? Values{values} : Values();
  const Values& given = several == nullptr ? one : several->items;
  std::size_t used = 0;
  bool named = false;
  TextBuilder out;
  const auto add = [&](std::string_view text) { out.add(text, budget); };
  for (std::size_t at = 0; at < format.size();) {
    const std::size_t mark = std::min(format.find('%', at), format.size());
    add(std::string_view(format).substr(at, mark - at));
    at = mark + 1;
    if (mark == format.size()) break;
    const Value* value = nullptr;
    if (at < format.size() && format[at] == '(') {
      const std::size_t close = format.find(')', at);
      if (close == std::string::npos || !values.as_dict()) throw Fault("a format with names needs a dict");
      value = values.as_dict()->find(Value(format.substr(at + 1, close - at - 1)), budget);
      if (value == nullptr) throw Fault("a format names what its dict does not have");
      at = close + 1;
      named = true;
    }
    const Conversion how = conversion_at(format, at);
    if (how.type == '%') {
      add("%");
      continue;
    }
    if (value == nullptr) {
      if (used == given.size()) throw Fault("there are not enough values for the format");
      value = &given[used++];
    }
    const ChatText traced = how.type == 's' || how.type == 'r' ? traced_text(*value, budget) : ChatText();
    if (traced.values.empty()) {
      add(formatted(how, *value, budget));
    } else if (how.type == 's' && how.width == 0 && !how.precision) {
      out.add(traced, budget);
    } else {
      out.add_changed(formatted(how, *value, budget), traced.values.front().value, budget);
    }
  }
  const bool may_rest = named || (several == nullptr && (values.as_dict() || values.as_sequence()));
  if (used < given.size() && !may_rest) throw Fault("there are more values than the format takes");
  return out.take();
}

namespace {

/// The value of a replacement field: "", "0", "name", and the place of the next one without a name.
const Value& field_value(std::string_view name, const Arguments& arguments, std::size_t& next) {
  std::size_t index = 0;
  if (name.empty()) {
    index = next++;
  } else {
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    if (error != std::errc() || end != name.data() + name.size()) {
      const Value* named = arguments.named_value(name);
      if (named == nullptr) throw Fault("format() has a field without a value, or of a kind that is not supported");
      return *named;
    }
  }
  if (index >= arguments.positional.size()) throw Fault("format() has more fields than values");
  return arguments.positional[index];
}

std::string field_text(const Value& value, const std::string& spec, Budget& budget) {
  if (spec.empty()) return to_text(value, budget);
  const bool is_plain = std::all_of(spec.begin(), spec.end(), [](char c) {
    return (c >= '0' && c <= '9') || std::string_view("<>^+-# .dfegxXoEGs").find(c) != std::string_view::npos;
  });
  std::size_t digits = 0, longest = 0;
  for (const char c : spec) longest = std::max(longest, digits = c >= '0' && c <= '9' ? digits + 1 : 0);
  if (!is_plain || longest > 4) throw Fault("this format of a field is not supported");
  const auto format = fmt::runtime("{:" + spec + "}");
  try {
    std::int64_t storage = 0;
    if (const auto* whole = value.get<bool>() ? nullptr : value.integer(storage)) {
      const bool as_real = std::string_view("feEgG").find(spec.back()) != std::string_view::npos;
      return as_real ? fmt::format(format, static_cast<double>(*whole)) : fmt::format(format, *whole);
    }
    if (const double* real = value.get<double>(); real && std::string_view("feEgG").find(spec.back()) != spec.npos)
      return fmt::format(format, *real);
    if (value.is_string()) {  // fmt counts wide characters twice
      budget.spend_bytes(value.text().size());
      if (utf8::count(value.text()) == value.text().size()) return fmt::format(format, value.text());
    }
  } catch (const fmt::format_error&) {
  }
  throw Fault("this format of a field is not supported");
}

}  // namespace

ChatText brace_formatted(const std::string& format, const Arguments& arguments, Budget& budget) {
  budget.spend_characters(format.size());
  TextBuilder out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < format.size();) {
    const char c = format[at];
    const bool twice = at + 1 < format.size() && format[at + 1] == c;
    if (c == '{' && !twice) {
      const std::size_t close = format.find('}', at);
      if (close == std::string::npos) throw Fault("format() has a '{' without '}'");
      const std::string field = format.substr(at + 1, close - at - 1);
      const std::size_t colon = std::min(field.find(':'), field.size());
      const std::string spec = colon == field.size() ? "" : field.substr(colon + 1);
      std::string_view name = std::string_view(field).substr(0, colon);
      const bool shown = name.ends_with("!r");
      if (shown || name.ends_with("!s")) name.remove_suffix(2);
      const Value& value = field_value(name, arguments, next);
      const ChatText traced = traced_text(value, budget);
      const std::string text = shown ? field_text(Value(representation(value, budget), false), spec, budget)
                                     : field_text(value, spec, budget);
      if (traced.values.empty()) {
        out.add(text, budget);
      } else if (text == traced.text) {
        out.add(traced, budget);
      } else {
        out.add_changed(text, traced.values.front().value, budget);
      }
      at = close + 1;
    } else if (c == '}' && !twice) {
      throw Fault("format() has a '}' without '{'");
    } else {
      out.add(std::string_view(&format[at], 1), budget);
      at += twice && (c == '{' || c == '}') ? 2 : 1;
    }
  }
  return out.take();
}

namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};

/// A date and time of day, and strftime's conversions of it.
class LocalDate {
 public:
  explicit LocalDate(std::int64_t seconds) {
    constexpr std::int64_t kFirst = -62'135'596'800, kLast = 253'402'300'799;  // the years 1 to 9999
    const std::chrono::sys_seconds time{std::chrono::seconds(std::clamp(seconds, kFirst, kLast))};
    const std::chrono::sys_days day = std::chrono::floor<std::chrono::days>(time);
    const std::chrono::year_month_day date(day);
    year_ = static_cast<int>(date.year());
    month_ = static_cast<unsigned>(date.month());
    day_ = static_cast<unsigned>(date.day());
    weekday_ = std::chrono::weekday(day).c_encoding();
    const std::chrono::sys_days first = date.year() / std::chrono::January / 1;
    day_of_year_ = static_cast<unsigned>((day - first).count());
    second_of_day_ = static_cast<unsigned>((time - day).count());
  }

  /// Appends what `kind` stands for. `flag`: '-', '_', '0' or '^', or 0. Returns false for an unknown kind.
  bool add(std::string& out, char kind, char flag) const {
    const unsigned hour = second_of_day_ / 3600, minute = second_of_day_ / 60 % 60, second = second_of_day_ % 60;
    const unsigned hour12 = hour % 12 == 0 ? 12 : hour % 12;
    const unsigned monday = (weekday_ + 6) % 7;  // days since Monday
    const auto number = [&](unsigned value, unsigned width, char fill) {
      const char used = flag == '_' ? ' ' : flag == '0' ? '0' : fill;
      const std::string text = fmt::format("{}", value);
      if (flag != '-' && text.size() < width) out.append(width - text.size(), used);
      out += text;
      return true;
    };
    const auto word = [&](std::string_view text) {
      for (const char c : text) out += flag == '^' && c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
      return true;
    };
    const auto parts = [&](std::string_view kinds) {
      for (const char c : kinds) {
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
          add(out, c, 0);
        } else {
          out += c;
        }
      }
      return true;
    };
    switch (kind) {
      case 'a':
        return word(kDays[weekday_].substr(0, 3));
      case 'A':
        return word(kDays[weekday_]);
      case 'b':
      case 'h':
        return word(kMonths[month_ - 1].substr(0, 3));
      case 'B':
        return word(kMonths[month_ - 1]);
      case 'c':
        return parts("a b e H:M:S Y");
      case 'C':
        return number(static_cast<unsigned>(year_) / 100, 2, '0');
      case 'd':
        return number(day_, 2, '0');
      case 'D':
      case 'x':
        return parts("m/d/y");
      case 'e':
        return number(day_, 2, ' ');
      case 'f':
        return word("000000");  // the clock counts seconds
      case 'F':
        return parts("Y-m-d");
      case 'H':
        return number(hour, 2, '0');
      case 'I':
        return number(hour12, 2, '0');
      case 'j':
        return number(day_of_year_ + 1, 3, '0');
      case 'k':
        return number(hour, 2, ' ');
      case 'l':
        return number(hour12, 2, ' ');
      case 'm':
        return number(month_, 2, '0');
      case 'M':
        return number(minute, 2, '0');
      case 'n':
        return word("\n");
      case 'p':
        return word(hour < 12 ? "AM" : "PM");
      case 'P':
        return word(hour < 12 ? "am" : "pm");
      case 'r':
        return parts("I:M:S p");
      case 'R':
        return parts("H:M");
      case 'S':
        return number(second, 2, '0');
      case 't':
        return word("\t");
      case 'T':
      case 'X':
        return parts("H:M:S");
      case 'u':
        return number(monday + 1, 1, '0');
      case 'U':
        return number((day_of_year_ + 7 - weekday_) / 7, 2, '0');
      case 'w':
        return number(weekday_, 1, '0');
      case 'W':
        return number((day_of_year_ + 7 - monday) / 7, 2, '0');
      case 'y':
        return number(static_cast<unsigned>(year_) % 100, 2, '0');
      case 'Y':
        return number(static_cast<unsigned>(year_), 1, '0');
      case 'z':
      case 'Z':
        return true;  // Python's local time has no zone
      case '%':
        return word("%");
      default:
        return false;
    }
  }

 private:
  int year_ = 1970;
  unsigned month_ = 1;          // from 1
  unsigned day_ = 1;            // from 1
  unsigned weekday_ = 4;        // from Sunday, 0
  unsigned day_of_year_ = 0;    // from 0
  unsigned second_of_day_ = 0;  // from 0
};

}  // namespace

std::string date_text(const std::string& format, std::int64_t local_seconds, Budget& budget) {
  budget.spend(format.size());
  const LocalDate date(local_seconds);
  std::string out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out += format[at];
      continue;
    }
    char flag = 0;
    while (at + 2 < format.size() && std::string_view("-_0^").find(format[at + 1]) != std::string_view::npos)
      flag = format[++at];
    if (!date.add(out, format[++at], flag)) throw Fault("this format of strftime_now is not supported");
    if (out.size() > kMaxStringBytes) throw Fault("a string becomes too long");
  }
  return out;
}

}  // namespace baton::jinja
