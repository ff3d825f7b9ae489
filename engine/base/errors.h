// SPDX-License-Identifier: Apache-2.0
// Errors that more than one part of the engine throws.
#pragma once

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

}  // namespace baton
