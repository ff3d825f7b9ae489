// SPDX-License-Identifier: Apache-2.0
// The constraint of an agent's output, compiled.
#pragma once

#include <memory>

#include "engine/text/constrain/grammar.h"
#include "workflows/format/spec.h"

namespace baton {

/// Null where the whole output is not constrained, and for a schema that is only checked. Throws ConstraintError.
std::shared_ptr<const Grammar> output_grammar(const OutputSpec& output);

}  // namespace baton
