// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>
#include <tuple>

#include "engine/base/string_search.h"
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

namespace {

constexpr std::size_t kMaxFileBytes = 1u << 20;
constexpr std::size_t kMaxNamedBytes = 64u << 20;  // texts of prompts are copied
constexpr std::size_t kBlockBytes = 256;           // whose characters are counted together
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_control(char c) {
  return (static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
}

/// The file has not been read before.
SourcePtr read_new_source(const std::filesystem::path& file, const SourceLocation& where, Diagnostics& diagnostics) {
  std::error_code code;
  const auto status = std::filesystem::status(file, code);
  if (!std::filesystem::exists(status)) {
    diagnostics.error(where, "E0501", fmt::format("file '{}' not found", file.string()));
    return nullptr;
  }
  if (!std::filesystem::is_regular_file(status)) {
    const bool folder = std::filesystem::is_directory(status);
    diagnostics.error(where, "E0502",
                      fmt::format("'{}' is {}", file.string(), folder ? "a folder; expected a file" : "not a file"));
    return nullptr;
  }
  std::ifstream in(file, std::ios::binary);
  std::string bytes(kMaxFileBytes + 1, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!in.is_open() || in.bad()) {
    diagnostics.error(where, "E0502", fmt::format("file '{}' cannot be read", file.string()));
    return nullptr;
  }
  bytes.resize(static_cast<std::size_t>(in.gcount()));
  return make_source(file.string(), file.parent_path(), std::move(bytes), diagnostics);
}

}  // namespace

SourceText::SourceText(std::string name, std::filesystem::path folder, std::string text)
    : name_(std::move(name)), folder_(std::move(folder)), text_(std::move(text)) {
  line_starts_.push_back(0);
  for (std::size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] == '\n') line_starts_.push_back(i + 1);
  }
  characters_.push_back(0);
  for (std::size_t end = kBlockBytes; end <= text_.size(); end += kBlockBytes)
    characters_.push_back(characters_.back() +
                          utf8::count(std::string_view(text_).substr(end - kBlockBytes, kBlockBytes)));
}

/// Characters that begin before `offset`.
std::size_t SourceText::characters_before(std::size_t offset) const {
  const std::size_t block = offset / kBlockBytes, begin = block * kBlockBytes;
  return characters_[block] + utf8::count(std::string_view(text_).substr(begin, offset - begin));
}

SourceLocation SourceText::at(std::size_t offset, std::size_t length_bytes) const {
  offset = std::min(offset, text_.size());
  const auto line = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset) - 1;
  const std::size_t end_of_line = line + 1 == line_starts_.end() ? text_.size() : *(line + 1) - 1;
  const std::size_t end = std::min(offset + length_bytes, end_of_line);
  const std::size_t before = characters_before(offset);
  SourceLocation found;
  found.file = name_;
  found.line = static_cast<int>(line - line_starts_.begin()) + 1;
  found.column = static_cast<int>(before - characters_before(*line)) + 1;
  found.length = std::max(1, static_cast<int>(characters_before(end) - before));
  return found;
}

SourcePtr make_source(std::string name, std::filesystem::path folder, std::string bytes, Diagnostics& diagnostics) {
  if (bytes.size() > kMaxFileBytes) {
    diagnostics.error({name, 0, 0, 1}, "E0502",
                      fmt::format("the file has {} bytes; expected at most {}", bytes.size(), kMaxFileBytes));
    return nullptr;
  }
  if (bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF")) {
    diagnostics.error({name, 0, 0, 1}, "E0102", "the file is UTF-16; expected UTF-8");
    return nullptr;
  }
  if (bytes.starts_with(kByteOrderMark)) bytes.erase(0, kByteOrderMark.size());

  const bool valid = utf8::is_valid(bytes);
  auto source = std::make_shared<const SourceText>(std::move(name), std::move(folder), std::move(bytes));
  const std::string& text = source->text();
  if (!valid) {
    std::size_t at = 0;
    for (utf8::CharacterStep step = utf8::scan(text, at); step.kind == utf8::Scan::valid; step = utf8::scan(text, at))
      at += step.bytes;
    diagnostics.error(source->at(at, 1), "E0102",
                      fmt::format("byte 0x{:02x} is not valid UTF-8", static_cast<unsigned char>(text[at])));
    return nullptr;
  }
  diagnostics.add_source(source->name(), text);
  const auto control = std::find_if(text.begin(), text.end(), is_control);
  if (control != text.end()) {
    const auto at = static_cast<std::size_t>(control - text.begin());
    diagnostics.error(source->at(at, 1), "E0102",
                      fmt::format("control character 0x{:02x}", static_cast<unsigned char>(*control)));
    return nullptr;
  }
  return source;
}

SourcePtr read_source(const std::filesystem::path& file, const SourceLocation& where, Diagnostics& diagnostics) {
  Diagnostics::Files& files = diagnostics.files();
  const auto [found, added] = files.read.try_emplace(file.string());
  if (added) found->second = read_new_source(file, where, diagnostics);
  if (found->second != nullptr) files.bytes += found->second->text().size();
  if (files.bytes <= kMaxNamedBytes) return found->second;
  diagnostics.error(
      where, "E0502",
      fmt::format("the files that are named, each time that one is, have more than {} MiB", kMaxNamedBytes >> 20));
  return nullptr;
}

}  // namespace baton
