// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/source_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <system_error>

#include "engine/base/utf8.h"

namespace baton {
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
