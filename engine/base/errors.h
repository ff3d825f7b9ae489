// SPDX-License-Identifier: Apache-2.0
// Errors that more than one part of the engine throws.
#pragma once

#include <new>
#include <stdexcept>

namespace baton {

/// A model file cannot be used. The message names the file, the value found and the value expected.
class ModelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Work was given up before it was done, because its caller requested a stop.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("stopped before it was done") {}
};

/// Returns what() of an error, or for std::bad_alloc, whose what() says nothing to a user: "out of memory". Does not
/// allocate memory. The result is valid as long as the error.
inline const char* message_of(const std::exception& error) noexcept {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? "out of memory" : error.what();
}

/// Runs what an engine or a run can do without. Returns false if it threw, for example without memory.
template <class Work>
bool try_to(const Work& work) noexcept {
  try {
    work();
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace baton
