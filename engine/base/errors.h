// SPDX-License-Identifier: Apache-2.0
// Errors of the engine that more than one room throws.
#pragma once

#include <stdexcept>

namespace baton {

/// A model file that cannot be used: says which file, what was found and what was expected.
class ModelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace baton
