// SPDX-License-Identifier: Apache-2.0
// A file that was read, and the place of each of its bytes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "workflows/format/diagnostics.h"

namespace baton {

class SourceText {
 public:
  /// `name` stands in errors; relative paths in the text start at `folder`.
  SourceText(std::string name, std::filesystem::path folder, std::string text);

  const std::string& name() const { return name_; }
  const std::filesystem::path& folder() const { return folder_; }
  const std::string& text() const { return text_; }

  /// The place of `length_bytes` bytes from `offset`, cut at the end of the line.
  SourceLocation at(std::size_t offset, std::size_t length_bytes) const;

 private:
  std::size_t characters_before(std::size_t offset) const;

  std::string name_;
  std::filesystem::path folder_;
  std::string text_;
  std::vector<std::size_t> line_starts_;
  std::vector<std::size_t> characters_;  // before each block of bytes: a line may be as long as the file
};

using SourcePtr = std::shared_ptr<const SourceText>;

/// Takes bytes as the text of a file: drops a byte order mark and wants UTF-8 without control characters.
/// Errors go to `diagnostics`; null when the text cannot be used. The text is added to the diagnostics' sources.
SourcePtr make_source(std::string name, std::filesystem::path folder, std::string bytes, Diagnostics& diagnostics);

/// Reads a file named at `where`, where it was not read before; null, with an error at `where`, when it does not exist,
/// is too large, or is one too many.
SourcePtr read_source(const std::filesystem::path& file, const SourceLocation& where, Diagnostics& diagnostics);

}  // namespace baton
