// SPDX-License-Identifier: Apache-2.0
// The verbs: each adds its options and sets the action that main runs once the command line is sound.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace baton::cli {

using Action = std::function<int()>;

void add_run(CLI::App& app, Action& action);
void add_chat(CLI::App& app, Action& action);
void add_serve(CLI::App& app, Action& action);
void add_resume(CLI::App& app, Action& action);
void add_replay(CLI::App& app, Action& action);
void add_diff(CLI::App& app, Action& action);
void add_validate(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_graph(CLI::App& app, Action& action);
void add_render(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_trace(CLI::App& app, Action& action);
void add_profile(CLI::App& app, Action& action);
void add_learn(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_load(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_pull(CLI::App& app, Action& action);
void add_init(CLI::App& app, Action& action);
void add_models(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_schema(CLI::App& app, Action& action);
void add_completion(CLI::App& app, Action& action);
void add_version(CLI::App& app, Action& action);

}  // namespace baton::cli
