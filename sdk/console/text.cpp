// SPDX-License-Identifier: Apache-2.0
#include "sdk/console/text.h"

#include <fmt/format.h>

#include <utf8proc.h>
#include <algorithm>
#include <cstdint>
#include <vector>

#include "sdk/console/html.h"

namespace baton::cli {
namespace {

constexpr std::int32_t kReplacement = 0xFFFD;

/// The next character of `text`; an invalid byte is U+FFFD.
std::int32_t next(std::string_view text, std::size_t& at) {
  utf8proc_int32_t c = 0;
  const auto used = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                     static_cast<utf8proc_ssize_t>(text.size() - at), &c);
  if (used <= 0) {
    ++at;
    return kReplacement;
  }
  at += static_cast<std::size_t>(used);
  return c;
}

void append(std::string& out, std::int32_t c) {
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(c, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n));
}

bool is_harmful(std::int32_t c) {
  const bool direction =
      c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
  const bool line_end = c == 0x2028 || c == 0x2029;
  const bool tag = c >= 0xE0000 && c <= 0xE007F;
  return direction || line_end || tag || utf8proc_category(c) == UTF8PROC_CATEGORY_CC;
}

int width_of(std::int32_t c) {
  if (c == 0xFE0F) return 1;  // asks for the wide form of the character before it, which some terminals obey
  return utf8proc_charwidth(c);
}

}  // namespace

std::string printable(std::string_view text, Lines lines, bool ascii) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    std::int32_t c = next(text, at);
    if (c == '\r' && at < text.size() && text[at] == '\n') continue;
    if (c == '\n' || c == '\t' || c == ' ') {
      if (lines == Lines::keep) {
        out += static_cast<char>(c);
      } else if (!out.empty() && out.back() != ' ') {
        out += ' ';
      }
      continue;
    }
    if (c < 0x20) c = 0x2400 + c;  // the control pictures
    if (c == 0x7F) c = 0x2421;
    if (is_harmful(c)) c = kReplacement;
    append(out, ascii && c > 0x7E ? '?' : c);
  }
  return out;
}

int display_width(std::string_view text) {
  int width = 0;
  for (std::size_t at = 0; at < text.size();) width += width_of(next(text, at));
  return width;
}

std::string head(std::string_view text, int columns) {
  int width = 0;
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    width += width_of(next(text, at));
    if (width > columns) break;
    end = at;
  }
  return std::string(text.substr(0, end));
}

std::string tail(std::string_view text, int columns) {
  int surplus = display_width(text) - columns;
  std::size_t at = 0;
  while (surplus > 0 && at < text.size()) surplus -= width_of(next(text, at));
  // A mark that belongs to a character that was cut must not sit on what is printed before it.
  while (at < text.size()) {
    std::size_t after = at;
    if (width_of(next(text, after)) > 0) break;
    at = after;
  }
  return std::string(text.substr(at));
}

std::string wrapped(std::string_view text, int columns, int indent) {
  std::string out;
  int width = indent;
  for (std::size_t at = text.find_first_not_of(' '); at < text.size(); at = text.find_first_not_of(' ', at)) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const int taken = display_width(word);
    if (!out.empty() && width + 1 + taken > columns) {
      out += "\n" + std::string(static_cast<std::size_t>(indent), ' ');
      width = indent;
    } else if (!out.empty()) {
      out += ' ';
      ++width;
    }
    out += word;
    width += taken;
    at = end;
  }
  return out + "\n";
}

std::string padded(std::string_view text, int columns) {
  const int missing = columns - display_width(text);
  return std::string(text) + std::string(missing > 0 ? static_cast<std::size_t>(missing) : 0, ' ');
}

std::string padded_left(std::string_view text, int columns) {
  const int missing = columns - display_width(text);
  return std::string(missing > 0 ? static_cast<std::size_t>(missing) : 0, ' ') + std::string(text);
}

std::string duration(double ms) {
  if (ms < 0.95) return fmt::format("{:.2f} ms", ms);
  if (ms < 999.5) return fmt::format("{:.0f} ms", ms);
  if (ms < 99'950) return fmt::format("{:.1f} s", ms / 1000);
  const auto seconds = static_cast<long long>(ms / 1000 + 0.5);
  if (seconds < 3600) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {} min", seconds / 3600, seconds % 3600 / 60);
}

std::string size(double bytes) {
  static const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string grouped(long long number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<int>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

namespace {

std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1, 0));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string closest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t least = std::max<std::size_t>(word.size() / 3, 1) + 1;
  for (const auto& candidate : candidates) {
    if (const std::size_t changes = distance(word, candidate); changes < least) {
      least = changes;
      best = candidate;
    }
  }
  return best;
}

Markup escaped(std::string_view text, Lines lines) {
  std::string out;
  for (const char c : printable(text, lines)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return Markup::trusted(std::move(out));
}

std::string_view cut(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  std::size_t end = bytes;
  while (end > 0 && bytes - end < 3 && continues_character(text[end])) --end;
  return text.substr(0, end);
}

std::string shell_word(const std::string& word) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./+@%:,").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace baton::cli
