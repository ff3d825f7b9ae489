// SPDX-License-Identifier: Apache-2.0
#include "agents/prompts/conversation.h"  // of the layers below: before any public header

#include "sdk/src/internal.h"

#include <baton/session.h>
#include <fmt/format.h>

#include <deque>
#include <mutex>

#include "engine/base/errors.h"
#include "sdk/src/open_models.h"
#include "sdk/src/owner.h"
#include "sdk/src/servers_of_run.h"
#include "sdk/src/session_file.h"

namespace baton::inline v1 {

struct Session::State {
  static constexpr std::size_t kMaxPast = 64;

  State(const Engine& of_engine, const Workflow& of_workflow, SavedSession saved)
      : engine(of_engine), workflow(of_workflow), runs(saved.runs) {
    past.push_back(std::move(saved.memory));
    servers = servers_of(workflow);
  }
  static std::shared_ptr<State> make(const Engine& engine, const Workflow& workflow, SavedSession saved) {
    return make_owned<State>(engine, workflow, std::move(saved));
  }

  Engine engine;
  Workflow workflow;
  std::shared_ptr<McpServers> servers;  // of all its runs; null: none
  mutable std::mutex mutex;
  std::deque<SessionMemory> past;  // after each of the last runs; the last is the present
  int runs = 0;
  std::uint64_t started = 0;  // runs
  bool running = false;       // the last of them

  /// The mutex is held.
  void must_be_still(const char* call) const {
    if (running) throw InputError(fmt::format("session: {}: a run of the session has not ended", call));
  }
  /// A run may say more than once that it is over.
  void over(std::uint64_t run, const SessionMemory* memory) noexcept {
    const std::lock_guard lock(mutex);
    if (!running || run != started) return;
    const bool kept = memory != nullptr && try_to([&] { past.push_back(*memory); });
    running = false;
    if (!kept) return;
    if (past.size() > kMaxPast + 1) past.pop_front();
    ++runs;
  }
};

Session Engine::session(const Workflow& workflow) const {
  return Session(Session::State::make(*this, workflow, SavedSession{}));
}

Session Engine::restore(const Workflow& workflow, const std::filesystem::path& file) const {
  const OpenPlan open = open_models(*this, workflow);
  return Session(Session::State::make(*this, workflow, read_session(file, open)));
}

Run Session::start(const RunOptions& options) const {
  if (!options.finished.empty())
    throw InputError("session: start: turns of an earlier run cannot be taken over into a session");
  if (!options.record.empty()) throw InputError("session: start: a run of a session cannot be recorded");
  SessionMemory memory;
  std::uint64_t run = 0;
  {
    const std::lock_guard lock(state_->mutex);
    state_->must_be_still("start");
    memory = state_->past.back();
    run = ++state_->started;
    state_->running = true;
  }
  try {
    return start_run(
        state_->engine, state_->workflow, options, std::move(memory),
        [state = state_, run](const SessionMemory* now) { state->over(run, now); }, state_->servers);
  } catch (...) {
    state_->over(run, nullptr);
    throw;
  }
}

RunRecord Session::run(const RunOptions& options) const { return start(options).get(); }

int Session::runs() const {
  const std::lock_guard lock(state_->mutex);
  return state_->runs;
}

int Session::rewindable() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<int>(state_->past.size()) - 1;
}

void Session::rewind(int runs) const {
  const std::lock_guard lock(state_->mutex);
  state_->must_be_still("rewind");
  const auto possible = static_cast<int>(state_->past.size()) - 1;
  if (runs < 0 || runs > possible)
    throw InputError(fmt::format("session: rewind: expected from 0 to {} runs, found {}", possible, runs));
  state_->past.erase(state_->past.end() - runs, state_->past.end());
  state_->runs -= runs;
}

Session Session::fork() const {
  const std::lock_guard lock(state_->mutex);
  auto state = State::make(state_->engine, state_->workflow, SavedSession{});
  state->past = state_->past;
  state->runs = state_->runs;
  return Session(std::move(state));
}

std::vector<Message> Session::messages(const std::string& agent) const {
  if (state_->workflow.impl().plan->spec->agent(agent) == nullptr)
    throw InputError(fmt::format("session: the workflow has no agent '{}'", agent));
  const std::lock_guard lock(state_->mutex);
  std::vector<Message> messages;
  const auto found = state_->past.back().find(agent);
  if (found == state_->past.back().end()) return messages;
  for (const SaidMessage& said : found->second->head) messages.push_back({said.role, said.text});
  for (const auto& exchange : found->second->exchanges) {
    for (const SaidMessage& said : exchange) messages.push_back({said.role, said.text});
  }
  return messages;
}

void Session::save(const std::filesystem::path& file) const {
  SavedSession saved;
  {
    const std::lock_guard lock(state_->mutex);
    saved = {state_->past.back(), state_->runs};
  }
  write_session(file, saved, open_models(state_->engine, state_->workflow));
}

}  // namespace baton::inline v1
