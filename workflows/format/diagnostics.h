// SPDX-License-Identifier: Apache-2.0
// Mistakes in workflow files: their place, message and suggestion, the sources that they point into, and the list of
// their codes (docs/yaml.md).
#pragma once

#include <baton/errors.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton {

class SourceText;

struct SourceLocation {
  std::string file;
  int line = 0;    // from 1; 0: no place
  int column = 0;  // from 1, in characters
  int length = 1;  // length of the marked text
};

class Diagnostics {
 public:
  void error(SourceLocation where, std::string code, std::string message, std::string hint = {});
  /// To the last error, which has none.
  void add_hint(std::string hint);
  bool empty() const { return items_.empty(); }
  bool full() const;  // further errors are dropped
  /// "did you mean 'x'?" for the closest of the candidates; empty when none is close, or when further errors are
  /// dropped.
  std::string suggestion(const std::string& word, const std::vector<std::string>& candidates) const;
  /// Sorted by file, line, column.
  const std::vector<Diagnostic>& items() const { return items_; }
  /// Lines of source are shown under errors once their file is known.
  void add_source(const std::string& file, std::string text);
  void add_sources(const std::vector<std::pair<std::string, std::string>>& sources);
  const std::vector<std::pair<std::string, std::string>>& sources() const { return sources_; }
  /// Files that were read, by name; null: one that cannot be used.
  struct Files {
    std::map<std::string, std::shared_ptr<const SourceText>> read;
    std::size_t bytes = 0;  // counted each time that a file is named
  };
  Files& files() { return files_; }
  std::string format() const;
  /// Throws WorkflowError with all errors.
  [[noreturn]] void fail() const;

 private:
  std::vector<Diagnostic> items_;
  std::vector<std::pair<std::string, std::string>> sources_;
  Files files_;
};

/// The closest of `candidates` to a misspelt word, or empty when none is close (edit distance).
std::string closest(const std::string& word, const std::vector<std::string>& candidates);

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

/// Reads a file named at `where`, if it was not read before; null, with an error at `where`, when it does not exist,
/// is too large, or is one too many.
SourcePtr read_source(const std::filesystem::path& file, const SourceLocation& where, Diagnostics& diagnostics);

struct ErrorCode {
  std::string_view code;
  std::string_view meaning;  // one sentence, that of the table in docs/yaml.md
  std::string_view causes;   // what usually leads to it
  std::string_view remedy;   // what to do
  std::string_view wrong;    // lines of a workflow file, or a `--set` option, that get this code
  std::string_view right;    // in their place, without any error
};

/// In ascending order.
std::span<const ErrorCode> error_codes();

/// The codes of values and files: a part of `error_codes()`.
std::span<const ErrorCode> error_codes_of_values();

}  // namespace baton
