// SPDX-License-Identifier: Apache-2.0
// The servers of a run: what a workflow names under `mcp` is started, and its tools become those of the plan.
#pragma once

#include "agents/mcp/server.h"

#include <memory>
#include <stop_token>

#include "sdk/src/internal.h"

namespace baton::inline v1 {

/// The servers that a workflow names; none is started yet. Null: it names none.
std::shared_ptr<McpServers> servers_of(const Workflow& workflow);

/// Throws InputError where the workflow names servers and the host allows none.
void check_allowed(const WorkflowSpec& spec, bool allowed);

/// Starts those that do not run, and completes the request: its plan, its tools and its record have them. Where one
/// that is required cannot be started, or lacks a tool, the request says why no turn can start. Throws Interrupted.
void start_servers(const std::shared_ptr<McpServers>& servers, RunRequest& request, const std::stop_token& stop);

}  // namespace baton::inline v1
