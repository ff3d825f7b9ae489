// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "engine/base/edit_distance.h"
#include "engine/base/utf8.h"

namespace baton {
namespace {

constexpr std::size_t kMaxErrors = 100;
constexpr std::size_t kMaxLineCharacters = 160;  // characters of source shown around a caret

auto place(const Diagnostic& d) { return std::tie(d.file, d.line, d.column, d.code, d.message); }

/// Control characters (a terminal would obey them) become '?'.
std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f) c = '?';
  }
  return out;
}

std::string line_of(std::string_view text, int line) {
  std::size_t begin = 0;
  for (int i = 1; i < line; ++i) {
    begin = text.find('\n', begin);
    if (begin == std::string_view::npos) return {};
    ++begin;
  }
  std::string_view found = text.substr(begin, text.find('\n', begin) - begin);
  if (!found.empty() && found.back() == '\r') found.remove_suffix(1);
  return std::string(found);
}

/// Characters of valid UTF-8, one element each.
std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> out;
  for (const char c : text) {
    if (!utf8::continues(c) || out.empty()) out.emplace_back();
    out.back() += c;
  }
  return out;
}

/// The source line with its number, and the caret under the marked text.
std::string excerpt(const Diagnostic& d) {
  const std::vector<std::string> line = characters(printable(d.source_line));
  const std::size_t column = static_cast<std::size_t>(std::max(1, d.column)) - 1;
  std::size_t begin = 0, end = line.size();
  if (line.size() > kMaxLineCharacters) {
    begin = std::min(column > kMaxLineCharacters / 2 ? column - kMaxLineCharacters / 2 : 0,
                     line.size() - kMaxLineCharacters);
    end = begin + kMaxLineCharacters;
  }
  std::string shown, under;
  for (std::size_t i = begin; i < end; ++i) {
    shown += line[i];
    if (i < column) under += line[i] == "\t" ? "\t" : " ";
  }
  const std::size_t room = column < end ? end - column : 1;
  const std::size_t carets = std::clamp<std::size_t>(static_cast<std::size_t>(std::max(1, d.length)), 1, room);
  under += std::string(carets, '^');
  if (!d.hint.empty()) under += " " + printable(d.hint);
  return fmt::format("{:5} | {}\n      | {}\n", d.line, shown, under);
}

}  // namespace

bool Diagnostics::full() const { return items_.size() == kMaxErrors; }

std::string Diagnostics::suggestion(const std::string& word, const std::vector<std::string>& candidates) const {
  const std::string near = full() ? "" : closest(word, candidates);
  return near.empty() ? "" : fmt::format("did you mean '{}'?", near);
}

void Diagnostics::error(SourceLocation where, std::string code, std::string message, std::string hint) {
  if (full()) return;
  Diagnostic added{std::move(where.file), where.line,         where.column,    where.length,
                   std::move(code),       std::move(message), std::move(hint), {}};
  const auto at = std::upper_bound(items_.begin(), items_.end(), added,
                                   [](const Diagnostic& a, const Diagnostic& b) { return place(a) < place(b); });
  if (at != items_.begin() && place(*std::prev(at)) == place(added)) return;  // one text reached by two aliases
  for (const auto& [file, text] : sources_) {
    if (file == added.file && added.line > 0) added.source_line = line_of(text, added.line);
  }
  items_.insert(at, std::move(added));
}

void Diagnostics::add_hint(std::string hint) {
  if (!items_.empty() && items_.back().hint.empty()) items_.back().hint = std::move(hint);
}

void Diagnostics::add_sources(const std::vector<std::pair<std::string, std::string>>& sources) {
  for (const auto& [file, text] : sources) add_source(file, text);
}

void Diagnostics::add_source(const std::string& file, std::string text) {
  for (Diagnostic& item : items_) {
    if (item.file == file && item.line > 0) item.source_line = line_of(text, item.line);
  }
  sources_.emplace_back(file, std::move(text));
}

std::string Diagnostics::format() const {
  std::string out;
  for (const Diagnostic& item : items_) {
    out +=
        item.line > 0 ? fmt::format("{}:{}:{}: ", item.file, item.line, item.column) : fmt::format("{}: ", item.file);
    out += fmt::format("error[{}]: {}\n", item.code, printable(item.message));
    if (!item.source_line.empty()) {
      out += excerpt(item);
    } else if (!item.hint.empty()) {
      out += fmt::format("      {}\n", printable(item.hint));
    }
  }
  if (full()) out += fmt::format("only the first {} errors are shown\n", kMaxErrors);
  return out;
}

void Diagnostics::fail() const {
  std::string text = format();
  if (text.ends_with('\n')) text.pop_back();
  throw WorkflowError(text, items_);
}

std::string closest(const std::string& word, const std::vector<std::string>& candidates) {
  constexpr std::size_t kMaxWordBytes = 200;
  if (word.size() > kMaxWordBytes) return {};
  std::string best;
  std::size_t best_distance = word.size() < 2 ? 1 : std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kMaxWordBytes) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace baton
