// SPDX-License-Identifier: Apache-2.0
// The section `relay` of a workflow file: the method and its settings.
#pragma once

#include "workflows/format/diagnostics.h"
#include "workflows/format/fields.h"
#include "workflows/format/spec.h"

namespace baton {

/// Reads `relay` of a file whose types have been checked, if it has the section. What contradicts another setting, or
/// would have no effect with it, is reported.
void read_relay(const Fields& file, RelaySpec& relay, Diagnostics& diagnostics);

}  // namespace baton
