// SPDX-License-Identifier: Apache-2.0
// LineFile: a file that grows by whole lines.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/system/file.h"

namespace baton::cli {

/// Not safe from several threads at once.
class LineFile {
 public:
  /// Opens the file behind its end, or makes it. `name` stands for it in errors: "--resume log.jsonl". Throws Failure
  /// with kUsage.
  LineFile(std::string name, const std::string& path);

  /// Appends the line and its end. Throws Failure with kRunFailed when not all of it can be written; the part that
  /// could be is removed.
  void add(std::string_view line);

 private:
  std::string name_;
  UniqueFd file_;
};

}  // namespace baton::cli
