// SPDX-License-Identifier: Apache-2.0
// What the runner's exit codes mean (docs/cli.md).
#pragma once

#include <stdexcept>
#include <string>

namespace baton::cli {

enum ExitCode : int {
  kOk = 0,
  kRunFailed = 1,
  kUsage = 2,
  kInvalidFile = 3,
  kResources = 4,
  kTimeout = 5,
  kVerificationFailed = 6,
  kSuspended = 7,
  kInterrupted = 130,
};

/// Ends the verb with this code after `what()` was shown.
class Failure : public std::runtime_error {
 public:
  /// Nothing is said where the text is empty.
  Failure(ExitCode exit_code, const std::string& text) : std::runtime_error(text), code(exit_code) {}
  ExitCode code;
};

}  // namespace baton::cli
