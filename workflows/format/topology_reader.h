// SPDX-License-Identifier: Apache-2.0
// The `workflow` section: who takes part, and which keys go with which topology.
#pragma once

#include "workflows/format/agent_reader.h"
#include "workflows/format/spec.h"

namespace baton {

/// Fills spec.topology; the agents of the spec have been read. `file` is the whole file.
void read_topology(const Fields& file, WorkflowSpec& spec, AgentReader& reader, Diagnostics& diagnostics);

}  // namespace baton
