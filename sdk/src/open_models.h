// SPDX-License-Identifier: Apache-2.0
// A plan with its models opened and its servers started, for a run and for other parts of the library.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "agents/mcp/server.h"
#include "sdk/src/internal.h"

namespace baton::inline v1 {

struct OpenPlan {
  std::shared_ptr<const Plan> plan;  // with the layers that its method recomputes, if the file leaves them open
  std::map<std::string, std::shared_ptr<LocalEngine>> engines;      // by ModelSpec name, of the models in this process
  std::map<std::string, std::shared_ptr<InferenceEngine>> servers;  // the same, of those on servers
  double load_ms = 0.0;     // opening these models, whenever that was; each counts once
  double measure_ms = 0.0;  // measuring them now, at their first use by the workflow's method

  /// Each engine of this process once, in the order of the plan's turns.
  std::vector<std::shared_ptr<LocalEngine>> distinct_engines() const;
};

/// Opens those of the workflow's models that are not open yet, and measures the layers that its method needs to know.
/// When stopped it may leave the latter out. Throws ResourceError, and WorkflowError for a setting that does not fit a
/// model.
OpenPlan open_models(const Engine& engine, const Workflow& workflow, const std::stop_token& stop = {});

/// The sessions that Engine::session and Engine::restore return.
Session new_session(const Engine& engine, const Workflow& workflow);
Session restored_session(const Engine& engine, const Workflow& workflow, const std::filesystem::path& file);

// The servers of a run: what a workflow names under `mcp` is started, and its tools become those of the plan.

/// The servers that a workflow names; none is started yet. Null: it names none.
std::shared_ptr<McpServers> servers_of(const Workflow& workflow);

/// Throws InputError if the workflow names servers and the host allows none.
void check_allowed(const WorkflowSpec& spec, bool allowed);

/// Starts those that do not run, and completes the request: its plan, its tools and its record have them. If one
/// that is required cannot be started, or lacks a tool, the request says why no turn can start. Throws Interrupted.
void start_servers(const std::shared_ptr<McpServers>& servers, RunRequest& request, const std::stop_token& stop);

}  // namespace baton::inline v1
