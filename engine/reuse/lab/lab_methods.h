// SPDX-License-Identifier: Apache-2.0
// The laboratory's methods: published baselines, for comparison. Library baton_lab_methods, which the product does not
// link.
#pragma once

#include "engine/reuse/method.h"

namespace baton {

/// direct: reused tokens are not run; their keys are only rotated to the new positions.
const Method& direct_method();

/// Registers them (engine/registry.h).
void register_lab_methods();

}  // namespace baton
