// SPDX-License-Identifier: Apache-2.0
// The laboratory's methods: published baselines, for comparison. Library baton_lab_methods, which the product does not
// link.
#pragma once

namespace baton {

/// Registers them (engine/registry.h).
void register_lab_methods();

}  // namespace baton
