// SPDX-License-Identifier: Apache-2.0
// The exceptions of the library. All of them derive from baton::Error; what() is a message for the user.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace baton::inline v1 {

/// The base of what the library throws. A function that throws something else says so.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One mistake in a workflow file.
struct Diagnostic {
  std::string file;
  int line = 0, column = 0;  // from 1, in characters; 0: unknown
  int length = 1;            // of the marked text, in characters
  std::string code;          // stable, "E0203"
  std::string message;
  std::string hint;         // "did you mean 'agent_analyst_current'?", or empty
  std::string source_line;  // the line itself, or empty
};

/// A workflow cannot be used. what() shows every mistake like a compiler: place, code, caret and hint.
class WorkflowError : public Error {
 public:
  WorkflowError(const std::string& text, std::vector<Diagnostic> mistakes) : Error(text), items(std::move(mistakes)) {}
  std::vector<Diagnostic> items;  // sorted by file, line and column; at least one
};

/// An input of a run is missing or unknown, or an option cannot be used.
class InputError : public Error {
 public:
  explicit InputError(const std::string& text, std::vector<std::string> missing_inputs = {})
      : Error(text), missing(std::move(missing_inputs)) {}
  std::vector<std::string> missing;  // required inputs that were not given, in the order of the file
};

/// A model or a device cannot be used, or there is no memory.
class ResourceError : public Error {
 public:
  enum class Kind { model, device, memory };
  ResourceError(Kind what_is_missing, const std::string& text) : Error(text), kind(what_is_missing) {}
  Kind kind;
};

}  // namespace baton::inline v1
