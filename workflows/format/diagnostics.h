// SPDX-License-Identifier: Apache-2.0
// Errors of a workflow file: all of them in one pass, sorted, compiler style, with a stable code, a caret and a
// suggestion. Codes are listed in docs/yaml.md.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <baton/errors.h>

namespace baton {

class SourceText;

struct SourceLocation {
  std::string file;
  int line = 0;    // from 1; 0: no place
  int column = 0;  // from 1, in characters
  int length = 1;  // of the marked text
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
    std::size_t bytes = 0;  // of each time that one is named
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

}  // namespace baton
